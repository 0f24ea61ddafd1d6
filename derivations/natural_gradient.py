r"""T5g, the ratio test has a geometry: it is the divergence test of the natural gradient.

The natural gradient multiplies a gradient by the inverse of the Fisher matrix F = diag(pi) - pi pi^T.
Applied to the score e_k - pi of one sampled token it moves that token's logit alone, by 1/pi_k.
"""

from typing import Any

from sympy import Derivative, Expr, KroneckerDelta, Subs, log

import divsim.formulas as shipped

from .divergence_table import here, moved, reverse_kl, slope
from .f_divergences import SIDES, f_divergence, push, sample_f
from .forward_kl import A, change, eta, forward_kl
from .notation import j, k, l, m, mean, p, specialise, total, v
from .symbolic import SymbolicArray
from .theorem import Mutant, Step, Theorem, Trace, alias
from .trace import Case, trace


def natural_step(i: Any) -> Expr:
    """Entry i of e_k / pi_k."""
    return KroneckerDelta(i, k) / p[k]


def raised(i: Any) -> Expr:
    """Entry i of e_k."""
    return KroneckerDelta(i, k)


def sign_step(i: Any) -> Any:
    """The sign of entry i of e_k - pi."""
    return 2 * raised(i) - 1


def _trace(divergence: shipped.Divergence, derived: Any) -> Trace:
    def along_natural_step(case: Case) -> Any:
        step = SymbolicArray([case.number(entry) for entry in case.explicit(natural_step(j))])
        return shipped.directional_change(divergence, case.log_mu, case.log_pi, step)

    return trace("change.directional_change", along_natural_step, derived, SIDES)


def in_eta(measure: Any) -> Any:
    """A divergence after the sampled natural gradient eta A r e_k / pi_k."""
    return moved(measure, natural_step, eta * A * p[k] / m[k])


def rate(measure: Any) -> Any:
    """Its derivative in eta at zero."""
    return Subs(Derivative(in_eta(measure), eta), eta, 0)


def natural_gradient() -> Theorem:
    """T5g."""
    fisher = total(lambda i: p[i] * (KroneckerDelta(i, j) - p[j]) * (KroneckerDelta(i, l) - p[l]))
    times_fisher = p[j] * (v[j] - mean(p, lambda i: v[i]))
    ratio = p[k] / m[k]
    spread = mean(p, lambda i: v[i] ** 2) - mean(p, lambda i: v[i]) ** 2
    return Theorem(
        id="T5g",
        title="The ratio test is the KL test of the natural gradient",
        statement=r"dz = \eta A r\, F^+ (e_k - \pi) = \eta A r\, e_k / \pi_k: \quad "
        r"\frac{dD}{d\eta} = A (r - 1), \quad \frac{dD_f}{d\eta} = A r (g_k - E_\pi g)",
        scope="The saturated softmax (one free logit per token), one state, an infinitesimal step, any "
        "vocabulary size: there the ratio test is the forward-KL test of the natural gradient, and c_k "
        "that of the Euclidean logit gradient. Not so with a rank-d linear head or for a Gaussian "
        "policy, and no statement about a real optimiser on shared weights.",
        tier="G",
        steps=(
            Step(
                "The Fisher matrix, the average of score times score, is diag(π) − π πᵀ.",
                fisher,
                p[j] * (KroneckerDelta(j, l) - p[l]),
            ),
            Step(
                "e_k/π_k solves F x = e_k − π.",
                specialise(times_fisher, v, natural_step),
                KroneckerDelta(j, k) - p[j],
            ),
            Step(
                "xᵀ F x is the variance of x, so F x = 0 only for constants, and a constant moves no "
                "probability (T1b).",
                total(lambda i: v[i] * p[i] * (v[i] - mean(p, lambda h: v[h]))),
                total(lambda i, h: p[i] * p[h] * (v[i] - v[h]) ** 2) / 2,
                "nonneg",
            ),
            Step(
                "Forward KL changes at the rate A (r − 1): the ratio test of PPO [PPO].",
                rate(forward_kl),
                A * (ratio - 1),
            ),
            Step(
                "Reverse KL changes at the rate A r (log r − KL(π‖μ)), the form of the Flow-DPPO test "
                "[FlowDPPO].",
                rate(reverse_kl),
                A * ratio * (log(ratio) - reverse_kl(here)),
            ),
            Step(
                "Every f-divergence changes at the rate A r (g_k − E g).",
                rate(f_divergence),
                A * ratio * push(k) - A * ratio * mean(p, push),
            ),
            Step(
                "Raising the sampled logit alone gives d_k as well,", slope(forward_kl, raised), p[k] - m[k]
            ),
            Step(
                "and so does the sign of e_k − π, the first step of Adam on logits.",
                slope(forward_kl, sign_step),
                2 * (p[k] - m[k]),
            ),
        ),
        mutants=(
            Mutant("The Euclidean gradient instead.", rate(forward_kl), A * ratio * change()),
            Mutant(
                "The solve with π_j in place of π_k.",
                times_fisher.subs(v[j], 1 / p[j]),
                KroneckerDelta(j, k) - p[j],
            ),
            Mutant("Reverse KL without its average.", rate(reverse_kl), A * ratio * log(ratio)),
            Mutant(
                "The variance with each pair counted twice.",
                spread,
                total(lambda i, h: p[i] * p[h] * (v[i] - v[h]) ** 2),
            ),
            Mutant("g not centred.", rate(f_divergence), A * ratio * push(k)),
        ),
        aliases=(
            alias("D(η)", "forward KL after the step η A r e_k/π_k", in_eta(forward_kl)),
            alias("R(η)", "reverse KL after it", in_eta(reverse_kl)),
            alias("F(η)", "D_f after it", in_eta(f_divergence)),
            alias("D(s)", "forward KL after a step along e_k", moved(forward_kl, raised)),
            alias("D(u)", "forward KL after a step along 2 e_k − 1", moved(forward_kl, sign_step)),
            alias("KL(π‖μ)", "the reverse KL", reverse_kl(here)),
            alias("E g", "the average of g under π", mean(p, push)),
            alias("g_{}", "g = f − w f' at w = μ_i/π_i", push),
        ),
        traces=(
            _trace(shipped.FORWARD_KL, 1 - m[k] / p[k]),
            _trace(shipped.REVERSE_KL, log(p[k] / m[k]) - reverse_kl(here)),
        ),
        sample=sample_f,
    )
