"""The short tables that `divsim exact` prints: a few numbers of many; all are in `results.json`."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from divsim.experiments.rows import Row, select

ESTIMANDS = {
    "own": "its own step",
    "marginal": "with − without it",
    "marginal_total": "with − without it, all far tokens",
    "whole": "the whole update",
}


def print_direction(console: Console, config: Any, rows: Sequence[Row], rules: Sequence[str]) -> None:
    """How policies come apart, what a token's own step does, and what a minibatch does."""
    _print_mismatches(console, config, rows)
    region = f"far_{min(config.deltas):g}"
    shown = [rule if rule in ("ratio", "always", "own_rate") else f"forward_kl/{rule}" for rule in rules]
    _print_own(console, config, rows, region, shown or ["always", "ratio", "forward_kl/full"])
    _print_batch(console, config, rows, region)
    _print_certain(console, rows)


def print_tails(console: Console, config: Any, rows: Sequence[Row]) -> None:
    """Sign flips, certified signs and missed divergence of every cell, at one K."""
    k = config.certificate_size if config.certificate_size in config.sizes else max(config.sizes)
    table = _table(
        f"All tokens, K = {k} (in per cent of tokens; missed: of the sum of KL)", "world", "mismatch", "V"
    )
    headings = ("ratio flips", "aggregated", "uniform", "proportional", "zero", "certified", "KL missed")
    for heading in headings:
        table.add_column(heading, justify="right")
    for pairs in config.pairs:
        found = select(rows, table="estimators", region="all", **pairs.key)
        seen = select(found, k=k)
        if not seen:
            continue
        flips = [_percent(select(seen, tail=tail, quantity="flip_rate")) for tail in headings[1:5]]
        table.add_row(
            pairs.world, pairs.mismatch, f"{pairs.vocab:,}", _percent(select(found, test="ratio")), *flips,
            _percent(select(seen, quantity="certified_share")), _percent(select(seen,
            quantity="missed_kl_share")),
        )  # fmt: skip
    console.print(table)


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


def print_real(console: Console, question: str, rows: Sequence[Row]) -> None:
    """Recorded tokens, by pair and region."""
    if question == "direction":
        _print_real_direction(console, rows)
    else:
        _print_real_tails(console, rows)
    console.print(
        "[dim]bf16, fp8, fp32: the engine; base: the trainer has its weights, stale: it is six steps on. "
        "Intervals resample prompts. ·: no tokens.[/]"
    )


