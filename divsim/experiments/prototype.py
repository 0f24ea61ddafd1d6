"""Our numbers beside those of an earlier, independent prototype: the same settings, run by this code.

The prototype printed no intervals. A number *agrees* if what the prototype printed, give or take half a
unit of its last digit, meets our interval widened by the same interval around the prototype's number as if
it had been measured on as many tokens; otherwise it *differs*, and a reader should look.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from .rows import MEASURED, Key, Row, select


@dataclass(frozen=True)
class Comparison:
    """One number of the prototype and ours.

    Attributes:
      key: the key fields of our row.
      theirs: as the prototype printed it.
      ours: our row; None if this run has none, as in a preset without that cell.
    """

    key: Key
    theirs: float
    ours: Row | None

    @property
    def agrees(self) -> bool | None:
        """None where there is nothing to compare."""
        if self.ours is None or self.ours["low"] is None:
            return None
        reach = 2**0.5 * (self.ours["high"] - self.ours["low"]) / 2 + self.last_digit / 2
        return bool(abs(self.theirs - self.ours["value"]) <= reach)

    @property
    def last_digit(self) -> float:
        """The unit of the last digit that the prototype printed, at least three decimals of a share."""
        return 10.0 ** -max(3, len(f"{self.theirs:g}".partition(".")[2]))


def compare(experiment: str, rows: Sequence[Row]) -> list[Comparison]:
    """Every number of the prototype for an experiment, with the row of ours that measures the same.

    >>> len(compare("direction", [])) > 100
    True
    """
    return [_compared(dict(number), rows) for number in _numbers() if number["experiment"] == experiment]


def _compared(number: dict[str, str | int | float], rows: Sequence[Row]) -> Comparison:
    value = float(number.pop("value"))
    del number["experiment"]
    key: Key = {name: field for name, field in number.items() if not isinstance(field, float)}
    found = [row for row in select(rows, **key) if row.keys() - set(MEASURED) == key.keys()]
    return Comparison(key, value, found[0] if found else None)


def _numbers() -> Iterable[dict[str, str | int | float]]:
    text = files("divsim.data").joinpath("prototype.toml").read_text(encoding="utf-8")
    numbers: list[dict[str, str | int | float]] = tomllib.loads(text)["numbers"]
    return numbers


def page(comparisons: Sequence[Comparison]) -> str:
    """A markdown table: ours, the interval, the prototype's, and whether they differ."""
    lines = ["| setting | ours | 95 % interval | prototype | |", "|---|---|---|---|---|"]
    for comparison in comparisons:
        if comparison.ours is None:
            continue
        setting = ", ".join(f"{value}" for name, value in comparison.key.items() if name != "table")
        ours = comparison.ours
        interval = "" if ours["low"] is None else f"{ours['low']:.4g} to {ours['high']:.4g}"
        verdict = {True: "", False: "differs", None: "no interval"}[comparison.agrees]
        lines.append(f"| {setting} | {ours['value']:.4g} | {interval} | {comparison.theirs:g} | {verdict} |")
    return "\n".join(lines) + "\n"
