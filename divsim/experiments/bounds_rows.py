"""What is reported of a bound: how often it says nothing, whether it is ever violated, how loose it is.

Errors and bounds come in units of the range of what they bound, so a bound above 1 says nothing: it is
vacuous.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from divsim.tabular.policies import Floats

from .rows import Key, Row, row, select
from .statistics import Estimate, mean, share

ROUNDING = 1e-12
"""Of the range: a return comes from sums of at most 1024 sequences, from 256 steps, or from a solve of
condition 200, each good to 1e-13 of it. An error may exceed its bound by so much; a smaller one has no
tightness."""

LEVELS = (0.5, 0.05)
"""Quantiles of the tightness."""


def bound_rows(error: Floats, bound: Floats, key: Key) -> list[Row]:
    """The rows of one bound, vacuity first.

    Args:
      error: (seeds, cases) absolute, in units of the range.
      bound: (seeds, cases) in the same units.
      key: key fields.

    Returns:
      Rows of the quantities `vacuous_share`, `violation_share`, `tightness_q50`, `tightness_q5` and
      `tightness_min`. Tightness is bound / error, 1 where the bound is attained; a quantile is the mean of
      those of the seeds, the minimum that of all cases.

    >>> found = bound_rows(np.array([[0.1, 0.2], [0.1, 0.2]]), np.array([[0.2, 0.1], [2.0, 0.4]]), {})
    >>> [(one["quantity"], one["value"]) for one in found[:3]]
    [('vacuous_share', 0.25), ('violation_share', 0.25), ('tightness_q50', 6.125)]
    """
    cases = np.full(len(error), error.shape[-1])
    whole = int(cases.sum())
    violated = error > bound + ROUNDING
    ratios = [b[e > ROUNDING] / e[e > ROUNDING] for e, b in zip(error, bound, strict=True)]
    found = [
        row(share(np.sum(bound > 1, axis=-1), cases), whole, quantity="vacuous_share", **key),
        row(share(np.sum(violated, axis=-1), cases), whole, quantity="violation_share", **key),
    ]
    judged = sum(map(len, ratios))
    for level in LEVELS:
        estimate = mean([_quantile(one, level) for one in ratios])
        found.append(row(estimate, judged, quantity=f"tightness_q{100 * level:g}", **key))
    smallest = float(min((one.min() for one in ratios if len(one)), default=np.nan))
    found.append(row(Estimate(smallest, np.nan, np.nan, len(error)), judged, quantity="tightness_min", **key))
    return found


def identity_row(errors: Floats, cases: int, key: Key) -> Row:
    """The largest error of an identity, over everything; errors: (seeds, ...)."""
    largest = Estimate(float(errors.max()), np.nan, np.nan, len(errors))
    return row(largest, cases, quantity="largest_error", **key)


LARGEST_ERROR = 1e-12
"""Of an identity, in units of the range: as `ROUNDING`."""


def violations(rows: Sequence[Row]) -> tuple[int, int]:
    """How often a bound was violated or an identity failed, and the comparisons of a bound with the truth.

    Each comparison is counted once: in the rows of all settings, and not for the smallest of the bounds.
    """
    shares = [
        one
        for one in select(rows, quantity="violation_share")
        if one["bound"] != "smallest" and all(one.get(field, "all") == "all" for field in POOLED)
    ]
    failed = sum(not one["value"] <= LARGEST_ERROR for one in select(rows, quantity="largest_error"))
    broken = sum(round(one["value"] * one["tokens"]) for one in shares)
    return broken + failed, sum(one["tokens"] for one in shares)


POOLED = ("gamma", "tree", "noise")
"""Settings over which rows also say all."""


def pooled(array: NDArray[np.float64]) -> Floats:
    """All cases of a seed in one line: (seeds, ...) -> (seeds, cases)."""
    return array.reshape(len(array), -1)


def _quantile(values: Floats, level: float) -> float:
    return float(np.quantile(values, level)) if len(values) else float("nan")
