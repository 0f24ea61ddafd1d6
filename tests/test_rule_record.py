"""What a rule admits and hands back: dtypes, padding by name, and numbers that must be finite."""

import re
from typing import Any

import numpy as np
import pytest
from conftest import Library

from divsim.formulas import Gain, Rule, View, certified, dual_clip, importance_sampling, two_sided


def still(xp: Library, dtype: type = np.float64) -> View:
    """Two tokens at ratio 1."""
    log_p = xp.array(np.log([0.5, 0.5]).astype(dtype))
    return View.sampled(log_p, log_p, vocab_size=3)


def test_a_decision_repeats_what_it_was_told(xp: Library) -> None:
    view, is_response = still(xp, np.float32), xp.array([True, False])
    decision = importance_sampling()(view, xp.array(np.array([2.0, 3.0])), is_response)
    assert decision.is_response.tolist() == [True, False]
    assert decision.advantage.tolist() == [2.0, 0.0]
    assert decision.advantage.dtype == decision.surrogate.dtype == view.log_pi.dtype


def test_padding_of_the_view_and_of_the_call_add_up(xp: Library) -> None:
    log_p = xp.array(np.log([0.5, 0.5, 0.5]))
    view = View.sampled(log_p, log_p, vocab_size=3, is_response=xp.array([True, False, True]))
    decision = two_sided()(view, xp.array([1.0, 1.0, 1.0]), xp.array([True, True, False]))
    assert decision.is_response.tolist() == decision.outward.tolist() == [True, False, False]


def test_outward_is_outward_by_some_clause(xp: Library) -> None:
    """Of dual clip's two, only the ratio's says so where A > 0, and only the upper bound's where A < 0."""
    log_mu_k, log_pi_k = xp.array(np.log([0.2, 0.2])), xp.array(np.log([0.4, 0.4]))
    decision = dual_clip()(View.sampled(log_mu_k, log_pi_k, vocab_size=3), xp.array([1.0, -1.0]))
    assert decision.outward.tolist() == [True, True]
    assert decision.ratio_outward.tolist() == [True, False]


def test_certified_says_what_was_proven(xp: Library) -> None:
    log_mu, log_pi = (xp.array(np.log([row])) for row in ([0.4, 0.3, 0.3], [0.45, 0.5, 0.05]))
    view = View.full(log_mu, log_pi, xp.array([0]))
    answer = certified()(view, xp.array([1.0])).certified
    assert answer is not None and answer.tolist() == [True]


def test_an_array_is_no_view() -> None:
    array: Any = np.ones(2)
    with pytest.raises(
        TypeError, match=r"view must be a View record, got array.*; View\.full, View\.top_k, View\.s"
    ):
        importance_sampling()(array, np.ones(2))


def test_two_libraries_are_refused_by_name() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(TypeError, match=r"got advantage: Tensor, view\.log_pi: ndarray; convert"):
        importance_sampling()(still(Library("numpy", np.asarray)), torch.ones(2))


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (
            Gain(np.array([1.0, np.inf]), np.zeros(2)),
            "weight must be finite at a response, got inf at [1]; lower",
        ),
        (
            Gain(np.ones(2), np.zeros(2), np.array([np.nan, 0.0])),
            "pull must be finite at a response, got nan at [0]; switch it off",
        ),
    ],
    ids=["weight", "pull"],
)
def test_an_update_is_finite(gain: Gain, said: str) -> None:
    rule = Rule("broken", "none", lambda *_: gain)
    view = still(Library("numpy", np.asarray))
    with pytest.raises(ValueError, match=re.escape(said)):
        rule(view, np.ones(2))
    rule(view, np.ones(2), check=False)
