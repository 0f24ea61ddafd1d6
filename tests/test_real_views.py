"""Views of real tokens, and steps on them, against policies with every logit and textbook sums over them.

`observe` stores such a policy as the archive stores a token, so that what is read from K columns can be
compared with the whole.
"""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from divsim.formulas import (
    FORWARD_KL,
    REVERSE_KL,
    TAILS,
    TV,
    View,
    change,
    change_interval,
    overlap_bracket,
)
from divsim.tabular.policies import PolicyPair, at_action
from divsim.tabular.real_tokens import RealTokens, load, whole_policies
from divsim.tabular.real_views import (
    euclidean_change,
    euclidean_flip_step,
    free_overlap,
    one_logit_change,
    one_logit_flip_step,
    tail_sums,
    view,
)

Floats = NDArray[np.float64]
FLOAT32 = 2.0**-24  # relative rounding of a stored number
ALL = load()
each_pair = pytest.mark.parametrize("tokens", ALL.values(), ids=list(ALL))
OBSERVED_COLUMNS = 24  # beyond the 20 of the stored interval


def probabilities(pair: PolicyPair) -> tuple[Floats, Floats]:
    return np.exp(pair.log_mu), np.exp(pair.log_pi)


def textbook_change(mu: Floats, pi: Floats, k: NDArray[np.int64]) -> Floats:
    return at_action(pi - mu, k) + np.sum(pi * (mu - pi), axis=-1)


def kl(mu: Floats, pi: Floats) -> Floats:
    return np.asarray(np.sum(mu * (np.log(mu) - np.log(pi)), axis=-1))


def realised(mu: Floats, pi: Floats, displacement: Floats) -> Floats:
    """KL after minus before, through logits and softmax."""
    weights = np.exp(np.log(pi) + displacement - np.max(displacement, axis=-1, keepdims=True))
    return kl(mu, weights / weights.sum(axis=-1, keepdims=True)) - kl(mu, pi)


def one_hot(k: NDArray[np.int64], vocab: int) -> Floats:
    return np.asarray(np.arange(vocab) == k[:, None], dtype=np.float64)


@functools.cache
def observed(name: str, columns: int = OBSERVED_COLUMNS) -> tuple[RealTokens, Floats, Floats]:
    return observe(ALL[name], columns)


def observe(tokens: RealTokens, columns: int) -> tuple[RealTokens, Floats, Floats]:
    """The tokens with every logit as the archive would store them, without rounding; and mu and pi (F, V)."""
    mu, pi = probabilities(whole_policies(tokens))
    k = tokens.full_action
    hidden = (np.arange(tokens.vocab) >= columns) & (np.arange(tokens.vocab) != k[:, None])
    tail_20 = np.where((np.arange(tokens.vocab) >= 20) & (np.arange(tokens.vocab) != k[:, None]), pi, -np.inf)
    low, high = overlap_bracket(tail_20, np.sum(mu * (tail_20 >= 0), axis=-1), mu[:, 19])
    known = textbook_change(mu, pi, k) - np.sum(np.where(tail_20 >= 0, pi * mu, 0.0), axis=-1)
    stored = replace(
        tokens,
        action=k, rank_k=k, prompt=tokens.prompt[tokens.full_row],
        top_ids=np.broadcast_to(np.arange(columns), (len(k), columns)),
        top_log_mu=np.log(mu[:, :columns]), top_log_pi=np.log(pi[:, :columns]),
        log_mu_k=np.log(at_action(mu, k)), log_pi_k=np.log(at_action(pi, k)),
        mu_tail=np.sum(mu * hidden, axis=-1), pi_tail=np.sum(pi * hidden, axis=-1),
        pi_sq_tail=np.sum(pi * pi * hidden, axis=-1),
        pi_sq=np.sum(pi * pi, axis=-1), pi_mu=np.sum(pi * mu, axis=-1), kl=kl(mu, pi),
        c=textbook_change(mu, pi, k), c_low_20=known + low, c_high_20=known + high,
    )  # fmt: skip
    return stored, mu, pi


# ---- the views


@pytest.mark.parametrize("k", [1, 2, 8, 19, 20, OBSERVED_COLUMNS])
@each_pair
def test_a_view_is_the_view_of_the_whole_policies(tokens: RealTokens, k: int) -> None:
    stored, _, _ = observed(tokens.name)
    ours = view(stored, k)
    top = np.broadcast_to(np.arange(k), (len(stored.action), k))  # View.top_k may break ties in another way
    top_log_mu = whole_policies(tokens).log_mu[:, :k]
    theirs = View.from_logits(
        tokens.full_logits_pi, stored.action, stored.log_mu_k, top, top_log_mu, bracket=True
    )
    assert np.array_equal(ours.in_support, theirs.in_support)
    assert np.array_equal(ours.cell_k, theirs.cell_k)
    assert np.array_equal(ours.tail_size, theirs.tail_size)
    for name in ("log_mu", "log_pi", "log_mu_tail", "log_pi_tail", "log_mu_cap", "pi_tail_sq"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, err_msg=name)
    for tail in (name for name in TAILS if name != "full"):
        np.testing.assert_allclose(change(ours, tail=tail), change(theirs, tail=tail), atol=1e-13, rtol=0)
    assert np.all(ours.overlap_low <= theirs.overlap_low)  # never narrower than the tight bracket
    assert np.all(ours.overlap_high >= theirs.overlap_high)
    if k == 20:
        width = ours.overlap_high - ours.overlap_low - (theirs.overlap_high - theirs.overlap_low)
        assert np.max(width) < 8.1 * FLOAT32  # but at K = 20 just that


