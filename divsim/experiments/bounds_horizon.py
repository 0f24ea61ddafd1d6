"""Token trees: two identities of the return, and every finite-horizon bound, by enumeration of all sequences.

Rewards are in [0, 1], at random or the ones that make the surrogate's error extreme. A constant reward has
no error, so rewards may be centred first, and the bounds, stated for xi = max |R|, are used with xi = 1/2,
half the range. The range of the return is 1.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import (
    FORWARD_KL,
    TV,
    expected_advantage,
    horizon_adaptive,
    horizon_coupling,
    horizon_linear,
    horizon_mixed,
    horizon_pinsker_marginal,
    horizon_quadratic,
)
from divsim.tabular.policies import Floats
from divsim.tabular.tree_pairs import (
    prefix_divergences,
    surrogate,
    surrogate_error,
    surrogate_error_weights,
)
from divsim.tabular.trees import (
    Levels,
    TokenTree,
    action_values,
    expected_reward,
    perturbed_levels,
    prefix_probs,
    random_levels,
    random_tree,
)

from .bounds_config import Config
from .bounds_rows import bound_rows, identity_row, pooled
from .parts import Part, Seeds
from .rows import Key, Row

XI = 0.5
"""Half the range of the rewards."""

BOUNDS = ("quadratic", "linear", "coupling", "pinsker_marginal", "mixed", "adaptive", "smallest")
IDENTITIES = ("surrogate_minus_error", "expected_advantages")
REWARDS = ("random", "worst")


@dataclass(frozen=True)
class Apart:
    """How far two policies are apart over T steps.

    Attributes:
      mean_tv: (..., T) E_mu of the total variation at each step.
      max_tv: (...) the largest of any step and state.
      max_kl: (...) the largest forward KL, nats.
      sequence_kl: (...) forward KL of whole sequences, nats.
    """

    mean_tv: Floats
    max_tv: Floats
    max_kl: Floats
    sequence_kl: Floats


def horizon_bounds(apart: Apart) -> Floats:
    """Every bound on |J(pi) - J(mu) - L'| for rewards of range 1, and the smallest: (7, ...), as `BOUNDS`.

    >>> tenth = np.array(0.1)
    >>> horizon_bounds(Apart(np.array([0.1, 0.1]), tenth, tenth**2, 2 * tenth**2)).round(3).tolist()
    [0.02, 0.4, 0.02, 0.01, 0.028, 0.014, 0.01]
    """
    horizon = apart.mean_tv.shape[-1]
    found = (
        horizon_quadratic(apart.max_tv, horizon, XI),
        horizon_linear(apart.mean_tv, XI),
        horizon_coupling(apart.max_tv, horizon, XI),
        horizon_pinsker_marginal(apart.max_kl, horizon, XI),
        horizon_mixed(apart.max_kl, apart.sequence_kl, horizon, XI),
        horizon_adaptive(apart.mean_tv, apart.max_tv, apart.max_kl, XI),
    )
    return np.stack([*found, np.min(found, axis=0)])


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
        bounds.append(horizon_bounds(_apart(mu, pi)))
        identities.append(_identities(tree, mu, pi))
    return {"error": np.stack(errors), "bound": np.stack(bounds), "identity": np.stack(identities, axis=1)}


def _gain(tree: TokenTree, mu: Levels, pi: Levels) -> Floats:
    return expected_reward(tree, pi) - expected_reward(tree, mu)


def _identities(tree: TokenTree, mu: Levels, pi: Levels) -> Floats:
    """The errors of J(pi) - J(mu) = L' - Delta and of J(pi) - J(mu) = E_pi[sum_t A^mu_t]: (2, cases)."""
    gained = np.zeros(tree.reward.shape[:-1])
    for reach, log_mu, log_pi, q in zip(prefix_probs(pi), mu, pi, action_values(tree, mu), strict=True):
        advantage = q - np.sum(np.exp(log_mu) * q, axis=-1, keepdims=True)
        gained = gained + np.sum(reach * expected_advantage(np.exp(log_pi), advantage), axis=-1)
    split = surrogate(tree, mu, pi) - surrogate_error(tree, mu, pi)
    return np.abs(_gain(tree, mu, pi) - np.stack([split, gained]))


def _apart(mu: Levels, pi: Levels) -> Apart:
    tv = prefix_divergences(TV.measure, mu, pi)
    kl = prefix_divergences(FORWARD_KL.measure, mu, pi)
    return Apart(_means(mu, tv), _largest(tv), _largest(kl), np.sum(_means(mu, kl), axis=-1))


def _means(mu: Levels, per_prefix: Levels) -> Floats:
    """(..., T) expectation under mu of a quantity of the prefix."""
    reached = zip(prefix_probs(mu), per_prefix, strict=True)
    return np.stack([np.sum(reach * value, axis=-1) for reach, value in reached], axis=-1)


def _largest(per_prefix: Levels) -> Floats:
    return np.asarray(np.max(np.concatenate(per_prefix, axis=-1), axis=-1))


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
