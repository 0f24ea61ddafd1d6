r"""T7, second part: the ends of the scale, and what the aggregated tail would be exact for.

The proportional estimate is one test at every resolution: with nothing retained but the sampled token it is
the ratio test, with everything retained it is the full c_k. The aggregated estimate belongs to another model,
in which the hidden tokens share one logit. Last, the impossibility: the sampled token's probabilities alone
can never contradict the ratio test.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from sympy import Expr, KroneckerDelta, diff, log

from divsim.formulas.change import change as shipped_change

from .coarse import (
    Q2,
    S2,
    N,
    P,
    draw_tail,
    estimate_kl,
    estimate_of,
    f_push,
    h,
    hidden,
    linear,
    mutant,
    nu,
    order,
    phi,
    phi_tail,
    slope,
    step,
    tilted,
    w,
)
from .forward_kl import change, forward_kl, token_step
from .hypotheses import SIMPLEX, nonneg
from .notation import j, k, l, m, p, smooth, specialise, t, total, v
from .softmax import path
from .theorem import Mutant, Step, Theorem, Trace
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

    mean_power = total(lambda i: m[i] ** order * p[i] ** (1 - order))
    alpha_gradient = (p[j] * mean_power - m[j] ** order * p[j] ** (1 - order)) / order
    return Theorem(
        id="T7c",
        title="With no top-K the predictive test is the ratio test",
        statement=r"K = 0:\quad c = q_k \frac{1 - 2\pi_k + S_2}{1 - \pi_k},\quad q_k = \pi_k(1-\pi_k)(g_k - "
        r"g_{tail}),\quad c^{KL} = (\pi_k - \mu_k)\frac{1 - 2\pi_k + S_2}{1 - \pi_k}",
        scope="The cells are the sampled token and everything else; any vocabulary size; the proportional "
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
                diff(f_push(w), w),
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
                slope(bernoulli),
                kl_form,
            ),
        ),
        mutants=(
            Mutant("The factor lost.", kl_form, p[k] - m[k]),
            Mutant("The full c_k at the lowest resolution.", kl_form, change()),
            Mutant(
                "The n = 2 formula, which belongs to the aggregated tail.", kl_form, 2 * rest * (p[k] - m[k])
            ),
            Mutant("The sign of g' lost.", diff(f_push(w), w), w * smooth("fpp", 1)(w)),
        ),
        traces=(binary("proportional", (p[k] - m[k]) * own / rest),),
        sample=draw_tail,
    )


def nothing_hidden() -> Theorem:
    """T7d."""
    one = partial(specialise, base=h, body=lambda i: KroneckerDelta(i, l))
    empty = partial(specialise, base=h, body=lambda i: 0)
    return Theorem(
        id="T7d",
        title="With every token retained, or all but one, the test is c_k",
        statement=r"K = V:\quad c = c_k \text{ for any } \nu; \qquad N = 1:\quad P = P/N = Q_2/P = \pi_l",
        scope="Any vocabulary size; forward KL. One and the same test at every resolution is the "
        "proportional one: its lower end is T7c.",
        tier="G",
        steps=(
            Step(
                "An empty tail has no mass, so every estimate is c_k whatever its ν.",
                empty(estimate_kl(nu)),
                change(),
            ),
            Step("If one token l is hidden, the aggregated ν = P is π_l.", one(P), p[l]),
            Step("The uniform ν = P/N is π_l as well.", one(P / N), p[l]),
            Step("So is the proportional ν = Q₂/P.", one(Q2 / P), p[l]),
            Step("With that ν the estimate is c_k.", one(estimate_kl(p[l])), change()),
        ),
        mutants=(
            Mutant("The hidden token left out.", one(estimate_kl(0)), change()),
            Mutant("The mass of μ in place of that of π.", one(estimate_kl(m[l])), change()),
        ),
        traces=(trace("change.change", lambda c: shipped_change(c.full_view), change(), UNTIED[:6]),),
        sample=draw_tail,
    )


def tied_tail() -> Theorem:
    """T7e."""

    def tied(i: Any) -> Expr:
        return (1 - h[i]) * token_step(i) - h[i] * P

    gram = (1 - h[j]) * token_step(j) + h[j] * total(lambda i: h[i] * token_step(i))
    shape = specialise(diff(h[j] * path(j, t) / hidden(lambda i: path(i, t)), t).subs(t, 0), v, tied)
    alone = partial(specialise, base=h, body=lambda i: 1 - KroneckerDelta(i, k))
    return Theorem(
        id="T7e",
        title="The aggregated tail is the exact change if the hidden logits were tied",
        statement=r"K_{ij} = (1-h_i)\delta_{ij} + h_i h_j:\quad q \cdot K (e_k - \pi) = q_k - \sum_{kept} "
        r"q_i \pi_i - q_{tail} P",
        scope="Any vocabulary size, any tail. Tied means that one parameter is the logit of every hidden "
        "token; a network's hidden logits are not tied, so this says what the estimate would be right for, "
        "not that it is right. The full forward KL and every coarse divergence are covered.",
        tier="G",
        steps=(
            step(
                "If the hidden tokens share one logit, its gradient is the sum of theirs, so every hidden "
                "logit falls by P.",
                gram,
                tied(j),
            ),
            step("Under that step the shape of π within the tail does not change.", shape, 0),
            step(
                "The full forward KL then changes by the one form with ν = P.",
                slope(forward_kl, tied),
                estimate_kl(P),
            ),
            step(
                "Every divergence of the cells changes by the one form with ν = P too.",
                slope(linear, tied),
                estimate_of(lambda i: phi[i], phi_tail, P),
            ),
            Step(
                "With no top-K it is 2 (1 − π_k)(π_k − μ_k), the formula of a two-token vocabulary.",
                alone(estimate_kl(P)),
                2 * (1 - p[k]) * (p[k] - m[k]),
            ),
        ),
        mutants=(
            mutant("The free step taken for the tied one.", slope(forward_kl), estimate_kl(P)),
            mutant(
                "The average of the tail's gradients in place of their sum.",
                gram,
                (1 - h[j]) * token_step(j) - h[j] * P / N,
            ),
            mutant(
                "The proportional tail under the tied step.", slope(forward_kl, tied), estimate_kl(Q2 / P)
            ),
            Mutant("The two lost.", alone(estimate_kl(P)), (1 - p[k]) * (p[k] - m[k])),
        ),
        traces=(binary("aggregated", 2 * (1 - p[k]) * (p[k] - m[k])),),
        sample=draw_tail,
    )


def impossibility() -> Theorem:
    """T7f."""
    others = total(lambda i: (1 - KroneckerDelta(i, k)) ** 2 * p[i])

    def push(i: Any) -> Expr:
        return phi_tail + KroneckerDelta(i, k) * (phi[k] - phi_tail)

    def completed(i: Any) -> Expr:
        return KroneckerDelta(i, k) * m[k] + (1 - KroneckerDelta(i, k)) ** 2 * p[i] * (1 - m[k]) / others

    factor = (1 - 2 * p[k] + S2) / (1 - p[k])
    change_of_completed = specialise(change(), m, completed)
    return Theorem(
        id="T7f",
        title="The sampled token alone cannot contradict the ratio test",
        statement=r"\mu_i = \pi_i \frac{1 - \mu_k}{1 - \pi_k}\ (i \ne k): \quad c_k = (\pi_k - \mu_k) "
        r"\frac{1 - 2\pi_k + S_2}{1 - \pi_k}",
        scope="All of π and the one number μ_k are known; any vocabulary size; forward KL, and every "
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
                slope(lambda policy: total(lambda i: push(i) * policy(i))),
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
        sample=draw_tail,
    )


THEOREMS = (no_top_k, nothing_hidden, tied_tail, impossibility)
