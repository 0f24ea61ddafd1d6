"""Point estimators of the change in a hidden tail: each is what it says, and exact where that is true."""

from fractions import Fraction as F
from typing import Any

import laws
import numpy as np
import oracles
import pytest
from conftest import Library
from hypothesis import assume, given
from hypothesis import strategies as st
from pairs import Floats, Pair, assert_close, batch, log_prob_pairs, logs, numpy_of
from scipy.special import log_softmax
from test_change import WORKED
from test_divergences import each, each_with_oracle

from divsim.formulas import FORWARD_KL, TAILS, Divergence, View, change

MODELS = tuple(oracles.TAIL_CHANGES)  # all of TAILS but "full"


def kept_tokens(log_mu: Floats, k: int, count: int) -> list[int]:
    """TopK(mu) and the sampled token, in the order of a view's cells."""
    top = np.argsort(-log_mu)[:count].tolist()
    return top if k in top else [*top, k]


def test_the_table_is_what_is_tested() -> None:
    assert set(TAILS) == {"full", *MODELS}
    assert all(name == tail.name and tail.meaning for name, tail in TAILS.items())


@each_with_oracle
@given(data=st.data(), pair=log_prob_pairs(min_size=3, closest=1e-3))
def test_each_estimator_is_what_it_says(
    divergence: Divergence, oracle: oracles.Measure, data: st.DataObject, pair: Pair
) -> None:
    """Proportional is the derivative of the coarse divergence; the others, of a changed world."""
    log_mu, log_pi = pair
    assume(len(set(log_mu)) == len(log_mu))
    k, count = data.draw(st.integers(0, len(log_mu) - 1)), data.draw(st.integers(1, len(log_mu)))
    view = View.top_k(log_mu, log_pi, np.asarray(k), count)
    assume(laws.has_derivative(oracle, *view.cells))
    mu, pi = oracles.normalised(log_mu), oracles.normalised(log_pi)
    name = data.draw(st.sampled_from(MODELS))
    exact = float(oracles.TAIL_CHANGES[name](oracle, mu, pi, k, kept_tokens(log_mu, k, count)))
    scale = max(1.0, float(np.max(np.abs(divergence.logit_grad(*view.cells)))))
    assert_close(change(view, divergence, name), exact, rtol=0, atol=1e-13 * scale)  # sums of seven terms


def textbook(view_of: str, mu: list[F], pi: list[F], k: int, kept: list[int]) -> F:
    """Forward KL: (pi_k - mu_k) + sum_S pi_i (mu_i - pi_i), and what the model adds for the tail."""
    base = pi[k] - mu[k] + sum(pi[i] * (mu[i] - pi[i]) for i in kept)
    hidden = [i for i in range(len(pi)) if i not in kept]
    p, m = sum((pi[i] for i in hidden), F(0)), sum((mu[i] for i in hidden), F(0))
    squares = sum((pi[i] ** 2 for i in hidden), F(0))
    share = {"aggregated": F(1), "uniform": F(1, len(hidden)), "proportional": squares / p**2, "zero": F(0)}
    return base + p * (m - p) * share[view_of]


@pytest.mark.parametrize("name", MODELS)
def test_estimators_at_the_worked_example(name: str, xp: Library) -> None:
    """c = -3/400, and both the aggregated and the uniform tail say that the divergence grows."""
    pi, mu, k, exact = WORKED["tails"]
    log_pi, log_mu = (xp.array(np.log([[float(F(x)) for x in row]])) for row in (pi, mu))
    expected = textbook(name, [F(x) for x in mu], [F(x) for x in pi], k, [0, 1])
    view = View.top_k(log_mu, log_pi, xp.array([k]), k=2)
    assert_close(change(view, tail=name), [float(expected)], rtol=1e-12)
    published = {"aggregated": 0.0019, "uniform": 0.0494}
    if name in published:
        assert round(float(expected), 4) == published[name] and F(exact) < 0


def test_lumping_can_hide_everything(xp: Library) -> None:
    log_mu, log_pi = xp.array(logs([[0.9, 0.09, 0.01]])), xp.array(logs([[0.9, 0.01, 0.09]]))
    coarse = View.top_k(log_mu, log_pi, xp.array([0]), k=1)
    assert_close(FORWARD_KL.measure(*coarse.cells), [0.0], rtol=0, atol=1e-16)
    # from mpmath import mp, log; mp.dps = 30; (9 - 1) * log(9) / 100
    assert_close(FORWARD_KL.measure(log_mu, log_pi), [0.17577796618689758], rtol=1e-14)


@each
def test_aggregated_is_exact_for_a_tail_of_one_token(divergence: Divergence) -> None:
    log_mu, log_pi = batch(41, (60, 5))
    action = np.argmax(log_mu, axis=-1)
    one_hidden = View.top_k(log_mu, log_pi, action, k=4)
    exact = change(View.full(log_mu, log_pi, action), divergence)
    for name in ("aggregated", "uniform", "proportional"):
        estimate = change(one_hidden, divergence, name)
        assert_close(estimate, exact, rtol=1e-11, atol=1e-13 * np.max(np.abs(exact)))  # sums of five terms


