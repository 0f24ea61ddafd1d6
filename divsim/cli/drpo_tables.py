"""The short tables of `divsim exact drpo`: 12.5 read twice, the weights, and what is learned.

Every table fits 80 columns; all numbers, with their intervals, are in `results.json`.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from divsim.cli.exact_tables import FEW, percent, table
from divsim.experiments.rows import Row, select

SIGNIFICANT = 0.05
"""Of a sign-flip test that was not corrected for the number of comparisons."""


def print_drpo(console: Console, config: Any, rows: Sequence[Row]) -> None:
    """Both readings of 12.5 side by side, then every soft rule."""
    from divsim.experiments.drpo_config import soft_rules

    console.print(_read_weights(config, rows))
    console.print("", _read_learning(config, rows))
    console.print(f"[dim]{READING_LEGEND}[/]\n")
    for pairs in _shown(config):
        console.print(_weights(rows, pairs, list(soft_rules(config)), min(config.far)))
    console.print(f"[dim]{WEIGHT_LEGEND}[/]\n")
    for rate in config.rates:
        console.print(_learning(config, rows, f"{rate:g}"))
    console.print(f"[dim]{LEARNING_LEGEND}[/]\n")
    console.print(_ablations(config, rows))
    console.print(f"[dim]{ABLATION_LEGEND}[/]")


READING_LEGEND = (
    "w: weight / r. KL: at the end of the first rollout, nats without the penalty, else a multiple of that "
    "(geometric mean over seeds, same samples). gap: largest |pi - mu| there. gain: final, share of what the "
    "best policy gains. x: factor of the environment's learning rate. *: differs from no penalty, p < .05, "
    "sign flips over seeds, not corrected for many comparisons."
)
WEIGHT_LEGEND = (
    "w: weight / r. < 0: reversed, per cent of tokens. mask: of the tokens that DPPO's binary TV mask at .15 "
    "drops. lowers: per cent of the reversed tokens whose own push back lowers KL(mu || pi), to first order "
    f"(the sign of c_k), and by a step at rate 1. ·: fewer than {FEW} tokens."
)
LEARNING_LEGEND = "KL, gain and *: as above; rules are compared at one learning rate, not at a matched KL."


ABLATION_LEGEND = (
    "95 % intervals over seeds. best: each at its best radius among those that halve the KL of the first "
    "rollout, chosen on half of the seeds and judged on the others; ·: one of them has none."
)


def _shown(config: Any) -> list[Any]:
    """One mismatch in all its worlds, the one whose pairs come first."""
    return [pairs for pairs in config.pairs if pairs.mismatch == config.pairs[0].mismatch]


def _read_weights(config: Any, rows: Sequence[Row]) -> Table:
    """How far from no penalty each reading is, where policies are apart."""
    from divsim.experiments.drpo_config import READING

    deltas = (READING, 1 / READING)
    far = f"KL > {min(config.far):g}"
    title = f"{READING:g} read as a radius, and as one over it: mean |w - 1|"
    right = [f"{far}, {READING:g}", f"1/{READING:g}", f"all, {READING:g}", f"1/{READING:g}"]
    made = table(title, ("world", "mismatch"), right)
    for pairs in config.pairs:
        found = select(rows, table="weights", quantity="mean_deviation", **pairs.key)
        cells = [
            _number(select(found, region=region, rule=f"drpo({delta:g})"))
            for region in (f"far_{min(config.far):g}", "all")
            for delta in deltas
        ]
        made.add_row(pairs.world, pairs.mismatch, *cells)
    spans = (f"from {1 - 1 / delta:g} to {1 + 1 / delta:g}" for delta in deltas)
    made.caption = f"w can be {' and '.join(spans)}; without the penalty it is 1."
    made.caption_justify = "left"
    return made


def _read_learning(config: Any, rows: Sequence[Row]) -> Table:
    """No penalty, 12.5 as the radius, 12.5 as one over the radius."""
    from divsim.experiments.drpo_config import READING

    rules = ("importance_sampling", f"drpo({READING:g})", f"drpo({1 / READING:g})")
    right = [head for first in ("KL", "gain", "gap") for head in (first, f"{READING:g}", f"1/{READING:g}")]
    made = table(f"No penalty, {READING:g} and 1/{READING:g}: learning", ("environment", "rate"), right)
    for environment in config.environments:
        for rate in (f"{rate:g}" for rate in config.rates):
            found = [_learned(rows, environment, rate, rule) for rule in rules]
            cells = (one[name] for name in ("KL", "gain", "gap") for one in found)
            made.add_row(environment, f"x{rate}", *cells)
    return made


def _learned(rows: Sequence[Row], environment: str, rate: str, rule: str) -> dict[str, str]:
    """KL, gain and gap of one rule, a star where it differs from importance sampling."""
    key = {"environment": environment, "rate": rate, "rule": rule}
    here = select(rows, table="learning", **key)
    none = select(rows, table="learning_difference", baseline="importance_sampling", **key)
    distance = select(none, quantity="first_kl_ratio") or select(here, quantity="first_kl")
    gain = _number(select(here, quantity="final_gain"), 2)
    return {
        "KL": _number(distance, 2) + _star(distance),
        "gain": gain + _star(select(none, quantity="final_gain")),
        "gap": _number(select(here, quantity="first_gap"), 2),
    }


def _star(found: Sequence[Row]) -> str:
    return "*" if found and found[0]["p"] is not None and found[0]["p"] < SIGNIFICANT else " "


def _number(found: Sequence[Row], digits: int = 3) -> str:
    if not found or found[0]["value"] is None:
        return "·"
    value = found[0]["value"]
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.0e}"


def _weights(rows: Sequence[Row], pairs: Any, rules: Sequence[str], far: float) -> Table:
    """Every soft rule's factor under one mismatch in one world."""
    from divsim.experiments.drpo_config import RADIUS

    right = ("|w - 1|", f"KL>{far:g}", "max", "< 0 %", f"KL>{far:g}", "mask", "lowers", "step")
    made = table(f"Weights: {pairs.world}, {pairs.mismatch}, V = {pairs.vocab:,}", ("rule",), right)
    for rule in rules:
        found = select(rows, table="weights", rule=rule, **pairs.key)
        regions = ("all", f"far_{far:g}", f"beyond_{RADIUS:g}")
        every, apart, beyond = (select(found, region=name) for name in regions)
        largest = select(every, quantity="largest_deviation")[0]["value"]
        lowers = select(every, quantity="negative_lowers")
        made.add_row(
            rule,
            *(_number(select(part, quantity="mean_deviation")) for part in (every, apart)),
            f"{largest:.3g}",
            *(percent(select(part, quantity="negative_share")) for part in (every, apart, beyond)),
            percent(select(lowers, step="first order")),
            percent(select(lowers, step="1")),
        )
    return made


