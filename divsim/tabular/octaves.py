"""Quantiles of a stream: counts of magnitudes in bins of an eighth of an octave, which add up exactly.

A quantile is known to half a bin, 4.4 %, whatever the number of values and their order. What is left out:
signs.
"""

import numpy as np
from numpy.typing import NDArray

from .policies import Floats

PER_OCTAVE = 8
LOWEST, HIGHEST = -64, 64
"""Powers of two; smaller magnitudes, 0 among them, fall in the first bin, larger ones in the last."""


def octaves(magnitudes: Floats) -> NDArray[np.int64]:
    """Counts of non-negative values by bin: any shape -> ((HIGHEST - LOWEST) * PER_OCTAVE,) int64. NaN is
    an error.

    >>> int(octaves(np.array([0.0, 1.0, 1.0, 1e300])).sum())
    4
    """
    values = np.ravel(magnitudes)
    if np.any(np.isnan(values)):
        raise ValueError("magnitudes must be numbers, got NaN; leave undefined values out")
    size = (HIGHEST - LOWEST) * PER_OCTAVE
    exponent = np.log2(np.clip(values, 2.0**LOWEST, 2.0**HIGHEST))
    place = np.floor((exponent - LOWEST) * PER_OCTAVE).astype(np.int64)
    return np.bincount(np.clip(place, 0, size - 1), minlength=size)


def quantile(counts: NDArray[np.int64], level: float) -> float:
    """The smallest bin centre that at least a share `level` of the values does not exceed; NaN without
    values.

    >>> round(quantile(octaves(np.array([1.0, 2.0, 4.0])), 0.5), 2)
    2.09
    """
    total = int(counts.sum())
    if total == 0:
        return float("nan")
    place = int(np.searchsorted(np.cumsum(counts), max(level * total, 1)))
    return 0.0 if place == 0 else float(2.0 ** (LOWEST + (place + 0.5) / PER_OCTAVE))
