r"""Worlds with one reward at the end, as a language model has it, long enough to see how errors grow with T.

A world of `worlds.py` in which an episode of T actions is worth f(s_T), its last state's outcome. The
surrogate L' and its error follow by dynamic programming, and the outcome in [0, 1] that makes the error
extreme is known, because the error is linear in f. What is left out: enumeration of sequences
(`tree_pairs.py`), and the bounds, which are formulas.
"""

from collections.abc import Callable

import numpy as np

from divsim.formulas import expected_advantage

from .policies import Floats, Ints, dirichlet
from .worlds import World, occupancy, random_world, values

Walk = tuple[Floats, Floats]
"""(S) probability of the first state, and (S, V, S) of the next one."""

WorldPair = tuple[Walk, Floats, Floats]
"""A walk, and log mu and log pi of shape (T, S, V)."""


def outcome_world(walk: Walk, outcome: Floats, horizon: int) -> World:
    r"""The world whose episode is worth f(s_T) - f(s_0), with rewards that telescope.

        reward(s, a) = sum_s' P(s' | s, a) f(s') - f(s)

    Advantages are those of one reward f(s_T) at the end; a return differs by E f(s_0), whatever the policy.

    Args:
      walk: initial (S) and transition (S, V, S).
      outcome: f, (S), of the last state.
      horizon: T, the number of actions.

    Returns:
      A `World` without a leading shape.

    Source: potential-based shaping, in this form derived here.

    >>> world = outcome_world(counter(2), np.array([0.0, 1.0, 0.0]), horizon=2)
    >>> world.reward.tolist()
    [[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]]
    """
    initial, transition = walk
    return World(initial, transition, transition @ outcome - outcome[:, None], horizon)


def counter(horizon: int) -> Walk:
    """A walk that counts how often action 1 of two was taken, from 0 to T, and forgets nothing else.

    >>> initial, transition = counter(2)
    >>> initial.tolist(), transition[0].tolist()
    ([1.0, 0.0, 0.0], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    """
    count = np.arange(horizon + 1)
    transition = np.zeros((horizon + 1, 2, horizon + 1))
    transition[count, 0, count] = transition[count, 1, np.minimum(count + 1, horizon)] = 1.0
    return (count == 0).astype(np.float64), transition


def towards(log_mu: Floats, action: Ints, distance: float) -> Floats:
    r"""The policy that is a given total variation away from mu, on the way to always taking an action.

        pi = mu + b (e_a - mu),   TV(mu, pi) = b (1 - mu_a) = distance

    Args:
      log_mu: (..., V) log-probabilities, nats.
      action: (...) int.
      distance: in [0, 1 - mu_a).

    Returns:
      (..., V) log-probabilities, nats. Errors: ValueError where the action is too likely to go so far.

    Source: derived here.

    >>> np.exp(towards(np.log(np.array([0.75, 0.25])), np.array(1), 0.25)).round(12).tolist()
    [0.5, 0.5]
    """
    chosen = np.arange(log_mu.shape[-1]) == action[..., None]
    mu = np.exp(log_mu)
    room = np.sum(np.where(chosen, 0.0, mu), axis=-1, keepdims=True)
    if not np.all(distance < room):
        raise ValueError(f"distance must be below 1 - mu_a, got {distance} where it is {float(room.min()):g}")
    share = distance / room
    return np.asarray(np.log((1 - share) * mu + share * chosen))


def rare(rng: np.random.Generator, horizon: int, distance: float) -> WorldPair:
    """A counter of an action that mu hardly ever takes, and pi takes `distance` more often at every step.

    >>> _, log_mu, log_pi = rare(np.random.default_rng(0), horizon=3, distance=0.1)
    >>> bool(np.exp(log_mu[..., 1]).max() <= 0.01), bool(np.exp(log_pi[..., 1]).min() >= 0.1)
    (True, True)
    """
    return _counting(distance * rng.uniform(0, 0.1, (horizon, horizon + 1)), distance)


def fair(rng: np.random.Generator, horizon: int, distance: float) -> WorldPair:
    """A counter of an action that mu takes about every other time, pi `distance` more often at every step.

    >>> fair(np.random.default_rng(0), horizon=3, distance=0.1)[1].shape
    (3, 4, 2)
    """
    return _counting(rng.uniform(0.4, 0.6, (horizon, horizon + 1)), distance)


