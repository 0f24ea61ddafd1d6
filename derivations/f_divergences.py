r"""T4, other divergences: the first-order change of every f-divergence, and of alpha, Renyi and TV.

The trick is to differentiate once, with f left open: D_f = sum_i pi_i f(mu_i / pi_i) has the logit
gradient of forward KL with -w replaced by g = f - w f'. A divergence is then one row of
`divergence_table.py`. Total variation, which has a kink, is in `total_variation.py`, the families with
an order in `families.py`; which of them are convex along logit lines is settled in `convexity.py` and
`non_convex.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sympy import Derivative, Dummy, Subs, Symbol, diff

import divsim.formulas as shipped

from . import convexity, families, non_convex, total_variation
from . import divergence_table as table
from .divergence_table import Policy, Row, curvature, here, moved, slope, w
from .forward_kl import token_step
from .notation import j, k, m, mean, p, smooth, total, v, z
from .render import plain
from .softmax import softmax
from .theorem import Mutant, Step, Theorem, alias
from .trace import PAIRS, UNTIED, trace

f = smooth("f")
x = Symbol("x", positive=True)
SIDES = (*UNTIED[6:12:3], PAIRS[len(UNTIED)])
"""Cells above and below, each near and far, and one tie: every arm of a divergence's cell."""


def at_ratio(body: Callable[[Any], Any], i: Any, policy: Policy) -> Any:
    """`body(w)` at w = mu_i / policy_i, differentiated before the ratio is put in."""
    ratio = Dummy("ratio", positive=True)
    return body(ratio).subs(ratio, m[i] / policy(i))


def g(ratio: Any) -> Any:
    """f - w f' at w = ratio, a symbol."""
    return f(ratio) - ratio * diff(f(ratio), ratio)


def push(i: Any, policy: Policy = here) -> Any:
    """g at token i."""
    return at_ratio(g, i, policy)


def q(i: Any) -> Any:
    """Entry i of the logit gradient, pi_i (g_i - E g)."""
    return p[i] * push(i) - p[i] * mean(p, push)


def f_divergence(policy: Policy) -> Any:
    """The textbook definition, with f open."""
    return total(lambda i: policy(i) * f(m[i] / policy(i)))


ALIASES = (
    alias("D(t)", "D_f after the step t along v", moved(f_divergence)),
    alias("D(s)", "D_f after a step along e_k − π", moved(f_divergence, token_step)),
    alias("E g", "the average of g under π", mean(p, push)),
    alias("g_{}", "g = f − w f' at w = μ_i/π_i", push),
)


