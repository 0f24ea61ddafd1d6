r"""What does a rank-d head leave of the tests of direction? Angles and signs, for d from 2 to V - 1.

A head z = W theta with d features per token moves the logits by another step than free logits do, and every
token's change of forward KL becomes another number. With q = pi - mu the gradient in the logits, two steps
are each compared with what they turn into where the features are free:

    plain gradient      q . W W^T (e_k - pi)             with      q . (e_k - pi) = c_k
    natural gradient    q . W F^+ W^T (e_k - pi)         with      q_k / pi_k, the ratio test

F = W^T (diag pi - pi pi^T) W is the Fisher matrix of theta. A column is one vector over all tokens k, with
mean 0 under pi, so the angle between two of them under the inner product E_pi[x y] has their correlation
under pi as its cosine. The second measure is the exact share of tokens sampled from mu on which the two signs
differ, which are the tokens where a direction test would answer wrongly for this step.

The natural change of the head is the orthogonal projection of q / pi on the d features, and is q / pi itself
from d = V - 1 on. The plain change is not: W W^T / d of independent Gaussian features only tends to the
identity, as 1 / sqrt(d). Run as

    python -m divsim.experiments.kernel_angle figures/kernel_angle.svg figures/kernel_angle.png

What is not measured: a trained head. Here the features are independent Gaussians and know nothing of pi and
mu, whose pairs are drawn from one family, and the change is first order and the token's own. Layers below the
head, optimisers and other tokens are left out too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL, mean_under
from divsim.tabular.geometry import EUCLIDEAN, NATURAL, linear_head, natural_head
from divsim.tabular.policies import PAIR_FAMILIES, Floats, PolicyPair, every_token

from .style import OKABE_ITO, WIDTH, command, style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = ("plain", "natural")
PERCENTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True)
class Config:
    """What to measure."""

    family: str = "zipf"  # a key of PAIR_FAMILIES
    vocab: int = 50  # V
    ranks: tuple[int, ...] = (2, 3, 4, 6, 9, 13, 19, 27, 36, 43, 47, 49)  # d
    pairs: int = 400  # independent pairs, each with a head of its own at every rank
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """What was measured: R ranks, N pairs, and the two steps of `STEPS` with and without the head.

    Attributes:
      config: what was asked.
      angle: (2, 2, R, N) degrees between the changes by step i with the head and by step j without,
        `[i, j]`.
      differ: (2, 2, R, N) share of tokens sampled from mu on whose sign the same two disagree.
      free_angle: (N,) degrees between c_k and the ratio test's q_k / pi_k.
      free_differ: (N,) share of tokens sampled from mu on which c_k and the ratio test disagree.
    """

    config: Config
    angle: Floats
    differ: Floats
    free_angle: Floats
    free_differ: Floats


def angle(log_pi: Floats, x: Floats, y: Floats) -> Floats:
    """Angle of two vectors over tokens under E_pi[x y]; its cosine is a correlation where both have mean 0.

    Args:
      log_pi: (..., V) log-probabilities, nats.
      x, y: (..., V), neither of them zero.

    Returns:
      (...) degrees, 0 to 180.

    Source: definition. Computed as 2 atan2(|u - v|, |u + v|) of the unit vectors, so that small angles keep
    their digits.

    >>> float(angle(np.log(np.array([0.5, 0.5])), np.array([1.0, -1.0]), np.array([-2.0, 2.0])))
    180.0
    """

    def norm(values: Floats) -> Floats:
        return np.asarray(np.sqrt(mean_under(log_pi, values**2)))

    u, v = x / norm(x)[..., None], y / norm(y)[..., None]
    return np.asarray(np.degrees(2 * np.arctan2(norm(u - v), norm(u + v))))


def run(config: Config) -> Result:
    """Draw pairs and heads, and compare the changes.

    >>> result = run(Config(vocab=8, ranks=(2, 7), pairs=20))
    >>> [bool(np.median(result.angle[i, i, 0]) > np.median(result.angle[i, i, 1])) for i in (0, 1)]
    [True, True]
    >>> bool(result.angle[1, 1, 1].max() < 1e-3)  # 7 features of 8 tokens: the ratio test itself
    True
    """
    rng = np.random.default_rng(config.seed)
    drawn = PAIR_FAMILIES[config.family](rng, (config.pairs,), config.vocab)
    rows = [_one_pair(rng, config, *logs) for logs in zip(drawn.log_mu, drawn.log_pi, strict=True)]
    headed, free = (np.stack(part, axis=-1) for part in zip(*rows, strict=True))
    return Result(config, angle=headed[0], differ=headed[1], free_angle=free[0], free_differ=free[1])


def _one_pair(
    rng: np.random.Generator, config: Config, log_mu: Floats, log_pi: Floats
) -> tuple[Floats, Floats]:
    """Angle and share of one pair: (2, 2, 2, R) with heads, (2,) between the free steps."""
    free = free_changes(log_mu, log_pi)
    headed = [
        head_changes(rng.standard_normal((config.vocab, rank)), log_mu, log_pi) for rank in config.ranks
    ]
    with_head = np.stack(headed, axis=1)[:, None]  # (2, 1, R, V)
    return (
        np.stack(_compare(log_mu, log_pi, with_head, free[:, None])),
        np.stack(_compare(log_mu, log_pi, *free)),
    )


def _compare(log_mu: Floats, log_pi: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    differ = (x * y < 0).astype(float)
    return angle(log_pi, x, y), np.asarray(mean_under(log_mu, differ))


def free_changes(log_mu: Floats, log_pi: Floats) -> Floats:
    """First-order change of forward KL for every token, by step without a head: c_k, and q_k / pi_k.

    Args:
      log_mu, log_pi: (V,) log-probabilities, nats.

    Returns:
      (2, V), in the order of `STEPS`.

    >>> free_changes(np.log(np.array([0.4, 0.3, 0.3])), np.log(np.array([0.45, 0.5, 0.05])))[:, 0].round(3)
    array([-0.06 ,  0.111])
    """
    pair, action = every_token(PolicyPair(log_mu[None], log_pi[None]))
    return np.stack([step.rate(FORWARD_KL, pair, action)[0] for step in (EUCLIDEAN, NATURAL)])


def head_changes(features: Floats, log_mu: Floats, log_pi: Floats) -> Floats:
    """First-order change of forward KL for every token, by step of a linear head.

    Args:
      features: (V, d) the head W.
      log_mu, log_pi: (V,) log-probabilities, nats.

    Returns:
      (2, V), in the order of `STEPS`.

    >>> log_mu, log_pi = np.log(np.array([0.4, 0.3, 0.3])), np.log(np.array([0.45, 0.5, 0.05]))
    >>> bool(np.allclose(head_changes(np.eye(3), log_mu, log_pi), free_changes(log_mu, log_pi)))
    True
    """
    # One row against all tokens, not a row for each: the Fisher matrix of the pair is inverted once.
    pair, action = PolicyPair(log_mu[None], log_pi[None]), np.arange(len(log_pi))
    return np.stack([step(features).rate(FORWARD_KL, pair, action) for step in (linear_head, natural_head)])


TESTS = ("c$_k$", "the ratio test")
COLOURS = (OKABE_ITO["vermilion"], OKABE_ITO["green"])
TICKS = (0.04, 0.1, 0.2, 0.5, 1.0)  # of d / V
BOLD, STRONG, WEAK = 3.5, 0.4, 0.18  # width of the median's line, opacities of the bands
UNRELATED = (90.0, 0.5)  # degrees, and the share of a fair coin


def plot(result: Result) -> "Figure":
    """Above the angles, below the shares of differing signs; left the plain, right the natural gradient."""
    from matplotlib.figure import Figure

    config = result.config
    with style():
        figure = Figure(figsize=(WIDTH, 7.4))
        place = {"left": 0.1, "right": 0.98, "top": 0.83, "bottom": 0.2, "wspace": 0.1, "hspace": 0.14}
        axes = figure.subplots(2, 2, sharex=True, sharey="row", gridspec_kw=place)
        measures = ((result.angle, result.free_angle), (result.differ, result.free_differ))
        for row, (headed, free), unrelated in zip(axes, measures, UNRELATED, strict=True):
            for i, panel in enumerate(row):
                panel.axhline(unrelated, color="0.6", linewidth=1)
                _draw_bands(panel, config, headed[i, i], COLOURS[i])
                panel.plot(_share(config), np.median(headed[i, 1 - i], axis=-1), ":", color="black",
                           label="against the other test, median")  # fmt: skip
                panel.axhline(np.median(free), color="black", linestyle="--",
                              label="the tests against each other, median")  # fmt: skip
        _label(axes)
        figure.suptitle("What does a head with d features leave of the two tests of direction?")
        figure.text(0.5, 0.905, f"V = {config.vocab}, {config.pairs} pairs of power-law policies, "
                    "independent Gaussian features; tokens sampled from μ", ha="center")  # fmt: skip
        figure.legend(handles=_legend(axes[0, 0]), loc="lower center", ncols=2)
    return figure


def _legend(panel: "Axes") -> "list[Artist]":
    """The bands in grey, as each column has another colour; then the lines that are black in both."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    grey: dict[str, Any] = {"color": "0.35"}
    bands = (("half of the pairs", STRONG), ("nine pairs in ten", WEAK))
    return [
        Line2D([], [], linewidth=BOLD, label="median pair", **grey),
        *(Patch(alpha=alpha, linewidth=0, label=words, **grey) for words, alpha in bands),
        *panel.get_legend_handles_labels()[0],
    ]


