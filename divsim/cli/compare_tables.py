"""The short tables of `divsim lm compare`; all numbers are in `results.json`."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from divsim.cli.exact_tables import table
from divsim.experiments.rows import Row, select

SUMMARY = {
    "reward_last": "reward",
    "held_out_greedy": "greedy",
    "held_out_sampled": "sampled",
    "collapsed": "died",
    "kl": "KL",
    "entropy": "entropy",
    "far": "far",
    "drop": "drop",
    "disagree": "differ",
}
"""Quantities that are printed, and their headings."""

LEGEND = (
    "Means over seeds. reward: of the last ten rollouts; greedy, sampled: right answers to held-out prompts; "
    "died: seeds without reward at the end; KL(mu || pi) of an update's tokens, nats; far, drop: of tokens "
    "with A != 0; differ: of far tokens, where rule and ratio test point to opposite sides. A low KL without "
    "reward is no health."
)
PAIRED = (
    "Differences of reward paired by seed, 95 %, not corrected for their number. Every rule has the regime's "
    "learning rate and its own default radius: a difference is one of settings as much as of rules."
)


def print_compare(console: Console, config: Any, rows: Sequence[Row]) -> None:
    """What each rule leads to, and the differences between them, precision by precision."""
    for precision in config.precisions:
        title = f"regime {config.regime}, precision {precision}, {config.seeds} seeds"
        made = table(title, ("rule",), tuple(SUMMARY.values()))
        for rule in config.rules:
            found = select(rows, table="summary", precision=precision, rule=rule)
            made.add_row(rule, *(_number(select(found, quantity=quantity)) for quantity in SUMMARY))
        console.print(made)
    console.print(f"[dim]{LEGEND}[/]\n")
    made = table("", ("precision", "rule"), ("- no mask", "- DPPO"))
    for precision in config.precisions:
        for rule in config.rules:
            found = select(rows, table="difference", precision=precision, rule=rule, quantity="reward_last")
            against = ("importance_sampling", "dppo_top_k_kl")
            cells = (_interval(select(found, against=name)) for name in against)
            made.add_row(precision, rule, *cells)
    console.print(made)
    console.print(f"[dim]{PAIRED}[/]")


def _number(found: Sequence[Row]) -> str:
    return "·" if not found or found[0]["value"] is None else f"{found[0]['value']:.3g}"


def _interval(found: Sequence[Row]) -> str:
    if not found or found[0]["low"] is None:
        return "·"
    value, low, high = (found[0][name] for name in ("value", "low", "high"))
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
