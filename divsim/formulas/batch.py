r"""What happens across tokens and samples: group-relative advantages, and how token losses become one number.

Both are sums with the right things counted. Padding and unscored samples are left out of every mean, and the
weights of a loss are made once for the whole batch, so that a micro-batch is a slice of them.
"""

from collections.abc import Callable

from . import _checks as checks
from ._array import Array, namespace


def group_advantage(
    reward: Array, is_scored: Array | None = None, *, divide_by_std: bool = False, eps: float = 1e-6
) -> Array:
    r"""Rewards relative to their group, one group along the last axis.

        A = R - mean(R),   or (R - mean(R)) / (std(R) + eps) with the n - 1 std  (batch.group_advantage)

    Args:
      reward: (..., G) rewards of the samples of one prompt.
      is_scored: (..., G) bool or None; an unscored sample gets A = 0 and counts in no mean.
      divide_by_std: divide by the standard deviation (GRPO) or not (Dr. GRPO).
      eps: added to the standard deviation; a group of equal rewards, or of one, gets A = 0.

    Returns: (..., G).
    Errors: ValueError for a non-finite reward of a scored sample.
    Source: [GRPO], [DrGRPO].

    >>> import numpy as np
    >>> group_advantage(np.array([[1.0, 0.0], [5.0, 5.0]]), divide_by_std=True).round(4).tolist()
    [[0.7071, -0.7071], [0.0, 0.0]]
    """
    checks.require_one_library({"reward": reward} | ({} if is_scored is None else {"is_scored": is_scored}))
    checks.require_floating({"reward": reward}, "convert it")
    checks.require_rows("reward", reward)
    xp = namespace(reward)
    counted = xp.ones_like(reward, dtype=xp.bool) if is_scored is None else is_scored
    checks.require_bool("is_scored", counted)
    checks.require_shape("is_scored", counted, tuple(reward.shape), "that of reward")
    remedy = "mark it unscored with is_scored"
    checks.require(xp.isfinite(reward) | ~counted, "reward", reward, "must be finite", remedy)
    checks.require_positive("eps", eps, "the reward's unit")
    zero = xp.zeros_like(reward)
    count = xp.sum(xp.astype(counted, reward.dtype), axis=-1, keepdims=True)
    # Measured from the group's best, so that equal rewards give exactly 0 and not a rounding of it.
    best = xp.max(xp.where(counted, reward, -xp.inf), axis=-1, keepdims=True)
    best = xp.where(xp.isfinite(best), best, xp.zeros_like(best))
    known = xp.where(counted, xp.where(counted, reward, zero) - best, zero)
    mean = xp.sum(known, axis=-1, keepdims=True) / xp.clip(count, min=1.0)
    centred = xp.where(counted, known - mean, zero)
    if not divide_by_std:
        return centred
    variance = xp.sum(centred**2, axis=-1, keepdims=True) / xp.clip(count - 1, min=1.0)
    return centred / (xp.sqrt(variance) + eps)


def token_mean(is_response: Array, horizon: int | None) -> Array:
    """Each response token weighs 1 / (their number in the batch)."""
    counted = _count(is_response)
    return counted / namespace(counted).clip(namespace(counted).sum(counted), min=1.0)


def sequence_mean(is_response: Array, horizon: int | None) -> Array:
    """Each sequence weighs the same, each of its tokens the same within it; empty sequences do not count."""
    counted = _count(is_response)
    xp = namespace(counted)
    lengths = xp.sum(counted, axis=-1, keepdims=True)
    return counted / xp.clip(lengths, min=1.0) / _sequences(lengths)


def constant_length(is_response: Array, horizon: int | None) -> Array:
    """Each token weighs 1 / (sequences * horizon), however long its own sequence is."""
    if horizon is None:
        raise ValueError("constant_length needs horizon, the constant number of tokens, got None")
    checks.require_count("horizon", horizon, "tokens", "pass the constant length")
    counted = _count(is_response)
    return counted / _sequences(namespace(counted).sum(counted, axis=-1, keepdims=True)) / horizon


AGGREGATIONS: dict[str, Callable[[Array, int | None], Array]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "constant_length": constant_length,
}
"""How token losses become one loss, as weights (B, T) that are 0 at padding."""


def loss_weights(is_response: Array, aggregation: str = "token_mean", horizon: int | None = None) -> Array:
    """Weights of token losses for a whole batch: `loss = sum(weights * token_loss)`.

    Args:
      is_response: (B, T) bool of the whole batch; slice the result for micro-batches.
      aggregation: a name of `AGGREGATIONS`.
      horizon: the constant length, tokens, for "constant_length".

    Returns: (B, T) float64, 0 at padding.
    Source: definitions; related methods differ here and must be compared at one choice.

    >>> import numpy as np
    >>> loss_weights(np.array([[True, False], [True, True]]), "sequence_mean").tolist()
    [[0.5, 0.0], [0.25, 0.25]]
    """
    checks.require_known("aggregation", aggregation, AGGREGATIONS)
    checks.require_one_library({"is_response": is_response})
    checks.require_bool("is_response", is_response)
    if horizon is not None and aggregation != "constant_length":
        raise ValueError(
            f"horizon is for constant_length only, got {horizon} with {aggregation}; leave it out"
        )
    return AGGREGATIONS[aggregation](is_response, horizon)


def aggregate(values: Array, weights: Array) -> Array:
    """`sum(weights * values)`, blind to whatever stands where the weight is 0: (B, T), (B, T) -> 0-d.

    >>> import numpy as np
    >>> float(aggregate(np.array([[2.0, np.nan]]), np.array([[1.0, 0.0]])))
    2.0
    """
    checks.require_one_library({"values": values, "weights": weights})
    checks.require_shape("values", values, tuple(weights.shape), "that of weights")
    xp = namespace(values, weights)
    weights = xp.astype(weights, values.dtype)
    return xp.sum(weights * xp.where(weights == 0, xp.zeros_like(values), values))


def _count(is_response: Array) -> Array:
    xp = namespace(is_response)
    return xp.astype(is_response, xp.float64)


def _sequences(lengths: Array) -> Array:
    """The number of sequences with at least one response token, 1 at least."""
    xp = namespace(lengths)
    return xp.clip(xp.sum(xp.astype(lengths > 0, lengths.dtype)), min=1.0)
