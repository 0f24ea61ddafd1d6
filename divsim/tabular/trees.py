"""Token trees: sequences of T tokens out of V with one reward at the end, all V^T sequences enumerated.

The smallest exact model of a language model with an outcome reward. A policy is a tuple of `levels`: level t
is an array (..., V^t, V) with the next-token log-probabilities after each prefix of t tokens. Prefixes and
sequences are numbered as base-V integers, first token most significant. Any leading shape is a batch. What is
left out: end-of-sequence tokens, rewards on the way, and two policies side by side (`tree_pairs.py`).
"""

from dataclasses import dataclass

import numpy as np

from .policies import Floats, Shape, dirichlet, perturbed

Levels = tuple[Floats, ...]
"""One array per position: level t has shape (..., V^t, V), or (..., V^t) for a quantity of the prefix."""


@dataclass(frozen=True)
class TokenTree:
    """A batch of trees.

    Attributes:
      reward: (..., V^T) outcome reward of every sequence.
      vocab: V, the number of tokens.
      horizon: T, the number of positions.

    >>> TokenTree(np.zeros(8), vocab=2, horizon=3).sequences
    8
    """

    reward: Floats
    vocab: int
    horizon: int

    @property
    def sequences(self) -> int:
        """V^T, the number of sequences."""
        return int(self.vocab**self.horizon)


def random_tree(rng: np.random.Generator, shape: Shape, vocab: int, horizon: int) -> TokenTree:
    """Trees with independent uniform rewards in [0, 1].

    Args:
      rng: the only source of randomness.
      shape: leading shape of the batch.
      vocab, horizon: V and T; V^T sequences are stored.

    Returns:
      A `TokenTree`.

    Source: derived here.

    >>> random_tree(np.random.default_rng(0), (5,), vocab=3, horizon=2).reward.shape
    (5, 9)
    """
    return TokenTree(rng.random((*shape, vocab**horizon)), vocab, horizon)


def random_levels(rng: np.random.Generator, tree: TokenTree, concentration: float = 1.0) -> Levels:
    """A policy with an independent Dirichlet draw at every prefix.

    Args:
      rng: the only source of randomness.
      tree: fixes the shape.
      concentration: of the Dirichlet; small is peaked.

    Returns:
      `Levels` of log-probabilities, level t of shape (..., V^t, V).

    Source: derived here.

    >>> tree = random_tree(np.random.default_rng(0), (), vocab=3, horizon=2)
    >>> [level.shape for level in random_levels(np.random.default_rng(1), tree)]
    [(1, 3), (3, 3)]
    """
    batch = tree.reward.shape[:-1]
    return tuple(
        dirichlet(rng, (*batch, tree.vocab**t), tree.vocab, concentration) for t in range(tree.horizon)
    )


def perturbed_levels(rng: np.random.Generator, levels: Levels, noise: float) -> Levels:
    """The same policy with Gaussian noise of the given standard deviation (nats) on every logit.

    Args:
      rng: the only source of randomness.
      levels: log-probabilities, level t of shape (..., V^t, V).
      noise: standard deviation, nats.

    Returns:
      `Levels` of log-probabilities of the same shapes.

    Source: derived here.

    >>> level = np.log(np.array([[0.5, 0.5]]))
    >>> bool(np.all(perturbed_levels(np.random.default_rng(0), (level,), noise=0.0)[0] == level))
    True
    """
    return tuple(perturbed(rng, level, noise) for level in levels)


def token_log_probs(levels: Levels) -> Floats:
    """Log-probability of each token of each sequence.

    Args:
      levels: log-probabilities, level t of shape (..., V^t, V).

    Returns:
      (..., V^T, T), nats, time last.

    Source: definition.

    >>> first, second = np.array([[0.25, 0.75]]), np.array([[0.5, 0.5], [0.1, 0.9]])
    >>> np.exp(token_log_probs((np.log(first), np.log(second)))).round(2).tolist()
    [[0.25, 0.5], [0.25, 0.5], [0.75, 0.1], [0.75, 0.9]]
    """
    return np.stack([_to_sequences(level, levels) for level in levels], axis=-1)


