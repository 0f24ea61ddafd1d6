r"""Does reinforcing a token move pi away from mu? That depends on what a step is: four kinds, one picture.

Over three tokens, with A > 0, the same gradient on the same sampled token k becomes four displacements:

    Euclidean      e_k - pi              obeys c_k          outward inside a circle
    natural        e_k / pi_k            obeys the ratio    outward beyond the line pi_k = mu_k
    sign           +1 for k, -1 else     obeys the ratio    outward beyond the same line
    shared head    W W^T (e_k - pi)      obeys neither      outward where pi_o < mu_o

Sign and natural steps differ by a shift of all logits and by the unit of the step: in both only the logit of
k moves against the others, on the straight line from pi to the corner of k. The head has d = 2 features for
V = 3 tokens: k and one other token, its synonym, have the same feature vector, the third token o its own. It
moves k and the synonym together, on the straight line from the corner of o through pi, and the sign of its
change is that of mu_o - pi_o: the ratio test of the pair of synonyms. Each path ends where token k has gained
the same probability, so below the triangles four prices of one gain are compared. Run as

    python -m divsim.experiments.step_paths figures/step_paths.svg figures/step_paths.png

What is left out: momentum, many tokens, heads without exact synonyms (an ellipse through mu and the corner of
k takes the place of the line), and layers below the head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

from divsim.formulas import FORWARD_KL, exponential_path, finite_change
from divsim.tabular.geometry import Geometry, geometries
from divsim.tabular.policies import PolicyPair

from .draw_triangle import Verdict, draw_arrow, draw_curve, draw_regions, mark
from .simplex import verdicts
from .style import OKABE_ITO, WIDTH, command, style
from .triangle import Floats, level_set

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Triple = tuple[float, float, float]

STEPS = 61  # points of a path
HEAD = 9  # of these points, covered by the head of the arrow
LONGEST = 1e4  # units of s; every gain that a path can reach at all is reached before

WORDS = {
    (0, 0): "both tests: towards μ",
    (1, 0): "ratio test: away from μ;  c$_k$: towards μ",
    (0, 1): "ratio test: towards μ;  c$_k$: away from μ",
    (1, 1): "both tests: away from μ",
}


@dataclass(frozen=True)
class Look:
    """How one path is drawn.

    Attributes:
      line: look of the line.
      head: size of its arrow head, points; 0 for none.
      name: in the legend, with `{synonym}` for a token.
      tag: at the end of its curve; empty where another curve's tag speaks for it.
    """

    line: dict[str, Any]
    head: float
    name: str
    tag: str


LOOKS = {
    "natural": Look(
        {"color": OKABE_ITO["green"], "linewidth": 5.5}, 19, "natural-gradient step", "natural = sign"
    ),
    "sign": Look({"color": "black", "linestyle": (0, (2, 1.5))}, 0, "sign step: the same path", ""),
    "euclidean": Look({"color": OKABE_ITO["vermilion"], "linewidth": 3}, 15, "Euclidean step", "Euclidean"),
    "linear_head": Look(
        {"color": OKABE_ITO["blue"], "linewidth": 3},
        15,
        "step of a head that k shares with token {synonym}",
        "shared head",
    ),
}
"""In drawing order: the sign path lies on the natural one and leaves it visible."""

TAG_ROOM = 0.3  # of the axis, right of the curves
BORDER_LOOK: dict[str, Any] = {"color": OKABE_ITO["blue"], "linewidth": 1.8, "linestyle": (0, (6, 2, 1, 2))}


@dataclass(frozen=True)
class Config:
    """What to draw."""

    mu: Triple = (0.2, 0.6, 0.2)  # the behaviour policy, three positive probabilities
    action: int = 0  # k, the sampled token; its advantage is positive
    synonym: int = 1  # the other token with the features of k
    starts: tuple[Triple, ...] = ((0.24, 0.1, 0.66), (0.32, 0.25, 0.43))  # far policies, one triangle each
    gain: float = 0.16  # rise of the probability of k along every path
    delta: float = 0.05  # trust-region radius, nats of forward KL


@dataclass(frozen=True)
class StepPath:
    """One step of growing size in one geometry.

    Attributes:
      step: (M,) sizes s = eta A r >= 0, in the unit of the geometry.
      policies: (M, 3) the policy after each of them; the first is the start.
      realised: (M,) exact change of forward KL, nats.
      rate: its derivative at s = 0, in nats per unit of s.
    """

    step: Floats
    policies: Floats
    realised: Floats
    rate: float


@dataclass(frozen=True)
class Panel:
    """One triangle and the curves below it.

    Attributes:
      pi: (3,) the far policy where all paths start.
      verdict: whether ratio test and divergence test call a rise of k outward there, as 0 or 1.
      start_level: (N, 3) where forward KL is what it is at pi.
      paths: by the name of the geometry.
    """

    pi: Floats
    verdict: Verdict
    start_level: Floats
    paths: dict[str, StepPath]


@dataclass(frozen=True)
class Result:
    """The data of the figure.

    Attributes:
      config: what was asked.
      trust_region: (N, 3) where forward KL is delta.
      border: (2, 3) ends of the line pi_o = mu_o, on which the head changes no KL.
      panels: one for each start.
    """

    config: Config
    trust_region: Floats
    border: Floats
    panels: tuple[Panel, ...]


def synonym_head(action: int, synonym: int) -> Floats:
    """(3, 2) features W over three tokens: one feature is on for k and its synonym, one for the third token.

    >>> synonym_head(0, 1).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    is_pair = np.isin(np.arange(3), (action, synonym))
    return np.column_stack([is_pair, ~is_pair]).astype(float)


