r"""The two questions a mask asks of a token: is it far, and does its update lead further out?

A clause pairs one answer of each kind; a rule drops a token where both say yes. Distances keep their sides
apart where the radii differ. `>` drops, equality keeps; A = 0 is never outward.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ._array import Array, namespace
from .change import change
from .divergences import FORWARD_KL, Divergence, difference
from .tail import change_interval
from .view import View

DEMANDS_FULL = "resolution 'full' needs every token in sight, but this view hides some; use View.full"


@dataclass(frozen=True)
class Proximity:
    """How far pi is from mu at each token.

    Attributes:
      distance: (...) the rule's own distance, in its own unit.
      far: (...) bool, distance > radius.
    """

    distance: Array
    far: Array


@dataclass(frozen=True)
class Direction:
    """Whether a token's update increases the distance.

    Attributes:
      outward: (...) bool.
      change: (...) or None, the first-order change c_k that was asked.
      certified: (...) bool or None, whether the sign of c_k was proven.
    """

    outward: Array
    change: Array | None = None
    certified: Array | None = None


@dataclass(frozen=True)
class Clause:
    """far AND outward.

    Attributes:
      far: View -> Proximity.
      outward: (View, advantage (...)) -> Direction.
    """

    far: Callable[[View], Proximity]
    outward: Callable[[View, Array], Direction]


def ratio_beyond(eps_low: float, eps_high: float) -> Callable[[View], Proximity]:
    """Far: the ratio leaves [1 - eps_low, 1 + eps_high]; the distance is |r - 1|."""

    def far(view: View) -> Proximity:
        ratio = view.ratio
        return Proximity(namespace(ratio).abs(ratio - 1), (ratio > 1 + eps_high) | (ratio < 1 - eps_low))

    return far


def binary_gap_beyond(delta: float) -> Callable[[View], Proximity]:
    """Far: |pi_k - mu_k| > delta, the binary total variation without its rest cell."""

    def far(view: View) -> Proximity:
        gap = namespace(view.log_pi).abs(difference(view.log_mu_k, view.log_pi_k))
        return Proximity(gap, gap > delta)

    return far


def divergence_beyond(divergence: Divergence, delta: float, resolution: str) -> Callable[[View], Proximity]:
    """Far: the divergence at a resolution ("binary", "top_k" as the view has it, "full") exceeds delta."""

    def far(view: View) -> Proximity:
        if resolution == "full" and not view.is_full:
            raise ValueError(DEMANDS_FULL)
        seen = view.binary() if resolution == "binary" else view
        distance = divergence.measure(*seen.cells)
        return Proximity(distance, distance > delta)

    return far


def ratio_outward(view: View, advantage: Array) -> Direction:
    """Outward by the sampled token's ratio: A (r - 1) > 0."""
    return Direction(_same_sign(advantage, view.log_pi_k - view.log_mu_k))


def always_outward(view: View, advantage: Array) -> Direction:
    """Every update counts as outward: two-sided masks."""
    return Direction(advantage != 0)


def lowering_outward(view: View, advantage: Array) -> Direction:
    """Every update with A < 0 counts as outward: the upper bound of dual clip."""
    return Direction(advantage < 0)


def predicted_outward(divergence: Divergence, tail: str) -> Callable[[View, Array], Direction]:
    """Outward by the first-order change of the divergence itself: A c_k > 0."""

    def outward(view: View, advantage: Array) -> Direction:
        c = change(view, divergence, tail)
        return Direction(_same_sign(advantage, c), change=c)

    return outward


def _same_sign(x: Array, y: Array) -> Array:
    """x y > 0 without the product, which may underflow, or be 0 * inf."""
    return ((x > 0) & (y > 0)) | ((x < 0) & (y < 0))


def _kept(view: View, advantage: Array) -> Direction:
    return Direction(namespace(advantage).zeros_like(advantage) != 0)


FALLBACKS: dict[str, Callable[[View, Array], Direction]] = {
    "keep": _kept,
    "ratio": ratio_outward,
    "uniform": predicted_outward(FORWARD_KL, "uniform"),
}
"""What `certified` does with a token whose sign is not proven."""


def certified_outward(otherwise: str) -> Callable[[View, Array], Direction]:
    """Outward only where the interval of the forward-KL change proves A c_k > 0; a named choice elsewhere."""

    def outward(view: View, advantage: Array) -> Direction:
        xp = namespace(advantage)
        low, high = change_interval(view)
        certified = (low > 0) | (high < 0)
        proven = ((advantage > 0) & (low > 0)) | ((advantage < 0) & (high < 0))
        fallback = FALLBACKS[otherwise](view, advantage).outward
        return Direction(xp.where(certified, proven, fallback), (low + high) / 2, certified)

    return outward
