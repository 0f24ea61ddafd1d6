"""The short tables of `divsim exact tails` and of recorded tokens; all numbers are in `results.json`.

Every table fits 80 columns. What is left out: the tables of `exact direction` (`direction_tables.py`).
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from divsim.experiments.rows import Row, select

FEW = 30
"""Below so many tokens a share is not printed; it is in `results.json`, with its interval."""

TAILS = {"aggregated": "aggr", "uniform": "unif", "proportional": "prop", "zero": "zero"}
"""The estimators and their headings."""

REGIONS = {
    "all": "all tokens",
    "far_0.05": "KL > 0.05",
    "far_0.15": "KL > 0.15",
    "top20_above_0.99": "top-20 mass > .99",
    "top20_0.9_0.99": "… .9 to .99",
    "top20_0.5_0.9": "… .5 to .9",
    "top20_below_0.5": "… below .5",
}
"""Regions of recorded tokens, in the order of the tables."""


def table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    """A plain table: names on the left, numbers on the right, no cell ever cut."""
    made = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0),
        header_style="bold",
    )  # fmt: skip
    for heading in left:
        made.add_column(heading, no_wrap=True, min_width=len(heading))
    for heading in right:
        made.add_column(heading, justify="right", no_wrap=True, min_width=4)
    return made


def percent(found: Sequence[Row]) -> str:
    """A share in per cent; a dot where there is none, or too few tokens for one."""
    if not found or found[0]["value"] is None or found[0]["tokens"] < FEW:
        return "·"
    return f"{100 * found[0]['value']:.1f}"


def print_tails(console: Console, config: Any, rows: Sequence[Row]) -> None:
    """Sign flips, certified signs and missed divergence of every cell, at one K."""
    sizes = {row["k"] for row in select(rows, table="estimators", quantity="certified_share")}
    k = config.certificate_size if config.certificate_size in sizes else max(sizes)
    right = ("V", "tokens", "ratio", *TAILS.values(), "cert", "miss")
    made = table(f"What K = {k} forgets, per cent of tokens", ("world", "mismatch"), right)
    for pairs in config.pairs:
        found = select(rows, table="estimators", region="all", **pairs.key)
        ratio, seen = select(found, test="ratio"), select(found, k=k)
        if seen:
            name = (pairs.world, pairs.mismatch, str(pairs.vocab), str(ratio[0]["tokens"]))
            made.add_row(*name, percent(ratio), *_tail_cells(seen))
    console.print(made)
    console.print(f"[dim]{TAIL_LEGEND}[/]")


TAIL_LEGEND = (
    "ratio, aggr(egated), unif(orm), prop(ortional), zero: the sign of the test, or of the change "
    "with that tail, is not that of c_k; cert: the sign is certified; miss(ed): of the sum of KL; "
    f"·: fewer than {FEW} tokens, or none."
)


def _tail_cells(found: Sequence[Row]) -> list[str]:
    flips = [percent(select(found, tail=tail, quantity="flip_rate")) for tail in TAILS]
    return [
        *flips,
        *(percent(select(found, quantity=name)) for name in ("certified_share", "missed_kl_share")),
    ]


def print_real(console: Console, question: str, rows: Sequence[Row]) -> None:
    """Recorded tokens, by pair and region."""
    if question == "direction":
        _print_real_direction(console, rows)
    else:
        _print_real_tails(console, rows)
    console.print(
        "[dim]bf16, fp8, fp32: the engine; base: the trainer has its weights, stale: it is six steps on. "
        "Intervals resample prompts; tokens with |c_k| or |pi_k - mu_k| below 1e-6 have no sign to count.[/]"
    )


def _print_real_direction(console: Console, rows: Sequence[Row]) -> None:
    right = ("tokens", "disagree", "95 %", "ratio", "c_k", "ratio", "c_k")
    made = table("Recorded tokens, V = 49,152, per cent", ("pair", "region"), right)
    made.add_row("", "", "", "", "", "plain", "step", "natural", "step")
    for pair in dict.fromkeys(row["mismatch"] for row in rows):
        for region, words in REGIONS.items():
            found = select(rows, mismatch=pair, region=region)
            differs = select(found, quantity="disagree_share")
            if not differs:
                continue
            small = select(found, step="0.1", quantity="accuracy")
            cells = [
                percent(select(small, geometry=geometry, test=test))
                for geometry in ("euclidean", "sign")
                for test in ("ratio", "forward_kl/full")
            ]
            low, high = (100 * differs[0][end] for end in ("low", "high"))
            tokens = f"{differs[0]['tokens']:,}"
            made.add_row(pair, words, tokens, percent(differs), f"{low:.1f}-{high:.1f}", *cells)
    console.print(made)
    console.print(
        "[dim]disagree: ratio test and c_k point to opposite sides; then how often each is right about a "
        f"token's own step of .1 s*, stepped up and down; ·: fewer than {FEW} tokens.[/]"
    )


def _print_real_tails(console: Console, rows: Sequence[Row]) -> None:
    right = ("tokens", *TAILS.values(), "cert", "miss")
    made = table("Recorded tokens, V = 49,152: what K = 20 forgets, per cent", ("pair", "region"), right)
    for pair in dict.fromkeys(row["mismatch"] for row in rows):
        for region, words in REGIONS.items():
            found = select(rows, table="estimators", mismatch=pair, region=region, k=20)
            if found:
                tokens = select(found, quantity="certified_share")[0]["tokens"]
                made.add_row(pair, words, f"{tokens:,}", *_tail_cells(found))
    console.print(made)
    console.print(f"[dim]{TAIL_LEGEND} Certified and missed count all tokens.[/]")
