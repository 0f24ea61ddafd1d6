"""The short tables of `divsim exact direction`: a few numbers of many; all are in `results.json`.

Every table fits 80 columns.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from divsim.cli.exact_tables import percent, table
from divsim.experiments.rows import Row, select

ESTIMANDS = {"own": "own", "marginal": "marginal", "marginal_total": "marg. total", "whole": "whole"}
GEOMETRIES = {
    "euclidean": "plain gradient",
    "natural": "natural gradient or sign",
    "linear_head": "linear head",
}


def print_direction(console: Console, config: Any, rows: Sequence[Row], rules: Sequence[str]) -> None:
    """How policies come apart, what a token's own step does, and what a minibatch does."""
    region = f"far_{min(config.deltas):g}"
    plain = ("ratio", "always", "own_rate")
    shown = [rule if rule in plain else f"forward_kl/{rule}" for rule in rules]
    _print_mismatches(console, config, rows)
    for geometry in GEOMETRIES:
        _print_own(console, config, rows, region, geometry, shown or ["always", "ratio", "forward_kl/full"])
    console.print(
        "[dim]full: the exact c_k; own_rate: the rate of the step that is taken; always: a test that calls "
        "every update outward, so its share is the base rate. A sign step goes along the line of the natural "
        "gradient.[/]\n"
    )
    _print_batch(console, config, rows, region)
    _print_certain(console, rows)


def _print_mismatches(console: Console, config: Any, rows: Sequence[Row]) -> None:
    shown = dict.fromkeys(f"{delta:g}" for delta in (min(config.deltas), max(config.deltas)))
    beyond = [f">{delta}" for delta in shown]
    right = ("mean KL", *beyond, "disagree", *beyond, "s*")
    tokens = f"{config.seeds * config.tokens:,} tokens a row"
    title = f"How mu and pi come apart: {config.world}, V = {config.vocab:,}, {tokens}"
    made = table(title, ("mismatch",), right)
    for mismatch in config.mismatches:
        found = select(rows, mismatch=mismatch, world=config.world)
        shares = [percent(select(found, table="mismatch", quantity=f"far_{delta}")) for delta in shown]
        regions = ("all", *(f"far_{delta}" for delta in shown))
        differ = [percent(select(found, table="disagreement", region=region)) for region in regions]
        kl = select(found, table="mismatch", quantity="mean_kl")[0]["value"]
        flip = select(found, table="flip_step", geometry="euclidean", quantity="median")[0]["value"]
        size = "·" if flip is None else f"{flip:.0f}" if flip >= 100 else f"{flip:.2g}"
        made.add_row(mismatch, f"{kl:.4f}", *shares, *differ, size)
    console.print(made)
    console.print(
        f"[dim]{beyond[0]}: tokens with a KL above it, per cent; disagree: ratio test and c_k point to "
        "opposite sides, per cent of all tokens and of those; s*: median size of the step on a token, along "
        "the plain gradient, at which KL is back where it was.[/]\n"
    )


def _print_own(
    console: Console, config: Any, rows: Sequence[Row], region: str, geometry: str, tests: Sequence[str]
) -> None:
    headings = [test.removeprefix("forward_kl/") for test in tests]
    where = f"{GEOMETRIES[geometry]}, KL > {min(config.deltas):g}, per cent"
    title = f"Right about a token's own step of .1 s*, {where}"
    made = table(title, ("mismatch",), ("tokens", *headings))
    key = {"table": "agreement", "estimand": "own", "region": region, "step": "0.1", "geometry": geometry}
    for mismatch in config.mismatches:
        found = select(rows, mismatch=mismatch, **key)
        if found:
            cells = [percent(select(found, test=test, quantity="accuracy")) for test in tests]
            made.add_row(mismatch, f"{found[0]['tokens']:,}", *cells)
    console.print(made)


