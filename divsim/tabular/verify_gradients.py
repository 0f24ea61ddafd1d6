r"""Numerical checks of T10: exact policy gradients, natural steps and minibatches, in bandits and in worlds.

What is left out: sampled gradients and learning.
"""

import numpy as np

from divsim.formulas import (
    FORWARD_KL,
    REVERSE_KL,
    curvature,
    exponential_path,
    finite_change,
    mean_under,
    policy_gradient_direction,
)

from .check import Check, Simulation, check
from .geometry import EUCLIDEAN
from .ladder import TOP_SPREAD, Ladder, climb, order
from .one_step import first_order_ladder
from .policies import Batch, Floats, Ints, at_action, draw_batches, perturbed, sample_action
from .worlds import (
    World,
    bandit,
    expected_return,
    occupancy,
    policy_gradient,
    random_policy,
    random_world,
    values,
)

COUNTS = {2: 10, 5: 10, 60: 5}
WORLDS = 40  # of 4 states, 3 actions and 5 steps
MINIBATCH = 4
STEPS = (0.1, 1.0, 10.0)


def simulate_exact_gradients(rng: np.random.Generator) -> Simulation:
    """T10: how forward KL answers to exact, natural and minibatch steps; the same over a whole episode.

    >>> simulate_exact_gradients(np.random.default_rng(0)).ok
    True
    """
    batches = draw_batches(rng, COUNTS)
    rewards = [rng.random(batch.pair.log_pi.shape) for batch in batches]
    exact = [_exact_ladder(b, q) for b, q in zip(batches, rewards, strict=True)]
    natural = [_natural_ladder(b, q) for b, q in zip(batches, rewards, strict=True)]
    world = random_world(rng, (WORLDS,), states=4, actions=3, horizon=5)
    log_mu = random_policy(rng, world)
    log_pi = perturbed(rng, log_mu, noise=0.5)
    direction = rng.standard_normal(log_pi.shape)
    sizes = [world.actions]
    gradient, episode = _gradient_ladder(world, log_pi, direction), _episode_ladder(world, log_mu, log_pi)
    return Simulation(
        "T10 exact gradients",
        (
            order(exact, "remainder of dD = eta Cov_pi(Q, pi - mu), exact gradient of a bandit", COUNTS, 2.0),
            order(natural, "remainder of dD = eta (J(pi) - J(mu)), natural step of a bandit", COUNTS, 2.0),
            _mirror_check(batches, rewards),
            *_minibatch_checks(rng, batches),
            order([gradient], "remainder of the exact policy gradient of a world", sizes, 2.0),
            order([episode], "remainder of d KL(episode) = eta (J(pi) - J(mu)), natural step", sizes, 2.0),
        ),
    )


def _exact_ladder(batch: Batch, q: Floats) -> Ladder:
    pair = batch.pair
    direction = policy_gradient(bandit(q), pair.log_pi[:, None, None])[:, 0, 0]
    centred = q - mean_under(pair.log_pi, q)[:, None]
    gap = np.exp(pair.log_pi) - np.exp(pair.log_mu)
    return first_order_ladder(FORWARD_KL, pair, direction, mean_under(pair.log_pi, centred * gap))


def _natural_ladder(batch: Batch, q: Floats) -> Ladder:
    world = bandit(q)
    gain = expected_return(world, batch.pair.log_pi[:, None, None])
    gain = gain - expected_return(world, batch.pair.log_mu[:, None, None])
    return first_order_ladder(FORWARD_KL, batch.pair, q, gain)


def _mirror_check(batches: list[Batch], rewards: list[Floats]) -> Check:
    """KL(mu || pi_s) + KL(pi_s || mu) = s (J(pi_s) - J(mu)) after one mirror step of any size from mu."""
    errors = []
    for batch, q in zip(batches, rewards, strict=True):
        log_mu = batch.pair.log_mu
        for step in STEPS:
            after = exponential_path(log_mu, q, step)
            both = FORWARD_KL.measure(log_mu, after) + REVERSE_KL.measure(log_mu, after)
            gain = mean_under(after, q) - mean_under(log_mu, q)
            errors.append(np.abs(both - step * gain) / (1 + step))
    reason = "relative to 1 + s: both sides are s times a difference of rewards in [0, 1]"
    return check(np.concatenate(errors), "mirror step: both KLs = s (J - J(mu))", COUNTS, 1e-14, reason)


