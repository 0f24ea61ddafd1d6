"""Our numbers beside those of an earlier, independent prototype: the same settings, run by this code.

The prototype printed no intervals. A number *agrees* if the difference is within half a unit of its last
digit and an interval for both: ours, and for the prototype's the same again, or the binomial one where it
told its tokens. Otherwise it *differs*, and a reader should look.
"""

import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from .rows import MEASURED, Key, Row, select

INTRODUCTION = """\
# Ours beside an earlier prototype's

The prototype was written independently and told neither its intervals nor every setting, so a difference is a
finding about one of the two. Known: its FP8 head rounds less than ours (KL .0018 against .0026), which moves
every row of `fp8_head`; it did not say what its stale passes sample, how a sign or a natural step is scaled,
how rough its flat world is, or which pairs stand behind its ranks of a head.
"""


@dataclass(frozen=True)
class Comparison:
    """One number of the prototype and ours.

    Attributes:
      key: the key fields of our row.
      theirs: as the prototype printed it.
      their_tokens: how many tokens the prototype had; 0 if it did not say.
      ours: our row; None if this run has none, as in a preset without that cell.
    """

    key: Key
    theirs: float
    their_tokens: int
    ours: Row | None

    @property
    def agrees(self) -> bool | None:
        """None where there is nothing to compare."""
        if self.ours is None or self.ours["low"] is None:
            return None
        value, half = self.ours["value"], (self.ours["high"] - self.ours["low"]) / 2
        their_half = half
        if self.their_tokens:
            their_half = 1.96 * (value * (1 - value) / self.their_tokens) ** 0.5
        return bool(abs(self.theirs - value) <= math.hypot(half, their_half) + self.last_digit / 2)

    @property
    def last_digit(self) -> float:
        """The unit of the last digit that the prototype printed; three decimals where it printed none."""
        decimals = len(f"{self.theirs:g}".partition(".")[2])
        return 10.0 ** -(max(2, decimals) if decimals else 3)


def compare(experiment: str, rows: Sequence[Row]) -> list[Comparison]:
    """Every number of the prototype for an experiment, with the row of ours that measures the same.

    >>> len(compare("direction", [])) > 100
    True
    """
    return [_compared(dict(number), rows) for number in _numbers() if number["experiment"] == experiment]


def _compared(number: dict[str, str | int | float], rows: Sequence[Row]) -> Comparison:
    value, tokens = float(number.pop("value")), int(number.pop("tokens", 0))
    del number["experiment"]
    key: Key = {name: field for name, field in number.items() if not isinstance(field, float)}
    found = [row for row in select(rows, **key) if row.keys() - set(MEASURED) == key.keys()]
    return Comparison(key, value, tokens, found[0] if found else None)


def _numbers() -> Iterable[dict[str, str | int | float]]:
    text = files("divsim.data").joinpath("prototype.toml").read_text(encoding="utf-8")
    numbers: list[dict[str, str | int | float]] = tomllib.loads(text)["numbers"]
    return numbers


def page(comparisons: Sequence[Comparison]) -> str:
    """A markdown page: ours, the interval, the prototype's, whether they differ, and what is known of why."""
    lines = [INTRODUCTION, "| setting | ours | 95 % interval | prototype | |", "|---|---|---|---|---|"]
    for comparison in comparisons:
        if comparison.ours is None:
            continue
        setting = ", ".join(f"{value}" for name, value in comparison.key.items() if name != "table")
        ours = comparison.ours
        interval = "" if ours["low"] is None else f"{ours['low']:.4g} to {ours['high']:.4g}"
        verdict = {True: "", False: "differs", None: "no interval"}[comparison.agrees]
        lines.append(f"| {setting} | {ours['value']:.4g} | {interval} | {comparison.theirs:g} | {verdict} |")
    return "\n".join(lines) + "\n"
