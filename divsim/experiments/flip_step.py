r"""How far does a first-order prediction hold? One token's step, small to large, up and down.

Along the logit step s (e_k - pi) forward KL is a convex function of s (derivations, T3), so its curve lies on
or above its tangent s c_k. One sampled token, both signs of its advantage:

    s c_k < 0   a predicted decrease is real at first, and turns into an increase at the flip step s*
    s c_k > 0   a predicted increase is real at every size

The pair (mu, pi) has V = 1000 tokens and the shape of a language model's next-token distribution: a power
law in the rank, perturbed twice. A bracket of the flip step is known in closed form (`flip_step_bracket`);
its true value is found by root finding. Large sizes are shown for the law: nobody takes such steps. Run as

    python -m divsim.experiments.flip_step figures/flip_step.svg figures/flip_step.png

The seed and the token were chosen among 800 so that pi is far, the ratio test and c_k disagree on k, and the
curve is easy to read; how often that happens is not shown. What is left out: other divergences, which need
not be convex along a logit line; a head or a network; many tokens at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from divsim.formulas import FORWARD_KL, curvature, finite_change, flip_step_bracket, policy_gradient_direction
from divsim.tabular.geometry import EUCLIDEAN
from divsim.tabular.policies import PAIR_FAMILIES, Floats, PolicyPair
from divsim.tabular.verify_finite_step import flip_step

from .style import OKABE_ITO, WIDTH, command, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REALISED: dict[str, Any] = {"color": OKABE_ITO["vermilion"], "linewidth": 3.5}
FIRST: dict[str, Any] = {"color": "black", "linestyle": "--"}
SECOND: dict[str, Any] = {"color": OKABE_ITO["blue"], "linestyle": ":", "linewidth": 2.5}
BRACKET: dict[str, Any] = {"facecolor": "#F6E3C1", "edgecolor": OKABE_ITO["orange"], "hatch": "///"}


@dataclass(frozen=True)
class Config:
    """What to draw."""

    family: str = "language"  # a key of PAIR_FAMILIES
    vocab: int = 1000  # V
    seed: int = 188  # of the pair
    rank: int = 2  # k is the token of this rank under mu, 1 the likeliest
    reach: float = 1.5  # the decrease is drawn to this multiple of the flip step
    sizes: tuple[float, float] = (1e-3, 1e1)  # smallest and largest increase, units of |s|
    points: int = 201  # of every curve


@dataclass(frozen=True)
class Side:
    """The change of forward KL on one side of s = 0.

    Attributes:
      sign: the sign of s, which is that of the advantage.
      size: (M,) |s|.
      realised: (M,) exact change, nats.
      first: (M,) its first-order prediction s c_k, nats.
      second: (M,) its second-order prediction s c_k + s^2 Var_pi(e_k - pi) / 2, nats.
    """

    sign: int
    size: Floats
    realised: Floats
    first: Floats
    second: Floats


@dataclass(frozen=True)
class Result:
    """The data of the figure.

    Attributes:
      config: what was asked.
      action: k.
      kl: KL(mu || pi) before the step, nats.
      mu_k, pi_k: probability of the token under both.
      rate: c_k, nats per unit of s.
      root: s*, the true size at which the decrease is used up.
      bracket: closed lower and upper bound of s*.
      decrease: the side on which a decrease is predicted, evenly spaced sizes.
      increase: the other, sizes in geometric progression.
    """

    config: Config
    action: int
    kl: float
    mu_k: float
    pi_k: float
    rate: float
    root: float
    bracket: tuple[float, float]
    decrease: Side
    increase: Side


def run(config: Config) -> Result:
    """Draw the pair, take the steps.

    >>> result = run(Config())
    >>> result.bracket[0] <= result.root <= result.bracket[1]
    True
    >>> bool(result.pi_k > result.mu_k and result.rate < 0)  # a token on which the two tests disagree
    True
    """
    pair = PAIR_FAMILIES[config.family](np.random.default_rng(config.seed), (1,), config.vocab)
    action = np.argsort(-pair.log_mu, axis=-1)[:, config.rank - 1]
    rate = float(EUCLIDEAN.rate(FORWARD_KL, pair, action)[0])
    root = float(flip_step(pair, action)[0])
    low, high = (float(end[0]) for end in flip_step_bracket(pair.log_mu, pair.log_pi, action))
    down, k = -int(np.sign(rate)), int(action[0])
    return Result(
        config=config,
        action=k,
        kl=float(FORWARD_KL.measure(pair.log_mu, pair.log_pi)[0]),
        mu_k=float(np.exp(pair.log_mu[0, k])),
        pi_k=float(np.exp(pair.log_pi[0, k])),
        rate=rate,
        root=root,
        bracket=(low, high),
        decrease=_side(pair, k, down, np.linspace(0.0, config.reach * root, config.points)),
        increase=_side(pair, k, -down, np.geomspace(*config.sizes, config.points)),
    )


def _side(pair: PolicyPair, action: int, sign: int, size: Floats) -> Side:
    log_mu, log_pi = pair.log_mu[0], pair.log_pi[0]
    direction = sign * policy_gradient_direction(log_pi, np.array(action))
    first = size * float(EUCLIDEAN.rate(FORWARD_KL, PolicyPair(log_mu, log_pi), np.array(action))) * sign
    return Side(
        sign=sign,
        size=size,
        realised=np.asarray(finite_change(log_mu, log_pi, size[:, None] * direction)),
        first=first,
        second=first + size**2 / 2 * float(curvature(log_pi, direction)),
    )


def plot(result: Result) -> "Figure":
    """Left the predicted decrease, with its flip step and the bracket; right the predicted increase."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(WIDTH, 5.8))
        place = {"left": 0.1, "right": 0.98, "top": 0.8, "bottom": 0.27, "wspace": 0.24}
        left, right = figure.subplots(1, 2, gridspec_kw=place)
        _draw_decrease(left, result)
        _draw_increase(right, result.increase)
        figure.suptitle("The same token pushed up or down: how far does the first-order prediction hold?")
        figure.text(0.5, 0.885, _facts(result), ha="center")
        figure.legend(*left.get_legend_handles_labels(), loc="lower center", ncols=2)
    return figure


