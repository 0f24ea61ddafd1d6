r"""The measured order of a prediction: how fast its remainder vanishes on a geometric ladder of steps.

If a prediction is right to order m, the remainder `realised - predicted` shrinks as the power m + 1 of the
step; if it is wrong, it shrinks more slowly. The slope in a log-log plot is therefore the test, and needs no
tolerance on the prediction itself.

Rounding hides the remainder at the bottom of the ladder. That of the realised change is measured, on steps
so tiny that the true remainder is far below it; that of the prediction is one rounding of its terms. Only
rungs that clear both `CLEARANCE`-fold are used. Higher orders bend the line at the top, so of those rungs the
lowest `WINDOW` are used.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .check import Check, check
from .policies import Bools, Floats

TOP_SPREAD = 0.3  # nats of logits at the top: each order of the expansion is below a third of the one before
RATIO = 3.0  # between neighbouring rungs
RATIO_THIRD = 2.5  # for a remainder of order 3, which meets rounding sooner
RUNGS = 18  # to 3^-17, or 2.5^-17, of the top: a remainder of order 2, or 3, is then 1e-16 of its top
FLOOR_FRACTIONS = 2.0 ** -np.arange(36.0, 42.0)  # a remainder of order 2 is below 2^-72 of its top
CLEARANCE = 100.0  # rounding then moves a remainder by at most 1 %
WINDOW = 4  # rungs in the regression: the lowest that clear the floor, where higher orders matter least
LEAST_RUNGS = 8  # that must clear the floor, so that a window starts at a fortieth of the top at most

ORDER_TOLERANCE = 0.05
ORDER_REASON = (
    "absolute, in units of order: rounding moves a rung by at most 1 %, the next order of the expansion "
    "bends the window by a few; a wrong prediction is off by a whole order"
)

Remainder = Callable[[float], Floats]
"""Fraction of the top step -> (n,) remainders `realised - predicted` at that step, one per case."""


@dataclass(frozen=True)
class Ladder:
    """The remainders of a prediction at a geometric sequence of step sizes.

    Attributes:
      fractions: (N,) step sizes as fractions of the top step, descending.
      remainder: (N, n) realised minus predicted, one column per case.
      floor: (N, n) size of the rounding in `remainder`.
    """

    fractions: Floats
    remainder: Floats
    floor: Floats

    @property
    def is_measurable(self) -> Bools:
        """(n,) bool: enough rungs clear the floor for a window that is also far from the top."""
        is_clear = np.abs(self.remainder) > CLEARANCE * self.floor
        return np.asarray(np.all(is_clear[:LEAST_RUNGS], axis=0))


def climb(remainder: Remainder, scale: Floats, terms: Floats, ratio: float = RATIO) -> Ladder:
    """Remainders on the ladder, and the floor of their rounding.

    Args:
      remainder: fraction of the top step -> (n,) remainders.
      scale: (n,) size of the numbers whose difference is the realised change.
      terms: (n,) size of the terms that the prediction sums, at the top step.
      ratio: between neighbouring rungs, > 1.

    Returns:
      A `Ladder`.

    Source: derived here.

    >>> ladder = climb(lambda s: np.array([np.expm1(s) - s]), np.array([1.0]), np.array([1.0]))
    >>> ladder.is_measurable.tolist(), round(convergence_slope([ladder]), 2)
    ([True], 2.0)
    """
    eps = np.finfo(np.float64).eps
    fractions = ratio ** -np.arange(float(RUNGS))
    tiny = np.stack([np.abs(remainder(float(f))) for f in FLOOR_FRACTIONS])
    floor = np.maximum(np.max(tiny, axis=0), eps * scale) + eps * np.multiply.outer(fractions, terms)
    return Ladder(fractions, np.stack([remainder(float(f)) for f in fractions]), floor)


def convergence_slope(ladders: Sequence[Ladder]) -> float:
    """The measured order of the remainder of all measurable cases together.

    Each case is divided by its own largest remainder and the root mean square over cases is regressed, in
    logs, on the step. A single case whose prediction is wrong shrinks more slowly than the rest and takes the
    sum over; a case whose leading coefficient happens to vanish drops out instead of spoiling the slope.

    Args:
      ladders: of the same prediction, any number of cases each.

    Returns:
      The slope; NaN if no case is measurable.

    Source: derived here.

    >>> def wrong(s):  # 100 cases of order 2 and one whose rate is off by a millionth
    ...     return np.append(np.full(100, s * s), s * s + 1e-6 * s)
    >>> convergence_slope([climb(wrong, np.full(101, 1e-3), np.ones(101))]) < 1.9
    True
    """
    columns = [(x.remainder[:, x.is_measurable], x.floor[:, x.is_measurable]) for x in ladders]
    size = np.abs(np.concatenate([remainder for remainder, _ in columns], axis=1))
    if size.shape[1] == 0:
        return float("nan")
    largest = np.max(size, axis=0)
    pooled = _root_mean_square(size / largest)
    floor = _root_mean_square(np.concatenate([floor for _, floor in columns], axis=1) / largest)
    usable = int(np.sum(np.logical_and.accumulate(pooled > CLEARANCE * floor)))
    window = slice(usable - WINDOW, usable)
    return float(np.polyfit(np.log(ladders[0].fractions[window]), np.log(pooled[window]), 1)[0])


def _root_mean_square(columns: Floats) -> Floats:
    return np.asarray(np.sqrt(np.mean(columns**2, axis=1)))


def order(ladders: Sequence[Ladder], name: str, sizes: Iterable[int], claimed: float) -> Check:
    """A `Check` that a remainder shrinks with the claimed power of the step.

    Args:
      ladders: of the same prediction; their measurable cases are the cases of the check.
      name, sizes: see `Check`.
      claimed: the order, 2 for the remainder of a first-order prediction.

    Returns:
      A `Check` with the measured slope; violated if nothing is measurable.

    >>> ladder = climb(lambda s: np.array([np.expm1(s) - s]), np.array([1.0]), np.array([1.0]))
    >>> order([ladder], "e^s = 1 + s", sizes=[1], claimed=2.0).ok
    True
    """
    slope = convergence_slope(ladders)
    tried = check([abs(slope - claimed)], name, sizes, ORDER_TOLERANCE, ORDER_REASON)
    cases = sum(int(np.sum(ladder.is_measurable)) for ladder in ladders)
    return replace(tried, cases=cases, slope=slope)
