"""The change of a divergence: first order, exact, second order, flip step, other geometries, examples."""

from fractions import Fraction as F
from itertools import product
from typing import Any

import laws
import numpy as np
import oracles
import pytest
from conftest import Library
from hypothesis import assume, given
from hypothesis import strategies as st
from pairs import Floats, Pair, assert_close, batch, log_prob_pairs, numpy_of, pairs_with_zeros
from scipy.optimize import brentq
from test_divergences import each, each_with_oracle

from divsim.formulas import (
    FORWARD_KL,
    REVERSE_KL,
    TV,
    Divergence,
    View,
    change,
    curvature,
    directional_change,
    exponential_path,
    finite_change,
    flip_step_bracket,
    forward_kl_along,
    kernel_change,
    mean_under,
    policy_gradient_direction,
    step_kl,
)

# pi, mu and the sampled token k of examples whose c_k is known as a fraction
WORKED = {
    "disagrees": (("9/20", "1/2", "1/20"), ("2/5", "3/10", "3/10"), 0, "-3/50"),
    "smallest": (("1/7", "2/7", "4/7"), ("5/7", "1/7", "1/7"), 1, "-3/49"),
    "tails": (
        ("1/8", "2/5", "1/40", "7/20", "1/10"),
        ("7/20", "13/40", "3/20", "1/8", "1/20"),
        1,
        "-3/400",
    ),
}


def full_change(divergence: Divergence, pair: Pair, k: int) -> Any:
    return change(View.full(*pair, np.asarray(k)), divergence)


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples(name: str, xp: Library) -> None:
    pi, mu, k, expected = WORKED[name]
    exact = oracles.forward_kl_change([F(x) for x in mu], [F(x) for x in pi], k)
    assert exact == F(expected)
    log_mu, log_pi = (xp.array(np.log([[float(F(x)) for x in row]])) for row in (mu, pi))
    assert_close(change(View.full(log_mu, log_pi, xp.array([k]))), [float(exact)], rtol=1e-13)  # 5 terms


def test_the_local_term_may_point_the_other_way() -> None:
    """The ratio test sees d_k = +1/20 and +1/7 where c_k is negative."""
    for name, gap in (("disagrees", F(1, 20)), ("smallest", F(1, 7))):
        pi, mu, k, expected = WORKED[name]
        assert F(pi[k]) - F(mu[k]) == gap and F(expected) < 0


@each_with_oracle
@given(data=st.data(), pair=log_prob_pairs(closest=1e-6))
def test_change_is_the_derivative_along_its_own_step(
    divergence: Divergence, oracle: oracles.Measure, data: st.DataObject, pair: Pair
) -> None:
    """(change)"""
    assume(laws.has_derivative(oracle, *pair))
    k = data.draw(st.integers(0, len(pair[0]) - 1))
    laws.check_change(lambda pair, k: full_change(divergence, pair, k), oracle, pair, k)


@each
def test_first_order_error_shrinks_quadratically(divergence: Divergence) -> None:
    """Halving the step divides what first order misses by four: the slope is right, and the order is one."""
    log_mu, log_pi = batch(11, (300, 4))
    action = np.arange(300) % 4
    direction = policy_gradient_direction(log_pi, action)
    first = change(View.full(log_mu, log_pi, action), divergence)
    before = divergence.measure(log_mu, log_pi)

    def missed(t: float) -> Floats:
        after = divergence.measure(log_mu, exponential_path(log_pi, direction, t))
        return np.asarray(np.abs(after - before - t * first))

    curved = missed(1e-3) > 1e-9 * (1 + before)  # others are straight, or rounding
    orders = np.log2(missed(1e-3)[curved] / missed(5e-4)[curved])
    assert curved.sum() > 100
    assert abs(np.median(orders) - 2) < 0.01  # third order moves it by about the step


@each
@given(pair=log_prob_pairs(closest=1e-3))
def test_mean_change_is_zero_under_pi(divergence: Divergence, pair: Pair) -> None:
    """E_pi[c_k] = 0 for every divergence: derivations, T6."""
    changes = np.array([full_change(divergence, pair, k) for k in range(len(pair[0]))])
    scale = np.max(np.abs(divergence.logit_grad(*pair)))
    assert abs(np.sum(np.exp(pair[1]) * changes)) <= 1e-14 * max(1, scale)  # two sums of six terms


