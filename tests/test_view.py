"""What each constructor shows of (mu, pi): resolutions, ties, edges, zeros. Its door is in `test_door.py`."""

from typing import Any

import laws
import numpy as np
import pytest
from conftest import Library
from hypothesis import assume, given
from hypothesis import strategies as st
from pairs import Floats, Pair, assert_close, batch, log_prob_pairs, logs, numpy_of
from test_divergences import EVERY, each

from divsim.formulas import FORWARD_KL, REVERSE_KL, TV, View, change

# mu, pi and top-K sizes of a small world whose cells are easy to see: token 0 leads, token 3 is rare.
MU, PI = np.array([[0.5, 0.3, 0.15, 0.05]]), np.array([[0.4, 0.2, 0.1, 0.3]])


def engine_record(log_mu: Floats, action: Any, k: int) -> tuple[Floats, Any, Floats]:
    """What an engine returns: log mu of the sampled token, the K likeliest ids, and their log mu."""
    ids = np.argsort(-log_mu, axis=-1, kind="stable")[..., :k]
    log_mu_k = np.take_along_axis(log_mu, action[..., None], axis=-1)[..., 0]
    return log_mu_k, ids, np.take_along_axis(log_mu, ids, axis=-1)


def small_view(xp: Library, action: int, k: int, **options: Any) -> View:
    return View.top_k(xp.array(logs(MU)), xp.array(logs(PI)), xp.array([action]), k, **options)


def test_full_hides_nothing(xp: Library) -> None:
    view = View.full(xp.array(logs(MU)), xp.array(logs(PI)), xp.array([3]))
    assert view.is_full and bool(view.in_support.all())
    assert_close(view.cells[0], logs([[0.5, 0.3, 0.15, 0.05, 0]]), rtol=1e-15)
    assert_close(view.log_pi_tail, [-np.inf], rtol=0)
    assert [int(view.cell_k[0]), int(view.tail_size[0])] == [3, 0]
    assert_close(view.ratio, [6.0], rtol=1e-14)
    assert [float(view.field(x)[0]) for x in ("pi_tail_sq", "overlap_low", "overlap_high")] == [0, 0, 0]


def test_top_k_keeps_the_likeliest_and_the_sampled_token(xp: Library) -> None:
    view = small_view(xp, action=3, k=2)
    assert not view.is_full
    assert_close(view.cells[0], logs([[0.5, 0.3, 0.05, 0.15]]), rtol=1e-14)
    assert_close(view.cells[1], logs([[0.4, 0.2, 0.3, 0.1]]), rtol=1e-14)
    assert [int(view.cell_k[0]), int(view.tail_size[0])] == [2, 1]
    assert_close(view.field("log_mu_cap"), logs([0.3]), rtol=1e-14)  # not the sampled token's 0.05
    assert_close(view.field("pi_tail_sq"), [0.1**2], rtol=1e-14)
    assert_close(view.log_mu_k, logs([0.05]), rtol=1e-14)
    assert_close(view.log_pi_k, logs([0.3]), rtol=1e-14)


def test_top_k_holds_the_sampled_token_once(xp: Library) -> None:
    view = small_view(xp, action=1, k=2)
    assert numpy_of(view.in_support).tolist() == [[True, True, False]]
    assert_close(view.cells[0], logs([[0.5, 0.3, 0, 0.2]]), rtol=1e-14)
    assert [int(view.cell_k[0]), int(view.tail_size[0])] == [1, 2]
    assert_close(view.field("pi_tail_sq"), [0.1**2 + 0.3**2], rtol=1e-14)


def test_replace_last_gives_the_last_place_to_the_sampled_token(xp: Library) -> None:
    view = small_view(xp, action=3, k=2, replace_last=True)
    assert numpy_of(view.in_support).tolist() == [[True, False, True]]
    assert_close(view.cells[0], logs([[0.5, 0, 0.05, 0.45]]), rtol=1e-14)
    assert_close(view.cells[1], logs([[0.4, 0, 0.3, 0.3]]), rtol=1e-14)
    assert int(view.tail_size[0]) == 2
    inside = small_view(xp, action=1, k=2, replace_last=True)
    assert_close(inside.cells[0], logs([[0.5, 0.3, 0, 0.2]]), rtol=1e-14)


