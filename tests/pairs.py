"""Pairs of policies to try things on: hypothesis strategies, fixed batches, and small conversions.

A pair is (log_mu, log_pi), NumPy float64, normalised by SciPy. Nothing here imports divsim.
"""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax

Floats = NDArray[np.floating[Any]]
Pair = tuple[Floats, Floats]

CLOSENESS = (1e-9, 1e-6, 1e-3, 0.1, 1.0)
"""How far apart the two policies of a pair are: from nearly equal, where formulas cancel, to unrelated."""

_logit = st.floats(-6, 6, allow_subnormal=False)


@st.composite
def log_prob_pairs(draw: st.DrawFn, min_size: int = 2, closest: float = 1e-9) -> Pair:
    """A pair over 2 to 6 tokens whose logits differ by up to 6 times a drawn closeness."""
    size = draw(st.integers(min_size, 6))
    row = st.lists(_logit, min_size=size, max_size=size).map(np.array)
    closeness = draw(st.sampled_from([c for c in CLOSENESS if c >= closest]))
    logits = draw(row)
    return log_softmax(logits), log_softmax(logits + closeness * draw(row))


@st.composite
def pairs_with_zeros(draw: st.DrawFn) -> Pair:
    """A pair in which tokens but the first may have probability 0 under mu, under pi, or under both."""
    log_mu, log_pi = draw(log_prob_pairs(min_size=3, closest=0.1))
    gone = st.lists(st.booleans(), min_size=len(log_mu), max_size=len(log_mu)).map(np.array)
    first = np.arange(len(log_mu)) == 0
    log_mu = np.where(draw(gone) & ~first, -np.inf, log_mu)
    log_pi = np.where(draw(gone) & ~first, -np.inf, log_pi)
    return log_softmax(log_mu), log_softmax(log_pi)


def logs(probabilities: Any) -> Floats:
    """log p, with log 0 = -inf and no warning."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, dtype=np.float64))


def batch(seed: int, shape: tuple[int, ...], spread: float = 2.0, apart: float = 1.0) -> Pair:
    """Random pairs of a shape (..., V), from a seed."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.standard_normal(shape)
    return log_softmax(logits, axis=-1), log_softmax(logits + apart * rng.standard_normal(shape), axis=-1)


def numpy_of(array: Any) -> NDArray[Any]:
    """The values as a NumPy array, wherever they live."""
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)


def assert_close(actual: Any, expected: Any, rtol: float, atol: float = 0.0) -> None:
    """Equal within tolerances that the caller has a reason for; infinities must match, NaN never does."""
    np.testing.assert_allclose(numpy_of(actual), numpy_of(expected), rtol=rtol, atol=atol, equal_nan=False)
