"""The figures of `lm compare`: learning curves with bands, a panel a precision."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .rows import Row, select
from .style import OKABE_ITO, WIDTH, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "importance_sampling": {"color": "0.35", "linestyle": "--", "label": "no mask"},
    "clip_higher": {"color": OKABE_ITO["orange"], "label": "clip-higher"},
    "dppo_top_k_kl": {"color": OKABE_ITO["vermilion"], "linestyle": "-.", "label": "DPPO, top-K KL"},
    "predictive_aggregated_kl": {"color": OKABE_ITO["blue"], "label": "predictive, aggregated"},
    "predictive_uniform_kl": {"color": OKABE_ITO["sky"], "linestyle": ":", "label": "predictive, uniform"},
    "drpo": {"color": OKABE_ITO["green"], "label": "DRPO"},
}
OTHERS = (OKABE_ITO["purple"], OKABE_ITO["yellow"], OKABE_ITO["black"])
"""Colours of rules that have no look of their own, in turn."""

SHOWN = {"reward": "reward", "log_kl": "KL(mu ‖ pi), nats", "entropy": "entropy of pi, nats"}
"""A row of panels each."""


def figures(config: Any, rows: Sequence[Row]) -> "dict[str, Figure]":
    """The figures of a run by name."""
    from matplotlib.figure import Figure

    columns = len(config.precisions)
    with style():
        figure = Figure(figsize=(WIDTH, 1.0 + 2.3 * len(SHOWN)), layout="constrained")
        axes = figure.subplots(len(SHOWN), columns, squeeze=False, sharex=True, sharey="row")
        for line, (quantity, label) in enumerate(SHOWN.items()):
            for column, precision in enumerate(config.precisions):
                axis = axes[line][column]
                found = select(rows, table="curve", precision=precision, quantity=quantity)
                _curves(axis, config.rules, found, np.exp if quantity.startswith("log_") else np.asarray)
                axis.set_yscale("log" if quantity.startswith("log_") else "linear")
                if line == len(SHOWN) - 1:
                    axis.set_xlabel("iteration (one rollout each)")
                if line == 0:
                    axis.set_title(precision if columns > 1 else "", loc="left")
                if column == 0:
                    axis.set_ylabel(label)
        title = f"Regime {config.regime}: mean over {config.seeds} seeds, 95 % intervals"
        figure.suptitle(title, x=0.01, ha="left")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return {"learning": figure}


def _curves(axis: "Axes", rules: Sequence[str], rows: Sequence[Row], scale: Any) -> None:
    spare = iter(OTHERS * len(rules))
    for rule in rules:
        look = LOOKS.get(rule) or {"color": next(spare), "label": rule}
        line = [row for row in select(rows, rule=rule) if row["value"] is not None]
        axis.plot([row["iteration"] for row in line], scale([row["value"] for row in line]), **look)
        band = [row for row in line if row["low"] is not None]
        across = [row["iteration"] for row in band]
        low, high = (scale([row[end] for row in band]) for end in ("low", "high"))
        axis.fill_between(across, low, high, color=look["color"], alpha=0.15)
