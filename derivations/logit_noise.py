r"""T11e and T11f, errors in the logits: how far forward KL moves when pi is not quite what it should be.

Two engines that run the same weights disagree by small numbers in their logits. That costs KL an amount of
second order on average, and a certain amount at most.
"""

from typing import Any

import numpy as np
from sympy import Derivative, IndexedBase, Integral, KroneckerDelta, Limit, Rational, Subs, Symbol, cosh, log

import divsim.formulas as shipped

from .facts import TAYLOR
from .forward_kl import moved_kl, slope
from .hypotheses import SIMPLEX, nonneg_all
from .notation import mean, p, s, specialise, total, v
from .positive_parts import PARTS, RISEN, down, draw_parts, up
from .softmax import path_cumulant, path_mean
from .theorem import Mutant, Step, Theorem, alias
from .trace import UNTIED, trace

C = IndexedBase("C", real=True)  # covariance of the errors
S2 = total(lambda i: p[i] ** 2)
sigma, epsilon, tau = (Symbol(name, positive=True) for name in ("sigma", "epsilon", "tau"))
D_AFTER = alias("D(s)", "KL(μ‖π(s)) after errors s ε", moved_kl())


def noise_on_average() -> Theorem:
    """T11e."""
    variance = mean(p, lambda i: v[i] ** 2) - mean(p, lambda i: v[i]) ** 2
    form = total(lambda i, h: (p[i] * KroneckerDelta(i, h) - p[i] * p[h]) * v[i] * v[h])
    expected = total(lambda i, h: (p[i] * KroneckerDelta(i, h) - p[i] * p[h]) * C[i, h])
    independent = specialise(expected, C, lambda i, h: sigma**2 * KroneckerDelta(i, h))
    return Theorem(
        id="T11e",
        title="Errors in the logits raise forward KL by half their variance",
        statement=r"z \to z + \varepsilon: \quad \Delta D \approx \sum_i (\pi_i - \mu_i) \varepsilon_i + "
        r"\tfrac12 \mathrm{Var}_\pi(\varepsilon), \qquad E[\Delta D] \approx \tfrac12 \sigma^2 (1 - S_2)",
        scope="Any vocabulary size, to second order in the errors; the mean is over errors of mean zero, and "
        "σ² stands for independent errors of equal variance. S_2 = Σ π². No bound: that is T11f.",
        tier="G",
        steps=(
            Step(
                "To first order the errors enter through π − μ.",
                Subs(Derivative(moved_kl(), s), s, 0),
                slope(),
            ),
            Step(
                "To second order through their variance under π.",
                Subs(Derivative(moved_kl(), (s, 2)), s, 0),
                variance,
            ),
            Step("The variance is a quadratic form in the errors.", variance, form),
            Step(
                "For errors ε of mean zero and covariance C, the mean of Σ a_ij ε_i ε_j is Σ a_ij C_ij, and "
                "that of Σ b_i ε_i is zero.",
                kind="cited",
            ),
            Step("Independent errors of variance σ² give σ² (1 − S₂).", independent, sigma**2 * (1 - S2)),
            Step(
                "An error that is the same for all tokens costs nothing.",
                specialise(expected, C, lambda i, h: sigma**2),
                0,
            ),
        ),
        mutants=(
            Mutant("The spread of π forgotten.", independent, sigma**2),
            Mutant("Halved once too often.", independent, sigma**2 * (1 - S2) / 2),
            Mutant(
                "First order taken with π alone.",
                Subs(Derivative(moved_kl(), s), s, 0),
                mean(p, lambda i: v[i]),
            ),
        ),
        aliases=(D_AFTER, alias("Var(ε)", "the variance of the errors under π", variance)),
        traces=(
            trace(
                "change.directional_change",
                lambda case: shipped.directional_change(
                    shipped.FORWARD_KL, case.log_mu, case.log_pi, case.vector(v)
                ),
                slope(),
                UNTIED,
            ),
            trace(
                "change.curvature",
                lambda case: shipped.curvature(case.log_pi, case.vector(v)),
                variance,
                UNTIED[:1],
            ),
        ),
    )


def _draw_errors(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """Two policies, the parts of their difference, and errors of at most epsilon."""
    return {**draw_parts(rng, size), "epsilon": 0.5, "v": rng.uniform(-0.5, 0.5, size)}


def noise_bound() -> Theorem:
    """T11f."""
    within = (nonneg_all(lambda i: epsilon - v[i]), nonneg_all(lambda i: epsilon + v[i]))
    first_order = 2 * epsilon * RISEN - slope()
    used = total(lambda i: up[i] * (epsilon - v[i]) + down[i] * (epsilon + v[i]))
    variance = path_cumulant(2, s)
    inside = path_mean(lambda i: (epsilon - v[i]) * (epsilon + v[i]), s)
    twice = Integral((1 - tau) * epsilon**2, (tau, 0, 1))
    return Theorem(
        id="T11f",
        title="A logit error of at most e costs at most 2 e TV + e²/2",
        statement=r"|\varepsilon_i| \le e: \quad \Delta D \le 2 e\, TV(\mu, \pi) + \tfrac12 e^2; \qquad "
        r"\pi = \mu: \; D \le \tfrac12 e^2",
        scope="Full forward KL, any vocabulary size, one state, any errors of at most e nats in the logits: "
        "two engines whose logits agree to e are within KL e²/2. Nothing is said of a sequence of tokens.",
        tier="G",
        steps=(
            Step(
                "The first-order part is at most 2 e TV: pair each error with what rises or falls.",
                first_order,
                used,
                "nonneg",
                (*PARTS, *within),
            ),
            Step(
                "The second derivative along the errors is a variance, at most e².",
                epsilon**2 - variance,
                inside + path_mean(lambda i: v[i], s) ** 2,
                "nonneg",
                (*SIMPLEX, *within),
            ),
            Step(
                "Integrated twice over the unit step, it adds at most e²/2.",
                twice,
                epsilon**2 / 2,
                "scalar",
                (),
            ),
            TAYLOR,
            Step(
                "The constant is sharp: two equally likely tokens with errors ±e are at KL log cosh e.",
                Limit(log(cosh(epsilon)) / epsilon**2, epsilon, 0),
                Rational(1, 2),
                "scalar",
                (),
            ),
        ),
        mutants=(
            Mutant("TV without its factor 2.", epsilon * RISEN - slope(), used, PARTS),
            Mutant("The variance bounded by e²/4.", epsilon**2 / 4 - variance, inside),
            Mutant("Integrated once.", twice, epsilon**2, ()),
        ),
        aliases=(
            alias("TV", "total variation of μ and π", RISEN),
            alias("Var(s)", "the variance of the errors under the policy on the way", variance),
        ),
        sample=_draw_errors,
    )
