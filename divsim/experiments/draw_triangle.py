"""How the triangle of policies is drawn: the regions of the two tests, curves, arrows and marked policies.

The geometry itself is in `triangle.py`. What is left out: which policies, and in which words.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import OKABE_ITO
from .triangle import Floats, to_plane, zero_change

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Polygon

Verdict = tuple[int, int]

LOOK: dict[Verdict, tuple[str, str]] = {
    (0, 0): ("white", ""),
    (1, 1): ("#D9D9D9", ""),
    (1, 0): (OKABE_ITO["orange"], "///"),
    (0, 1): (OKABE_ITO["sky"], "xxx"),
}
"""Colour and hatch of a region by [ratio outward, divergence outward]."""

ARROW_HEAD: dict[str, Any] = {
    "arrowstyle": "-|>,head_length=.6,head_width=.35",
    "linewidth": 0,
    "shrinkA": 0,
    "shrinkB": 0,
}


def draw_regions(axes: "Axes", mu: Floats, action: int, words: Mapping[Verdict, str]) -> None:
    """The triangle, its corners named, and in it the four verdicts on raising token k.

    Each test is one shape, beyond a line or inside a circle; they disagree where only one covers.

    Args:
      axes: where to draw; its frame goes.
      mu: (3,) the behaviour policy.
      action: k, whose corner is on top.
      words: label of each region, for a legend.
    """
    corners, circle = np.eye(3), zero_change(mu, action)
    ends = mu[action] * corners[action] + (1 - mu[action]) * np.delete(corners, action, axis=0)

    def region(outline: Floats, verdict: Verdict, within: "Polygon | None" = None) -> "Polygon":
        from matplotlib.patches import Polygon

        colour, hatch = LOOK[verdict]
        place = to_plane(outline, action)
        shape = Polygon(place, facecolor=colour, hatch=hatch, label=words[verdict], edgecolor="0.3")
        axes.add_patch(shape)
        if within is not None:
            shape.set_clip_path(within)
        return shape

    triangle = region(corners, (0, 0))
    region(circle, (0, 1), triangle)
    beyond = region(np.vstack([corners[action], ends]), (1, 0))
    region(circle, (1, 1), beyond)
    draw_curve(axes, corners[[0, 1, 2, 0]], action, color="black")
    for token, place in enumerate(to_plane(corners, action)):
        name, offset = (f"token {token} = k", 12) if token == action else (f"token {token}", -14)
        axes.annotate(name, place, (0, offset), textcoords="offset points", ha="center", va="center")
    axes.set(aspect="equal", xlim=(-0.06, 1.06), ylim=(-0.08, 0.92))
    axes.axis("off")


def draw_curve(axes: "Axes", policies: Floats, action: int, **look: Any) -> None:
    """A line through policies (N, 3), as `Axes.plot` draws it."""
    axes.plot(*to_plane(policies, action).T, **look)


def draw_arrow(axes: "Axes", path: Floats, action: int, covered: int, size: float, **look: Any) -> None:
    """A path (N, 3) whose last `covered` policies lie under an arrow head of `size` points."""
    draw_curve(axes, path[:-covered], action, **look)
    before, end = to_plane(path[[-1 - covered, -1]], action)
    axes.annotate("", end, before, arrowprops={**ARROW_HEAD, "mutation_scale": size, "color": look["color"]})


def mark(
    axes: "Axes", policy: Floats, action: int, name: str, shape: str, offset: tuple[float, float]
) -> None:
    """A named policy (3,): a black marker, and its name `offset` points away."""
    from matplotlib.patheffects import withStroke

    place = to_plane(policy, action)
    axes.plot(*place, shape, color="black", markersize=7)
    halo = [withStroke(linewidth=3, foreground="white")]
    axes.annotate(name, tuple(place), offset, textcoords="offset points", size=14, va="center", ha="center",
                  path_effects=halo)  # fmt: skip
