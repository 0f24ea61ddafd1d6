"""Token trees: two identities of the return, and every finite-horizon bound, by enumeration of all sequences.

Rewards are in [0, 1], at random or the ones that make the surrogate's error extreme. A constant reward has
no error, so rewards may be centred first, and the bounds, stated for xi = max |R|, are used with xi = 1/2,
half the range. The range of the return is 1.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.tabular.horizon import BOUNDS, apart, expected_advantages, horizon_bounds
from divsim.tabular.policies import Floats
from divsim.tabular.tree_pairs import surrogate, surrogate_error, surrogate_error_weights
from divsim.tabular.trees import (
    Levels,
    TokenTree,
    expected_reward,
    perturbed_levels,
    random_levels,
    random_tree,
)

from .bounds_config import Config
from .bounds_rows import bound_rows, identity_row, pooled
from .parts import Part, Seeds
from .rows import Key, Row

IDENTITIES = ("surrogate_minus_error", "expected_advantages")
REWARDS = ("random", "worst")


def settings(config: Config) -> list[tuple[tuple[int, int], float]]:
    """(V, T) and noise of each setting."""
    return [(shape, noise) for shape in config.shapes for noise in config.noises]


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Of one seed: error (settings, rewards, cases), bound (settings, bounds, cases), identity (2, ...)."""
    errors, bounds, identities = [], [], []
    for (vocab, horizon), noise in settings(config):
        tree = random_tree(rng, (config.trees,), vocab, horizon)
        mu = random_levels(rng, tree)
        pi = perturbed_levels(rng, mu, noise)
        worst = replace(tree, reward=(surrogate_error_weights(mu, pi) > 0).astype(np.float64))
        errors.append(np.stack([np.abs(_gain(t, mu, pi) - surrogate(t, mu, pi)) for t in (tree, worst)]))
        bounds.append(horizon_bounds(apart(mu, pi)))
        identities.append(_identities(tree, mu, pi))
    return {"error": np.stack(errors), "bound": np.stack(bounds), "identity": np.stack(identities, axis=1)}


def _gain(tree: TokenTree, mu: Levels, pi: Levels) -> Floats:
    return expected_reward(tree, pi) - expected_reward(tree, mu)


def _identities(tree: TokenTree, mu: Levels, pi: Levels) -> Floats:
    """The errors of J(pi) - J(mu) = L' - Delta and of J(pi) - J(mu) = E_pi[sum_t A^mu_t]: (2, cases)."""
    split = surrogate(tree, mu, pi) - surrogate_error(tree, mu, pi)
    return np.abs(_gain(tree, mu, pi) - np.stack([split, expected_advantages(tree, mu, pi)]))


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """Each bound over all trees, then setting by setting, for both kinds of rewards."""
    every: Key = {"table": "tree", "tree": "all", "noise": "all"}
    found = [
        identity_row(seeds["identity"][:, i], seeds["identity"][:, i].size, {**every, "bound": name})
        for i, name in enumerate(IDENTITIES)
    ]
    for b, name in enumerate(BOUNDS):
        for r, rewards in enumerate(REWARDS):
            error, bound = seeds["error"][:, :, r], seeds["bound"][:, :, b]
            key: Key = {"bound": name, "rewards": rewards}
            found += bound_rows(pooled(error), pooled(bound), every | key)
            for s, ((vocab, horizon), noise) in enumerate(settings(config)):
                place: Key = {"table": "tree", "tree": f"{vocab}^{horizon}", "noise": str(noise)}
                found += bound_rows(error[:, s], bound[:, s], place | key)
    return found


TREE = Part("tree", lambda config: ("tree",), lambda config: config.seeds, compute, rows)