def forgetful(rng: np.random.Generator, horizon: int, distance: float) -> WorldPair:
    """Eight states, four actions and random transitions, so that the past is soon forgotten.

    In every state pi moves towards some action that is not the likeliest.

    >>> forgetful(np.random.default_rng(0), horizon=3, distance=0.1)[1].shape
    (3, 8, 4)
    """
    states, actions = 8, 4
    world = random_world(rng, (), states, actions, horizon)
    log_mu = dirichlet(rng, (horizon, states), actions, 1.0)
    rank = rng.integers(actions - 1, size=(horizon, states, 1))
    action = np.take_along_axis(np.argsort(log_mu, axis=-1), rank, axis=-1)[..., 0]
    return (world.initial, world.transition), log_mu, towards(log_mu, action, distance)


WORLD_PAIRS: dict[str, Callable[[np.random.Generator, int, float], WorldPair]] = {
    "rare": rare,
    "fair": fair,
    "forgetful": forgetful,
}
"""(rng, T, per-step total variation) -> a walk and two policies that far apart in every state and step."""


def surrogate(world: World, log_mu: Floats, log_pi: Floats) -> Floats:
    r"""L', what pi would gain if it met the states that mu meets.

        L' = sum_t E_{s ~ d^mu_t} E_{a ~ pi_t}[A^mu_t(s, a)] = E_mu[R sum_t (r_t - 1)]

    Args:
      world: the worlds.
      log_mu, log_pi: (..., T, S, V) log-probabilities, nats.

    Returns:
      (...) in units of reward.

    Source: [DPPO] Theorem 3.1; derivations, T12.

    >>> world = outcome_world(counter(1), np.array([0.0, 1.0]), horizon=1)
    >>> mu, pi = np.log(np.array([[[0.75, 0.25]] * 2])), np.log(np.array([[[0.5, 0.5]] * 2]))
    >>> float(surrogate(world, mu, pi))
    0.25
    """
    gained = expected_advantage(np.exp(log_pi), values(world, log_mu).advantage)
    return np.asarray(np.sum(occupancy(world, log_mu) * gained, axis=(-2, -1)))


def outcome_weights(walk: Walk, log_mu: Floats, log_pi: Floats) -> Floats:
    r"""What the outcome of each state weighs in J(pi) - J(mu) - L', which is linear in the outcomes.

        weights = P_pi(s_T = .) - P_mu(s_T = .) - z_T,   z_{t+1} = z_t P_mu + d^mu_t (P_pi - P_mu),   z_0 = 0

    Args:
      walk: initial (S) and transition (S, V, S).
      log_mu, log_pi: (T, S, V) log-probabilities, nats.

    Returns:
      (S), sums to 0: the outcomes in [0, 1] that make the error extreme are 1 where these are positive, or
      negative, and the error is then as large.

    Source: derived here; derivations, T12 for the error.

    >>> mu, pi = (np.log(np.array([[[1 - p, p]] * 3] * 2)) for p in (0.25, 0.5))
    >>> outcome_weights(counter(2), mu, pi).round(12).tolist()  # (1/4)^2 (1, -2, 1)
    [0.0625, -0.125, 0.0625]
    """
    initial, transition = walk
    at_mu, at_pi, first_order = initial, initial, np.zeros_like(initial)
    for mu, pi in zip(np.exp(log_mu), np.exp(log_pi), strict=True):
        by_mu, by_pi = (np.einsum("sa,sap->sp", policy, transition) for policy in (mu, pi))
        first_order = first_order @ by_mu + at_mu @ (by_pi - by_mu)
        at_mu, at_pi = at_mu @ by_mu, at_pi @ by_pi
    return np.asarray(at_pi - at_mu - first_order)


def _counting(rate: Floats, distance: float) -> WorldPair:
    """Two policies on a counter; rate: (T, S) probability of action 1 under mu."""
    log_mu = np.log(np.stack([1 - rate, rate], axis=-1))
    log_pi = towards(log_mu, np.ones(rate.shape, dtype=np.int64), distance)
    return counter(rate.shape[0]), log_mu, log_pi
