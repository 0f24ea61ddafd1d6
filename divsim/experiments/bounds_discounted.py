"""Discounted processes: the performance-difference identity, and what the trust-region theorems promise.

Random processes, and the doorway, where the penalties are attained. Each theorem is stated as a lower bound
of the gain; the proofs bound |J(pi) - J(mu) - L| on both sides, and that is what is compared. Rewards are in
[0, 1], so the range of a return is 1 / (1 - gamma), that of an occupancy's L1 distance 2.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import (
    FORWARD_KL,
    TV,
    cpo_penalty,
    kakade_langford,
    occupancy_shift,
    pinsker,
    simulation_gap,
    trpo_penalty,
)
from divsim.tabular.discounted import (
    Discounted,
    doorway,
    expected_return,
    mean_advantage,
    mixture,
    occupancy,
    random_discounted,
    surrogate,
    values,
)
from divsim.tabular.policies import Floats, dirichlet, perturbed

from .bounds_config import Config
from .bounds_rows import bound_rows, identity_row, pooled
from .parts import Part, Seeds
from .rows import Key, Row

WORLDS = ("random", "doorway")
ErrorAndBound = tuple[Floats, Floats]
"""(cases) each, in units of the range."""


@dataclass(frozen=True)
class Case:
    """A batch of processes with all that the theorems speak of.

    Attributes:
      mdp: the processes, rewards in [0, 1].
      model: what somebody took them for.
      log_mu, log_pi: (..., S, V) both policies.
      log_other: (..., S, V) the policy that is mixed in.
    """

    mdp: Discounted
    model: Discounted
    log_mu: Floats
    log_pi: Floats
    log_other: Floats


def settings(config: Config, world: str) -> list[Key]:
    """The key fields of each setting of a world."""
    noises = config.noises if world == "random" else ("small",)
    return [{"gamma": str(gamma), "noise": str(noise)} for gamma in config.gammas for noise in noises]


def names(config: Config) -> tuple[str, ...]:
    """The bounds, in the order of the arrays."""
    mixed = (f"kakade_langford_{mixing:g}" for mixing in config.mixings)
    return (*mixed, "trpo_tv", "trpo_kl", "cpo", "occupancy", "simulation")


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """`error` and `bound` (settings, bounds, cases), and `identity` (settings, cases), of one seed."""
    found: dict[str, list[Floats]] = {"error": [], "bound": [], "identity": []}
    for setting in settings(config, cell):
        gamma = float(setting["gamma"])
        drawn = (
            _random(rng, config, gamma, float(setting["noise"]))
            if cell == "random"
            else _doorway(rng, config.mdps, gamma)
        )
        judged = _mixed(drawn, config.mixings) | _improvement(drawn) | _shifts(drawn)
        found["error"].append(np.stack([judged[name][0] for name in names(config)]))
        found["bound"].append(np.stack([judged[name][1] for name in names(config)]))
        found["identity"].append(_identity(drawn))
    return {name: np.stack(arrays) for name, arrays in found.items()}


def _random(rng: np.random.Generator, config: Config, gamma: float, noise: float) -> Case:
    shape, states, actions = (config.mdps,), config.states, config.actions
    mdp, guess = (random_discounted(rng, shape, states, actions, gamma) for _ in range(2))
    reach = 10 ** rng.uniform(-3, 0, shape)  # from almost the same to another process
    log_mu, log_other = (dirichlet(rng, (*shape, states), actions, 1.0) for _ in range(2))
    return Case(mdp, _between(mdp, guess, reach), log_mu, perturbed(rng, log_mu, noise), log_other)


def _doorway(rng: np.random.Generator, cases: int, gamma: float) -> Case:
    """Steps that are small against 1 - gamma, because the penalties are attained to first order."""
    step = (1 - gamma) * 10 ** rng.uniform(-3, -1, (cases, 1))
    mdp, ones = doorway(gamma), np.ones((1, 2, 1))
    mu = np.concatenate([1 - 3 * step, 2 * step, step], axis=-1)[:, None] * ones
    pi = np.concatenate([1 - 3 * step, step, 2 * step], axis=-1)[:, None] * ones
    open_door = replace(mdp, transition=np.broadcast_to([0.0, 1.0], mdp.transition.shape))
    model = _between(mdp, open_door, step[:, 0])
    return Case(mdp, model, np.log(mu), np.log(pi), np.broadcast_to([-np.inf, -np.inf, 0.0], mu.shape))


def _between(mdp: Discounted, guess: Discounted, reach: Floats) -> Discounted:
    """A share `reach` (cases,) of the way from a process to a guess of it."""
    share = reach[:, None, None]
    return replace(
        mdp,
        transition=(1 - share[..., None]) * mdp.transition + share[..., None] * guess.transition,
        reward=(1 - share) * mdp.reward + share * guess.reward,
    )


def _identity(case: Case) -> Floats:
    """J(pi) - J(mu) = E_{d^pi}[A-bar] / (1 - gamma), in units of the range."""
    gained = np.sum(occupancy(case.mdp, case.log_pi) * _mean_advantage(case), axis=-1)
    return np.asarray(np.abs((1 - case.mdp.gamma) * _gain(case, case.log_pi) - gained))


def _gain(case: Case, log_pi: Floats) -> Floats:
    return expected_return(case.mdp, log_pi) - expected_return(case.mdp, case.log_mu)


def _mean_advantage(case: Case) -> Floats:
    return mean_advantage(case.mdp, case.log_mu, case.log_pi)


def _mixed(case: Case, mixings: tuple[float, ...]) -> dict[str, ErrorAndBound]:
    """Kakade and Langford: mu with a share of another policy mixed in."""
    gamma = case.mdp.gamma
    whole = surrogate(case.mdp, case.log_mu, case.log_other)
    epsilon = np.max(np.abs(mean_advantage(case.mdp, case.log_mu, case.log_other)), axis=-1)
    found = {}
    for mixing in mixings:
        gain = _gain(case, mixture(case.log_mu, case.log_other, mixing))
        bound = kakade_langford(mixing, epsilon, gamma)
        found[f"kakade_langford_{mixing:g}"] = _in_ranges(gain - mixing * whole, bound, 1 / (1 - gamma))
    return found


def _improvement(case: Case) -> dict[str, ErrorAndBound]:
    """The surrogate's error against the penalties of TRPO and CPO."""
    gamma = case.mdp.gamma
    tv = np.asarray(TV.measure(case.log_mu, case.log_pi))
    max_kl = np.max(FORWARD_KL.measure(case.log_mu, case.log_pi), axis=-1)
    error = _gain(case, case.log_pi) - surrogate(case.mdp, case.log_mu, case.log_pi)
    largest = np.max(np.abs(values(case.mdp, case.log_mu).advantage), axis=(-2, -1))
    largest_mean = np.max(np.abs(_mean_advantage(case)), axis=-1)
    penalties = {
        "trpo_tv": trpo_penalty(np.max(tv, axis=-1), largest, gamma),
        "trpo_kl": trpo_penalty(pinsker(max_kl), largest, gamma),
        "cpo": cpo_penalty(_visited(case, tv), largest_mean, gamma),
    }
    return {name: _in_ranges(error, bound, 1 / (1 - gamma)) for name, bound in penalties.items()}


