"""Rounding to the low-precision formats that rollout engines compute in: bfloat16 and FP8 (e4m3).

Values stay float64 arrays; only the numbers that a format cannot hold are gone, so that a mismatch by
precision is simulated exactly. What is left out: the order in which a kernel accumulates a product.
"""

from dataclasses import dataclass

import numpy as np

from .policies import Floats


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format.

    Attributes:
      name: its name in tables.
      mantissa_bits: stored bits after the leading one.
      lowest_exponent: of the smallest normal number; below it numbers are evenly spaced.
      largest: the largest finite value; larger magnitudes saturate.
    """

    name: str
    mantissa_bits: int
    lowest_exponent: int
    largest: float


BFLOAT16 = FloatFormat("bf16", mantissa_bits=7, lowest_exponent=-126, largest=(2 - 2.0**-7) * 2.0**127)
E4M3 = FloatFormat("fp8", mantissa_bits=3, lowest_exponent=-6, largest=448.0)
"""Four exponent and three mantissa bits, no infinities."""


def rounded(values: Floats, form: FloatFormat) -> Floats:
    """The nearest numbers of a format, ties to even, saturating: any shape, unit kept.

    Args:
      values: finite float64.
      form: the format.

    Returns:
      An array of the same shape.

    Source: IEEE 754 rounding; [FP8] section 3 for e4m3.

    >>> rounded(np.array([1.0, 1.06, 1.07, 1e4]), E4M3).tolist()
    [1.0, 1.0, 1.125, 448.0]
    """
    _, exponent = np.frexp(values)
    spacing = np.ldexp(1.0, np.maximum(exponent - 1, form.lowest_exponent) - form.mantissa_bits)
    return np.asarray(np.clip(np.rint(values / spacing) * spacing, -form.largest, form.largest))


def scaled(values: Floats, form: FloatFormat) -> Floats:
    """Rounded with one scale a row, so that the row's largest magnitude becomes the format's largest.

    Args:
      values: (..., n) finite float64, magnitudes 0 or at least 1e-300; a row of zeros stays so.
      form: the format.

    Returns:
      (..., n) in the unit of `values`.

    Source: dynamic per-row scaling of FP8 inference engines, amax / largest.

    >>> scaled(np.array([[100.0, 3.0], [1e-9, 0.0]]), E4M3).round(3).tolist()
    [[100.0, 2.902], [0.0, 0.0]]
    """
    peak = np.max(np.abs(values), axis=-1, keepdims=True)
    scale = np.where(peak > 0, peak, form.largest) / form.largest
    return rounded(values / scale, form) * scale
