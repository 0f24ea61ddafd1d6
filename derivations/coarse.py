r"""T7, first part: what a top-K estimate of the change is the change *of*.

The engine returns K tokens of mu, so some tokens stay hidden. The coarse divergence keeps every retained
token as a cell of its own and lumps the hidden ones into one tail cell. An estimate of c_k then has to say
one thing only: how fast the logit of that cell moves. So every estimator of every divergence is `q_k - sum_C
q_C nu_C`, with nu_C = pi_C on retained tokens and one number nu on the tail. What the choices mean at the
ends is in `resolution.py`, how wrong they can be is in `tail_bias.py`.

Letters: h_i = 1 if token i is hidden, else 0; P and M the tail masses of pi and mu; Q2 the sum of pi^2 over
the tail; N the number of hidden tokens; S2 the sum of pi^2 over all tokens.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sympy import Expr, IndexedBase, Symbol, diff, log, sign

from divsim.formulas.change import change as shipped_change
from divsim.formulas.divergences import FORWARD_KL, REVERSE_KL, TV, Divergence
from divsim.formulas.families import renyi

from .forward_kl import change, forward_kl, token_step
from .hypotheses import SIMPLEX, given, given_all
from .notation import k, m, p, smooth, specialise, t, total, v
from .softmax import path
from .theorem import Mutant, Step, Theorem, Trace
from .trace import FOUR, Case, trace

h = IndexedBase("h", nonnegative=True)
nu = Symbol("nu", real=True)
phi, phi_tail = IndexedBase("phi", real=True), Symbol("phi_T", real=True)
w = Symbol("w", positive=True)
order = Symbol("a", positive=True)
f = smooth("f")
fp = smooth("fp", 2)
TAIL = (*SIMPLEX, given_all(lambda i: (h[i] ** 2, h[i])), given(h[k], 0))
step, mutant = partial(Step, hypotheses=TAIL), partial(Mutant, hypotheses=TAIL)


def hidden(body: Callable[[Any], Any]) -> Expr:
    """Sum of `body(i)` over the tail."""
    return total(lambda i: h[i] * body(i))


def kept(body: Callable[[Any], Any]) -> Expr:
    """Sum of `body(i)` over the retained tokens."""
    return total(lambda i: (1 - h[i]) * body(i))


P, M = hidden(lambda i: p[i]), hidden(lambda i: m[i])
Q2, N, S2 = hidden(lambda i: p[i] ** 2), total(lambda i: h[i]), total(lambda i: p[i] ** 2)


def estimate(q: Callable[[Any], Any], q_tail: Any, weight: Any) -> Expr:
    """The one form: q_k - sum_C q_C nu_C with nu_C = pi_C on retained tokens and `weight` on the tail."""
    return q(k) - kept(lambda i: q(i) * p[i]) - q_tail * weight


def estimate_kl(weight: Any) -> Expr:
    """The one form for forward KL, whose logit gradient is pi - mu on every cell."""
    return estimate(lambda i: p[i] - m[i], P - M, weight)


def estimate_of(push: Callable[[Any], Any], push_tail: Any, weight: Any) -> Expr:
    """The one form for any D whose derivative in the probability of a cell is `push`."""
    average = kept(lambda i: p[i] * push(i)) + P * push_tail
    return estimate(lambda i: p[i] * (push(i) - average), P * (push_tail - average), weight)


def coarse_f(policy: Callable[[Any], Any]) -> Expr:
    """The coarse f-divergence sum_C pi_C f(mu_C / pi_C), the definition."""
    mass = hidden(policy)
    return kept(lambda i: policy(i) * f(m[i] / policy(i))) + mass * f(M / mass)


def coarse_kl(policy: Callable[[Any], Any]) -> Expr:
    """The coarse forward KL sum_C mu_C log(mu_C / pi_C), the definition."""
    return kept(lambda i: m[i] * log(m[i] / policy(i))) + M * (log(M) - log(hidden(policy)))


def linear(policy: Callable[[Any], Any]) -> Expr:
    """sum_C phi_C pi_C: any divergence of the cells, to first order."""
    return kept(lambda i: phi[i] * policy(i)) + phi_tail * hidden(policy)


def coarse_power(policy: Callable[[Any], Any]) -> Expr:
    """sum_C mu_C^a pi_C^(1-a) over the cells."""
    tail = M**order * hidden(policy) ** (1 - order)
    return kept(lambda i: m[i] ** order * policy(i) ** (1 - order)) + tail


def coarse_renyi(policy: Callable[[Any], Any]) -> Expr:
    """The coarse Renyi divergence of order a, the definition."""
    return log(coarse_power(policy)) / (order - 1)


def slope(
    divergence: Callable[[Callable[[Any], Any]], Any], direction: Callable[[Any], Any] = token_step
) -> Expr:
    """d/dt at 0 of a divergence while the logits move along `direction`."""
    return specialise(diff(divergence(lambda i: path(i, t)), t).subs(t, 0), v, direction)


def f_push(ratio: Any) -> Expr:
    """g(w) = f(w) - w f'(w), the derivative of pi f(mu / pi) in pi."""
    return f(ratio) - ratio * fp(ratio)


