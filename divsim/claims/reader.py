"""Reading the ledger: TOML files written by people, and recorded rows written by `divsim claims --update`.

Whatever is missing, misspelt or of the wrong type is refused with the file and the claim named.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, get_args

from .records import Claim, Decision, Ledger, Measurement, Proof, Recorded, Run, Side, Topic

Table = dict[str, Any]
Number = (int, float)

TOPIC = {"title": str, "text": str, "claim": list}
RUN = {"command": str, "config": dict}
CLAIM = {"id": str, "source": str, "claim": str, "estimand": str, "evidence": list}
OF_MEASUREMENTS = {"configuration": str, "decision": dict}
DECISION = {"holds": str, "threshold": Number}
MEASUREMENT = {"case": str, "run": str, "select": dict}
PROOF = {"case": str, "theorem": str, "verdict": str}


def ledger_folder() -> Traversable:
    """The folder of the ledger: `claims/` in a checkout, `divsim/ledger/` in an installed wheel."""
    return files("divsim.ledger")


def load(folder: Traversable | None = None, with_results: bool = True) -> Ledger:
    """The ledger of a folder of TOML files; by default the one that ships.

    Args:
      folder: TOML files, and recorded results in its folder `results`.
      with_results: False leaves out what was recorded, in order to record it anew.

    Errors: ValueError that names the file, the claim and the field.

    >>> ledger = load()
    >>> ledger.overall(ledger.claim("change-formula"))
    'holds'
    """
    folder = ledger_folder() if folder is None else folder
    topics: list[Topic] = []
    runs: dict[str, Run] = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".toml"):
            topics.append(_topic(file, runs))
    ledger = Ledger(tuple(topics), runs)
    _check(ledger)
    if not with_results:
        return ledger
    recorded = {run.name: found for run in runs.values() if (found := _recorded(folder, run))}
    return replace(ledger, recorded=recorded)


def _topic(file: Traversable, runs: dict[str, Run]) -> Topic:
    """The topic of one file; its runs are added to `runs`."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{file.name} is not TOML: {error}") from error
    _fields(table, file.name, TOPIC, {"runs": dict})
    for name, fields in table.get("runs", {}).items():
        _fields(fields, f"{file.name}, run {name!r}", RUN)
        if name in runs:
            raise ValueError(f"{file.name}: the run {name!r} stands in two files; keep one")
        runs[name] = Run(name, **fields)
    return Topic(table["title"], table["text"], tuple(_claim(entry, file.name) for entry in table["claim"]))


def _claim(table: Table, file: str) -> Claim:
    place = f"{file}, claim {_name(table, 'id')}"
    _fields(table, place, CLAIM, OF_MEASUREMENTS | {"run": str, "select": dict, "where": str})
    shared = {"run": table.pop("run", None), "select": table.pop("select", {})}
    evidence = tuple(_evidence(entry, shared, place) for entry in table["evidence"])
    if any(isinstance(entry, Measurement) for entry in evidence):
        _fields(table, place, CLAIM | OF_MEASUREMENTS, {"where": str})
        table["decision"] = _decision(table["decision"], place)
    elif unused := [name for name in OF_MEASUREMENTS if name in table]:
        raise ValueError(f"{place}: {unused[0]} belongs to claims with an evidence that has a select")
    return Claim(**table | {"evidence": evidence})


def _evidence(table: Table, shared: Mapping[str, Any], place: str) -> Measurement | Proof:
    place = f"{place}, evidence {_name(table, 'case')}"
    if isinstance(table, dict) and "select" in table:
        table = ({"run": shared["run"]} if shared["run"] else {}) | table
        _fields(table, place, MEASUREMENT)
        return Measurement(table["case"], table["run"], shared["select"] | table["select"])
    _fields(table, place, PROOF, {"counterexample": str})
    if table["verdict"] not in ("holds", "does not hold"):
        raise ValueError(
            f"{place}: the verdict of a proof is 'holds' or 'does not hold', got {table['verdict']!r}"
        )
    if (table["verdict"] == "does not hold") != bool(table.get("counterexample")):
        raise ValueError(f"{place}: a counterexample belongs to every 'does not hold', and to nothing else")
    return Proof(**table)


def _decision(table: Table, place: str) -> Decision:
    place = f"{place}, decision"
    _fields(table, place, DECISION, {"margin": Number})
    if table["holds"] not in get_args(Side):
        raise ValueError(f"{place}: holds must be one of {', '.join(get_args(Side))}, got {table['holds']!r}")
    if ("margin" in table) != (table["holds"] == "equal") or table.get("margin", 0) < 0:
        raise ValueError(f"{place}: a margin >= 0 belongs to 'equal', and to nothing else")
    return Decision(**table)


def _name(table: Any, key: str) -> str:
    return repr(table.get(key, "?")) if isinstance(table, dict) else "?"


def _fields(
    table: Any, place: str, required: Mapping[str, Any], optional: Mapping[str, Any] | None = None
) -> None:
    """Refuse a table with a field that is missing, unknown, of the wrong type or empty."""
    known = {**required, **(optional or {})}
    if not isinstance(table, dict):
        raise ValueError(f"{place}: must be a table with {', '.join(required)}, got {table!r}")
    for name in required:
        if name not in table:
            raise ValueError(f"{place}: {name} is missing")
    for name, value in table.items():
        if name not in known:
            raise ValueError(f"{place}: unknown field {name!r}; known: {', '.join(known)}")
        if not isinstance(value, known[name]) or isinstance(value, bool) or value in ("", []):
            raise ValueError(f"{place}: {name} has no usable value, got {value!r}")


def _check(ledger: Ledger) -> None:
    """Refuse ids and cases that stand twice, and runs that nobody declared."""
    _unique((claim.id for claim in ledger.claims), "claim")
    for claim in ledger.claims:
        _unique((f"{claim.id}, {evidence.case}" for evidence in claim.evidence), "case")
        for run in claim.runs:
            if run not in ledger.runs:
                known = ", ".join(ledger.runs)
                raise ValueError(f"claim {claim.id!r}: unknown run {run!r}; known: {known}")


def _unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"the {what} {name} stands twice in the ledger; keep one")
        seen.add(name)


def _recorded(folder: Traversable, run: Run) -> Recorded | None:
    """The rows of a run: a first line that says whose they are, then a row a line."""
    file = folder / "results" / f"{run.name}.jsonl"
    if not file.is_file():
        return None
    try:
        head, *rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        recorded = Recorded(run, head["config"], head["environment"], tuple(rows))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"results/{file.name} is damaged ({error}); make it anew with --update") from error
    if misfits := run.misfits(recorded.config):
        raise ValueError(
            f"results/{file.name} is of another run: {'; '.join(misfits)}; make it anew with --update"
        )
    return recorded
