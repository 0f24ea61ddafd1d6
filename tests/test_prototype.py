"""The comparison with an earlier prototype: what agrees, what differs, and that no number goes unasked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from divsim.experiments import direction, tails
from divsim.experiments.parts import Part
from divsim.experiments.prototype import Comparison, _numbers, compare, page
from divsim.experiments.rows import MEASURED, Row, row
from divsim.experiments.runs import stream
from divsim.experiments.statistics import Estimate


def ours(value: float, half: float | None = 0.03, **key: Any) -> Row:
    low, high = (np.nan, np.nan) if half is None else (value - half, value + half)
    return row(Estimate(value, low, high, 8), 100, **key)


def rows_of_every_kind(parts: Sequence[Part[Any]], config: Any) -> list[Row]:
    """Rows of a run in which every region has tokens: the shapes are computed, the counts are all one."""
    found: list[Row] = []
    for part in parts:
        for cell in part.cells(config):
            arrays = part.compute(config, cell, stream(0, cell))
            found += part.rows(
                config, cell, {name: np.stack([np.ones_like(a)] * 2) for name, a in arrays.items()}
            )
    return found


def small(experiment: str) -> tuple[Sequence[Part[Any]], Any]:
    """Cells that the prototype had, with a token or two each; no key of a row depends on how many."""
    if experiment == "direction":
        config = replace(direction.QUICK, vocab=60, tokens=2)
        return [part for part in direction.PARTS if part.name in ("own", "rank")], config
    told = {(number["world"], number["mismatch"]) for number in _numbers() if number["experiment"] == "tails"}
    cells = tuple(p for p in tails.QUICK.pairs if (p.world, p.mismatch) in told and p.vocab <= 50_000)
    return tails.PARTS, replace(tails.QUICK, most_tokens=1, pairs=cells)


@pytest.fixture(scope="module", params=["direction", "tails"])
def compared(request: pytest.FixtureRequest) -> list[Comparison]:
    return compare(request.param, rows_of_every_kind(*small(request.param)))


def test_every_number_of_the_prototype_has_a_row_of_ours(compared: list[Comparison]) -> None:
    assert len(compared) > 100
    assert [comparison.key for comparison in compared if comparison.ours is None] == []


def test_the_row_beside_a_number_has_its_very_key(compared: list[Comparison]) -> None:
    for comparison in compared:
        assert comparison.ours is not None
        assert {n: v for n, v in comparison.ours.items() if n not in MEASURED} == comparison.key


def test_no_setting_is_told_twice() -> None:
    keys = [
        tuple(sorted((n, v) for n, v in number.items() if n not in ("value", "tokens")))
        for number in _numbers()
    ]
    assert len(set(keys)) == len(keys) > 200
    assert {number["experiment"] for number in _numbers()} == {"direction", "tails"}


def test_a_row_with_a_field_more_is_another_number() -> None:
    first = compare("direction", [])[0]
    assert first.ours is None and first.agrees is None
    asked = first.key
    assert compare("direction", [ours(0.5, **asked, step="0.1")])[0].ours is None
    assert compare("direction", [ours(0.5, **asked)])[0].ours == ours(0.5, **asked)
    assert compare("tails", [ours(0.5, **asked)])[0].ours is None


@pytest.mark.parametrize(
    ("theirs", "unit"),
    [(0.51, 0.01), (0.5, 0.01), (0.038, 1e-3), (0.0001, 1e-4), (1.0, 1e-3), (0.0, 1e-3), (12.25, 0.01)],
)
def test_the_last_digit_is_the_one_printed(theirs: float, unit: float) -> None:
    assert Comparison({}, theirs, 0, None).last_digit == pytest.approx(unit, rel=1e-12)


def test_every_number_is_printed_with_a_decimal_point() -> None:
    """Else the last digit would be misread, as in 1e-05."""
    assert not [number for number in _numbers() if "e" in f"{number['value']:g}"]


def test_without_their_tokens_both_have_our_interval() -> None:
    reach = 0.03 * 2**0.5 + 0.0005  # two independent errors, and half of the last digit, .001
    for theirs, agrees in (
        (0.5 + 0.042, True),
        (0.5 - 0.042, True),
        (0.5 + 0.044, False),
        (0.5 - 0.044, False),
    ):
        assert (abs(theirs - 0.5) <= reach) is agrees
        assert Comparison({}, theirs, 0, ours(0.5)).agrees is agrees


def test_with_their_tokens_theirs_is_binomial() -> None:
    for tokens, agrees in ((100, True), (10_000, False)):  # 1.96 sigma: .098, and .0098
        assert Comparison({}, 0.585, tokens, ours(0.5)).agrees is agrees


def test_half_a_unit_of_the_last_digit_is_rounding() -> None:
    assert Comparison({}, 0.51, 0, ours(0.5051, half=0.0)).agrees is True
    assert Comparison({}, 0.51, 0, ours(0.5049, half=0.0)).agrees is False


def test_a_number_without_an_interval_is_not_judged() -> None:
    assert Comparison({}, 0.5, 0, ours(0.5, half=None)).agrees is None


def test_the_page_tells_what_differs_and_leaves_out_what_is_not_ours() -> None:
    text = page([
        Comparison({"table": "mismatch", "world": "flat"}, 0.5, 0, ours(0.5)),
        Comparison({"world": "language"}, 0.9, 0, ours(0.5)),
        Comparison({"world": "real"}, 0.5, 0, ours(0.5, half=None)),
        Comparison({"world": "moon"}, 0.5, 0, None),
    ])  # fmt: skip
    assert text.partition("|---|---|---|---|---|\n")[2].splitlines() == [
        "| flat | 0.5 | 0.47 to 0.53 | 0.5 |  |",
        "| language | 0.5 | 0.47 to 0.53 | 0.9 | differs |",
        "| real | 0.5 |  | 0.5 | no interval |",
    ]
