"""The figure of `exact bounds`: finite-horizon bounds and the true error, against T and against the step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .bounds_config import Config
from .rows import Row, select
from .style import OKABE_ITO, WIDTH, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "quadratic": {"color": OKABE_ITO["vermilion"], "linestyle": "-", "label": "quadratic"},
    "linear": {"color": OKABE_ITO["orange"], "linestyle": "-", "label": "linear"},
    "pinsker_marginal": {"color": OKABE_ITO["purple"], "linestyle": "-", "label": "Pinsker-marginal"},
    "mixed": {"color": OKABE_ITO["green"], "linestyle": "-.", "label": "mixed"},
    "coupling": {"color": OKABE_ITO["sky"], "linestyle": "--", "label": "coupling"},
    "adaptive": {"color": OKABE_ITO["blue"], "linestyle": ":", "label": "adaptive"},
    "error_worst": {"color": "black", "marker": "o", "label": "true error, worst rewards"},
    "error_random": {"color": "0.45", "marker": "D", "linestyle": ":", "label": "true error, random rewards"},
}
WORLDS = {
    "rare": "a rare action is counted",
    "fair": "a fair coin is counted",
    "forgetful": "the past is forgotten",
}


def figures(config: Config, rows: Sequence[Row]) -> "dict[str, Figure]":
    """The figures of a run by name."""
    return {"bounds_and_truth": bounds_and_truth(config, rows)}


def bounds_and_truth(config: Config, rows: Sequence[Row]) -> "Figure":
    """One row of panels a world: along T at one distance a step, and along the distance at one T."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(WIDTH, 8.4), layout="constrained")
        axes = figure.subplots(len(WORLDS), 2, sharey="row", squeeze=False)
        for line, (world, words) in zip(axes, WORLDS.items(), strict=True):
            found = select(rows, table="growth", world=world, quantity="size")
            _curves(line[0], select(found, distance=f"{config.distance:g}"), "horizon")
            _curves(line[1], select(found, horizon=config.horizon), "distance")
            line[0].set_ylabel(words)
            for panel in line:
                _nothing_said(panel)
        axes[0, 0].set_title(f"total variation {config.distance:g} a step")
        axes[0, 1].set_title(f"T = {config.horizon}")
        axes[-1, 0].set_xlabel("T, steps of an episode")
        axes[-1, 1].set_xlabel("total variation a step")
        for panel in axes[:, 0]:
            panel.set_xticks(config.horizons, [str(horizon) for horizon in config.horizons])
            panel.minorticks_off()
        figure.supylabel("|J(π) − J(μ) − L′|, in units of the range of the return", size="medium")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return figure


def _curves(panel: "Axes", found: Sequence[Row], along: str) -> None:
    for of, look in LOOKS.items():
        curve = sorted((float(row[along]), row["value"]) for row in select(found, of=of))
        panel.plot(*zip(*curve, strict=True), markersize=4, **look)
    panel.set(xscale="log", yscale="log")


def _nothing_said(panel: "Axes") -> None:
    """Grey where a bound exceeds the range of the return, and so says nothing."""
    low, high = panel.get_ylim()
    panel.axhspan(1, max(high, 10), color="0.92", zorder=0)
    panel.text(0.02, 0.985, "vacuous", transform=panel.transAxes, va="top", color="0.35")
    panel.set_ylim(low, max(high, 10))
