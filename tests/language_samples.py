"""What the tests of worlds and mismatches share: logits of the language world, and a test of a variance."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from divsim.tabular.language import WORLDS

Floats = NDArray[np.float64]

LANGUAGE = WORLDS["language"]
# A right generator is refused once in 10,000 seeds; these seeds are fixed.
RARE = 1e-4


def language_logits(seed: int, n: int = 4000) -> Floats:
    return LANGUAGE.logits(np.random.default_rng(seed), n, 2000)


def variance_is(values: Floats, sd: float, lost: int = 0) -> bool:
    """Whether independent normal values have this standard deviation, by the chi-square test."""
    degrees = values.size - lost
    low, high = stats.chi2(degrees).interval(1 - RARE)
    return bool(low <= np.sum(values**2) / sd**2 <= high)
