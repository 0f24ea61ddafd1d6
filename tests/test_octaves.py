"""Quantiles of a stream: exact sums, a known error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divsim.tabular.octaves import octaves, quantile

magnitudes = st.lists(st.floats(2.0**-60, 2.0**60), min_size=1, max_size=40)


@given(magnitudes, st.floats(0.01, 1.0))
def test_a_quantile_is_within_half_a_bin(values: list[float], level: float) -> None:
    exact = float(np.quantile(values, level, method="inverted_cdf"))
    assert abs(np.log2(quantile(octaves(np.array(values)), level) / exact)) <= 0.5 / 8 + 1e-9


@given(magnitudes, magnitudes)
def test_counts_add_up(first: list[float], second: list[float]) -> None:
    both = octaves(np.array(first + second))
    assert np.array_equal(both, octaves(np.array(first)) + octaves(np.array(second)))


def test_zeros_and_extremes_have_a_place_and_nan_has_none() -> None:
    counts = octaves(np.array([0.0, 0.0, 1e-300, 1e300]))
    assert counts[0] == 3 and counts[-1] == 1
    assert quantile(counts, 0.5) == 0.0
    assert np.isnan(quantile(np.zeros_like(counts), 0.5))
    with pytest.raises(ValueError, match="NaN; leave undefined values out"):
        octaves(np.array([np.nan]))
