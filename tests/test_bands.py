"""The ratio band of a binary divergence: closed forms, numbers at 50 digits, and what lies just outside."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import assert_close, logs, numpy_of
from rule_oracles import MEASURES, band_edges

from divsim.formulas import CHI2_PI_MU, DIVERGENCES, FORWARD_KL, TV, Divergence, View, band, banded

NUMPY = Library("numpy", np.asarray)
RECORDS = {"tv": TV, "chi2": CHI2_PI_MU, "kl": FORWARD_KL}
PROBABILITIES = np.array([0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-6])
RADII = (0.001, 0.05, 0.3)

BandOf = Callable[[Divergence, Any, float], tuple[Any, Any]]


def check_band(band_of: BandOf, name: str, xp: Library) -> None:
    for delta in RADII:
        ends = band_of(RECORDS[name], xp.array(np.log(PROBABILITIES)), delta)
        expected = np.array([band_edges(p, name, delta) for p in PROBABILITIES.tolist()])
        for end, right in zip(ends, expected.T, strict=True):
            # a root of D(r) = delta in float64: D is flat around r = 1, so r - 1 keeps some 10 digits
            assert_close(numpy_of(end) - 1, right - 1, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", RECORDS)
def test_band_against_closed_forms_and_roots(xp: Library, name: str) -> None:
    check_band(band, name, xp)


def unreachable(divergence: Divergence, log_mu_k: Any, delta: float) -> tuple[Any, Any]:
    """TV's closed form without the cut at the reachable ratios."""
    return 1 - delta / np.exp(log_mu_k), 1 + delta / np.exp(log_mu_k)


def without_the_rest(divergence: Divergence, log_mu_k: Any, delta: float) -> tuple[Any, Any]:
    """RIPO's width sqrt(delta / p): chi2's without the factor 1 - p."""
    width = np.sqrt(delta / np.exp(log_mu_k))
    return np.maximum(1 - width, 0.0), np.minimum(1 + width, np.exp(-log_mu_k))


def halved(divergence: Divergence, log_mu_k: Any, delta: float) -> tuple[Any, Any]:
    return band(divergence, log_mu_k, delta / 2)


@pytest.mark.parametrize(
    ("broken", "name"), [(unreachable, "tv"), (without_the_rest, "chi2"), (halved, "kl"), (halved, "tv")]
)
def test_the_band_check_sees_a_wrong_band(broken: BandOf, name: str) -> None:
    with pytest.raises(AssertionError):
        check_band(broken, name, NUMPY)


# mp.dps = 50; d = lambda r: p * mp.log(1 / r) + (1 - p) * mp.log((1 - p) / (1 - r * p)) - mpf("0.05")
# [mp.findroot(d, guess) for guess in (low, high)] with p = mpf("0.1") and so on
KL_GOLDEN = {
    0.01: (0.002497385718712519, 7.8098462896721129),
    0.1: (0.31278396272279365, 2.2007860110692462),
    0.5: (0.69151566982415391, 1.3084843301758461),
    0.9: (0.86657933210341709, 1.0763573374752451),
}


@pytest.mark.parametrize("p", KL_GOLDEN)
def test_kl_golden(xp: Library, p: float) -> None:
    ends = band(FORWARD_KL, xp.array(np.log(np.array(p))), 0.05)
    assert_close([float(end) for end in ends], KL_GOLDEN[p], rtol=1e-12)  # bisection to 1e-19 of a flat curve


@pytest.mark.parametrize("name", RECORDS)
def test_an_end_that_can_be_reached_lies_at_the_radius(name: str) -> None:
    for delta in RADII:
        for end in band(RECORDS[name], np.log(PROBABILITIES), delta):
            for p, r in zip(PROBABILITIES.tolist(), end.tolist(), strict=True):
                if r > 0 and r * p < 1 - 1e-6:  # beyond, the plain 1 - r p has no digits left
                    # r is resolved to 5e-20, which log r sees at r = 1e-13
                    assert MEASURES[name]((p, 1 - p), (r * p, 1 - r * p)) == pytest.approx(delta, rel=1e-7)


@pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=lambda d: d.name)
def test_inside_is_inside_and_outside_is_outside(divergence: Divergence) -> None:
    p, delta = np.array([0.02, 0.2, 0.6, 0.95]), 0.03
    low, high = band(divergence, np.log(p), delta)

    def distance(ratio: Any) -> Any:
        view = View.sampled(np.log(p), logs(np.minimum(ratio * p, 1.0)), vocab_size=5)
        return divergence.measure(*view.cells)

    hair = 1e-7
    assert (low <= 1).all() and (high >= 1).all()
    assert (distance(low + hair * (1 - low)) <= delta).all()
    assert (distance(high - hair * (high - 1)) <= delta).all()
    beyond_low, beyond_high = low * (1 - hair), high * (1 + hair)
    assert (distance(beyond_low)[low > 0] > delta).all() and (low > 0).any()
    assert (distance(beyond_high)[high * p < 1 - hair] > delta).all() and (high * p < 1 - hair).any()


@pytest.mark.parametrize("name", RECORDS)
def test_a_larger_radius_is_a_wider_band_and_a_likelier_token_a_narrower_one(name: str) -> None:
    lows, highs = zip(*(band(RECORDS[name], np.log(PROBABILITIES), delta) for delta in RADII), strict=True)
    assert (np.diff(lows, axis=0) <= 0).all() and (np.diff(highs, axis=0) >= 0).all()
    assert (np.diff(lows, axis=1) >= -1e-12).all() and (np.diff(highs, axis=1) <= 1e-12).all()


def test_limits_of_the_kl_band() -> None:
    low, high = band(FORWARD_KL, np.array([0.0, np.log(1e-6)]), 0.05)
    assert low[0] == pytest.approx(np.exp(-0.05), rel=1e-12) and high[0] == 1.0  # p = 1: -log r = delta
    x = high[1] - 1  # p -> 0: p (x - log(1 + x)) = delta
    assert low[1] < 1e-15 and 1e-6 * (x - np.log1p(x)) == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", RECORDS)
def test_extreme_tokens_have_finite_bands(xp: Library, name: str, dtype: Any) -> None:
    log_mu_k = np.array([0.0, -1e-7, -20.0, -101.0, -801.0, -1e4], dtype)
    low, high = (numpy_of(end) for end in band(RECORDS[name], xp.array(log_mu_k), 0.05))
    assert low.dtype == high.dtype == dtype
    assert (np.isfinite(low) & np.isfinite(high)).all()
    assert ((low >= 0) & (low <= 1) & (high >= 1)).all()
    assert high[0] == 1.0
    decision = banded(RECORDS[name])(
        View.sampled(xp.array(log_mu_k), xp.array(np.full(6, -0.5, dtype)), 10), xp.array(np.ones(6, dtype))
    )
    assert np.isfinite(numpy_of(decision.surrogate)).all()


def test_the_band_of_float32_is_the_band_of_float64_rounded() -> None:
    for divergence in RECORDS.values():
        exact = band(divergence, np.log(PROBABILITIES[:-1]), 0.05)
        rounded = band(divergence, np.log(PROBABILITIES[:-1]).astype(np.float32), 0.05)
        for end, right in zip(rounded, exact, strict=True):
            assert_close(end, right, rtol=2e-5, atol=1e-6)  # 1e-7 of log p, enlarged where D is flat
