"""The figures of `exact drpo`: the factor of each method, how it is spread by radius, and what is learned."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from divsim.formulas import TV, Rule, View, dppo, drpo, drpo_unweighted, importance_sampling, mask_drpo, spo
from divsim.tabular.policies import Floats

from .drpo_config import RADIUS, READING, Config, soft_rules
from .drpo_weights import BIN_NAMES
from .rows import Row, find, select
from .style import OKABE_ITO, WIDTH, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: tuple[tuple[str, Rule, dict[str, Any]], ...] = (
    ("no penalty", importance_sampling(), {"color": "0.6", "linestyle": ":"}),
    ("DPPO mask, .15", dppo(TV, "binary", RADIUS), {"color": "black", "linestyle": "--"}),
    ("SPO .2", spo(0.2), {"color": OKABE_ITO["orange"]}),
    ("Mask-DRPO .15", mask_drpo(RADIUS, RADIUS), {"color": OKABE_ITO["green"], "linestyle": "-."}),
    ("DRPO .15", drpo(RADIUS), {"color": OKABE_ITO["blue"]}),
    ("DRPO 1/12.5", drpo(1 / READING), {"color": OKABE_ITO["purple"]}),
    ("DRPO 12.5", drpo(READING), {"color": OKABE_ITO["vermilion"]}),
)
"""Methods whose factor is drawn, for A > 0."""

SHADES = ("#67001f", "#b2182b", "#ef8a62", "#fddbc7", "0.93", "#d1e5f0", "#67a9cf", "#2166ac", "#053061")
HATCHES = ("//", "//", "", "", "", "", "", "", "")
"""Of the bins of the histogram; hatched is reversed."""
SHOWN = ("language-stale_16-2000", "flat-stale_16-2000")
"""Pairs of the histogram, if the run has them; else its first two."""


def figures(config: Config, rows: Sequence[Row]) -> "dict[str, Figure]":
    """The figures of a run by name."""
    return {
        "factors": factors(),
        "histogram": histogram(config, rows),
        "learning": learning(config, rows),
    }


def factors() -> "Figure":
    """What multiplies the importance weight if A > 0: against r at two mu_k, and against the gap."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for panel, mu_k in zip(panels[:2], (0.02, 0.5), strict=True):
            ratios = np.linspace(0.01, 2.0 if mu_k == 0.5 else 12.0, 800)[:-1]
            _factor_curves(panel, mu_k, ratios, ratios)
            panel.set(title=f"μ$_k$ = {mu_k:g}", xlabel="r = π$_k$ / μ$_k$")
        ratios = np.linspace(0.01, 1.99, 800)
        _factor_curves(panels[2], 0.5, ratios, 0.5 * (ratios - 1))
        panels[2].set(title="μ$_k$ = .5, by the gap", xlabel="π$_k$ − μ$_k$")
        for panel in panels:
            panel.axhline(0, color="0.8", linewidth=1, zorder=0)
        panels[0].set(ylim=(-2.2, 3.2), ylabel="weight / r,  A > 0")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return figure


def _factor_curves(panel: "Axes", mu_k: float, ratios: Floats, places: Floats) -> None:
    view = View.sampled(np.full(len(ratios), np.log(mu_k)), np.log(mu_k * ratios), vocab_size=100)
    for label, rule, look in LOOKS:
        weight = np.asarray(rule(view, np.ones(len(ratios))).weight)
        panel.plot(places, weight / ratios, label=label, **look)


