"""The figures of `exact bandit` and `exact mdp`: the yardstick, KL along a rollout, and what is learned."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .learners import radii
from .learning_config import Condition, Config, conditions
from .rows import Row, select
from .style import OKABE_ITO, WIDTH, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "importance_sampling": {"color": "0.45", "linestyle": "--", "label": "no mask"},
    "ppo_clip": {"color": OKABE_ITO["orange"], "label": "PPO clip"},
    "dppo_full_kl": {"color": OKABE_ITO["vermilion"], "linestyle": "-.", "label": "DPPO, KL"},
    "predictive_full_kl": {"color": OKABE_ITO["blue"], "label": "predictive, KL"},
    "drpo": {"color": OKABE_ITO["green"], "label": "DRPO"},
    "spo": {"color": OKABE_ITO["purple"], "linestyle": ":", "label": "SPO"},
}
"""Rules that are drawn, if the run has them."""
MARKS: dict[str, dict[str, Any]] = {
    "natural": {"color": OKABE_ITO["sky"], "marker": "^", "linestyle": "", "label": "natural gradient"},
    "conservative": {
        "color": OKABE_ITO["yellow"],
        "marker": "s",
        "linestyle": "",
        "label": "mixture with greedy",
    },
}
"""Exact algorithms that are drawn beside them."""
EXACT: dict[str, dict[str, Any]] = {"trpo": {"color": "black", "label": "exact trust region"}}
"""The same, where learning is drawn."""


def figures(config: Config, rows: Sequence[Row]) -> "dict[str, Figure]":
    """The figures of a run by name."""
    return {name: _panels(config, rows, *what) for name, what in FIGURES.items()}


def _panels(config: Config, rows: Sequence[Row], draw: Any, title: str, across: str) -> "Figure":
    from matplotlib.figure import Figure

    shown = conditions(config)[:4]
    columns = len(shown) if len(shown) <= 3 else 2
    lines = -(-len(shown) // columns)
    with style():
        figure = Figure(figsize=(WIDTH, 1.2 + 3.0 * lines), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for axis in axes[len(shown) :]:
            axis.set_axis_off()
        for axis, condition in zip(axes, shown, strict=False):
            draw(axis, condition, [row for row in rows if row.get("environment") == condition.environment])
            axis.set_title(condition.environment, loc="left")
        for place, axis in enumerate(axes):
            if place % columns:
                axis.set_ylabel("")
            if columns < 3 or place == 1:
                axis.set_xlabel(across)
        found: dict[str, Any] = {}
        for axis in axes:
            found |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=4)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def _yardstick(axis: "Axes", condition: Condition, rows: Sequence[Row]) -> None:
    """What a rollout promised against its KL, below what was possible at that KL.

    Seeds differ in both; a rule is drawn at its geometric mean KL, below the yardstick by its mean regret.
    """
    here = [row for row in rows if row["k"] == condition.k]
    radii = sorted({row["radius"] for row in select(here, table="frontier")})
    frontier, gain = (
        [row["value"] for row in select(here, table="frontier", quantity=name)]
        for name in ("promised", "gain")
    )
    axis.plot(radii, frontier, color="black", linewidth=3, label="yardstick")
    axis.plot(radii, gain, color="black", linewidth=1, linestyle="--", label="its return in the world")
    for learner, look in (LOOKS | MARKS).items():
        for radius in (0.3, 1.0):
            found = select(here, table="step", learner=learner, radius=radius)
            log_kl, promised, possible = (
                np.array([row["value"] for row in select(found, quantity=quantity)])
                for quantity in ("log_kl", "promised", "yardstick")
            )
            if len(log_kl):
                best = np.interp(log_kl, np.log(radii), frontier)
                y = best * promised / possible
                axis.plot(np.exp(log_kl), y, alpha=1.0 if radius == 1 else 0.5, **look)
    axis.set_xscale("log")
    axis.set_xlim(1e-3, 3)
    axis.set_ylim(-0.1, 1.1)
    axis.set_ylabel("E_pi[A] / that of greedy")


def _along(axis: "Axes", condition: Condition, rows: Sequence[Row]) -> None:
    """KL after each minibatch of a rollout, the mask on."""
    traces = select(rows, table="along", minibatches=condition.minibatches, k=condition.k)
    for learner, look in LOOKS.items():
        found = select(traces, learner=learner)
        if found:
            x = [row["minibatch"] for row in found]
            middle, low, high = (np.exp([row[name] for row in found]) for name in ("value", "low", "high"))
            axis.plot(x, middle, **look)
            axis.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        if learner in THRESHOLDS:
            axis.axhline(THRESHOLDS[learner], color=look["color"], linewidth=1, linestyle=(0, (1, 3)))
    axis.set_yscale("log")
    axis.set_ylim(1e-3, 30)
    axis.set_ylabel("KL(mu ‖ pi), nats, mean over states")


THRESHOLDS = {learner: radii(learner)["delta"] for learner in ("dppo_full_kl", "predictive_full_kl")}
"""Radii in nats: dotted lines, beyond which the rule may drop a token."""


def _learned(axis: "Axes", condition: Condition, rows: Sequence[Row]) -> None:
    """Most gain within a budget of KL, tuned on other seeds."""
    found = select(rows, table="matched", match="kl", minibatches=condition.minibatches, k=condition.k)
    budgets = sorted({row["target"] for row in found})
    for learner, look in (LOOKS | EXACT).items():
        line = select(found, learner=learner, quantity="mean_gain")
        if line:
            x = [row["target"] for row in line]
            axis.plot(x, [row["value"] for row in line], marker="o", markersize=4, **look)
            axis.fill_between(
                x,
                [row["low"] for row in line],
                [row["high"] for row in line],
                color=look["color"],
                alpha=0.12,
            )
    axis.set_xscale("log")
    axis.minorticks_off()
    axis.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
    axis.set_ylabel("share of the best gain")


FIGURES = {
    "yardstick": (
        _yardstick,
        "One rollout of many minibatches against the best step of the same KL",
        "KL(mu ‖ pi), nats, mean over states",
    ),
    "along": (
        _along,
        "A mask is no constraint: KL at the highest rate tried (dotted: radius of DPPO and predictive)",
        "minibatch of the rollout",
    ),
    "learned": (
        _learned,
        "What is learned within a budget of KL, settings tuned on other seeds",
        "budget: KL(mu ‖ pi) on the tuning seeds, nats",
    ),
}
"""Name -> what is drawn in the panel of a condition, the title, and what the x-axes show."""
