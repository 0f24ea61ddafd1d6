"""Every divergence: golden values, an independent oracle, laws, and the logit gradient by three routes."""

from typing import Any

import laws
import numpy as np
import oracles
import pytest
from conftest import Library
from hypothesis import assume, given
from hypothesis import strategies as st
from pairs import Pair, assert_close, batch, log_prob_pairs, logs, pairs_with_zeros
from scipy.special import log_softmax, rel_entr

from divsim.formulas import (
    CHI2_MU_PI,
    CHI2_PI_MU,
    DIVERGENCES,
    FORWARD_KL,
    HELLINGER2,
    REVERSE_KL,
    TV,
    Divergence,
    alpha,
    bretagnolle_huber,
    difference,
    log_ratio,
    pinsker,
    renyi,
)

ALPHAS = (-1.0, 0.5, 2.0, 3.0)
RENYIS = (0.5, 2.0, 3.0)
ALL: list[tuple[Divergence, oracles.Measure]] = [
    *((d, oracles.MEASURES[name]) for name, d in DIVERGENCES.items()),
    *((alpha(order), oracles.alpha(order)) for order in ALPHAS),
    *((renyi(order), oracles.renyi(order)) for order in RENYIS),
]
EVERY = [d for d, _ in ALL]

NAMES = [d.name for d in EVERY]
each = pytest.mark.parametrize("divergence", EVERY, ids=NAMES)
each_with_oracle = pytest.mark.parametrize(("divergence", "oracle"), ALL, ids=NAMES)


def tagged(what: str) -> pytest.MarkDecorator:
    """Every divergence, under the tag of its docstring and its theorem: `tv.logit_grad`."""
    return pytest.mark.parametrize(("divergence", "oracle"), ALL, ids=[f"{name}.{what}" for name in NAMES])


# from mpmath import mp, mpf, log, sqrt; mp.dps = 30
# m, p = [mpf(x) / 20 for x in (10, 6, 4)], [mpf(x) / 20 for x in (5, 12, 3)]
# c = [(a + b) / 2 for a, b in zip(m, p)]
GOLDEN = {
    # sum(a * log(a / b) for a, b in zip(m, p))
    "forward_kl": 0.196165850602345247,
    # sum(b * log(b / a) for a, b in zip(m, p))
    "reverse_kl": 0.199449202328213719,
    # sum(abs(a - b) for a, b in zip(m, p)) / 2
    "tv": 0.3,
    # sum(a * log(a / q) + b * log(b / q) for a, b, q in zip(m, p, c)) / 2
    "js": 0.0485140733941421945,
    # sum((a - b) ** 2 / b for a, b in zip(m, p))
    "chi2_mu_pi": 0.416666666666666667,
    # sum((a - b) ** 2 / a for a, b in zip(m, p))
    "chi2_pi_mu": 0.4375,
    # 1 - sum(sqrt(a * b) for a, b in zip(m, p))
    "hellinger2": 0.0489774599379099938,
    # (sum(a ** -1 * b ** 2 for a, b in zip(m, p)) - 1) / 2
    "alpha(-1)": 0.21875,
    # (sum(sqrt(a * b) for a, b in zip(m, p)) - 1) / (mpf(1) / 2 * (mpf(1) / 2 - 1))
    "alpha(0.5)": 0.195909839751639975,
    # (sum(a ** 2 / b for a, b in zip(m, p)) - 1) / 2
    "alpha(2)": 0.208333333333333333,
    # (sum(a ** 3 / b ** 2 for a, b in zip(m, p)) - 1) / 6
    "alpha(3)": 0.238425925925925926,
    # log(sum(sqrt(a * b) for a, b in zip(m, p))) / (mpf(1) / 2 - 1)
    "renyi(0.5)": 0.100435030570699909,
    # log(sum(a ** 2 / b for a, b in zip(m, p)))
    "renyi(2)": 0.348306694268216054,
    # log(sum(a ** 3 / b ** 2 for a, b in zip(m, p))) / 2
    "renyi(3)": 0.444059927453729372,
}


def cells_for(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, size - 1), min_size=size, max_size=size)


@each
def test_measure_golden(divergence: Divergence, xp: Library) -> None:
    log_mu, log_pi = xp.array(np.log([0.5, 0.3, 0.2])), xp.array(np.log([0.25, 0.6, 0.15]))
    assert_close(divergence.measure(log_mu, log_pi), GOLDEN[divergence.name], rtol=2e-15)  # float64, 3 terms


@tagged("measure")
@given(pair=log_prob_pairs())
def test_measure_is_the_textbook_definition(
    divergence: Divergence, oracle: oracles.Measure, pair: Pair
) -> None:
    laws.check_against_oracle(divergence.measure, oracle, pair)


