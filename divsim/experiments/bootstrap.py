"""Intervals of shares, ratios, risk differences and quantiles, by drawing whole clusters of tokens anew.

Tokens of one completion depend on one another, so the prompts are drawn with replacement, each with all its
tokens. Left out: means over clusters and tests (`statistics.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import statistics
from .statistics import LEVEL, Estimate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RESAMPLES = 10_000
"""An end of a 95 % interval then has 250 of them beyond it, a number that is known to 6 %."""


@dataclass(frozen=True)
class Clusters:
    """N tokens in P clusters, and B resamples of the clusters.

    Attributes:
      label: (N,) int, each token's cluster, 0 to P - 1.
      counts: (B, P) int, how often each resample drew each cluster; rows sum to P.
    """

    label: Ints
    counts: Ints

    def total(self, values: ArrayLike) -> Ints | Floats:
        """The sum within each cluster: (N,) -> (P,)."""
        return np.bincount(self.label, np.asarray(values, dtype=np.float64), self.counts.shape[-1])


def draw_clusters(names: ArrayLike, seed: int = 0) -> Clusters:
    """Clusters of tokens by the names of their prompts, and the same resamples whenever there are as many.

    >>> draw_clusters([7, 7, 9]).label.tolist()
    [0, 0, 1]
    """
    _, label = np.unique(np.asarray(names), return_inverse=True)
    size = int(label.max()) + 1
    rng = np.random.default_rng(seed)
    return Clusters(label, rng.multinomial(size, np.full(size, 1 / size), RESAMPLES))


def share(clusters: Clusters, event: Bools, region: Bools) -> Estimate:
    """The share of the region's tokens with the event: (N,) bool each.

    Where all tokens say the same no resample differs; then the interval is that of as many independent tokens
    as there are clusters, since tokens of a cluster may repeat one another.

    >>> clusters = draw_clusters([0, 0, 1])
    >>> share(clusters, np.array([True, False, True]), np.array([True, True, False])).value
    0.5
    """
    count, total = clusters.total(event & region), clusters.total(region)
    if count.sum() in (0, total.sum()):
        return statistics.share(count > 0, total > 0)
    return ratio(clusters, event, np.ones_like(event), region)


def ratio(clusters: Clusters, above: ArrayLike, below: ArrayLike, region: Bools) -> Estimate:
    """The sum of one quantity over the region, over the sum of another: (N,) each. A mean is a ratio to ones.

    >>> ratio(draw_clusters([0, 1]), [1.0, 2.0], [2.0, 2.0], np.array([True, True])).value
    0.75
    """
    top = clusters.total(np.where(region, above, 0.0))
    bottom = clusters.total(np.where(region, below, 0.0))
    if bottom.sum() == 0:
        return _nothing()
    drawn = clusters.counts @ bottom
    resampled = (clusters.counts @ top) / np.where(drawn == 0, np.nan, drawn)
    return _estimate(float(top.sum() / bottom.sum()), resampled, clusters, region)


def risk_difference(
    clusters: Clusters, said: Bools, event: Bools, region: Bools, instead_of: Bools | None = None
) -> Estimate:
    """P(event | said) - P(event | not said) over the region, NaN if either never was: (N,) bool each.

    Args:
      said: the prediction.
      instead_of: another prediction, whose risk difference is taken off, on the same resamples.

    >>> said, event = np.array([True, True, False]), np.array([True, False, False])
    >>> risk_difference(draw_clusters([0, 1, 2]), said, event, np.ones(3, dtype=bool)).value
    0.5
    """
    value, resampled = _contrast(clusters, said, event, region)
    if instead_of is not None:
        other, other_resampled = _contrast(clusters, instead_of, event, region)
        value, resampled = value - other, resampled - other_resampled
    return _estimate(value, resampled, clusters, region)


def _contrast(clusters: Clusters, said: Bools, event: Bools, region: Bools) -> tuple[float, Floats]:
    """The risk difference of all clusters and of each resample, NaN where it is not defined."""
    rates = []
    for group in (region & said, region & ~said):
        count, total = clusters.total(group & event), clusters.total(group)
        sums = [np.r_[x.sum(), clusters.counts @ x] for x in (count, total)]
        rates.append(sums[0] / np.where(sums[1] == 0, np.nan, sums[1]))
    both = rates[0] - rates[1]
    return float(both[0]), both[1:]


def quantiles(clusters: Clusters, values: Floats, levels: Sequence[float], region: Bools) -> list[Estimate]:
    """Quantiles of the region's values: the least value that a share `level` of the tokens does not exceed.

    >>> [e.value for e in quantiles(draw_clusters([0, 0, 1]), np.arange(3.0), [0.5], np.ones(3, dtype=bool))]
    [1.0]
    """
    if not region.any():
        return [_nothing() for _ in levels]
    order = np.flatnonzero(region)[np.argsort(values[region], kind="stable")]
    ordered = values[order]
    weight = clusters.counts.astype(np.int32)[:, clusters.label[order]]
    below = np.cumsum(weight, axis=-1, dtype=np.int32)
    drawn = below[:, -1]
    found = []
    for level in levels:
        place = np.sum(below < (level * drawn)[:, None], axis=-1)[drawn > 0]
        value = ordered[math.ceil(level * len(order)) - 1]
        found.append(_estimate(float(value), ordered[place], clusters, region))
    return found


def _estimate(value: float, resampled: Floats, clusters: Clusters, region: Bools) -> Estimate:
    count = len(np.unique(clusters.label[region]))
    defined = resampled[~np.isnan(resampled)]
    if count < 2 or math.isnan(value) or len(defined) == 0:
        return Estimate(value, math.nan, math.nan, count)
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high), count)


def _nothing() -> Estimate:
    return Estimate(math.nan, math.nan, math.nan, 0)
