r"""T9, first part: the gradient weights of DRPO and SPO, where they vanish, and their average penalties.

A mask removes a token's push; a penalty pulls the token back. Both losses are functions of one number, log
pi_k, so their gradient weight, the point where it vanishes, and their average over samples of mu are short
calculations.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from sympy import Abs, Derivative, Expr, IndexedBase, Rational, Subs, Symbol, exp, log, sign

from divsim.formulas.gains import RATIO_CAP, gap_penalty_gain, ratio_penalty_gain

from .hypotheses import nonneg
from .notation import k, m, mean, p, total
from .symbolic import SymbolicArray
from .theorem import Mutant, Step, Theorem, Trace, alias
from .trace import UNTIED, Case, trace

A = Symbol("A", real=True, nonzero=True)
x = Symbol("x", real=True)
mu, pi, delta, eps = (Symbol(name, positive=True) for name in ("mu", "pi", "delta", "epsilon"))
size = IndexedBase("a", nonnegative=True)
RATIO = exp(x) / mu


SHORT = (
    alias("r", "π_k / μ_k = e^x / μ_k, x = log π_k", RATIO),
    alias("π_k", "e^x", exp(x)),
    alias("μ_k", "the token's probability under μ", mu),
)


def drpo_loss() -> Expr:
    """Loss of one token under DRPO, to be minimised, x = log pi_k."""
    return -A * RATIO + Abs(A) * mu * (RATIO - 1) ** 2 / (2 * delta)


def spo_loss(radius: Any = eps) -> Expr:
    """Loss of one token under SPO."""
    return -A * RATIO + Abs(A) * (RATIO - 1) ** 2 / (2 * radius)


def drpo_weight(side: Any, probability: Any) -> Expr:
    """The factor on A r, `side` the sign of A."""
    return 1 - side * (probability - mu) / delta


def spo_weight(side: Any, ratio: Any) -> Expr:
    """The factor on A r."""
    return 1 - side * (ratio - 1) / eps


def gap(i: Any) -> Expr:
    """pi - mu at token i."""
    return p[i] - m[i]


def scalar(text: str, lhs: Any, rhs: Any) -> Step:
    """A step about finitely many numbers."""
    return Step(text, lhs, rhs, kind="scalar", hypotheses=())


def traced(
    function: str, build: Callable[[Any], Any], radius: Any, weight: Any, loss: Any
) -> tuple[Trace, ...]:
    """A shipped gain for A > 0 and A < 0: its weight is r times a factor, its surrogate minus the loss."""

    def run(case: Case, advantage: Any) -> Any:
        yes = SymbolicArray(np.array(True))
        gain = build(case.number(radius))(case.full_view, SymbolicArray(case.number(advantage)), yes, yes)
        return gain.weight, gain.surrogate

    def of_sign(side: int) -> Trace:
        advantage = side * Symbol("A", positive=True)
        form = (p[k] / m[k] * weight(side).subs(mu, m[k]), -loss.subs({A: advantage, mu: m[k], x: log(p[k])}))
        return trace(f"gains.{function}", lambda case: run(case, advantage), form, UNTIED)

    return of_sign(1), of_sign(-1)


def drpo() -> Theorem:
    """T9a."""
    slope = Derivative(drpo_loss(), x)
    opposite = Subs(drpo_weight(sign(A), pi), pi, mu - sign(A) * delta)
    shares = (nonneg(1 - pi), nonneg(1 - mu))
    return Theorem(
        id="T9a",
        title="The weight of DRPO and where it vanishes",
        statement=r"\frac{\partial\, loss}{\partial \log \pi_k} = -A r \Big[1 - \mathrm{sgn}(A) \frac{\pi_k "
        r"- \mu_k}{\delta}\Big], \quad \text{zero iff } \mathrm{sgn}(A)(\pi_k - \mu_k) = \delta",
        scope="One token, A ≠ 0, the ratio below its cap. The zero is one-sided: at |π_k − μ_k| = δ on the "
        "other side the weight is 2. For δ ≥ 1 the weight never vanishes or reverses; at the published δ = "
        "12.5 it lies between 0.92 and 1.08. The weight moves one token and does not keep a divergence below "
        "δ. Code: gains.gap_penalty_gain.",
        tier="F",
        steps=(
            scalar(
                "Differentiate −A r + |A| μ_k (r − 1)²/(2δ) in log π_k, with |A| = A sgn A and μ_k (r − 1) = "
                "π_k − μ_k.",
                slope,
                -A * RATIO * drpo_weight(sign(A), exp(x)),
            ),
            scalar(
                "The weight vanishes where the gap, counted in the direction of A, is δ, and nowhere else, "
                "because it is linear in the gap.",
                Subs(drpo_weight(sign(A), pi), pi, mu + sign(A) * delta),
                0,
            ),
            scalar(
                "At the same distance on the other side it is 2.",
                opposite,
                2,
            ),
            Step(
                "For A > 0 the weight is at least 1 − 1/δ, since π_k ≤ 1; the upper end 1 + 1/δ mirrors it.",
                drpo_weight(1, pi) - (1 - 1 / delta),
                (1 - pi) / delta + mu / delta,
                kind="nonneg",
                hypotheses=shares,
            ),
            Step(
                "For A < 0 it is at least 1 − 1/δ as well, since μ_k ≤ 1.",
                drpo_weight(-1, pi) - (1 - 1 / delta),
                (1 - mu) / delta + pi / delta,
                kind="nonneg",
                hypotheses=shares,
            ),
            scalar(
                "At δ = 12.5 the lower end is 0.92, so the weight stays within 8 % of the plain one.",
                Subs(1 - 1 / delta, delta, Rational(25, 2)),
                Rational(23, 25),
            ),
        ),
        mutants=(
            Mutant("The sign of A lost.", slope, -A * RATIO * drpo_weight(1, exp(x)), ()),
            Mutant("The two lost.", slope, -A * RATIO * (1 - sign(A) * (exp(x) - mu) / (2 * delta)), ()),
            Mutant(
                "The gap divided by μ, as in SPO.",
                slope,
                -A * RATIO * (1 - sign(A) * (RATIO - 1) / delta),
                (),
            ),
            Mutant("A zero on both sides.", opposite, 0, ()),
        ),
        aliases=SHORT,
        traces=traced(
            "gap_penalty_gain",
            lambda radius: gap_penalty_gain(radius, RATIO_CAP, only_far=False),
            delta,
            lambda side: drpo_weight(side, p[k]),
            drpo_loss(),
        ),
    )


def spo() -> Theorem:
    """T9b."""
    one = Symbol("r", positive=True)
    slope = Derivative(spo_loss(), x)
    return Theorem(
        id="T9b",
        title="The weight of SPO, and DRPO as SPO with a radius per token",
        statement=r"\frac{\partial\, loss}{\partial \log \pi_k} = -A r \Big[1 - \mathrm{sgn}(A) \frac{r - "
        r"1}{\epsilon}\Big], \quad \text{zero iff } \mathrm{sgn}(A)(r - 1) = \epsilon; \qquad \text{DRPO: } "
        r"\epsilon = \delta/\mu_k",
        scope="One token, A ≠ 0, the ratio below its cap. r − 1 has no upper limit, so for A > 0 the weight "
        "has no lower one: at a rare token SPO can push back harder than any advantage pushes. Code: "
        "gains.ratio_penalty_gain.",
        tier="F",
        steps=(
            scalar(
                "Differentiate −A r + |A| (r − 1)²/(2ε) in log π_k.",
                slope,
                -A * RATIO * spo_weight(sign(A), RATIO),
            ),
            scalar(
                "The weight vanishes where r − 1, counted in the direction of A, is ε, and nowhere else.",
                Subs(spo_weight(sign(A), one), one, 1 + sign(A) * eps),
                0,
            ),
            scalar(
                "DRPO is SPO with ε = δ/μ_k: a rare token gets a wide radius.",
                Subs(spo_loss(), eps, delta / mu),
                drpo_loss(),
            ),
        ),
        mutants=(
            Mutant("The sign of A lost.", slope, -A * RATIO * spo_weight(1, RATIO), ()),
            Mutant("The radius multiplied by μ.", Subs(spo_loss(), eps, delta * mu), drpo_loss(), ()),
        ),
        aliases=SHORT,
        traces=traced(
            "ratio_penalty_gain",
            lambda radius: ratio_penalty_gain(radius, RATIO_CAP),
            eps,
            lambda side: spo_weight(side, p[k] / m[k]),
            spo_loss(),
        ),
    )


def expected_penalties() -> Theorem:
    """T9c."""
    drpo_mean = mean(m, lambda i: m[i] * (p[i] / m[i] - 1) ** 2)
    spo_mean = mean(m, lambda i: (p[i] / m[i] - 1) ** 2)
    squares, chi2 = total(lambda i: gap(i) ** 2), total(lambda i: p[i] ** 2 / m[i]) - 1
    return Theorem(
        id="T9c",
        title="What the penalties are on average",
        statement=r"E_\mu[\mu_k (r-1)^2] = \|\pi - \mu\|_2^2, \qquad E_\mu[(r-1)^2] = \chi^2(\pi\|\mu)",
        scope="Any vocabulary size, tokens drawn from μ. With the advantage's size |A_k| inside, every term "
        "of the sums carries that factor. A batch of samples has these values on average only, and SPO's "
        "have a heavy tail where μ is small.",
        tier="G",
        steps=(
            Step("DRPO's penalty is on average the squared Euclidean distance.", drpo_mean, squares),
            Step("SPO's is on average Pearson's χ²(π‖μ).", spo_mean, chi2),
            Step(
                "With |A_k| inside, DRPO's is the distance with weights |A|.",
                mean(m, lambda i: size[i] * m[i] * (p[i] / m[i] - 1) ** 2),
                total(lambda i: size[i] * gap(i) ** 2),
            ),
            Step(
                "SPO's is then χ² with weights |A|.",
                mean(m, lambda i: size[i] * (p[i] / m[i] - 1) ** 2),
                total(lambda i: size[i] * gap(i) ** 2 / m[i]),
            ),
        ),
        mutants=(
            Mutant("The two penalties exchanged.", drpo_mean, chi2),
            Mutant("The other χ², of μ from π.", spo_mean, total(lambda i: m[i] ** 2 / p[i]) - 1),
            Mutant("Averaged under π.", mean(p, lambda i: m[i] * (p[i] / m[i] - 1) ** 2), squares),
        ),
    )
