"""Intervals and tests over independent clusters: seeds, or the prompts of a recorded run.

Tokens of one cluster may depend on one another, so every interval is made from the clusters. Sums are exact
(`math.fsum`), hence independent of the order in which results come. What is left out: any test beyond the
mean, and corrections for many comparisons, which a reader of a table must have in mind.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
EXHAUSTIVE = 20
"""Up to so many clusters all sign flips are tried; beyond, `RANDOM_FLIPS` seeded random ones."""
RANDOM_FLIPS = 100_000
ROUNDING = 1e-12
"""Relative: a flip that is as far as what was observed must not miss it by rounding."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval.

    Attributes:
      value: the estimate; NaN if there was nothing to estimate from.
      low, high: the 95 % interval; NaN where two clusters are not there to make one.
      clusters: independent clusters that it rests on; one without observations is none.
    """

    value: float
    low: float
    high: float
    clusters: int


def log_or_nan(values: Floats) -> Floats:
    """The logarithm, NaN where a value is not above 0.

    >>> log_or_nan(np.array([1.0, 0.0]))
    array([ 0., nan])
    """
    return np.log(values, where=values > 0, out=np.full_like(values, np.nan))


def mean(per_cluster: ArrayLike) -> Estimate:
    """The mean over clusters with Student's interval: (n,) -> Estimate. NaN entries are left out.

    >>> estimate = mean([1.0, 2.0, 3.0])
    >>> estimate.value, round(estimate.low, 2), round(estimate.high, 2)
    (2.0, -0.48, 4.48)
    """
    values = _defined(per_cluster)
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    centre = math.fsum(values) / n
    return _around(centre, (values - centre) / n, n)


def share(counts: ArrayLike, totals: ArrayLike) -> Estimate:
    """A pooled proportion, sum of counts over sum of totals: (n,), (n,) -> Estimate.

    The interval is Student's on the linearised ratio over clusters; where every cluster says the same (no
    count, or nothing but counts) it is the Clopper-Pearson interval of the pooled counts.

    >>> estimate = share([0, 0, 0], [10, 20, 30])
    >>> estimate.value, estimate.low, round(estimate.high, 3)
    (0.0, 0.0, 0.06)
    """
    count, total = _integers(counts), _integers(totals)
    whole, clusters = int(total.sum()), int(np.sum(total > 0))
    if whole == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    if count.sum() in (0, whole):
        return Estimate(float(count.sum() / whole), *_clopper_pearson(int(count.sum()), whole), clusters)
    estimate = _around(count.sum() / whole, _influence(count, total), clusters)
    return Estimate(estimate.value, max(estimate.low, 0.0), min(estimate.high, 1.0), clusters)


def ratio(numerators: ArrayLike, denominators: ArrayLike) -> Estimate:
    """The ratio of two sums over clusters, with Student's interval on the linearised ratio: (n,), (n,).

    >>> ratio([1.0, 2.0], [2.0, 4.0]).value
    0.5
    """
    top, bottom = (np.asarray(x, dtype=np.float64) for x in (numerators, denominators))
    whole = math.fsum(bottom)
    if whole == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    value = math.fsum(top) / whole
    return _around(value, (top - value * bottom) / whole, int(np.count_nonzero(bottom)))


def share_difference(counts: Sequence[ArrayLike], totals: Sequence[ArrayLike]) -> Estimate:
    """The difference of two pooled proportions over the same clusters, the first minus the second.

    The interval is Student's on the linearised difference. Where one of the two is 0 or 1 its clusters show
    no spread; then the intervals of `share` are joined by Newcombe's hybrid method.

    Args:
      counts, totals: two arrays (n,) each.

    >>> share_difference(([5, 6], [1, 1]), ([10, 10], [10, 10])).value.__round__(2)
    0.45
    """
    pairs = [(_integers(count), _integers(total)) for count, total in zip(counts, totals, strict=True)]
    if any(total.sum() == 0 for _, total in pairs):
        return Estimate(math.nan, math.nan, math.nan, 0)
    first, second = (share(*pair) for pair in pairs)
    difference, clusters = first.value - second.value, min(first.clusters, second.clusters)
    if {first.value, second.value} & {0.0, 1.0}:
        down = math.hypot(first.value - first.low, second.high - second.value)
        up = math.hypot(first.high - first.value, second.value - second.low)
        return Estimate(difference, difference - down, difference + up, clusters)
    return _around(difference, _influence(*pairs[0]) - _influence(*pairs[1]), clusters)


def sign_flip_p(per_cluster: ArrayLike, seed: int = 0) -> float:
    """Two-sided p-value of a mean of 0, by flipping the signs of the clusters' differences.

    All flips up to `EXHAUSTIVE` clusters, `RANDOM_FLIPS` seeded random ones beyond. NaN entries are left out.

    Source: Fisher's randomisation test, as in `scipy.stats.permutation_test` with one sample.

    >>> sign_flip_p([1.0, 2.0, 3.0])  # 2 of the 8 flips are as far from 0
    0.25
    """
    values = _defined(per_cluster)
    if len(values) < 2:
        return math.nan
    observed = abs(math.fsum(values)) * (1 - ROUNDING)
    as_far = sum(int(np.sum(np.abs(signs @ values) >= observed)) for signs in _flips(len(values), seed))
    if len(values) <= EXHAUSTIVE:
        return as_far / 2.0 ** len(values)
    return (as_far + 1) / (RANDOM_FLIPS + 1)


@functools.lru_cache(maxsize=4)
def _flips(clusters: int, seed: int) -> tuple[NDArray[np.int8], ...]:
    """Sign patterns in blocks (m, clusters): all of them, or seeded random ones."""
    if clusters <= EXHAUSTIVE:
        patterns = np.arange(2**clusters)[:, None] >> np.arange(clusters) & 1
    else:
        patterns = np.random.default_rng(seed).integers(2, size=(RANDOM_FLIPS, clusters))
    return tuple(np.array_split((2 * patterns - 1).astype(np.int8), max(1, len(patterns) // 2**16)))


def _defined(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array[~np.isnan(array)]


def _integers(values: ArrayLike) -> NDArray[np.int64]:
    return np.asarray(values, dtype=np.int64)


def _influence(count: NDArray[np.int64], total: NDArray[np.int64]) -> Floats:
    """What each cluster adds to the error of the pooled proportion."""
    whole = total.sum()
    return np.asarray((count - count.sum() / whole * total) / whole)


def _around(value: float, influence: Floats, clusters: int) -> Estimate:
    """Student's interval of an estimate whose error is the sum of the clusters' influences."""
    if clusters < 2:
        return Estimate(float(value), math.nan, math.nan, clusters)
    from scipy import special

    error = math.sqrt(math.fsum(influence**2) * clusters / (clusters - 1))
    reach = float(special.stdtrit(clusters - 1, (1 + LEVEL) / 2)) * error
    return Estimate(float(value), float(value) - reach, float(value) + reach, clusters)


def _clopper_pearson(count: int, total: int) -> tuple[float, float]:
    from scipy import special

    tail = (1 - LEVEL) / 2
    low = 0.0 if count == 0 else float(special.betaincinv(count, total - count + 1, tail))
    high = 1.0 if count == total else float(special.betaincinv(count + 1, total - count, 1 - tail))
    return low, high