def test_whole_tokens_are_inside_and_outside_the_top_k() -> None:
    """Otherwise the test above would not see the sampled token's own cell."""
    ranks = np.concatenate([tokens.full_action for tokens in ALL.values()])
    assert np.any(ranks < 8) and np.any(ranks >= OBSERVED_COLUMNS)


@each_pair
def test_the_change_lies_in_every_interval_and_no_certified_sign_is_wrong(tokens: RealTokens) -> None:
    assert np.all((tokens.c_low_20 <= tokens.c) & (tokens.c <= tokens.c_high_20))
    for k in (1, 5, 20):
        shares = []
        for error in (0.0, 2e-5, 1e-3, 1e-2):
            low, high = change_interval(view(tokens, k, log_mu_error=error))
            assert np.all((low < tokens.c) & (tokens.c < high))
            shares.append(np.mean((low > 0) | (high < 0)))
        assert shares == sorted(shares, reverse=True) and shares[0] > shares[-1]
    assert shares[0] > 0.85  # at K = 20


@each_pair
def test_the_tight_interval_is_never_wider_than_the_free_one(tokens: RealTokens) -> None:
    tight, free = view(tokens, 20), view(tokens, 20, use_interval=False)
    assert np.all(tight.overlap_low >= free.overlap_low - 4 * FLOAT32)  # both may be 0 up to rounding
    assert np.all(tight.overlap_high <= free.overlap_high)
    assert np.median((tight.overlap_high - tight.overlap_low) / (free.overlap_high - free.overlap_low)) < 0.9


def test_the_free_overlap_bounds_every_tail() -> None:
    rng = np.random.default_rng(0)
    pi, mu = (rng.dirichlet(np.full(30, 0.3), 2000) * rng.uniform(size=(2000, 1)) for _ in range(2))
    cap = mu.max(axis=-1)
    bound = free_overlap(mu.sum(axis=-1), pi.sum(axis=-1), np.sum(pi * pi, axis=-1), cap)
    overlap = np.sum(pi * mu, axis=-1)
    assert np.all(overlap <= bound * (1 + 1e-12))
    # Two cases of equality: mu and pi on one token, whatever the cap, and mu flat at its cap.
    single = free_overlap(*(np.array(x) for x in (0.2, 0.3, 0.09, 0.5)))
    flat = free_overlap(*(np.array(x) for x in (0.4, 0.2, 0.03, 0.1)))
    assert single == pytest.approx(0.06) and flat == pytest.approx(0.02)


def flat() -> RealTokens:
    """Made up: mu's likeliest 20 hold about a hundredth of the mass; pi is noisy, or even on the next 2000.

    With the second a wider cap moves an end of the bracket by more than the mass of the record does.
    """
    rank = np.arange(49_152.0)
    mu = -0.3 * np.log1p(rank)
    noisy = mu + 0.5 * np.random.default_rng(0).standard_normal(rank.shape)
    even = np.where((rank >= 20) & (rank < 2020), 0.0, -8.0)
    logits = {"full_logits_mu": np.stack([mu, mu]), "full_logits_pi": np.stack([noisy, even])}
    return replace(ALL["bf16_base"], full_action=np.array([7, 7]), full_row=np.array([0, 1]), **logits)


@pytest.mark.parametrize("error", [0.02, 0.5])
@pytest.mark.parametrize("columns", [8, 20])
@pytest.mark.parametrize("tokens", [*ALL.values(), flat()], ids=[*ALL, "flat"])
def test_a_stated_error_widens_the_bracket_as_far_as_it_must(
    tokens: RealTokens, columns: int, error: float
) -> None:
    """The knapsack with cap and mass that far off, which sees the whole of pi, lies inside."""
    stored, mu, _ = observe(tokens, OBSERVED_COLUMNS)
    top = np.broadcast_to(np.arange(columns), (len(stored.action), columns))
    record = (tokens.full_logits_pi, stored.action, stored.log_mu_k, top, np.log(mu[:, :columns]))
    theirs = View.from_logits(*record, bracket=True, log_mu_error=error)
    ours, exact = view(stored, columns, log_mu_error=error), view(stored, columns)
    assert np.all((ours.overlap_low <= theirs.overlap_low) & (theirs.overlap_high <= ours.overlap_high))
    for mine, other in zip(change_interval(ours), change_interval(theirs), strict=True):
        assert np.max(np.abs(mine - other)) < 0.2  # and is no trivial bound: |c_k| < 2
    low, high = change_interval(theirs)
    assert np.all((change_interval(ours)[0] <= low) & (high <= change_interval(ours)[1]))
    if columns == 20:
        assert np.any(theirs.overlap_high > exact.overlap_high)  # so the widening is needed