@given(pair=log_prob_pairs(closest=1e-3))
def test_mean_change_under_mu(pair: Pair) -> None:
    """E_mu[c_k] = -|pi - mu|^2 for forward KL: derivations, T6."""
    changes = np.array([full_change(FORWARD_KL, pair, k) for k in range(len(pair[0]))])
    mu, pi = np.exp(pair[0]), np.exp(pair[1])
    assert_close(np.sum(mu * changes), -np.sum((pi - mu) ** 2), rtol=1e-12, atol=1e-15)


@given(pair=pairs_with_zeros())
def test_zeros_leave_the_forward_kl_change_finite(pair: Pair) -> None:
    exact = oracles.forward_kl_change(np.exp(pair[0]).tolist(), np.exp(pair[1]).tolist(), 0)
    assert_close(full_change(FORWARD_KL, pair, 0), float(exact), rtol=0, atol=1e-15)


def test_change_at_equal_policies_is_zero() -> None:
    log_pi = batch(12, (50, 6))[1]
    assert np.all(change(View.full(log_pi, log_pi, np.arange(50) % 6)) == 0)


@pytest.mark.parametrize("vocab_size", [1, 2])
def test_small_vocabularies(vocab_size: int) -> None:
    """V = 1: nothing can change. V = 2: c_k = 2 (1 - pi_k) d_k, always the ratio's sign (derivations, T5)."""
    log_mu, log_pi = batch(13, (40, vocab_size))
    gap, pi_k = np.exp(log_pi[:, 0]) - np.exp(log_mu[:, 0]), np.exp(log_pi[:, 0])
    c = change(View.full(log_mu, log_pi, np.zeros(40, int)))
    assert_close(c, 2 * (1 - pi_k) * gap, rtol=1e-12, atol=1e-15)


def test_unknown_tail() -> None:
    view = View.full(*batch(1, (1, 3)), np.array([0]))
    with pytest.raises(ValueError, match=r"tail must be one of full, aggregated, .*, got 'exact'"):
        change(view, tail="exact")


@given(data=st.data(), pair=log_prob_pairs())
def test_finite_change_is_exact(data: st.DataObject, pair: Pair) -> None:
    """(change.finite) and (change.step_kl) at any size and direction."""
    row = st.lists(st.floats(-3, 3, allow_subnormal=False), min_size=len(pair[0]), max_size=len(pair[0]))
    size = data.draw(st.sampled_from([1e-8, 1e-4, 1e-1, 1.0, 10.0]))
    move = size * np.array(data.draw(row))
    mu, pi = oracles.normalised(pair[0]), oracles.normalised(pair[1])
    after = oracles.moved(pi, move.tolist(), 1)
    exact = float(oracles.forward_kl(mu, after) - oracles.forward_kl(mu, pi))
    # Rounding of the terms d x and expm1(x) - x, each of the size of the move.
    atol = 8 * laws.EPS * float(np.max(np.abs(move))) + 1e-50  # and 60 digits of the oracle
    assert_close(finite_change(*pair, move), exact, rtol=0, atol=atol)
    assert_close(step_kl(pair[1], move), float(oracles.forward_kl(pi, after)), rtol=0, atol=atol)
    assert step_kl(pair[1], move) >= 0


@given(pair=pairs_with_zeros(), k=st.integers(0, 2))
def test_two_questions_in_one_pass(pair: Pair, k: int) -> None:
    direction = policy_gradient_direction(pair[1], np.array(k))
    both = forward_kl_along(*pair, direction)
    alone = FORWARD_KL.measure(*pair), directional_change(FORWARD_KL, *pair, direction)
    assert_close(both, alone, rtol=0)  # the same operations in the same order


@given(pair=log_prob_pairs(closest=0.1), t=st.floats(-20, 20))
def test_predicted_increase_is_real_at_every_step(pair: Pair, t: float) -> None:
    """D(s) - D(0) >= s c_k: derivations, T3."""
    direction = policy_gradient_direction(pair[1], np.array(0))
    predicted = t * full_change(FORWARD_KL, pair, 0)
    assert finite_change(*pair, t * direction) >= predicted - 1e-13 * max(1, abs(t))  # rounding of both


