"""Rows from two by two tables: accuracy with its base rate, the risk difference, and unsafe-keep beside
them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rows import Row, row
from .statistics import mean, share, share_difference, sign_flip_p

Counts = NDArray[np.int64]
"""(seeds, ..., 2, 2), the last two `[predicted to rise, rose]` as 0 or 1."""
PAIRED = ("/full", "_rate")
"""Endings of the tests that are compared with the ratio test seed by seed."""


def risk_difference_by_seed(counts: Counts) -> NDArray[np.float64]:
    """(seeds,) P(rises | predicted up) - P(rises | predicted down); NaN where one was never predicted.

    >>> risk_difference_by_seed(np.array([[[3, 1], [1, 3]], [[4, 0], [0, 0]]])).tolist()
    [0.5, nan]
    """
    totals = counts.sum(axis=-1)
    shares = counts[..., 1] / np.where(totals == 0, np.nan, totals)
    return np.asarray(shares[:, 1] - shares[:, 0])


def accuracy_rows(counts: Counts, tests: Sequence[str], only: Sequence[str] = (), **key: Any) -> list[Row]:
    """Accuracies with their base rate; nothing where there are no tokens.

    Args:
      counts: (seeds, tests, 2, 2).
      tests: their names.
      only: report these tests; all by default.
      key: the other key fields.
    """
    every, risen = counts[:, 0].sum(axis=(-2, -1)), counts[:, 0, :, 1].sum(axis=-1)
    tokens = int(every.sum())
    if tokens == 0:
        return []
    found = [row(share(risen, every), tokens, quantity="base_rate", **key)]
    for test, table in zip(tests, np.moveaxis(counts, 1, 0), strict=True):
        if not only or test in only:
            right = share(table[:, 0, 0] + table[:, 1, 1], every)
            found.append(row(right, tokens, test=test, quantity="accuracy", **key))
    return found


def conditional_rows(counts: Counts, tests: Sequence[str], **key: Any) -> list[Row]:
    """What needs predictions of both kinds: unsafe_keep = P(rises | kept), the risk difference, and for exact
    changes and rates its paired difference to the ratio test's.

    Args:
      counts: (seeds, tests, 2, 2).
      tests: their names, "ratio" among them.
      key: the other key fields.
    """
    found = []
    ratio = risk_difference_by_seed(counts[:, tests.index("ratio")])
    for test, table in zip(tests, np.moveaxis(counts, 1, 0), strict=True):
        down, up = (int(n) for n in table.sum(axis=(0, -1)))
        if down == 0 or up == 0:
            continue
        kept, dropped = table[:, 0], table[:, 1]
        unsafe = share(kept[:, 1], kept.sum(axis=-1))
        pooled = share_difference((dropped[:, 1], kept[:, 1]), (dropped.sum(axis=-1), kept.sum(axis=-1)))
        found.append(row(unsafe, down, test=test, quantity="unsafe_keep", **key))
        found.append(row(pooled, down + up, test=test, quantity="risk_difference", **key))
        paired = risk_difference_by_seed(table) - ratio
        if test.endswith(PAIRED) and np.sum(~np.isnan(paired)) > 1:
            found.append(row(mean(paired), down + up, sign_flip_p(paired), test=test,
                             quantity="risk_difference_minus_ratio", **key))  # fmt: skip
    return found
