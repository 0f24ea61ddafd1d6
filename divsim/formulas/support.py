"""Which tokens stay cells of their own, and how much mass of mu is left for the others."""

from dataclasses import dataclass

from ._array import Array, append, by_rows, fill_at, namespace
from .softmax import below_peak, log_mass, logsumexp


@dataclass(frozen=True)
class Record:
    """What an engine tells about mu at each token.

    Attributes:
      action: (...) int64, the sampled token.
      log_mu_k: (...) its log-probability, nats.
      top_ids: (..., K) int64, the K likeliest tokens in any order.
      top_log_mu: (..., K) their log-probabilities, nats.
    """

    action: Array
    log_mu_k: Array
    top_ids: Array
    top_log_mu: Array


def union_support(record: Record, replace_last: bool) -> tuple[Array, Array, Array, Array]:
    """TopK(mu, K) and the sampled token as K + 1 cells, the last one empty where the top-K holds the token.

    Args:
      record: the engine's record.
      replace_last: a sampled token outside the top-K takes the K-th place instead of joining.

    Returns: ids (..., K + 1), in_support (..., K + 1), log_mu (..., K + 1) and cell_k (...).

    >>> import numpy as np
    >>> record = Record(np.array(7), np.log(0.1), np.array([3, 5]), np.log([0.5, 0.3]))
    >>> ids, in_support, _, cell_k = union_support(record, replace_last=False)
    >>> ids.tolist(), in_support.tolist(), int(cell_k)
    ([3, 5, 7], [True, True, True], 2)
    """
    xp = namespace(record.top_ids)
    k = record.top_ids.shape[-1]
    is_k = record.top_ids == record.action[..., None]
    is_outside = ~xp.any(is_k, axis=-1)
    stays = xp.ones_like(is_k)
    if replace_last:
        last = xp.argmin(record.top_log_mu, axis=-1)  # engines promise no order
        stays = ~(is_outside[..., None] & (xp.arange(k, device=is_k.device) == last[..., None]))
    in_support = append(stays, is_outside)
    log_mu = append(record.top_log_mu, record.log_mu_k)
    ids = append(record.top_ids, record.action)
    place = xp.argmax(xp.astype(is_k, xp.int64), axis=-1)
    return (
        xp.where(in_support, ids, record.action[..., None]),
        in_support,
        xp.where(in_support, log_mu, -xp.inf),
        xp.where(is_outside, k, place),
    )


def hidden_mass(logits: Array, ids: Array) -> tuple[Array, Array]:
    """What tokens other than the retained ones weigh together: their mass and their sum of squares, as logs.

        log sum_hidden e^{z_i},   log sum_hidden e^{2 z_i}

    Args: logits: (..., V). ids: (..., L) int, the retained tokens.
    Returns: (...) each; -inf where nothing is hidden.

    >>> import numpy as np
    >>> log_mass, log_squares = hidden_mass(np.log([[0.5, 0.3, 0.2]]), np.array([[0]]))
    >>> np.exp(log_mass).round(3).tolist(), np.exp(log_squares).round(3).tolist()
    ([0.5], [0.13])
    """
    xp = namespace(logits)
    flat = (xp.reshape(array, (-1, array.shape[-1])) for array in (logits, ids))
    log_weight, log_squares = by_rows(_hidden_mass_of_rows, *flat)
    shape = logits.shape[:-1]
    return xp.reshape(log_weight, shape), xp.reshape(log_squares, shape)


def _hidden_mass_of_rows(logits: Array, ids: Array) -> tuple[Array, Array]:
    xp = namespace(logits)
    shifted, peak = below_peak(fill_at(logits, ids, -xp.inf))
    weight, peak = xp.exp(shifted), peak[..., 0]
    squares = log_mass(xp.sum(weight * weight, axis=-1))
    return log_mass(xp.sum(weight, axis=-1)) + peak, squares + 2 * peak


def log_complement(log_mu: Array, tail_size: Array) -> Array:
    """log of the mass that retained cells leave to the tail: (..., L) and (...) int -> (...), nats.

    Summed in float64; rounding below 0 is no mass, and an empty tail has none whatever the rounding.

    >>> import numpy as np
    >>> np.exp(log_complement(np.log([[0.5, 0.3], [0.6, 0.4]]), np.array([3, 0]))).round(3).tolist()
    [0.2, 0.0]
    """
    xp = namespace(log_mu)
    mass = -xp.expm1(logsumexp(xp.astype(log_mu, xp.float64)))
    return xp.astype(log_mass(xp.where(tail_size > 0, mass, xp.zeros_like(mass))), log_mu.dtype)
