"""What the constructors of `View` say of arguments that cannot be, and the edges of what can."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Library

from divsim.formulas import View, _checks, ppo_clip

NUMPY = Library("numpy", np.asarray)
LOGITS = np.zeros((1, 3))
ENGINE = (np.array([1]), np.log([0.3]), np.array([[0, 1]]), np.log([[0.5, 0.3]]))
"""action, log_mu_k, top_ids and top_log_mu of mu = (.5, .3, .2): token 1 was sampled, K = 2."""


def build(xp: Library = NUMPY, **changed: Any) -> View:
    """The engine's record before uniform logits, with changes."""
    names = ("action", "log_mu_k", "top_ids", "top_log_mu")
    record = {"pi_logits": LOGITS} | dict(zip(names, ENGINE, strict=True)) | changed
    return View.from_logits(**{name: xp.array(value) for name, value in record.items()})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"pi_logits": np.array(0.0)}, "pi_logits must have a last axis with at least one entry, got shape ()"),
    ({"log_mu_k": np.array([-1])}, "log_mu_k must hold floating numbers ("),
    (
        {"top_log_mu": np.array([[-1, -2]])},
        "top_log_mu must hold floating numbers (float16, bfloat16, float32, float64), got",
    ),
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


TEXT: Any = "1"
HALF, HALVES, FIRST = np.log([0.5]), np.log([[0.5, 0.5]]), np.array([0])

OTHERS: list[tuple[Callable[[], Any], str]] = [
    (lambda: View.full(HALVES, np.array(0.0), FIRST), "log_pi must have a last axis with at least one entry"),
    (
        lambda: View.full(HALVES[:, :1], HALVES, FIRST),
        "log_mu must have shape (1, 2) (that of log_pi), got (1, 1)",
    ),
    (
        lambda: View.full(HALVES, HALVES, FIRST, is_response=np.array([True, True])),
        "is_response must have shape (1,) (one entry a token), got (2,)",
    ),
    (
        lambda: View.sampled(HALF, HALF, 0),
        "vocab_size must be a whole number >= 1 (tokens), got 0; pass the size of the vocabulary",
    ),
    (lambda: View.sampled(FIRST, HALF, 2), "log_mu_k must hold floating numbers ("),
    (lambda: View.sampled(HALF, HALVES, 2), "log_mu_k must have shape (1, 2) (that of log_pi_k), got (1,)"),
    (lambda: View.sampled(0 * HALF, HALF, 1), "log_pi_k must sum to 1 over the vocabulary, got 0.5 at [0]"),
    (
        lambda: View.top_k(HALVES, HALVES, FIRST, 1, log_mu_error=TEXT),
        "log_mu_error must be a number (nats), got '1'",
    ),
    (
        lambda: View.top_k(HALVES, HALVES, FIRST, 1, log_mu_error=1.5),
        "log_mu_error must be between 0 and 1 (nats)",
    ),
    (lambda: View.top_k(HALVES, HALVES, FIRST, TEXT), "k must be a number (tokens), got '1'"),
    (
        lambda: View.sampled(np.array(0.5), np.array(-0.5), 2),
        "log_mu_k must be log-probabilities (<= 0, natural log), got 0.5; normalise logits",
    ),
    (
        lambda: View.full(HALVES, HALVES, np.array([1234567])),
        "action must be a token id in [0, 2), got 1234567 at",
    ),
    (
        lambda: View.from_logits(LOGITS, *ENGINE, log_mu_error=TEXT),
        "log_mu_error must be a number (nats), got '1'",
    ),
    (lambda: ppo_clip(eps_low=TEXT), "eps_low must be a number (a ratio), got '1'"),
    (
        lambda: build(top_ids=np.array([[0, 1, 1]]), top_log_mu=np.log([[0.4, 0.3, 0.3]])),
        "top_ids must not name a token twice in a row, got 1 at [0, 1]",
    ),
    (
        lambda: View.from_logits(
            np.array([[[0.0, 0.0, 0.0], [-np.inf] * 3]]), *(np.stack([x, x], axis=1) for x in ENGINE)
        ),
        "pi_logits must have a finite entry in each row, got -inf at [0, 1]",
    ),
]


@pytest.mark.parametrize(("call", "said"), OTHERS, ids=[said[:40] for _, said in OTHERS])
def test_other_refusals_do_too(call: Callable[[], Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        call()


def test_a_stated_error_widens_the_row_sum_of_mu() -> None:
    """The sum may be off by e^.1 - 1, and the largest error is a factor e."""
    loose = HALVES + 0.09
    assert View.top_k(loose, HALVES, FIRST, 1, log_mu_error=0.1).log_mu_error == 0.1
    assert View.top_k(HALVES, HALVES, FIRST, 1, log_mu_error=1.0).log_mu_error == 1.0
    with pytest.raises(ValueError, match="log_mu must sum to 1 over the vocabulary"):
        View.top_k(loose, HALVES, FIRST, 1)


def test_a_stated_error_widens_what_a_record_may_say() -> None:
    """The token's own .3 and the top-K's .3 e^.09 differ by less than e^.1 - 1."""
    loose = np.log([[0.5, 0.3]]) + 0.09
    assert View.from_logits(LOGITS, *ENGINE[:3], loose, log_mu_error=0.1).log_mu_error == 0.1
    with pytest.raises(ValueError, match="log_mu_k must equal top_log_mu at the same token"):
        View.from_logits(LOGITS, *ENGINE[:3], loose)


def test_padding_of_another_library_is_refused_by_name() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    is_response = torch.tensor([True])
    with pytest.raises(TypeError, match="is_response: Tensor"):
        View.from_logits(LOGITS, *ENGINE, is_response=is_response)
    with pytest.raises(TypeError, match="is_response: Tensor"):
        View.sampled(HALF, HALF, 2, is_response=is_response)


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


def test_half_precision_may_miss_the_sum_by_sixteen_roundings() -> None:
    assert [_checks.sum_tolerance(2.0**-digits) for digits in (7, 10, 23)] == [0.125, 0.015625, 0.001]
