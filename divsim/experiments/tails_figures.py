"""The figure of `exact tails`: error, sign flips, certificates and what is missed, against K."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .rows import Row, select
from .style import OKABE_ITO, WIDTH, style
from .tails_config import Config, Pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "aggregated": {"color": OKABE_ITO["vermilion"], "marker": "s"},
    "uniform": {"color": OKABE_ITO["blue"], "marker": "o", "linewidth": 5, "markersize": 9, "alpha": 0.45},
    "proportional": {"color": OKABE_ITO["green"], "marker": "^"},
    "zero": {"color": "0.45", "marker": "D", "linestyle": "--"},
}
SHOWN = ("language-noise_0.5-2000", "flat-noise_0.5-1000")
"""Cells of the figure, if the run has them; else its first two."""


def figures(config: Config, rows: Sequence[Row]) -> "dict[str, Figure]":
    """The figures of a run by name."""
    by_name = {pairs.name: pairs for pairs in config.pairs}
    shown = [by_name[name] for name in SHOWN if name in by_name] or list(config.pairs[:2])
    return {"estimators": estimators(config, rows, shown)}


def estimators(config: Config, rows: Sequence[Row], shown: Sequence[Pairs]) -> "Figure":
    """One row of panels a cell: size of the error, sign flips, and what an interval or a divergence makes
    of it."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(WIDTH, 1.1 + 2.7 * len(shown)), layout="constrained")
        axes = figure.subplots(len(shown), 3, squeeze=False)
        for line, pairs in zip(axes, shown, strict=True):
            found = select(rows, table="estimators", region="all", **pairs.key)
            _by_tail(line[0], found, "error_q50")
            _by_tail(line[1], found, "flip_rate")
            for row in select(found, test="ratio", quantity="flip_rate"):
                line[1].axhline(row["value"], color=OKABE_ITO["orange"], linestyle=":", label="ratio test")
            _curve(
                line[2],
                select(found, quantity="certified_share"),
                color="black",
                marker="o",
                label="sign certified",
            )
            _curve(line[2], select(found, quantity="missed_kl_share"), color=OKABE_ITO["purple"], marker="x",
                   linestyle="--", label="share of KL missed")  # fmt: skip
            line[0].set(yscale="log", ylabel=f"{pairs.world}, V = {pairs.vocab:,}")
            line[1].set_ylim(bottom=-0.03 * line[1].get_ylim()[1])
            line[2].set_ylim(-0.03, 1.03)
            for panel in line:
                panel.set_xscale("log")
                panel.set_xticks(
                    sorted(config.sizes),
                    [str(k) if k in (1, 5, 20, 100) else "" for k in sorted(config.sizes)],
                )
                panel.minorticks_off()
        for panel, title in zip(
            axes[0], ("median |error| of c$_k$", "share of signs that flip", "what is known"), strict=True
        ):
            panel.set_title(title)
        axes[0, 2].legend(loc="center right")
        figure.supxlabel("K, tokens of mu that are seen", size="medium")
        handles, labels = axes[0, 1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def _by_tail(panel: "Axes", found: Sequence[Row], quantity: str) -> None:
    for tail, look in LOOKS.items():
        _curve(panel, select(found, tail=tail, quantity=quantity), label=tail, **look)


def _curve(panel: "Axes", found: Sequence[Row], **look: Any) -> None:
    values: Mapping[int, float] = {row["k"]: row["value"] for row in found}
    sizes = sorted(values)
    panel.plot(sizes, [values[k] for k in sizes], **({"markersize": 5} | look))
