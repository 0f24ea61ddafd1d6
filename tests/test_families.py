"""The families with an order: where they meet the named divergences, their limits, and what they refuse."""

from collections.abc import Callable
from typing import Any

import laws
import numpy as np
import oracles
import pytest
from conftest import Library
from hypothesis import given
from pairs import Pair, assert_close, batch, log_prob_pairs, numpy_of

from divsim.formulas import (
    CHI2_MU_PI,
    CHI2_PI_MU,
    DIVERGENCES,
    FORWARD_KL,
    HELLINGER2,
    REVERSE_KL,
    Divergence,
    alpha,
    renyi,
)


@given(pair=log_prob_pairs(closest=1e-3))
def test_families_meet(pair: Pair) -> None:
    """Orders at which a family is another divergence, up to a factor."""

    def same(one: Divergence, other: Divergence, factor: float) -> None:
        value = factor * other.measure(*pair)
        assert_close(one.measure(*pair), value, rtol=0, atol=factor * laws.rounding_of(float(value)))
        grad = factor * other.logit_grad(*pair)
        assert_close(one.logit_grad(*pair), grad, rtol=1e-12, atol=1e-14 * max(1, np.max(np.abs(grad))))

    same(alpha(2.0), CHI2_MU_PI, 1 / 2)
    same(alpha(-1.0), CHI2_PI_MU, 1 / 2)
    same(alpha(0.5), HELLINGER2, 4.0)
    assert_close(np.expm1(renyi(2.0).measure(*pair)), CHI2_MU_PI.measure(*pair), rtol=1e-9, atol=1e-28)


def test_limits_of_the_families_are_kl() -> None:
    assert alpha(1) is FORWARD_KL and alpha(0) is REVERSE_KL and renyi(1) is FORWARD_KL
    log_mu, log_pi = batch(6, (20, 4))
    for near_one in (alpha(1 + 1e-6), alpha(1 - 1e-6), renyi(1 + 1e-6), renyi(1 - 1e-6)):
        # first order in the distance of the order from 1, with a coefficient of the size of the value
        assert_close(near_one.measure(log_mu, log_pi), FORWARD_KL.measure(log_mu, log_pi), rtol=1e-4)
    assert_close(alpha(1e-6).measure(log_mu, log_pi), REVERSE_KL.measure(log_mu, log_pi), rtol=1e-4)


@pytest.mark.parametrize("family", [alpha, renyi])
@pytest.mark.parametrize("order", [float("inf"), float("-inf"), float("nan")])
def test_an_order_is_a_finite_number(family: Any, order: float) -> None:
    with pytest.raises(ValueError, match=f"order must be a finite number, got {order}"):
        family(order)


@pytest.mark.parametrize("order", [0.0, -1.0])
def test_renyi_refuses_orders_without_a_divergence(order: float) -> None:
    with pytest.raises(ValueError, match=rf"order must be > 0 .* got {order}; alpha\(\) takes any order"):
        renyi(order)


def test_names_and_convexity_of_the_families() -> None:
    assert (alpha(2.0).name, renyi(0.5).name) == ("alpha(2)", "renyi(0.5)")
    assert [alpha(a).convex_in_logits for a in (0.5, 1.0, 1.5, 2.0)] == [False, True, True, True]
    assert [renyi(a).convex_in_logits for a in (0.5, 1.0, 1.5, 2.0)] == [False, True, True, True]
    assert all(name == d.name for name, d in DIVERGENCES.items())


# Families are built inside each test here, so that a test sees the code that builds them.
def oracle_pairs(order: float) -> list[tuple[Divergence, oracles.Measure]]:
    both: list[tuple[Divergence, oracles.Measure]] = [(alpha(order), oracles.alpha(order))]
    return both + ([(renyi(order), oracles.renyi(order))] if order > 0 else [])


def constant(value: Any) -> Callable[..., Any]:
    """A row of a batch, where a law expects a function."""
    return lambda *_: value


@pytest.mark.parametrize("order", [-1.0, 0.5, 1.5, 3.0])
@pytest.mark.parametrize("apart", [1e-4, 1.0, 6.0])
def test_values_and_gradients_of_a_batch(order: float, apart: float, xp: Library) -> None:
    log_mu, log_pi = batch(8, (2, 3, 4), apart=apart)
    for divergence, oracle in oracle_pairs(order):
        values = numpy_of(divergence.measure(xp.array(log_mu), xp.array(log_pi)))
        grads = numpy_of(divergence.logit_grad(xp.array(log_mu), xp.array(log_pi)))
        assert values.shape == (2, 3) and grads.shape == (2, 3, 4)
        for at in np.ndindex(2, 3):
            pair = log_mu[at], log_pi[at]
            laws.check_against_oracle(constant(values[at]), oracle, pair)
            laws.check_gradient_is_derivative(constant(grads[at]), oracle, pair)


def test_renyi_of_nearly_disjoint_policies_keeps_its_digits() -> None:
    # from mpmath import mp, mpf, log, sqrt; mp.dps = 50; e = mpf(2) ** -100; -2 * log(2 * sqrt(e * (1 - e)))
    log_mu = np.array([0.0, -100 * np.log(2)])
    assert_close(renyi(0.5).measure(log_mu, log_mu[::-1]), 98 * np.log(2), rtol=1e-15)
