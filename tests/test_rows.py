"""Rows of a result: flat, fit for JSON, one per key; and the rows made from two by two tables, by hand."""

import json
import math

import numpy as np
import pytest

from divsim.experiments.agreement_rows import accuracy_rows, conditional_rows
from divsim.experiments.rows import MEASURED, Row, find, row, select
from divsim.experiments.statistics import Estimate, mean, share, sign_flip_p

TESTS = ("always", "ratio", "forward_kl/full", "forward_kl/zero", "own_rate")


def tables(seeds: int = 4) -> np.ndarray:
    """(seeds, tests, 2, 2) of tokens that all tests judge; "always" predicts a rise each time."""
    rng = np.random.default_rng(0)
    rises, says = rng.random((seeds, 1, 30)) < 0.6, rng.random((seeds, len(TESTS), 30)) < 0.5
    says[:, 0] = True
    cells = [[np.sum((says == up) & (rises == rose), axis=-1) for rose in (0, 1)] for up in (0, 1)]
    return np.moveaxis(np.array(cells), (0, 1), (-2, -1))


def test_a_row_is_its_key_and_what_was_measured() -> None:
    made = row(Estimate(0.5, 0.25, 0.75, 4), 8, 0.01, test="ratio", k=5)
    measured = {"value": 0.5, "low": 0.25, "high": 0.75, "tokens": 8, "seeds": 4, "p": 0.01}
    assert made == {"test": "ratio", "k": 5} | measured
    assert made.keys() - set(MEASURED) == {"test", "k"}


@pytest.mark.parametrize("nothing", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_becomes_null(nothing: float) -> None:
    made = row(Estimate(nothing, nothing, nothing, 1), 3, nothing)
    assert [made[name] for name in ("value", "low", "high", "p")] == [None] * 4
    assert row(Estimate(0.0, 0.0, 0.0, 1), 3)["p"] is None


def test_a_row_of_numpy_numbers_is_json() -> None:
    estimate = share(np.array([1, 2], dtype=np.int64), np.array([3, 4], dtype=np.int64))
    made = row(estimate, np.int64(7), np.float64(0.5), test="ratio")  # type: ignore[arg-type]  # as sums are
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert {type(made[name]) for name in ("value", "low", "high", "p")} == {float}
    assert {type(made[name]) for name in ("tokens", "seeds")} == {int}


def test_find_wants_exactly_one() -> None:
    rows = [{"k": 1, "tail": "zero"}, {"k": 5, "tail": "zero"}, {"k": 5, "tail": "uniform"}]
    assert find(rows, k=5, tail="uniform") is rows[2]
    with pytest.raises(LookupError, match=r"2 rows match \{'k': 5\}; one must"):
        find(rows, k=5)
    with pytest.raises(LookupError, match="0 rows match"):
        find(rows, k=7)


def test_select_keeps_the_order_and_asks_for_every_field() -> None:
    rows: list[Row] = [{"k": 5, "tail": "zero"}, {"k": 1}, {"k": 1, "tail": "zero"}]
    assert select(rows, tail="zero") == [rows[0], rows[2]]
    assert select(rows, tail="zero", k=1) == [rows[2]]
    assert select(rows) == rows


def test_accuracies_are_right_answers_over_tokens() -> None:
    counts = tables()
    rows = accuracy_rows(counts, TESTS, region="all")
    assert [r["quantity"] for r in rows] == ["base_rate", *["accuracy"] * len(TESTS)]
    base = find(rows, quantity="base_rate")
    assert base["value"] == counts[:, 0, :, 1].sum() / 120 and base["tokens"] == 120
    for place, test in enumerate(TESTS):
        right = sum(table[place, 0, 0] + table[place, 1, 1] for table in counts)
        found = find(rows, test=test, region="all")
        assert found["value"] == pytest.approx(right / 120, abs=1e-15)  # one division each
        assert found["seeds"] == 4
    assert find(rows, test="always")["value"] == base["value"], "always is right as often as KL rises"


def test_accuracies_may_be_a_choice_and_need_tokens() -> None:
    rows = accuracy_rows(tables(), TESTS, ("ratio",))
    assert [r.get("test") for r in rows] == [None, "ratio"]
    assert accuracy_rows(np.zeros_like(tables()), TESTS) == []


def test_conditional_rows_by_hand() -> None:
    counts = np.array([
        [[[6, 2], [1, 3]], [[4, 0], [3, 5]]],
        [[[5, 5], [1, 1]], [[6, 2], [0, 4]]],
    ])  # fmt: skip
    rows = conditional_rows(counts, ("ratio", "forward_kl/full"), region="all")
    unsafe = find(rows, test="ratio", quantity="unsafe_keep")
    assert (unsafe["value"], unsafe["tokens"]) == (7 / 18, 18)
    pooled = find(rows, test="forward_kl/full", quantity="risk_difference")
    assert pooled["value"] == pytest.approx(9 / 12 - 2 / 12, abs=1e-15) and pooled["tokens"] == 24
    paired = find(rows, quantity="risk_difference_minus_ratio")
    per_seed = [5 / 8 - (3 / 4 - 2 / 8), (1 - 2 / 8) - (1 / 2 - 5 / 10)]
    assert paired["value"] == pytest.approx(np.mean(per_seed), abs=1e-15)
    assert (paired["low"], paired["p"]) == pytest.approx((mean(per_seed).low, sign_flip_p(per_seed)))


def test_conditional_rows_need_predictions_of_both_kinds() -> None:
    rows = conditional_rows(tables(), TESTS)
    assert {r["test"] for r in rows} == set(TESTS) - {"always"}
    paired = {r["test"] for r in rows if r["quantity"] == "risk_difference_minus_ratio"}
    assert paired == {"forward_kl/full", "own_rate"}, "estimators of the change are not compared"


def test_one_seed_is_not_paired() -> None:
    rows = conditional_rows(tables(seeds=1), TESTS)
    assert rows and not select(rows, quantity="risk_difference_minus_ratio")
