"""The loop: sample with a behaviour policy, score, cut into minibatches, update on each under a rule.

One iteration is a function of the state before it and its number; nothing else is random. What is left out:
the files of a run (`run.py`), and more than one device.
"""

import copy
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from divsim.formulas import group_advantage, loss_weights

from .config import Config
from .evaluate import sampled
from .loss import Batch, Context, Judged, Objective, Scale, backward, response_log_probs, unscaled
from .measures import token_measures
from .model import Decoder, Table, load_weights, untied
from .precision import PRECISIONS, autocast, engine, prepared
from .rollout import Rollout
from .streams import stream
from .task import draw_prompts, longest_response, reward

Weights = dict[str, Tensor]


@dataclass
class State:
    """What changes while a run goes on.

    Attributes:
      model: pi.
      optimiser: and what it remembers.
      scaler: of the loss, in float16; otherwise it does nothing.
      past: weights at the start of the last `lag` iterations, the oldest first; copies.
      start: the warm start, for the reference term; None without one.
      iteration: finished iterations.
      updates: finished updates, without those whose gradient overflowed.
    """

    model: "Decoder | Table"
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    past: deque[Weights]
    start: "Decoder | Table | None"
    iteration: int = 0
    updates: int = 0


def begin(config: Config, base: "Decoder | Table", device: str) -> State:
    """The state before the first iteration: a copy of the warm start, and an optimiser without a memory."""
    precision = PRECISIONS[config.precision]
    model = prepared(copy.deepcopy(base), precision, device)
    start = copy.deepcopy(model).requires_grad_(False) if config.reference else None
    scaler = torch.amp.GradScaler(torch.device(device).type, enabled=precision.is_scaled)
    return State(model, _optimiser(config, model), scaler, deque(maxlen=config.lag + 1), start)