def _learning(config: Any, rows: Sequence[Row], rate: str) -> Table:
    """Every rule in every environment at one learning rate."""
    from divsim.experiments.drpo_config import learning_rules

    right = [heading for name in config.environments for heading in (name[:6], "gain")]
    title = f"Learning, rate x{rate}: KL x and gain in {', '.join(config.environments)}"
    made = table(title, ("rule",), right)
    for rule in learning_rules(config):
        found = [_learned(rows, environment, rate, rule) for environment in config.environments]
        made.add_row(rule, *(one[name] for one in found for name in ("KL", "gain")))
    return made


def _ablations(config: Any, rows: Sequence[Row]) -> Table:
    """The paper's two ablations against DRPO, by mean gain."""
    from divsim.experiments.drpo_config import RADIUS

    right = ("Mask-DRPO", f"no |A|, {RADIUS:g}", "no |A|, best")
    made = table(f"Mean gain minus that of DRPO({RADIUS:g}), or DRPO's best", ("environment", "rate"), right)
    base = {"table": "learning_difference", "baseline": f"drpo({RADIUS:g})", "quantity": "mean_gain"}
    rules = (f"mask_drpo({RADIUS:g}, {RADIUS:g})", f"drpo_unweighted({RADIUS:g})")
    for environment in config.environments:
        for rate in (f"{rate:g}" for rate in config.rates):
            here = select(rows, environment=environment, rate=rate)
            pairs = [select(here, rule=rule, **base) for rule in rules]
            tuned = select(here, table="learning_tuned", quantity="mean_gain")
            made.add_row(environment, f"x{rate}", *map(_interval, (*pairs, tuned)))
    return made


def _interval(found: Sequence[Row]) -> str:
    if not found or found[0]["low"] is None:
        return "·"
    value, low, high = (found[0][name] for name in ("value", "low", "high"))
    return f"{value:+.2f} \\[{low:+.2f}, {high:+.2f}]"
