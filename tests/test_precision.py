"""Rounding to bfloat16 and e4m3 against torch's own conversions, and against every number of the formats."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from divsim.tabular.precision import BFLOAT16, E4M3, FloatFormat, rounded, scaled

Floats = NDArray[np.float64]

FORMATS = pytest.mark.parametrize(
    ("form", "dtype"), [(BFLOAT16, torch.bfloat16), (E4M3, torch.float8_e4m3fn)], ids=["bf16", "fp8"]
)


def sample() -> Floats:
    """Values of every size, exact in float32 so that torch rounds once; ties and subnormals among them."""
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(20_000) * 2.0 ** rng.integers(-12, 9, 20_000)
    ties = (np.arange(-64, 64) + 0.5) * 2.0**-4
    subnormal = np.arange(-40, 40) * 2.0**-11
    every = np.concatenate([spread, ties, subnormal, [0.0, -0.0, 448.0, -448.0]])
    return every.astype(np.float32).astype(np.float64)


def by_torch(values: Floats, dtype: torch.dtype) -> Floats:
    found: Floats = torch.from_numpy(values).float().to(dtype).double().numpy()
    return found


def numbers_of(dtype: torch.dtype) -> Floats:
    """Every finite number >= 0 of a format, in order: those at even places have an even mantissa."""
    codes = torch.arange(0x7F80, dtype=torch.int16) if dtype is torch.bfloat16 else torch.arange(127).byte()
    found: Floats = codes.view(dtype).double().numpy()
    return found


@FORMATS
def test_it_rounds_as_torch_does(form: FloatFormat, dtype: torch.dtype) -> None:
    values = sample()
    values = values[np.abs(values) <= form.largest]
    found, theirs = rounded(values, form), by_torch(values, dtype)
    assert np.array_equal(found, theirs)  # no tolerance: rounding is exact
    assert np.array_equal(np.signbit(found), np.signbit(theirs))


@FORMATS
def test_every_number_stays_and_every_tie_goes_to_the_even_one(form: FloatFormat, dtype: torch.dtype) -> None:
    numbers = numbers_of(dtype)
    below, above = numbers[:-1], numbers[1:]
    tie = (below + above) / 2  # exact: one more bit of mantissa
    even = np.where(np.arange(len(tie)) % 2 == 0, below, above)
    assert numbers[-1] == form.largest
    for sign in (1, -1):
        assert np.array_equal(rounded(sign * numbers, form), sign * numbers)
        assert np.array_equal(rounded(sign * tie, form), sign * even)
        assert np.array_equal(rounded(sign * np.nextafter(tie, 0), form), sign * below)
        assert np.array_equal(rounded(sign * np.nextafter(tie, np.inf), form), sign * above)


@FORMATS
def test_rounding_twice_changes_nothing_and_order_is_kept(form: FloatFormat, dtype: torch.dtype) -> None:
    values = np.sort(sample())
    once = rounded(values, form)
    assert np.array_equal(rounded(once, form), once)
    assert np.all(np.diff(once) >= 0)


@FORMATS
def test_what_is_too_large_saturates(form: FloatFormat, dtype: torch.dtype) -> None:
    beyond = form.largest * np.array([1.0, 1.001, 1.3, -1.3])
    assert rounded(beyond, form).tolist() == [form.largest] * 3 + [-form.largest]


@FORMATS
def test_a_row_is_scaled_to_the_largest_number_and_back(form: FloatFormat, dtype: torch.dtype) -> None:
    rows = np.random.default_rng(3).standard_normal((3, 40, 50)) * 10.0 ** np.arange(-1, 2)[:, None, None]
    scale = np.max(np.abs(rows), axis=-1, keepdims=True) / form.largest
    # Values are divided by the scale in float32 too: none lies so near a tie that it matters.
    assert np.array_equal(scaled(rows, form), by_torch(rows / scale, dtype) * scale)


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
