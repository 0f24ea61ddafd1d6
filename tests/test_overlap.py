"""The knapsack behind the certificate, in exact arithmetic: its extremes are vertices, and duality closes."""

from fractions import Fraction as F
from typing import Any

import numpy as np
import oracles
import pytest
from conftest import Library
from hypothesis import given
from hypothesis import strategies as st
from pairs import Floats, assert_close, numpy_of
from scipy.optimize import linprog

from divsim.formulas import overlap_bounds_at, overlap_bracket

UNIT = 64  # all numbers are multiples of 1/64, so float64 arithmetic on them is exact


@st.composite
def knapsacks(draw: st.DrawFn) -> tuple[list[F], F, F]:
    """pi on up to four hidden tokens (zeros and ties included), the hidden mass of mu, and its cap."""
    pi = draw(st.lists(st.integers(0, 16), min_size=1, max_size=4))
    cap = draw(st.integers(1, 16))
    mass = draw(st.integers(0, cap * len(pi)))
    return [F(p, UNIT) for p in pi], F(mass, UNIT), F(cap, UNIT)


def floats(knapsack: tuple[list[F], F, F]) -> tuple[Floats, Floats, Floats]:
    pi, mass, cap = knapsack
    return np.array([float(p) for p in pi]), np.array(float(mass)), np.array(float(cap))


@given(knapsack=knapsacks())
def test_bracket_is_attained_at_vertices(knapsack: tuple[list[F], F, F]) -> None:
    """(overlap.bracket): equal to the last bit."""
    low, high = overlap_bracket(*floats(knapsack))
    assert (F(float(low)), F(float(high))) == oracles.overlap_extremes(*knapsack)


@given(knapsack=knapsacks(), low_price=st.integers(0, 20), high_price=st.integers(0, 20))
def test_any_price_is_sound(knapsack: tuple[list[F], F, F], low_price: int, high_price: int) -> None:
    """(overlap.bounds_at): weak duality, exactly."""
    prices = np.array(low_price / UNIT), np.array(high_price / UNIT)
    low, high = overlap_bounds_at(*floats(knapsack), *prices)
    least, greatest = oracles.overlap_extremes(*knapsack)
    assert F(float(low)) <= least and greatest <= F(float(high))


@given(knapsack=knapsacks())
def test_the_best_price_closes_the_gap(knapsack: tuple[list[F], F, F]) -> None:
    """Strong duality: the best price is one of the tail's own pi, or 0."""
    pi, mass, cap = floats(knapsack)
    prices = np.append(pi, 0.0)
    lows, highs = overlap_bounds_at(pi, mass, cap, prices, prices)
    low, high = overlap_bracket(pi, mass, cap)
    assert np.max(lows) == low and np.min(highs) == high


def test_bracket_is_a_linear_programme(xp: Library) -> None:
    rng = np.random.default_rng(51)
    for _ in range(20):
        pi, cap = rng.dirichlet(np.ones(12)) / 2, rng.uniform(0.01, 0.2)
        mass = rng.uniform(0, 12 * cap)
        low, high = overlap_bracket(xp.array(pi), xp.array(mass), xp.array(cap))
        for end, sign in ((low, 1), (high, -1)):
            best = linprog(sign * pi, A_eq=np.ones((1, 12)), b_eq=[mass], bounds=(0, cap))
            assert_close(end, sign * best.fun, rtol=1e-9, atol=1e-12)  # the solver's own tolerance


def test_visible_tokens_take_no_mass_and_zeros_do(xp: Library) -> None:
    """-inf marks a token that is not hidden; a hidden token with pi = 0 can hold mass of mu for free."""
    half = xp.array(0.5)
    low, high = overlap_bracket(xp.array([0.0, 0.5, -np.inf]), half, half)
    assert (float(low), float(high)) == (0.0, 0.25)
    low, high = overlap_bracket(xp.array([-np.inf, -np.inf]), half, half)
    assert (float(low), float(high)) == (0.0, 0.0)
    for low_price in (0.0, 0.25):
        ends = overlap_bounds_at(xp.array([0.0, 0.5, -np.inf]), half, half, xp.array(low_price), half)
        assert [float(end) for end in ends] == [0.0, 0.25]


def test_slack_widens_both_ends() -> None:
    pi, mass, cap, slack = np.array([0.3, 0.1, 0.05]), np.array(0.25), np.array(0.2), np.array(0.1)
    low, high = overlap_bracket(pi, mass, cap, slack)
    assert low == overlap_bracket(pi, mass - slack, cap)[0]
    assert high == overlap_bracket(pi, mass + slack, cap)[1]
    assert overlap_bracket(pi, mass, cap, np.array(0.4))[0] == 0  # no mass is the least there can be


@pytest.mark.parametrize("name", ["overlap.bracket", "overlap.bounds_at"])
def test_numpy_and_torch_agree(name: str, xp: Library) -> None:
    rng = np.random.default_rng(52)
    pi, cap = rng.dirichlet(np.ones(9), size=(4, 5)), rng.uniform(0.05, 0.2, (4, 5))
    mass = rng.uniform(0, 1, (4, 5)) * 9 * cap
    function: Any = {"overlap.bracket": overlap_bracket, "overlap.bounds_at": overlap_bounds_at}[name]
    arguments = [pi, mass, cap, *([pi[..., 2], pi[..., 6]] if name == "overlap.bounds_at" else [])]
    here, there = function(*arguments), function(*(xp.array(x) for x in arguments))
    for mine, theirs in zip(here, there, strict=True):
        assert mine.shape == (4, 5)
        assert_close(theirs, numpy_of(mine), rtol=1e-12, atol=1e-15)
