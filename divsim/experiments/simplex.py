r"""Where do the ratio test and the divergence test disagree? A picture of all policies over three tokens.

Fix a behaviour policy mu and a sampled token k with A > 0, so that the update raises k. Every training policy
pi is a point of a triangle, and each test of direction cuts the triangle once:

    ratio test         outward iff pi_k > mu_k                          beyond a line through mu
    divergence test    outward iff c_k = (e_k - pi) . (pi - mu) > 0     inside a circle

The circle has the segment from mu to the corner of k as its diameter (Thales): c_k > 0 where the way on to
the corner makes an acute angle with the way that leads from mu to pi. The tests disagree between the line and
the circle. For A < 0 both verdicts are reversed and the regions stay. Run as

    python -m divsim.experiments.simplex figures/simplex.svg figures/simplex.png

What is left out: more than three tokens (the circle becomes a sphere), other divergences, and every step that
is not the plain gradient in the logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import (
    FORWARD_KL,
    View,
    change,
    exponential_path,
    finite_change,
    policy_gradient_direction,
)

from .draw_triangle import draw_arrow, draw_curve, draw_regions, mark
from .style import OKABE_ITO, WIDTH, command, style
from .triangle import Floats, cells, level_set, zero_change

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Bools = NDArray[np.bool_]
Triple = tuple[float, float, float]

STEPS = 61  # points of the path of one step
HEAD = 8  # of these points, covered by the head of its arrow

WORDS = {
    (0, 0): "both tests: towards μ",
    (1, 1): "both tests: away from μ",
    (1, 0): "ratio test: away from μ, yet KL falls",
    (0, 1): "ratio test: towards μ, yet KL rises",
}
"""What is said of a region, by [ratio outward, divergence outward]."""

STEP_LOOK: dict[str, Any] = {"color": OKABE_ITO["vermilion"], "linewidth": 3.5}
ARROW_SIZE = 19  # points


@dataclass(frozen=True)
class Case:
    """One triangle.

    Attributes:
      mu: the behaviour policy, three positive probabilities.
      action: k, the sampled token; its advantage is positive.
      pi: the far policy whose step is followed.
      longest_step: the end of its path, in units of s = eta A r.
    """

    mu: Triple
    action: int
    pi: Triple
    longest_step: float


FALLS = Case(mu=(0.4, 0.3, 0.3), action=0, pi=(0.45, 0.5, 0.05), longest_step=0.6)
"""The worked example of `divsim.formulas.change`: the ratio test says outward, and forward KL falls."""

RISES = Case(mu=(0.8, 0.1, 0.1), action=1, pi=(0.62, 0.08, 0.3), longest_step=1.0)
"""The opposite: a token below mu, whose rise takes from a token that has already lost too much."""


@dataclass(frozen=True)
class Config:
    """What to draw."""

    cases: tuple[Case, ...] = (FALLS, RISES)  # one triangle each, from left to right
    delta: float = 0.05  # trust-region radius, nats of forward KL
    resolution: int = 400  # cells along a side of the triangle, for the shares


@dataclass(frozen=True)
class Panel:
    """What one triangle and the curve below it show. A policy is a row of three probabilities.

    Attributes:
      case: what was asked.
      shares: (2, 2) share of all policies by verdict, `[ratio outward, divergence outward]` as 0 or 1.
      circle: (N, 3) where c_k = 0; outside the triangle an entry is negative.
      trust_region: (N, 3) where forward KL is delta.
      start_level: (N, 3) where forward KL is what it is at `case.pi`.
      step: (M,) sizes s >= 0 of one step on token k.
      path: (M, 3) the policy after each of them.
      realised: (M,) exact change of forward KL, nats.
      predicted: (M,) first-order change s c_k, nats.
    """

    case: Case
    shares: Floats
    circle: Floats
    trust_region: Floats
    start_level: Floats
    step: Floats
    path: Floats
    realised: Floats
    predicted: Floats


@dataclass(frozen=True)
class Result:
    """The data of the figure: one panel a case, and the config that asked for them."""

    config: Config
    panels: tuple[Panel, ...]


def verdicts(mu: Floats, pi: Floats, action: int) -> tuple[Bools, Bools]:
    """Whether raising token k leads outward: by the ratio test, and by the forward-KL test.

    Args:
      mu: (V,) behaviour policy.
      pi: (..., V) training policies, positive.
      action: k.

    Returns:
      Two arrays (...).

    Source: [PDM] section 3.

    >>> ratio, divergence = verdicts(np.array([0.4, 0.3, 0.3]), np.array([0.45, 0.5, 0.05]), 0)
    >>> bool(ratio), bool(divergence)
    (True, False)
    """
    log_mu, log_pi = np.broadcast_arrays(np.log(mu), np.log(pi))
    view = View.full(log_mu, log_pi, np.full(log_pi.shape[:-1], action))
    return np.asarray(view.log_pi_k > view.log_mu_k), np.asarray(change(view) > 0)


def run(config: Config) -> Result:
    """Compute the figure; nothing is random.

    >>> panel = run(Config(cases=(FALLS,), resolution=50)).panels[0]
    >>> bool(panel.predicted[-1] < 0 < panel.realised[-1])  # the step was too long for the first order
    True
    """
    return Result(config, tuple(_panel(case, config) for case in config.cases))


def _panel(case: Case, config: Config) -> Panel:
    mu, pi = np.array(case.mu), np.array(case.pi)
    log_mu, log_pi = np.log(mu), np.log(pi)
    direction = policy_gradient_direction(log_pi, np.array(case.action))
    step = np.linspace(0.0, case.longest_step, STEPS)
    slope = change(View.full(log_mu, log_pi, np.array(case.action)))
    return Panel(
        case=case,
        shares=_shares(*verdicts(mu, cells(config.resolution), case.action)),
        circle=zero_change(mu, case.action),
        trust_region=level_set(mu, config.delta),
        start_level=level_set(mu, float(FORWARD_KL.measure(log_mu, log_pi))),
        step=step,
        path=np.exp(exponential_path(log_pi, direction, step[:, None])),
        realised=np.asarray(finite_change(log_mu, log_pi, step[:, None] * direction)),
        predicted=step * slope,
    )


def _shares(ratio: Bools, divergence: Bools) -> Floats:
    return np.array([[np.mean((ratio == a) & (divergence == b)) for b in (0, 1)] for a in (0, 1)])


def plot(result: Result) -> "Figure":
    """Triangles of policies, and below each the change of KL along the step of its marked policy."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(WIDTH, 7.5))
        place = {"left": 0.1, "right": 0.98, "top": 0.88, "bottom": 0.235, "wspace": 0.16, "hspace": 0.34}
        axes = figure.subplots(2, len(result.panels), height_ratios=(3, 1), squeeze=False, gridspec_kw=place)
        for panel, (triangle, curve) in zip(result.panels, axes.T, strict=True):
            draw_regions(triangle, np.array(panel.case.mu), panel.case.action, WORDS)
            _draw_policies(triangle, panel, result.config.delta)
            _draw_curve(curve, panel)
        axes[1, 0].set_ylabel("change of KL (nats)")
        figure.suptitle("Reinforce token k a little (A > 0): does the training policy π move away from μ?")
        keys = [axes[row, 0].get_legend_handles_labels() for row in (0, 1)]
        figure.legend(*(a + b for a, b in zip(*keys, strict=True)), loc="lower center", ncols=2)
    return figure


