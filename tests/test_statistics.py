"""Intervals and tests over clusters, against scipy.stats and by their coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from divsim.experiments import statistics as s

numbers = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=12)


@given(numbers)
def test_the_mean_has_students_interval(values: list[float]) -> None:
    found = s.mean(values)
    low, high = (
        stats.ttest_1samp(values, 0.0).confidence_interval(0.95) if np.ptp(values) > 1e-6 else (None, None)
    )
    assert found.value == pytest.approx(np.mean(values), abs=1e-9)
    if low is not None:
        assert found.low == pytest.approx(low, rel=1e-6, abs=1e-7)
        assert found.high == pytest.approx(high, rel=1e-6, abs=1e-7)


@given(numbers, st.randoms())
def test_no_interval_depends_on_the_order_of_clusters(values: list[float], random: object) -> None:
    shuffled = values.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert s.mean(values).value == s.mean(shuffled).value  # bit for bit: sums are exact


@pytest.mark.parametrize(("count", "total"), [(0, 30), (30, 30), (0, 1), (7, 7)])
def test_where_all_clusters_agree_the_interval_is_clopper_and_pearsons(count: int, total: int) -> None:
    found = s.share([count, 0], [total, 0])
    exact = stats.binomtest(count, total).proportion_ci(0.95, method="exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize("clusters", [3, 8, 14])
def test_all_flips_are_tried_when_there_are_few(clusters: int) -> None:
    values = np.random.default_rng(clusters).normal(0.4, 1, clusters)
    exact = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert s.sign_flip_p(values) == pytest.approx(exact.pvalue, abs=1e-12)


def test_random_flips_are_tried_when_there_are_many() -> None:
    values = np.random.default_rng(0).normal(0.2, 1, 61)
    found = s.sign_flip_p(values)
    theirs = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=100_000, rng=np.random.default_rng(5)
    ).pvalue
    error = 5 * math.sqrt(2 * found * (1 - found) / 100_000)  # two independent estimates, five sigma
    assert abs(found - theirs) < error
    assert found == s.sign_flip_p(values), "a seed, and the same p"


def test_missing_clusters_are_left_out() -> None:
    values = [0.5, math.nan, 1.5, math.nan, 0.25]
    assert s.mean(values) == s.mean([0.5, 1.5, 0.25])
    assert s.sign_flip_p(values) == s.sign_flip_p([0.5, 1.5, 0.25])
    for nothing in (
        s.mean([math.nan]),
        s.share([0], [0]),
        s.ratio([0.0], [0.0]),
        s.share_difference(([0], [1]), ([0], [2])),
    ):
        assert math.isnan(nothing.value) and nothing.clusters == 0
    assert math.isnan(s.mean([1.0]).low) and math.isnan(s.sign_flip_p([1.0]))


def clustered(rng: np.random.Generator, clusters: int = 61) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts whose rate differs from cluster to cluster around .3, and around .5 for a second event."""
    totals = rng.integers(5, 60, clusters)
    rates = rng.beta(6, 14, clusters)
    return rng.binomial(totals, rates), rng.binomial(totals, rates + 0.2), totals


def covered(hits: int, tries: int) -> bool:
    """Whether a nominal 95 % is compatible with the coverage that was seen, up to a percent of bias."""
    ci = stats.binomtest(hits, tries).proportion_ci(0.99)
    return bool(
        ci.low - 0.015 <= 0.95 <= ci.high + 0.015
    )  # linearised intervals of 61 clusters run 1 % short


def test_intervals_of_clustered_counts_cover() -> None:
    rng, tries, hits = np.random.default_rng(1), 2000, np.zeros(3, dtype=int)
    for _ in range(tries):
        first, second, totals = clustered(rng)
        found = (
            s.share(first, totals),
            s.ratio(first.astype(float), totals.astype(float)),
            s.share_difference((second, first), (totals, totals)),
        )
        truths = (0.3, 0.3, 0.2)
        hits += [
            estimate.low <= truth <= estimate.high for estimate, truth in zip(found, truths, strict=True)
        ]
    assert all(covered(int(n), tries) for n in hits), hits / tries