def _shifts(case: Case) -> dict[str, ErrorAndBound]:
    """How far occupancies part, and how far the values of a wrong model are off."""
    mdp, model, gamma = case.mdp, case.model, case.mdp.gamma
    apart = np.sum(np.abs(occupancy(mdp, case.log_pi) - occupancy(mdp, case.log_mu)), axis=-1)
    tv = np.asarray(TV.measure(case.log_mu, case.log_pi))
    value = values(model, case.log_mu).value
    wrong = np.max(np.abs(values(mdp, case.log_mu).value - value), axis=-1)
    gap = simulation_gap(
        np.max(np.abs(model.reward - mdp.reward), axis=(-2, -1)),
        np.max(np.sum(np.abs(model.transition - mdp.transition), axis=-1), axis=(-2, -1)),
        np.ptp(value, axis=-1),
        gamma,
    )
    return {
        "occupancy": _in_ranges(apart, occupancy_shift(_visited(case, tv), gamma), 2.0),
        "simulation": _in_ranges(wrong, gap, 1 / (1 - gamma)),
    }


def _visited(case: Case, per_state: Floats) -> Floats:
    return np.asarray(np.sum(occupancy(case.mdp, case.log_mu) * per_state, axis=-1))


def _in_ranges(error: Floats, bound: Floats, size: float) -> ErrorAndBound:
    return np.abs(error) / size, np.asarray(bound) / size


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """What is reported of one world: each bound over all settings, then setting by setting."""
    every: Key = {"gamma": "all", "noise": "all"}
    common: Key = {"table": "discounted", "world": cell}
    found = [identity_row(seeds["identity"], seeds["identity"].size, {
        **common, **every, "bound": "performance_difference"})]  # fmt: skip
    for b, name in enumerate(names(config)):
        error, bound = seeds["error"][:, :, b], seeds["bound"][:, :, b]
        key = common | {"bound": name}
        found += bound_rows(pooled(error), pooled(bound), key | every)
        for s, setting in enumerate(settings(config, cell)):
            found += bound_rows(error[:, s], bound[:, s], key | setting)
    return found


DISCOUNTED = Part("discounted", lambda config: WORLDS, lambda config: config.seeds, compute, rows)
