"""Figures of `exact direction`: risk differences under one common update, and accuracy against the step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .direction_config import Config
from .rows import Key, Row, select
from .style import OKABE_ITO, WIDTH, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "ratio": {"color": OKABE_ITO["orange"], "marker": "s", "label": "ratio test"},
    "forward_kl/full": {"color": OKABE_ITO["blue"], "marker": "o", "label": "change c$_k$"},
    "own_rate": {"color": OKABE_ITO["green"], "marker": "^", "label": "rate of the token's own step"},
    "whole_rate": {"color": "0.45", "marker": "D", "label": "rate of the whole update"},
}
ESTIMANDS = {
    "own": "own step,\nown KL",
    "marginal": "with − without,\nown KL",
    "marginal_total": "with − without,\nKL of all far tokens",
    "whole": "whole update,\nown KL",
}
SETTINGS = {
    "sgd": "SGD",
    "adam": "Adam",
    "sgd_independent": "SGD, independent\nfeatures",
    "sgd_engine": "SGD, noisy engine",
    "adam_engine": "Adam, noisy engine",
}
GEOMETRIES = {
    "euclidean": "plain gradient",
    "natural": "natural gradient, sign step",
    "linear_head": "linear head",
}
ABSOLUTE = {"euclidean": "plain gradient", "natural": "natural gradient", "sign": "sign step"}
SHOWN = "noise_0.5"
"""The mismatch of the figure of steps, if the run has it; else its first."""


def figures(config: Config, rows: Sequence[Row]) -> "dict[str, Figure]":
    """The figures of a run by name."""
    shown = SHOWN if SHOWN in config.mismatches else config.mismatches[0]
    return {
        "risk_difference": risk_difference(config, rows),
        "accuracy_by_step": accuracy_by_step(config, rows, shown),
    }


def risk_difference(config: Config, rows: Sequence[Row]) -> "Figure":
    """How much more often KL rises where a test says so, for three meanings of what an update does."""
    from matplotlib.figure import Figure

    region = f"far_{min(config.deltas):g}"
    with style():
        figure = Figure(figsize=(WIDTH, 1.9 + 0.8 * len(config.batch)), layout="constrained")
        axes = figure.subplots(1, len(ESTIMANDS), sharey=True, squeeze=False)[0]
        for panel, (estimand, title) in zip(axes, ESTIMANDS.items(), strict=True):
            panel.axvline(0, color="0.6", linewidth=1)
            for place, setting in enumerate(config.batch):
                _forest(
                    panel,
                    place,
                    select(rows, table="agreement", estimand=estimand, setting=setting, region=region),
                )
            panel.set(xlim=(-0.45, 1.08), title=title, ylim=(len(config.batch) - 0.5, -0.5))
        axes[0].set_yticks(range(len(config.batch)), [SETTINGS.get(name, name) for name in config.batch])
        difference = "P(KL rises | said outward) − P(KL rises | said inward)"
        figure.supxlabel(f"{difference}, tokens with KL > {min(config.deltas):g}", size="medium")
        _legend(figure, axes, len(LOOKS))
    return figure


def _forest(panel: "Axes", place: int, found: Sequence[Row]) -> None:
    for offset, (test, look) in zip(np.linspace(-0.27, 0.27, len(LOOKS)), LOOKS.items(), strict=True):
        for row in select(found, test=test, quantity="risk_difference"):
            reach = (
                [[row["value"] - row["low"]], [row["high"] - row["value"]]]
                if row["low"] is not None
                else None
            )
            panel.errorbar(
                row["value"], place + offset, xerr=reach, linestyle="", markersize=5, linewidth=1.2, **look
            )
    for row in select(found, quantity="base_rate"):
        panel.text(1.06, place + 0.48, f"rises {row['value']:.0%}", size=7.5, ha="right", color="0.35")


def accuracy_by_step(config: Config, rows: Sequence[Row], mismatch: str) -> "Figure":
    """How often each test is right about a token's own step, in two units of its size."""
    from matplotlib.figure import Figure

    key: Key = {
        "table": "agreement",
        "estimand": "own",
        "mismatch": mismatch,
        "region": f"far_{min(config.deltas):g}",
    }
    with style():
        figure = Figure(figsize=(WIDTH, 6.2), layout="constrained")
        axes = figure.subplots(2, 3, sharey=True, squeeze=False)
        for panel, (geometry, title) in zip(axes[0], GEOMETRIES.items(), strict=True):
            panel.axvline(1, color="0.6", linewidth=1)
            _curves(panel, "step", select(rows, geometry=geometry, **key))
            panel.set(title=title, xlabel="step, in units of its flip step s*")
        for panel, (geometry, title) in zip(axes[1], ABSOLUTE.items(), strict=True):
            _curves(panel, "rate", select(rows, geometry=geometry, **key))
            panel.set(title=title, xlabel="learning rate η, A = ±1")
        for panel in axes[:, 0]:
            panel.set_ylabel(f"share right, KL > {min(config.deltas):g}")
        _legend(figure, axes.flat, 4)
    return figure


OUTLINED: dict[str, Any] = {"linestyle": "--", "linewidth": 1.2, "markerfacecolor": "none", "markersize": 9}
"""Of a curve that coincides with another, which must be seen through it."""


def _curves(panel: "Axes", unit: str, found: Sequence[Row]) -> None:
    for test, look in (LOOKS | {"own_rate": LOOKS["own_rate"] | OUTLINED}).items():
        if test != "whole_rate":
            _curve(panel, unit, select(found, test=test, quantity="accuracy"), look)
    always = {"color": "0.45", "linestyle": ":", "label": "“always outward”"}
    _curve(panel, unit, select(found, quantity="base_rate"), always)
    panel.set(xscale="log", ylim=(0.35, 1.03))


def _curve(panel: "Axes", unit: str, found: Sequence[Row], look: Mapping[str, Any]) -> None:
    points = sorted((float(row[unit]), row["value"]) for row in found if unit in row)
    panel.plot(*zip(*points, strict=True), **({"markersize": 5} | dict(look)))


def _legend(figure: "Figure", axes: "Iterable[Axes]", columns: int) -> None:
    """One legend above all panels; a test that is missing in one of them is taken from another."""
    handles = {
        label: handle
        for panel in axes
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns)
