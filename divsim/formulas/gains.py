r"""What a token's update weighs: the detached gradient weight, the pull, and the surrogate value.

The update of a token is `(weight * A + pull) * grad log pi_k`. The surrogate is the method's own objective
per token (to be maximised), so that values can be compared with other software; its derivative in log pi_k
is `weight * A + pull` wherever the ratio is below its cap.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from . import _checks as checks
from ._array import Array, namespace
from .bands import band
from .divergences import Divergence, difference
from .view import View

RATIO_CAP = math.exp(20)
"""Default cap of the ratio: a guard against overflow, far beyond any trust region. State a smaller one."""


@dataclass(frozen=True)
class Gain:
    """The weight of each token's update.

    Attributes:
      weight: (...) multiplies A grad log pi_k.
      surrogate: (...) the method's objective per token.
      pull: (...) or None, an advantage-free term that multiplies grad log pi_k.
    """

    weight: Array
    surrogate: Array
    pull: Array | None = None


GainOf = Callable[[View, Array, Array, Array], Gain]
"""(view, advantage (...), keep (...) bool, far (...) bool) -> Gain."""


def capped_ratio(cap: float) -> Callable[[View], Array]:
    """View -> min(r, cap), capped in log space so that nothing overflows: (...)."""
    checks.require_positive("ratio_cap", cap, "a ratio")
    log_cap = math.log(cap)

    def ratio(view: View) -> Array:
        xp = namespace(view.log_pi)
        return xp.exp(xp.clip(view.log_pi_k - view.log_mu_k, max=log_cap))

    return ratio


def score_gain(view: View, advantage: Array, keep: Array, far: Array) -> Gain:
    """REINFORCE: weight 1, surrogate A log pi_k."""
    xp = namespace(view.log_pi)
    return Gain(xp.ones_like(view.log_pi_k), _score(view, advantage))


def _score(view: View, factor: Array) -> Array:
    """factor log pi_k, and 0 where the factor is 0 even if pi_k is too."""
    xp = namespace(factor)
    is_zero = factor == 0
    return xp.where(is_zero, factor, factor * xp.where(is_zero, factor, view.log_pi_k))


def masked_ratio_gain(cap: float) -> GainOf:
    """Importance sampling where kept: weight r keep, surrogate r A keep."""
    ratio_of = capped_ratio(cap)

    def gain(view: View, advantage: Array, keep: Array, far: Array) -> Gain:
        weight = namespace(advantage).where(keep, ratio_of(view), 0.0)
        return Gain(weight, weight * advantage)

    return gain


def clipped_gain(eps_low: float, eps_high: float, upper: float | None, cap: float) -> GainOf:
    """PPO: surrogate min(r A, clip(r) A), with dual clip max(., upper A) where A < 0."""
    ratio_of = capped_ratio(cap)

    def gain(view: View, advantage: Array, keep: Array, far: Array) -> Gain:
        xp = namespace(advantage)
        ratio = ratio_of(view)
        clipped = xp.clip(ratio, min=1 - eps_low, max=1 + eps_high)
        surrogate = xp.minimum(ratio * advantage, clipped * advantage)
        if upper is not None:
            surrogate = xp.where(advantage < 0, xp.maximum(surrogate, upper * advantage), surrogate)
        return Gain(xp.where(keep, ratio, 0.0), surrogate)

    return gain


def band_gain(divergence: Divergence, delta: float, cap: float) -> GainOf:
    """BandPO: PPO's surrogate with the ratio band that the binary divergence allows at each token."""
    ratio_of = capped_ratio(cap)

    def gain(view: View, advantage: Array, keep: Array, far: Array) -> Gain:
        xp = namespace(advantage)
        ratio = ratio_of(view)
        low, high = band(divergence, view.log_mu_k, delta)
        clipped = xp.minimum(xp.maximum(ratio, low), high)
        surrogate = xp.minimum(ratio * advantage, clipped * advantage)
        return Gain(xp.where(keep, ratio, 0.0), surrogate)

    return gain


def anchored_gain(tau: float, cap: float) -> GainOf:
    """Masked ratio, and a squared log-ratio anchor -tau (log r)^2 on every token, dropped ones too."""
    masked = masked_ratio_gain(cap)

    def gain(view: View, advantage: Array, keep: Array, far: Array) -> Gain:
        base = masked(view, advantage, keep, far)
        log_r = view.log_pi_k - view.log_mu_k
        return Gain(base.weight, base.surrogate - tau * log_r**2, pull=-2 * tau * log_r)

    return gain


def clipped_weight_gain(eps_low: float, eps_high: float) -> GainOf:
    """CISPO: weight clip(r), never zero by masking; surrogate sg(weight) A log pi_k."""
    ratio_of = capped_ratio(1 + eps_high)

    def gain(view: View, advantage: Array, keep: Array, far: Array) -> Gain:
        xp = namespace(advantage)
        weight = xp.clip(ratio_of(view), min=1 - eps_low)
        return Gain(weight, _score(view, weight * advantage))

    return gain


def ratio_penalty_gain(eps: float, cap: float) -> GainOf:
    """SPO: r A - |A| (r - 1)^2 / (2 eps), weight r (1 - sgn(A) (r - 1) / eps)."""
    ratio_of = capped_ratio(cap)

    def gain(view: View, advantage: Array, keep: Array, far: Array) -> Gain:
        xp = namespace(advantage)
        ratio = ratio_of(view)
        weight = ratio * (1 - xp.sign(advantage) * (ratio - 1) / eps)
        return Gain(weight, ratio * advantage - xp.abs(advantage) * (ratio - 1) ** 2 / (2 * eps))

    return gain


def gap_penalty_gain(delta: float, cap: float, only_far: bool) -> GainOf:
    """DRPO: r A - |A| mu_k (r - 1)^2 / (2 delta), weight r (1 - sgn(A) (pi_k - mu_k) / delta).

    With `only_far` the penalty acts on far tokens alone (Mask-DRPO).
    """
    ratio_of = capped_ratio(cap)

    def gain(view: View, advantage: Array, keep: Array, far: Array) -> Gain:
        xp = namespace(advantage)
        ratio = ratio_of(view)
        penalty, slope = _gap_penalty(view, ratio, delta)
        active = xp.astype(far, ratio.dtype) if only_far else xp.ones_like(ratio)
        weight = ratio * (1 - active * xp.sign(advantage) * slope)
        return Gain(weight, ratio * advantage - active * xp.abs(advantage) * penalty)

    return gain


def gap_pull_gain(delta: float, cap: float) -> GainOf:
    """DRPO without |A|: r A - mu_k (r - 1)^2 / (2 delta), weight r, pull -r (pi_k - mu_k) / delta."""
    ratio_of = capped_ratio(cap)

    def gain(view: View, advantage: Array, keep: Array, far: Array) -> Gain:
        ratio = ratio_of(view)
        penalty, slope = _gap_penalty(view, ratio, delta)
        return Gain(ratio, ratio * advantage - penalty, pull=-ratio * slope)

    return gain


def _gap_penalty(view: View, ratio: Array, delta: float) -> tuple[Array, Array]:
    """mu_k (r - 1)^2 / (2 delta), and its derivative in log pi_k, in units of r: (pi_k - mu_k) / delta."""
    mu_k = namespace(ratio).exp(view.log_mu_k)
    return mu_k * (ratio - 1) ** 2 / (2 * delta), difference(view.log_mu_k, view.log_pi_k) / delta
