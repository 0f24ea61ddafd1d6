"""Discounted decision processes under stationary policies, solved exactly.

A policy is an array of log-probabilities (..., S, V) for S states and V actions. Any leading shape is a
batch, solved together; a process without one serves a batch of policies. Returns are sums of gamma^t r_t,
unnormalised; occupancies are normalised, as in [CPO]. What is left out: learning, and finite horizons
(`worlds.py`).
"""

from dataclasses import dataclass

import numpy as np

from divsim.formulas import expected_advantage

from .policies import Floats, Shape, dirichlet
from .worlds import Values


@dataclass(frozen=True)
class Discounted:
    """A batch of discounted decision processes.

    Attributes:
      initial: (..., S) probability of starting in each state.
      transition: (..., S, V, S) probability of the next state, given state and action.
      reward: (..., S, V) expected reward of an action in a state.
      gamma: the discount, in [0, 1).

    >>> random_discounted(np.random.default_rng(0), (2,), states=3, actions=4, gamma=0.9).reward.shape
    (2, 3, 4)
    """

    initial: Floats
    transition: Floats
    reward: Floats
    gamma: float


def random_discounted(
    rng: np.random.Generator, shape: Shape, states: int, actions: int, gamma: float
) -> Discounted:
    """Processes with uniform random rewards in [0, 1] and Dirichlet(1) transitions.

    Args:
      rng: the only source of randomness.
      shape: leading shape of the batch.
      states, actions: S and V, each >= 1.
      gamma: the discount, in [0, 1).

    Returns:
      A `Discounted`.

    Source: derived here.

    >>> random_discounted(np.random.default_rng(0), (), 2, 1, 0.9).transition.sum(axis=-1).round(9).tolist()
    [[1.0], [1.0]]
    """
    return Discounted(
        initial=np.exp(dirichlet(rng, shape, states, 1.0)),
        transition=np.exp(dirichlet(rng, (*shape, states, actions), states, 1.0)),
        reward=rng.random((*shape, states, actions)),
        gamma=gamma,
    )


def doorway(gamma: float) -> Discounted:
    """Where the penalties of trust regions are attained: what is good at the door is as bad in the room.

    State 0 is the door, where an episode starts, state 1 the room, which is never left. Action 2 of the door
    leads there; it pays 1 at the door and 0 in the room, action 1 the opposite, action 0 pays 1/2. A policy
    that moves a small probability from action 1 to action 2 in both states gains at the door and loses as
    much in the room, which its old occupancy hardly sees.

    Args:
      gamma: the discount, in [0, 1).

    Returns:
      A `Discounted` without a leading shape, S = 2, V = 3.

    Source: derived here.

    >>> doorway(0.9).transition[0, 2].tolist()
    [0.0, 1.0]
    """
    transition = np.zeros((2, 3, 2))
    transition[0, :2, 0] = transition[0, 2, 1] = transition[1, :, 1] = 1.0
    reward = np.array([[0.5, 0.0, 1.0], [0.5, 1.0, 0.0]])
    return Discounted(np.array([1.0, 0.0]), transition, reward, gamma)


def values(mdp: Discounted, log_pi: Floats) -> Values:
    r"""Exact values of a stationary policy.

        V = (I - gamma P_pi)^-1 r_pi,   Q(s, a) = reward(s, a) + gamma sum_s' P(s' | s, a) V(s')

    Args:
      mdp: the processes.
      log_pi: (..., S, V) log-probabilities, nats.

    Returns:
      A `Values` without the axis of time: value (..., S), action_value and advantage (..., S, V).

    Source: Bellman's equation.

    >>> certain = np.array([[0.0], [0.0]])  # the only action
    >>> mdp = Discounted(np.array([1.0, 0.0]), np.eye(2)[:, None], np.array([[1.0], [0.0]]), gamma=0.75)
    >>> values(mdp, certain).value.tolist()
    [4.0, 0.0]
    """
    pi = np.exp(log_pi)
    earned = np.sum(pi * mdp.reward, axis=-1)
    value = np.linalg.solve(_forgetting(mdp, pi), earned[..., None])[..., 0]
    return Values(value, mdp.reward + mdp.gamma * np.einsum("...sap,...p->...sa", mdp.transition, value))


