r"""KL estimators from sampled tokens alone: k1, k2, k3 of log q - log p at tokens drawn from p.

For trust regions p is the behaviour policy; for a reference penalty p is the policy itself. The exponential
is capped in log space, so that a drifted token gives a large finite number instead of an overflow.
"""

from collections.abc import Callable

from ._array import Array, namespace

LOG_RATIO_CAP = 20.0
"""Default cap of a log ratio before the exponential, nats: k3 grows to e^20 and no further."""


def k1(log_q_over_p: Array, cap: float = LOG_RATIO_CAP) -> Array:
    """-x: unbiased for KL(p || q), any sign. (...) nats -> (...) nats. Source: [k3].

    >>> import numpy as np
    >>> float(k1(np.array(1.0)))
    -1.0
    """
    return -log_q_over_p


def k2(log_q_over_p: Array, cap: float = LOG_RATIO_CAP) -> Array:
    """x^2 / 2: biased, symmetric, never negative. Source: [k3].

    >>> import numpy as np
    >>> float(k2(np.array(1.0)))
    0.5
    """
    return log_q_over_p**2 / 2


def k3(log_q_over_p: Array, cap: float = LOG_RATIO_CAP) -> Array:
    """e^x - 1 - x: unbiased for KL(p || q) up to the cap, never negative. Source: [k3].

    >>> import numpy as np
    >>> round(float(k3(np.array(1.0))), 6)
    0.718282
    """
    xp = namespace(log_q_over_p)
    capped = xp.clip(log_q_over_p, max=cap)
    return xp.clip(xp.expm1(capped) - capped, min=0.0)


def k3_pull(log_ref_over_pi: Array, cap: float = LOG_RATIO_CAP) -> Array:
    """Minus the derivative of k3 in log pi_k, at x = log ref - log pi: e^x - 1, finite at any drift.

    Its mean under pi is the gradient of KL(ref || pi), not that of KL(pi || ref), which k3 estimates.

    >>> import numpy as np
    >>> round(float(k3_pull(np.array(200.0))) / 1e8, 3)
    4.852
    """
    xp = namespace(log_ref_over_pi)
    return xp.expm1(xp.clip(log_ref_over_pi, max=cap))


SAMPLED_KL: dict[str, Callable[..., Array]] = {"k1": k1, "k2": k2, "k3": k3}
"""Estimators of KL(p || q) at samples of p, by name."""