@given(data=st.data(), pair=log_prob_pairs())
def test_curvature_is_the_second_derivative(data: st.DataObject, pair: Pair) -> None:
    row = st.lists(st.floats(-3, 3, allow_subnormal=False), min_size=len(pair[0]), max_size=len(pair[0]))
    v = np.array(data.draw(row))
    mu, pi = oracles.normalised(pair[0]), oracles.normalised(pair[1])
    h = oracles.mpf(10) ** -15  # truncation and rounding are both 1e-30 at 60 digits
    at = [oracles.forward_kl(mu, oracles.moved(pi, v.tolist(), n * h)) for n in (-1, 0, 1)]
    exact = float((at[0] - 2 * at[1] + at[2]) / h**2)
    assert_close(curvature(pair[1], v), exact, rtol=1e-13, atol=1e-14 * np.max(v**2) + 1e-28)


def flips(pair: Pair, k: int) -> tuple[float, float, float]:
    """The bracket of the flip step, and the root that a bisection finds."""
    c = float(full_change(FORWARD_KL, pair, k))
    low, high = (float(end) for end in flip_step_bracket(*pair, np.array(k)))
    against = -np.sign(c) * policy_gradient_direction(pair[1], np.array(k))

    def gained(s: float) -> float:
        return float(finite_change(*pair, s * against))

    beyond = 2 * low
    while gained(beyond) < 0:
        beyond *= 2
    return low, high, brentq(gained, low / 2, beyond, xtol=1e-12 * beyond, rtol=1e-12)


def test_flip_bracket_contains_the_root() -> None:
    """(change.flip_step), and both ends meet the root where the step is small."""
    finite = []
    for seed, apart in product(range(60), (1e-3, 0.3, 2.0)):
        log_mu, log_pi = batch(seed, (5,), apart=apart)
        low, high, root = flips((log_mu, log_pi), seed % 5)
        # What the root is worth: the gain crosses 0 at slope c, and is rounded at 1e-16.
        assert low * (1 - 1e-9) <= root <= high * (1 + 1e-9)
        finite.append(high < np.inf)
        if apart == 1e-3:
            assert high / low < 1.1
    assert 60 < sum(finite) < len(finite)


def test_flip_bracket_golden(xp: Library) -> None:
    """6 |c| / (3 V0 + 2 R |c|) and 2 |c| / (V0 - R |c|), in fractions."""
    pi, mu, k, c = WORKED["disagrees"]
    p = [F(x) for x in pi]
    u = [(i == k) - x for i, x in enumerate(p)]
    mean = sum((x * v for x, v in zip(p, u, strict=True)), F(0))
    variance = sum((x * (v - mean) ** 2 for x, v in zip(p, u, strict=True)), F(0))
    span, size = max(u) - min(u), abs(F(c))
    log_mu, log_pi = (xp.array(np.log([float(F(x)) for x in row])) for row in (mu, pi))
    low, high = flip_step_bracket(log_mu, log_pi, xp.array(k))
    assert_close(low, float(6 * size / (3 * variance + 2 * span * size)), rtol=1e-13)
    assert_close(high, float(2 * size / (variance - span * size)), rtol=1e-13)


def test_flip_bracket_at_equal_policies() -> None:
    log_pi = np.log([0.5, 0.3, 0.2])
    assert [float(end) for end in flip_step_bracket(log_pi, log_pi, np.array(0))] == [0.0, 0.0]


def test_flip_bracket_of_a_certain_policy() -> None:
    """pi_k = 1: no step moves anything, so nothing flips; no NaN."""
    log_pi, log_mu = np.array([0.0, -np.inf]), np.log([0.5, 0.5])
    assert [float(end) for end in flip_step_bracket(log_mu, log_pi, np.array(0))] == [0.0, np.inf]


@given(pair=log_prob_pairs(closest=0.1))
def test_natural_gradient_step_is_the_ratio_test(pair: Pair) -> None:
    """Along e_k / pi_k forward KL changes by (r - 1) / r, reverse KL by log r - KL(pi || mu): T5."""
    r = np.exp(pair[1] - pair[0])
    for k in range(len(r)):
        natural = np.where(np.arange(len(r)) == k, np.exp(-pair[1][k]), 0.0)
        forward = directional_change(FORWARD_KL, *pair, natural)
        assert_close(forward, 1 - 1 / r[k], rtol=1e-12, atol=1e-13)
        reverse = np.log(r[k]) - REVERSE_KL.measure(*pair)
        assert_close(directional_change(REVERSE_KL, *pair, natural), reverse, rtol=1e-11, atol=1e-12)


