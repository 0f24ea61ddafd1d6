r"""How much of pi can meet a hidden tail of mu: the fractional knapsack behind the certificate.

The trainer knows pi on the tail; of mu it knows the tail mass M and a cap b on every entry. The overlap
`sum_tail pi_i mu_i` is linear in mu, so its extremes fill b into the largest, or the smallest, tail pi.
"""

from ._array import Array, namespace


def overlap_bracket(
    pi_tail: Array, mass: Array, cap: Array, slack: Array | float = 0.0
) -> tuple[Array, Array]:
    r"""The tight interval of `sum_tail pi_i mu_i` over all 0 <= mu_i <= b with sum M.

        high = sum_j pi_(j) min(b, (M - j b)_+),   pi_(0) >= pi_(1) >= ...      (overlap.bracket)

    and the same in ascending order for `low`. If M is known only to within `slack`, `low` fills M - slack and
    `high` fills M + slack.

    Args:
      pi_tail: (..., V) pi on the tail, and -inf (not 0) at every token that is not hidden.
      mass: (...) tail mass M of mu.
      cap: (...) cap b >= 0 on every hidden mu_i.
      slack: (...) or number >= 0, how far M may be off.

    Returns: (low, high), each (...), before outward rounding.
    Source: derived here; derivations, T7 (interval, knapsack).

    >>> import numpy as np
    >>> overlap_bracket(np.array([0.3, 0.1, -np.inf]), np.array(0.25), np.array(0.2))
    (np.float64(0.035), np.float64(0.065))
    """
    xp = namespace(pi_tail)
    ascending = xp.sort(pi_tail, axis=-1)
    is_hidden = ascending >= 0
    hidden = xp.where(is_hidden, ascending, xp.zeros_like(ascending))
    size = xp.sum(xp.astype(is_hidden, hidden.dtype), axis=-1, keepdims=True)
    place = xp.arange(pi_tail.shape[-1], dtype=hidden.dtype, device=hidden.device)
    from_top = pi_tail.shape[-1] - 1 - place
    from_bottom = place - (pi_tail.shape[-1] - size)

    def fill(order: Array, amount: Array) -> Array:
        left = xp.clip(amount[..., None] - order * cap[..., None], min=0.0)
        return xp.sum(hidden * xp.minimum(left, cap[..., None]), axis=-1)

    return fill(from_bottom, mass - slack), fill(from_top, mass + slack)


def overlap_bounds_at(
    pi_tail: Array, mass: Array, cap: Array, low_price: Array, high_price: Array
) -> tuple[Array, Array]:
    r"""Sound bounds of the same overlap at any price lambda, without sorting: weak duality.

        lambda M - b sum (lambda - pi)_+  <=  sum_tail pi mu  <=  lambda M + b sum (pi - lambda)_+
                                                                                 (overlap.bounds_at)

    Args:
      pi_tail, mass, cap: as in `overlap_bracket`.
      low_price, high_price: (...) the price lambda of the lower and of the upper bound.

    Returns: (low, high), each (...); equal to `overlap_bracket` at the best prices (strong duality).
    Source: derived here; derivations, T7 (any-lambda identity).

    >>> import numpy as np
    >>> pi, best = np.array([0.3, 0.1]), np.array([0.3, 0.1])
    >>> [round(float(x), 3) for x in overlap_bounds_at(pi, np.array(0.25), np.array(0.2), best[0], best[1])]
    [0.035, 0.065]
    """
    xp = namespace(pi_tail)
    is_hidden = pi_tail >= 0
    zero = xp.zeros_like(pi_tail)

    def excess(gap: Array) -> Array:
        return cap * xp.sum(xp.where(is_hidden, xp.clip(gap, min=0.0), zero), axis=-1)

    low = low_price * mass - excess(low_price[..., None] - pi_tail)
    return low, high_price * mass + excess(pi_tail - high_price[..., None])
