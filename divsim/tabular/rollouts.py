"""Episodes sampled from a behaviour policy in a batch of worlds, and the advantages estimated from them.

Every seed has a generator of its own, so a seed's episodes do not depend on which others run beside it. What
is left out: episodes of different lengths.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from divsim.formulas import group_advantage

from .environments import Noise, paid_exactly
from .policies import Floats, Ints, Shape, invert
from .worlds import World, values


@dataclass(frozen=True)
class Episodes:
    """E episodes of T steps in each of n worlds.

    Attributes:
      state, action: (n, E, T) int.
      reward: (n, E, T), as it was paid.
    """

    state: Ints
    action: Ints
    reward: Floats


def sample(
    rngs: Sequence[np.random.Generator], world: World, log_mu: Floats, episodes: int,
    noise: Noise = paid_exactly,
) -> Episodes:  # fmt: skip
    """Episodes of a stationary policy.

    Args:
      rngs: n generators, one a world.
      world: n worlds.
      log_mu: (n, S, V) log-probabilities, nats.
      episodes: E of each world.
      noise: between a reward and its expectation.

    Returns: `Episodes`.
    Source: definition.

    >>> from .environments import ENVIRONMENTS, stacked
    >>> world = stacked([ENVIRONMENTS["chain"].draw(np.random.default_rng(0))[0]])
    >>> log_mu = np.log(np.full((1, 8, 3), 1 / 3))
    >>> sample([np.random.default_rng(0)], world, log_mu, episodes=5).state.shape
    (1, 5, 12)
    """
    level = uniform(rngs, (3 * world.horizon + 1, episodes))
    start, rest = level[:, 0], level[:, 1:].reshape(len(rngs), 3, world.horizon, episodes)
    choose, move, pay = (np.moveaxis(rest[:, use], 0, 1) for use in range(3))
    rows, mu = np.arange(len(rngs))[:, None], np.cumsum(np.exp(log_mu), axis=-1)
    moves = np.cumsum(world.transition, axis=-1)
    state = invert(np.cumsum(world.initial, axis=-1)[:, None], start)
    states, actions = [], []
    for t in range(world.horizon):
        action = invert(mu[rows, state], choose[t])
        states.append(state)
        actions.append(action)
        if t + 1 < world.horizon:
            state = invert(moves[rows, state, action], move[t])
    visited, taken = np.stack(states, axis=-1), np.stack(actions, axis=-1)
    expected = world.reward[rows[..., None], visited, taken]
    return Episodes(visited, taken, noise(expected, np.moveaxis(pay, 0, -1)))


def uniform(rngs: Sequence[np.random.Generator], shape: Shape) -> Floats:
    """Uniform levels in [0, 1), each seed's from its own generator: (n, *shape)."""
    level = np.empty((len(rngs), *shape))
    for rng, own in zip(rngs, level, strict=True):
        rng.random(out=own)
    return level


Estimator = Callable[[World, Floats, Episodes], Floats]
"""(worlds, log_mu (n, S, V), episodes) -> advantage (n, E, T) of every action taken."""

LAMBDA = 0.95
"""Of generalised advantage estimation."""


def by_time(world: World, log_policy: Floats) -> Floats:
    """A stationary policy (..., S, V) as one of every step, (..., T, S, V), without a copy."""
    shape = (*log_policy.shape[:-2], world.horizon, *log_policy.shape[-2:])
    return np.broadcast_to(log_policy[..., None, :, :], shape)


def exact(world: World, log_mu: Floats, episodes: Episodes) -> Floats:
    """A^mu of every action taken, by dynamic programming."""
    n, _, horizon = episodes.state.shape
    advantage = values(world, by_time(world, log_mu)).advantage
    return np.asarray(
        advantage[np.arange(n)[:, None, None], np.arange(horizon), episodes.state, episodes.action]
    )


def group(world: World, log_mu: Floats, episodes: Episodes) -> Floats:
    """The return of the whole episode minus the mean of the world's episodes, the same at every step.

    Source: [DrGRPO]; the formula is `batch.group_advantage` without the standard deviation.
    """
    relative = group_advantage(episodes.reward.sum(axis=-1))
    return np.broadcast_to(relative[..., None], episodes.reward.shape)


def monte_carlo(world: World, log_mu: Floats, episodes: Episodes) -> Floats:
    """The reward to go minus its mean over the world's other episodes at that step."""
    to_go = _to_go(episodes.reward)
    others = max(to_go.shape[1] - 1, 1)
    return np.asarray(to_go - (to_go.sum(axis=1, keepdims=True) - to_go) / others)


def gae(world: World, log_mu: Floats, episodes: Episodes) -> Floats:
    """Generalised advantage estimates with a critic that was fitted to the same episodes.

        A_t = sum_l lambda^l delta_{t+l},   delta_t = reward_t + V(s_{t+1}) - V(s_t)

    The critic is the mean reward to go of each state at each step, so it is biased by what it has seen.
    Source: [GAE] eq. 16, undiscounted.
    """
    value = _fitted(world, episodes)
    error = episodes.reward + np.append(value[..., 1:], np.zeros_like(value[..., :1]), axis=-1) - value
    weights = LAMBDA ** np.arange(error.shape[-1])
    return _to_go(error * weights) / weights


ESTIMATORS: dict[str, Estimator] = {
    "exact": exact, "monte_carlo": monte_carlo, "gae": gae, "group": group,
}  # fmt: skip
"""Where advantages come from."""


def _to_go(reward: Floats) -> Floats:
    return np.asarray(np.flip(np.cumsum(np.flip(reward, axis=-1), axis=-1), axis=-1))


def _fitted(world: World, episodes: Episodes) -> Floats:
    """(n, E, T) the mean reward to go of all episodes that were in the same state at the same step."""
    n, _, horizon = episodes.state.shape
    cell = (np.arange(n)[:, None, None] * horizon + np.arange(horizon)) * world.states + episodes.state
    size = n * horizon * world.states
    total = np.bincount(cell.ravel(), _to_go(episodes.reward).ravel(), size)
    count = np.bincount(cell.ravel(), minlength=size)
    return np.asarray((total / np.maximum(count, 1))[cell])
