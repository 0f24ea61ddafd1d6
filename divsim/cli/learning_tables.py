"""The short tables of `divsim exact bandit` and `divsim exact mdp`; all numbers are in `results.json`."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from divsim.cli.exact_tables import table
from divsim.experiments.learning_config import Condition, Config, conditions
from divsim.experiments.rows import Row, select

TARGETS = (0.1,)
"""Budgets of KL that are printed, if the run has them."""


def print_learning(console: Console, config: Config, rows: Sequence[Row]) -> None:
    """What was tried, every condition's matched comparisons, then the regret against the yardstick."""
    console.print(
        f"{len(config.rates) * len(config.scales)} tries each, chosen on {config.tuning_seeds} seeds, judged "
        f"on {config.seeds} others after {config.rollouts} rollouts."
        + (f" {SHORT}" if config.seeds < ENOUGH_SEEDS else "")
    )
    for condition in conditions(config):
        _print_matched(console, config, condition, rows)
    console.print(f"[dim]{MATCHED_LEGEND}[/]\n")
    _print_step(console, config, rows)
    console.print(f"[dim]{STEP_LEGEND}[/]")
    _print_overshoot(console, config, rows)


ENOUGH_SEEDS = 20
SHORT = "This is a short run: it shows what is measured, and its choices are coarse; see --preset full."

MATCHED_LEGEND = (
    "Per cent of what the best policy would gain, mean over rollouts. tuned: the try that is best on other "
    "seeds (*: at the edge of what was tried); KL <: the best try, or coin between "
    "two of them, whose KL at the end of a rollout, mean over rollouts, is at most that there "
    "(seeds that judge may exceed it), nats; "
    "- no mask: tuned minus importance_sampling, paired by seed, 95 %, not corrected for their number; "
    "drop: dropped tokens; fell: per cent of the tuned try's "
    "seeds that ended below the start or lost half of their best gain for good; ·: no try fits. Engine noise "
    "is for rules only."
)
STEP_LEGEND = (
    "One rollout with exact advantages against the best policy of the same mean KL(mu || pi): regret is the "
    "share of E_pi[A] that is missing. beaten: per cent of checkpoints above the yardstick; J above: "
    "of those whose return exceeds what the yardstick promises (in a bandit they are the same)."
)


def _print_matched(console: Console, config: Config, condition: Condition, rows: Sequence[Row]) -> None:
    targets = [target for target in TARGETS if target in config.kl_targets]
    right = ("tuned", *(f"KL < {target:g}" for target in targets), "- no mask", "drop", "fell")
    title = f"{condition.environment}, {condition.minibatches} minibatches"
    made = table(title + (f", K = {condition.k}" if condition.k else ""), ("learner",), right)
    found = select(rows, **condition.key)
    matched = select(found, table="matched")
    for learner in config.learners:
        tuned = select(matched, learner=learner, match="tuned")
        budgets = [
            select(matched, learner=learner, match="kl", target=target, quantity="mean_gain")
            for target in targets
        ]
        made.add_row(
            learner,
            _percent(select(tuned, quantity="mean_gain")) + _star(select(tuned, quantity="at_an_edge")),
            *map(_percent, budgets),
            _interval(select(tuned, quantity="mean_gain_difference", against="importance_sampling")),
            _percent(select(tuned, quantity="drop")),
            _percent(select(tuned, quantity="failed")).removesuffix(".0"),
        )
    console.print(made)


def _percent(found: Sequence[Row]) -> str:
    if not found or found[0]["value"] is None:
        return "·"
    return f"{round(100 * found[0]['value'], 1) + 0.0:.1f}"  # no minus before a rounding of 0


def _interval(found: Sequence[Row]) -> str:
    if not found:
        return "·"
    value, low, high = (100 * found[0][name] for name in ("value", "low", "high"))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def _star(found: Sequence[Row]) -> str:
    return "*" if found and found[0]["value"] == 1 else " "


def _print_step(console: Console, config: Config, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(row["environment"] for row in select(rows, table="step")))
    made = table("Regret against the yardstick, per cent", ("learner",), (*names, "beaten", "J above"))
    steps = select(rows, table="step", radius=1.0)
    for learner in config.learners:
        found = select(steps, learner=learner)
        made.add_row(
            learner,
            *(_percent(select(found, environment=name, quantity="regret")) for name in names),
            _pooled(select(found, quantity="beaten")),
            _pooled(select(found, quantity="return_above")),
        )
    console.print(made)


def _print_overshoot(console: Console, config: Config, rows: Sequence[Row]) -> None:
    """How far beyond its target an exact algorithm goes, for those whose radius is a target of KL."""
    found = select(rows, table="tries", quantity="overshoot")
    if found:
        made = table("Overshoot", ("learner",), config.environments)
        for learner in dict.fromkeys(row["learner"] for row in found):
            own = select(found, learner=learner)
            worst = [max(row["value"] for row in select(own, environment=e)) for e in config.environments]
            made.add_row(learner, *(f"{value:.2f}" if value < 1000 else "> 1000" for value in worst))
        console.print(made)
        console.print("[dim]Largest KL of a step over the KL it aimed at, mean over seeds, the worst try.[/]")


def _pooled(found: Sequence[Row]) -> str:
    total: Any = sum(row["tokens"] for row in found)
    return f"{100 * sum(row['value'] * row['tokens'] for row in found) / total:.0f}"