def sample_f(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """The cosine in the place of f."""
    return {"f": np.cos, "fp": lambda x: -np.sin(x), "fpp": lambda x: -np.cos(x)}


def gradient() -> Theorem:
    """T4a."""
    derivative, one_term = Derivative(f_divergence(softmax), z[j]), Derivative(x * f(m[k] / x), x)
    average = total(lambda i: softmax(i) * push(i, softmax))
    return Theorem(
        id="T4a",
        title="Logit gradient of every f-divergence",
        statement=r"D_f = \sum_i \pi_i f(w_i),\ w = \mu/\pi: \quad "
        r"\partial D_f / \partial z_j = \pi_j (g_j - E_\pi g), \qquad g = f(w) - w f'(w)",
        scope="Any differentiable f, any vocabulary size, all probabilities positive, one free logit per "
        "token. Where f has a kink, as for TV at a tie, see T4k.",
        tier="G",
        steps=(
            Step(
                "The term x f(μ_k/x) grows at the rate g, because the ratio falls as x grows.",
                one_term,
                at_ratio(g, k, lambda _: x),
            ),
            Step(
                "Through the Jacobian of softmax only the lead of g over its average under π is left.",
                derivative,
                softmax(j) * push(j, softmax) - softmax(j) * average,
            ),
            Step(
                "The entries add up to zero: a constant added to all logits changes nothing.",
                total(lambda i: softmax(i) * push(i, softmax) - softmax(i) * average),
                0,
            ),
            Step(
                "The slope of g is −w f'', so g falls where f is convex.",
                Derivative(g(x), x),
                -x * diff(f(x), x, 2),
            ),
            Step(
                "For convex f with f(1) = 0, Jensen's inequality gives D_f = Σ π f(w) ≥ f(Σ π w) = f(1) = 0.",
                kind="cited",
            ),
        ),
        mutants=(
            Mutant(
                "f in place of g.",
                derivative,
                softmax(j) * f(m[j] / softmax(j)) - softmax(j) * f_divergence(softmax),
            ),
            Mutant("The average left out.", derivative, softmax(j) * push(j, softmax)),
            Mutant("The change of the ratio forgotten.", one_term, f(m[k] / x)),
            Mutant("The sign of f'' lost.", Derivative(g(x), x), x * diff(f(x), x, 2)),
        ),
        aliases=(
            alias("D_f", "Σ_i π_i f(μ_i/π_i) with π = softmax(z)", f_divergence(softmax)),
            alias("E g", "the average of g under π", average),
            alias("g_{}", "g = f − w f' at w = μ_i/π_i", lambda i: push(i, softmax)),
            alias("π_{}", "softmax(z) at token i", softmax),
        ),
        sample=sample_f,
    )


def first_order_change() -> Theorem:
    """T4b."""
    along_v = mean(p, lambda i: push(i) * (v[i] - mean(p, lambda h: v[h])))
    along_token = slope(f_divergence, token_step)

    def rate(i: Any) -> Any:
        return table.REVERSE_KL.gradient(here, i)

    return Theorem(
        id="T4b",
        title="First-order change of every f-divergence",
        statement=r"\frac{dD_f}{d\eta}\Big|_0 = A\, r\, c_k^f, \qquad c_k^f = q_k - E_\pi[q] = "
        r"\pi_k (g_k - E_\pi g) - \sum_i \pi_i^2 (g_i - E_\pi g), \quad q = \nabla_z D_f",
        scope="Any twice differentiable f, any vocabulary size, one token, an infinitesimal step along the "
        "plain gradient in the logits; η, A and r only scale the step (T2b). Finite steps: T4n and T4o.",
        tier="G",
        steps=(
            Step(
                "Along any v the change is the covariance of g and v under π.", slope(f_divergence), along_v
            ),
            Step("That is q · v with the gradient q of T4a.", along_v, total(lambda i: q(i) * v[i])),
            Step("For v = e_k − π it is q_k minus the average of q.", along_token, q(k) - mean(p, q)),
        ),
        mutants=(
            Mutant("The local term alone.", along_token, q(k)),
            Mutant("The plain sum of q in place of its average.", along_token, q(k) - total(q)),
            Mutant("Not centred.", along_token, p[k] * push(k) - total(lambda i: p[i] ** 2 * push(i))),
            Mutant("g under μ.", slope(f_divergence), total(lambda i: (p[i] - m[i]) * push(i) * v[i])),
        ),
        aliases=ALIASES,
        traces=(
            trace(
                "change.change",
                lambda case: shipped.change(case.full_view, shipped.REVERSE_KL),
                rate(k) - mean(p, rate),
                cases=SIDES,
            ),
        ),
        sample=sample_f,
    )


def second_derivative() -> Theorem:
    """T4c."""

    def squared_lead(i: Any) -> Any:
        return (v[i] - mean(p, lambda h: v[h])) ** 2

    def bend(i: Any) -> Any:
        return at_ratio(lambda ratio: ratio**2 * diff(f(ratio), ratio, 2), i, here)

    from_f = mean(p, lambda i: bend(i) * squared_lead(i))
    with_g = mean(p, lambda i: push(i) * squared_lead(i))
    from_path = with_g - mean(p, push) * mean(p, squared_lead)
    return Theorem(
        id="T4c",
        title="Second derivative of every f-divergence along a logit line",
        statement=r"\frac{d^2 D_f}{dt^2} = E_\pi[w^2 f''(w) (v - E_\pi v)^2] "
        r"+ E_\pi[(g - E_\pi g)(v - E_\pi v)^2]",
        scope="Any twice differentiable f, any vocabulary size, any direction. The first term is never "
        "negative for convex f; the second can be, so f-divergences in general are not convex along logit "
        "lines (T4o).",
        tier="G",
        steps=(
            Step(
                "Differentiate twice along the exponential path.", curvature(f_divergence), from_f + from_path
            ),
        ),
        mutants=(
            Mutant("The bend of the path forgotten.", curvature(f_divergence), from_f),
            Mutant("The bend of f forgotten.", curvature(f_divergence), from_path),
        ),
        aliases=ALIASES,
        sample=sample_f,
    )


def _row(theorem_id: str, row: Row) -> Theorem:
    record, derivative = shipped.DIVERGENCES[row.name], Derivative(row.measure(softmax), z[j])

    def push_here(i: Any) -> Any:
        return row.push(here, i)

    return Theorem(
        id=theorem_id,
        title=row.title,
        statement=rf"\partial D / \partial z_j = {row.gradient_tex}",
        scope="Any vocabulary size, all probabilities positive, one free logit per token. "
        f"Code: {row.name}.measure, {row.name}.logit_grad.",
        tier="G",
        steps=(
            Step(
                f"The textbook definition is D_f with f(w) = {plain(row.f)}.",
                row.measure(here),
                mean(p, lambda i: row.f.subs(w, m[i] / p[i])),
            ),
            Step("It vanishes at equal policies: f(1) = 0.", Subs(row.f, w, 1), 0, kind="scalar"),
            Step(
                "f is convex, w² f'' ≥ 0, so D is never negative (T4a).",
                w**2 * Derivative(row.f, (w, 2)),
                row.bend,
                "nonneg",
            ),
            Step("g = f − w f' in closed form.", row.f - w * Derivative(row.f, w), row.g, kind="scalar"),
            Step(
                "Put g into the general gradient π_j (g_j − E g).",
                p[j] * (push_here(j) - mean(p, push_here)),
                row.gradient(here, j),
            ),
            Step(
                "Independently, differentiate the textbook definition through softmax.",
                derivative,
                row.gradient(softmax, j),
            ),
        ),
        mutants=tuple(Mutant(text, derivative, wrong(softmax, j)) for text, wrong in row.false_gradients),
        aliases=(
            alias("D", "the divergence of softmax(z) from μ", row.measure(softmax)),
            alias(row.inside[0], "the sum of that name at softmax(z)", row.inside[1](softmax)),
            alias("π_{}", "softmax(z) at token i", softmax),
        ),
        traces=(
            trace(
                f"divergences.{row.name.upper()}.measure",
                lambda case: record.measure(case.log_mu, case.log_pi),
                row.measure(here),
                cases=SIDES,
            ),
            trace(
                f"divergences.{row.name.upper()}.logit_grad",
                lambda case: record.logit_grad(case.log_mu, case.log_pi),
                row.gradient(here, j),
                cases=SIDES,
            ),
        ),
    )


THEOREMS = (
    gradient,
    first_order_change,
    second_derivative,
    *(partial(_row, f"T4{letter}", row) for letter, row in zip("defghi", table.ROWS, strict=True)),
    *total_variation.THEOREMS,
    *families.THEOREMS,
    *convexity.THEOREMS,
    *non_convex.THEOREMS,
)
