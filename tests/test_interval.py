"""The certificate: its interval holds for every mu that fits the view, and is no wider than it must be.

`worlds` draws pairs with zeros and every peakedness, `hidden_mus` other mu that a view cannot tell apart from
the drawn one. The truth is summed in extended precision.
"""

import math
from dataclasses import replace
from fractions import Fraction as F
from itertools import pairwise
from typing import Any

import laws
import numpy as np
import oracles
import pytest
from conftest import Library
from numpy.typing import NDArray
from pairs import Floats, assert_close, batch, logs, numpy_of
from test_view import engine_record

from divsim.formulas import TAILS, View, change, change_interval, overlap_bracket

Wide = NDArray[np.longdouble]


def policies(rng: np.random.Generator, count: int, vocab_size: int) -> Floats:
    """Random rows of log-probabilities, from flat to peaked, a third of them with exact zeros."""
    weights = rng.gamma(rng.choice([0.1, 0.5, 2.0, 50.0], (count, 1)), size=(count, vocab_size)) + 1e-12
    gone = (rng.random((count, vocab_size)) < 0.4) & (rng.random((count, 1)) < 1 / 3)
    gone[np.arange(count), rng.integers(0, vocab_size, count)] = False
    weights = np.where(gone, 0.0, weights)
    return logs(weights / weights.sum(-1, keepdims=True))


def worlds(seed: int, count: int, vocab_size: int) -> tuple[Any, Any, Any]:
    """log mu, log pi, and a token that mu can sample."""
    rng = np.random.default_rng(seed)
    log_mu, log_pi = policies(rng, count, vocab_size), policies(rng, count, vocab_size)
    action = np.argmax(np.where(log_mu > -np.inf, rng.random(log_mu.shape), -1.0), axis=-1)
    return log_mu, log_pi, action


def exact_change(mu: Wide, log_pi: Any, action: Any) -> Wide:
    pi = np.exp(log_pi.astype(np.longdouble))
    own = np.arange(len(mu)), action
    return np.asarray(pi[own] - mu[own] + np.sum(pi * (mu - pi), axis=-1))


def hidden_mus(rng: np.random.Generator, view: View, ids: Any, log_pi: Any) -> list[Wide]:
    """Whole mu with the view's retained entries: the hidden mass fills the cap in several orders."""
    seen = view.log_mu, view.log_mu_tail, view.field("log_mu_cap")
    rows, mass, cap = (np.exp(x.astype(np.longdouble)) for x in seen)
    hidden = np.ones(log_pi.shape, dtype=bool)
    kept = np.zeros(log_pi.shape, dtype=np.longdouble)
    np.put_along_axis(hidden, ids, False, axis=-1)
    for cell in range(ids.shape[-1]):
        place = np.arange(len(kept)), ids[:, cell]
        kept[place] = np.where(view.in_support[:, cell], rows[:, cell], kept[place])
    filled = []
    for order in (np.exp(log_pi), -np.exp(log_pi), rng.random(log_pi.shape)):
        rank = np.argsort(np.argsort(np.where(hidden, order, np.inf), axis=-1), axis=-1)
        fill = np.clip(mass[:, None] - rank * cap[:, None], 0, cap[:, None])
        filled.append(kept + np.where(hidden, fill, 0))
    return [*filled, (filled[0] + filled[2]) / 2]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sound_for_every_mu_that_fits_the_view(dtype: str) -> None:
    """(tail.change_interval): no violation in 10^5 cases and more, at every K from 1 to V."""
    cases, decided = 0, 0
    for vocab_size in (1, 2, 3, 5, 8):
        for k in range(1, vocab_size + 1):
            log_mu, log_pi, action = worlds(100 * vocab_size + k, 1500, vocab_size)
            mine, theirs = log_mu.astype(dtype), log_pi.astype(dtype)
            view = View.top_k(mine, theirs, action, k, bracket=True)
            top = np.argsort(-mine, axis=-1, kind="stable")[:, :k]
            ids = np.concatenate([top, action[:, None]], axis=-1)
            others = hidden_mus(np.random.default_rng(k), view, ids, theirs)
            for mu in (np.exp(log_mu.astype(np.longdouble)), *others):
                assert laws.violations(change_interval(view), exact_change(mu, theirs, action)) == 0
                cases += len(mu)
            low, high = change_interval(view)
            decided += int(np.sum((low > 0) | (high < 0)))
    assert cases > 1e5
    assert decided > cases / 5 / 3  # an interval that never excludes 0 would be sound, and useless


