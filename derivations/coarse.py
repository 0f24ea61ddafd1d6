r"""T7, first part: what a top-K estimate of the change is the change *of*.

The engine returns K tokens of mu, so some tokens stay hidden. The coarse divergence keeps every retained
token as a cell of its own and puts the hidden ones into one tail cell. An estimate of c_k then has to say
one thing only: how fast the logit of that cell moves. So every estimator of every divergence is `q_k - sum_C
q_C nu_C`, with nu_C = pi_C on retained tokens and one number nu on the tail. What the choices mean at the
ends is in `resolution.py`, how wrong they can be is in `tail_bias.py`.
"""

from functools import partial
from typing import Any

from sympy import Expr, log, sign

from divsim.formulas.divergences import FORWARD_KL, REVERSE_KL, TV
from divsim.formulas.families import renyi

from .cells import (
    MASSES,
    Q2,
    S2,
    SPLIT,
    M,
    N,
    P,
    coarse_f,
    coarse_kl,
    coarse_power,
    coarse_renyi,
    draw_tail,
    estimate,
    estimate_kl,
    estimate_of,
    f_push,
    hidden,
    kept,
    linear,
    mutant,
    nu,
    order,
    phi,
    phi_tail,
    short_form,
    step,
    tilted,
    traced,
)
from .forward_kl import change, forward_kl, token_step
from .notation import k, m, p
from .softmax import slope
from .theorem import Theorem, alias
from .trace import FOUR


def one_form() -> Theorem:
    """T7a."""
    tail_speed = slope(hidden, token_step)
    chain_rule = slope(linear, token_step)
    by_tail = partial(estimate_of, lambda i: phi[i], phi_tail)
    average = p[k] - kept(lambda i: p[i] ** 2) - P * nu
    lead = kept(lambda i: p[i] * phi[i] * (token_step(i) - average))
    return Theorem(
        id="T7a",
        title="One form for all tails",
        statement=r"c = q_k - \sum_C q_C \nu_C,\quad \nu_C = \pi_C \text{ on retained tokens},\quad "
        r"\nu_{tail} = P,\ P/N,\ Q_2/P,\ 0",
        scope="Any vocabulary size, any tail, and every divergence that is a differentiable function of the "
        "cells' probabilities; one token, an infinitesimal plain-gradient step in the logits. Only ν = Q₂/P "
        "is the derivative of the coarse divergence under that step; this does not make it the most accurate "
        "estimate of the full c_k.",
        tier="G",
        steps=(
            step(
                "Under the step e_k − π the tail cell moves like one token whose logit falls by Q₂/P, the "
                "average of π over the tail.",
                tail_speed,
                P * (-Q2 / P - (p[k] - S2)),
            ),
            step(
                "By the chain rule any divergence D of the cells changes by Σ_C (∂D/∂π_C) π_C'; with q its "
                "logit gradient on the cells, this is the one form with ν = Q₂/P.",
                chain_rule,
                by_tail(Q2 / P),
            ),
            step(
                "For forward KL the form is the local term, the retained part of the global term, and ν (M − "
                "P).",
                estimate_kl(nu),
                p[k] - m[k] + kept(lambda i: p[i] * (m[i] - p[i])) + nu * (M - P),
            ),
            step(
                "So the estimate misses the full c_k by ν (M − P) minus the true tail term Σ_tail π (μ − π).",
                estimate_kl(nu) - change(),
                nu * (M - P) - hidden(lambda i: p[i] * (m[i] - p[i])),
            ),
            step(
                "Written with ∂D/∂π_C in place of q, ν moves the average logit speed ū = π_k − Σ_kept π² − P "
                "ν; for TV, where ∂D/∂π_C = sign(π_C − μ_C)/2, this is the published form with P ν in place "
                "of the tail's part of Σ π².",
                by_tail(nu),
                lead + P * phi_tail * (-nu - average),
            ),
        ),
        mutants=(
            mutant("The aggregated tail taken for the derivative of the coarse D.", chain_rule, by_tail(P)),
            mutant("The uniform tail taken for the derivative of the coarse D.", chain_rule, by_tail(P / N)),
            mutant("The tail cell left at rest.", chain_rule, by_tail(0)),
            mutant("The tail term with the wrong sign.", estimate_kl(nu), estimate_kl(-nu)),
            mutant("The tail's part of Σ π² in place of its share per unit mass.", chain_rule, by_tail(Q2)),
        ),
        assumptions=SPLIT,
        aliases=(
            alias("dP/ds", "the slope at s = 0 of the tail's mass, along s (e_k − π)", tail_speed),
            alias("dD/ds", "that of Σ_C φ_C π_C, any divergence of the cells to first order", chain_rule),
            *short_form(lambda i: phi[i], phi_tail, "φ"),
            *MASSES,
        ),
        traces=tuple(
            traced(FORWARD_KL, tail, estimate_kl(weight))
            for tail, weight in (("aggregated", P), ("uniform", P / N), ("proportional", Q2 / P), ("zero", 0))
        ),
        sample=draw_tail,
    )


