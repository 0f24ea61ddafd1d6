"""Every view, whoever built it, has fields of the same kinds, its binary view too, and the same defaults."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import assert_close, batch, numpy_of
from rule_cases import TOP, VIEWS, draw, everywhere, show

from divsim.formulas import View


def kinds(view: View) -> dict[str, Any]:
    shown = {name: numpy_of(getattr(view, name)) for name in ("log_mu", "log_pi", "in_support", "cell_k")}
    shown |= {name: numpy_of(getattr(view, name)) for name in ("log_mu_tail", "log_pi_tail", "tail_size")}
    return {name: field.dtype for name, field in shown.items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", VIEWS)
def test_fields_have_one_dtype_each(kind: str, dtype: Any, xp: Library) -> None:
    view = show(draw(91), kind, xp, dtype)
    logs = dict.fromkeys(("log_mu", "log_pi", "log_mu_tail", "log_pi_tail"), np.dtype(dtype))
    others = {"in_support": np.dtype(bool), "cell_k": np.dtype(np.int64), "tail_size": np.dtype(np.int64)}
    assert kinds(view) == kinds(view.binary()) == logs | others


def test_a_binary_view_knows_of_the_tail_what_its_view_knew(xp: Library) -> None:
    drawn = draw(92)
    for kind in VIEWS:
        view, binary = show(drawn, kind, xp), show(drawn, kind, xp).binary()
        assert (binary.pi_tail_sq is None) == (view.pi_tail_sq is None) == (kind == "sampled")
    assert int(show(drawn, "top_k", xp).binary().tail_size[0, 0]) == drawn.log_mu.shape[-1] - 1 > TOP


def test_a_binary_view_is_as_uncertain_as_its_view() -> None:
    drawn = draw(93)
    view = View.top_k(drawn.log_mu, drawn.log_pi, np.zeros((5, 8), int), TOP, log_mu_error=0.01)
    assert view.binary().log_mu_error == view.log_mu_error == 0.01


def test_the_squares_of_a_binary_tail_are_those_of_its_row(xp: Library) -> None:
    drawn = everywhere(draw(96))
    pi = np.exp(drawn.log_pi)
    squares = np.sum(pi**2, axis=-1) - np.take_along_axis(pi, drawn.action[..., None], axis=-1)[..., 0] ** 2
    for kind in VIEWS[:3]:
        assert_close(show(drawn, kind, xp).binary().field("pi_tail_sq"), squares, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("k", [6, 7, 8])
def test_a_top_k_of_every_token_is_full(k: int, xp: Library) -> None:
    drawn = everywhere(draw(97))
    log_mu, log_pi, action = (xp.array(x) for x in (drawn.log_mu, drawn.log_pi, drawn.action))
    view = View.top_k(log_mu, log_pi, action, k)
    assert view.is_full is (k >= 7)
    assert (view.overlap_low is None) == (view.overlap_high is None) == (k < 7)


def constructors() -> dict[str, Callable[[Any], View]]:
    """Each constructor at its defaults, given log mu of two tokens."""
    log_pi, action, ids = np.log([0.5, 0.5]), np.array(0), np.array([0])
    return {
        "full": lambda log_mu: View.full(log_mu, log_pi, action),
        "top_k": lambda log_mu: View.top_k(log_mu, log_pi, action, 1),
        "sampled": lambda log_mu: View.sampled(log_mu[0], log_pi[0], 2),
        "from_logits": lambda log_mu: View.from_logits(log_pi, action, log_mu[0], ids, log_mu[:1]),
    }


@pytest.mark.parametrize("kind", VIEWS)
def test_by_default_views_are_checked_and_not_bracketed(kind: str) -> None:
    build = constructors()[kind]
    assert (build(np.log([0.6, 0.4])).overlap_low is None) == (kind != "full")
    with pytest.raises(ValueError, match=r"log_mu.* must be log-probabilities"):
        build(np.array([0.5, -1.0]))


def test_the_bracket_of_a_row_is_its_own(xp: Library) -> None:
    """The stated error widens each row by what that row retains."""
    log_mu, log_pi = batch(94, (3, 5))
    ids = np.argsort(-log_mu, axis=-1)[:, :2]
    top = np.take_along_axis(log_mu, ids, axis=-1)

    def ends(rows: slice) -> Any:
        arrays = [xp.array(x[rows]) for x in (log_pi, ids[:, 0], top[:, 0], ids, top)]
        view = View.from_logits(*arrays, bracket=True, log_mu_error=0.01)
        return np.stack([numpy_of(view.field("overlap_low")), numpy_of(view.field("overlap_high"))])

    alone = np.concatenate([ends(slice(i, i + 1)) for i in range(3)], axis=-1)
    assert_close(ends(slice(None)), alone, rtol=1e-13)  # sums of five


def test_a_view_remembers_its_padding(xp: Library) -> None:
    drawn = draw(95)
    for kind in VIEWS:
        view = show(drawn, kind, xp)
        assert numpy_of(view.is_response).tolist() == numpy_of(view.binary().is_response).tolist()
        assert numpy_of(view.is_response).tolist() == drawn.is_response.tolist()
