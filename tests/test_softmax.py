"""Softmax policies: against SciPy, at the edges, along the exponential path, and their entropy."""

from typing import Any

import laws
import numpy as np
import oracles
import pytest
import scipy.special
import scipy.stats
from conftest import Library
from hypothesis import given
from hypothesis import strategies as st
from pairs import Pair, assert_close, batch, log_prob_pairs, logs, numpy_of, pairs_with_zeros

from divsim.formulas import (
    entropy,
    exponential_path,
    log_mass,
    log_softmax,
    logsumexp,
    policy_gradient_direction,
)
from divsim.formulas.softmax import exp_or_inf

# Rounding of log-probabilities down to -30: a few units of the last place of 32.
ROUNDING = 16 * laws.EPS * 32


@pytest.mark.parametrize("function", [logsumexp, log_softmax], ids=lambda f: f"softmax.{f.__name__}")
def test_scipy_agrees(function: Any, xp: Library) -> None:
    logits = 10 * np.random.default_rng(1).standard_normal((6, 4, 7))
    logits[0, 0, 2] = -np.inf
    expected = getattr(scipy.special, function.__name__)(logits, axis=-1)
    assert_close(function(xp.array(logits)), expected, rtol=0, atol=ROUNDING)


def test_log_softmax_golden(xp: Library) -> None:
    # from mpmath import mp, exp, log; mp.dps = 30; [x - log(exp(1) + exp(2) + exp(4)) for x in (1, 2, 4)]
    expected = [-3.169846019556285, -2.169846019556285, -0.16984601955628498]
    assert_close(
        log_softmax(xp.array([1.0, 2.0, 4.0])), expected, rtol=1e-14
    )  # rounding at the size of the logits


def test_huge_logits_do_not_overflow(xp: Library) -> None:
    assert_close(log_softmax(xp.array([1e4, 0.0, -1e4])), [0.0, -1e4, -2e4], rtol=1e-15)
    assert_close(logsumexp(xp.array([1e308, 1e308])), 1e308, rtol=1e-15)
    assert_close(log_softmax(xp.array([1e5, 9e4])), [0.0, -1e4], rtol=1e-15)  # temperature 1e-4 of [10, 9]


def test_no_weight_at_all(xp: Library) -> None:
    assert float(logsumexp(xp.array([-np.inf, -np.inf]))) == -np.inf
    assert_close(log_mass(xp.array([0.0, -1e-8, 1.0, 0.5])), [-np.inf, -np.inf, 0, np.log(0.5)], rtol=1e-15)


def test_impossible_tokens_stay_impossible(xp: Library) -> None:
    log_pi = log_softmax(xp.array([[0.0, -np.inf, 1.0]]))
    assert_close(log_pi[0, 1], -np.inf, rtol=0)
    moved = exponential_path(log_pi, xp.array([[1.0, 1e9, -1.0]]), 2.0)
    assert_close(moved[0, 1], -np.inf, rtol=0)
    assert_close(logsumexp(moved), [0.0], rtol=0, atol=4 * laws.EPS)


@given(pair=log_prob_pairs(), shift=st.floats(-100, 100))
def test_a_common_shift_of_logits_changes_nothing(pair: Pair, shift: float) -> None:
    shifted = log_softmax(pair[0] + shift)
    assert_close(shifted, pair[0], rtol=0, atol=4 * laws.EPS * 128)  # rounding at the size of the shift


@given(pair=log_prob_pairs(), s=st.floats(-3, 3), t=st.floats(-3, 3))
def test_path_composes(pair: Pair, s: float, t: float) -> None:
    log_pi, direction = pair
    twice = exponential_path(exponential_path(log_pi, direction, s), direction, t)
    assert_close(twice, exponential_path(log_pi, direction, s + t), rtol=0, atol=ROUNDING * 4)


@given(pair=log_prob_pairs(), t=st.floats(-3, 3))
def test_path_is_the_definition(pair: Pair, t: float) -> None:
    """(softmax.path)"""
    log_pi, direction = pair
    exact = oracles.moved(oracles.normalised(log_pi), direction.tolist(), oracles.mpf(t))
    moved = exponential_path(log_pi, direction, t)
    assert_close(moved, [float(oracles.mp.log(p)) for p in exact], rtol=0, atol=ROUNDING * 4)


def test_path_takes_a_step_per_row(xp: Library) -> None:
    log_pi, direction = batch(2, (5, 3))
    steps = np.linspace(-1, 1, 5)[:, None]
    together = exponential_path(xp.array(log_pi), xp.array(direction), xp.array(steps))
    alone = [exponential_path(p, v, float(t)) for p, v, t in zip(log_pi, direction, steps[:, 0], strict=True)]
    assert_close(together, np.stack(alone), rtol=1e-14, atol=1e-15)


