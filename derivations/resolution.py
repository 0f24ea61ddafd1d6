r"""T7d and T7e: the other end of the scale, and what the aggregated tail would be exact for.

The proportional estimate is one test at every resolution: with nothing retained but the sampled token it is
the ratio test (`sampled_alone.py`), with everything retained it is the full c_k. The aggregated estimate
belongs to another model, in which the hidden tokens share one logit.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from sympy import Expr, KroneckerDelta, diff

from divsim.formulas.change import change as shipped_change

from .cells import (
    MASSES,
    Q2,
    SPLIT,
    N,
    P,
    draw_tail,
    estimate_kl,
    estimate_of,
    hidden,
    linear,
    mutant,
    nu,
    phi,
    phi_tail,
    short_form,
    step,
)
from .forward_kl import change, forward_kl, token_step
from .notation import h, j, k, l, m, p, specialise, t, total, v
from .sampled_alone import binary
from .softmax import path, slope
from .theorem import Mutant, Step, Theorem, alias
from .trace import UNTIED, trace


def nothing_hidden() -> Theorem:
    """T7d."""
    one = partial(specialise, base=h, body=lambda i: KroneckerDelta(i, l))
    empty = partial(specialise, base=h, body=lambda i: 0)
    hidden_one = tuple(replace(each, body=one(each.body)) for each in MASSES)
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
        aliases=(*hidden_one, alias("c_k", "π_k − μ_k + Σ π_i (μ_i − π_i)", change())),
        traces=(trace("change.change", lambda c: shipped_change(c.full_view), change(), UNTIED[:6]),),
        sample=draw_tail,
    )


def tied_tail() -> Theorem:
    """T7e."""

    def tied(i: Any) -> Expr:
        return (1 - h[i]) * token_step(i) - h[i] * P

    gram = (1 - h[j]) * token_step(j) + h[j] * total(lambda i: h[i] * token_step(i))
    shape = specialise(diff(h[j] * path(j, t) / hidden(lambda i: path(i, t)), t).subs(t, 0), v, tied)
    full, free, cells = slope(forward_kl, tied), slope(forward_kl, token_step), slope(linear, tied)
    alone = partial(specialise, base=h, body=lambda i: 1 - KroneckerDelta(i, k))
    return Theorem(
        id="T7e",
        title="The aggregated tail is exact if the hidden logits are tied",
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
                full,
                estimate_kl(P),
            ),
            step(
                "Every divergence of the cells changes by the one form with ν = P too.",
                cells,
                estimate_of(lambda i: phi[i], phi_tail, P),
            ),
            Step(
                "With no top-K it is 2 (1 − π_k)(π_k − μ_k), the formula of a two-token vocabulary.",
                alone(estimate_kl(P)),
                2 * (1 - p[k]) * (p[k] - m[k]),
            ),
        ),
        mutants=(
            mutant("The free step taken for the tied one.", free, estimate_kl(P)),
            mutant(
                "The average of the tail's gradients in place of their sum.",
                gram,
                (1 - h[j]) * token_step(j) - h[j] * P / N,
            ),
            mutant("The proportional tail under the tied step.", full, estimate_kl(Q2 / P)),
            Mutant("The two lost.", alone(estimate_kl(P)), (1 - p[k]) * (p[k] - m[k])),
        ),
        assumptions=SPLIT,
        aliases=(
            alias("d(π_j/P)/ds", "the slope at s = 0 of h_j π_j / P, along s times the tied step", shape),
            alias("dD/ds", "that of the full forward KL", full),
            alias("dD_cells/ds", "that of Σ_C φ_C π_C, any divergence of the cells to first order", cells),
            alias("dD₀/ds", "the slope of the full forward KL along the free step, s (e_k − π)", free),
            *short_form(lambda i: phi[i], phi_tail, "φ"),
            *MASSES,
        ),
        traces=(binary("aggregated", 2 * (1 - p[k]) * (p[k] - m[k])),),
        sample=draw_tail,
    )


THEOREMS = (nothing_hidden, tied_tail)
