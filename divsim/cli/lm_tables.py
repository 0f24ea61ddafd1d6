"""The short tables of `divsim lm`; all numbers are in the files of the run. Every table fits 80 columns."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from divsim.cli.exact_tables import table
from divsim.experiments.compare import REFERENCES
from divsim.experiments.rows import Row, select

TRAINED = {
    "reward": "reward", "held_out_greedy": "greedy", "held_out_sampled": "sampled", "kl": "KL",
    "kl_max": "max", "entropy": "ent.", "far": "far", "drop": "drop", "disagree": "differ",
}  # fmt: skip
"""Quantities of an iteration that are printed, and their headings."""
COMPARED = {
    "reward_last": "reward", "held_out_greedy": "greedy", "held_out_sampled": "sampled", "collapsed": "died",
    "kl": "KL", "entropy": "ent.", "far": "far", "drop": "drop", "disagree": "differ",
}  # fmt: skip
"""Quantities of a rule that are printed, and their headings."""

TOKENS = (
    "greedy, sampled: right answers to held-out prompts (held_out_greedy, held_out_sampled); KL(mu || pi) of "
    "an update's tokens and ent., the entropy of pi, nats; far, drop: of tokens with A != 0; differ: of far "
    "tokens, where rule and ratio test point to opposite sides. A low KL without reward is no health."
)
SMALLEST = 0.0005
"""Below it three decimals would be 0."""
PAIRED = (
    "Differences of reward paired by seed, 95 %, not corrected for their number. Every rule has the regime's "
    "learning rate and its own default radius: a difference is one of settings as much as of rules."
)


def print_training(console: Console, metrics: Sequence[dict[str, Any]]) -> None:
    """The iterations after which held-out prompts were asked."""
    made = table("", ("rollout",), tuple(TRAINED.values()))
    for line in metrics:
        if "held_out_greedy" in line:
            made.add_row(str(line["iteration"]), *(_number(line.get(name)) for name in TRAINED))
    console.print(made)
    console.print(f"[dim]{TOKENS}[/]")


def print_compare(console: Console, config: Any, rows: Sequence[Row]) -> None:
    """What each rule leads to, and the differences between them, precision by precision."""
    for precision in config.precisions:
        title = f"regime {config.regime}, precision {precision}, {config.seeds} seeds"
        made = table(title, ("rule",), tuple(COMPARED.values()))
        for rule in config.rules:
            found = select(rows, table="summary", precision=precision, rule=rule)
            made.add_row(rule, *(_number(_value(select(found, quantity=name))) for name in COMPARED))
        console.print(made)
    console.print(f"[dim]Means over seeds. reward: of the last ten rollouts; died: without it; {TOKENS}[/]\n")
    for precision in config.precisions:
        made = table(f"precision {precision}", ("rule",), ("- no mask", "- DPPO"))
        for rule in config.rules:
            found = select(rows, table="difference", precision=precision, rule=rule, quantity="reward_last")
            made.add_row(rule, *(_interval(select(found, against=name)) for name in REFERENCES))
        console.print(made)
    console.print(f"[dim]{PAIRED}[/]")


def _value(found: Sequence[Row]) -> float | None:
    return found[0]["value"] if found else None


def _number(value: float | None) -> str:
    """Four characters where that is enough: three decimals below 1, one digit of what is smaller.

    >>> _number(0.27149), _number(0.00014), _number(0.0), _number(12.34), _number(None)
    ('.271', '1e-4', '0', '12.3', '·')
    """
    if value is None:
        return "·"
    if 0 < value < SMALLEST:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.3f}".lstrip("0") if 0 < value < 1 - SMALLEST else f"{value:.3g}"


def _interval(found: Sequence[Row]) -> str:
    if not found or found[0]["low"] is None:
        return "·"
    value, low, high = (found[0][name] for name in ("value", "low", "high"))
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
