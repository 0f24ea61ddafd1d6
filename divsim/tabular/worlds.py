"""Finite-horizon tabular decision processes with exact values, advantages, occupancies and gradients.

A policy is time-dependent: log-probabilities of shape (..., T, S, V) for T steps, S states and V actions.
Any leading shape is a batch of worlds (say, one per seed), solved together. A softmax bandit is the world
with one state and one step. Everything is dynamic programming in float64; nothing is sampled. What is left
out: learning, discounting, and rewards that depend on a whole sequence (`trees.py`).
"""

from dataclasses import dataclass

import numpy as np

from .policies import Floats, Shape, dirichlet


@dataclass(frozen=True)
class World:
    """A batch of finite-horizon decision processes.

    Attributes:
      initial: (..., S) probability of starting in each state.
      transition: (..., S, V, S) probability of the next state, given state and action.
      reward: (..., S, V) expected reward of an action in a state.
      horizon: T, the number of actions in an episode.

    >>> world = random_world(np.random.default_rng(0), (2,), states=3, actions=4, horizon=5)
    >>> world.states, world.actions
    (3, 4)
    """

    initial: Floats
    transition: Floats
    reward: Floats
    horizon: int

    @property
    def states(self) -> int:
        """S, the number of states."""
        return int(self.reward.shape[-2])

    @property
    def actions(self) -> int:
        """V, the number of actions in each state."""
        return int(self.reward.shape[-1])


@dataclass(frozen=True)
class Values:
    """What a policy is worth from every step on.

    Attributes:
      value: (..., T, S) expected return from step t in state s.
      action_value: (..., T, S, V) the same after a given first action.
    """

    value: Floats
    action_value: Floats

    @property
    def advantage(self) -> Floats:
        """(..., T, S, V) `action_value - value`; its mean under the policy is zero."""
        return self.action_value - self.value[..., None]


