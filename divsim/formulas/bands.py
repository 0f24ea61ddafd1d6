r"""The ratio band of a binary divergence: which ratios of the sampled token stay within a radius.

With mu_k = p fixed, every f-divergence is smallest when the other tokens are rescaled in proportion, and that
smallest value is the binary divergence. So `binary D <= delta` is an interval of ratios around 1.
"""

import math
from collections.abc import Callable

from ._array import Array, namespace
from ._checks import require_positive
from .divergences import Divergence
from .softmax import log_mass

BISECTIONS = 64
"""Halvings of the band's bracket: 2^-64 of its width is below float64 rounding."""


def band(divergence: Divergence, log_mu_k: Array, delta: float) -> tuple[Array, Array]:
    r"""The band [low, high] of ratios r with binary D((p, 1-p), (rp, 1-rp)) <= delta.

    TV: 1 -+ delta / p; chi2(pi || mu): 1 -+ sqrt(delta (1 - p) / p); KL has no closed form. All are clipped
    to the reachable [0, 1/p], and to the range of the dtype.

    Args:
      divergence: any record whose binary value grows away from r = 1.
      log_mu_k: (...) behaviour log-probability of the sampled token, nats.
      delta: radius > 0, in the divergence's unit.

    Returns: (low, high), each (...).
    Source: [BandPO] section 3 (the reduction); found by bisection here.

    >>> import numpy as np
    >>> from divsim.formulas import FORWARD_KL, TV
    >>> [round(float(end), 3) for end in band(TV, np.log(np.array(0.5)), 0.05)]
    [0.9, 1.1]
    >>> [round(float(end), 3) for end in band(FORWARD_KL, np.log(np.array(0.1)), 0.05)]
    [0.313, 2.201]
    """
    require_positive("delta", delta, f"unit of {divergence.name}")
    xp = namespace(log_mu_k)
    behaviour = _binary(log_mu_k)

    def inside(log_ratio: Array) -> Array:
        return divergence.measure(behaviour, _binary(xp.clip(log_mu_k + log_ratio, max=0.0))) <= delta

    zero = xp.zeros_like(log_mu_k)
    low = _edge(lambda ratio: inside(log_mass(ratio)), zero + 1, zero)
    log_high = _edge(inside, zero, -log_mu_k)
    largest = math.floor(math.log(float(xp.finfo(log_mu_k.dtype).max)))
    return low, xp.exp(xp.clip(log_high, max=largest))


def _binary(log_probability: Array) -> Array:
    """The sampled token and the rest: (...) -> (..., 2), nats."""
    xp = namespace(log_probability)
    return xp.stack([log_probability, log_mass(-xp.expm1(log_probability))], axis=-1)


def _edge(inside: Callable[[Array], Array], near: Array, far: Array) -> Array:
    """The last point inside on the way from `near`, which is inside, to `far`."""
    xp = namespace(near)
    reached = inside(far)
    within, beyond = near, far
    for _ in range(BISECTIONS):
        middle = (within + beyond) / 2
        is_inside = inside(middle)
        within, beyond = xp.where(is_inside, middle, within), xp.where(is_inside, beyond, middle)
    return xp.where(reached, far, within)