def test_path_derivatives() -> None:
    """pi' = pi (v - E v) and pi'' = pi ((v - E v)^2 - Var v): derivations, T1."""
    log_pi, direction = batch(3, (20, 4))
    pi = np.exp(log_pi)
    centred = direction - np.sum(pi * direction, axis=-1, keepdims=True)
    spread = np.sum(pi * centred**2, axis=-1, keepdims=True)
    h = 1e-3  # fourth-order stencils: truncation h^4 f'''' / 30, rounding EPS / h^2 = 2e-10
    at = {n: np.exp(exponential_path(log_pi, direction, n * h)) for n in (-2, -1, 0, 1, 2)}
    first = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * h)
    second = (16 * (at[1] + at[-1]) - (at[2] + at[-2]) - 30 * at[0]) / (12 * h * h)
    assert_close(first, pi * centred, rtol=1e-8, atol=1e-9)
    assert_close(second, pi * (centred**2 - spread), rtol=1e-7, atol=1e-8)


def test_direction_is_the_gradient_of_log_softmax() -> None:
    """(softmax.policy_gradient)"""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    z = torch.as_tensor(batch(4, (3, 2, 5))[0]).requires_grad_()
    action = torch.tensor([[0, 4], [2, 2], [1, 3]])
    log_pi = torch.log_softmax(z, dim=-1)
    log_pi.gather(-1, action[..., None]).sum().backward()
    assert_close(policy_gradient_direction(log_pi, action), z.grad, rtol=1e-14, atol=1e-16)


def test_direction_at_any_leading_shape(xp: Library) -> None:
    log_pi = xp.array(np.log([0.2, 0.3, 0.5]))
    assert_close(policy_gradient_direction(log_pi, xp.array(2)), [-0.2, -0.3, 0.5], rtol=1e-15)
    rows = policy_gradient_direction(xp.array(np.log([[0.2, 0.8], [0.5, 0.5]])), xp.array([1, 0]))
    assert_close(rows, [[-0.2, 0.2], [0.5, -0.5]], rtol=1e-14)
    every = policy_gradient_direction(xp.array(np.log([[0.2, 0.3, 0.5]])), xp.array([0, 1, 2]))
    assert_close(every, np.eye(3) - [0.2, 0.3, 0.5], rtol=1e-14)
    same = policy_gradient_direction(xp.array(np.log([[0.2, 0.8], [0.5, 0.5]])), xp.array(1))
    assert_close(same, [[-0.2, 0.2], [-0.5, 0.5]], rtol=1e-14)


@given(pair=pairs_with_zeros())
def test_entropy_is_scipy_and_bounded(pair: Pair) -> None:
    for log_pi in pair:
        value = float(entropy(log_pi))
        assert_close(value, scipy.stats.entropy(np.exp(log_pi)), rtol=1e-14, atol=1e-15)
        assert 0 <= value <= np.log(len(log_pi)) + laws.EPS * 4


def test_entropy_golden(xp: Library) -> None:
    # from mpmath import mp, mpf, log; mp.dps = 30
    # -sum(p * log(p) for p in (mpf(1) / 2, mpf(3) / 10, mpf(1) / 5))
    expected = 1.0296530140645735
    assert_close(entropy(xp.array(np.log([0.5, 0.3, 0.2]))), expected, rtol=4 * laws.EPS)


def test_an_impossible_token_stays_so_whatever_its_push(xp: Library) -> None:
    moved = exponential_path(xp.array(logs([0.5, 0.5, 0.0])), xp.array([1.0, 1.0, np.inf]), 1.0)
    assert_close(moved, logs([0.5, 0.5, 0.0]), rtol=1e-15)


def test_the_largest_number_is_no_overflow(xp: Library) -> None:
    largest = np.log(np.finfo(np.float64).max)
    values = numpy_of(exp_or_inf(xp.array([largest, np.nextafter(largest, np.inf)])))
    assert values[0] < np.inf and values[1] == np.inf


def test_entropy_row_by_row(xp: Library) -> None:
    log_pi = batch(5, (2, 3, 4))[0]
    alone = [[float(entropy(row)) for row in rows] for rows in log_pi]
    assert_close(entropy(xp.array(log_pi)), alone, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_precision_is_kept(dtype: str, xp: Library) -> None:
    log_pi = xp.array(logs([0.5, 0.3, 0.2]).astype(dtype))
    moved = exponential_path(log_pi, log_pi, 0.1)
    for result in (log_softmax(log_pi), logsumexp(log_pi), entropy(log_pi), log_mass(-log_pi), moved):
        assert dtype in str(result.dtype)
    assert dtype in str(policy_gradient_direction(log_pi, xp.array(0)).dtype)


def test_numpy_and_torch_agree() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    logits = 5 * np.random.default_rng(7).standard_normal((4, 50))
    action = np.array([0, 7, 49, 3])
    there, ids = torch.as_tensor(logits), torch.as_tensor(action)
    log_pi = log_softmax(logits)
    assert_close(log_softmax(there), log_pi, rtol=1e-12)
    assert_close(logsumexp(there), logsumexp(logits), rtol=1e-12)
    assert_close(entropy(log_softmax(there)), entropy(log_pi), rtol=1e-12)
    assert_close(exponential_path(there, there, 0.3), exponential_path(logits, logits, 0.3), rtol=1e-12)
    direction = policy_gradient_direction(log_softmax(there), ids)
    assert_close(direction, policy_gradient_direction(log_pi, action), rtol=1e-12)
