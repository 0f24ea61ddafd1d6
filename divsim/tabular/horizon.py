"""How far two policies come apart over a horizon, and every bound on what the surrogate then misses.

What is left out: the truth that the bounds are compared with (`tree_pairs.py`, `outcome_worlds.py`).
"""

from dataclasses import dataclass

import numpy as np

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

from .policies import Floats
from .tree_pairs import prefix_divergences
from .trees import Levels, TokenTree, action_values, prefix_probs

XI = 0.5
"""Half the range of the rewards. A constant reward has L' = Delta = 0, so rewards in [0, 1] may be centred
first, and the bounds, stated for xi = max |R|, hold at half of it."""

BOUNDS = ("quadratic", "linear", "coupling", "pinsker_marginal", "mixed", "adaptive", "smallest")
"""The bounds of `horizon_bounds`, in their order."""


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


def apart(mu: Levels, pi: Levels) -> Apart:
    """How far two policies of a token tree are apart.

    >>> mu, pi = (np.log(np.array([[0.25, 0.75]])),), (np.log(np.array([[0.5, 0.5]])),)
    >>> apart(mu, pi).max_tv.round(12).tolist()
    0.25
    """
    tv = prefix_divergences(TV.measure, mu, pi)
    kl = prefix_divergences(FORWARD_KL.measure, mu, pi)
    return Apart(
        mean_tv=_means(mu, tv),
        max_tv=_largest(tv),
        max_kl=_largest(kl),
        sequence_kl=np.sum(_means(mu, kl), axis=-1),
    )


def expected_advantages(tree: TokenTree, mu: Levels, pi: Levels) -> Floats:
    """sum_t E_{prefix ~ pi} E_{token ~ pi} of the advantage under mu, which is J(pi) - J(mu): (...).

    Source: [KL02] Lemma 6.1 over a finite horizon; derivations, T12.

    >>> tree = TokenTree(np.array([0.0, 1.0]), vocab=2, horizon=1)
    >>> mu, pi = (np.log(np.array([[0.25, 0.75]])),), (np.log(np.array([[0.5, 0.5]])),)
    >>> round(float(expected_advantages(tree, mu, pi)), 12)
    -0.25
    """
    total = np.zeros(tree.reward.shape[:-1])
    for reach, log_mu, log_pi, q in zip(prefix_probs(pi), mu, pi, action_values(tree, mu), strict=True):
        advantage = q - np.sum(np.exp(log_mu) * q, axis=-1, keepdims=True)
        total = total + np.sum(reach * expected_advantage(np.exp(log_pi), advantage), axis=-1)
    return total


def _means(mu: Levels, per_prefix: Levels) -> Floats:
    """(..., T) expectation under mu of a quantity of the prefix."""
    reached = zip(prefix_probs(mu), per_prefix, strict=True)
    return np.stack([np.sum(reach * value, axis=-1) for reach, value in reached], axis=-1)


def _largest(per_prefix: Levels) -> Floats:
    return np.asarray(np.max(np.concatenate(per_prefix, axis=-1), axis=-1))
