r"""T13, beyond tokens: the same questions for a Gaussian policy, and for every exponential family.

The ratio's log, less the reverse KL, is what decides. For a Gaussian the change of KL is exactly quadratic in
the step, so the exact test needs no expansion; for an exponential family the first-order test of the natural
gradient is the sign of A (log r - KL(pi || mu)), whatever the family.
"""

from functools import partial
from typing import Any

import numpy as np
from sympy import Derivative, Expr, IndexedBase, Symbol, exp, log

import divsim.formulas as shipped

from .divergence_table import reverse_kl
from .forward_kl import A, eta
from .hypotheses import Symmetric, given_all
from .notation import j, k, m, p, s, specialise, t, total, v
from .softmax import path_mean
from .theorem import Mutant, Step, Theorem, alias
from .trace import UNTIED, Case, trace

# One entry a coordinate, n of them: the sample, the means of pi and of mu.
x, theta, start = (IndexedBase(name, real=True) for name in ("x", "theta", "theta0"))
sigma, r = Symbol("sigma", positive=True), Symbol("r", positive=True)


def square(one: Any, other: Any) -> Expr:
    """|one - other|^2."""
    return total(lambda i: (one(i) - other(i)) ** 2)


def here(i: Any) -> Any:
    """The mean of pi."""
    return theta[i]


def anchor(i: Any) -> Any:
    """The mean of mu."""
    return start[i]


def sample(i: Any) -> Any:
    """The sampled point."""
    return x[i]


LOG_R = total(lambda i: (x[i] - start[i]) ** 2 - (x[i] - theta[i]) ** 2) / (2 * sigma**2)
D = square(here, anchor) / (2 * sigma**2)
LEFT = square(sample, here)


def _moved(step: Any) -> Any:
    """The mean of pi after the step times the gradient of log pi(x)."""
    return lambda i: theta[i] + step * (x[i] - theta[i]) / sigma**2


def gaussian() -> Theorem:
    """T13a."""
    from_anchor = total(lambda i: (start[i] - theta[i]) * (x[i] - start[i])) / sigma**2
    score = Derivative(-square(sample, here) / (2 * sigma**2), theta[j])
    step = eta * A * r
    rise = square(_moved(s), anchor) / (2 * sigma**2) - D
    whole = square(_moved(step), anchor) / (2 * sigma**2) - D
    quadratic = s * (LOG_R - D) / sigma**2 + s**2 * LEFT / (2 * sigma**6)
    test = A * (LOG_R - D) + eta * A**2 * r * LEFT / (2 * sigma**4)
    return Theorem(
        id="T13a",
        title="For a Gaussian policy the change of KL is exactly quadratic",
        statement=r"\pi = N(\theta, \sigma^2 1): \quad \Delta D = \frac{\eta A r (\log r - D)}{\sigma^2} + "
        r"\frac{\eta^2 A^2 r^2 |x - \theta|^2}{2 \sigma^6}",
        scope="Any dimension, one state, a fixed variance that μ and π share, a plain gradient step on the "
        "mean; then KL(μ‖π) = KL(π‖μ) = D. Not for a mean that a network computes, nor a learned variance.",
        tier="G",
        steps=(
            Step(
                "The two densities have the same normaliser, so −log r = log μ(x) − log π(x) is affine in x: "
                "around the mean of μ it is D plus a term whose mean under μ is zero.",
                -LOG_R,
                D + from_anchor,
                hypotheses=(),
            ),
            Step(
                "Around the mean of π it is −D less a term whose mean under π is zero: both KL divergences "
                "are D.",
                -LOG_R,
                -D - total(lambda i: (theta[i] - start[i]) * (x[i] - theta[i])) / sigma**2,
                hypotheses=(),
            ),
            Step("The mean of an affine function is its value at the mean.", kind="cited"),
            Step(
                "The gradient of log π(x) in the mean is (x − θ)/σ².",
                score,
                (x[j] - theta[j]) / sigma**2,
                hypotheses=(),
            ),
            Step(
                "A step s along it changes D by a linear and a quadratic term; nothing is left over.",
                rise,
                quadratic,
                hypotheses=(),
            ),
            Step(
                "With s = η A r, dividing by η r/σ² > 0 leaves the exact test: does D rise?",
                whole,
                eta * r / sigma**2 * test,
                hypotheses=(),
            ),
        ),
        mutants=(
            Mutant(
                "The ratio test, log r alone.", rise, s * LOG_R / sigma**2 + s**2 * LEFT / (2 * sigma**6), ()
            ),
            Mutant("The quadratic term forgotten.", rise, s * (LOG_R - D) / sigma**2, ()),
            Mutant(
                "One power of σ² lost.", rise, s * (LOG_R - D) / sigma**2 + s**2 * LEFT / (2 * sigma**4), ()
            ),
            Mutant("D twice.", -LOG_R, 2 * D + from_anchor, ()),
        ),
        aliases=(
            alias("log r", "(|x − θ₀|² − |x − θ|²) / 2σ²", LOG_R),
            alias("D", "|θ − θ₀|² / 2σ², the distance of the means", D),
            alias("D(s)", "the same after the step s", square(_moved(s), anchor) / (2 * sigma**2)),
            alias("D(η)", "the same after the step η A r", square(_moved(step), anchor) / (2 * sigma**2)),
            alias("|x − θ|²", "the sample's squared distance from the mean of π", LEFT),
        ),
    )


