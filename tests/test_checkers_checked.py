"""The checks are checked: each broken variant of a formula must be caught by the check that guards it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import laws
import numpy as np
import oracles
import pytest
from pairs import Floats, Pair, batch
from scipy.special import log_softmax

from divsim.formulas import (
    FORWARD_KL,
    HELLINGER2,
    JS,
    REVERSE_KL,
    TV,
    View,
    change,
    change_interval,
    exponential_path,
    finite_change,
    overlap_bracket,
    policy_gradient_direction,
)

PAIR: Pair = batch(7, (5,))
CLOSE: Pair = batch(8, (5,), apart=1e-6)
MUTANT = Callable[[Any, Any], Any]


def caught(check: Callable[..., None], *arguments: Any) -> bool:
    try:
        check(*arguments)
    except AssertionError:
        return True
    return False


def textbook_kl(log_mu: Floats, log_pi: Floats) -> Any:
    """Right in exact arithmetic; cancels where the policies are close."""
    return np.sum(np.exp(log_mu) * (log_mu - log_pi), axis=-1)


# name: the mutant, and what it imitates
MEASURE_MUTANTS: dict[str, tuple[MUTANT, oracles.Measure]] = {
    "swapped arguments": (lambda m, p: FORWARD_KL.measure(p, m), oracles.forward_kl),
    "reverse unswapped": (FORWARD_KL.measure, oracles.reverse_kl),
    "TV without its half": (lambda m, p: 2 * TV.measure(m, p), oracles.tv),
    "JS without its half": (lambda m, p: 2 * JS.measure(m, p), oracles.js),
    "Hellinger without its half": (lambda m, p: 2 * HELLINGER2.measure(m, p), oracles.hellinger2),
    "wrong sign": (lambda m, p: -FORWARD_KL.measure(m, p), oracles.forward_kl),
    "first token left out": (lambda m, p: FORWARD_KL.measure(m[1:], p[1:]), oracles.forward_kl),
    "base-2 logs": (lambda m, p: FORWARD_KL.measure(m, p) / np.log(2), oracles.forward_kl),
    "mean for sum": (lambda m, p: FORWARD_KL.measure(m, p) / 5, oracles.forward_kl),
}

GRADIENT_MUTANTS: dict[str, tuple[MUTANT, oracles.Measure]] = {
    "swapped arguments": (lambda m, p: FORWARD_KL.logit_grad(p, m), oracles.forward_kl),
    "not centred": (lambda m, p: np.exp(p) * (p - m), oracles.reverse_kl),
    "centred by a mean": (lambda m, p: np.exp(p) * ((p - m) - np.mean(p - m)), oracles.reverse_kl),
    "TV without its half": (lambda m, p: 2 * TV.logit_grad(m, p), oracles.tv),
    "in pi instead of logits": (lambda m, p: -np.exp(m - p), oracles.forward_kl),
    "wrong sign": (lambda m, p: -REVERSE_KL.logit_grad(m, p), oracles.reverse_kl),
}


@pytest.mark.parametrize("name", MEASURE_MUTANTS)
def test_the_oracle_catches_a_broken_measure(name: str) -> None:
    mutant, oracle = MEASURE_MUTANTS[name]
    assert caught(laws.check_against_oracle, mutant, oracle, PAIR)


def test_the_oracle_catches_cancellation() -> None:
    assert not caught(laws.check_against_oracle, FORWARD_KL.measure, oracles.forward_kl, CLOSE)
    assert caught(laws.check_against_oracle, textbook_kl, oracles.forward_kl, CLOSE)


@pytest.mark.parametrize("name", GRADIENT_MUTANTS)
def test_the_derivative_catches_a_broken_gradient(name: str) -> None:
    mutant, oracle = GRADIENT_MUTANTS[name]
    assert caught(laws.check_gradient_is_derivative, mutant, oracle, PAIR)


def test_each_law_catches_what_it_forbids() -> None:
    kl, grad = FORWARD_KL.measure, FORWARD_KL.logit_grad
    ramp = np.arange(5.0)
    assert caught(laws.check_never_negative, lambda m, p: -kl(m, p), PAIR)
    assert caught(laws.check_never_negative, lambda m, p: kl(m, p) * np.nan, PAIR)
    assert caught(laws.check_zero_iff_equal, lambda m, p: kl(m, p) + 1e-9, PAIR)
    assert caught(laws.check_zero_iff_equal, lambda m, p: 0 * kl(m, p), PAIR)
    # A sum of squared gaps is no f-divergence: merging two gaps of one sign raises it.
    squares: MUTANT = lambda m, p: np.sum((np.exp(p) - np.exp(m)) ** 2)  # noqa: E731
    same_side = [0 if up else 1 for up in PAIR[1] > PAIR[0]]
    assert caught(laws.check_data_processing, squares, PAIR, same_side)
    assert caught(laws.check_gradient_sums_to_zero, lambda m, p: grad(m, p) + 1e-9, PAIR)
    assert caught(laws.check_permutation_equivariant, lambda m, p: np.sum(ramp * (p - m)), grad, PAIR)
    assert caught(laws.check_permutation_equivariant, kl, lambda m, p: ramp * grad(m, p), PAIR)


def test_the_convexity_check_catches_a_divergence_that_is_not() -> None:
    """derivations, T4: exact counterexamples for reverse KL and TV, third token, s = -6."""
    for divergence, pi, mu in (
        (REVERSE_KL, (594, 295, 111), (357, 12, 631)),
        (TV, (482, 443, 75), (781, 105, 114)),
    ):
        pair = np.log(np.array(mu) / 1000), np.log(np.array(pi) / 1000)
        move = -6 * policy_gradient_direction(pair[1], np.array(2))
        assert caught(laws.check_convex_in_logits, divergence.measure, divergence.logit_grad, pair, move)
        kl = FORWARD_KL
        assert not caught(laws.check_convex_in_logits, kl.measure, kl.logit_grad, pair, move)


CHANGE_MUTANTS: dict[str, Callable[[Pair, int], Any]] = {
    "local term only": lambda pair, k: np.exp(pair[1][k]) - np.exp(pair[0][k]),
    "global term subtracted": lambda pair, k: 2 * (np.exp(pair[1][k]) - np.exp(pair[0][k])) - full(pair, k),
    "wrong sign": lambda pair, k: -full(pair, k),
    "token counted from one": lambda pair, k: full(pair, (k + 1) % len(pair[0])),
    "weighted by mu": lambda pair, k: full(pair, k) + np.sum((np.exp(pair[0]) - np.exp(pair[1])) ** 2),
    "behaviour and training swapped": lambda pair, k: full((pair[1], pair[0]), k),
    "centred step": lambda pair, k: full(pair, k) / (1 - np.exp(pair[1][k])),
}


def full(pair: Pair, k: int) -> Any:
    return change(View.full(*pair, np.asarray(k)))


def test_the_shipped_change_passes_where_the_mutants_fail() -> None:
    assert not caught(laws.check_change, full, oracles.forward_kl, PAIR, 1)


@pytest.mark.parametrize("name", CHANGE_MUTANTS)
def test_the_derivative_catches_a_broken_change(name: str) -> None:
    assert caught(laws.check_change, CHANGE_MUTANTS[name], oracles.forward_kl, PAIR, 1)


@pytest.mark.parametrize("name", ["aggregated", "uniform", "zero"])
def test_the_coarse_derivative_tells_the_tail_models_apart(name: str) -> None:
    view = View.top_k(*PAIR, np.asarray(0), 2)
    kept = np.argsort(-PAIR[0])[:2].tolist()
    kept = kept if 0 in kept else [*kept, 0]
    mu, pi = (oracles.normalised(row) for row in PAIR)
    exact = float(oracles.proportional_change(oracles.forward_kl, mu, pi, 0, kept))
    assert abs(change(view, tail="proportional") - exact) < 1e-13
    assert abs(change(view, tail=name) - exact) > 1e-3


def test_truncated_finite_changes_are_not_exact() -> None:
    """First and second order miss what `test_finite_change_is_exact` would see."""
    log_mu, log_pi = PAIR
    move = policy_gradient_direction(log_pi, np.array(1))
    after = FORWARD_KL.measure(log_mu, exponential_path(log_pi, move, 1.0))
    exact = after - FORWARD_KL.measure(log_mu, log_pi)
    first = full(PAIR, 1)
    second = first + np.sum(np.exp(log_pi) * (move - np.sum(np.exp(log_pi) * move)) ** 2) / 2
    assert abs(finite_change(log_mu, log_pi, move) - exact) < 1e-14
    assert abs(first - exact) > 0.1 and abs(second - exact) > 1e-5


def test_the_soundness_check_catches_broken_certificates() -> None:
    """An interval that is shifted, NaN, too narrow, or made with a cap that is too small."""
    log_mu, log_pi = batch(9, (2000, 5))
    action = np.arange(2000) % 5
    exact = change(View.full(log_mu, log_pi, action))
    view = View.top_k(log_mu, log_pi, action, 1, bracket=True)
    low, high = change_interval(view)
    assert laws.violations((low, high), exact) == 0
    assert laws.violations((low + np.nan, high), exact) == 2000
    middle = (low + high) / 2
    assert laws.violations((middle, high), exact) > 100
    assert laws.violations((low, middle), exact) > 100
    hidden = np.where(log_mu == log_mu.max(axis=-1, keepdims=True), -np.inf, np.exp(log_pi))
    hidden[np.arange(2000), action] = -np.inf
    small_cap = np.exp(view.field("log_mu_cap")) / 2
    ends = overlap_bracket(hidden, np.exp(view.log_mu_tail), small_cap)
    broken = replace(view, overlap_low=ends[0], overlap_high=ends[1])
    assert laws.violations(change_interval(broken), exact) > 10


def test_a_step_of_the_wrong_size_has_the_wrong_order() -> None:
    """A slope that is off by one percent leaves a first-order error, so the measured order drops to one."""
    log_mu, log_pi = PAIR
    move = policy_gradient_direction(log_pi, np.array(1))

    def order(slope: float) -> float:
        def missed(t: float) -> float:
            after = FORWARD_KL.measure(log_mu, log_softmax(log_pi + t * move))
            return abs(float(after - FORWARD_KL.measure(log_mu, log_pi)) - t * slope)

        return float(np.log2(missed(1e-3) / missed(5e-4)))

    assert abs(order(float(full(PAIR, 1))) - 2) < 0.01
    assert order(1.01 * float(full(PAIR, 1))) < 1.5
