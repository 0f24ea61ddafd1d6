"""One row of a `results.json`, found by some of its key fields, or what is wrong with these fields."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from divsim.experiments.rows import MEASURED, Row, select


def find_one(rows: Sequence[Row], fields: Mapping[str, Any]) -> Row:
    """The one row that has all the selected fields.

    Args:
      rows: rows of a `results.json`.
      fields: key fields and their values.

    Errors: ValueError if no row matches, with the fields in which the nearest rows differ, or if several
    match, with the fields in which these differ.

    >>> rows = [{"world": "flat", "k": 1}, {"world": "flat", "k": 20}]
    >>> find_one(rows, {"world": "flat"})
    Traceback (most recent call last):
    ValueError: 2 rows match world='flat'; they differ in k (1, 20): select one
    >>> find_one(rows, {"world": "flat", "k": 5})
    Traceback (most recent call last):
    ValueError: no row matches world='flat', k=5; the nearest rows differ in k (1, 20)
    """
    matches = select(rows, **fields)
    if len(matches) == 1:
        return matches[0]
    wanted = ", ".join(f"{key}={value!r}" for key, value in fields.items())
    if matches:
        keys = sorted({key for row in matches for key in row} - set(MEASURED))
        differing = [key for key in keys if len({row.get(key) for row in matches}) > 1]
        what = f"they differ in {_values(matches, differing)}: select one" if differing else "they are equal"
        raise ValueError(f"{len(matches)} rows match {wanted}; {what}")
    if not rows:
        raise ValueError(f"no row matches {wanted}; the run has no rows")
    distance = {i: [key for key in fields if row.get(key) != fields[key]] for i, row in enumerate(rows)}
    least = min(map(len, distance.values()))
    nearest = [i for i in distance if len(distance[i]) == least]
    differing = [key for key in fields if any(key in distance[i] for i in nearest)]
    where = _values([rows[i] for i in nearest], differing)
    raise ValueError(f"no row matches {wanted}; the nearest rows differ in {where}")


def _values(rows: Sequence[Row], keys: Iterable[str]) -> str:
    """The values that rows have in some fields, such as `k (1, 20), world ('flat')`."""
    shown = []
    for key in keys:
        values = dict.fromkeys(repr(row[key]) if key in row else "absent" for row in rows)
        shown.append(f"{key} ({', '.join(values)})")
    return ", ".join(shown)