def _minibatch_checks(rng: np.random.Generator, batches: list[Batch]) -> tuple[Check, ...]:
    """Several tokens at one state: a predicted total increase is certain, second orders do not add."""
    shortfalls, crosses = [], []
    for batch in batches:
        pair = batch.pair
        first, total = np.zeros(len(batch.action)), np.zeros(pair.log_pi.shape)
        for _ in range(MINIBATCH):
            action = sample_action(rng, pair.log_mu)
            step = rng.standard_normal(len(action))
            first = first + step * EUCLIDEAN.rate(FORWARD_KL, pair, action)
            total = total + step[:, None] * policy_gradient_direction(pair.log_pi, action)
        realised = finite_change(pair.log_mu, pair.log_pi, total)
        size = 1 + np.max(np.abs(total), axis=-1)
        shortfalls.append(np.maximum(first - realised, 0) / size)
        crosses.append(_cross_error(pair.log_pi, batch.action, sample_action(rng, pair.log_pi)))
    reason = "relative to 1 + the largest displacement of a logit"
    return (
        check(np.concatenate(shortfalls), "minibatch: change >= sum_b s_b c_b", COUNTS, 1e-14, reason),
        check(
            np.concatenate(crosses),
            "cross term of two tokens' steps",
            COUNTS,
            1e-14,
            "absolute: numbers <= 1",
        ),
    )


def _cross_error(log_pi: Floats, k: Ints, j: Ints) -> Floats:
    """Cov_pi(u_k, u_j), by polarising the curvature, against its closed form."""
    u_k, u_j = policy_gradient_direction(log_pi, k), policy_gradient_direction(log_pi, j)
    covariance = (curvature(log_pi, u_k + u_j) - curvature(log_pi, u_k - u_j)) / 4
    pi = np.exp(log_pi)
    pi_k, pi_j = at_action(pi, k), at_action(pi, j)
    s2, s3 = np.sum(pi**2, axis=-1), np.sum(pi**3, axis=-1)
    closed = (k == j) * pi_k - pi_k**2 - pi_j**2 + s3 - (pi_k - s2) * (pi_j - s2)
    return np.asarray(np.abs(covariance - closed))


def _gradient_ladder(world: World, log_pi: Floats, direction: Floats) -> Ladder:
    rate = np.sum(policy_gradient(world, log_pi) * direction, axis=(-3, -2, -1))
    before = expected_return(world, log_pi)

    def remainder(fraction: float) -> Floats:
        after = exponential_path(log_pi, direction, fraction * TOP_SPREAD)
        return np.asarray(expected_return(world, after) - before - fraction * TOP_SPREAD * rate)

    whole = np.full(WORLDS, float(world.horizon))
    return climb(remainder, scale=whole, terms=TOP_SPREAD * whole)


def _episode_ladder(world: World, log_mu: Floats, log_pi: Floats) -> Ladder:
    """The KL of whole episodes, sum_t E_{d^mu_t} KL_t, when every state takes the natural step dz = eta Q."""
    direction = values(world, log_pi).action_value
    visited = occupancy(world, log_mu)
    gain = expected_return(world, log_pi) - expected_return(world, log_mu)

    def episode_kl(log_policy: Floats) -> Floats:
        return np.asarray(np.sum(visited * FORWARD_KL.measure(log_mu, log_policy), axis=(-2, -1)))

    before = episode_kl(log_pi)
    top = TOP_SPREAD / world.horizon

    def remainder(fraction: float) -> Floats:
        after = episode_kl(exponential_path(log_pi, direction, fraction * top))
        return after - before - fraction * top * gain

    whole = np.full(WORLDS, float(world.horizon))
    return climb(remainder, scale=whole, terms=TOP_SPREAD * whole)