def _share(config: Config) -> Floats:
    return np.array(config.ranks) / config.vocab


def _draw_bands(axes: "Axes", config: Config, values: Floats, colour: str) -> None:
    at = _share(config)
    lowest, low, middle, high, highest = np.percentile(values, PERCENTILES, axis=-1)
    axes.plot(at, middle, color=colour, linewidth=BOLD)
    axes.fill_between(at, low, high, color=colour, alpha=STRONG, linewidth=0)
    axes.fill_between(at, lowest, highest, color=colour, alpha=WEAK, linewidth=0)


def _label(axes: "NDArray[Any]") -> None:
    for i, test in enumerate(TESTS):
        axes[0, i].set_title(f"{STEPS[i]} gradient of the head\nagainst {test}")
        axes[1, i].set_xlabel("rank of the head / vocabulary, d / V")
        axes[1, i].set(xscale="log", xticks=TICKS, xticklabels=[f"{tick:g}" for tick in TICKS])
        axes[1, i].minorticks_off()
    axes[0, 0].set(ylabel="angle (degrees)", ylim=(0, 100))
    axes[0, 0].annotate("unrelated", (TICKS[-1], UNRELATED[0]), (0, 4), textcoords="offset points",
                        ha="right", color="0.4", size=10)  # fmt: skip
    axes[1, 0].set(ylabel="tokens whose sign differs", ylim=(0, 0.65))
    axes[1, 0].annotate("a coin", (TICKS[-1], UNRELATED[1]), (0, 4), textcoords="offset points",
                        ha="right", color="0.4", size=10)  # fmt: skip
    axes[1, 0].yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the figure to every path that the command line names."""
    command("kernel_angle", lambda: plot(run(Config())), plot.__doc__, arguments)


if __name__ == "__main__":
    main()
