"""From a run directory to the ledger: which rows are evidence, and whether recorded ones still agree.

What is left out: how a run is made (`divsim/experiments/runs.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from divsim.experiments.rows import MEASURED, Row

from .records import Claim, Ledger, Measurement, Recorded, Run
from .rows import find_one


@dataclass(frozen=True)
class Measured:
    """A run directory, read.

    Attributes:
      config: of the run, `config.json`.
      environment: versions and threads, `environment.json`.
      rows: every row of `results.json`.
    """

    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    rows: tuple[Row, ...]


def read_run(folder: Path) -> Measured:
    """Read `config.json`, `environment.json` and `results.json` of a run directory.

    Errors: ValueError that names the file and what is wrong with it.
    """
    config, environment, results = (
        _read(folder / f"{name}.json") for name in ("config", "environment", "results")
    )
    try:
        rows = tuple(results["rows"])
        for row in rows:
            _refuse_bad_numbers(row)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'results.json'} is no results file: {error!r}") from error
    return Measured(config, environment, rows)


def _read(file: Path) -> dict[str, Any]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no result; write null")

    try:
        document = json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}); name the directory of a run") from error
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{file} must hold one JSON object")
    return document


def _refuse_bad_numbers(row: Row) -> None:
    for name in MEASURED:
        value = row[name]
        if isinstance(value, bool) or not (value is None or isinstance(value, int | float)):
            raise ValueError(f"{name} must be a number or null, got {value!r} in {row}")
    low, high = row["low"], row["high"]
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise ValueError(f"low must be <= high, got {low} and {high} in {row}")


def record(ledger: Ledger, measured: Measured) -> Recorded:
    """The rows of a run that are evidence, each once, in the order of the ledger.

    Args:
      ledger: whose evidence.
      measured: a run that the ledger reads.

    Errors: ValueError if no claim reads this run, or with every selection that does not match just one row.
    """
    run = _run_of(ledger, measured)
    rows: list[Row] = []
    problems = []
    for claim, evidence in _evidence_of(ledger, run):
        try:
            row = find_one(measured.rows, evidence.select)
            rows += [] if row in rows else [row]
        except ValueError as error:
            problems.append(f"{claim.id}, {evidence.case}: {error}")
    if problems:
        raise ValueError("\n".join(["the ledger does not fit this run:", *problems]))
    return Recorded(run, measured.config, measured.environment, tuple(rows))


def _run_of(ledger: Ledger, measured: Measured) -> Run:
    misfits = {run.name: run.misfits(measured.config) for run in ledger.runs.values()}
    fitting = [name for name in misfits if not misfits[name]]
    if len(fitting) == 1:
        return ledger.runs[fitting[0]]
    if fitting:
        raise ValueError(f"this run fits {' and '.join(fitting)}; give them settings in which they differ")
    reasons = [f"{name} ({ledger.runs[name].command}): {'; '.join(why)}" for name, why in misfits.items()]
    raise ValueError("\n".join(["no claim reads this run; the ledger reads:", *reasons]))


def _evidence_of(ledger: Ledger, run: Run) -> list[tuple[Claim, Measurement]]:
    return [
        (claim, evidence)
        for claim in ledger.claims
        for evidence in claim.evidence
        if isinstance(evidence, Measurement) and evidence.run == run.name
    ]


def differences(ledger: Ledger, measured: Measured) -> list[str]:
    """Where a run and the recorded rows differ, one line each, numbers compared exactly; empty if nowhere.

    Other settings and versions are named after the differences that they may explain.

    Errors: as `record`.
    """
    fresh = record(ledger, measured)
    found = []
    for claim, evidence in _evidence_of(ledger, fresh.run):
        old, new = ledger.row(evidence), find_one(fresh.rows, evidence.select)
        if old is None:
            found.append(f"{claim.id}, {evidence.case}: not recorded")
        elif changes := _changes(old, new):
            found.append(f"{claim.id}, {evidence.case}: {'; '.join(changes)}")
    if found and (recorded := ledger.recorded.get(fresh.run.name)):
        found += _changes(recorded.config, fresh.config) + _changes(recorded.environment, fresh.environment)
    return found


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    names = sorted(old.keys() | new.keys())
    return [
        f"{name} {old.get(name)!r} in the ledger, {new.get(name)!r} in the run"
        for name in names
        if old.get(name) != new.get(name)
    ]


def write_recorded(folder: Path, recorded: Recorded) -> Path:
    """Write the recorded rows of one run into the ledger's folder, in place of older ones; the file."""
    head = {"config": dict(recorded.config), "environment": dict(recorded.environment)}
    file = folder / "results" / f"{recorded.run.name}.jsonl"
    file.parent.mkdir(exist_ok=True)
    lines = [json.dumps(line, sort_keys=True, ensure_ascii=False) for line in (head, *recorded.rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
