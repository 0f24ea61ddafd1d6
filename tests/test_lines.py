"""The line of a token's own step and its flip step, against root finding and the definition."""

import numpy as np
import pytest
from scipy.optimize import brentq

from divsim.formulas import FORWARD_KL, flip_step_bracket
from divsim.tabular.geometry import EUCLIDEAN, NATURAL, SIGN, Geometry, linear_head
from divsim.tabular.lines import flip_step, line
from divsim.tabular.one_step import realised_change
from divsim.tabular.policies import PAIR_FAMILIES, PolicyPair, sample_from

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


def test_a_root_that_rounding_hides_is_not_made_up() -> None:
    log_mu = np.log(np.array([[1 - 3e-13, 2e-13, 1e-13], [0.5, 0.3, 0.2]]))
    log_pi = np.log(np.array([[1 - 3e-13, 2e-13 + 1e-27, 1e-13 - 1e-27], [0.2, 0.3, 0.5]]))
    found = flip_step(line(EUCLIDEAN, PolicyPair(log_mu, log_pi), np.array([0, 0])))
    assert np.isfinite(found[1])
    assert np.isnan(found[0]) or abs(found[0]) > 0
