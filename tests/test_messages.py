"""What the doors of functions of arrays say: argument, unit and remedy by name."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Library

from divsim.formulas import (
    TV,
    View,
    aggregate,
    alpha,
    band,
    change,
    group_advantage,
    horizon_coupling,
    horizon_mixed,
    horizon_quadratic,
    loss_weights,
    renyi,
)

ONES, THREE = np.ones((1, 2)), np.ones((1, 3))
TOKENS = ONES > 0

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: group_advantage(np.array(1.0)),
        "reward must have a last axis with at least one entry, got shape ()",
    ),
    (
        lambda: group_advantage(ONES, THREE > 0),
        "is_scored must have shape (1, 2) (that of reward), got (1, 3)",
    ),
    (
        lambda: group_advantage(ONES, eps=-1.0),
        "eps must be a finite number > 0 (the reward's unit), got -1.0",
    ),
    (lambda: band(TV, np.zeros(1), -1.0), "delta must be a finite number > 0 (unit of tv), got -1.0"),
    (
        lambda: loss_weights(TOKENS, "constant_length", 0),
        "horizon must be a whole number >= 1 (tokens), got 0; pass the constant length",
    ),
    (lambda: aggregate(THREE, ONES), "values must have shape (1, 2) (that of weights), got (1, 3)"),
    (
        lambda: horizon_quadratic(0.1, 0),
        "horizon must be a whole number >= 1 (steps), got 0; pass the length of an episode",
    ),
    (
        lambda: horizon_mixed(ONES, ONES, 0),
        "horizon must be a whole number >= 1 (steps), got 0; pass the length of an episode",
    ),
    (
        lambda: horizon_coupling(ONES, 0),
        "horizon must be a whole number >= 1 (steps), got 0; pass the length of an episode",
    ),
]


@pytest.mark.parametrize(("call", "said"), REFUSED, ids=[said[:40] for _, said in REFUSED])
def test_a_refusal_names_argument_unit_and_remedy(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def test_two_libraries_are_refused_by_name() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(TypeError, match="got reward: ndarray, is_scored: Tensor"):
        group_advantage(ONES, torch.ones((1, 2)) > 0)
    with pytest.raises(TypeError, match="got values: ndarray, weights: Tensor"):
        aggregate(ONES, torch.ones((1, 2)))


def test_names_are_no_records() -> None:
    array: Any = ONES
    with pytest.raises(
        TypeError, match=r"view must be a View record, got array.*; View\.full, View\.top_k, View\.sampled or"
    ):
        change(array)
    name: Any = "tv"
    with pytest.raises(
        TypeError, match=r"divergence must be a Divergence record, got 'tv'; an entry of DIVERGENCES is"
    ):
        change(View.full(np.log(ONES / 2), np.log(ONES / 2), np.array([0])), name)
    for family in (alpha, renyi):
        with pytest.raises(TypeError, match="order must be a number, got 'tv'"):
            family(name)


def test_a_number_is_no_array() -> None:
    number: Any = 1.0
    with pytest.raises(TypeError, match="got values: ndarray, weights: float"):
        aggregate(ONES, number)


def test_float32_stays_float32(xp: Library) -> None:
    ones, tv = xp.array(np.ones((1, 2), np.float32)), xp.array(np.float32(0.1))
    weights = loss_weights(ones > 0)
    for result in (group_advantage(ones), aggregate(ones, weights), horizon_coupling(tv, 3)):
        assert "float32" in str(result.dtype)
