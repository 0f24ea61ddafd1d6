"""The mass that retained cells leave to the others: none for an empty tail, and summed in float64."""

import numpy as np
from conftest import Library
from pairs import assert_close

from divsim.formulas.support import log_complement


def test_an_empty_tail_has_no_mass_whatever_the_rounding(xp: Library) -> None:
    kept = xp.array(np.log([[0.6, 0.399], [0.6, 0.399]]))
    assert_close(log_complement(kept, xp.array([0, 1])), [-np.inf, np.log(0.001)], rtol=1e-12)


def test_the_complement_of_float32_cells_is_summed_in_float64(xp: Library) -> None:
    kept = np.log([[0.5, 0.3, 0.19999], [0.9, 0.05, 0.04999]]).astype(np.float32)
    exact = np.log1p(-np.exp(kept.astype(np.float64)).sum(axis=-1))
    log_tail = log_complement(xp.array(kept), xp.array([4, 4]))
    assert "float32" in str(log_tail.dtype)
    assert_close(log_tail, exact, rtol=1e-7)  # the rounding of the result
