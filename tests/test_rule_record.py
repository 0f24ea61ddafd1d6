"""What a rule admits and hands back: dtypes, padding by name, and numbers that must be finite."""

import re

import numpy as np
import pytest
from conftest import Library

from divsim.formulas import Gain, Rule, View, importance_sampling


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