def test_attained_by_a_mu_that_fits_the_view() -> None:
    """The hidden mass in the least, and in the most, likely tokens of pi gives the two ends."""
    for k in (1, 2, 3, 4):
        log_mu, log_pi = batch(60 + k, (500, 6))
        action = np.arange(500) % 6
        view = View.top_k(log_mu, log_pi, action, k, bracket=True)
        ids = np.concatenate([np.argsort(-log_mu, axis=-1)[:, :k], action[:, None]], axis=-1)
        least, most, *_ = hidden_mus(np.random.default_rng(k), view, ids, log_pi)
        low, high = change_interval(view)
        # What is left is the outward rounding: 64 ulps of terms that sum to less than 5.
        assert_close(low, exact_change(least, log_pi, action), rtol=0, atol=64 * 5 * laws.EPS)
        assert_close(high, exact_change(most, log_pi, action), rtol=0, atol=64 * 5 * laws.EPS)


def test_ends_are_the_extreme_vertices_in_fractions(xp: Library) -> None:
    mu, pi, k = [F(n, 64) for n in (20, 14, 12, 9, 9)], [F(n, 64) for n in (4, 18, 10, 20, 12)], 1
    log_mu, log_pi = (xp.array(np.log([[float(x) for x in row]])) for row in (mu, pi))
    fills = oracles.hidden_vertices(3, sum(mu[2:], F(0)), mu[1])
    ends = [oracles.forward_kl_change([*mu[:2], *fill], pi, k) for fill in fills]
    low, high = change_interval(View.top_k(log_mu, log_pi, xp.array([k]), k=2, bracket=True))
    assert_close(low, [float(min(ends))], rtol=0, atol=64 * 5 * laws.EPS)
    assert_close(high, [float(max(ends))], rtol=0, atol=64 * 5 * laws.EPS)
    assert min(ends) < F(0) < max(ends)  # the sign of this token is not certified at K = 2


def test_seeing_more_narrows_the_interval() -> None:
    log_mu, log_pi, action = worlds(61, 800, 7)
    views = [View.top_k(log_mu, log_pi, action, k, bracket=True) for k in range(1, 8)]
    ends = [change_interval(view) for view in [*views, View.full(log_mu, log_pi, action)]]
    rounding = 2 * 64 * 5 * laws.EPS
    for (low, high), (next_low, next_high) in pairwise(ends):
        assert np.all(low <= next_low + rounding) and np.all(next_high <= high + rounding)
    exact = change(View.full(log_mu, log_pi, action))
    assert np.all(ends[-1][1] - ends[-1][0] <= rounding)
    assert np.all((ends[-1][0] <= exact) & (exact <= ends[-1][1]))


def test_rounding_is_of_the_size_of_the_terms() -> None:
    """Flat policies over 1000 tokens: terms of 1e-3, so an outward rounding a thousand times smaller."""
    log_mu, log_pi = batch(67, (1, 1000), spread=0.1, apart=0.1)
    low, high = change_interval(View.full(log_mu, log_pi, np.array([3])))
    assert 0 < high[0] - low[0] <= 2 * 64 * laws.EPS * 0.01


def test_leading_shapes_are_free() -> None:
    log_mu, log_pi = batch(68, (2, 3, 6))
    action = np.arange(6).reshape(2, 3)
    ends = change_interval(View.top_k(log_mu, log_pi, action, 2, bracket=True))
    for b, t in np.ndindex(2, 3):
        one = View.top_k(log_mu[b, t], log_pi[b, t], action[b, t], 2, bracket=True)
        for end, alone in zip(ends, change_interval(one), strict=True):
            assert_close(end[b, t], alone, rtol=1e-14, atol=laws.EPS)


def test_point_estimates_of_possible_tails_lie_inside() -> None:
    """A tail of one token is known; a tail where mu has no room is known too."""
    log_mu, log_pi, action = worlds(62, 500, 5)
    for k in (4, 5):
        view = View.top_k(log_mu, log_pi, action, k, bracket=True)
        low, high = change_interval(view)
        one_hidden = numpy_of(view.tail_size) <= 1
        for name in set(TAILS) - {"full", "zero"}:
            estimate = change(view, tail=name)
            assert np.all(((low <= estimate) & (estimate <= high))[one_hidden])


def test_replacing_the_last_token_keeps_the_certificate_sound() -> None:
    log_mu, log_pi, action = worlds(63, 3000, 5)
    exact = exact_change(np.exp(log_mu.astype(np.longdouble)), log_pi, action)
    for k in (1, 2, 3):
        view = View.top_k(log_mu, log_pi, action, k, bracket=True, replace_last=True)
        assert laws.violations(change_interval(view), exact) == 0