@each_with_oracle
@given(pair=pairs_with_zeros())
def test_zeros_give_the_limit_and_never_nan(
    divergence: Divergence, oracle: oracles.Measure, pair: Pair
) -> None:
    laws.check_against_oracle(divergence.measure, oracle, pair)


@each
@given(pair=log_prob_pairs())
def test_never_negative_and_zero_iff_equal(divergence: Divergence, pair: Pair) -> None:
    laws.check_never_negative(divergence.measure, pair)
    laws.check_zero_iff_equal(divergence.measure, pair)


@each
@given(pair=log_prob_pairs())
def test_never_negative_in_float32(divergence: Divergence, pair: Pair) -> None:
    log_mu, log_pi = (row.astype(np.float32) for row in pair)
    laws.check_never_negative(divergence.measure, (log_mu, log_pi))
    assert divergence.measure(log_mu, log_pi).dtype == np.float32
    assert divergence.logit_grad(log_mu, log_pi).dtype == np.float32


@each
@given(data=st.data(), pair=log_prob_pairs())
def test_data_processing(divergence: Divergence, data: st.DataObject, pair: Pair) -> None:
    laws.check_data_processing(divergence.measure, pair, data.draw(cells_for(len(pair[0]))))


@each
@given(pair=log_prob_pairs())
def test_names_of_tokens_do_not_matter(divergence: Divergence, pair: Pair) -> None:
    laws.check_permutation_equivariant(divergence.measure, divergence.logit_grad, pair)


@each
@given(pair=log_prob_pairs())
def test_cells_without_mass_are_neutral(divergence: Divergence, pair: Pair) -> None:
    padded = tuple(np.append(row, -np.inf) for row in pair)
    assert divergence.measure(*padded) == divergence.measure(*pair)
    assert_close(divergence.logit_grad(*padded), np.append(divergence.logit_grad(*pair), 0.0), rtol=0)


@each
@given(pair=log_prob_pairs())
def test_gradient_sums_to_zero(divergence: Divergence, pair: Pair) -> None:
    laws.check_gradient_sums_to_zero(divergence.logit_grad, pair)


@tagged("logit_grad")
@given(pair=log_prob_pairs(closest=1e-6))
def test_gradient_is_the_derivative(divergence: Divergence, oracle: oracles.Measure, pair: Pair) -> None:
    assume(laws.has_derivative(oracle, *pair))
    laws.check_gradient_is_derivative(divergence.logit_grad, oracle, pair)


@each
def test_gradient_is_autograd_through_log_softmax(divergence: Divergence) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    log_mu, log_pi = (torch.as_tensor(row) for row in batch(1, (200, 5)))
    z = (log_pi + 0.7).requires_grad_()  # logits, not yet normalised
    divergence.measure(log_mu, torch.log_softmax(z, dim=-1)).sum().backward()
    formula = divergence.logit_grad(log_mu, log_pi)
    assert_close(
        z.grad, formula, rtol=1e-12, atol=1e-13 * float(formula.abs().max())
    )  # backward adds the same


@each
def test_gradient_is_a_central_difference_of_the_measure(divergence: Divergence) -> None:
    log_mu, log_pi = batch(2, (50, 4))
    h = 1e-5  # rounding EPS D / h = 1e-11 D and truncation h^2 D''' / 6 = 1e-10: one part in 1e8 is safe
    unit = h * np.eye(4)

    def moved(sign: int) -> Any:
        return divergence.measure(log_mu[:, None], log_softmax(log_pi[:, None] + sign * unit, axis=-1))

    numeric = (moved(1) - moved(-1)) / (2 * h)
    scale = 1 + divergence.measure(log_mu, log_pi).max()
    assert_close(divergence.logit_grad(log_mu, log_pi), numeric, rtol=1e-7, atol=1e-8 * scale)


