"""The shared head: its gradient against autograd, its steps against torch, its effects against loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from divsim.formulas import FORWARD_KL, log_softmax
from divsim.tabular.optimisers import Moments, Optimiser, adam, sgd
from divsim.tabular.policies import PolicyPair
from divsim.tabular.shared_head import SETTINGS, VOCAB, Minibatch, Setting, collect, effects

settings = pytest.mark.parametrize("name", SETTINGS)
TOKENS = 24


def minibatch(name: str) -> Minibatch:
    return collect(SETTINGS[name], TOKENS, np.random.default_rng(5))


def small(
    optimiser: Optimiser, tokens: int = 6, vocab: int = 9, width: int = 4
) -> tuple[Minibatch, np.ndarray]:
    """A minibatch small enough for loops, with its head and moments of a step before."""
    rng = np.random.default_rng(11)
    head, hidden = rng.standard_normal((vocab, width)), rng.standard_normal((tokens, width))
    log_pi = log_softmax(hidden @ head.T)
    log_mu = log_softmax(hidden @ head.T + 0.7 * rng.standard_normal((tokens, vocab)))
    moments = Moments(0.1 * rng.standard_normal(head.shape), 0.1 * rng.random(head.shape), 3)
    action, advantage = rng.integers(vocab, size=tokens), rng.standard_normal(tokens)
    batch = Minibatch(Setting("s", optimiser), hidden, PolicyPair(log_mu, log_pi), action, advantage, moments)
    return batch, head


def kl_after(batch: Minibatch, head: np.ndarray, moved: np.ndarray) -> np.ndarray:
    return FORWARD_KL.measure(batch.pair.log_mu, log_softmax(batch.hidden @ (head + moved).T))


def gradient_of(batch: Minibatch, head: np.ndarray, tokens: list[int]) -> np.ndarray:
    """Of the mean of r A over the batch, the sum over some tokens, by autograd."""
    weights = torch.tensor(head, requires_grad=True)
    log_pi = torch.log_softmax(torch.tensor(batch.hidden) @ weights.T, dim=-1)
    k = torch.tensor(batch.action)
    ratio = torch.exp(
        log_pi.gather(1, k[:, None])[:, 0] - torch.tensor(batch.pair.log_mu).gather(1, k[:, None])[:, 0]
    )
    loss = sum(ratio[t] * batch.advantage[t] for t in tokens) / len(batch.action)
    (found,) = torch.autograd.grad(loss, weights)
    return found.numpy()


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
    from divsim.formulas import View, change

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


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(sgd(0.2), lambda p: torch.optim.SGD(p, lr=0.2)), (adam(0.01), lambda p: torch.optim.Adam(p, lr=0.01))],
    ids=["sgd", "adam"],
)
def test_steps_are_those_of_torch(ours: Optimiser, theirs: object) -> None:
    rng = np.random.default_rng(0)
    weights = torch.zeros(5, 3, dtype=torch.float64, requires_grad=True)
    optimiser = theirs([weights])  # type: ignore[operator]
    mine, moments = np.zeros((5, 3)), Moments(np.zeros((5, 3)), np.zeros((5, 3)))
    for _ in range(20):
        gradient = rng.standard_normal((5, 3))
        weights.grad = -torch.from_numpy(gradient)  # torch descends
        optimiser.step()
        step, moments = ours.step(gradient, moments)
        mine = mine + step
        np.testing.assert_allclose(mine, weights.detach().numpy(), rtol=1e-12, atol=1e-15)


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
