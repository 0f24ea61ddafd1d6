"""What `View.from_logits` says of a record that cannot be, and the edges of what can."""

import re
from typing import Any

import numpy as np
import pytest
from conftest import Library

from divsim.formulas import View

NUMPY = Library("numpy", np.asarray)
LOGITS = np.zeros((1, 3))


def build(xp: Library = NUMPY, **changed: Any) -> View:
    """mu = (.5, .3, .2) and uniform pi: the sampled token 1 and the two likeliest are told."""
    record = {
        "pi_logits": LOGITS,
        "action": np.array([1]),
        "log_mu_k": np.log([0.3]),
        "top_ids": np.array([[0, 1]]),
        "top_log_mu": np.log([[0.5, 0.3]]),
    } | changed
    return View.from_logits(**{name: xp.array(value) for name, value in record.items()})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"pi_logits": np.array(0.0)}, "pi_logits must have a last axis with at least one entry, got shape ()"),
    ({"log_mu_k": np.array([-1])}, "log_mu_k must hold floating numbers ("),
    ({"top_log_mu": np.array([[-1, -2]])}, "top_log_mu must hold floating numbers ("),
    (
        {"log_mu_k": np.log([0.3, 0.3])},
        "log_mu_k must have shape (1,) (that of pi_logits without V), got (2,)",
    ),
    ({"top_log_mu": np.log([[0.5]])}, "top_log_mu must have shape (1, 2) (that of top_ids), got (1, 1)"),
    ({"action": np.array([1.0])}, "action must hold integer token ids, got float64"),
    ({"action": np.array([0, 1])}, "action must have shape (1,) (one token id each), got (2,)"),
    ({"action": np.array([3])}, "action must be a token id in [0, 3), got 3 at [0]"),
    ({"log_mu_k": np.array([0.5])}, "log_mu_k must be log-probabilities (<= 0, natural log), got 0.5 at [0]"),
]


@pytest.mark.parametrize(("changed", "said"), REFUSED, ids=[said[:40] for _, said in REFUSED])
def test_a_refusal_names_argument_value_and_remedy(changed: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        build(**changed)


def test_padding_of_another_library_is_refused_by_name() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    given = (LOGITS, np.array([1]), np.log([0.3]), np.array([[0, 1]]), np.log([[0.5, 0.3]]))
    with pytest.raises(TypeError, match="is_response: Tensor"):
        View.from_logits(*given, is_response=torch.tensor([True]))


def test_a_sampled_token_may_tie_with_the_last_of_the_top_k(xp: Library) -> None:
    """mu = (.4, .3, .3) with K = 2, where token 2 was sampled."""
    view = build(xp, action=np.array([2]), top_log_mu=np.log([[0.4, 0.3]]))
    assert view.cell_k.tolist() == [2]


def test_hidden_tokens_hold_no_more_than_the_cap_each(xp: Library) -> None:
    """K = 1 at .3 and a sampled .3: one hidden token of at most .3 cannot hold the other .4, two would."""
    lone = {"top_ids": np.array([[0]]), "top_log_mu": np.log([[0.3]]), "log_mu_k": np.log([0.3])}
    with pytest.raises(
        ValueError, match="top_log_mu must leave no more mass than the hidden tokens can hold"
    ):
        build(xp, **lone)
    assert build(xp, **lone, pi_logits=np.zeros((1, 4))).tail_size.tolist() == [2]
