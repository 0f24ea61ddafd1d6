"""Which tokens stay cells of their own, and how much mass of mu is left for the others."""

from dataclasses import dataclass

from ._array import Array, append, namespace
from .softmax import log_mass, logsumexp


@dataclass(frozen=True)
class Record:
    """What an engine tells about mu at each token.

    Attributes:
      action: (...) int64, the sampled token.
      log_mu_k: (...) its log-probability, nats.
      top_ids: (..., K) int64, the K likeliest tokens.
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
    is_last = xp.arange(k, device=is_k.device) == k - 1
    gives_way = is_last & is_outside[..., None] & replace_last
    in_support = append(~gives_way, is_outside)
    log_mu = append(record.top_log_mu, record.log_mu_k)
    ids = append(record.top_ids, record.action)
    place = xp.argmax(xp.astype(is_k, xp.int64), axis=-1)
    return (
        xp.where(in_support, ids, record.action[..., None]),
        in_support,
        xp.where(in_support, log_mu, -xp.inf),
        xp.where(is_outside, k, place),
    )


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