def _print_real_direction(console: Console, rows: Sequence[Row]) -> None:
    table = _table("Recorded tokens, V = 49,152: ratio test and c_k, per cent", "pair", "region")
    headings = (
        "tokens",
        "disagree",
        "95 % interval",
        "plain step: ratio",
        "c_k",
        "natural step: ratio",
        "c_k",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for pair in dict.fromkeys(row["mismatch"] for row in rows):
        for region, words in REGIONS.items():
            found = select(rows, mismatch=pair, region=region)
            differs = select(found, quantity="disagree_share")
            if not differs:
                continue
            small = select(found, step="0.1", quantity="accuracy")
            right = [
                _percent(select(small, geometry=geometry, test=test))
                for geometry in ("euclidean", "sign")
                for test in ("ratio", "forward_kl/full")
            ]
            low, high = (100 * differs[0][end] for end in ("low", "high"))
            table.add_row(
                pair,
                words,
                f"{differs[0]['tokens']:,}",
                _percent(differs),
                f"{low:.1f} to {high:.1f}",
                *right,
            )
    console.print(table)
    console.print("[dim]right about a token's own step of .1 s*, stepped up and down; |c_k| > 1e-6.[/]")


def _print_real_tails(console: Console, rows: Sequence[Row]) -> None:
    table = _table("Recorded tokens, V = 49,152, K = 20: per cent of signs that flip", "pair", "region")
    tails = ("aggregated", "uniform", "proportional", "zero")
    for heading in ("tokens", *tails, "certified", "KL missed"):
        table.add_column(heading, justify="right")
    for pair in dict.fromkeys(row["mismatch"] for row in rows):
        for region, words in REGIONS.items():
            found = select(rows, table="estimators", mismatch=pair, region=region, k=20)
            if not found:
                continue
            known = [
                _percent(select(found, quantity=name)) for name in ("certified_share", "missed_kl_share")
            ]
            flips = [_percent(select(found, tail=tail, quantity="flip_rate")) for tail in tails]
            tokens = select(found, quantity="certified_share")[0]["tokens"]
            table.add_row(pair, words, f"{tokens:,}", *flips, *known)
    console.print(table)
    console.print("[dim]certified: of all tokens; missed: of the sum of KL.[/]")


def _print_mismatches(console: Console, config: Any, rows: Sequence[Row]) -> None:
    low, high = (f"far_{delta:g}" for delta in (min(config.deltas), max(config.deltas)))
    table = _table(f"How mu and pi come apart: {config.world}, V = {config.vocab:,}", "mismatch")
    headings = ("mean KL", f"KL > {min(config.deltas):g}", f"KL > {max(config.deltas):g}", "disagree",
                f"… KL > {min(config.deltas):g}", f"… KL > {max(config.deltas):g}", "flip step")  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right")
    for mismatch in config.mismatches:
        found = select(rows, mismatch=mismatch, world=config.world)
        shares = [_percent(select(found, table="mismatch", quantity=region)) for region in (low, high)]
        differ = [
            _percent(select(found, table="disagreement", region=region)) for region in ("all", low, high)
        ]
        kl = select(found, table="mismatch", quantity="mean_kl")[0]["value"]
        flip = select(found, table="flip_step", geometry="euclidean", quantity="median")[0]["value"]
        table.add_row(mismatch, f"{kl:.4f}", *shares, *differ, f"{flip:.2g}")
    console.print(table)
    console.print(
        "[dim]disagree: ratio test and c_k point to opposite sides, per cent of tokens; flip step: median "
        "size |s*| at which a plain gradient step on the token brings KL back to where it was.[/]\n"
    )


def _print_own(console: Console, config: Any, rows: Sequence[Row], region: str, tests: Sequence[str]) -> None:
    table = _table(
        f"Right about a token's own step of .1 s*, {region.replace('_', ' > ')} (per cent)",
        "mismatch",
        "tokens",
    )
    for geometry in ("euclidean", "natural", "linear_head"):
        for test in tests:
            table.add_column(
                f"{geometry.replace('_', ' ')}\n{test.removeprefix('forward_kl/')}", justify="right"
            )
    for mismatch in config.mismatches:
        found = select(rows, table="agreement", estimand="own", mismatch=mismatch, region=region, step="0.1")
        if not found:
            continue
        cells = [
            _percent(select(found, geometry=geometry, test=test, quantity="accuracy"))
            for geometry in ("euclidean", "natural", "linear_head")
            for test in tests
        ]
        table.add_row(mismatch, f"{found[0]['tokens']:,}", *cells)
    console.print(table)
    console.print("[dim]full: the exact c_k. The sign step goes along the line of the natural gradient.[/]\n")


def _print_batch(console: Console, config: Any, rows: Sequence[Row], region: str) -> None:
    table = _table(
        f"A minibatch on a shared head, {region.replace('_', ' > ')}: risk difference",
        "setting",
        "what",
        "KL rises",
    )
    for heading in ("ratio test", "change c_k", "difference, 95 % interval", "p"):
        table.add_column(heading, justify="right")
    for setting in config.batch:
        for estimand, words in ESTIMANDS.items():
            found = select(rows, table="agreement", setting=setting, estimand=estimand, region=region)
            paired = select(found, test="forward_kl/full", quantity="risk_difference_minus_ratio")
            values = [
                _number(select(found, test=test, quantity="risk_difference"))
                for test in ("ratio", "forward_kl/full")
            ]
            differs = f"{paired[0]['value']:+.3f} {_interval(paired[0])}" if paired else "·"
            p = f"{paired[0]['p']:.3g}" if paired and paired[0]["p"] is not None else "·"
            table.add_row(setting, words, _percent(select(found, quantity="base_rate")), *values, differs, p)
    console.print(table)
    console.print(
        "[dim]risk difference: P(KL rises | said outward) - P(KL rises | said inward), the same update for "
        f"all tests; intervals over {config.seeds} seeds, p by sign flips of the seeds' differences.[/]"
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
        "\nOther divergences: predicted increases that did not come, plain step, per cent (exact "
        "counterexamples: `divsim verify --explain T3h` and `T4o`):"
    )
    console.print(_false_block_table(rows))


def _false_block_table(rows: Sequence[Row]) -> Table:
    blocks = select(rows, table="false_blocks", geometry="euclidean")
    table = _table("", "mismatch", "step / s*")
    names = list(dict.fromkeys(row["divergence"] for row in blocks))
    for name in names:
        table.add_column(name, justify="right")
    for mismatch in dict.fromkeys(row["mismatch"] for row in blocks):
        for step in ("0.1", "3"):
            at = select(blocks, mismatch=mismatch, step=step)
            table.add_row(mismatch, step, *(_percent(select(at, divergence=name)) for name in names))
    return table


def _table(title: str, *left: str) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold"
    )
    for heading in left:
        table.add_column(heading, no_wrap=True)
    return table


def _percent(found: Sequence[Row]) -> str:
    return f"{100 * found[0]['value']:.1f}" if found and found[0]["value"] is not None else "·"


def _number(found: Sequence[Row]) -> str:
    return f"{found[0]['value']:.3f}" if found and found[0]["value"] is not None else "·"


def _interval(row: Row) -> str:
    return "" if row["low"] is None else f"[{row['low']:.3f}, {row['high']:.3f}]".replace("[", r"\[")