@each
def test_numpy_and_torch_agree(divergence: Divergence) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for log_mu, log_pi in (batch(3, (7, 3, 5)), batch(4, (50, 30), apart=1e-4)):
        there = (torch.as_tensor(log_mu), torch.as_tensor(log_pi))
        value, grad = divergence.measure(log_mu, log_pi), divergence.logit_grad(log_mu, log_pi)
        assert value.shape == log_mu.shape[:-1] and grad.shape == log_mu.shape
        assert_close(divergence.measure(*there), value, rtol=1e-12, atol=1e-18)
        assert_close(divergence.logit_grad(*there), grad, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("divergence", [d for d in EVERY if d.convex_in_logits], ids=lambda d: d.name)
@given(data=st.data(), pair=log_prob_pairs())
def test_convex_in_logits_where_it_says_so(divergence: Divergence, data: st.DataObject, pair: Pair) -> None:
    row = st.lists(st.floats(-4, 4), min_size=len(pair[0]), max_size=len(pair[0]))
    laws.check_convex_in_logits(divergence.measure, divergence.logit_grad, pair, np.array(data.draw(row)))


@pytest.mark.parametrize("divergence", [d for d in EVERY if not d.convex_in_logits], ids=lambda d: d.name)
def test_not_convex_in_logits_where_it_says_so(divergence: Divergence) -> None:
    """Each has a pair and a step at which a predicted increase is a decrease."""
    log_mu, log_pi = batch(5, (4000, 3))
    move = 6 * np.random.default_rng(5).standard_normal(log_pi.shape)
    predicted = np.sum(divergence.logit_grad(log_mu, log_pi) * move, axis=-1)
    after = divergence.measure(log_mu, log_softmax(log_pi + move, axis=-1))
    assert np.any((predicted > 0.01) & (after - divergence.measure(log_mu, log_pi) < -0.01))


@given(pair=log_prob_pairs())
def test_forward_and_reverse_swap(pair: Pair) -> None:
    log_mu, log_pi = pair
    for one, other in ((FORWARD_KL, REVERSE_KL), (CHI2_MU_PI, CHI2_PI_MU)):
        assert one.measure(log_mu, log_pi) == other.measure(log_pi, log_mu)


@given(pair=log_prob_pairs(closest=0.1))
def test_inequalities_between_divergences(pair: Pair) -> None:
    kl, tv = FORWARD_KL.measure(*pair), TV.measure(*pair)
    slack = 1e-12  # each side is off by rounding
    assert tv <= pinsker(kl) + slack and tv <= bretagnolle_huber(kl) + slack
    assert HELLINGER2.measure(*pair) <= tv + slack and kl <= np.log1p(CHI2_MU_PI.measure(*pair)) + slack


@given(pair=log_prob_pairs())
def test_difference_to_full_relative_accuracy(pair: Pair) -> None:
    exact = [
        float(oracles.mp.exp(oracles.mpf(p)) - oracles.mp.exp(oracles.mpf(m)))
        for m, p in zip(*(row.tolist() for row in pair), strict=True)
    ]
    # One rounding each: the log ratio (a subtraction), exp, expm1 and their product.
    assert_close(difference(*pair), np.array(exact), rtol=8 * laws.EPS)


def test_log_ratio_of_impossible_tokens() -> None:
    log_mu, log_pi = logs([0, 0, 1]), logs([0, 0.5, 0.5])
    assert_close(log_ratio(log_mu, log_pi), [0, np.inf, np.log(0.5)], rtol=1e-15)


def test_forward_kl_where_pi_vanishes_is_infinite_with_a_finite_gradient(xp: Library) -> None:
    log_mu, log_pi = xp.array(logs([0.25, 0.5, 0.25])), xp.array(logs([0.5, 0.5, 0]))
    assert float(FORWARD_KL.measure(log_mu, log_pi)) == np.inf
    assert_close(FORWARD_KL.logit_grad(log_mu, log_pi), [0.25, 0, -0.25], rtol=1e-15)


@given(pair=pairs_with_zeros())
def test_forward_kl_is_scipy(pair: Pair) -> None:
    expected = rel_entr(np.exp(pair[0]), np.exp(pair[1])).sum()
    assert_close(FORWARD_KL.measure(*pair), expected, rtol=1e-13, atol=1e-14)  # SciPy's sum cancels


@pytest.mark.parametrize(
    ("mu", "logits"),
    [
        ([0.3, 0.7, 0], [0.1, 0.2, -np.inf]),
        ([0.3, 0.7, 0], [0.1, 0.2, 0.3]),
        ([0.3, 0.5, 0.2], [0.1, 0.2, -np.inf]),
    ],
    ids=["zero under both", "under mu", "under pi"],
)
def test_autograd_at_impossible_tokens(mu: list[float], logits: list[float]) -> None:
    """Wherever the value is finite, no NaN comes back, and the gradient is the formula's."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    log_mu = torch.as_tensor(logs(mu))
    finite = 0
    for divergence in EVERY:
        z = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
        log_pi = torch.log_softmax(z, dim=-1)
        value = divergence.measure(log_mu, log_pi)
        if bool(torch.isfinite(value)):
            value.backward()
            formula = divergence.logit_grad(log_mu, log_pi.detach())
            assert_close(z.grad, formula, rtol=1e-12, atol=1e-15)
            finite += 1
    assert finite >= 7


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_policy_that_misses_all_of_mu_is_infinitely_far_and_nothing_overflows(dtype: str) -> None:
    """The sum over mu's whole support of cells near the largest float, whatever mu's rounding."""
    log_mu = np.log(np.random.default_rng(0).dirichlet(np.ones(7), 500)).astype(dtype)
    log_mu = np.concatenate([log_mu, np.full((500, 1), -np.inf, dtype=dtype)], axis=-1)
    log_pi = np.where(np.arange(8) == 7, 0.0, -np.inf).astype(dtype)
    assert np.all(np.isposinf(FORWARD_KL.measure(log_mu, np.broadcast_to(log_pi, log_mu.shape))))