def sequence_log_probs(levels: Levels) -> Floats:
    """Log-probability of each sequence: (..., V^T), nats.

    >>> level = np.log(np.array([[0.25, 0.75]]))
    >>> np.exp(sequence_log_probs((level,))).tolist()
    [0.25, 0.75]
    """
    return np.asarray(np.sum(token_log_probs(levels), axis=-1))


def prefix_probs(levels: Levels) -> Levels:
    """Probability of reaching each prefix.

    Args:
      levels: log-probabilities, level t of shape (..., V^t, V).

    Returns:
      `Levels`, level t of shape (..., V^t), each summing to 1.

    Source: definition.

    >>> first, second = np.array([[0.25, 0.75]]), np.array([[0.5, 0.5], [0.1, 0.9]])
    >>> [reach.tolist() for reach in prefix_probs((np.log(first), np.log(second)))]
    [[1.0], [0.25, 0.75]]
    """
    reach = [np.ones(levels[0].shape[:-1])]
    for level in levels[:-1]:
        joint = reach[-1][..., None] * np.exp(level)
        reach.append(joint.reshape(*joint.shape[:-2], -1))
    return tuple(reach)


def expected_reward(tree: TokenTree, levels: Levels) -> Floats:
    """J(pi) by enumeration of all sequences: (...), in units of reward.

    >>> tree = TokenTree(np.array([0.0, 1.0]), vocab=2, horizon=1)
    >>> float(expected_reward(tree, (np.log(np.array([[0.25, 0.75]])),)))
    0.75
    """
    return np.asarray(np.sum(np.exp(sequence_log_probs(levels)) * tree.reward, axis=-1))


def action_values(tree: TokenTree, levels: Levels) -> Levels:
    r"""Expected final reward after each prefix and next token, the rest sampled from the policy.

        Q_{T-1} = reward,   Q_{t-1}(prefix, a) = sum_b pi(b | prefix a) Q_t(prefix a, b)

    Args:
      tree: the trees.
      levels: log-probabilities, level t of shape (..., V^t, V).

    Returns:
      `Levels`, level t of shape (..., V^t, V), in units of reward.

    Source: Bellman's equation.

    >>> tree = TokenTree(np.array([0.0, 1.0, 2.0, 4.0]), vocab=2, horizon=2)
    >>> uniform = (np.log(np.full((1, 2), 0.5)), np.log(np.full((2, 2), 0.5)))
    >>> action_values(tree, uniform)[0].tolist()
    [[0.5, 3.0]]
    """
    outcome = tree.reward
    q: list[Floats] = []
    for level in reversed(levels):
        q.append(outcome.reshape(*outcome.shape[:-1], *level.shape[-2:]))
        outcome = np.sum(np.exp(level) * q[-1], axis=-1)
    return tuple(reversed(q))


def policy_gradient(tree: TokenTree, levels: Levels) -> Levels:
    r"""Exact gradient of J in the logits at every prefix.

        dJ / dz(prefix, a) = P(prefix) pi(a | prefix) (Q(prefix, a) - V(prefix))

    Args:
      tree: the trees.
      levels: log-probabilities, level t of shape (..., V^t, V).

    Returns:
      `Levels`, level t of shape (..., V^t, V), each row sums to zero.

    Source: the policy gradient theorem; derivations, T10.

    >>> tree = TokenTree(np.array([0.0, 1.0]), vocab=2, horizon=1)
    >>> policy_gradient(tree, (np.log(np.array([[0.25, 0.75]])),))[0].tolist()
    [[-0.1875, 0.1875]]
    """
    gradient = []
    for reach, level, q in zip(prefix_probs(levels), levels, action_values(tree, levels), strict=True):
        pi = np.exp(level)
        advantage = q - np.sum(pi * q, axis=-1, keepdims=True)
        gradient.append(reach[..., None] * pi * advantage)
    return tuple(gradient)


def _to_sequences(level: Floats, levels: Levels) -> Floats:
    prefixes = level.reshape(*level.shape[:-2], -1)
    sequences = levels[-1].shape[-2] * levels[-1].shape[-1]
    return np.repeat(prefixes, sequences // prefixes.shape[-1], axis=-1)