def test_binary_is_the_sampled_token_and_the_rest(xp: Library) -> None:
    for view in (small_view(xp, 3, 2), View.full(xp.array(logs(MU)), xp.array(logs(PI)), xp.array([3]))):
        binary = view.binary()
        assert_close(binary.cells[0], logs([[0.05, 0.95]]), rtol=1e-14)
        assert_close(binary.cells[1], logs([[0.3, 0.7]]), rtol=1e-14)
        assert [int(binary.cell_k[0]), int(binary.tail_size[0])] == [0, 3]
        assert bool(binary.in_support.all()) and not binary.is_full
        assert_close(binary.field("pi_tail_sq"), [0.4**2 + 0.2**2 + 0.1**2], rtol=1e-14)


def test_sampled_is_the_binary_view(xp: Library) -> None:
    view = View.sampled(xp.array(logs([0.05])), xp.array(logs([0.3])), vocab_size=4)
    expected = small_view(xp, 3, 1).binary()
    for mine, theirs in zip(view.cells, expected.cells, strict=True):
        assert_close(mine, theirs, rtol=1e-14)
    assert [int(view.cell_k[0]), int(view.tail_size[0])] == [0, 3]


@given(data=st.data(), pair=log_prob_pairs())
def test_from_logits_is_top_k(data: st.DataObject, pair: Pair) -> None:
    log_mu, log_pi = pair
    assume(len(set(log_mu)) == len(log_mu))  # at a tie the two may keep different tokens
    action = np.asarray(data.draw(st.integers(0, len(log_mu) - 1)))
    k = data.draw(st.integers(1, len(log_mu)))
    options = {"bracket": True, "replace_last": data.draw(st.booleans())}
    theirs = View.top_k(log_mu, log_pi, action, k, **options)
    mine = View.from_logits(log_pi + 3, action, *engine_record(log_mu, action, k), **options)
    exact = 1e-14  # the logits of size 10 are rounded; 1 - sum of mu is off by a few 1e-16
    for one, other in zip(mine.cells, theirs.cells, strict=True):
        assert_close(np.exp(one), np.exp(other), rtol=1e-13, atol=exact)
    for name in ("log_mu_cap", "pi_tail_sq", "overlap_low", "overlap_high"):
        assert_close(mine.field(name), theirs.field(name), rtol=1e-13, atol=exact)
    assert mine.tail_size == theirs.tail_size and mine.cell_k == theirs.cell_k


@each
def test_coarser_views_never_see_more(divergence: Any) -> None:
    log_mu, log_pi = batch(21, (200, 7))
    action = np.arange(200) % 7
    views = [View.top_k(log_mu, log_pi, action, k) for k in range(1, 8)]
    ladder = [views[0].binary(), *views, View.full(log_mu, log_pi, action)]
    seen = np.stack([divergence.measure(*view.cells) for view in ladder])
    rounding = 1e-13 * (1 + seen[-1])  # the cells' own log masses
    assert np.all(np.diff(seen, axis=0) >= -rounding)
    assert np.mean(seen[1] < seen[-1]) > 0.5


def test_k_beyond_the_vocabulary_hides_nothing(xp: Library) -> None:
    full = View.full(xp.array(logs(MU)), xp.array(logs(PI)), xp.array([2]))
    for k in (4, 9):
        view = small_view(xp, 2, k)
        assert [int(view.tail_size[0]), float(view.log_mu_tail[0])] == [0, -np.inf]
        assert float(view.log_pi_tail[0]) == -np.inf and float(view.field("pi_tail_sq")[0]) == 0
        for divergence in EVERY:
            whole = divergence.measure(*full.cells)
            assert_close(divergence.measure(*view.cells), whole, rtol=1e-14)
        assert_close(change(view, tail="proportional"), change(full), rtol=1e-13)


