"""The edges of the outward questions: zero is no direction, and an interval that touches 0 proves nothing."""

import numpy as np
import pytest
from conftest import Library

from divsim.formulas import View, clauses

SIGNS = [1.0, -1.0, 0.0]


def still(xp: Library) -> View:
    """Three tokens at ratio 1."""
    log_p = xp.array(np.log([0.5, 0.5, 0.5]))
    return View.sampled(log_p, log_p, vocab_size=3)


def test_a_ratio_of_one_leads_nowhere(xp: Library) -> None:
    assert clauses.ratio_outward(still(xp), xp.array(SIGNS)).outward.tolist() == [False, False, False]


def test_only_a_negative_advantage_lowers(xp: Library) -> None:
    assert clauses.lowering_outward(still(xp), xp.array([0.5, -0.5, 0.0])).outward.tolist() == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("low", "high", "is_proven"), [(0.0, 1.0, False), (-1.0, 0.0, False), (1.0, 2.0, True)]
)
def test_an_interval_that_touches_zero_proves_nothing(
    low: float, high: float, is_proven: bool, xp: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = xp.array([low] * 3), xp.array([high] * 3)
    monkeypatch.setattr(clauses, "change_interval", lambda view: ends)
    answer = clauses.certified_outward("keep")(still(xp), xp.array(SIGNS))
    assert answer.certified is not None
    assert answer.certified.tolist() == [is_proven] * 3
    assert answer.outward.tolist() == [is_proven, False, False]
