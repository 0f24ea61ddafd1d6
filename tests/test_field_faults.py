"""Numeric faults that others met in the field (F1 to F6), end to end: view, rule, weights, and autograd.

A loss here is what a trainer makes of a decision: its value is the method's own surrogate, its gradient flows
through `(weight * A + pull) * log pi_k` alone.
"""

import math
from typing import Any

import numpy as np
import pytest
from pairs import assert_close
from rule_cases import sees

from divsim.formulas import (
    AGGREGATIONS,
    DIVERGENCES,
    FORWARD_KL,
    RULES,
    Decision,
    Rule,
    View,
    aggregate,
    change,
    clip_higher,
    dppo,
    dual_clip,
    entropy,
    k3,
    k3_pull,
    log_softmax,
    loss_weights,
    make_rule,
    ppo_clip,
)

torch = pytest.importorskip("torch")

INF = math.inf
LITTER = (0.0, 1.0, -200.0, 200.0, 1e30, INF, -INF, math.nan)
SAMPLED = [name for name in RULES if "sampled" in sees(name)]


def tensor(values: Any, dtype: Any = None) -> Any:
    return torch.tensor(values, dtype=dtype or torch.float64)


def loss_and_gradient(
    decision: Decision, log_pi_k: Any, aggregation: str = "token_mean", extra_pull: Any = 0.0
) -> tuple[float, Any]:
    """Minus the aggregated objective, and its gradient in log pi_k."""
    horizon = 4 if aggregation == "constant_length" else None
    weights = loss_weights(decision.is_response, aggregation, horizon)
    push = decision.weight * decision.advantage + decision.pull + extra_pull
    (-aggregate(push * log_pi_k, weights)).backward()
    return float(-aggregate(decision.surrogate, weights)), log_pi_k.grad


def train(
    rule: Rule,
    lp: Any,
    lm: Any,
    advantage: Any,
    mask: Any,
    dtype: Any = None,
    aggregation: str = "token_mean",
) -> tuple[float, Any]:
    """One loss of sampled tokens (B, T) given as lists."""
    log_pi_k = tensor(lp, dtype).requires_grad_()
    is_response = torch.tensor(mask, dtype=torch.bool)
    view = View.sampled(tensor(lm, dtype), log_pi_k, vocab_size=10, is_response=is_response)
    return loss_and_gradient(rule(view, tensor(advantage, dtype), is_response), log_pi_k, aggregation)


