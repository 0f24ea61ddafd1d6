"""The line of a token's own step and its flip step, against root finding and the definition."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles import mp, normalised
from scipy.optimize import brentq
from scipy.special import log_softmax

from divsim.formulas import FORWARD_KL, flip_step_bracket
from divsim.tabular.geometry import EUCLIDEAN, NATURAL, SIGN, Geometry, linear_head
from divsim.tabular.lines import flip_step, line
from divsim.tabular.one_step import realised_change
from divsim.tabular.policies import PAIR_FAMILIES, PolicyPair, sample_from

Floats = NDArray[np.float64]

VOCAB = 40
HEAD = linear_head(np.random.default_rng(7).standard_normal((VOCAB, 6)))
geometries = pytest.mark.parametrize("geometry", [EUCLIDEAN, NATURAL, SIGN, HEAD], ids=lambda g: g.name)
families = pytest.mark.parametrize("family", PAIR_FAMILIES)


def draw(family: str, n: int = 60) -> tuple[PolicyPair, np.ndarray]:
    rng = np.random.default_rng(3)
    pair = PAIR_FAMILIES[family](rng, (n,), VOCAB)
    return pair, sample_from(rng, pair.log_mu)


@geometries
@families
def test_a_line_on_few_cells_is_the_line_on_all(geometry: Geometry, family: str) -> None:
    pair, action = draw(family)
    along, direction = line(geometry, pair, action), geometry.direction(pair.log_pi, action)
    assert along.log_pi.shape == (60, 2 if geometry in (SIGN, NATURAL) else VOCAB)
    rate = geometry.rate(FORWARD_KL, pair, action)
    size = np.max(np.abs(direction), axis=-1)
    # a rate sums terms of at most 2 * size, each with a rounding or two
    assert np.all(np.abs(along.rate() - rate) <= 1e-14 * (1 + size))
    for fraction in (0.01, 0.5, 2.0):
        step = fraction / size
        expected = realised_change(FORWARD_KL, pair, direction, step)
        np.testing.assert_allclose(along.realised(step), expected, rtol=1e-9, atol=1e-13)


@geometries
@families
def test_the_flip_step_is_the_root(geometry: Geometry, family: str) -> None:
    pair, action = draw(family)
    along, direction = line(geometry, pair, action), geometry.direction(pair.log_pi, action)
    found = flip_step(along)
    for token in range(20):
        one = PolicyPair(pair.log_mu[token], pair.log_pi[token])

        def change(s: float, one: PolicyPair = one, v: np.ndarray = direction[token]) -> float:
            return float(realised_change(FORWARD_KL, one, v, s))

        expected = brentq(
            change, 0.5 * found[token], 2 * found[token], xtol=1e-13 * abs(found[token]), rtol=1e-13
        )
        assert abs(found[token] / expected - 1) < 1e-6, (token, found[token], expected)


@geometries
@families
def test_kl_is_lower_before_the_flip_step_and_higher_beyond_and_on_the_other_side(
    geometry: Geometry, family: str
) -> None:
    along = line(geometry, *draw(family))
    flip = flip_step(along)
    assert np.all(along.rate() * flip < 0)
    for fraction, sign in ((0.1, -1), (0.9, -1), (1.1, 1), (3.0, 1), (-0.1, 1), (-3.0, 1)):
        assert np.all(np.sign(along.realised(fraction * flip)) == sign), fraction


@families
def test_the_flip_step_lies_in_its_closed_bracket(family: str) -> None:
    pair, action = draw(family)
    low, high = flip_step_bracket(pair.log_mu, pair.log_pi, action)
    found = np.abs(flip_step(line(EUCLIDEAN, pair, action)))
    assert np.all((low * (1 - 1e-6) <= found) & (found <= high * (1 + 1e-6)))


@families
def test_sign_and_natural_steps_go_along_one_line(family: str) -> None:
    pair, action = draw(family)
    sign, natural = (flip_step(line(g, pair, action)) for g in (SIGN, NATURAL))
    pi_k = np.exp(np.take_along_axis(pair.log_pi, action[:, None], -1)[:, 0])
    np.testing.assert_allclose(2 * sign, natural / pi_k, rtol=1e-6)  # both are the move of logit k alone


def test_where_policies_agree_there_is_no_flip() -> None:
    log_p = np.log(np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]))
    assert np.all(np.isnan(flip_step(line(EUCLIDEAN, PolicyPair(log_p, log_p), np.array([0, 2])))))


def root_at_60_digits(log_mu: Floats, log_pi: Floats, k: int) -> float:
    """The flip step of the Euclidean step, by halving a bracket of the textbook difference."""
    mu, pi = normalised(log_mu), normalised(log_pi)
    move = [(i == k) - p for i, p in enumerate(pi)]
    rate = mp.fsum((p - m) * v for m, p, v in zip(mu, pi, move, strict=True))

    def realised(size: Any) -> Any:
        s = -mp.sign(rate) * size
        grown = mp.fsum(p * mp.exp(s * v) for p, v in zip(pi, move, strict=True))
        return mp.log(grown) - s * mp.fsum(m * v for m, v in zip(mu, move, strict=True))

    high = 2 * abs(rate) / mp.fsum(p * v * v for p, v in zip(pi, move, strict=True))
    while realised(high) < 0:
        high *= 2
    low = high / 2
    while realised(low) > 0:
        low /= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if realised(middle) < 0 else (low, middle)
    return float(-mp.sign(rate) * low)


def normalised_to_a_rounding(logits: Floats) -> Floats:
    """Log-probabilities by log1p of what the first token leaves: right in every digit."""
    others = logits[1:] - logits[0]
    log_total = np.log1p(np.exp(others).sum())
    return np.concatenate([[-log_total], others - log_total])


@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("others", [0.0, -6.0, -12.0, -20.0])
def test_a_root_keeps_its_digits_for_certain_tokens_and_close_policies(others: float, apart: float) -> None:
    logits = np.array([0.0, others, others - 1, others - 0.5])
    log_mu = normalised_to_a_rounding(logits)
    log_pi = normalised_to_a_rounding(logits + apart * np.random.default_rng(0).standard_normal(4))
    # Two policies, each with a rounding of its own and of its normaliser, against how far apart they are;
    # and the square of the relative size, 1e-5, of Newton's last step.
    rounding = np.finfo(np.float64).eps * np.max(np.abs(log_mu)) / np.max(np.abs(log_pi - log_mu))
    for k in (0, 1):
        (found,) = flip_step(line(EUCLIDEAN, PolicyPair(log_mu[None], log_pi[None]), np.array([k])))
        assert abs(found / root_at_60_digits(log_mu, log_pi, k) - 1) < 1e-10 + 4 * rounding


def test_a_token_without_curvature_has_no_root_and_stops_nobody() -> None:
    """pi (1 - pi) of a token certain to 1e-130 is squared to 0; at 1e-87 it is not, and the root is found."""
    for open_, has_root in ((200.0, True), (300.0, False)):
        log_pi, log_mu = (np.array([[-x, np.log1p(-np.exp(-x))]]) for x in (open_, open_ + 1))
        found = flip_step(line(EUCLIDEAN, PolicyPair(log_mu, log_pi), np.array([1])))
        assert np.isfinite(found[0]) == has_root


def test_one_hidden_root_spoils_no_other() -> None:
    log_mu = log_softmax(np.array([[0.0, -30.0, -31.0], [0.0, 1.0, 2.0]]), axis=-1)
    log_pi = log_softmax(np.array([[0.0, -30.001, -30.999], [0.0, -1.0, -2.0]]), axis=-1)
    found = flip_step(line(EUCLIDEAN, PolicyPair(log_mu, log_pi), np.array([0, 0])))
    (alone,) = flip_step(line(EUCLIDEAN, PolicyPair(log_mu[1:], log_pi[1:]), np.array([0])))
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(alone, rel=1e-9)