def histogram(config: Config, rows: Sequence[Row]) -> "Figure":
    """How the factor is spread over tokens whose policies are apart, one bar a rule."""
    from matplotlib.figure import Figure

    by_name = {pairs.name: pairs for pairs in config.pairs}
    shown = [by_name[name] for name in SHOWN if name in by_name] or list(config.pairs[:2])
    rules, region = list(soft_rules(config)), f"far_{min(config.far):g}"
    with style():
        figure = Figure(figsize=(WIDTH, 1.9 + 0.34 * len(rules)), layout="constrained")
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for panel, pairs in zip(panels, shown, strict=True):
            found = select(rows, table="weights", region=region, quantity="histogram", **pairs.key)
            _bars(panel, found, rules)
            panel.set(title=f"{pairs.world}, {pairs.mismatch}", xlim=(0, 100), ylim=(len(rules) - 0.5, -0.5))
            panel.set_xlabel("per cent of tokens")
        panels[0].set_yticks(range(len(rules)), rules)
        handles, labels = panels[0].get_legend_handles_labels()
        title = f"weight / r (hatched: reversed), tokens with KL > {min(config.far):g}"
        figure.legend(handles, labels, loc="outside upper center", ncols=5, title=title, fontsize=9)
    return figure


def _bars(panel: "Axes", found: Sequence[Row], rules: Sequence[str]) -> None:
    left = np.zeros(len(rules))
    for name, shade, hatch in zip(BIN_NAMES, SHADES, HATCHES, strict=True):
        at = [select(found, rule=rule, factor=name) for rule in rules]
        width = np.array([100 * one[0]["value"] if one else 0.0 for one in at])
        panel.barh(range(len(rules)), width, left=left, color=shade, hatch=hatch, edgecolor="white",
                   linewidth=0.4, label=name)  # fmt: skip
        left += width


def learning(config: Config, rows: Sequence[Row]) -> "Figure":
    """What is learned against how far pi goes from mu, all radii of DRPO with |A| and without, by rate."""
    from matplotlib.figure import Figure

    shape = len(config.rates), len(config.environments)
    with style():
        figure = Figure(figsize=(WIDTH, 1.4 + 2.2 * len(config.rates)), layout="constrained")
        panels = figure.subplots(*shape, squeeze=False)
        for line, rate in zip(panels, config.rates, strict=True):
            line[0].set_ylabel(f"rate x{rate:g}\nmean gain")
            for panel, environment in zip(line, config.environments, strict=True):
                found = select(rows, table="learning", environment=environment, rate=f"{rate:g}")
                for label, names, look in _families(config):
                    points = [
                        [find(found, rule=name, quantity=what)["value"] for what in ("kl", "mean_gain")]
                        for name in names
                    ]
                    panel.plot(*zip(*points, strict=True), label=label, markersize=5, **look)
                panel.set_xscale("log")
                panel.xaxis.set_minor_formatter("")
        for panel, environment in zip(panels[0], config.environments, strict=True):
            panel.set_title(environment)
        figure.supxlabel("KL(μ‖π) at the end of a rollout, nats, mean over rollouts and seeds", size="medium")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return figure


def _families(config: Config) -> list[tuple[str, list[str], dict[str, Any]]]:
    blue, sky, red = OKABE_ITO["blue"], OKABE_ITO["sky"], OKABE_ITO["vermilion"]
    return [
        ("DRPO, all radii", [drpo(delta).name for delta in config.radii], {"color": blue, "marker": "o"}),
        ("without |A|", [drpo_unweighted(delta).name for delta in config.radii],
         {"color": sky, "marker": "s", "linestyle": "--"}),
        ("no penalty", [importance_sampling().name], {"color": "black", "marker": "x", "linestyle": ""}),
        ("DRPO 12.5", [drpo(READING).name], {"color": red, "marker": "o", "linestyle": ""}),
        ("DRPO 1/12.5", [drpo(1 / READING).name],
         {"color": OKABE_ITO["purple"], "marker": "o", "linestyle": ""}),
        ("SPO", [spo(eps).name for eps in config.widths],
         {"color": OKABE_ITO["orange"], "marker": "D", "linestyle": ":"}),
        ("Mask-DRPO", [mask_drpo(RADIUS, RADIUS).name],
         {"color": OKABE_ITO["green"], "marker": "^", "linestyle": ""}),
        ("DPPO mask", [dppo(TV, "binary", RADIUS).name], {"color": "0.4", "marker": "v", "linestyle": ""}),
    ]  # fmt: skip
