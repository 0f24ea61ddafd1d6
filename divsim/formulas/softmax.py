r"""Softmax policies: normalising, moving along a line of logits, the policy-gradient step, entropy.

A policy is a row of log-probabilities. Moving the logits by `t v` moves the policy along the
exponential path `pi_i(t) = pi_i e^{t v_i} / sum_j pi_j e^{t v_j}`, so logits themselves are never needed.
"""

import math

from ._array import Array, fill_at, namespace


def exp_or_inf(exponent: Array) -> Array:
    """`e^x`, +inf beyond the dtype's range without a warning: (...) -> (...).

    >>> import numpy as np
    >>> exp_or_inf(np.array([0.0, 1e4])).tolist()
    [1.0, inf]
    """
    xp = namespace(exponent)
    largest = math.log(float(xp.finfo(exponent.dtype).max))
    return xp.exp(xp.where(exponent > largest, xp.inf, exponent))


def log_mass(mass: Array) -> Array:
    """`log m` of a mass, -inf where it is 0 or was rounded below 0: (...) -> (...), nats. No warning, no NaN.

    >>> import numpy as np
    >>> log_mass(np.array([1.0, 0.0, -1e-8])).tolist()
    [0.0, -inf, -inf]
    """
    xp = namespace(mass)
    is_positive = mass > 0
    log_positive = xp.log(xp.where(is_positive, mass, xp.ones_like(mass)))
    return xp.where(is_positive, log_positive, xp.full_like(mass, -xp.inf))


def logsumexp(log_weights: Array) -> Array:
    """`log sum_i exp(x_i)` without overflow: (..., V) -> (...), nats. An all -inf row gives -inf.

    >>> import numpy as np
    >>> float(logsumexp(np.log(np.array([0.25, 0.5]))))  # log 3/4
    -0.2876820724517809
    """
    shifted, peak = below_peak(log_weights)
    return _log_total(shifted) + peak[..., 0]


def log_softmax(logits: Array) -> Array:
    r"""Log-probabilities of logits: (..., V) -> (..., V), nats.

        log pi_i = z_i - log sum_j e^{z_j}                                       (softmax.log_softmax)

    A logit of -inf is a masked token with probability 0. Lift to float32 or better first.

    Source: definition; derivative in derivations, T1.

    >>> import numpy as np
    >>> np.exp(log_softmax(np.log(np.array([1.0, 2.0, 5.0])))).round(3).tolist()
    [0.125, 0.25, 0.625]
    """
    shifted, _ = below_peak(logits)
    return shifted - _log_total(shifted)[..., None]


def exponential_path(log_pi: Array, direction: Array, t: Array | float) -> Array:
    r"""The policy after its logits moved by `t * direction`.

        pi_i(t) = pi_i e^{t v_i} / sum_j pi_j e^{t v_j}                          (softmax.path)

    Args:
      log_pi: (..., V) log-probabilities before the move, nats.
      direction: (..., V) logit displacement v per unit of t; a constant shift changes nothing.
      t: step length, a number or an array that broadcasts against (..., V).

    Returns:
      (..., V) log-probabilities after the move.

    Source: derivations, T1.

    >>> import numpy as np
    >>> moved = exponential_path(np.log(np.array([0.5, 0.5])), np.array([1.0, 0.0]), np.log(3.0))
    >>> np.exp(moved).round(3).tolist()
    [0.75, 0.25]
    """
    xp = namespace(log_pi)
    moves = xp.where(log_pi == -xp.inf, xp.zeros_like(log_pi), direction)  # an impossible token stays so
    return log_softmax(log_pi + t * moves)


def policy_gradient_direction(log_pi: Array, action: Array) -> Array:
    r"""The direction of the logits' step when token k is reinforced.

        v = e_k - pi,     dz = s v,   s = eta A r                                (softmax.policy_gradient)

    Args:
      log_pi: (..., V) training log-probabilities, nats.
      action: (...) int, the sampled token k; leading shapes broadcast.

    Returns:
      (..., V), sums to zero over V.

    Source: gradient of log softmax; derivations, T1. Step convention: [PDM] section 3.

    >>> import numpy as np
    >>> policy_gradient_direction(np.log(np.array([0.2, 0.3, 0.5])), np.array(1)).round(3).tolist()
    [-0.2, 0.7, -0.5]
    """
    xp = namespace(log_pi)
    cell = action[..., None] + xp.zeros_like(log_pi[..., :1], dtype=action.dtype)
    pi = xp.broadcast_to(xp.exp(log_pi), (*cell.shape[:-1], log_pi.shape[-1]))
    others = fill_at(pi, cell, 0.0)
    # 1 - pi_k as the sum of the others keeps its digits where pi_k is near 1.
    return fill_at(-others, cell, xp.sum(others, axis=-1, keepdims=True))


def entropy(log_pi: Array) -> Array:
    r"""Entropy in nats: (..., V) -> (...).

        H(pi) = - sum_i pi_i log pi_i,   0 log 0 = 0                             (softmax.entropy)

    Source: definition.

    >>> import numpy as np
    >>> float(entropy(np.log(np.array([0.25, 0.25, 0.5]))))
    1.0397207708399179
    """
    xp = namespace(log_pi)
    # The double `where` keeps 0 * inf out of the backward pass, not only out of the value.
    finite = xp.where(log_pi == -xp.inf, xp.zeros_like(log_pi), log_pi)
    return -xp.sum(xp.exp(log_pi) * finite, axis=-1)


def below_peak(values: Array) -> tuple[Array, Array]:
    """Values below their row's largest (..., V), so that rounding is that of the result; and the largest."""
    xp = namespace(values)
    peak = xp.max(values, axis=-1, keepdims=True)
    peak = xp.where(xp.isfinite(peak), peak, xp.zeros_like(peak))
    return values - peak, peak


def _log_total(shifted: Array) -> Array:
    xp = namespace(shifted)
    return log_mass(xp.sum(xp.exp(shifted), axis=-1))
