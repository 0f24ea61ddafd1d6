"""Worlds to learn in: bandits, a chain, a grid, token trees, long layers; each with a policy to start from.

Every environment draws a whole world, so that seeds differ in their worlds too. States tell the time wherever
a policy should depend on it: learners hold one row of logits a state. What is left out: function
approximation, and partial observation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from .language import WORLDS
from .policies import Floats
from .worlds import World, bandit

Noise = Callable[[Floats, Floats], Floats]
"""(expected rewards, uniform random levels in [0, 1)) -> rewards as they are paid, all of one shape."""


def paid_exactly(expected: Floats, level: Floats) -> Floats:
    """The expected reward itself."""
    return expected


def paid_with_gaussian_noise(expected: Floats, level: Floats) -> Floats:
    """Standard normal noise on every reward, by inverse transform."""
    return np.asarray(expected + ndtri(np.maximum(level, 2.0**-54)))  # a level of 0 is not minus infinity


def paid_as_success(expected: Floats, level: Floats) -> Floats:
    """1 with the probability that the expected reward says, else 0."""
    return np.asarray(level < expected, dtype=np.float64)


@dataclass(frozen=True)
class Environment:
    """A kind of world to learn in.

    Attributes:
      name: its name in tables and flags.
      meaning: in one line.
      draw: rng -> a world and the logits (S, V) of the policy that learning starts from.
      noise: what comes between a reward and its expectation.

    >>> world, logits = ENVIRONMENTS["chain"].draw(np.random.default_rng(0))
    >>> logits.shape == (world.states, world.actions)
    True
    """

    name: str
    meaning: str
    draw: Callable[[np.random.Generator], tuple[World, Floats]]
    noise: Noise = paid_exactly


def stacked(worlds: Sequence[World]) -> World:
    """Worlds of one shape as a batch, seeds first.

    >>> worlds = [ENVIRONMENTS["grid"].draw(np.random.default_rng(seed))[0] for seed in range(3)]
    >>> stacked(worlds).initial.shape
    (3, 16)
    """
    return World(
        initial=np.stack([world.initial for world in worlds]),
        transition=np.stack([world.transition for world in worlds]),
        reward=np.stack([world.reward for world in worlds]),
        horizon=worlds[0].horizon,
    )


def draw_worlds(environment: Environment, rngs: Sequence[np.random.Generator]) -> tuple[World, Floats]:
    """A world a generator, as a batch of n, and the logits (n, S, V) of the policies to start from.

    >>> rngs = [np.random.default_rng(seed) for seed in range(3)]
    >>> world, logits = draw_worlds(ENVIRONMENTS["chain"], rngs)
    >>> world.initial.shape, logits.shape
    ((3, 8), (3, 8, 3))
    """
    worlds, logits = zip(*(environment.draw(rng) for rng in rngs), strict=True)
    return stacked(worlds), np.stack(logits)


def chain(states: int, horizon: int, slip: float) -> World:
    """Walk left or right, or stay: a small reward at the left end, where all begin, a large one at the right.

    Args:
      states: S >= 2.
      horizon: T.
      slip: probability that the step goes the other way.

    Returns: a `World` with the actions left, stay, right.
    Source: the chain of exploration studies, finite horizon.

    >>> chain(3, 4, slip=0.0).transition[0, 2].tolist()
    [0.0, 1.0, 0.0]
    """
    transition = np.zeros((states, 3, states))
    for state in range(states):
        for action, move in enumerate((-1, 0, 1)):
            transition[state, action, np.clip(state + move, 0, states - 1)] += 1 - slip
            transition[state, action, np.clip(state - move, 0, states - 1)] += slip
    reward = np.zeros((states, 3))
    reward[0, 0], reward[-1, 2] = 0.1, 1.0
    return World(np.eye(states)[0], transition, reward, horizon)


def grid(side: int, horizon: int, slip: float) -> World:
    """A square: from one corner to the opposite one, where every step pays 1; next to it a pit that costs 1.

    Args:
      side: of the square; S = side^2.
      horizon: T.
      slip: probability of a random direction in place of the chosen one.

    Returns: a `World` with the actions north, east, south, west.
    Source: the grid world of textbooks, finite horizon.

    >>> grid(2, 3, slip=0.0).transition[0, 1].tolist()  # east from the corner
    [0.0, 1.0, 0.0, 0.0]
    """
    moves = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
    places = np.stack(np.divmod(np.arange(side**2), side), axis=-1)
    ends = np.clip(places[:, None] + moves, 0, side - 1) @ np.array([side, 1])
    sure = np.eye(side**2)[ends]
    transition = (1 - slip) * sure + slip * sure.mean(axis=1, keepdims=True)
    reward = np.zeros((side**2, 4))
    reward[-1], reward[-2] = 1.0, -1.0
    return World(np.eye(side**2)[0], transition, reward, horizon)


def token_tree(correct: Floats, vocab: int, horizon: int) -> World:
    """Sequences of tokens with one reward at the end, as a world whose states are the prefixes.

    Args:
      correct: (V^T) reward of every sequence, numbered in base V, first token most significant.
      vocab, horizon: V and T.

    Returns: a `World` with (V^T - 1) / (V - 1) states, prefixes by length, then by number.
    Source: derived here; the same tree as `TokenTree`.

    >>> world = token_tree(np.array([0.0, 0.0, 1.0, 0.0]), vocab=2, horizon=2)
    >>> world.states, world.reward[2].tolist()  # after token 1, token 0 is right
    (3, [1.0, 0.0])
    """
    first = np.concatenate([[0], np.cumsum(vocab ** np.arange(horizon))])
    transition, reward = np.zeros((first[-1], vocab, first[-1])), np.zeros((first[-1], vocab))
    for t in range(horizon - 1):
        prefixes = np.arange(vocab**t)
        for token in range(vocab):
            transition[first[t] + prefixes, token, first[t + 1] + prefixes * vocab + token] = 1.0
    transition[first[horizon - 1] :, :, 0] = 1.0  # the episode is over; where to does not matter
    reward[first[horizon - 1] :] = correct.reshape(-1, vocab)
    return World(np.eye(first[-1])[0], transition, reward, horizon)


def layered(rng: np.random.Generator, width: int, actions: int, horizon: int) -> World:
    """Long episodes with one reward at the end: random transitions from each layer to the next.

    Args:
      rng: the only source of randomness.
      width: states a layer; S = width T.
      actions: V.
      horizon: T.

    Returns: a `World` that pays 0 or 1 for the last state and action.
    Source: derived here; a language model's outcome reward with a short memory.

    >>> layered(np.random.default_rng(0), 2, 3, 4).states
    8
    """
    states = width * horizon
    transition, reward = np.zeros((states, actions, states)), np.zeros((states, actions))
    for t in range(horizon - 1):
        here, there = slice(t * width, (t + 1) * width), slice((t + 1) * width, (t + 2) * width)
        transition[here, :, there] = rng.dirichlet(np.full(width, 0.5), (width, actions))
    transition[-width:, :, 0] = 1.0
    reward[-width:] = rng.random((width, actions)) < 0.5
    return World(np.eye(states)[0], transition, reward, horizon)


def _flat(world: World) -> tuple[World, Floats]:
    return world, np.zeros((world.states, world.actions))


def _gaussian_bandit(rng: np.random.Generator) -> tuple[World, Floats]:
    return _flat(bandit(rng.standard_normal(10)))


def _bernoulli_bandit(rng: np.random.Generator) -> tuple[World, Floats]:
    return _flat(bandit(rng.random(10)))


def _language_bandit(rng: np.random.Generator) -> tuple[World, Floats]:
    """A next-token distribution that is open, and one token in five is a right answer."""
    logits = WORLDS["flat"].logits(rng, 1, 200)
    return bandit(np.asarray(rng.random(200) < 0.2, dtype=np.float64)), logits


def _token_tree(rng: np.random.Generator) -> tuple[World, Floats]:
    world = token_tree(np.asarray(rng.random(4**4) < 0.1, dtype=np.float64), 4, 4)
    return world, 0.5 * rng.standard_normal((world.states, world.actions))


ENVIRONMENTS: dict[str, Environment] = {
    environment.name: environment
    for environment in (
        Environment("gaussian", "10 arms, means and noise standard normal", _gaussian_bandit,
                    paid_with_gaussian_noise),
        Environment("bernoulli", "10 arms that pay 0 or 1, any chance", _bernoulli_bandit, paid_as_success),
        Environment("language", "one token out of 200, a fifth of them right", _language_bandit),
        Environment("chain", "8 places, 12 steps, the reward is far", lambda rng: _flat(chain(8, 12, 0.1))),
        Environment("grid", "4 x 4 places, a pit near the goal", lambda rng: _flat(grid(4, 12, 0.1))),
        Environment("tree", "4 tokens out of 4, one sequence in ten right", _token_tree),
        Environment("layered", "16 steps, one reward at the end", lambda rng: _flat(layered(rng, 3, 4, 16))),
    )
}  # fmt: skip
"""The environments by name."""
BANDITS = ("gaussian", "bernoulli", "language")
PROCESSES = ("chain", "grid", "tree", "layered")
