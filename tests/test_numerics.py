"""Where floating point bites: tiny divergences, impossible tokens, half precision, underflow."""

from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import assert_close, batch, logs, numpy_of
from test_divergences import EVERY, each

from divsim.formulas import (
    CHI2_MU_PI,
    CHI2_PI_MU,
    FORWARD_KL,
    REVERSE_KL,
    TV,
    View,
    alpha,
    change,
    dppo,
    entropy,
    finite_change,
    log_softmax,
)


@pytest.mark.parametrize("vocab_size", [2, 5, 50, 1000, 50_000])
def test_tiny_kl_from_float32_logits(vocab_size: int, xp: Library) -> None:
    """Near 4e-7, within 0.1 % of float64 on the same logits, and never negative."""
    rng = np.random.default_rng(vocab_size)
    rows = max(4, 20_000 // vocab_size)
    z = rng.standard_normal((rows, vocab_size)) * rng.choice([0.5, 2.0, 4.0], (rows, 1))
    push = rng.standard_normal((rows, vocab_size))
    pi = np.exp(numpy_of(log_softmax(z)))
    spread = np.sum(pi * push**2, axis=-1) - np.sum(pi * push, axis=-1) ** 2
    moved = z + push * np.sqrt(2 * 4e-7 / spread)[:, None]  # KL = variance / 2 to second order
    behaviour, training = z.astype(np.float32), moved.astype(np.float32)
    exact = FORWARD_KL.measure(*(log_softmax(x.astype(np.float64)) for x in (behaviour, training)))
    ours = FORWARD_KL.measure(*(log_softmax(xp.array(x)) for x in (behaviour, training)))
    assert "float32" in str(ours.dtype)
    assert 2e-7 < np.median(exact) < 8e-7
    assert_close(ours, exact, rtol=1e-3)


@each
def test_float32_measures_are_never_negative(divergence: Any, xp: Library) -> None:
    for apart in (1e-7, 1e-5, 1e-3, 1.0):
        log_mu, log_pi = (xp.array(row.astype(np.float32)) for row in batch(80, (3000, 6), apart=apart))
        value = numpy_of(divergence.measure(log_mu, log_pi))
        assert np.all(value >= 0)
        assert np.all(numpy_of(divergence.measure(log_mu, log_mu)) == 0)


@pytest.mark.parametrize(
    ("logits", "expected"),
    [([0.0, -np.inf], 0.0), ([0.0, 0.0, -np.inf], np.log(2)), ([65504.0, -65504.0], 0.0)],
    ids=["one", "two", "float16 extremes"],
)
@pytest.mark.parametrize("precision", ["float16", "float32", "float64"])
def test_entropy_where_a_probability_is_zero(logits: list[float], expected: float, precision: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    z = torch.tensor(logits, dtype=getattr(torch, precision), requires_grad=True)
    value = entropy(log_softmax(z.to(torch.promote_types(z.dtype, torch.float32))))
    value.backward()
    assert_close(value, expected, rtol=1e-6, atol=0)
    assert bool(torch.isfinite(z.grad).all())


def test_impossible_under_both_leaves_everything_finite(xp: Library) -> None:
    """A padded vocabulary: the last logit is -inf for both policies."""
    log_mu, log_pi = (log_softmax(xp.array([row])) for row in ([0.0, 1.0, -np.inf], [1.0, 0.5, -np.inf]))
    view = View.full(log_mu, log_pi, xp.array([1]))
    bare = View.full(log_mu[:, :2], log_pi[:, :2], xp.array([1]))
    for divergence in EVERY:
        assert_close(divergence.measure(*view.cells), divergence.measure(*bare.cells), rtol=1e-14)
        assert_close(change(view, divergence), change(bare, divergence), rtol=1e-14)


def test_binary_kl_of_bfloat16_log_probs_sees_the_move() -> None:
    """mu = 0.9995, pi = 0.9, A = -1, delta = 0.05: KL = 0.102, so the token is dropped."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    log_mu_k, log_pi_k = (torch.tensor([p], dtype=torch.float64).log().bfloat16() for p in (0.9995, 0.9))
    view = View.sampled(log_mu_k, log_pi_k, vocab_size=1000)
    decision = dppo(FORWARD_KL, "binary", delta=0.05)(view, torch.tensor([-1.0]))
    assert_close(decision.divergence, [0.102], rtol=0, atol=1e-3)
    assert not bool(decision.keep[0])


@pytest.mark.parametrize(("precision", "low"), [("float32", -110.0), ("float64", -800.0)])
def test_underflow_is_not_nan(precision: str, low: float, xp: Library) -> None:
    """exp(low) is 0 in this precision, but the token is possible; log-probabilities tell the difference."""
    small = xp.array(np.array([np.log1p(-np.exp(-1)), -1.0, low], dtype=precision))
    gone = xp.array(np.array([np.log1p(-np.exp(-1)), -1.0, -np.inf], dtype=precision))
    infinite = {FORWARD_KL, CHI2_MU_PI, alpha(2.0)}
    for divergence in EVERY:
        there, back = divergence.measure(small, gone), divergence.measure(gone, small)
        assert not np.isnan(float(there)) and not np.isnan(float(back))
    for divergence in infinite:
        assert float(divergence.measure(small, gone)) == np.inf
    assert float(REVERSE_KL.measure(gone, small)) == np.inf
    assert float(CHI2_PI_MU.measure(gone, small)) == np.inf
    assert bool(np.all(np.isfinite(numpy_of(FORWARD_KL.logit_grad(small, gone)))))


@pytest.mark.parametrize("apart", [140.0, 250.0])
def test_terms_that_overflow_alone_but_not_together(apart: float, xp: Library) -> None:
    """mu_i = e^-110 and pi_i = e^(-110 - apart): mu_i^2 / pi_i is e^(apart - 110), whatever float32 holds."""
    log_mu = np.array([np.log1p(-np.exp(-1)), -1.0, -110.0])
    log_pi = np.array([np.log1p(-np.exp(-1)), -1.0, -110.0 - apart])
    mine = tuple(xp.array(row.astype(np.float32)) for row in (log_mu, log_pi))
    exact = CHI2_MU_PI.measure(log_mu, log_pi)
    expected = exact if exact < np.finfo(np.float32).max else np.inf
    # 110 + 250 in float32 is rounded at 3e-5, and so is what its exponential is multiplied with.
    assert_close(CHI2_MU_PI.measure(*mine), expected, rtol=1e-4)
    assert_close(CHI2_PI_MU.measure(*mine[::-1]), expected, rtol=1e-4)
    if np.isfinite(expected):
        assert_close(CHI2_MU_PI.logit_grad(*mine), CHI2_MU_PI.logit_grad(log_mu, log_pi), rtol=1e-4)
        assert_close(CHI2_PI_MU.logit_grad(*mine[::-1]), CHI2_PI_MU.logit_grad(log_pi, log_mu), rtol=1e-4)


def test_large_logits_keep_the_digits_of_small_log_probs(xp: Library) -> None:
    """float32 logits near 1000 are exact numbers; their log-probabilities must not be rounded at 1000."""
    logits = np.array([1000.0, 999.5, 990.25], dtype=np.float32)
    exact = numpy_of(log_softmax(logits.astype(np.float64)))
    assert_close(log_softmax(xp.array(logits)), exact, rtol=4 * float(np.finfo(np.float32).eps))


def test_ratio_of_a_drifted_token_overflows_to_infinity_and_no_further(xp: Library) -> None:
    log_mu_k, log_pi_k = (xp.array(np.array([x], dtype=np.float32)) for x in (-101, -1))
    view = View.sampled(log_mu_k, log_pi_k, vocab_size=10)
    assert float(view.ratio[0]) == np.inf
    assert_close(TV.measure(*view.cells), [np.exp(-1)], rtol=1e-6)


def test_masked_logits_through_from_logits(xp: Library) -> None:
    """A logit mask makes pi_i = 0: forward KL is +inf where mu has mass there, and its change is finite."""
    z = xp.array([[0.0, 0.0, -np.inf, -np.inf]])
    record = xp.array(logs([0.6])), xp.array([[0, 2]]), xp.array(logs([[0.6, 0.4]]))
    view = View.from_logits(z, xp.array([0]), *record, bracket=True)
    assert float(FORWARD_KL.measure(*view.cells)[0]) == np.inf
    # (pi_k - mu_k) + pi_0 (mu_0 - pi_0) + pi_1 (mu_1 - pi_1) with pi = (1/2, 1/2), mu = (3/5, 0)
    for tail in ("uniform", "aggregated", "proportional"):
        assert np.isfinite(float(change(view, tail=tail)[0]))
    assert_close(change(View.full(xp.array(logs([[0.6, 0, 0.4, 0]])), log_softmax(z), xp.array([0]))),
                 [-0.1 + 0.5 * 0.1 - 0.5 * 0.5], rtol=1e-14)  # fmt: skip


def test_the_gradient_of_a_finite_change_at_impossible_tokens() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    z = torch.tensor([[0.1, 0.2, -np.inf], [0.3, -0.4, -np.inf]], dtype=torch.float64, requires_grad=True)
    log_mu = torch.as_tensor(logs([[0.3, 0.7, 0.0], [0.3, 0.3, 0.4]]))
    move = torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64) * torch.tensor([[1.0], [30.0]])
    finite_change(log_mu, torch.log_softmax(z, dim=-1), move).sum().backward()
    assert bool(torch.isfinite(z.grad).all())
