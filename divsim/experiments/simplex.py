r"""Where do the ratio test and the divergence test disagree? A picture of all policies over three tokens.

Fix a behaviour policy mu and a sampled token k with A > 0, so that the update raises k. Every training policy
pi is a point of a triangle, and each test of direction cuts the triangle once:

    ratio test           outward iff pi_k > mu_k:                           beyond a line through mu
    divergence test      outward iff c_k = (e_k - pi) . (pi - mu) > 0:      inside a circle

The circle is that of Thales over the segment from mu to the corner of k: c_k > 0 where the way to the corner and
the way from mu make an acute angle at pi. The tests disagree between the line and the circle. For A < 0 both
verdicts are reversed and the picture stays. Run as

    python -m divsim.experiments.simplex figures/simplex.svg figures/simplex.png

What is left out: more than three tokens (the circle becomes a sphere), other divergences, and every step that is
not the plain gradient in the logits.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import (
    FORWARD_KL,
    View,
    change,
    exponential_path,
    finite_change,
    log_mass,
    policy_gradient_direction,
)

from .style import OKABE_ITO, WIDTH, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Triple = tuple[float, float, float]

ANGLES = np.linspace(0.0, 2 * np.pi, 361)
HALVINGS = 50  # of a segment of length < sqrt 2: the end is known to 1e-15
STEPS = 201  # points of the path of one step


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
"""The worked example of [PDM]'s change: the ratio test says outward, the divergence falls."""

RISES = Case(mu=(0.8, 0.1, 0.1), action=1, pi=(0.62, 0.08, 0.3), longest_step=0.6)
"""The opposite: a token below mu, whose rise takes probability from a token that has already lost too much."""


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


def zero_change(mu: Floats, action: int) -> Floats:
    """The circle over the segment from mu to the corner of k, where c_k = 0: (3,) -> (N, 3).

    Source: derived here; c_k = (e_k - pi) . (pi - mu), and Thales.
    """
    corner = np.eye(3)[action]
    return (mu + corner) / 2 + np.linalg.norm(corner - mu) / 2 * _rays()


def level_set(mu: Floats, kl: float) -> Floats:
    """The closed curve KL(mu || pi) = kl around mu: (3,) positive and nats > 0 -> (N, 3).

    Along each ray from mu forward KL rises from 0 to +inf at the side of the triangle, so halving finds the point.
    """
    rays = _rays()
    reach = np.min(np.where(rays < 0, mu / np.where(rays < 0, -rays, 1.0), np.inf), axis=-1)[:, None]
    near, far = np.zeros_like(reach), reach
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        inside = FORWARD_KL.measure(np.log(mu), log_mass(mu + middle * rays))[:, None] < kl
        near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    return np.asarray(mu + near * rays)


def cells(resolution: int) -> Floats:
    """Centres of the resolution^2 equal cells of the triangle: (resolution^2, 3), positive."""
    i, j = np.indices((resolution, resolution)).reshape(2, -1)
    upright = np.stack([i, j], axis=-1)[i + j < resolution] + 1 / 3
    inverted = np.stack([i, j], axis=-1)[i + j < resolution - 1] + 2 / 3
    two = np.concatenate([upright, inverted]) / resolution
    return np.column_stack([two, 1 - two.sum(axis=-1)])


def run(config: Config) -> Result:
    """Compute the figure; nothing is random.

    >>> panel = run(Config(cases=(FALLS,), resolution=50)).panels[0]
    >>> panel.predicted[-1] < 0 < panel.realised[-1]  # the step was too long for the first order
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
    return np.array([[np.mean((ratio == a) & (divergence == b)) for b in (False, True)] for a in (False, True)])


def _rays() -> Floats:
    """(N, 3) unit vectors around the plane of the triangle; their entries sum to 0."""
    basis = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    return np.column_stack([np.cos(ANGLES), np.sin(ANGLES)]) @ basis


def plot(result: Result) -> "Figure":
    """Triangles above, and below each the exact change of forward KL along the step of its marked policy."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(WIDTH, 8.2), layout="constrained")
        axes = figure.subplots(2, len(result.panels), height_ratios=(3, 1), squeeze=False)
        for panel, (triangle, curve) in zip(result.panels, axes.T, strict=True):
            _draw_triangle(triangle, panel, result.config.delta)
            _draw_curve(curve, panel)
        axes[1, 0].set_ylabel("change of KL (nats)")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


VERDICTS = {
    (0, 0): ("both tests: towards μ", "white", ""),
    (1, 1): ("both tests: away from μ", "#D9D9D9", ""),
    (1, 0): ("ratio test: away, yet KL falls", OKABE_ITO["orange"], "///"),
    (0, 1): ("ratio test: towards, yet KL rises", OKABE_ITO["sky"], "..."),
}
"""Legend, colour and hatch by [ratio outward, divergence outward]."""


def _draw_triangle(axes: "Axes", panel: Panel, delta: float) -> None:
    from matplotlib.patches import Polygon

    def region(corners: Floats, verdict: tuple[int, int], inside: Polygon | None = None) -> Polygon:
        label, colour, hatch = VERDICTS[verdict]
        patch = Polygon(_to_plane(corners, k), facecolor=colour, hatch=hatch, label=label, edgecolor="0.35")
        axes.add_patch(patch)
        if inside is not None:
            patch.set_clip_path(inside)
        return patch

    k, mu = panel.case.action, np.array(panel.case.mu)
    corners = np.eye(3)
    others = [a for a in range(3) if a != k]
    ends = mu[k] * corners[k] + (1 - mu[k]) * corners[others]
    triangle = region(corners, (0, 0))
    region(panel.circle, (0, 1), triangle)
    beyond = region(np.vstack([corners[k], ends]), (1, 0))
    region(panel.circle, (1, 1), beyond)
    axes.set(aspect="equal", xlim=(-0.05, 1.05), ylim=(-0.1, 0.95))
    axes.axis("off")
