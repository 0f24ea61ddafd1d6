"""The short tables of `divsim exact bounds`: vacuity first, then violations, then how loose a bound is.

Every table fits 80 columns; all numbers are in `results.json`.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from divsim.cli.exact_tables import table
from divsim.experiments.bounds_discounted import names
from divsim.experiments.bounds_growth import spans
from divsim.experiments.bounds_rows import violations
from divsim.experiments.rows import Row, find, select
from divsim.tabular.horizon import BOUNDS

BOUND_NAMES = {
    "trpo_tv": "TRPO, max TV",
    "trpo_kl": "TRPO, max KL",
    "cpo": "CPO, mean TV",
    "occupancy": "occupancy shift",
    "simulation": "simulation lemma",
    "quadratic": "quadratic, T^2",
    "linear": "linear, T",
    "coupling": "coupling",
    "pinsker_marginal": "Pinsker, T^1.5",
    "mixed": "mixed",
    "adaptive": "adaptive",
    "smallest": "smallest of them",
    "error_worst": "error, worst R",
    "error_random": "error, random R",
}
WORLDS = ("rare", "fair", "forgetful")


def print_bounds(console: Console, config: Any, rows: Sequence[Row]) -> None:
    """Discounted bounds, bounds on token trees, and growth with the horizon."""
    _print_discounted(console, config, rows)
    _print_trees(console, config, rows)
    _print_growth(console, config, rows)
    broken, cases = violations(rows)
    console.print(f"Violations: {broken:,} of {cases:,} bounds that were compared with the truth.")
    for row in select(rows, quantity="largest_error"):
        where = row.get("world", "trees")
        console.print(f"Identity {row['bound']}, {where}: largest error {row['value']:.1e} of the range.")


def _print_discounted(console: Console, config: Any, rows: Sequence[Row]) -> None:
    right = ("cases", "vacuous", "broken", "median", "5 %", "min", "door")
    gammas = ", ".join(f"{gamma:g}" for gamma in config.gammas)
    made = table(f"Discounted processes, gamma {gammas}: bound / truth", ("bound",), right)
    for name in names(config):
        key = {"table": "discounted", "bound": name, "gamma": "all", "noise": "all"}
        found, door = (select(rows, world=world, **key) for world in ("random", "doorway"))
        cases, vacuous, broken = _judged(found)
        everywhere = str(int(broken) + int(_broken(door)))
        made.add_row(
            _label(name), cases, vacuous, everywhere, *_tightness(found), *_tightness(door, ("min",))
        )
    console.print(made)
    console.print(
        "[dim]vacuous: per cent of cases in which the bound exceeds the range of what it bounds; broken: "
        "violations, the door's too, of which there must be none; median, 5 %, min: how many times the truth "
        "the bound is; "
        "door: the same at its smallest where the penalties are attained.[/]\n"
    )


def _print_trees(console: Console, config: Any, rows: Sequence[Row]) -> None:
    right = ("cases", "vacuous", "broken", "median", "min", "median", "min", "broken")
    made = table("Token trees, rewards in [0, 1], xi = 1/2: bound / |error|", ("bound",), right)
    made.add_row("", "", "", "", "random", "R", "worst", "R", "")
    for name in BOUNDS:
        key = {"table": "tree", "bound": name, "tree": "all", "noise": "all"}
        random, worst = (select(rows, rewards=rewards, **key) for rewards in ("random", "worst"))
        loose = [*_tightness(random, ("q50", "min")), *_tightness(worst, ("q50", "min"))]
        made.add_row(_label(name), *_judged(random), *loose, _broken(worst))
    console.print(made)
    shapes = ", ".join(f"{vocab}^{horizon}" for vocab, horizon in config.shapes)
    console.print(
        f"[dim]error: J(pi) - J(mu) - L'; sequences {shapes}; noise on the logits "
        f"{', '.join(f'{noise:g}' for noise in config.noises)}; worst R: the rewards that make the error "
        "extreme.[/]\n"
    )


def _print_growth(console: Console, config: Any, rows: Sequence[Row]) -> None:
    short, long, _ = spans(config.horizons)
    headings = (f"{short[0]}-{short[-1]}", f"{long[0]}-{long[-1]}", "from")
    title = f"Growth like T^x at total variation {config.distance:g} a step"
    made = table(title, ("",), headings * len(WORLDS))
    made.add_row("", *(cell for world in WORLDS for cell in (world, "", "")))
    for of in (*BOUNDS, "error_worst", "error_random"):
        cells = []
        for world in WORLDS:
            found = select(rows, table="growth", world=world, of=of)
            cells += [f"{find(found, quantity='exponent', span=span)['value']:.2f}" for span in headings[:2]]
            first = find(found, quantity="vacuous_from")["value"]
            cells.append("·" if first is None else f"{first:.0f}")
        made.add_row(_label(of), *cells)
    console.print(made)
    console.print(
        "[dim]x over the shorter and the longer episodes; from: the first T of the grid at which the mean "
        "exceeds the range of the return. rare: the world counts an action that mu hardly takes; fair: one "
        "that it takes every other time; forgetful: random transitions.[/]"
    )
    for world in WORLDS:
        console.print(f"x of the true error, worst R, all T, {world}: {_exponent(config, rows, world)}")
    console.print()


def _exponent(config: Any, rows: Sequence[Row], world: str) -> str:
    span = f"{config.horizons[0]}-{config.horizons[-1]}"
    key = {"table": "growth", "of": "error_worst", "quantity": "exponent", "span": span}
    found = find(rows, world=world, **key)
    if found["low"] is None:
        return f"{found['value']:.2f}"
    return rf"{found['value']:.2f}, 95 % \[{found['low']:.2f}, {found['high']:.2f}]"


def _label(name: str) -> str:
    mixing = name.removeprefix("kakade_langford_")
    return f"Kakade-L., a={mixing}" if mixing != name else BOUND_NAMES[name]


def _judged(found: Sequence[Row]) -> list[str]:
    vacuous = find(found, quantity="vacuous_share")
    return [f"{vacuous['tokens']:,}", f"{100 * vacuous['value']:.1f}", _broken(found)]


def _broken(found: Sequence[Row]) -> str:
    share = find(found, quantity="violation_share")
    return str(round(share["value"] * share["tokens"]))


def _tightness(found: Sequence[Row], levels: Sequence[str] = ("q50", "q5", "min")) -> list[str]:
    values = (find(found, quantity=f"tightness_{level}")["value"] for level in levels)
    return ["·" if value is None else f"{value:.2f}" if value < 10 else f"{value:,.0f}" for value in values]