def test_any_valid_top_k_at_a_tie(xp: Library) -> None:
    """Tokens 1 and 2 tie at the second place: which one stays is free, what follows from masses is not."""
    mu, pi = [[0.4, 0.25, 0.25, 0.1]], [[0.1, 0.35, 0.35, 0.2]]
    log_mu, log_pi = xp.array(logs(mu)), xp.array(logs(pi))
    view = View.top_k(log_mu, log_pi, xp.array([3]), k=2, bracket=True)
    assert_close(view.cells[0], logs([[0.4, 0.25, 0.1, 0.25]]), rtol=1e-14)
    assert_close(view.cells[1], logs([[0.1, 0.35, 0.2, 0.35]]), rtol=1e-14)
    sampled = View.top_k(log_mu, log_pi, xp.array([2]), k=2)  # may be the one that stayed, or join
    assert int(sampled.tail_size[0]) in (1, 2)
    assert_close(sampled.log_mu_k, logs([0.25]), rtol=1e-14)
    for ids in ([[0, 1]], [[0, 2]], [[2, 0]]):
        record = (xp.array(logs([0.1])), xp.array(ids), xp.array(logs(np.take(mu[0], ids))))
        other = View.from_logits(log_pi, xp.array([3]), *record, bracket=True)
        for name in ("log_mu_cap", "overlap_low", "overlap_high"):
            assert_close(other.field(name), view.field(name), rtol=1e-13)
        assert_close(FORWARD_KL.measure(*other.cells), FORWARD_KL.measure(*view.cells), rtol=1e-13)


def test_an_unsorted_record_is_the_same_record(xp: Library) -> None:
    """Engines hand out dicts: the K likeliest tokens come in any order."""
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        record = (xp.array(logs([0.05])), xp.array([order]), xp.array(logs(MU[:, order])))
        view = View.from_logits(xp.array(logs(PI)), xp.array([3]), *record, replace_last=True)
        assert_close(view.field("log_mu_cap"), logs([0.15]), rtol=1e-14)
        assert_close(np.sort(numpy_of(view.cells[0])), logs([[0, 0.05, 0.15, 0.3, 0.5]]), rtol=1e-13)


def test_small_tails_keep_their_digits(xp: Library) -> None:
    """Masses come from the complement, not from 1 - sum, wherever the hidden tokens are known."""
    rare = xp.array(logs([[1 - 3e-12, 1e-12, 2e-12]]))
    view = View.top_k(rare, rare, xp.array([0]), k=1)
    for log_tail in (
        view.log_mu_tail,
        view.log_pi_tail,
        View.full(rare, rare, xp.array([0])).binary().cells[0][:, 1],
    ):
        assert_close(log_tail, logs([3e-12]), rtol=1e-14)
    sampled = View.sampled(xp.array([-3e-12]), xp.array([-1e-300]), vocab_size=5)
    assert_close(sampled.log_mu_tail, logs([3e-12]), rtol=1e-12)  # 1 - e^-x = x - x^2 / 2
    assert_close(sampled.log_pi_tail, [np.log(1e-300)], rtol=1e-14)


@pytest.mark.parametrize("excess", [0.0, 1e-8, 1e-4], ids=["exact", "rounding", "stated"])
def test_a_tail_mass_below_zero_is_no_mass(excess: float, xp: Library) -> None:
    top = xp.array(np.log([[0.6 + excess, 0.4]]))
    record = (xp.array([0]), top[:, 0], xp.array([[0, 1]]), top)
    view = View.from_logits(xp.array(logs([[0.5, 0.25, 0.25]])), *record, bracket=True)
    assert float(view.log_mu_tail[0]) == -np.inf and int(view.tail_size[0]) == 1
    assert np.isfinite(float(FORWARD_KL.measure(*view.cells)[0]))
    assert float(REVERSE_KL.measure(*view.cells)[0]) == np.inf  # pi has mass where mu has none


