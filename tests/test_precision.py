"""Rounding to bfloat16 and e4m3 against torch's own conversions."""

import numpy as np
import pytest
import torch

from divsim.tabular.precision import BFLOAT16, E4M3, FloatFormat, rounded, scaled

ORACLES = ((BFLOAT16, torch.bfloat16), (E4M3, torch.float8_e4m3fn))


def sample() -> np.ndarray:
    """Values of every size, exact in float32 so that torch rounds once; ties and subnormals among them."""
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(20_000) * 2.0 ** rng.integers(-12, 9, 20_000)
    ties = (np.arange(-64, 64) + 0.5) * 2.0**-4
    subnormal = np.arange(-40, 40) * 2.0**-11
    return (
        np.concatenate([spread, ties, subnormal, [0.0, 448.0, -448.0]]).astype(np.float32).astype(np.float64)
    )


@pytest.mark.parametrize(("form", "dtype"), ORACLES, ids=["bf16", "fp8"])
def test_it_rounds_as_torch_does(form: FloatFormat, dtype: torch.dtype) -> None:
    values = sample()
    values = values[np.abs(values) <= form.largest]
    theirs = torch.from_numpy(values).float().to(dtype).double().numpy()
    assert np.array_equal(rounded(values, form), theirs)  # no tolerance: rounding is exact


@pytest.mark.parametrize(("form", "_"), ORACLES, ids=["bf16", "fp8"])
def test_rounding_twice_changes_nothing_and_order_is_kept(form: FloatFormat, _: torch.dtype) -> None:
    values = np.sort(sample())
    once = rounded(values, form)
    assert np.array_equal(rounded(once, form), once)
    assert np.all(np.diff(once) >= 0)


def test_what_is_too_large_saturates() -> None:
    assert rounded(np.array([500.0, -1e9]), E4M3).tolist() == [448.0, -448.0]


def test_a_scaled_row_keeps_its_largest_and_is_within_half_a_spacing() -> None:
    rows = np.random.default_rng(1).standard_normal((50, 64))
    found, peak = scaled(rows, E4M3), np.max(np.abs(rows), axis=-1, keepdims=True)
    at_peak = np.abs(rows) == peak
    np.testing.assert_allclose(found[at_peak], rows[at_peak], rtol=1e-15)  # one product and one quotient
    unit = peak / E4M3.largest
    spacing = np.maximum(np.abs(rows) * 2.0**-E4M3.mantissa_bits, unit * 2.0 ** (E4M3.lowest_exponent - 3))
    assert np.all(np.abs(found - rows) <= spacing / 2 * (1 + 1e-12))


def test_scaling_commutes_with_a_power_of_two_and_a_zero_row_stays() -> None:
    rows = np.random.default_rng(2).standard_normal((5, 8))
    assert np.array_equal(scaled(rows * 2.0**-20, E4M3), scaled(rows, E4M3) * 2.0**-20)
    assert np.array_equal(scaled(np.zeros((1, 4)), E4M3), np.zeros((1, 4)))