def test_uniform_is_exact_where_pi_is_flat_on_the_tail() -> None:
    """Whatever mu is there: derivations, T7."""
    log_mu, log_pi = batch(42, (60, 7))
    action = np.argmax(log_mu, axis=-1)
    hidden = log_mu < np.sort(log_mu, axis=-1)[:, -3:-2]
    log_pi = log_softmax(np.where(hidden, -1.5, log_pi), axis=-1)
    view = View.top_k(log_mu, log_pi, action, k=3)
    exact = change(View.full(log_mu, log_pi, action))
    assert_close(change(view, tail="uniform"), exact, rtol=1e-12, atol=1e-15)
    assert np.max(np.abs(change(view, tail="aggregated") - exact)) > 1e-3


def test_proportional_is_exact_where_the_tails_have_one_shape() -> None:
    log_mu, log_pi = batch(43, (60, 7))
    action = np.argmax(log_mu, axis=-1)
    hidden = log_mu < np.sort(log_mu, axis=-1)[:, -3:-2]
    log_pi = log_softmax(np.where(hidden, log_mu - 0.7, log_pi), axis=-1)
    view = View.top_k(log_mu, log_pi, action, k=3)
    exact = change(View.full(log_mu, log_pi, action))
    assert_close(change(view, tail="proportional"), exact, rtol=1e-12, atol=1e-15)
    assert np.max(np.abs(change(view, tail="uniform") - exact)) > 1e-3


def test_at_the_binary_resolution_the_predictive_test_is_the_ratio_test() -> None:
    """d_k (1 - 2 pi_k + S2) / (1 - pi_k) and 2 (1 - pi_k) d_k: derivations, T7."""
    log_mu, log_pi = batch(44, (200, 6))
    action = np.arange(200) % 6
    view = View.full(log_mu, log_pi, action)
    gap, pi_k = np.exp(view.log_pi_k) - np.exp(view.log_mu_k), np.exp(view.log_pi_k)
    squares = np.sum(np.exp(2 * log_pi), axis=-1)
    binary = view.binary()
    derivative = gap * (1 - 2 * pi_k + squares) / (1 - pi_k)
    assert_close(change(binary, tail="proportional"), derivative, rtol=1e-11, atol=1e-14)
    assert_close(change(binary, tail="aggregated"), 2 * (1 - pi_k) * gap, rtol=1e-11, atol=1e-14)
    for name in MODELS:
        if name != "zero":
            assert np.all(np.sign(change(binary, tail=name)) == np.sign(gap))


@pytest.mark.parametrize("name", MODELS)
def test_a_tail_without_mass_adds_nothing(name: str, xp: Library) -> None:
    log_mu, log_pi = xp.array(logs([[0.6, 0.4, 0, 0]])), xp.array(logs([[0.3, 0.7, 0, 0]]))
    view = View.top_k(log_mu, log_pi, xp.array([0]), k=2)
    assert float(TAILS[name].nu(view)[0]) == 0
    assert_close(change(view, tail=name), change(View.full(log_mu, log_pi, xp.array([0]))), rtol=1e-14)


@pytest.mark.parametrize("name", MODELS)
def test_precision_is_kept(name: str, xp: Library) -> None:
    log_mu, log_pi = (xp.array(row.astype(np.float32)) for row in batch(47, (2, 5)))
    assert "float32" in str(TAILS[name].nu(View.top_k(log_mu, log_pi, xp.array([0, 1]), k=2)).dtype)


def test_tails_that_a_view_cannot_answer() -> None:
    log_mu, log_pi = batch(45, (2, 4))
    action = np.array([0, 1])
    with pytest.raises(ValueError, match=r"tail 'full' needs every token in sight.*; use View\.full"):
        change(View.top_k(log_mu, log_pi, action, k=2))
    sampled = View.sampled(log_mu[:, 0], log_pi[:, 0], vocab_size=4)
    with pytest.raises(ValueError, match=r"this view has no pi_tail_sq; .*View\.from_logits supplies it"):
        change(sampled, tail="proportional")
    for name in ("aggregated", "uniform", "zero"):
        assert np.all(np.isfinite(change(sampled, tail=name)))


@pytest.mark.parametrize("name", MODELS)
def test_numpy_and_torch_agree(name: str, xp: Library) -> None:
    log_mu, log_pi = batch(46, (40, 9))
    action = np.arange(40) % 9
    here = change(View.top_k(log_mu, log_pi, action, k=3), tail=name)
    there: Any = change(View.top_k(xp.array(log_mu), xp.array(log_pi), xp.array(action), k=3), tail=name)
    assert_close(there, numpy_of(here), rtol=1e-12, atol=4 * laws.EPS)
