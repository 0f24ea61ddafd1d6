"""Small worlds in which the truth behind a bound is computed by enumeration. Imports nothing of divsim."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Process:
    """A discounted decision process with S states and A actions.

    Attributes:
      transition: (S, A, S) probabilities of the next state.
      reward: (S, A).
      start: (S) distribution of the first state.
      gamma: discount.
    """

    transition: Floats
    reward: Floats
    start: Floats
    gamma: float

    def value(self, policy: Floats) -> Floats:
        """(S) unnormalised discounted values of a policy (S, A)."""
        step = np.einsum("sa,sat->st", policy, self.transition)
        return np.linalg.solve(np.eye(len(step)) - self.gamma * step, np.sum(policy * self.reward, axis=-1))

    def occupancy(self, policy: Floats) -> Floats:
        """(S) normalised discounted state occupancy."""
        step = np.einsum("sa,sat->st", policy, self.transition)
        here = np.eye(len(step)) - self.gamma * step.T
        return (1 - self.gamma) * np.linalg.solve(here, self.start)

    def advantage(self, policy: Floats) -> Floats:
        """(S, A)."""
        value = self.value(policy)
        return self.reward + self.gamma * self.transition @ value - value[:, None]

    def objective(self, policy: Floats) -> float:
        return float(self.start @ self.value(policy))


def random_process(rng: np.random.Generator, gamma: float) -> Process:
    states, actions = 5, 3
    return Process(
        transition=rng.dirichlet(np.full(states, 0.3), (states, actions)),
        reward=rng.standard_normal((states, actions)),
        start=rng.dirichlet(np.ones(states)),
        gamma=gamma,
    )


def random_policy(rng: np.random.Generator, process: Process) -> Floats:
    return rng.dirichlet(np.ones(process.reward.shape[1]), process.reward.shape[0])


def nearby(rng: np.random.Generator, policy: Floats, reach: float) -> Floats:
    """A policy between `policy` and a random one."""
    return (1 - reach) * policy + reach * rng.dirichlet(np.ones(policy.shape[1]), policy.shape[0])


def tv(p: Floats, q: Floats) -> Any:
    return np.sum(np.abs(p - q), axis=-1) / 2


def kl(p: Floats, q: Floats) -> Any:
    return np.sum(p * np.log(p / q), axis=-1)


def doorway(gamma: float, step: float) -> tuple[Process, Floats, Floats]:
    """Where the penalties bite: raising A at the door leads to a room whose every A was lowered as much.

    State 0 is the door, state 1 the room; both are left only through action 2 of the door. Action 0 pays 0,
    action 1 pays -1 at the door and +1 in the room, action 2 the opposite. The second policy moves `step`
    of probability from action 1 to action 2.
    """
    transition = np.zeros((2, 3, 2))
    transition[0, :2, 0] = transition[0, 2, 1] = transition[1, :, 1] = 1.0
    reward = np.array([[0.0, -1.0, 1.0], [0.0, 1.0, -1.0]])
    process = Process(transition, reward, np.array([1.0, 0.0]), gamma)
    before = np.tile([1 - step, step, 0.0], (2, 1))
    return process, before, np.tile([1 - step, 0.0, step], (2, 1))


@dataclass(frozen=True)
class Tree:
    """Two policies over V tokens and T steps that see the whole prefix, and a reward of each leaf.

    Attributes:
      mu, pi: for each step t, (V^t, V) distributions of the next token.
      reward: (V^T) in [-1, 1].
    """

    mu: list[Floats]
    pi: list[Floats]
    reward: Floats

    @property
    def horizon(self) -> int:
        return len(self.mu)

    def prefixes(self, policy: list[Floats]) -> list[Floats]:
        """For each step t the (V^t) probabilities of its prefixes, and the leaves at the end."""
        reached = [np.ones(1)]
        for step in policy:
            reached.append((reached[-1][:, None] * step).reshape(-1))
        return reached

    def error(self) -> float:
        """J(pi) - J(mu) - L', L' = E_mu[R sum_t (r_t - 1)], leaf by leaf."""
        vocab, by_mu, by_pi = self.mu[0].shape[-1], self.prefixes(self.mu)[-1], self.prefixes(self.pi)[-1]
        surrogate = 0.0
        for leaf, path in enumerate(product(range(vocab), repeat=self.horizon)):
            prefix, excess = 0, 0.0
            for t, token in enumerate(path):
                excess += self.pi[t][prefix, token] / self.mu[t][prefix, token] - 1
                prefix = prefix * vocab + token
            surrogate += by_mu[leaf] * self.reward[leaf] * excess
        return float((by_pi - by_mu) @ self.reward - surrogate)

    def mean_tv(self) -> Floats:
        """(T) E_mu of the total variation at each step."""
        reached = self.prefixes(self.mu)
        return np.array([reached[t] @ tv(self.mu[t], self.pi[t]) for t in range(self.horizon)])

    def max_of(self, divergence: Any) -> Any:
        return max(divergence(m, p).max() for m, p in zip(self.mu, self.pi, strict=True))

    def sequence_kl(self) -> Any:
        return kl(self.prefixes(self.mu)[-1], self.prefixes(self.pi)[-1])


def random_tree(rng: np.random.Generator, vocab: int = 3, horizon: int = 4) -> Tree:
    reach = rng.choice([0.01, 0.1, 0.5, 1.0])
    mu = [rng.dirichlet(np.ones(vocab), vocab**t) for t in range(horizon)]
    pi = [nearby(rng, step, reach) for step in mu]
    return Tree(mu, pi, rng.uniform(-1, 1, vocab**horizon))


def worst_tree(step: float) -> Tree:
    """Two coin flips moved by `step`, and the reward that makes the error as large as it can be."""
    mu, pi = np.array([[0.5, 0.5]]), np.array([[0.5 + step, 0.5 - step]])
    ratio = (pi / mu - 1)[0]
    reward = np.sign(np.outer(ratio, ratio)).reshape(-1)
    return Tree([mu, np.tile(mu, (2, 1))], [pi, np.tile(pi, (2, 1))], reward)
