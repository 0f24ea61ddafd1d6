"""KL estimators from samples: what they average to by enumeration, how large they grow, how they pull."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import assert_close, batch, numpy_of

from divsim.formulas import SAMPLED_KL, aggregate, k1, k2, k3, k3_pull, loss_weights

Estimator = Callable[..., Any]


def check_unbiased(estimator: Estimator, apart: float = 1.0) -> None:
    """E_{k~p}[estimate of log q - log p at k] = KL(p || q), by enumeration of every token."""
    log_p, log_q = batch(91, (50, 6), apart=apart)
    kl = np.sum(np.exp(log_p) * (log_p - log_q), axis=-1)
    mean = np.sum(np.exp(log_p) * estimator(log_q - log_p), axis=-1)
    assert_close(mean, kl, rtol=1e-9, atol=1e-14)  # terms up to 1e5 times the sum, at weights that small


@pytest.mark.parametrize("estimator", [k1, k3])
@pytest.mark.parametrize("apart", [1e-3, 0.3, 1.0, 3.0])
def test_unbiased(estimator: Estimator, apart: float) -> None:
    check_unbiased(estimator, apart)


def reversed_k3(x: Any) -> Any:
    return k3(-x)


def halved_k3(x: Any) -> Any:
    return k3(x) / 2


@pytest.mark.parametrize("estimator", [k2, reversed_k3, halved_k3])
def test_enumeration_sees_a_bias(estimator: Estimator) -> None:
    with pytest.raises(AssertionError):
        check_unbiased(estimator)


def test_k2_is_unbiased_to_second_order() -> None:
    """KL(p || q) = Var_p(x) / 2 + O(x^3), whichever of the two policies drew the token."""
    log_p, log_q = batch(92, (50, 6), apart=1e-4)
    kl = np.sum(np.exp(log_p) * k3(log_q - log_p), axis=-1)
    mean = np.sum(np.exp(log_p) * k2(log_q - log_p), axis=-1)
    assert_close(mean - np.sum(np.exp(log_p) * (log_q - log_p), axis=-1) ** 2 / 2, kl, rtol=1e-3)


def test_the_names_are_these() -> None:
    assert {"k1": k1, "k2": k2, "k3": k3} == SAMPLED_KL


# mp.dps = 50; [mp.e ** x - 1 - x for x in map(mpf, ("1", "-1", "0.5", "1e-3", "-1e-6"))]
K3_GOLDEN = {
    1.0: 0.71828182845904524,
    -1.0: 0.36787944117144232,
    0.5: 0.14872127070012815,
    1e-3: 5.0016670834166806e-7,
    -1e-6: 4.9999983333337500e-13,
}


def test_k3_golden(xp: Library) -> None:
    for x, right in K3_GOLDEN.items():
        # expm1(x) - x rounds at 1e-16 of x, which is 2 / x times that of x^2 / 2
        assert float(k3(xp.array(np.array(x)))) == pytest.approx(right, rel=4e-16 / min(abs(x), 1.0))


def test_k3_is_never_negative(xp: Library) -> None:
    x = np.concatenate([s * np.logspace(-18, 2, 201) for s in (1, -1)])
    for dtype in (np.float32, np.float64):
        assert (numpy_of(k3(xp.array(x.astype(dtype)))) >= 0).all()
    assert float(k3(xp.array(np.array(0.0)))) == 0.0


def test_f3_a_drifted_token_is_large_and_finite(xp: Library) -> None:
    for dtype in (np.float32, np.float64):
        for x in (89.0, 200.0, 710.0, 1e30):
            value, pull = (float(f(xp.array(np.array(x, dtype)))) for f in (k3, k3_pull))
            assert value == pytest.approx(math.exp(20) - 21, rel=1e-5)
            assert pull == pytest.approx(math.exp(20) - 1, rel=1e-5)
        assert float(k3(xp.array(np.array(-200.0, dtype)))) == 199.0
    assert float(k3(xp.array(np.array(200.0)), cap=5.0)) == pytest.approx(math.exp(5) - 6, rel=1e-14)


@pytest.mark.parametrize("litter", [200.0, 1e30, math.inf, -math.inf, math.nan])
def test_f3_a_masked_token_contributes_nothing(litter: float) -> None:
    torch = pytest.importorskip("torch")
    log_pi = torch.tensor([[-1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    log_ref = torch.tensor([[0.0, litter]], dtype=torch.float64)
    weights = loss_weights(torch.tensor([[True, False]]))
    penalty = aggregate(k3(log_ref - log_pi), weights)
    penalty.backward()
    assert float(penalty.detach()) == pytest.approx(0.718282, abs=5e-7)
    assert numpy_of(log_pi.grad)[0].tolist() == pytest.approx([1 - math.e, 0.0], rel=1e-14)


@pytest.mark.parametrize("x", [-5.0, -1e-3, 0.0, 1e-3, 1.0, 15.0])
def test_the_pull_is_minus_the_derivative(x: float) -> None:
    torch = pytest.importorskip("torch")
    log_pi = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    k3(torch.tensor(x - 1.0, dtype=torch.float64) - log_pi).backward()
    assert float(log_pi.grad) == pytest.approx(
        -float(k3_pull(torch.tensor(x, dtype=torch.float64))), abs=1e-15
    )


def test_what_the_pull_descends_on_average() -> None:
    """E_pi[pull grad log pi] = -grad KL(ref || pi), the other direction than k3 estimates; with the score
    term -k3 it is -grad KL(pi || ref). By enumeration, in the logits."""
    torch = pytest.importorskip("torch")
    log_pi, log_ref = batch(93, (6,))
    pi, x = np.exp(log_pi), log_ref - log_pi

    def gradient(kl: Callable[[Any, Any], Any]) -> Any:
        logits = torch.tensor(log_pi, requires_grad=True)
        kl(torch.log_softmax(logits, dim=-1), torch.tensor(log_ref)).backward()
        return numpy_of(logits.grad)

    alone = gradient(lambda policy, reference: (reference.exp() * (reference - policy)).sum())
    with_score = gradient(lambda policy, reference: (policy.exp() * (policy - reference)).sum())
    for push, kl_gradient in ((k3_pull(x), alone), (k3_pull(x) - k3(x), with_score)):
        mean = pi * push - pi * np.sum(pi * push)
        assert_close(mean, -kl_gradient, rtol=1e-12, atol=1e-15)