def occupancy(mdp: Discounted, log_pi: Floats) -> Floats:
    r"""How often each state is visited, later visits counting less.

        d = (1 - gamma) sum_t gamma^t P(s_t = .) = (1 - gamma) (I - gamma P_pi^T)^-1 initial

    Args:
      mdp: the processes.
      log_pi: (..., S, V) log-probabilities, nats.

    Returns:
      (..., S), sums to 1.

    Source: [CPO] section 2.

    >>> to_room = np.log(np.array([[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]))
    >>> occupancy(doorway(0.5), to_room).round(12).tolist()  # 1/2 (1 + 1/4 + 1/16 + ...) at the door
    [0.666666666667, 0.333333333333]
    """
    visits = np.swapaxes(_forgetting(mdp, np.exp(log_pi)), -1, -2)
    return np.asarray((1 - mdp.gamma) * np.linalg.solve(visits, mdp.initial[..., None])[..., 0])


def expected_return(mdp: Discounted, log_pi: Floats) -> Floats:
    """J(pi), the expected discounted sum of rewards: (...), in units of reward.

    >>> float(expected_return(doorway(0.5), np.log(np.full((2, 3), 1 / 3))).round(12))
    1.0
    """
    return np.asarray(np.sum(mdp.initial * values(mdp, log_pi).value, axis=-1))


def mean_advantage(mdp: Discounted, log_mu: Floats, log_pi: Floats) -> Floats:
    """A-bar(s) = E_{a ~ pi}[A^mu(s, a)], what pi gains in a state before mu takes over again: (..., S).

    >>> same = np.log(np.full((2, 3), 1 / 3))
    >>> bool(np.all(np.abs(mean_advantage(doorway(0.5), same, same)) < 1e-15))
    True
    """
    advantage: Floats = expected_advantage(np.exp(log_pi), values(mdp, log_mu).advantage)
    return advantage


def surrogate(mdp: Discounted, log_mu: Floats, log_pi: Floats) -> Floats:
    r"""L, what pi would gain if it met the states that mu meets.

        L = E_{s ~ d^mu} E_{a ~ pi}[A^mu(s, a)] / (1 - gamma)

    With d^pi in place of d^mu this is J(pi) - J(mu), exactly.

    Args:
      mdp: the processes.
      log_mu, log_pi: (..., S, V) log-probabilities, nats.

    Returns:
      (...) in units of reward.

    Source: [TRPO] eq. 3; [KL02] Lemma 6.1 for the identity.

    >>> even, up = np.log(np.full((2, 3), 1 / 3)), np.log(np.array([[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]))
    >>> bool(surrogate(doorway(0.5), even, up) > 0)
    True
    """
    gained = np.sum(occupancy(mdp, log_mu) * mean_advantage(mdp, log_mu, log_pi), axis=-1)
    return np.asarray(gained / (1 - mdp.gamma))


def mixture(log_mu: Floats, log_other: Floats, mixing: float) -> Floats:
    """(1 - a) mu + a other in logs, the conservative step of [KL02]: (..., S, V), nats.

    >>> np.exp(mixture(np.log(np.array([0.25, 0.75])), np.log(np.array([0.75, 0.25])), 0.5)).round(9).tolist()
    [0.5, 0.5]
    """
    if mixing == 1:
        return log_other
    return np.asarray(np.logaddexp(np.log1p(-mixing) + log_mu, np.log(mixing) + log_other))


def _forgetting(mdp: Discounted, pi: Floats) -> Floats:
    """I - gamma P_pi: (..., S, S)."""
    step = np.einsum("...sa,...sap->...sp", pi, mdp.transition)
    return np.asarray(np.eye(step.shape[-1]) - mdp.gamma * step)