def noisy_views(kind: str, noise: float, stated: float) -> list[tuple[View, Wide]]:
    """Views of a record of mu that is off by up to `noise` everywhere, and the true changes."""
    found = []
    for vocab_size, k in ((2, 1), (3, 2), (5, 1), (5, 3), (8, 2), (8, 8)):
        log_mu, log_pi, action = worlds(70 + vocab_size + k, 1500, vocab_size)
        rng = np.random.default_rng(vocab_size)
        together = np.where(rng.random((1500, 1)) < 0.5, 1.0, rng.choice([-1.0, 1.0], log_mu.shape))
        size = np.where(rng.random((1500, 1)) < 0.5, 1.0, rng.random(log_mu.shape))
        record = log_mu + noise * together * size * rng.choice([-1.0, 1.0], (1500, 1))
        options: dict[str, Any] = {"bracket": True, "log_mu_error": stated, "check": False}
        if kind == "top_k":
            view = View.top_k(record, log_pi, action, k, **options)
        else:
            view = View.from_logits(log_pi, action, *engine_record(record, action, k), **options)
        found.append((view, exact_change(np.exp(log_mu.astype(np.longdouble)), log_pi, action)))
    return found


@pytest.mark.parametrize("kind", ["from_logits", "top_k"])
@pytest.mark.parametrize("noise", [1e-3, 0.01, 0.1])
def test_a_stated_error_is_honoured(kind: str, noise: float) -> None:
    """Sound where the record is off by what was stated; unsound where nothing was stated."""
    stated = sum(laws.violations(change_interval(view), c) for view, c in noisy_views(kind, noise, noise))
    silent = sum(laws.violations(change_interval(view), c) for view, c in noisy_views(kind, noise, 0.0))
    assert stated == 0
    assert silent > 1000


def test_a_stated_error_is_honoured_where_little_is_seen() -> None:
    """Flat mu = pi, K = 1: the seven hidden entries are recorded too high, and c = 0 must stay inside."""
    flat, noise = np.log(np.full((1, 8), 1 / 8)), 1e-3
    record = flat + noise
    record[0, 0] = flat[0, 0] - noise
    view = View.top_k(record, flat, np.array([0]), 1, bracket=True, log_mu_error=noise)
    assert laws.violations(change_interval(view), 0.0) == 0


def test_a_stated_error_widens_the_door() -> None:
    record = np.log([[0.7, 0.3]]) + 0.05
    arguments = (np.log([[0.5, 0.5]]), np.array([0]), record[:, 0], np.array([[0, 1]]), record)
    View.from_logits(*arguments, log_mu_error=0.05)
    View.top_k(record, arguments[0], np.array([0]), 2, log_mu_error=0.05)
    with pytest.raises(ValueError, match=r"top_log_mu must sum to at most 1 .* got 1\.05127"):
        View.from_logits(*arguments, log_mu_error=0.01)


def with_support_cap(view: View, log_pi: Any, ids: Any) -> View:
    """The broken variant: the cap is the least mu of the support, which the sampled token may lower."""
    hidden = np.exp(log_pi)
    np.put_along_axis(hidden, ids, -np.inf, axis=-1)
    least = np.min(np.where(view.in_support, view.log_mu, np.inf), axis=-1)
    low, high = overlap_bracket(hidden, np.exp(view.log_mu_tail), np.exp(least))
    return replace(view, overlap_low=low, overlap_high=high)


def test_the_cap_is_not_the_least_of_the_support() -> None:
    log_mu, log_pi, action = worlds(64, 3000, 6)
    exact = exact_change(np.exp(log_mu.astype(np.longdouble)), log_pi, action)
    view = View.top_k(log_mu, log_pi, action, 2, bracket=True)
    ids = np.concatenate([np.argsort(-log_mu, axis=-1, kind="stable")[:, :2], action[:, None]], axis=-1)
    assert laws.violations(change_interval(view), exact) == 0
    assert laws.violations(change_interval(with_support_cap(view, log_pi, ids)), exact) > 100


def test_views_without_a_bracket_have_no_certificate() -> None:
    log_mu, log_pi, action = worlds(65, 2, 4)
    plain = View.top_k(log_mu, log_pi, action, 2)
    for view in (plain, plain.binary(), View.sampled(log_mu[:, 0] - 1, log_pi[:, 0] - 1, 4)):
        with pytest.raises(ValueError, match=r"this view has no overlap_low; View\.full, or View\.top_k or"):
            change_interval(view)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpy_and_torch_agree(dtype: str, xp: Library) -> None:
    log_mu, log_pi = (row.astype(dtype) for row in batch(66, (40, 9)))
    action = np.arange(40) % 9
    options: dict[str, Any] = {"k": 3, "bracket": True, "log_mu_error": 0.01}
    here = change_interval(View.top_k(log_mu, log_pi, action, **options))
    there = change_interval(View.top_k(xp.array(log_mu), xp.array(log_pi), xp.array(action), **options))
    rounding = {"float32": 2e-6, "float64": 1e-12}[dtype]  # sums of ten terms below 1
    for mine, theirs in zip(here, there, strict=True):
        assert dtype in str(theirs.dtype)
        assert_close(theirs, mine, rtol=0, atol=rounding)
    assert math.isfinite(float(here[0].max()))