# The exponential family: n outcomes, a base measure, one row of statistics an outcome, natural parameters.
base, statistic = IndexedBase("h", positive=True), IndexedBase("S", real=True)
F, y, e = (IndexedBase(name, real=True) for name in "Fye")  # Fisher matrix, a step, and F y


def family(i: Any, parameters: Any = theta) -> Expr:
    """The probability of outcome i."""

    def weight(c: Any) -> Any:
        return base[c] * exp(total(lambda h: parameters[h] * statistic[c, h]))

    return weight(i) / total(weight)


def average(body: Any) -> Expr:
    """Expectation of `body(i)` under pi."""
    return total(lambda i: family(i) * body(i))


def excess(h: Any) -> Expr:
    """Statistic h of the sampled outcome, less its average."""
    return statistic[k, h] - average(lambda i: statistic[i, h])


def fisher(g: Any, h: Any) -> Expr:
    """Covariance of statistics g and h under pi."""
    both = average(lambda i: statistic[i, g] * statistic[i, h])
    return both - average(lambda i: statistic[i, g]) * average(lambda i: statistic[i, h])


def _draw_fisher(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """A symmetric F, and the y that solves F y = e."""
    root, right = rng.normal(size=(size, size)), rng.normal(size=size)
    matrix = root @ root.T + np.eye(size)
    return {"F": matrix, "e": right, "y": np.linalg.solve(matrix, right)}


def _tilted(case: Case) -> Any:
    """Shipped: d KL(pi || mu) / dt for pi = mu tilted by t v."""
    tilted = shipped.exponential_path(case.log_mu, case.vector(v), case.number(t))
    return shipped.directional_change(shipped.REVERSE_KL, case.log_mu, tilted, case.vector(v))


def exponential_family() -> Theorem:
    """T13b."""
    divergence = reverse_kl(family, lambda i: family(i, start))
    log_ratio = log(family(k)) - log(family(k, start))
    forward = total(lambda i: family(i, start) * (log(family(i, start)) - log(family(i))))
    lead = total(lambda h: (theta[h] - start[h]) * excess(h))
    rate = Derivative(divergence, theta[j])
    solved = (given_all(lambda h: (total(lambda g: F[h, g] * y[g]), e[h])), Symmetric(F))
    along = total(lambda g, h: y[g] * F[g, h] * (theta[h] - start[h]))
    under = partial(specialise, base=p, body=lambda i: m[i])
    spread = under(path_mean(lambda i: v[i] ** 2)) - under(path_mean(lambda i: v[i])) ** 2
    return Theorem(
        id="T13b",
        title="Exponential families: log r less the reverse KL",
        statement=r"\log r - KL(\pi\|\mu) = (\theta - \theta_0) \cdot (S(x) - E_\pi S), \quad "
        r"\nabla_\theta KL(\pi\|\mu) = F (\theta - \theta_0); \qquad "
        r"d\theta = \eta A r F^{-1} (S - E_\pi S): "
        r"\quad \tfrac{d}{d\eta} KL(\pi\|\mu) = A r (\log r - KL(\pi\|\mu))",
        scope="Finitely many outcomes, any number of natural parameters up to the number of outcomes (more "
        "would be redundant), μ and π in one family, an infinitesimal step. About the reverse KL: it is the "
        "test of Flow-DPPO [FlowDPPO]. The saturated softmax is such a family; where natural parameters "
        "share a network's weights, no step of an optimiser is a natural gradient of this kind.",
        tier="G",
        steps=(
            Step(
                "The normalisers cancel: what is left of log r − KL(π‖μ) is linear in θ − θ₀.",
                log_ratio - divergence,
                lead,
                hypotheses=(),
            ),
            Step(
                "The score is the statistic less its average.",
                Derivative(log(family(k)), theta[j]),
                excess(j),
                hypotheses=(),
            ),
            Step(
                "The gradient of KL(π‖μ) is the Fisher matrix, the covariance of the statistics, times "
                "θ − θ₀.",
                rate,
                total(lambda h: fisher(j, h) * (theta[h] - start[h])),
                hypotheses=(),
            ),
            Step(
                "Along a step y with F y = e the Fisher matrix drops out, because it is symmetric; take "
                "e = S(x) − E S.",
                along,
                total(lambda h: e[h] * (theta[h] - start[h])),
                hypotheses=solved,
            ),
        ),
        mutants=(
            Mutant("The forward KL instead.", log_ratio - forward, lead, ()),
            Mutant("The ratio test, log r alone.", log_ratio, lead, ()),
            Mutant("The plain gradient step.", along, total(lambda h: y[h] * (theta[h] - start[h])), solved),
            Mutant(
                "The second moment for the covariance.",
                rate,
                total(lambda h: average(lambda i: statistic[i, j] * statistic[i, h]) * (theta[h] - start[h])),
                (),
            ),
        ),
        aliases=(
            alias("KL(π‖μ)", "the reverse KL", divergence),
            alias("π_{}", "h_i e^{θ·S_i} / Z(θ)", family),
            alias("μ_{}", "h_i e^{θ₀·S_i} / Z(θ₀)", lambda i: family(i, start)),
        ),
        traces=(trace("change.directional_change", _tilted, t * spread, UNTIED[:1]),),
        sample=_draw_fisher,
    )


THEOREMS = (gaussian, exponential_family)
