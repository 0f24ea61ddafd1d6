"""The policy that reinforcement begins from: supervised on noisy demonstrations, and kept in a cache.

Noise leaves a long tail, so that the likeliest answer is far better than a sampled one: there is something to
learn. A cached start is found by a hash of all that it follows from. What is left out: pretraining.
"""

import dataclasses
import fcntl
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config
from .model import MODELS, Decoder, Table, build, load_weights, untied
from .precision import log_probs
from .streams import stream
from .task import PAD, draw_prompts, left_padded, longest_response, noisy_answer

BATCH = 256
"""Demonstrations of a step."""
RATE = 3e-3
"""Its highest learning rate; it rises for a tenth of the steps and falls to zero as a cosine."""
VERSION = 1
"""Of the recipe: part of the hash."""


def longest(config: Config) -> int:
    """Positions that a model of the run needs: prompt, answer, end."""
    task = config.make_task()
    return task.longest_prompt + longest_response(task)


def fresh(config: Config) -> "Decoder | Table":
    """The model with random weights, which depend on the base seed alone."""
    return build(config.model, config.make_task().vocab_size, longest(config), config.base_seed)


def key(config: Config) -> str:
    """A hash of everything that a warm start follows from."""
    named = ("task", "task_settings", "model", "warm_steps", "warm_noise", "base_seed")
    parts = {name: getattr(config, name) for name in named} | {
        "version": VERSION,
        "batch": BATCH,
        "rate": RATE,
    }
    if config.model in MODELS:
        parts["shape"] = dataclasses.asdict(MODELS[config.model])
    text = json.dumps(parts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def cache_folder() -> Path:
    """Where warm starts are kept: $DIVSIM_CACHE, or divsim in the user's cache."""
    said = os.environ.get("DIVSIM_CACHE")
    return Path(said) if said else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "divsim"


def warm_start(
    config: Config, advance: Callable[[int, int], None] = lambda done, total: None
) -> "Decoder | Table":
    """The model that reinforcement begins from, in float32: from the cache, or trained and put there.

    Args:
      config: of the run.
      advance: called with the number of finished supervised steps and of all.
    """
    model = fresh(config)
    if config.warm_steps == 0:
        return model
    path = cache_folder() / f"{config.task}-{key(config)}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one trains it and the others wait
        if not path.exists():
            supervise(model, config, advance)
            part = path.with_name(f".{path.name}.{os.getpid()}")
            save_file(untied(model), part)
            part.replace(path)
    load_weights(model, load_file(path))
    return model


def supervise(
    model: "Decoder | Table", config: Config, advance: Callable[[int, int], None] = lambda done, total: None
) -> None:
    """Train on noisy demonstrations by the mean log-probability of their tokens."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.0)
    rng = stream(config.base_seed, "demonstrations")
    warm = max(1, config.warm_steps // 10)
    for step in range(config.warm_steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min((step + 1) / warm, (1 + np.cos(np.pi * step / config.warm_steps)) / 2)
        tokens, is_token, is_response = demonstrations(config, rng)
        features = model.features(tokens[:, :-1], is_token[:, :-1])
        log_pi = log_probs(model.head(features[is_response[:, 1:]]))
        loss = F.nll_loss(log_pi, tokens[is_response])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimiser.step()
        advance(step + 1, config.warm_steps)


def demonstrations(config: Config, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """A batch of prompts and noisy answers: tokens, what is a token, what is a response; (B, P + T) each."""
    task = config.make_task()
    prompts = draw_prompts(task, rng, BATCH, held_out=False)
    left, is_left = left_padded(prompts, task.longest_prompt)
    answers = [noisy_answer(task, prompt, rng, config.warm_noise) for prompt in prompts]
    width = longest_response(task)
    right = np.array([[*answer, *[PAD] * (width - len(answer))] for answer in answers])
    is_right = np.arange(width) < np.array([[len(answer)] for answer in answers])
    nothing = np.zeros_like(is_left)
    joined = ((left, right), (is_left, is_right), (nothing, is_right))
    tokens, is_token, is_response = (torch.from_numpy(np.concatenate(pair, axis=1)) for pair in joined)
    return tokens, is_token, is_response
