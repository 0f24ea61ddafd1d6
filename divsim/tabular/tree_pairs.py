"""Two policies on a token tree: divergences at every prefix, the surrogate of the return and its error.

What is left out: one policy alone (`trees.py`), and bounds on the error, which are formulas.
"""

from collections.abc import Callable

import numpy as np

from divsim.formulas import difference

from .policies import Floats
from .trees import Levels, TokenTree, token_log_probs


def prefix_divergences(
    measure: Callable[[Floats, Floats], Floats], levels_mu: Levels, levels_pi: Levels
) -> Levels:
    """A divergence between the next-token distributions at every prefix.

    Args:
      measure: (log_mu, log_pi) -> divergence over the last axis, such as `TV.measure`.
      levels_mu, levels_pi: log-probabilities of both policies, level t of shape (..., V^t, V).

    Returns:
      `Levels`, level t of shape (..., V^t), in the unit of the divergence.

    Source: definition.

    >>> from divsim.formulas import TV
    >>> mu, pi = (np.log(np.array([[0.25, 0.75]])),), (np.log(np.array([[0.5, 0.5]])),)
    >>> prefix_divergences(TV.measure, mu, pi)[0].round(12).tolist()
    [0.25]
    """
    return tuple(measure(mu, pi) for mu, pi in zip(levels_mu, levels_pi, strict=True))


def surrogate(tree: TokenTree, levels_mu: Levels, levels_pi: Levels) -> Floats:
    r"""L', the first-order surrogate that token-level methods climb.

        L' = E_mu[R sum_t (r_t - 1)],   J(pi) - J(mu) = L' - Delta

    Args:
      tree: the trees.
      levels_mu, levels_pi: log-probabilities of both policies, level t of shape (..., V^t, V).

    Returns:
      (...) in units of reward, by enumeration.

    Source: [DPPO] Theorem 3.1; derivations, T12.

    >>> tree = TokenTree(np.array([0.0, 1.0]), vocab=2, horizon=1)
    >>> mu, pi = (np.log(np.array([[0.25, 0.75]])),), (np.log(np.array([[0.5, 0.5]])),)
    >>> round(float(surrogate(tree, mu, pi)), 12)
    -0.25
    """
    log_mu, log_pi = token_log_probs(levels_mu), token_log_probs(levels_pi)
    others = np.exp(sum_of_earlier(log_mu) + sum_of_later(log_mu))
    drift = np.sum(others * difference(log_mu, log_pi), axis=-1)
    return np.asarray(np.sum(tree.reward * drift, axis=-1))


def surrogate_error(tree: TokenTree, levels_mu: Levels, levels_pi: Levels) -> Floats:
    r"""Delta, what the surrogate ignores: the drift of the later tokens.

        Delta = E_mu[R sum_t (r_t - 1) (1 - prod_{j > t} r_j)]

    Args:
      tree: the trees.
      levels_mu, levels_pi: log-probabilities of both policies, level t of shape (..., V^t, V).

    Returns:
      (...) in units of reward, by enumeration; 0 if T = 1.

    Source: [DPPO] Theorem 3.1; derivations, T12.

    >>> tree = TokenTree(np.array([0.0, 1.0]), vocab=2, horizon=1)
    >>> mu, pi = (np.log(np.array([[0.25, 0.75]])),), (np.log(np.array([[0.5, 0.5]])),)
    >>> float(surrogate_error(tree, mu, pi)) == 0
    True
    """
    return np.asarray(np.sum(tree.reward * surrogate_error_weights(levels_mu, levels_pi), axis=-1))


def surrogate_error_weights(levels_mu: Levels, levels_pi: Levels) -> Floats:
    r"""What each sequence's reward weighs in Delta, which is linear in the rewards.

        mu(sequence) sum_t (r_t - 1) (1 - prod_{j > t} r_j)
            = sum_t mu(before t) (pi_t - mu_t) (mu(after t) - pi(after t))

    The second form is computed: no ratio overflows.

    Args:
      levels_mu, levels_pi: log-probabilities of both policies, level t of shape (..., V^t, V).

    Returns:
      (..., V^T). The rewards in [0, 1] that make Delta extreme are 1 where these are positive, or negative.

    Source: [DPPO] Theorem 3.1.

    >>> mu, pi = (np.log(np.array([[0.25, 0.75]])),), (np.log(np.array([[0.5, 0.5]])),)
    >>> bool(np.all(surrogate_error_weights(mu, pi) == 0))
    True
    """
    log_mu, log_pi = token_log_probs(levels_mu), token_log_probs(levels_pi)
    before = np.exp(sum_of_earlier(log_mu))
    rest = difference(sum_of_later(log_pi), sum_of_later(log_mu))
    return np.asarray(np.sum(before * difference(log_mu, log_pi) * rest, axis=-1))


def sum_of_earlier(steps: Floats) -> Floats:
    """Sum over j < t for every t: (..., T) -> (..., T), 0 at the beginning.

    >>> sum_of_earlier(np.array([1.0, 2.0, 4.0])).tolist()
    [0.0, 1.0, 3.0]
    """
    return np.concatenate([np.zeros_like(steps[..., :1]), np.cumsum(steps[..., :-1], axis=-1)], axis=-1)


def sum_of_later(steps: Floats) -> Floats:
    """Sum over j > t for every t: (..., T) -> (..., T), 0 at the end.

    >>> sum_of_later(np.array([1.0, 2.0, 4.0])).tolist()
    [6.0, 4.0, 0.0]
    """
    return np.flip(sum_of_earlier(np.flip(steps, axis=-1)), axis=-1)