def run(config: Config) -> Result:
    """Compute the figure; nothing is random.

    Errors: ValueError if a path cannot gain `config.gain`.

    >>> left, right = run(Config()).panels
    >>> {name: bool(path.realised[-1] > 0) for name, path in left.paths.items()}
    {'euclidean': False, 'sign': True, 'natural': True, 'linear_head': False}
    >>> {name: bool(path.realised[-1] > 0) for name, path in right.paths.items()}
    {'euclidean': True, 'sign': True, 'natural': True, 'linear_head': False}
    """
    mu, other = np.array(config.mu), 3 - config.action - config.synonym
    corners = np.eye(3)[[config.action, config.synonym]]
    border = mu[other] * np.eye(3)[other] + (1 - mu[other]) * corners
    panels = tuple(_panel(np.array(start), config) for start in config.starts)
    return Result(config, level_set(mu, config.delta), border, panels)


def _panel(pi: Floats, config: Config) -> Panel:
    pair = PolicyPair(np.log(np.array(config.mu)), np.log(pi))
    ratio, divergence = verdicts(np.exp(pair.log_mu), pi, config.action)
    steps = geometries(synonym_head(config.action, config.synonym))
    return Panel(
        pi=pi,
        verdict=(int(ratio), int(divergence)),
        start_level=level_set(np.exp(pair.log_mu), float(FORWARD_KL.measure(pair.log_mu, pair.log_pi))),
        paths={name: _path(geometry, pair, config) for name, geometry in steps.items()},
    )


def _path(geometry: Geometry, pair: PolicyPair, config: Config) -> StepPath:
    k = config.action
    direction = geometry.direction(pair.log_pi, np.array(k))

    def policy(step: Floats | float) -> Floats:
        return np.asarray(np.exp(exponential_path(pair.log_pi, direction, np.asarray(step)[..., None])))

    def missing(step: float) -> float:
        return float(policy(step)[k] - policy(0.0)[k]) - config.gain

    if missing(LONGEST) < 0:
        raise ValueError(f"gain must be at most {missing(LONGEST) + config.gain:.3g}, got {config.gain}")
    step = np.linspace(0.0, brentq(missing, 0.0, LONGEST, xtol=1e-12), STEPS)
    return StepPath(
        step=step,
        policies=policy(step),
        realised=np.asarray(finite_change(pair.log_mu, pair.log_pi, step[:, None] * direction)),
        rate=float(geometry.rate(FORWARD_KL, pair, np.array(k))),
    )


def plot(result: Result) -> "Figure":
    """Triangles with four step paths each, and below them the change of KL along every path."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(WIDTH, 8.1))
        place = {"left": 0.1, "right": 0.98, "top": 0.885, "bottom": 0.25, "wspace": 0.16, "hspace": 0.26}
        axes = figure.subplots(
            2, len(result.panels), height_ratios=(3, 1.15), squeeze=False, gridspec_kw=place
        )
        for panel, (triangle, curves) in zip(result.panels, axes.T, strict=True):
            _draw_triangle(triangle, panel, result)
            _draw_prices(curves, panel, result.config.action)
        axes[1, 0].set_ylabel("change of KL (nats)")
        figure.suptitle("Reinforce token k (A > 0): whether KL(μ‖π) falls depends on what a step is")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="lower center", ncols=2)
    return figure


def _draw_triangle(axes: "Axes", panel: Panel, result: Result) -> None:
    config, k = result.config, result.config.action
    other = 3 - k - config.synonym
    draw_regions(axes, np.array(config.mu), k, WORDS)
    draw_curve(axes, result.trust_region, k, color="black",
               label=f"trust region: KL(μ‖π) = {config.delta:g} nats")  # fmt: skip
    draw_curve(axes, panel.start_level, k, color="black", linestyle=":", linewidth=1.5,
               label="KL(μ‖π) of the marked π")  # fmt: skip
    for name, look in LOOKS.items():
        path, label = panel.paths[name].policies, look.name.format(synonym=config.synonym)
        if look.head:
            draw_arrow(axes, path, k, HEAD, look.head, **look.line, label=label)
        else:
            draw_curve(axes, path[:-HEAD], k, **look.line, label=label)
    draw_curve(axes, result.border, k, **BORDER_LOOK,
               label=f"shared head: KL falls where π$_{other}$ > μ$_{other}$")  # fmt: skip
    mark(axes, np.array(config.mu), k, "μ", "s", (-10, 10))
    mark(axes, panel.pi, k, "π", "o", (14, -5))
    axes.set_title("μ = ({:g}, {:g}, {:g}),  π = ({:g}, {:g}, {:g})".format(*config.mu, *panel.pi), pad=14)


def _draw_prices(axes: "Axes", panel: Panel, action: int) -> None:
    axes.axhline(0.0, color="0.5", linewidth=1)
    for name, look in LOOKS.items():
        gained, price = panel.paths[name].policies[:, action], panel.paths[name].realised
        axes.plot(gained, price, **look.line)
        axes.annotate(look.tag, (gained[-1], price[-1]), (6, 0), textcoords="offset points",
                      color=look.line["color"], va="center", size=10)  # fmt: skip
    start, end = axes.get_xlim()
    axes.set_xlim(start, end + TAG_ROOM * (end - start))
    axes.set_title(WORDS[panel.verdict])
    axes.set_xlabel("probability of token k after the step")
    axes.locator_params(axis="y", nbins=5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the figure to every path that the command line names."""
    command("step_paths", lambda: plot(run(Config())), plot.__doc__, arguments)


if __name__ == "__main__":
    main()
