"""Two policies on a token tree: divergences at every prefix, the surrogate of the return and its error.

What is left out: one policy alone (`trees.py`), and bounds on the error, which are formulas.
"""

from collections.abc import Callable

import numpy as np

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
    log_mu, log_r = _log_ratios(levels_mu, levels_pi)
    return np.asarray(np.sum(np.exp(log_mu) * tree.reward * np.sum(np.expm1(log_r), axis=-1), axis=-1))


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

    Args:
      levels_mu, levels_pi: log-probabilities of both policies, level t of shape (..., V^t, V).

    Returns:
      (..., V^T). The rewards in [0, 1] that make Delta extreme are 1 where these are positive, or negative.

    Source: [DPPO] Theorem 3.1.

    >>> mu, pi = (np.log(np.array([[0.25, 0.75]])),), (np.log(np.array([[0.5, 0.5]])),)
    >>> bool(np.all(surrogate_error_weights(mu, pi) == 0))
    True
    """
    log_mu, log_r = _log_ratios(levels_mu, levels_pi)
    later = log_later_ratio(log_r)
    return np.asarray(np.exp(log_mu) * np.sum(np.expm1(log_r) * -np.expm1(later), axis=-1))


def log_later_ratio(log_r: Floats) -> Floats:
    """log prod_{j > t} r_j for every t: (..., T) -> (..., T), 0 at the end.

    >>> log_later_ratio(np.array([1.0, 2.0, 4.0])).tolist()
    [6.0, 4.0, 0.0]
    """
    return np.flip(np.cumsum(np.flip(log_r, axis=-1), axis=-1), axis=-1) - log_r


def _log_ratios(levels_mu: Levels, levels_pi: Levels) -> tuple[Floats, Floats]:
    """(..., V^T) log mu of each sequence, and (..., V^T, T) log r of each of its tokens."""
    token_mu = token_log_probs(levels_mu)
    return np.asarray(np.sum(token_mu, axis=-1)), token_log_probs(levels_pi) - token_mu