def coarse_derivative() -> Theorem:
    """T7b."""
    along = {
        name: slope(make, token_step)
        for name, make in (("kl", coarse_kl), ("f", coarse_f), ("renyi", coarse_renyi))
    }

    def f_form(weight: Any) -> Expr:
        return estimate_of(lambda i: f_push(m[i] / p[i]), f_push(M / P), weight)

    full, power = slope(forward_kl, token_step), coarse_power(lambda i: p[i])

    def renyi_form(weight: Any) -> Expr:
        return estimate(lambda i: p[i] - tilted(power, m[i], p[i]), P - tilted(power, M, P), weight)

    return Theorem(
        id="T7b",
        title="The proportional tail is the coarse divergence's derivative",
        statement=r"\frac{d D_{coarse}}{ds}\Big|_{s(e_k - \pi)} = q_k - \sum_{kept} q_i \pi_i - q_{tail} "
        r"\frac{Q_2}{P}",
        scope="Any vocabulary size, any tail, every f-divergence with a differentiable f (TV away from ties) "
        "and every Rényi order a ≠ 1. It is about the divergence that a top-K trust region thresholds, not "
        "about the full one; the coarse forward KL is not convex along logit lines (T3h), so a predicted "
        "increase is not certain here.",
        tier="G",
        steps=(
            step(
                "Differentiate the coarse forward KL along the full softmax step: its tail term is Q₂ (M − "
                "P)/P.",
                along["kl"],
                p[k] - m[k] + kept(lambda i: p[i] * (m[i] - p[i])) + Q2 * (M - P) / P,
            ),
            step(
                "The same holds for every f-divergence Σ_C π_C f(μ_C/π_C): f stays an unknown function, and "
                "∂D/∂π_C = g(w_C) with g = f − w f'.",
                along["f"],
                f_form(Q2 / P),
            ),
            step(
                "It also holds for the Rényi divergences, which are no f-divergences: q_C = π_C − τ_C with "
                "τ_C = μ_C^a π_C^{1−a} / H, H the sum of these over the cells.",
                along["renyi"],
                renyi_form(Q2 / P),
            ),
        ),
        mutants=(
            mutant("The aggregated tail for forward KL.", along["kl"], estimate_kl(P)),
            mutant("The uniform tail for an f-divergence.", along["f"], f_form(P / N)),
            mutant(
                "The tail's own change taken for that of the full forward KL.",
                full,
                estimate_kl(Q2 / P),
            ),
        ),
        assumptions=SPLIT,
        aliases=(
            alias("dD_KL/ds", "the slope at s = 0 of the coarse forward KL, along s (e_k − π)", along["kl"]),
            alias("dD_f/ds", "that of the coarse f-divergence", along["f"]),
            alias("dD_a/ds", "that of the coarse Rényi divergence of order a", along["renyi"]),
            alias("dD/ds", "that of the full forward KL", full),
            *short_form(lambda i: f_push(m[i] / p[i]), f_push(M / P), "g"),
            alias("g_{}", "f − w f′ at w = μ_i/π_i", lambda i: f_push(m[i] / p[i])),
            alias("g_tail", "f − w f′ at w = M/P", f_push(M / P)),
            alias("τ_{}", "μ_i^a π_i^{1−a} / H", lambda i: tilted(power, m[i], p[i])),
            alias("τ_tail", "M^a P^{1−a} / H", tilted(power, M, P)),
            *MASSES,
        ),
        traces=(
            traced(
                REVERSE_KL, "proportional", f_form(Q2 / P), FOUR[:2], f=lambda x: -log(x), fp=lambda x: -1 / x
            ),
            traced(
                TV,
                "proportional",
                estimate_of(lambda i: sign(p[i] - m[i]) / 2, sign(P - M) / 2, Q2 / P),
                FOUR[:2],
            ),
            traced(renyi(2.0), "proportional", renyi_form(Q2 / P).subs(order, 2), FOUR[:2]),
        ),
        sample=draw_tail,
    )


THEOREMS = (one_form, coarse_derivative)
