"""Small models and rollouts that the tests of the trainer share."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from divsim.lm.model import Decoder, Shape  # noqa: E402
from divsim.lm.rollout import Rollout, Sampling, generate  # noqa: E402
from divsim.lm.task import left_padded  # noqa: E402

VOCAB, LONGEST = 13, 16
RECORD = Sampling(k=4)
PROMPTS = [[5, 2], [7, 8, 9, 4, 3, 2], [6, 6, 2], [12, 11, 10, 2]]


def decoder(dtype: Any = torch.float64, seed: int = 0, **shape: Any) -> Decoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Decoder(Shape(**({"width": 16, "layers": 2, "heads": 2} | shape)), VOCAB, LONGEST)
        for parameter in model.parameters():  # far from uniform, so that a shift of one place is seen
            torch.nn.init.normal_(parameter, std=0.5)
    return model.to(dtype)


def rollout(
    model: Decoder, prompts: list[list[int]] = PROMPTS, length: int = 6, seed: int = 0,
    sampling: Sampling = RECORD, width: int = 6,
) -> Rollout:  # fmt: skip
    tokens, is_prompt = map(torch.from_numpy, left_padded(prompts, width))
    uniforms = torch.from_numpy(np.random.default_rng(seed).random((len(prompts), length)))
    return generate(model, tokens, is_prompt, uniforms, sampling)
