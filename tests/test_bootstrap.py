"""Intervals from resampled clusters, against an independent formula, by hand, and on made-up clusters."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from divsim.experiments import bootstrap, statistics
from divsim.experiments.bootstrap import draw_clusters, quantiles, ratio, risk_difference, share


@pytest.mark.parametrize("seed", [0, 1])
def test_the_interval_of_a_share_is_near_the_linearised_one(seed: int) -> None:
    """With 200 clusters both are normal: 1.4 % of an end is noise of the resamples, some 3 % skewness."""
    rng = np.random.default_rng(seed)
    names = np.repeat(np.arange(200), rng.integers(5, 40, 200))
    event = rng.random(len(names)) < rng.beta(2, 3, 200)[names]
    clusters, everywhere = draw_clusters(names), np.ones(len(names), dtype=np.bool_)
    ours = share(clusters, event, everywhere)
    theirs = statistics.share(np.bincount(names, event), np.bincount(names))
    assert ours.value == theirs.value == np.mean(event) and ours.clusters == 200
    for mine, other in ((ours.low, theirs.low), (ours.high, theirs.high)):
        assert mine - ours.value == pytest.approx(other - ours.value, rel=0.06)
    naive = 1.96 * math.sqrt(ours.value * (1 - ours.value) / len(names))
    assert ours.high - ours.value > 1.5 * naive  # tokens of a cluster are alike


def coverage(
    statistic: Callable[[NDArray[np.int64], NDArray[np.float64]], tuple[float, float]], truth: float
) -> float:
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        names = np.repeat(np.arange(40), 10)
        low, high = statistic(names, np.repeat(rng.normal(size=40), 10) + rng.normal(size=400))
        hits += low <= truth <= high
    return hits / 200


def test_intervals_cover_the_truth_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 intervals over 40 clusters; percentile intervals fall short of 95 % by some 2 %, sd 1.7 %."""
    monkeypatch.setattr(bootstrap, "RESAMPLES", 1000)  # a tenth of the time

    def of_median(names: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[float, float]:
        (found,) = quantiles(draw_clusters(names), values, [0.5], np.ones(len(values), dtype=np.bool_))
        return found.low, found.high

    def of_mean(names: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[float, float]:
        found = ratio(draw_clusters(names), values, np.ones(400), np.ones(400, dtype=np.bool_))
        return found.low, found.high

    for statistic in (of_median, of_mean):
        assert 0.88 < coverage(statistic, 0.0) < 0.99


def test_quantiles_of_a_region_by_hand() -> None:
    values, names = np.array([3.0, 1.0, 2.0, 9.0]), [0, 0, 1, 1]
    region = np.array([True, True, True, False])
    low, high = quantiles(draw_clusters(names), values, [0.5, 0.95], region)
    assert (low.value, high.value, low.clusters) == (2.0, 3.0, 2)
    # Two clusters: a resample holds {3, 1} twice, {2} twice, or all three.
    assert (low.low, low.high) == (1.0, 2.0) and (high.low, high.high) == (2.0, 3.0)


def test_a_risk_difference_by_hand() -> None:
    said = np.array([True, True, False, False, True])
    event = np.array([True, False, True, False, True])
    inside = np.array([True, True, True, True, False])
    clusters = draw_clusters([0, 0, 1, 1, 1])
    assert risk_difference(clusters, said, event, inside).value == 0.0
    assert risk_difference(clusters, said, event, np.ones(5, dtype=np.bool_)).value == pytest.approx(
        2 / 3 - 1 / 2
    )
    gain = risk_difference(clusters, event, event, inside, instead_of=said)
    assert gain.value == 1.0
    assert math.isnan(risk_difference(clusters, np.ones(5, dtype=np.bool_), event, inside).value)


def test_nothing_to_estimate_from_is_not_a_number() -> None:
    clusters, nowhere = draw_clusters([0, 1]), np.zeros(2, dtype=np.bool_)
    for found in (
        share(clusters, ~nowhere, nowhere),
        ratio(clusters, np.ones(2), np.ones(2), nowhere),
        *quantiles(clusters, np.ones(2), [0.5], nowhere),
    ):
        assert math.isnan(found.value) and found.clusters == 0
    one = ratio(clusters, np.array([1.0, 2.0]), np.ones(2), np.array([True, False]))
    assert one.value == 1.0 and math.isnan(one.low) and one.clusters == 1


def test_a_share_without_any_event_still_has_an_upper_end() -> None:
    clusters = draw_clusters(np.repeat(np.arange(5), 20))
    found = share(clusters, np.zeros(100, dtype=np.bool_), np.ones(100, dtype=np.bool_))
    assert found.value == found.low == 0.0
    assert found.high == pytest.approx(1 - 0.025 ** (1 / found.clusters))  # Clopper-Pearson of the clusters