def random_world(rng: np.random.Generator, shape: Shape, states: int, actions: int, horizon: int) -> World:
    """Worlds with uniform random rewards in [0, 1] and Dirichlet(1) transitions.

    Args:
      rng: the only source of randomness.
      shape: leading shape of the batch.
      states, actions, horizon: S, V and T, each >= 1.

    Returns:
      A `World`.

    Source: derived here.

    >>> random_world(np.random.default_rng(0), (), 2, 3, 4).transition.sum(axis=-1).round(9).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return World(
        initial=np.exp(dirichlet(rng, shape, states, 1.0)),
        transition=np.exp(dirichlet(rng, (*shape, states, actions), states, 1.0)),
        reward=rng.random((*shape, states, actions)),
        horizon=horizon,
    )


def bandit(reward: Floats) -> World:
    """The world of one state and one step.

    Args:
      reward: (..., V) expected reward of each arm.

    Returns:
      A `World` with S = T = 1.

    Source: definition.

    >>> log_pi = np.log(np.array([[[0.25, 0.75]]]))  # (T, S, V)
    >>> float(expected_return(bandit(np.array([0.0, 1.0])), log_pi))
    0.75
    """
    return World(
        initial=np.ones((*reward.shape[:-1], 1)),
        transition=np.ones((*reward.shape[:-1], 1, reward.shape[-1], 1)),
        reward=reward[..., None, :],
        horizon=1,
    )


def random_policy(rng: np.random.Generator, world: World, concentration: float = 1.0) -> Floats:
    """A time-dependent policy for each world of the batch.

    Args:
      rng: the only source of randomness.
      world: fixes the shape.
      concentration: of the Dirichlet draw of each (t, s); small is peaked.

    Returns:
      (..., T, S, V) log-probabilities, nats.

    Source: derived here.

    >>> world = random_world(np.random.default_rng(0), (2,), 3, 4, 5)
    >>> random_policy(np.random.default_rng(1), world).shape
    (2, 5, 3, 4)
    """
    batch = world.initial.shape[:-1]
    return dirichlet(rng, (*batch, world.horizon, world.states), world.actions, concentration)


def values(world: World, log_pi: Floats) -> Values:
    r"""Exact values by backward induction.

        Q_t(s, a) = reward(s, a) + sum_s' P(s' | s, a) V_{t+1}(s'),   V_t(s) = sum_a pi_t(a | s) Q_t(s, a)

    Args:
      world: the worlds.
      log_pi: (..., T, S, V) log-probabilities, nats.

    Returns:
      A `Values`.

    Source: Bellman's equation, with V_T = 0.

    >>> world = bandit(np.array([0.0, 1.0]))
    >>> values(world, np.log(np.array([[[0.25, 0.75]]]))).advantage.tolist()
    [[[-0.75, 0.25]]]
    """
    pi = np.exp(_checked(world, log_pi))
    later = np.zeros_like(pi[..., 0, :, 0])
    value, action_value = [], []
    for t in reversed(range(world.horizon)):
        now = world.reward + np.einsum("...sap,...p->...sa", world.transition, later)
        later = np.einsum("...sa,...sa->...s", pi[..., t, :, :], now)
        action_value.append(now)
        value.append(later)
    return Values(np.stack(value[::-1], axis=-2), np.stack(action_value[::-1], axis=-3))


def occupancy(world: World, log_pi: Floats) -> Floats:
    r"""Probability of being in each state at each step.

        d_0 = initial,   d_{t+1}(s') = sum_{s, a} d_t(s) pi_t(a | s) P(s' | s, a)

    Args:
      world: the worlds.
      log_pi: (..., T, S, V) log-probabilities, nats.

    Returns:
      (..., T, S), each row sums to 1.

    Source: definition.

    >>> occupancy(bandit(np.array([0.0, 1.0])), np.log(np.array([[[0.25, 0.75]]]))).tolist()
    [[1.0]]
    """
    pi = np.exp(_checked(world, log_pi))
    state = np.broadcast_to(world.initial, pi[..., 0, :, 0].shape)
    visited = [state]
    for t in range(world.horizon - 1):
        taken = state[..., None] * pi[..., t, :, :]
        state = np.einsum("...sa,...sap->...p", taken, world.transition)
        visited.append(state)
    return np.stack(visited, axis=-2)


def expected_return(world: World, log_pi: Floats) -> Floats:
    r"""J(pi), the expected sum of rewards of an episode.

    Args:
      world: the worlds.
      log_pi: (..., T, S, V) log-probabilities, nats.

    Returns:
      (...) in units of reward.

    Source: definition, J = sum_s initial(s) V_0(s).

    >>> float(expected_return(bandit(np.array([1.0, 3.0])), np.log(np.array([[[0.5, 0.5]]]))))
    2.0
    """
    return np.asarray(np.sum(world.initial * values(world, log_pi).value[..., 0, :], axis=-1))


def optimal_return(world: World) -> Floats:
    """The largest expected return of any policy, by backward induction: (...), in units of reward.

    Source: Bellman's optimality equation.

    >>> float(optimal_return(bandit(np.array([1.0, 3.0]))))
    3.0
    """
    later = np.zeros_like(world.initial)
    for _ in range(world.horizon):
        now = world.reward + np.einsum("...sap,...p->...sa", world.transition, later)
        later = np.max(now, axis=-1)
    return np.asarray(np.sum(world.initial * later, axis=-1))


def policy_gradient(world: World, log_pi: Floats) -> Floats:
    r"""Exact gradient of J in the logits of every (t, s).

        dJ / dz_t(s, a) = d_t(s) pi_t(a | s) (Q_t(s, a) - V_t(s))

    Args:
      world: the worlds.
      log_pi: (..., T, S, V) log-probabilities, nats.

    Returns:
      (..., T, S, V), sums to zero over V. For a stationary policy sum it over T.

    Source: the policy gradient theorem; derivations, T10.

    >>> policy_gradient(bandit(np.array([0.0, 1.0])), np.log(np.array([[[0.25, 0.75]]]))).tolist()
    [[[-0.1875, 0.1875]]]
    """
    weight = occupancy(world, log_pi)[..., None] * np.exp(log_pi)
    return weight * values(world, log_pi).advantage


def _checked(world: World, log_pi: Floats) -> Floats:
    expected = (world.horizon, world.states, world.actions)
    if log_pi.shape[-3:] != expected:
        raise ValueError(f"log_pi must end in shape (T, S, V) = {expected}, got {log_pi.shape}")
    return log_pi
