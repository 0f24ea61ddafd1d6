r"""T9, DRPO and SPO: what a soft penalty does to the divergence that a mask would have tested.

The weights themselves are in `soft_weights.py`. Here the penalty's pull is followed to forward KL: on average
it lowers it if all advantages have one size, and it need not if they have not.
"""

from fractions import Fraction
from typing import Any

from sympy import Derivative, Expr, KroneckerDelta, Symbol, exp

from .forward_kl import change, forward_kl
from .intervals import policy
from .notation import j, k, m, mean, p, total
from .soft_weights import RATIO, SHORT, delta, drpo, expected_penalties, gap, mu, scalar, size, spo, x
from .softmax import slope
from .theorem import Mutant, Step, Theorem, Verdict, alias

a = Symbol("a", positive=True)
MU, PI, SIZES = (5, 1, 1), (1, 2, 4), (1, 60, 1)


def kl_rate(pull: Any) -> Expr:
    """Forward KL's first-order change while the logits move along `pull`."""
    return slope(forward_kl, pull)


def descent() -> Theorem:
    """T9d."""
    penalty = a * mu * (RATIO - 1) ** 2 / (2 * delta)
    average = mean(p, gap)
    variance = mean(p, lambda i: (gap(i) - average) ** 2)

    def pull(i: Any) -> Expr:
        return -a / delta * p[i] * (gap(i) - average)

    expected = mean(m, lambda i: -a / delta * p[i] / m[i] * gap(i) * (KroneckerDelta(i, j) - p[j]))
    rate = kl_rate(pull)
    return Theorem(
        id="T9d",
        title="With equal |A| DRPO's pull lowers forward KL on average",
        statement=r"|A| = a: \quad \frac{dKL}{d\eta}\Big|_{penalty} = -\frac{a}{\delta}\, "
        r"\mathrm{Var}_\pi(\pi - \mu) \le 0",
        scope="The penalty's part of the expected plain-gradient step in the logits, tokens drawn from μ, an "
        "infinitesimal step, the same |A| for every token. It is not a statement about the whole update, a "
        "finite batch or a network, and it fails for general |A| (T9e).",
        tier="G",
        steps=(
            scalar(
                "In log π_k the penalty grows at the rate (a/δ) r (π_k − μ_k).",
                Derivative(penalty, x),
                a / delta * RATIO * (exp(x) - mu),
            ),
            Step(
                "Averaged over samples, the pull on logit j is −(a/δ) π_j (d_j − E_π[d]), d = π − μ.",
                expected,
                pull(j),
            ),
            Step("Forward KL changes along this pull by −(a/δ) Var_π(d).", rate, -a / delta * variance),
            Step(
                "A variance is half the average squared difference of two draws, so it is not negative.",
                variance,
                total(lambda i, o: p[i] * p[o] * (gap(i) - gap(o)) ** 2) / 2,
                kind="nonneg",
            ),
        ),
        mutants=(
            Mutant(
                "The pull taken for plain gradient descent on the distance.", expected, -a / delta * gap(j)
            ),
            Mutant("The average under π forgotten.", rate, -a / delta * mean(p, lambda i: gap(i) ** 2)),
            Mutant("The variance under μ.", rate, -a / delta * mean(m, lambda i: (gap(i) - average) ** 2)),
        ),
        aliases=(
            *SHORT,
            alias("dD/dη", "the slope of forward KL along the expected pull", rate),
            alias("Var d", "the variance of d = π − μ under π", variance),
            alias("E d", "the average of d under π", average),
        ),
    )


def _rises() -> Verdict:
    behaviour, current = policy(MU), policy(PI)
    gaps = [q - w for q, w in zip(current, behaviour, strict=True)]
    centre = sum((q * d for q, d in zip(current, gaps, strict=True)), Fraction(0))
    rows = zip(SIZES, current, gaps, strict=True)
    rate = -sum((weight * q * d * (d - centre) for weight, q, d in rows), Fraction(0))
    shown = f"|A| = {SIZES}: rate {rate}/δ; at the second token d = {gaps[1]}, c = {gaps[1] - centre}"
    return Verdict(rate > 0, shown)


def uneven_advantages() -> Theorem:
    """T9e."""
    weighted = mean(p, lambda i: size[i] * gap(i))

    def pull(i: Any) -> Expr:
        return -(p[i] * size[i] * gap(i) - p[i] * weighted) / delta

    rate = kl_rate(pull)
    own = -size[k] / delta * p[k] / m[k] * gap(k)
    single = kl_rate(lambda i: own * (KroneckerDelta(i, k) - p[i]))
    covariance = mean(p, lambda i: size[i] * gap(i) ** 2) - weighted * mean(p, gap)
    return Theorem(
        id="T9e",
        title="With uneven advantages DRPO's pull can raise forward KL",
        statement=r"\frac{dKL}{d\eta}\Big|_{penalty} = -\frac{1}{\delta} \mathrm{Cov}_\pi(|A| d, d), \qquad "
        r"\text{one token: } -\frac{|A|}{\delta} r\, d_k\, c_k, \quad d = \pi - \mu",
        scope="The identities hold for any vocabulary size and any |A|; the rise is one exact example. A "
        "token's own pull raises forward KL exactly where d_k and c_k have opposite signs, which is where "
        "the ratio test and the predictive test disagree; how often that is, and what it does to training, "
        "is not claimed.",
        tier="G",
        steps=(
            Step("With |A| inside the average the rate is minus a covariance.", rate, -covariance / delta),
            Step(
                "One sampled token's pull changes forward KL by −(|A|/δ) r d_k c_k.",
                single,
                -size[k] / delta * p[k] / m[k] * gap(k) * change(),
            ),
            Step(
                "If the advantage is large just where the two tests disagree, the expected pull raises "
                "forward KL.",
                kind="exact",
                decide=_rises,
            ),
        ),
        mutants=(
            Mutant(
                "The variance of d, as if |A| were constant.",
                rate,
                -(mean(p, lambda i: gap(i) ** 2) - mean(p, gap) ** 2) / delta,
            ),
            Mutant(
                "The square of the gap in place of d_k c_k.",
                single,
                -size[k] / delta * p[k] / m[k] * gap(k) ** 2,
            ),
        ),
        aliases=(
            alias("dD/dη", "the slope of forward KL along the expected pull, with a_i the size |A_i|", rate),
            alias("dD_k/dη", "its slope along token k's own pull", single),
            alias("c_k", "π_k − μ_k + Σ π_i (μ_i − π_i)", change()),
        ),
    )


THEOREMS = (drpo, spo, expected_penalties, descent, uneven_advantages)