def test_an_interval_that_ignored_clusters_would_not_cover() -> None:
    rng, tries, hits = np.random.default_rng(1), 1000, 0
    for _ in range(tries):
        first, _, totals = clustered(rng)
        ci = stats.binomtest(int(first.sum()), int(totals.sum())).proportion_ci(0.95, method="wilson")
        hits += ci.low <= 0.3 <= ci.high
    assert not covered(hits, tries)


def test_a_difference_of_certainties_has_an_interval() -> None:
    """Newcombe (1998), method 10 with exact limits: 0 of 10 against 0 of 20."""
    found = s.share_difference(([0, 0], [0, 0]), ([5, 5], [10, 10]))
    ends = [stats.binomtest(0, n).proportion_ci(0.95, method="exact").high for n in (10, 20)]
    assert (found.value, found.low, found.high) == pytest.approx((0, -ends[1], ends[0]), abs=1e-12)


def test_a_share_is_the_ratio_of_its_sums() -> None:
    first, second, totals = clustered(np.random.default_rng(2))
    share, ratio = s.share(first, totals), s.ratio(first.astype(float), totals.astype(float))
    assert (share.value, share.low, share.high) == pytest.approx(
        (ratio.value, ratio.low, ratio.high), rel=1e-12
    )
    difference = s.share_difference((second, first), (totals, totals))
    assert difference.value == pytest.approx(s.share(second, totals).value - share.value, rel=1e-12)


def test_no_end_of_an_interval_depends_on_the_order_of_clusters() -> None:
    """Bit for bit: results come from worker processes in any order."""
    rng = np.random.default_rng(3)
    first, second, n = clustered(rng)
    few = (first / n)[:12] - 0.3
    for _ in range(20):  # a sum that is not exact survives some orders
        order = rng.permutation(len(n))
        a, b, m = first[order], second[order], n[order]
        assert s.mean(first / n - 0.3) == s.mean(a / m - 0.3)  # near 0, its interval's ends keep every bit
        assert s.share(first, n) == s.share(a, m)
        assert s.ratio(first / 7, n / 3) == s.ratio(a / 7, m / 3)
        assert s.share_difference((second, first), (n, n)) == s.share_difference((b, a), (m, m))
        assert s.sign_flip_p(few) == s.sign_flip_p(rng.permutation(few))


@pytest.mark.parametrize("values", [[0.1, 0.2, -0.3], [1.1, 2.2, -3.3], [0.0, 0.0, 0.0]])
def test_a_sum_that_cancels_is_no_evidence(values: list[float]) -> None:
    assert s.sign_flip_p(values) == 1.0


def test_a_p_value_is_never_zero() -> None:
    """Phipson and Smyth (2010): the observed sign pattern is one of those that were tried."""
    assert s.sign_flip_p(np.ones(61)) == 1 / (s.RANDOM_FLIPS + 1)
    assert s.sign_flip_p(np.ones(8)) == 2 / 2**8


def test_the_ends_of_a_share_stay_in_the_unit_interval() -> None:
    found = s.share([1, 0, 0], [3, 3, 3])
    assert found.low == 0.0 < found.value < found.high
    found = s.share([2, 3, 3], [3, 3, 3])
    assert found.low < found.value < found.high == 1.0


@pytest.mark.parametrize(
    "found",
    [
        s.share([3, 0, 0], [10, 0, 0]),
        s.ratio([3.0, 0, 0], [10.0, 0, 0]),
        s.share_difference(([3, 0], [0, 2]), ([10, 0], [0, 10])),
    ],
)
def test_one_cluster_with_tokens_makes_no_interval(found: s.Estimate) -> None:
    assert math.isnan(found.low) and math.isnan(found.high)


@pytest.mark.parametrize("busy", [0.25, 0.5])
def test_clusters_without_tokens_do_not_shorten_an_interval(busy: float) -> None:
    """Intervals that count the empty clusters too hold the truth in .54 and .80 of such tables."""
    rng, held, made = np.random.default_rng(0), 0, 0
    for _ in range(1000):
        total = np.where(rng.random(8) < busy, rng.integers(1, 40, 8), 0)
        found = s.share(rng.binomial(total, rng.beta(6, 14, 8)), total)
        if not math.isnan(found.low):
            held, made = held + (found.low <= 0.3 <= found.high), made + 1
    assert stats.binomtest(held, made, 0.9).pvalue > 0.01 or held / made > 0.9