def _optimiser(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    if config.optimiser == "sgd":
        return torch.optim.SGD(model.parameters(), lr=config.lr)
    return torch.optim.AdamW(
        model.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
    )


def iterate(config: Config, state: State, device: str) -> dict[str, Any]:
    """One iteration; changes the state, returns what was measured."""
    context = partial(autocast, PRECISIONS[config.precision], device)
    rollout, rewards = collect(config, state, device)
    advantage = group_advantage(rewards, divide_by_std=config.divide_by_std)
    log_ref_k = None
    if state.start is not None:
        log_ref_k = response_log_probs(state.start, rollout, config.temperature, context)
    order = torch.from_numpy(stream(config.seed, "order", state.iteration).permutation(len(rollout.tokens)))
    passes: list[list[Judged]] = []
    norms: list[float] = []
    for rows in order.to(device).chunk(config.minibatches):
        batch = Batch(
            rollout.rows(rows), advantage.flatten()[rows],
            loss_weights(rollout.is_response[rows], config.aggregation),
            None if log_ref_k is None else log_ref_k[rows],
        )  # fmt: skip
        judged, norm = update(config, state, batch, context)
        passes.append(judged)
        norms.append(norm)
    state.iteration += 1
    finite = [norm for norm in norms if math.isfinite(norm)]
    return {
        "iteration": state.iteration,
        "reward": float(rewards.mean()),
        "same_reward": float((rewards == rewards[:, :1]).all(dim=-1).double().mean()),
        "length": float(rollout.is_response.sum(dim=-1).double().mean()),
        "gradient_norm": fmean(finite) if finite else None,
        "skipped": sum(map(math.isnan, norms)),
        "overflowed": sum(map(math.isinf, norms)),
        **token_measures(passes, config.ratio_cap),
    }


@torch.no_grad()
def collect(config: Config, state: State, device: str) -> tuple[Rollout, Tensor]:
    """A rollout of the behaviour policy, (P G) rows, group by group, and its rewards (P, G) float64."""
    state.past.append(copy.deepcopy(state.model.state_dict()))
    behind = copy.deepcopy(state.model)
    behind.load_state_dict(state.past[0])
    behaviour = engine(behind, PRECISIONS[config.rollout_precision])
    task = config.make_task()
    prompts = draw_prompts(
        task, stream(config.seed, "prompts", state.iteration), config.prompts, held_out=False
    )
    repeated = [prompt for prompt in prompts for _ in range(config.group)]
    shape = (len(repeated), longest_response(task))
    uniforms = torch.from_numpy(stream(config.seed, "samples", state.iteration).random(shape))
    rollout = sampled(behaviour, repeated, task.longest_prompt, uniforms, config.sampling, device)
    rollout.check(task.vocab_size)
    scores = [
        reward(task, prompt, response)
        for prompt, response in zip(repeated, rollout.response.tolist(), strict=True)
    ]
    return rollout, torch.tensor(scores, dtype=torch.float64, device=device).view(
        config.prompts, config.group
    )


def update(config: Config, state: State, batch: Batch, context: Context) -> tuple[list[Judged], float]:
    """One update on a minibatch; the norm of its gradient before clipping.

    The norm is NaN if there was nothing to do, and infinite if the gradient overflowed in float16: then the
    weights, the optimiser and the schedule stay, and the loss is scaled less from now on.
    """
    objective = config.objective
    judged = gradient(state.model, batch, objective, config.rows, context, state.scaler.scale)
    if not bool((batch.advantage != 0).any()) and not objective.regularised and not _pulls(judged):
        state.updates += 1
        state.optimiser.zero_grad()
        return judged, math.nan
    for group in state.optimiser.param_groups:
        group["lr"] = config.lr * schedule(config, state.updates + 1)
    state.scaler.unscale_(state.optimiser)
    norm = nn.utils.clip_grad_norm_(
        state.model.parameters(), config.clip or math.inf, error_if_nonfinite=not state.scaler.is_enabled()
    )
    state.scaler.step(state.optimiser)
    state.scaler.update()
    state.optimiser.zero_grad()
    overflowed = not math.isfinite(float(norm))
    state.updates += not overflowed
    return judged, math.inf if overflowed else float(norm)


def gradient(
    model: "Decoder | Table", batch: Batch, objective: Objective, rows: int, context: Context,
    scale: Scale = unscaled,
) -> list[Judged]:  # fmt: skip
    """Add the gradient of a minibatch to the parameters, `rows` rows at once (0: all)."""
    count = len(batch.advantage)
    judged = []
    for part in torch.split(torch.arange(count, device=batch.advantage.device), rows or count):
        log_ref_k = None if batch.log_ref_k is None else batch.log_ref_k[part]
        some = Batch(batch.rollout.rows(part), batch.advantage[part], batch.weights[part], log_ref_k)
        judged += backward(model, some, objective, context, scale)
    return judged


def _pulls(judged: list[Judged]) -> bool:
    return any(bool((one.decision.pull != 0).any()) for one in judged)


def schedule(config: Config, update: int) -> float:
    """What multiplies the learning rate at an update, counted from 1.

    >>> schedule(Config(minibatches=4, warmup=2), 4), schedule(Config(minibatches=4, warmup=2), 99)
    (0.5, 1.0)
    """
    warm, total = config.warmup * config.minibatches, config.iterations * config.minibatches
    if update <= warm:
        return update / warm
    return (1 + math.cos(math.pi * (update - warm) / max(1, total - warm))) / 2 if config.decay else 1.0


def snapshot(state: State) -> tuple[Weights, dict[str, Any]]:
    """All that a run needs to go on, but its config and its warm start."""
    return untied(state.model), {
        "optimiser": state.optimiser.state_dict(),
        "scaler": state.scaler.state_dict(),
        "past": [dict(one) for one in state.past],
        "updates": state.updates,
    }


def restore(state: State, weights: Weights, saved: Mapping[str, Any]) -> None:
    """Put a run back to where it was."""
    load_weights(state.model, weights)
    state.optimiser.load_state_dict(saved["optimiser"])
    state.scaler.load_state_dict(saved["scaler"])
    state.past.extend(saved["past"])
    state.iteration, state.updates = saved["iteration"], saved["updates"]