def _print_batch(console: Console, config: Any, rows: Sequence[Row], region: str) -> None:
    right = ("rises", "ratio", "c_k", "c_k - ratio, 95 %", "p")
    title = f"A minibatch on a shared head, KL > {min(config.deltas):g}: risk difference"
    made = table(title, ("setting", "what"), right)
    for setting in config.batch:
        for estimand, words in ESTIMANDS.items():
            found = select(rows, table="agreement", setting=setting, estimand=estimand, region=region)
            paired = select(found, test="forward_kl/full", quantity="risk_difference_minus_ratio")
            tests = ("ratio", "forward_kl/full")
            values = [_number(select(found, test=test, quantity="risk_difference")) for test in tests]
            differs = f"{paired[0]['value']:+.3f} {_interval(paired[0])}" if paired else "·"
            p = f"{paired[0]['p']:.2g}" if paired and paired[0]["p"] is not None else "·"
            rises = percent(select(found, quantity="base_rate"))
            made.add_row(setting, words, rises, *values, differs, p)
    console.print(made)
    console.print(
        "[dim]risk difference: P(KL rises | said outward) - P(KL rises | said inward), the same update for "
        "all tests. own: a token's step alone, on its own KL; marginal: the update with it minus without it, "
        "on its own KL, and (marg. total) on the KL of all far tokens; whole: the whole update, on its own "
        f"KL. {config.seeds} seeds; c_k - ratio: the mean of the seeds' own differences, where the columns "
        "pool all tokens; p by flipping the signs of the differences.[/]"
    )


def _print_certain(console: Console, rows: Sequence[Row]) -> None:
    """What holds for every pair, and how far the ratio test is from the natural gradient of a head."""
    blocks = select(rows, table="certainty", quantity="false_block_share")
    tried = sum(row["tokens"] for row in blocks)
    found = round(sum(row["value"] * row["tokens"] for row in blocks if row["value"]))
    sampled = select(rows, table="expectations", quantity="sampled")
    covered = sum(row["low"] is not None and row["low"] <= 0 <= row["high"] for row in sampled)
    rounding = max(row["value"] for row in select(rows, table="expectations", quantity="enumerated_error"))
    console.print(
        f"\nFull forward KL, one token: {found} false blocks in {tried:,} predicted increases, any step.\n"
        f"E_pi c = 0, E_mu r c = 0, E_mu c = -|pi - mu|^2, E_mu A r c = Cov_pi(A, pi - mu): {covered} of "
        f"{len(sampled)} sampled 95 % intervals hold; enumerated, the largest error is {rounding:.1e}."
    )
    for world in ("language", "zipf"):
        ranks = select(rows, table="natural_gradient", world=world)
        agrees = ", ".join(f"{row['rank']} {100 * row['value']:.1f}" for row in ranks)
        console.print(
            f"Ratio test = natural gradient, V = 50, {world}, per cent by rank of the head: {agrees}"
        )
    console.print(
        "\nPredicted increases that did not come, each divergence with its own test, plain step, per cent "
        "(exact counterexamples: `divsim verify --explain T3h` and `T4o`):"
    )
    console.print(_false_block_table(rows))


BLOCK_HEADINGS = {
    "forward_kl": "KL", "reverse_kl": "rev.KL", "tv": "TV", "js": "JS", "chi2_mu_pi": "chi2",
    "chi2_pi_mu": "rev.chi2", "hellinger2": "hell2", "lumped": "top-K KL",
}  # fmt: skip


def _false_block_table(rows: Sequence[Row]) -> Table:
    blocks = select(rows, table="false_blocks", geometry="euclidean")
    made = table("", ("mismatch", "step"), tuple(BLOCK_HEADINGS.values()))
    for mismatch in dict.fromkeys(row["mismatch"] for row in blocks):
        for step in ("0.1", "3"):
            at = select(blocks, mismatch=mismatch, step=step)
            cells = (percent(select(at, divergence=name)) for name in BLOCK_HEADINGS)
            made.add_row(mismatch, f"{step} s*", *cells)
    return made


def _number(found: Sequence[Row]) -> str:
    return f"{found[0]['value']:.3f}" if found and found[0]["value"] is not None else "·"


def _interval(row: Row) -> str:
    return "" if row["low"] is None else f"[{row['low']:.3f}, {row['high']:.3f}]".replace("[", r"\[")
