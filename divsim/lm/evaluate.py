"""What a trained policy can do: shares of right answers to held-out prompts, and examples."""

from pathlib import Path

import numpy as np
import torch

from .checkpoint import load
from .config import Config
from .model import Decoder, Table, load_weights
from .precision import PRECISIONS, engine, prepared
from .rollout import Rollout, Sampling, generate
from .streams import stream
from .task import Tokens, draw_prompts, left_padded, longest_response, reward
from .warm_start import fresh


def evaluate(config: Config, model: "Decoder | Table", device: str = "cpu") -> dict[str, float]:
    """Shares of right answers to held-out prompts: the likeliest answer, and a sampled one.

    The model computes in float32, or float64 if it was trained so; prompts depend on the base seed alone.
    """
    prompts = held_out_prompts(config, config.held_out)
    scored = {"held_out_greedy": 0.0, "held_out_sampled": config.temperature}
    found = {}
    for name, temperature in scored.items():
        rollout = answers(config, model, prompts, Sampling(temperature, k=1), config.base_seed, device)
        task = config.make_task()
        right = [reward(task, p, r) for p, r in zip(prompts, rollout.response.tolist(), strict=True)]
        found[name] = float(np.mean(right))
    return found


def held_out_prompts(config: Config, count: int) -> list[Tokens]:
    """The first held-out prompts of a base seed."""
    return draw_prompts(config.make_task(), stream(config.base_seed, "held_out"), count, held_out=True)


def answers(
    config: Config,
    model: "Decoder | Table",
    prompts: list[Tokens],
    sampling: Sampling,
    seed: int,
    device: str = "cpu",
) -> Rollout:
    """One response to each prompt."""
    task = config.make_task()
    shape = (len(prompts), longest_response(task))
    uniforms = torch.from_numpy(stream(seed, "held_out", 1).random(shape))
    precise = PRECISIONS["fp64" if config.precision == "fp64" else "fp32"]
    return sampled(engine(model, precise), prompts, task.longest_prompt, uniforms, sampling, device)


def sampled(
    model: "Decoder | Table",
    prompts: list[Tokens],
    width: int,
    uniforms: torch.Tensor,
    sampling: Sampling,
    device: str,
) -> Rollout:
    """Continue prompts on a device: (B, T) uniform numbers -> a rollout of B rows."""
    tokens, is_prompt = (torch.from_numpy(part).to(device) for part in left_padded(prompts, width))
    return generate(model, tokens, is_prompt, uniforms.to(device), sampling)


def trained(config: Config, folder: Path, device: str = "cpu") -> "Decoder | Table":
    """The policy of a run's last checkpoint.

    Errors: ValueError if the run has none.
    """
    saved = load(folder)
    if saved is None:
        raise ValueError(f"{folder} has no checkpoint; train it first with divsim lm train --out {folder}")
    model = prepared(fresh(config), PRECISIONS[config.precision], device)
    load_weights(model, saved[0])
    return model