def _draw_policies(axes: "Axes", panel: Panel, delta: float) -> None:
    k, mu, pi = panel.case.action, np.array(panel.case.mu), np.array(panel.case.pi)
    draw_curve(axes, panel.trust_region, k, color="black", label=f"trust region: KL(μ‖π) = {delta:g} nats")
    draw_curve(axes, panel.start_level, k, color="black", linestyle=":", linewidth=1.5,
               label="KL(μ‖π) of the marked π")  # fmt: skip
    draw_arrow(axes, panel.path, k, HEAD, ARROW_SIZE, **STEP_LOOK, label="one gradient step of growing size")
    mark(axes, mu, k, "μ", "s", (0, 12))
    mark(axes, pi, k, "π", "o", (14, -3))
    axes.set_title("μ = ({:g}, {:g}, {:g})".format(*mu), pad=14)


def _draw_curve(axes: "Axes", panel: Panel) -> None:
    axes.axhline(0.0, color="0.5", linewidth=1)
    axes.plot(panel.step, panel.predicted, "--", color="black", label="first-order prediction, s c$_k$")
    axes.plot(panel.step, panel.realised, **STEP_LOOK)
    slope = panel.predicted[-1] / panel.step[-1]
    axes.set_title("π = ({:g}, {:g}, {:g})".format(*panel.case.pi) + f",  c$_k$ = ${slope:+.3f}$")
    axes.set_xlabel("size of the step, s = η A r")
    axes.locator_params(axis="y", nbins=4)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the figure to every path that the command line names."""
    command("simplex", lambda: plot(run(Config())), plot.__doc__, arguments)


if __name__ == "__main__":
    main()
