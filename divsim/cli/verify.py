"""`divsim verify`: prove every theorem, simulate its claims, and print what a human must still accept."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from divsim.cli.common import BadCall, cores, output, progress, workers

if TYPE_CHECKING:
    from divsim.derivations import Report
    from divsim.experiments.verify import ChapterResult

TIERS = {"G": "any V", "F": "finite", "Q": "exact", "N": "interval"}
"""How general a theorem is: a symbolic vocabulary size; finitely many symbols; rationals; intervals."""


def verify(
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="T1 T2 ...")] = (),
    explain: Annotated[str | None, tyro.conf.arg(metavar="T3")] = None,
    tex: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    as_json: Annotated[bool, tyro.conf.arg(name="json"), tyro.conf.FlagCreatePairsOff] = False,
    seed: int = 0,
    processes: int | None = None,
) -> int:
    """Prove every theorem, check it against the exact simulators, and list what remains to be accepted.

    Args:
      only: chapters to verify, T1 to T13; all by default.
      explain: print the lesson of one chapter, or of one theorem such as T3a, instead of verifying.
      tex: write the chapters' theorems and proofs to this LaTeX file instead of verifying.
      as_json: print one JSON object instead of the table.
      seed: seed of the simulator's random cases.
      processes: chapters checked at once; by default one per core.

    Returns:
      0 if everything holds, 1 if a check failed.
    """
    from divsim.experiments.verify import chapter_ids

    if sum((explain is not None, tex is not None, as_json)) > 1:
        raise BadCall("--explain, --tex and --json are three outputs; ask for one at a time")
    if seed < 0:
        raise BadCall(f"--seed must be >= 0, got {seed}")
    if processes is not None and processes < 1:
        raise BadCall(f"--processes must be >= 1, got {processes}")
    try:
        chapters = chapter_ids(only)
        if explain is not None:
            return _explain(explain)
    except ValueError as error:
        raise BadCall(str(error)) from error
    if tex is not None:
        return _write_tex(tex, chapters)
    results = _run(chapters, seed, processes or min(cores(), len(chapters)))
    if as_json:
        _print_json(results)
    else:
        _print_table(output(), results)
    return 1 if any(result.failures for result in results) else 0


def _run(chapters: tuple[str, ...], seed: int, processes: int) -> "list[ChapterResult]":
    from divsim.experiments.verify import Config, run

    found = {}
    with workers(), progress() as bar:
        task = bar.add_task("verifying", total=len(chapters))
        for result in run(Config(chapters, seed, processes)):
            found[result.chapter] = result
            bar.update(task, advance=1, description=f"verified {result.chapter}")
    return [found[chapter] for chapter in chapters]


SCOPES = "any V (a symbolic vocabulary size), finite (finitely many symbols), exact (rationals), interval"

COLUMNS = {
    "ident": (5, "identities proved"),
    "cert": (4, "non-negativity certificates"),
    "exact": (5, "facts decided in exact or interval arithmetic"),
    "2nd": (3, "second, independent proofs"),
    "trace": (5, "traces of shipped functions that equal the theorem"),
    "false": (5, "false variants refused"),
    "sizes": (7, "V at which both sides were replayed in numbers"),
    "error": (5, "largest difference seen (simulator: of the worst claim, in per cent of its tolerance)"),
    "s": (4, "seconds (a simulator line: of the whole chapter)"),
}
"""The numeric columns of the table: width and meaning."""

FIRST_TO_GO = ("sizes", "2nd", "exact", "cert", "trace", "ident", "s")
"""Columns that a narrow terminal does without, in this order; `--json` has them all."""

NAME, SCOPE = 7, 8
CLAIM = 30
"""The claim takes what the other columns leave of the terminal's width; columns go until it has this much."""


def _print_table(console: Console, results: "Sequence[ChapterResult]") -> None:
    shown, claim = _columns(console.width)
    table = Table(box=None, pad_edge=False, padding=(0, 0, 0, 1), header_style="bold")
    table.add_column("theorem", no_wrap=True, width=NAME)
    table.add_column("claim", width=claim)
    table.add_column("scope", no_wrap=True, width=SCOPE)
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True, width=COLUMNS[heading][0])
    for result in results:
        for report in result.reports:
            table.add_row(*_theorem_row(report, shown))
        table.add_row(*_simulation_row(result, shown), style="dim", end_section=True)
    console.print(table)
    legend = "; ".join(f"{heading}: {COLUMNS[heading][1]}" for heading in shown)
    console.print(f"\n[dim]scope: {SCOPES}; {legend}; ·: none.[/]")
    _print_residue(console, results)
    _print_summary(console, results)