def _facts(result: Result) -> str:
    policies = f"V = {result.config.vocab},  KL(μ‖π) = {result.kl:.2g} nats"
    token = f"token k: μ$_k$ = {result.mu_k:.3f},  π$_k$ = {result.pi_k:.3f},  c$_k$ = ${result.rate:+.3f}$"
    return f"{policies};   {token}"


def _draw_decrease(axes: "Axes", result: Result) -> None:
    side, (low, high) = result.decrease, result.bracket
    axes.axvspan(
        low, min(high, side.size[-1]), **BRACKET, label="bracket of the flip step s*, in closed form"
    )
    axes.axhline(0.0, color="0.5", linewidth=1)
    _draw_side(axes, side)
    axes.plot(result.root, 0.0, "o", color="black", markersize=8, label="true flip step s*, by root finding")
    axes.set(title=f"{_push(side)}: KL falls, up to s*", ylabel="change of KL (nats)")


def _draw_increase(axes: "Axes", side: Side) -> None:
    _draw_side(axes, side)
    axes.set(title=f"{_push(side)}: KL rises, at every size", xscale="log", yscale="log")
    axes.minorticks_off()
    axes.text(
        0.05,
        0.9,
        "KL is convex in s: its curve\nnever lies below the tangent",
        va="top",
        transform=axes.transAxes,
    )


def _push(side: Side) -> str:
    return "A > 0, k goes up" if side.sign > 0 else "A < 0, k goes down"


def _draw_side(axes: "Axes", side: Side) -> None:
    axes.plot(side.size, side.realised, **REALISED, label="realised change")
    axes.plot(side.size, side.first, **FIRST, label="first-order prediction, s c$_k$")
    axes.plot(side.size, side.second, **SECOND, label="second-order, s c$_k$ + s$^2$ Var$_π$(e$_k$ − π) / 2")
    axes.set_xlabel("size of the step, |s| = η |A| r")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the figure to every path that the command line names."""
    command("flip_step", lambda: plot(run(Config())), plot.__doc__, arguments)


if __name__ == "__main__":
    main()