def tilted(scale: Any, mu: Any, pi: Any) -> Any:
    """tau = mu^a pi^(1-a) / scale, which takes mu's place in the gradient of a Renyi divergence."""
    return mu**order * pi ** (1 - order) / scale


def draw_tail(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """A random tail that holds at least one token, but not the sampled one."""
    token, other = rng.permutation(size)[:2]
    mask = (rng.uniform(size=size) < 0.5).astype(float)
    mask[token], mask[other] = 0.0, 1.0
    return {
        "h": mask, "k": int(token), "l": int(other),
        "f": lambda x: x**2 - np.cos(x), "fp": lambda x: 2 * x + np.sin(x), "fpp": lambda x: 2 + np.cos(x),
    }  # fmt: skip


def traced(
    divergence: Divergence, tail: str, form: Any, cases: tuple[Case, ...] = FOUR, **names: Any
) -> Trace:
    """The shipped change with a tail model against the one form, over four tokens, some of them hidden."""
    return trace(
        "change.change",
        lambda c: shipped_change(c.lumped_view(), divergence, tail),
        lambda c: c.explicit(form, h=c.hidden(), **names),
        cases,
    )


def one_form() -> Theorem:
    """T7a."""
    tail_speed = slope(hidden)
    chain_rule = slope(linear)
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
        traces=tuple(
            traced(FORWARD_KL, tail, estimate_kl(weight))
            for tail, weight in (("aggregated", P), ("uniform", P / N), ("proportional", Q2 / P), ("zero", 0))
        ),
        sample=draw_tail,
    )


def coarse_derivative() -> Theorem:
    """T7b."""
    along = {
        name: slope(make) for name, make in (("kl", coarse_kl), ("f", coarse_f), ("renyi", coarse_renyi))
    }

    def f_form(weight: Any) -> Expr:
        return estimate_of(lambda i: f_push(m[i] / p[i]), f_push(M / P), weight)

    def renyi_form(weight: Any) -> Expr:
        power = coarse_power(lambda i: p[i])
        return estimate(lambda i: p[i] - tilted(power, m[i], p[i]), P - tilted(power, M, P), weight)

    return Theorem(
        id="T7b",
        title="The proportional tail is the exact derivative of the coarse divergence",
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
                "τ_C = μ_C^a π_C^{1−a} / Σ.",
                along["renyi"],
                renyi_form(Q2 / P),
            ),
        ),
        mutants=(
            mutant("The aggregated tail for forward KL.", along["kl"], estimate_kl(P)),
            mutant("The uniform tail for an f-divergence.", along["f"], f_form(P / N)),
            mutant(
                "The tail's own change taken for that of the full forward KL.",
                slope(forward_kl),
                estimate_kl(Q2 / P),
            ),
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
