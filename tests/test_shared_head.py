"""The shared head: its training against torch, its effects against loops over autograd and closed forms."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from divsim.formulas import FORWARD_KL, View, change, finite_change, log_softmax
from divsim.tabular.optimisers import Moments, Optimiser, adam, sgd
from divsim.tabular.policies import PolicyPair
from divsim.tabular.shared_head import (
    CLUSTERS,
    SETTINGS,
    VOCAB,
    Minibatch,
    Setting,
    collect,
    effects,
)

Floats = NDArray[np.float64]

settings = pytest.mark.parametrize("name", SETTINGS)
RARE = 1e-4  # a right generator is refused once in so many seeds; these are fixed
TOKENS = 24


def minibatch(name: str) -> Minibatch:
    return collect(SETTINGS[name], TOKENS, np.random.default_rng(5))


def small(optimiser: Optimiser, tokens: int = 6, vocab: int = 9, width: int = 4) -> tuple[Minibatch, Floats]:
    """A minibatch small enough for loops, with its head and moments of a step before."""
    rng = np.random.default_rng(11)
    head, hidden = rng.standard_normal((vocab, width)), rng.standard_normal((tokens, width))
    log_pi = log_softmax(hidden @ head.T)
    log_mu = log_softmax(hidden @ head.T + 0.7 * rng.standard_normal((tokens, vocab)))
    moments = Moments(0.1 * rng.standard_normal(head.shape), 0.1 * rng.random(head.shape), 3)
    action, advantage = rng.integers(vocab, size=tokens), rng.standard_normal(tokens)
    batch = Minibatch(Setting("s", optimiser), hidden, PolicyPair(log_mu, log_pi), action, advantage, moments)
    return batch, head


def kl_after(batch: Minibatch, head: Floats, moved: Floats) -> Floats:
    return np.asarray(FORWARD_KL.measure(batch.pair.log_mu, log_softmax(batch.hidden @ (head + moved).T)))


def gradient_of(batch: Minibatch, head: Floats, tokens: list[int]) -> Floats:
    """Of the mean of r A over the batch, the sum over some tokens, by autograd."""
    weights = torch.tensor(head, requires_grad=True)
    log_pi = torch.log_softmax(torch.tensor(batch.hidden) @ weights.T, dim=-1)
    k = torch.tensor(batch.action)
    ratio = torch.exp(
        log_pi.gather(1, k[:, None])[:, 0] - torch.tensor(batch.pair.log_mu).gather(1, k[:, None])[:, 0]
    )
    loss = sum(ratio[t] * batch.advantage[t] for t in tokens) / len(batch.action)
    found: Floats = torch.autograd.grad(loss, weights)[0].numpy()
    return found


@pytest.mark.parametrize("optimiser", [sgd(0.3), adam(0.05)], ids=lambda o: o.name)
def test_effects_are_what_loops_over_autograd_find(optimiser: Optimiser) -> None:
    batch, head = small(optimiser)
    everyone = list(range(len(batch.action)))
    before = kl_after(batch, head, np.zeros_like(head))
    delta = float(np.median(before))
    found = effects(batch, delta)
    whole, _ = optimiser.step(gradient_of(batch, head, everyone), batch.moments)
    far = before > delta
    # differences of divergences of size 1, each with a rounding of some 1e-16
    np.testing.assert_allclose(found.whole, kl_after(batch, head, whole) - before, atol=1e-13)
    scale = optimiser.scale(gradient_of(batch, head, everyone), batch.moments)
    for token in everyone:
        others = [t for t in everyone if t != token]
        without, _ = optimiser.step(gradient_of(batch, head, others), batch.moments)
        difference = kl_after(batch, head, whole) - kl_after(batch, head, without)
        np.testing.assert_allclose(found.marginal[token], difference[token], atol=1e-13)
        np.testing.assert_allclose(found.marginal_total[token], difference[far].sum(), atol=1e-13)
        own = scale * gradient_of(batch, head, [token])
        np.testing.assert_allclose(found.own[token], (kl_after(batch, head, own) - before)[token], atol=1e-13)


@pytest.mark.parametrize("optimiser", [sgd(1.0), adam(1.0)], ids=lambda o: o.name)
def test_rates_are_the_derivatives_of_the_effects(optimiser: Optimiser) -> None:
    batch, head = small(optimiser)
    found = effects(batch, delta=0.2)
    scale = optimiser.scale(gradient_of(batch, head, list(range(6))), batch.moments)
    update, _ = optimiser.step(gradient_of(batch, head, list(range(6))), batch.moments)
    h = 1e-6  # central difference: error h^2 and rounding 1e-16 / h
    for token in range(6):
        own = scale * gradient_of(batch, head, [token])
        slope = (kl_after(batch, head, h * own) - kl_after(batch, head, -h * own))[token] / (2 * h)
        np.testing.assert_allclose(found.own_rate[token], slope, atol=1e-7)
    slopes = (kl_after(batch, head, h * update) - kl_after(batch, head, -h * update)) / (2 * h)
    np.testing.assert_allclose(found.whole_rate, slopes, atol=1e-7)


def test_under_sgd_the_own_rate_has_the_sign_of_the_change() -> None:
    batch = minibatch("sgd")
    c = change(View.full(batch.pair.log_mu, batch.pair.log_pi, batch.action))
    rate = effects(batch, 0.05).own_rate
    big = np.abs(rate) > 1e-12
    assert np.array_equal(np.sign(rate[big]), np.sign((batch.advantage * c)[big]))


def test_marginal_effects_of_independent_tokens_are_their_own() -> None:
    batch, head = small(sgd(0.3), tokens=3, width=4)
    apart = replace(batch, hidden=np.eye(4)[:3], pair=PolicyPair(batch.pair.log_mu, log_softmax(head.T[:3])))
    found = effects(apart, delta=0.0)
    np.testing.assert_allclose(found.marginal, found.own, atol=1e-14)
    np.testing.assert_allclose(found.whole, found.own, atol=1e-14)


def test_under_sgd_the_own_step_is_one_step_on_the_logits_of_a_size_in_closed_form() -> None:
    """|h|^2 rate / N times A r (e_k - pi): the share of the gradient is A r (e_k - pi) h^T / N."""
    batch = minibatch("sgd_engine")
    log_mu, log_pi, tokens = batch.pair.log_mu, batch.pair.log_pi, np.arange(TOKENS)
    ratio = np.exp(log_pi - log_mu)[tokens, batch.action]
    size = 0.2 * np.sum(batch.hidden**2, axis=-1) / TOKENS * batch.advantage * ratio
    move = size[:, None] * (np.eye(VOCAB)[batch.action] - np.exp(log_pi))
    found = effects(batch, 0.05)
    np.testing.assert_allclose(found.own, finite_change(log_mu, log_pi, move), rtol=1e-9, atol=1e-15)
    c = change(View.full(log_mu, log_pi, batch.action))
    np.testing.assert_allclose(found.own_rate, size * c, rtol=1e-9, atol=1e-15)  # sums over 512 tokens


def test_without_far_tokens_nothing_happens_to_them() -> None:
    found = effects(minibatch("sgd"), delta=np.inf)
    assert np.array_equal(found.marginal_total, np.zeros(TOKENS))
    assert np.all(found.marginal != 0)


def test_with_one_token_all_meanings_are_one_under_sgd() -> None:
    batch, _ = small(sgd(0.3), tokens=1)
    found = effects(batch, delta=0.0)
    for other in (found.marginal, found.marginal_total, found.whole):
        np.testing.assert_allclose(other, found.own, rtol=1e-12)
    np.testing.assert_allclose(found.whole_rate, found.own_rate, rtol=1e-12)


@settings
def test_a_masked_update_is_that_of_the_kept_tokens(name: str) -> None:
    batch = minibatch(name)
    keep = np.arange(TOKENS) % 3 > 0
    silent = replace(batch, advantage=batch.advantage * keep)
    assert np.array_equal(batch.update(keep), silent.update())


@settings
def test_it_is_drawn_from_its_generator_alone_and_leaves_some_tokens_far(name: str) -> None:
    first, again = minibatch(name), minibatch(name)
    assert np.array_equal(first.pair.log_pi, again.pair.log_pi)
    assert first.pair.log_pi.shape == (TOKENS, VOCAB)
    kl = FORWARD_KL.measure(first.pair.log_mu, first.pair.log_pi)
    assert np.any(kl > 0.01)
    assert abs(first.advantage.mean()) < 1e-15


def variance_is(values: Floats, sd: float, lost: int) -> bool:
    """Whether independent normal values, less some fitted means, have this standard deviation."""
    low, high = stats.chi2(values.size - lost).interval(1 - RARE)
    return bool(low <= np.sum(values**2) / sd**2 <= high)


def at_pass(setting: Setting, passes: int, tokens: int = TOKENS) -> Minibatch:
    """Minibatches of one seed share their draws, so that every pass of a training can be looked at."""
    return collect(replace(setting, passes=passes), tokens, np.random.default_rng(5))


@pytest.mark.parametrize(
    ("setting", "theirs"),
    [
        (Setting("sgd", sgd(0.5)), lambda p: torch.optim.SGD(p, lr=0.5)),
        (Setting("adam", adam(0.02)), lambda p: torch.optim.Adam(p, lr=0.02)),
    ],
    ids=["sgd", "adam"],
)
def test_the_passes_are_training_by_torch(
    setting: Setting, theirs: Callable[[list[torch.Tensor]], torch.optim.Optimizer]
) -> None:
    """Without engine noise the logits of mu are those of the first head, so only its displacement counts."""
    moved = torch.zeros(VOCAB, setting.width, dtype=torch.float64, requires_grad=True)
    optimiser = theirs([moved])
    for passes in range(4):
        batch = at_pass(setting, passes)
        log_mu, action = torch.tensor(batch.pair.log_mu), torch.tensor(batch.action)[:, None]
        log_pi = torch.log_softmax(log_mu + torch.tensor(batch.hidden) @ moved.T, dim=-1)
        # logits of up to 30 through a product of 32 terms and a softmax, on two machines of sums
        np.testing.assert_allclose(batch.pair.log_pi, log_pi.detach().numpy(), atol=1e-10)
        log_ratio = (log_pi - log_mu).gather(1, action)[:, 0]
        optimiser.zero_grad()
        (-torch.mean(torch.exp(log_ratio) * torch.tensor(batch.advantage))).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


@settings
def test_passes_are_counted_in_the_setting(name: str) -> None:
    stopped = at_pass(SETTINGS[name], SETTINGS[name].passes)
    assert np.array_equal(stopped.pair.log_pi, minibatch(name).pair.log_pi)
    if SETTINGS[name].optimiser.name == "adam":
        assert stopped.moments.steps == SETTINGS[name].passes


def test_before_any_pass_only_the_engine_tells_mu_from_pi() -> None:
    quiet, noisy = (at_pass(replace(SETTINGS["sgd"], noise=noise), 0) for noise in (0.0, 0.3))
    assert np.array_equal(quiet.pair.log_mu, quiet.pair.log_pi)
    assert np.array_equal(quiet.pair.log_pi, noisy.pair.log_pi)
    error = noisy.pair.log_mu - noisy.pair.log_pi
    error = error - error.mean(axis=-1, keepdims=True)  # known up to a shift
    assert variance_is(error, 0.3, lost=TOKENS)


def test_tokens_come_from_mu() -> None:
    batch = at_pass(replace(SETTINGS["sgd"], noise=1.0), 0, tokens=1000)
    log_ratio = (batch.pair.log_mu - batch.pair.log_pi)[np.arange(1000), batch.action]
    surprise = log_ratio - FORWARD_KL.measure(batch.pair.log_mu, batch.pair.log_pi)
    assert stats.ttest_1samp(surprise, 0.0).pvalue > RARE


def test_logits_are_a_bias_by_rank_and_a_product_of_the_stated_spread() -> None:
    # So wide that the states of two tokens are as good as orthogonal, and their logits independent.
    batch = at_pass(Setting("wide", sgd(1.0), width=4000, kinship=0.0), 0, tokens=200)
    rank = np.log1p(np.arange(VOCAB))
    slopes = np.polyfit(rank, batch.pair.log_mu.T, 1)[0]
    assert stats.ttest_1samp(slopes, -1.5).pvalue > RARE
    product = batch.pair.log_mu + 1.5 * rank
    product = product - product.mean(axis=-1, keepdims=True)
    assert variance_is(product / np.sqrt(np.mean(batch.hidden**2, axis=-1, keepdims=True)), 5.0, lost=200)


@pytest.mark.parametrize("kinship", [0.0, 0.8, 1.0])
def test_kinship_is_the_share_of_variance_within_a_cluster(kinship: float) -> None:
    """With probability 1 / CLUSTERS two tokens are kin, and only then their states correlate."""
    hidden = at_pass(Setting("kin", sgd(1.0), width=3000, kinship=kinship), 0, tokens=64).hidden
    angle = (hidden @ hidden.T / 3000)[np.triu_indices(64, 1)]
    kin = angle > 0.4
    # a mean of 3000 products of variance at most 2, the largest of 2016 of them: 6 standard errors
    rounding = 6 * np.sqrt(2 / 3000)
    assert np.all(np.abs(angle - kinship * kin) < rounding)
    assert np.all(np.abs(np.mean(hidden**2, axis=-1) - 1) < rounding)
    low, high = stats.binom(len(kin), 1 / CLUSTERS).interval(1 - RARE)
    assert low <= kin.sum() <= high if kinship else kin.sum() == 0


def test_an_advantage_belongs_to_the_cluster_and_the_token() -> None:
    batch = at_pass(Setting("kin", sgd(1.0), kinship=1.0), 0, tokens=3000)
    worth: dict[tuple[float, int], float] = {}
    repeats = 0
    keys = zip(batch.hidden[:, 0].tolist(), batch.action.tolist(), strict=True)
    for place, advantage in zip(keys, batch.advantage.tolist(), strict=True):
        repeats += place in worth
        assert worth.setdefault(place, advantage) == advantage
    assert repeats > 100
    assert len(np.unique(batch.hidden[:, 0])) == CLUSTERS
    assert abs(batch.advantage.mean()) < 1e-15  # 3000 numbers of size 1, summed in pairs
    values = np.array(list(worth.values()))
    assert len(np.unique(values)) == len(worth)
    assert variance_is(values - values.mean(), 1.0, lost=1)
