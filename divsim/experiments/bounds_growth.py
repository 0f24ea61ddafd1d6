"""How bounds and the true error grow with the length of an episode, and with the distance of a step.

Long worlds with one reward at the end in [0, 1], by dynamic programming. The policies are the same total
variation apart in every state, in the same direction where a world counts. Where a deviation is rare under
mu, each step adds to the harm and the error grows like T^2, until T times the distance is about 1; then at
most like T, where the surrogate, linear in every step, leaves the range of the return. Where mu deviates
anyway it grows like T, and where the past is forgotten not at all. xi = 1/2, as in `bounds_horizon`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL, TV
from divsim.tabular.horizon import BOUNDS, Apart, horizon_bounds
from divsim.tabular.outcome_worlds import (
    WORLD_PAIRS,
    outcome_weights,
    outcome_world,
    surrogate,
)
from divsim.tabular.policies import Floats
from divsim.tabular.worlds import World, expected_return, occupancy

from .bounds_config import Config
from .bounds_horizon import REWARDS
from .bounds_rows import bound_rows, pooled
from .parts import Part, Seeds
from .rows import Key, Row, row
from .statistics import Estimate, mean

Point = tuple[int, float]
"""T, and total variation a step."""


def points(config: Config) -> tuple[Point, ...]:
    """Where error and bounds are computed: along the horizons, and along the distances."""
    along = [(horizon, config.distance) for horizon in config.horizons]
    across = [(config.horizon, distance) for distance in config.distances]
    return tuple(dict.fromkeys((*along, *across)))


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """`error` (rewards, points) and `bound` (bounds, points) of one seed of one world."""
    judged = [_judge(cell, point, rng) for point in points(config)]
    errors, bounds = zip(*judged, strict=True)
    return {"error": np.stack(errors, axis=-1), "bound": np.stack(bounds, axis=-1)}


def _judge(cell: str, point: Point, rng: np.random.Generator) -> tuple[Floats, Floats]:
    horizon, distance = point
    walk, log_mu, log_pi = WORLD_PAIRS[cell](rng, horizon, distance)
    random = rng.random(len(walk[0]))
    worst = (outcome_weights(walk, log_mu, log_pi) > 0).astype(np.float64)
    worlds = [outcome_world(walk, outcome, horizon) for outcome in (random, worst)]
    errors = [_error(world, log_mu, log_pi) for world in worlds]
    return np.array(errors), horizon_bounds(_apart(worlds[0], log_mu, log_pi))


def _error(world: World, log_mu: Floats, log_pi: Floats) -> float:
    gain = expected_return(world, log_pi) - expected_return(world, log_mu)
    return abs(float(gain - surrogate(world, log_mu, log_pi)))


def _apart(world: World, log_mu: Floats, log_pi: Floats) -> Apart:
    tv, kl = (np.asarray(one.measure(log_mu, log_pi)) for one in (TV, FORWARD_KL))
    visited = occupancy(world, log_mu)
    return Apart(np.sum(visited * tv, axis=-1), tv.max(), kl.max(), np.sum(visited * kl))


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """Each bound over all points; then along T and along the distance, with the exponents in T."""
    found: list[Row] = []
    for b, name in enumerate(BOUNDS):
        for r, rewards in enumerate(REWARDS):
            key: Key = {"table": "long", "world": cell, "bound": name, "rewards": rewards}
            found += bound_rows(pooled(seeds["error"][:, r]), pooled(seeds["bound"][:, b]), key)
        found += _growth(config, seeds["bound"][:, b], {"world": cell, "of": name})
    for r, rewards in enumerate(REWARDS):
        found += _growth(config, seeds["error"][:, r], {"world": cell, "of": f"error_{rewards}"})
    return found


def _growth(config: Config, size: Floats, key: Key) -> list[Row]:
    """Sizes at every point, (seeds, points); slopes of log size in log T; where it leaves the range."""
    whole, common = len(size), {"table": "growth", **key}
    found = [
        row(mean(size[:, p]), whole, quantity="size", horizon=horizon, distance=f"{distance:g}", **common)
        for p, (horizon, distance) in enumerate(points(config))
    ]
    along = size[:, : len(config.horizons)]
    for span in spans(config.horizons):
        chosen = [place for place, horizon in enumerate(config.horizons) if span[0] <= horizon <= span[-1]]
        slopes = exponents([config.horizons[place] for place in chosen], along[:, chosen])
        found.append(row(mean(slopes), whole, quantity="exponent", span=f"{span[0]}-{span[-1]}", **common))
    means = zip(config.horizons, along.mean(axis=0), strict=True)
    beyond = [horizon for horizon, value in means if value > 1]
    first = Estimate(min(beyond, default=np.nan), np.nan, np.nan, whole)
    found.append(row(first, whole, quantity="vacuous_from", **common))
    return found


def spans(horizons: Sequence[int]) -> tuple[Sequence[int], ...]:
    """The shorter half of the horizons, the longer half, and all of them.

    >>> spans((4, 8, 16, 32, 64))
    ((4, 8, 16), (16, 32, 64), (4, 8, 16, 32, 64))
    """
    middle = len(horizons) // 2
    return horizons[: middle + 1], horizons[middle:], horizons


def exponents(horizons: Sequence[int], sizes: Floats) -> Floats:
    """Slope of log size in log T by least squares: (seeds, horizons) -> (seeds).

    >>> exponents([2, 4, 8], np.array([[4.0, 16.0, 64.0]])).round(12).tolist()
    [2.0]
    """
    x = np.log(horizons) - np.mean(np.log(horizons))
    return np.asarray(np.log(sizes) @ x / np.sum(x**2))


GROWTH = Part("growth", lambda config: tuple(WORLD_PAIRS), lambda config: config.seeds, compute, rows)