def _columns(width: int) -> tuple[list[str], int]:
    """The numeric columns that fit a terminal, and the width of the claim."""
    shown, going = list(COLUMNS), list(FIRST_TO_GO)

    def left() -> int:
        return width - NAME - SCOPE - 2 - sum(COLUMNS[heading][0] + 1 for heading in shown)

    while left() < CLAIM and going:
        shown.remove(going.pop(0))
    return shown, max(left(), 1)


def _theorem_row(report: "Report", shown: Sequence[str]) -> list[str]:
    counts = {
        "ident": report.identities,
        "cert": report.certificates,
        "exact": report.exact,
        "2nd": report.degree_proofs,
        "trace": report.traces,
        "false": report.mutants_refused,
    }
    cells = {heading: str(count) if count else "·" for heading, count in counts.items()}
    cells["sizes"] = " ".join(map(str, report.shadow_sizes))
    cells["error"], cells["s"] = f"{report.shadow_error:.0e}", f"{report.seconds:.1f}"
    name = f"{_mark(report.ok)} {report.id}"
    return [name, escape(report.title), TIERS[report.tier], *(cells[heading] for heading in shown)]


def _simulation_row(result: "ChapterResult", shown: Sequence[str]) -> list[str]:
    simulation = result.simulation
    slopes = sorted({f"{check.slope:.1f}" for check in simulation.checks if check.slope is not None})
    order = f", slope {' and '.join(slopes)}" if slopes else ""
    claims = f"{len(simulation.checks)} claim{'s' * (len(simulation.checks) > 1)}"
    text = f"simulator: {claims}, {simulation.cases:,} cases{order}"
    cells = {"error": f"{simulation.worst.severity:.0%}", "s": f"{result.seconds:.1f}"}
    name = f"{_mark(simulation.ok)} {result.chapter}"
    return [name, text, f"V≤{max(simulation.sizes):,}", *(cells.get(heading, "") for heading in shown)]


def _mark(holds: bool) -> str:
    return "[green]✓[/]" if holds else "[red]✗[/]"


def _print_residue(console: Console, results: "Sequence[ChapterResult]") -> None:
    cited: dict[str, list[str]] = {}
    for report in (report for result in results for report in result.reports):
        for fact in report.residue:
            cited.setdefault(fact, []).append(report.id)
    console.print("\n[bold]What the machine does not prove[/] and a human must accept:")
    for fact, users in cited.items():
        console.print(f"  - {escape(fact)} [dim]({', '.join(users)})[/]")
    console.print(
        "  - SymPy's differentiation and arithmetic, and the kernel of finite sums (derivations/kernel.py)."
    )
    console.print(
        "Every theorem speaks of free logits unless its scope says more; `--explain T5` prints each scope."
    )


def _print_summary(console: Console, results: "Sequence[ChapterResult]") -> None:
    failures = [failure for result in results for failure in result.failures]
    reports = [report for result in results for report in result.reports]
    for failure in failures:
        console.print(f"[red]✗[/] {escape(failure)}")
    proven = sum(report.ok for report in reports)
    simulated = sum(result.simulation.ok for result in results)
    verdict = "[bold green]proven[/]" if not failures else "[bold red]failed[/]"
    console.print(
        f"\n{verdict}: {proven} of {len(reports)} theorems proven, {simulated} of {len(results)} chapters "
        f"simulated, {sum(r.mutants_refused for r in reports)} false variants refused, "
        f"{len({name for r in reports for name in r.traced})} shipped functions traced."
    )


def _print_json(results: "Sequence[ChapterResult]") -> None:
    document = {
        "ok": not any(result.failures for result in results),
        "chapters": [dataclasses.asdict(result) | {"failures": result.failures} for result in results],
    }
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=True) + "\n")


def _explain(name: str) -> int:
    from divsim.derivations import lesson

    print(lesson(name))
    return 0


def _write_tex(path: Path, chapters: tuple[str, ...]) -> int:
    from divsim.derivations import latex_document

    if path.exists():
        raise BadCall(f"--tex {path} exists already; name another file or remove it first")
    if not path.parent.is_dir():
        raise BadCall(f"--tex {path}: the folder {path.parent} does not exist; make it first")
    source = latex_document(chapters)
    try:
        path.write_text(source, encoding="utf-8")
    except OSError as error:
        raise BadCall(f"--tex {path} cannot be written: {error.strerror}; name another file") from error
    print(f"wrote {path}; compile it with lualatex")
    return 0
