"""The rows of a result: one measured number each, with what identifies it and its interval.

A row is flat, so that JSON holds it and a reader can search it: key fields (strings or integers), then
`value`, `low` and `high` (the 95 % interval), `tokens`, `seeds` (independent clusters) and `p`. No two
rows have the same key fields.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .statistics import Estimate, mean

Row = dict[str, Any]
Key = dict[str, Any]
"""Key fields, strings or integers."""
MEASURED = ("value", "low", "high", "tokens", "seeds", "p")
"""The fields that are not part of a row's key."""


def row(estimate: Estimate, tokens: int, p: float | None = None, **key: Any) -> Row:
    """A row from an estimate. What is not a number is stored as None.

    >>> row(Estimate(0.5, 0.25, math.nan, 4), tokens=8, test="ratio")["high"] is None
    True
    """
    return {
        **key,
        "value": _number(estimate.value),
        "low": _number(estimate.low),
        "high": _number(estimate.high),
        "tokens": int(tokens),
        "seeds": estimate.clusters,
        "p": _number(p),
    }


def mean_row(values: NDArray[np.float64], **key: Any) -> Iterable[Row]:
    """The mean over seeds; none where there is nothing to count, or a KL is infinite."""
    if not np.all(np.isnan(values)) and not np.any(np.isinf(values)):
        yield row(mean(values), len(values), **key)


def find(rows: Iterable[Row], **key: Any) -> Row:
    """The one row whose key fields have these values.

    Errors: LookupError if there is none, or more than one.

    >>> find([{"test": "ratio", "value": 1.0}, {"test": "always", "value": 2.0}], test="ratio")["value"]
    1.0
    """
    found = select(rows, **key)
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows match {key}; one must")
    return found[0]


def select(rows: Iterable[Row], **key: Any) -> list[Row]:
    """All rows whose key fields have these values, in order.

    >>> [row["k"] for row in select([{"k": 1, "tail": "zero"}, {"k": 5, "tail": "zero"}], tail="zero")]
    [1, 5]
    """
    return [row for row in rows if all(row.get(name) == value for name, value in key.items())]


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
