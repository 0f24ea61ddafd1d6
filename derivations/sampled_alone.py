r"""T7c and T7f: what the sampled token alone says.

With no top-K the cells are the sampled token and everything else; then the proportional estimate is the
ratio test for every divergence. And no proof from the sampled token's probabilities can contradict it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from sympy import Derivative, Expr, KroneckerDelta, log

from divsim.formulas.change import change as shipped_change

from .cells import (
    MASSES,
    Q2,
    S2,
    P,
    draw_tail,
    estimate_kl,
    estimate_of,
    f_push,
    order,
    phi,
    phi_tail,
    short_form,
    tilted,
    w,
)
from .forward_kl import change, token_step
from .hypotheses import SIMPLEX, nonneg
from .notation import h, j, k, m, p, smooth, specialise, total
from .softmax import slope
from .theorem import Alias, Mutant, Step, Theorem, Trace, alias
from .trace import UNTIED, trace


def binary(tail: str, form: Any) -> Trace:
    """The shipped change on the cells {k} and the rest."""
    return trace(
        "change.change", lambda c: shipped_change(c.full_view.binary(), tail=tail), form, UNTIED[:12]
    )


def no_top_k() -> Theorem:
    """T7c."""
    alone = partial(specialise, base=h, body=lambda i: 1 - KroneckerDelta(i, k))
    own, rest = 1 - 2 * p[k] + S2, 1 - p[k]
    form, kl_form = alone(estimate_of(lambda i: phi[i], phi_tail, Q2 / P)), alone(estimate_kl(Q2 / P))

    def bernoulli(policy: Callable[[Any], Any]) -> Expr:
        return m[k] * log(m[k] / policy(k)) + (1 - m[k]) * log((1 - m[k]) / (1 - policy(k)))

    coins = slope(bernoulli, token_step)
    mean_power = total(lambda i: m[i] ** order * p[i] ** (1 - order))
    alpha_gradient = (p[j] * mean_power - m[j] ** order * p[j] ** (1 - order)) / order
    return Theorem(
        id="T7c",
        title="With no top-K the predictive test is the ratio test",
        statement=r"K = 0:\quad c = q_k \frac{1 - 2\pi_k + S_2}{1 - \pi_k},\quad q_k = \pi_k(1-\pi_k)(g_k - "
        r"g_{tail}),\quad c^{KL} = (\pi_k - \mu_k)\frac{1 - 2\pi_k + S_2}{1 - \pi_k}",
        scope="The cells are the sampled token and everything else; any V ≥ 2; the proportional "
        "tail. The sign is that of r − 1 for every f-divergence with f'' > 0 and every Rényi order a > 0, "
        "under the plain-gradient step in the logits. It says nothing about how good the ratio test is.",
        tier="G",
        steps=(
            Step(
                "With two cells the change is the logit gradient q_k times one factor.",
                form,
                alone(p[k] * (phi[k] - p[k] * phi[k] - P * phi_tail)) * own / rest,
            ),
            Step(
                "The factor is positive: 1 − 2π_k + Σ π² is a square plus the squares of the other "
                "probabilities.",
                own,
                rest**2 + total(lambda i: (1 - KroneckerDelta(i, k)) ** 2 * p[i] ** 2),
                kind="nonneg",
            ),
            Step(
                "The logit gradient compares the two cells: q_k = π_k (1 − π_k)(φ_k − φ_tail), φ = ∂D/∂π.",
                alone(p[k] * (phi[k] - p[k] * phi[k] - P * phi_tail)),
                p[k] * rest * (phi[k] - phi_tail),
            ),
            Step(
                "For an f-divergence φ = g(w), and g falls where f is convex, because g' = −w f''.",
                Derivative(f_push(w), w),
                -w * smooth("fpp", 1)(w),
            ),
            Step(
                "A differentiable function with a negative derivative is strictly decreasing.", kind="cited"
            ),
            Step(
                "So q_k has the sign of w_tail − w_k, and that is the sign of π_k − μ_k: the ratio test.",
                (1 - m[k]) / rest - m[k] / p[k],
                (p[k] - m[k]) / (p[k] * rest),
            ),
            Step(
                "A Rényi gradient is a positive multiple, a/H with H = Σ μ^a π^{1−a}, of the gradient of the "
                "f-divergence of the same order, so its sign is the same.",
                p[j] - tilted(mean_power, m[j], p[j]),
                order / mean_power * alpha_gradient,
            ),
            Step(
                "For forward KL the change is π_k − μ_k times the factor.",
                kl_form,
                (p[k] - m[k]) * own / rest,
            ),
            Step(
                "It is the derivative of the KL divergence of the two coins (μ_k, 1 − μ_k) and (π_k, 1 − "
                "π_k).",
                coins,
                kl_form,
            ),
        ),
        mutants=(
            Mutant("The factor lost.", kl_form, p[k] - m[k]),
            Mutant("The full c_k at the lowest resolution.", kl_form, change()),
            Mutant(
                "The n = 2 formula, which belongs to the aggregated tail.", kl_form, 2 * rest * (p[k] - m[k])
            ),
            Mutant("The sign of g' lost.", Derivative(f_push(w), w), w * smooth("fpp", 1)(w)),
        ),
        aliases=(
            alias("c_KL", "the estimate with these two cells, the one form of T7a with ν = Q₂/P", kl_form),
            alias("dD/ds", "the slope at s = 0 of the KL of the two coins, along s (e_k − π)", coins),
            alias("H", "Σ μ^a π^{1−a}", mean_power),
            *_with_two_cells(),
        ),
        traces=(binary("proportional", (p[k] - m[k]) * own / rest),),
        sample=draw_tail,
    )


def _with_two_cells() -> tuple[Alias, ...]:
    names = (*short_form(lambda i: phi[i], phi_tail, "φ"), *MASSES)
    return tuple(
        replace(each, body=specialise(each.body, h, lambda i: 1 - KroneckerDelta(i, k))) for each in names
    )


def impossibility() -> Theorem:
    """T7f."""
    others = total(lambda i: (1 - KroneckerDelta(i, k)) ** 2 * p[i])

    def push(i: Any) -> Expr:
        return phi_tail + KroneckerDelta(i, k) * (phi[k] - phi_tail)

    def completed(i: Any) -> Expr:
        return KroneckerDelta(i, k) * m[k] + (1 - KroneckerDelta(i, k)) ** 2 * p[i] * (1 - m[k]) / others

    def linear_push(policy: Callable[[Any], Any]) -> Expr:
        return total(lambda i: push(i) * policy(i))

    linear_change = slope(linear_push, token_step)
    factor = (1 - 2 * p[k] + S2) / (1 - p[k])
    change_of_completed = specialise(change(), m, completed)
    return Theorem(
        id="T7f",
        title="The sampled token alone cannot contradict the ratio test",
        statement=r"\mu_i = \pi_i \frac{1 - \mu_k}{1 - \pi_k}\ (i \ne k): \quad c_k = (\pi_k - \mu_k) "
        r"\frac{1 - 2\pi_k + S_2}{1 - \pi_k}",
        scope="All of π and the one number μ_k are known; any V ≥ 2; forward KL, and every "
        "divergence whose derivative ∂D/∂π_i depends on w_i = μ_i/π_i only. One feasible μ has the ratio "
        "test's sign, so no proof from these data can say the opposite; some top-K of μ is needed. It does "
        "not say that the ratio test is right.",
        tier="G",
        steps=(
            Step(
                "Spread the rest of μ over the other tokens as π does: the entries sum to one.",
                total(completed),
                1,
            ),
            Step(
                "They are not negative, so this μ fits the data.",
                completed(j),
                completed(j),
                kind="nonneg",
                hypotheses=(*SIMPLEX, nonneg(1 - m[k])),
            ),
            Step(
                "For it c_k is π_k − μ_k times the factor of T7c, which is positive.",
                change_of_completed,
                (p[k] - m[k]) * factor,
            ),
            Step(
                "Every other token has the same w, hence the same ∂D/∂π, so for other divergences too the "
                "change is the one of T7c, with the sign of the ratio test.",
                linear_change,
                p[k] * (phi[k] - phi_tail) * (1 - 2 * p[k] + S2),
            ),
        ),
        mutants=(
            Mutant(
                "The rest of μ not rescaled.", total(lambda i: p[i] + KroneckerDelta(i, k) * (m[k] - p[k])), 1
            ),
            Mutant("The factor lost.", change_of_completed, p[k] - m[k]),
            Mutant("Every μ with that μ_k has this change.", change(), (p[k] - m[k]) * factor),
        ),
        aliases=(
            alias("μ*_{}", "that μ: μ_k at token k, π_i (1 − μ_k) / Σ_j≠k π_j at the others", completed),
            alias(
                "dD/ds",
                "the slope at s = 0 of Σ φ_i π_i along s (e_k − π), φ_i = φ_tail off k",
                linear_change,
            ),
            alias("S₂", "Σ π²", S2),
        ),
        sample=draw_tail,
    )