def test_tail_sums_at_the_stored_columns_are_the_stored_ones() -> None:
    tokens = ALL["fp8_base"]
    for ours, stored in zip(
        tail_sums(tokens, 20), (tokens.mu_tail, tokens.pi_tail, tokens.pi_sq_tail), strict=True
    ):
        assert np.array_equal(ours, stored)


@each_pair
def test_cells_and_tail_sum_to_one(tokens: RealTokens) -> None:
    seen = view(tokens, tokens.columns)
    for cells in seen.cells:
        # each cell is off by p |log p| units, together below the entropy's log 22, and each tail by one
        assert np.max(np.abs(np.exp(cells).sum(axis=-1) - 1)) < 8 * FLOAT32
    assert np.max(np.abs(np.exp(2 * seen.log_pi).sum(-1) + seen.pi_tail_sq - tokens.pi_sq)) < 4 * FLOAT32


@each_pair
def test_coarse_divergences_grow_with_k_and_stay_below_the_exact_ones(tokens: RealTokens) -> None:
    for divergence, exact in ((FORWARD_KL, tokens.kl), (REVERSE_KL, tokens.reverse_kl), (TV, tokens.tv)):
        coarse = np.stack([divergence.measure(*view(tokens, k).cells) for k in (1, 5, 20)])
        # |d log p| <= 2^-20 where it matters least: a rounded log moves TV by less than 4 units
        assert np.all(np.diff(coarse, axis=0) > -4 * FLOAT32)
        assert np.all(coarse[-1] < exact + 4 * FLOAT32)
        assert np.sum(coarse[-1]) < 0.95 * np.sum(exact)


def test_a_view_beyond_the_stored_columns_is_refused() -> None:
    tokens = ALL["bf16_base"]
    for k in (0, 21):
        with pytest.raises(ValueError, match=f"k must be from 1 to the 20 stored columns, got {k}"):
            view(tokens, k)
    for error in (-0.1, math.inf, math.nan):
        with pytest.raises(ValueError, match="log_mu_error must be finite and >= 0"):
            view(tokens, 5, log_mu_error=error)


# ---- steps


@pytest.mark.parametrize("fraction", [0.1, -0.5, 2.0, -10.0])
@each_pair
def test_the_bracket_of_a_euclidean_step_holds_the_whole_truth(tokens: RealTokens, fraction: float) -> None:
    stored, mu, pi = observed(tokens.name)
    step = fraction * euclidean_flip_step(stored)
    low, high = euclidean_change(stored, step)
    truth = realised(mu, pi, step[:, None] * (one_hot(stored.action, tokens.vocab) - pi))
    rounding = 1e-14 * (1 + np.abs(step))  # sums of 49,152 terms, and s c_k beside a small change
    assert np.all((low - rounding <= truth) & (truth <= high + rounding))
    assert np.all(high - low < 0.05 * np.abs(truth) + rounding)


def test_the_bracket_is_not_empty_of_content() -> None:
    """From one column its ends differ by more than rounding, 1e-14, and truth is at neither."""
    stored, mu, pi = observed("fp8_stale", columns=1)
    low, high = euclidean_change(stored, step := np.full(len(mu), 8.0))
    truth = realised(mu, pi, step[:, None] * (one_hot(stored.action, stored.vocab) - pi))
    assert np.all((low < truth) & (truth < high)) and np.min((high - low) / truth) > 1e-5


@pytest.mark.parametrize("step", [0.3, -2.0])
@each_pair
def test_a_step_of_one_logit_is_exact_from_the_binary_view(tokens: RealTokens, step: float) -> None:
    stored, mu, pi = observed(tokens.name)
    truth = realised(mu, pi, step * one_hot(stored.action, tokens.vocab))
    assert (
        np.max(np.abs(one_logit_change(stored, np.full(len(truth), step)) - truth)) < 1e-13
    )  # sums of 49,152 terms


@each_pair
def test_flip_steps_are_where_a_decrease_ends(tokens: RealTokens) -> None:
    """To leading order: well below, the change is a decrease, well above an increase, nearly always."""
    slope = np.exp(tokens.log_pi_k) - np.exp(tokens.log_mu_k)
    decided = (np.abs(tokens.c) > 1e-6) & (np.abs(slope) > 1e-6)
    downhill = -np.sign(tokens.c) * euclidean_flip_step(tokens)
    assert np.all(euclidean_change(tokens, 0.2 * downhill)[1][decided] < 0)
    assert np.mean(euclidean_change(tokens, 4 * downhill)[0][decided] > 0) > 0.99
    downhill = -np.sign(slope) * one_logit_flip_step(tokens)
    assert np.mean(one_logit_change(tokens, 0.2 * downhill)[decided] < 0) > 0.99
    assert np.mean(one_logit_change(tokens, 4 * downhill)[decided] > 0) > 0.99
