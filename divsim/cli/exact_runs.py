"""What every `divsim exact` command does: a config that can work, a run directory, a word at the end."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from divsim.cli.common import BadCall, cores, output, progress, workers

if TYPE_CHECKING:
    from divsim.experiments.rows import Row
    from divsim.experiments.runs import Experiment

Preset = Literal["quick", "full"]


def configured(preset: Any, changes: dict[str, Any], check: Callable[[Any], None]) -> Any:
    """The preset with what the call says otherwise, checked before any work."""
    said = {name: value for name, value in changes.items() if value is not None and value != ()}
    config = dataclasses.replace(preset, **said)
    try:
        check(config)
    except ValueError as error:
        raise BadCall(str(error)) from error
    return config


def run_into(
    experiment: "Experiment[Any]",
    config: Any,
    out: Path | None,
    preset: str,
    resume: bool,
    processes: int | None,
) -> "tuple[list[Row], Path]":
    """Run an experiment with a progress bar; by default into `runs/NAME-PRESET`."""
    from divsim.experiments.runs import run
    from divsim.run_folder import RunError

    if processes is not None and processes < 1:
        raise BadCall(f"--processes must be >= 1, got {processes}")
    folder = out if out is not None else Path("runs") / f"{experiment.name}-{preset}"
    with workers(), progress() as bar:
        task = bar.add_task(experiment.name, total=None)
        try:
            rows = run(
                experiment, config, folder, processes or cores(), resume,
                advance=lambda done, total: bar.update(task, completed=done, total=total),
            )  # fmt: skip
        except RunError as error:
            raise BadCall(str(error)) from error
    return rows, folder


def close(name: str, comparable: "Sequence[Row]", rows: "Sequence[Row]", folder: Path) -> int:
    """Say where everything is, and how it compares with the prototype where the settings are the same."""
    from divsim.experiments.prototype import compare, page

    console = output()
    judged = [one for one in compare(name, comparable) if one.agrees is not None]
    if judged:
        (folder / "prototype.md").write_text(page(judged), encoding="utf-8")
        differing = sum(not one.agrees for one in judged)
        console.print(
            f"\nBeside an independent prototype of these settings: {len(judged) - differing} numbers agree "
            f"within their intervals, {differing} differ (a finding about one of the two); see "
            f"{folder / 'prototype.md'}"
        )
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    console.print(
        f"written to {folder}: results.json ({len(rows):,} rows), tiles, figures; divsim "
        f"{environment['divsim']}, numpy {environment['numpy']}, {environment['processes']} processes"
    )
    return 0