def test_f1_padding_with_a_huge_log_ratio() -> None:
    loss, gradient = train(ppo_clip(), [[-1.0, 0.0]], [[-1.0, -200.0]], [[1.0, 1.0]], [[1, 0]])
    assert loss == -1.0
    assert gradient.tolist() == [[-1.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SAMPLED)
def test_f1_for_every_rule_whatever_the_padding_holds(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    for aggregation in AGGREGATIONS:
        clean = train(
            make_rule(name), [[-1.0, 0.0], [-2.0, -0.5]], [[-1.5, 0.0], [-1.0, -0.5]],
            [[1.0, 0.0], [-1.0, 0.5]], [[1, 0], [1, 1]], dtype, aggregation,
        )  # fmt: skip
        assert math.isfinite(clean[0]) and bool(torch.isfinite(clean[1]).all())
        assert clean[1][0, 1] == 0
        for _ in range(3):
            x, y, z = rng.choice(LITTER, 3).tolist()
            littered = train(
                make_rule(name), [[-1.0, x], [-2.0, -0.5]], [[-1.5, y], [-1.0, -0.5]],
                [[1.0, z], [-1.0, 0.5]], [[1, 0], [1, 1]], dtype, aggregation,
            )  # fmt: skip
            assert littered[0] == clean[0]
            assert torch.equal(littered[1], clean[1])


def surrogate_through_the_ratio(lp: Any, lm: Any, mask: Any) -> Any:
    """The fault itself: exp of everything, the clamp and the mask afterwards."""
    log_pi_k = tensor(lp).requires_grad_()
    ratio = torch.exp(log_pi_k - tensor(lm))
    (-(torch.minimum(ratio, ratio.clamp(0.8, 1.2)) * tensor(mask)).sum()).backward()
    return log_pi_k.grad


def test_f1_is_a_fault_that_this_input_shows() -> None:
    gradient = surrogate_through_the_ratio([[-1.0, 0.0]], [[-1.0, -800.0]], [[1.0, 0.0]])
    assert bool(torch.isnan(gradient).any())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("drift", [100.0, 12.0, 89.0, 710.0])
def test_f2_a_clipped_token_has_no_gradient_however_far_it_drifted(drift: float, dtype: Any) -> None:
    for rule, high in ((ppo_clip(), 1.2), (clip_higher(), 1.28), (dual_clip(), 1.2)):
        loss, gradient = train(rule, [[-1.0]], [[-1.0 - drift]], [[1.0]], [[1]], dtype)
        assert loss == pytest.approx(-high, rel=1e-6)
        assert gradient.tolist() == [[0.0]]
    loss, gradient = train(dual_clip(), [[-1.0]], [[-1.0 - drift]], [[-1.0]], [[1]], dtype)
    assert (loss, gradient.tolist()) == (3.0, [[0.0]])
    loss, gradient = train(ppo_clip(), [[-1.0]], [[-1.0 - drift]], [[-1.0]], [[1]], dtype)
    assert math.isfinite(loss) and float(gradient) == pytest.approx(math.exp(min(drift, 20.0)), rel=1e-5)


@pytest.mark.parametrize("name", SAMPLED)
def test_f2_every_rule_is_finite_on_a_drifted_token(name: str) -> None:
    for drift in (100.0, 800.0, -700.0):
        for advantage in (1.0, -1.0, 0.0):
            loss, gradient = train(make_rule(name), [[-701.0]], [[-701.0 - drift]], [[advantage]], [[1]])
            assert math.isfinite(loss) and bool(torch.isfinite(gradient).all())


def test_f3_a_reference_penalty_of_a_drifted_token() -> None:
    for drift, masked, value, push in (
        (1.0, False, 0.718282, math.e - 1),
        (200.0, True, 0.0, 0.0),
        (200.0, False, math.exp(20) - 21, math.exp(20) - 1),
    ):
        log_pi_k = tensor([[-1.0, -1.0]]).requires_grad_()
        log_ref = log_pi_k.detach() + tensor([[0.0, drift]])
        is_response = torch.tensor([[True, not masked]])
        view = View.sampled(log_pi_k, log_pi_k, 10, is_response=is_response)
        decision = ppo_clip()(view, torch.zeros(1, 2, dtype=torch.float64), is_response)
        _, gradient = loss_and_gradient(decision, log_pi_k, extra_pull=k3_pull(log_ref - log_pi_k.detach()))
        count = 1 if masked else 2
        penalty = aggregate(k3(log_ref - log_pi_k.detach()), loss_weights(is_response))
        assert float(penalty) == pytest.approx(value / count, rel=1e-6)
        assert gradient[0].tolist() == pytest.approx([0.0, -push / count], rel=1e-12)


@pytest.mark.parametrize(
    ("logits", "dtype", "right"),
    [
        ([0.0, -INF], torch.float64, 0.0),
        ([0.0, 0.0, -INF], torch.float64, 0.693147),
        ([0.0, 0.0, -INF, -INF], torch.float32, 0.693147),
        ([65504.0, -65504.0], torch.float16, 0.0),
        ([1e30, -1e30], torch.float32, 0.0),
    ],
)
def test_f4_entropy_with_impossible_tokens(logits: list[float], dtype: Any, right: float) -> None:
    z = torch.tensor(logits, dtype=dtype, requires_grad=True)
    value = entropy(log_softmax(z))
    value.backward()
    assert float(value.detach()) == pytest.approx(right, abs=5e-7)
    assert bool(torch.isfinite(z.grad).all())


@pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=lambda d: d.name)
def test_f4_a_padded_vocabulary_changes_no_divergence(divergence: Any) -> None:
    rng = np.random.default_rng(4)
    mu_logits, pi_logits = (tensor(rng.standard_normal((50, 5))) for _ in range(2))
    action = torch.as_tensor(rng.integers(5, size=50))
    none = torch.full((50, 3), -INF, dtype=torch.float64)

    def whole(*more: Any) -> View:
        rows = [torch.cat([z, *more], dim=-1) for z in (mu_logits, pi_logits)]
        return View.full(torch.log_softmax(rows[0], dim=-1), torch.log_softmax(rows[1], dim=-1), action)

    short, padded = whole(), whole(none)
    assert_close(divergence.measure(*padded.cells), divergence.measure(*short.cells), rtol=1e-13)
    assert_close(change(padded, divergence), change(short, divergence), rtol=1e-12, atol=1e-16)
    z = torch.cat([pi_logits, none], dim=-1).requires_grad_()
    divergence.measure(padded.log_mu, log_softmax(z)).sum().backward()
    assert bool(torch.isfinite(z.grad).all())


@pytest.mark.parametrize("name", [name for name in RULES if "uniform" not in name])
def test_f4_a_padded_vocabulary_changes_no_decision(name: str) -> None:
    """Left out: the uniform tail, which counts hidden tokens, possible or not. The certificate cannot know
    that mu has no mass on them, and may prove less."""
    rng = np.random.default_rng(5)
    mu_logits, pi_logits = rng.standard_normal((2, 60, 6))
    action, advantage = torch.as_tensor(rng.integers(6, size=60)), tensor(rng.standard_normal(60))

    def decide(more: int) -> Decision:
        rows = [tensor(np.pad(z, ((0, 0), (0, more)), constant_values=-INF)) for z in (mu_logits, pi_logits)]
        log_mu, log_pi = (torch.log_softmax(z, dim=-1) for z in rows)
        if "_full_" in name:
            return make_rule(name)(View.full(log_mu, log_pi, action), advantage)
        return make_rule(name)(View.top_k(log_mu, log_pi, action, k=3, bracket=True), advantage)

    short, padded = decide(0), decide(4)
    assert bool((padded.keep | ~short.keep).all())
    if name != "certified":
        assert torch.equal(short.keep, padded.keep)
        assert_close(padded.weight, short.weight, rtol=1e-13)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("mu_k", "pi_k", "tolerance"),
    # log .9995 = -5.00e-4 and log .9 = -0.1054 each round by 2^-9 (bf16) or 2^-12
    [(0.9995, 0.9, 1e-3), (0.999999, 0.9, 1e-3), (0.9999, 0.5, 4e-3), (0.9, 0.5, 4e-3)],
)
def test_f5_log_probabilities_are_lifted_before_the_exponential(
    mu_k: float, pi_k: float, tolerance: float, dtype: Any
) -> None:
    log_mu_k, log_pi_k = (torch.tensor([[math.log(p)]]).to(dtype) for p in (mu_k, pi_k))
    decision = dppo(FORWARD_KL, "binary", 0.05)(
        View.sampled(log_mu_k, log_pi_k, vocab_size=10), torch.tensor([[-1.0]])
    )
    right = mu_k * math.log(mu_k / pi_k) + (1 - mu_k) * math.log((1 - mu_k) / (1 - pi_k))
    assert decision.divergence is not None
    assert float(decision.divergence) == pytest.approx(right, abs=tolerance)
    assert not bool(decision.keep)
    assert decision.weight.dtype == torch.float32