@each
def test_identity_kernel_is_the_plain_change(divergence: Divergence, xp: Library) -> None:
    """(change.kernel)"""
    log_mu, log_pi = (xp.array(row) for row in batch(14, (6, 2, 4)))
    action = xp.array(np.arange(12).reshape(6, 2) % 4)
    plain = change(View.full(log_mu, log_pi, action), divergence)
    gram = xp.array(np.eye(4))
    assert_close(kernel_change(divergence, log_mu, log_pi, action, gram), plain, rtol=1e-12, atol=1e-13)


def test_kernel_can_flip_the_sign() -> None:
    """pi = (5, 7, 7)/19, mu = (6, 7, 4)/17, head W = ((0, 1), (-1, 0), (1, 1)): derivations, T11."""
    log_mu, log_pi = np.log(np.array([6, 7, 4]) / 17), np.log(np.array([5, 7, 7]) / 19)
    head = np.array([[0.0, 1.0], [-1.0, 0.0], [1.0, 1.0]])
    assert_close(full_change(FORWARD_KL, (log_mu, log_pi), 0), -609 / 6137, rtol=1e-13)
    shared = kernel_change(FORWARD_KL, log_mu, log_pi, np.array(0), head @ head.T)
    assert_close(shared, 98 / 6137, rtol=1e-12)


def test_kernel_is_the_step_of_a_linear_head() -> None:
    """Moving the weights along their gradient moves the divergence by c_k^K, measured by differences."""
    log_mu, log_pi = batch(15, (5,))
    features = np.random.default_rng(15).standard_normal((5, 2))
    theta_step = features.T @ policy_gradient_direction(log_pi, np.array(2))
    h = 1e-5  # truncation 1e-10, rounding 1e-11
    moved = [TV.measure(log_mu, exponential_path(log_pi, features @ theta_step, s * h)) for s in (1, -1)]
    kernel = kernel_change(TV, log_mu, log_pi, np.array(2), features @ features.T)
    assert_close(kernel, (moved[0] - moved[1]) / (2 * h), rtol=0, atol=1e-9)


def test_a_small_step_keeps_its_digits_under_a_common_shift() -> None:
    """A shift of all logits by 1 changes nothing, and its rounding, 1e-16, must not show in the 1e-10."""
    log_pi, move = np.log([0.5, 0.3, 0.2]), 1 + 1e-5 * np.array([1.0, -2.0, 0.5])
    pi = oracles.normalised(log_pi)
    exact = float(oracles.forward_kl(pi, oracles.moved(pi, move.tolist(), 1)))
    assert_close(finite_change(log_pi, log_pi, move), exact, rtol=1e-9)  # s^2 of s = 1e-5, known to 1e-16


def test_rows_do_not_see_each_other() -> None:
    log_mu, log_pi = batch(17, (3, 2, 4))
    action, move = np.arange(6).reshape(3, 2) % 4, log_mu * np.array([1e-3, 1.0, 3.0])[:, None, None]
    together = [finite_change(log_mu, log_pi, move), *flip_step_bracket(log_mu, log_pi, action)]
    for at in np.ndindex(3, 2):
        rows = log_mu[at], log_pi[at]
        alone = [finite_change(*rows, move[at]), *flip_step_bracket(*rows, action[at])]
        assert_close([x[at] for x in together], alone, rtol=1e-12)  # sums of 4 may be taken in another order


def test_numpy_and_torch_agree(xp: Library) -> None:
    log_mu, log_pi = batch(16, (8, 5))
    action, move = np.arange(8) % 5, 0.3 * log_mu
    a, b, k, x = (xp.array(array) for array in (log_mu, log_pi, action, move))
    pairs_of_results = [
        (change(View.full(a, b, k)), change(View.full(log_mu, log_pi, action))),
        (finite_change(a, b, x), finite_change(log_mu, log_pi, move)),
        *zip(forward_kl_along(a, b, x), forward_kl_along(log_mu, log_pi, move), strict=True),
        (curvature(b, x), curvature(log_pi, move)),
        (mean_under(b, x), np.sum(np.exp(log_pi) * move, axis=-1)),
        *zip(flip_step_bracket(a, b, k), flip_step_bracket(log_mu, log_pi, action), strict=True),
    ]
    for there, here in pairs_of_results:
        assert_close(there, numpy_of(here), rtol=1e-12, atol=1e-15)
