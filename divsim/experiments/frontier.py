"""One rollout of many minibatches against the best trust-region step of the same KL.

From one mu, with exact advantages, a rule moves pi minibatch by minibatch. At checkpoints its surrogate
E_pi[A] is compared with the largest that any policy within the same mean KL(mu || pi) has: the yardstick. In
a bandit the surrogate is the return; in a decision process the return may exceed what the yardstick promises,
because pi visits other states than mu. What is left out: learning over many rollouts (`learning.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count as count_from
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import log_softmax
from divsim.tabular.environments import ENVIRONMENTS, draw_worlds
from divsim.tabular.exact_learner import STEPS, exact_problem
from divsim.tabular.policies import Floats
from divsim.tabular.rollouts import by_time
from divsim.tabular.trust_region import REGIONS, Problem, distance, optimum, surrogate
from divsim.tabular.worlds import World, expected_return

from .learners import Setting, run_learner
from .learning import condition_named, streams
from .learning_config import Condition, Config, conditions
from .rows import Key, Row, row
from .runs import Arrays
from .statistics import mean, share

CHECKPOINTS = 12
"""Minibatches after which a rollout is compared, evenly spread in logs."""
RADII = tuple(float(f"{kl:.3g}") for kl in np.geomspace(1e-3, 3.0, 15))
"""At which the yardstick is drawn, nats."""
EPISODES = 4
"""Of each minibatch."""
YARDSTICK = "yardstick"
"""In the place of a learner: the best step itself, at every radius."""
SCALES = (0.3, 1.0)
"""Radii of the rules, and of the exact algorithms."""
ROUNDING = 1e-9
"""Of the yardstick, whose constraint is met to about 1e-12 of delta: so much more is no more."""


def tiles(config: Config) -> tuple[str, ...]:
    """One rollout of one learner each."""
    return tuple(
        _tile(condition, learner, scale)
        for condition in _conditions(config)
        for learner in (*config.learners, YARDSTICK)
        for scale in (SCALES if learner != YARDSTICK else (1.0,))
    )


def _tile(condition: Condition, learner: str, scale: float) -> str:
    return f"step@{condition.name}@{learner}@{scale:g}"


def _conditions(config: Config) -> tuple[Condition, ...]:
    return conditions(replace(config, minibatches=(config.step_minibatches,)))


def compute(config: Config, key: str) -> dict[str, NDArray[Any]]:
    """(n, checkpoints) each: how far, how much was gained, and how much could have been."""
    _, name, learner, scale = key.split("@")
    condition = condition_named(_conditions(config), name)
    rngs = streams(config, condition, "step", config.seeds)
    if learner == YARDSTICK:
        return _frontier(condition, rngs)
    count = 1 if learner in STEPS else config.step_minibatches
    episodes = EPISODES * config.step_minibatches
    once = replace(config, rollouts=1, passes=1, advantage="exact", episodes=episodes)
    places = set(np.geomspace(1, count, CHECKPOINTS).round().astype(int).tolist())
    minibatch = count_from(1)
    passed: list[tuple[World, Floats, Floats]] = []

    def watch(world: World, log_mu: Floats, log_pi: Floats) -> None:
        if next(minibatch) in places:
            passed.append((world, log_mu, log_pi))

    run_learner(once, condition, learner, Setting(1.0, float(scale)), rngs, watch)
    world, log_mu, _ = passed[0]
    start = _Start.of(world, log_mu)
    return _by_column([_compared(start, log_pi) for _, _, log_pi in passed])


def _by_column(found: Sequence[dict[str, Floats]]) -> dict[str, NDArray[Any]]:
    return {name: np.stack([one[name] for one in found], axis=-1) for name in found[0]}


@dataclass(frozen=True)
class _Start:
    """What every policy of a rollout is compared with.

    Attributes:
      problem: of one step from mu.
      most: (n,) E_pi[A] of the greedy policy: the unit of everything here.
      ret: (n,) J(mu).
    """

    world: World
    problem: Problem
    most: Floats
    ret: Floats

    @classmethod
    def of(cls, world: World, log_mu: Floats) -> "_Start":
        problem = exact_problem(world, log_mu)
        ret = expected_return(world, by_time(world, log_mu))
        return cls(world, problem, surrogate(problem, problem.greedy), ret)


def _achieved(start: _Start, log_pi: Floats) -> dict[str, Floats]:
    """What a policy promises, and what it gains in the world, (n,) each."""
    gain = expected_return(start.world, by_time(start.world, log_pi)) - start.ret
    return {
        "promised": surrogate(start.problem, log_pi) / start.most,
        "gain": gain / (start.most * start.world.horizon),
    }


def _compared(start: _Start, log_pi: Floats) -> dict[str, Floats]:
    """How far a policy is, what it achieved, and what could have been, (n,) each."""
    kl = distance(start.problem, log_pi, REGIONS["forward_kl"].divergence, "mean")
    best = _best(start.problem, kl) / start.most
    return {"kl": kl, "yardstick": best, **_achieved(start, log_pi)}


def _frontier(condition: Condition, rngs: Sequence[np.random.Generator]) -> dict[str, NDArray[Any]]:
    """(n, radii) the yardstick, and what the same step gains in the world."""
    world, logits = draw_worlds(ENVIRONMENTS[condition.environment], rngs)
    start = _Start.of(world, log_softmax(logits))
    best = (optimum(start.problem, REGIONS["forward_kl"], radius, "mean") for radius in RADII)
    return _by_column([_achieved(start, log_pi) for log_pi in best])


def _best(problem: Problem, kl: Floats) -> Floats:
    """The yardstick's surrogate; a policy that did not move has 0."""
    moved = kl > 0
    best = optimum(problem, REGIONS["forward_kl"], np.where(moved, kl, 1.0), "mean")
    return np.where(moved, surrogate(problem, best), 0.0)