def test_f5_golden() -> None:
    log_mu_k, log_pi_k = (torch.tensor([[math.log(p)]]).bfloat16() for p in (0.9995, 0.9))
    view = View.sampled(log_mu_k, log_pi_k, vocab_size=10)
    decision = make_rule("dppo_binary_kl")(view, torch.tensor([[-1.0]]))
    assert decision.divergence is not None
    assert float(decision.divergence) == pytest.approx(0.102, abs=1e-3)
    assert not bool(decision.keep)
    clamped = log_mu_k.exp().clamp(
        1e-6, 1 - 1e-6
    )  # the fault: in bfloat16 this is 1, and the rest has no mass
    assert float(1 - clamped) == 0.0


@pytest.mark.parametrize("second", LITTER)
def test_f6_a_sentinel_in_padding_reaches_no_metric(second: float) -> None:
    log_pi_k, is_response = tensor([[-2.0, second]]), torch.tensor([[True, False]])
    weights = loss_weights(is_response)
    for second_mu in LITTER:
        view = View.sampled(tensor([[-2.5, second_mu]]), log_pi_k, 10, is_response=is_response)
        assert float(aggregate(-view.log_pi_k, weights)) == 2.0
        assert float(aggregate(view.ratio, weights)) == pytest.approx(math.exp(0.5), rel=1e-15)
        assert float(aggregate(k3(view.log_pi_k - view.log_mu_k), weights)) == pytest.approx(
            math.exp(0.5) - 1.5, rel=1e-14
        )
        binary = FORWARD_KL.measure(*view.binary().cells)
        alone = View.sampled(tensor([[-2.5]]), tensor([[-2.0]]), 10)
        assert float(aggregate(binary, weights)) == float(FORWARD_KL.measure(*alone.cells))
        raw = aggregate(-log_pi_k, weights)  # also where nobody asked the view
        assert float(raw) == 2.0


def test_f6_the_sentinel_is_an_error_where_it_is_not_padding() -> None:
    with pytest.raises(ValueError, match=r"log_pi_k must be log-probabilities .+ got 1 at \[0, 1\]"):
        View.sampled(tensor([[-2.0, -2.0]]), tensor([[-2.0, 1.0]]), 10)