def test_a_tail_of_one_token_is_that_token(xp: Library) -> None:
    view = small_view(xp, action=0, k=3)
    assert_close(view.cells[0], logs([[0.5, 0.3, 0.15, 0, 0.05]]), rtol=1e-14)
    for divergence in EVERY:
        whole = divergence.measure(xp.array(logs(MU)), xp.array(logs(PI)))
        assert_close(divergence.measure(*view.cells), whole, rtol=1e-13)


@pytest.mark.parametrize("vocab_size", [1, 2])
def test_smallest_vocabularies(vocab_size: int, xp: Library) -> None:
    log_mu, log_pi = (xp.array(row) for row in batch(22, (4, vocab_size)))
    action = xp.array(np.zeros(4, int))
    full = View.full(log_mu, log_pi, action)
    views = [full, full.binary(), View.top_k(log_mu, log_pi, action, 1, bracket=True)]
    views.append(View.sampled(log_mu[:, 0], log_pi[:, 0], vocab_size))
    for view in views:
        assert_close(TV.measure(*view.cells), TV.measure(log_mu, log_pi), rtol=1e-12, atol=laws.EPS)
        assert numpy_of(view.tail_size + view.in_support.sum(-1)).tolist() == [vocab_size] * 4


def test_zeros_of_mu_and_of_pi(xp: Library) -> None:
    """Truncated sampling makes mu_i = 0, a logit mask pi_i = 0: infinite where it must be, never NaN."""
    log_mu, log_pi = xp.array(logs([[0.7, 0.3, 0, 0]])), xp.array(logs([[0.5, 0, 0.5, 0]]))
    for view in (View.full(log_mu, log_pi, xp.array([0])), View.top_k(log_mu, log_pi, xp.array([0]), 3)):
        assert float(FORWARD_KL.measure(*view.cells)[0]) == np.inf
        assert_close(TV.measure(*view.cells), [0.5], rtol=1e-14)
        grad = FORWARD_KL.logit_grad(*view.cells)
        assert_close(np.sort(numpy_of(grad))[0, [0, 1, -1]], [-0.3, -0.2, 0.5], rtol=1e-14)
    one = View.top_k(log_mu, log_pi, xp.array([1]), 1)
    assert_close(FORWARD_KL.measure(*one.cells), [np.inf], rtol=0)
    assert float(one.ratio[0]) == 0.0


def test_leading_shapes_are_free(xp: Library) -> None:
    log_mu, log_pi = batch(23, (2, 3, 5))
    action = np.arange(6).reshape(2, 3) % 5
    views = [
        View.full(xp.array(log_mu), xp.array(log_pi), xp.array(action)),
        View.top_k(xp.array(log_mu), xp.array(log_pi), xp.array(action), 2, bracket=True),
        View.from_logits(
            xp.array(log_pi), xp.array(action), *map(xp.array, engine_record(log_mu, action, 2))
        ),
        View.sampled(xp.array(log_mu[..., 0]), xp.array(log_pi[..., 0]), 5),
    ]
    for view in views:
        assert tuple(view.log_mu_tail.shape) == tuple(view.ratio.shape) == (2, 3)
        assert tuple(TV.measure(*view.binary().cells).shape) == (2, 3)
    scalar = View.full(xp.array(log_mu[0, 0]), xp.array(log_pi[0, 0]), xp.array(action[0, 0]))
    assert_close(change(scalar), change(views[0])[0, 0], rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "supplier"),
    [
        ("log_mu_cap", "View.top_k or View.from_logits"),
        ("pi_tail_sq", "View.full, View.top_k or View.from_logits"),
        ("overlap_low", "View.full, or View.top_k or View.from_logits with bracket=True"),
        ("overlap_high", "View.full, or View.top_k or View.from_logits with bracket=True"),
    ],
)
def test_an_absent_field_says_who_supplies_it(name: str, supplier: str) -> None:
    view = View.sampled(np.log([0.5]), np.log([0.4]), vocab_size=3)
    with pytest.raises(ValueError, match=f"this view has no {name}; {supplier} supplies it"):
        view.field(name)