def rows(config: Config, tiles: Mapping[str, Arrays]) -> list[Row]:
    """Regret against the yardstick at every checkpoint, and whether anybody was better."""
    return [
        one
        for condition in _conditions(config)
        for learner in config.learners
        for scale in SCALES
        for one in _rows(condition, learner, scale, tiles[_tile(condition, learner, scale)])
    ] + [one for condition in _conditions(config) for one in _frontier_rows(condition, tiles)]


def _frontier_rows(condition: Condition, tiles: Mapping[str, Arrays]) -> Iterable[Row]:
    for name, columns in tiles[_tile(condition, YARDSTICK, 1.0)].items():
        for radius, values in zip(RADII, columns.T, strict=True):
            key: Key = {"table": "frontier", "radius": radius, "quantity": name, **condition.key}
            yield row(mean(values), len(values), **key)


def _rows(condition: Condition, learner: str, scale: float, arrays: Arrays) -> Iterable[Row]:
    key: Key = {"table": "step", **condition.key, "learner": learner, "radius": scale}
    seeds, checkpoints = arrays["kl"].shape
    for place in range(checkpoints):
        at = {name: values[:, place] for name, values in arrays.items()}
        if np.all((at["kl"] > 0) & np.isfinite(at["kl"])):
            at["log_kl"] = np.log(at["kl"])
            for name, values in at.items():
                yield row(mean(values), seeds, checkpoint=place, quantity=name, **key)
    last = {name: values[:, -1] for name, values in arrays.items()}
    moved = last["yardstick"] > 0
    regret = np.where(moved, 1 - last["promised"] / np.where(moved, last["yardstick"], 1.0), np.nan)
    yield row(mean(regret), int(moved.sum()), quantity="regret", **key)
    excess = arrays["promised"] - arrays["yardstick"]
    beaten = np.sum(excess > ROUNDING, axis=-1)
    yield row(share(beaten, np.full(seeds, checkpoints)), excess.size, quantity="beaten", **key)
    above = np.sum(arrays["gain"] > arrays["yardstick"] + ROUNDING, axis=-1)
    yield row(share(above, np.full(seeds, checkpoints)), excess.size, quantity="return_above", **key)
