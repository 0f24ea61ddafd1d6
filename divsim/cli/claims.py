"""`divsim claims`: what papers claim about masks, the verdicts, and how a run compares with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from divsim.cli.common import BadCall, output

if TYPE_CHECKING:
    from divsim.claims import Ledger

COLOURS = {"holds": "green", "does not hold": "red", "not measured": "dim"}
"""Of verdicts; all others are yellow."""

WIDE = 100
"""Columns from which a terminal shows the evidence beside the claim, and not below it."""


def claims(
    claim: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[ID]")] = None,
    write: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    update: Annotated[Path | None, tyro.conf.arg(metavar="RUN_DIRECTORY")] = None,
    check: Annotated[Path | None, tyro.conf.arg(metavar="RUN_DIRECTORY")] = None,
) -> int:
    """What papers claim about masks, with a verdict that is computed from proofs and measurements.

    Args:
      claim: print everything about one claim instead of the list.
      write: write the list with all details to this markdown file instead.
      update: record the results of this run in the ledger (in a checkout).
      check: compare the ledger with this run.

    Returns:
      0, or 1 if --check found a difference.
    """
    from divsim.claims import load, write_page

    if sum(choice is not None for choice in (claim, write, update, check)) > 1:
        raise BadCall("a claim, --write, --update and --check are four things to do; ask for one at a time")
    try:
        ledger = load(with_results=update is None)
        if claim is not None:
            _print_claim(output(), ledger, claim)
        elif write is not None:
            write_page(ledger, write)
            print(f"wrote {write}: {len(ledger.claims)} claims")
        elif update is not None:
            _update(ledger, update)
        elif check is not None:
            return _check(ledger, check)
        else:
            _print_list(output(), ledger)
    except ValueError as error:
        raise BadCall(str(error)) from error
    return 0


def _print_list(console: Console, ledger: "Ledger") -> None:
    from divsim.claims.page import summary

    wide = console.width >= WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    if wide:
        table.add_column("id", no_wrap=True)
    table.add_column("claim", ratio=1)
    table.add_column("verdict", no_wrap=True)
    if wide:
        table.add_column("evidence", max_width=30)
    for topic in ledger.topics:
        for claim in topic.claims:
            text, evidence = escape(claim.claim), escape(summary(ledger, claim))
            verdict = _coloured(ledger.overall(claim))
            below = f"[bold]{claim.id}[/]\n{text}\n[dim]{evidence}[/]"
            cells = (claim.id, text, verdict, evidence) if wide else (below, verdict)
            table.add_row(*cells, end_section=claim is topic.claims[-1])
    console.print(table)
    _print_legend(console, [ledger.overall(claim) for topic in ledger.topics for claim in topic.claims])
    console.print("[dim]`divsim claims ID` prints one claim with its source, settings and evidence.[/]")


def _print_claim(console: Console, ledger: "Ledger", name: str) -> None:
    from divsim.claims.page import SECOND_LOOK, cases, facts

    claim = ledger.claim(name)
    console.print(f"[bold]{claim.id}[/]: {_coloured(ledger.overall(claim))}\n\n{escape(claim.claim)}\n")
    said = Table.grid(padding=(0, 2, 0, 0))
    for heading, text in facts(ledger, claim).items():
        said.add_row(f"[bold]{heading}[/]", escape(text.replace("`", "")))
    console.print(said)
    console.print()
    headings, rows = cases(ledger, claim)
    table = Table(*headings, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for case, verdict, *shown in rows:
        table.add_row(escape(case), _coloured(verdict), *map(escape, shown))
    console.print(table)
    _print_legend(console, [ledger.overall(claim), *(row[1] for row in rows)])
    if "p" in headings:
        console.print(SECOND_LOOK.replace("\n", " "), style="dim")


def _print_legend(console: Console, verdicts: Sequence[str]) -> None:
    from divsim.claims.page import VERDICTS

    console.print()
    for word, meaning in VERDICTS.items():
        if word in verdicts:
            console.print(f"[dim]{word}: {meaning}[/]")


def _coloured(verdict: str) -> str:
    return f"[{COLOURS.get(verdict, 'yellow')}]{verdict}[/]"


def _update(ledger: "Ledger", run_directory: Path) -> None:
    from divsim.claims import ledger_folder, read_run, record, write_recorded

    folder = Path(str(ledger_folder()))
    if not (folder.parent / "pyproject.toml").is_file():
        raise BadCall(
            f"--update writes into a checkout, and {folder} is an installed package; run it in a checkout"
        )
    recorded = record(ledger, read_run(run_directory))
    file = write_recorded(folder, recorded)
    print(f"wrote {file}: {len(recorded.rows)} rows; now `divsim claims --write CLAIMS.md`")


def _check(ledger: "Ledger", run_directory: Path) -> int:
    from divsim.claims import differences, read_run

    found = differences(ledger, read_run(run_directory))
    print("\n".join(found) if found else "the ledger agrees with the run")
    return 1 if found else 0
