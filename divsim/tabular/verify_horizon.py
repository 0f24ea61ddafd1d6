r"""Numerical checks of T12: what a policy change does to the return over a finite horizon.

Identities and bounds by enumeration of whole token trees and of the occupancy of random worlds. What is left
out: discounted returns, and anything sampled.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from divsim.formulas import (
    FORWARD_KL,
    TV,
    expected_advantage,
    exponential_path,
)

from .check import Check, Simulation, check
from .horizon import apart, expected_advantages, horizon_bounds
from .ladder import TOP_SPREAD, Ladder, climb, order
from .policies import Floats, perturbed
from .tree_pairs import (
    sum_of_later,
    surrogate,
    surrogate_error,
    surrogate_error_weights,
)
from .trees import (
    Levels,
    TokenTree,
    expected_reward,
    perturbed_levels,
    policy_gradient,
    random_levels,
    random_tree,
    sequence_log_probs,
    token_log_probs,
)
from .worlds import expected_return, occupancy, random_policy, random_world, values

SHAPES = ((2, 2), (3, 3), (2, 6), (5, 2))
"""(V, T) of the trees."""

NOISES = (0.05, 0.5, 2.0)
TREES = 40

NAMES = (
    "2 xi T (T - 1) TV_max^2",
    "4 xi sum_t E_mu TV_t",
    "coupling bound",
    "Pinsker-marginal bound",
    "mixed bound",
    "adaptive bound",
)
"""Of the bounds, as `horizon.BOUNDS` has them; the smallest of them needs no check of its own."""

ROUNDING = 1e-13
RETURN_REASON = "absolute: sums of at most 64 sequences or 60 state-action pairs with rewards of total size 5"


@dataclass(frozen=True)
class Pair:
    """A batch of trees with two policies.

    Attributes:
      tree: the trees, rewards in [0, 1].
      mu, pi: `Levels` of log-probabilities.
    """

    tree: TokenTree
    mu: Levels
    pi: Levels


def simulate_horizon(rng: np.random.Generator) -> Simulation:
    """T12: performance difference, surrogate and its error, and every bound on that error.

    >>> simulate_horizon(np.random.default_rng(0)).ok
    True
    """
    pairs = list(_pairs(rng))
    sizes = [vocab for vocab, _ in SHAPES]
    identities = [_identity_errors(pair) for pair in pairs]
    bounds = [_bound_errors(pair) for pair in pairs]
    return Simulation(
        "T12 finite horizon",
        (
            *_joined(identities, sizes, RETURN_REASON),
            *_joined(bounds, sizes, RETURN_REASON),
            order([_gradient_ladder(rng, p) for p in pairs], "remainder of the exact gradient", sizes, 2.0),
            _world_check(rng),
        ),
    )


def _pairs(rng: np.random.Generator) -> Iterable[Pair]:
    for vocab, horizon in SHAPES:
        for noise in NOISES:
            tree = random_tree(rng, (TREES,), vocab, horizon)
            mu = random_levels(rng, tree)
            yield Pair(tree, mu, perturbed_levels(rng, mu, noise))


def _joined(errors: list[dict[str, Floats]], sizes: list[int], reason: str) -> Iterable[Check]:
    for name in errors[0]:
        yield check(np.concatenate([found[name] for found in errors]), name, sizes, ROUNDING, reason)


def _identity_errors(pair: Pair) -> dict[str, Floats]:
    gain = expected_reward(pair.tree, pair.pi) - expected_reward(pair.tree, pair.mu)
    split = surrogate(pair.tree, pair.mu, pair.pi) - surrogate_error(pair.tree, pair.mu, pair.pi)
    log_r = token_log_probs(pair.pi) - token_log_probs(pair.mu)
    later = sum_of_later(log_r)
    telescoped = np.sum(np.expm1(log_r) * np.exp(later), axis=-1)
    whole = np.expm1(np.sum(log_r, axis=-1))
    sequence_kl = FORWARD_KL.measure(sequence_log_probs(pair.mu), sequence_log_probs(pair.pi))
    return {
        "J(pi) - J(mu) = L' - Delta": np.abs(gain - split),
        "J(pi) - J(mu) = E_pi[sum_t A^mu_t]": np.abs(gain - expected_advantages(pair.tree, pair.mu, pair.pi)),
        "prod r - 1 = sum_t (r_t - 1) prod_{j>t} r_j, relative": np.max(
            np.abs(whole - telescoped) / (1 + np.sum(np.abs(np.expm1(log_r)) * np.exp(later), axis=-1)),
            axis=-1,
        ),
        "KL of sequences = sum_t E_mu KL_t": np.abs(sequence_kl - apart(pair.mu, pair.pi).sequence_kl),
    }


def _bound_errors(pair: Pair) -> dict[str, Floats]:
    """By how much |J(pi) - J(mu) - L'| exceeds each bound, for the worst rewards in [0, 1]."""
    far = apart(pair.mu, pair.pi)
    weights = surrogate_error_weights(pair.mu, pair.pi)
    error = np.maximum(np.sum(np.maximum(weights, 0), axis=-1), np.sum(np.maximum(-weights, 0), axis=-1))
    excess = {
        f"|Delta| <= {name}": np.maximum(error - bound, 0)
        for name, bound in zip(NAMES, horizon_bounds(far), strict=False)
    }
    sequence_tv = TV.measure(sequence_log_probs(pair.mu), sequence_log_probs(pair.pi))
    gap = np.maximum(sequence_tv - np.sum(far.mean_tv, axis=-1), 0)
    return excess | {"TV of sequences <= sum_t E_mu TV_t": gap}


def _gradient_ladder(rng: np.random.Generator, pair: Pair) -> Ladder:
    directions = [rng.standard_normal(level.shape) for level in pair.pi]
    slopes = [
        np.sum(gradient * direction, axis=(-2, -1))
        for gradient, direction in zip(policy_gradient(pair.tree, pair.pi), directions, strict=True)
    ]
    rate, before = np.sum(slopes, axis=0), expected_reward(pair.tree, pair.pi)

    def remainder(fraction: float) -> Floats:
        step = fraction * TOP_SPREAD
        moved = tuple(exponential_path(level, v, step) for level, v in zip(pair.pi, directions, strict=True))
        return np.asarray(expected_reward(pair.tree, moved) - before - step * rate)

    whole = np.full(TREES, float(pair.tree.horizon))
    return climb(remainder, scale=whole, terms=TOP_SPREAD * whole)


def _world_check(rng: np.random.Generator) -> Check:
    """J(pi) - J(mu) = sum_t E_{d^pi_t} E_pi[A^mu_t], with exact occupancies."""
    world = random_world(rng, (100,), states=4, actions=3, horizon=5)
    log_mu = random_policy(rng, world)
    log_pi = perturbed(rng, log_mu, noise=1.0)
    advantage = expected_advantage(np.exp(log_pi), values(world, log_mu).advantage)
    predicted = np.sum(occupancy(world, log_pi) * advantage, axis=(-2, -1))
    gain = expected_return(world, log_pi) - expected_return(world, log_mu)
    name = "J(pi) - J(mu) = sum_t E_{d^pi_t}[A^mu], worlds"
    return check(np.abs(gain - predicted), name, [world.actions], ROUNDING, RETURN_REASON)
