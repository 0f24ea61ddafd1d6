r"""T7, last part: an interval for the divergence itself, and what the coarse one can hide.

The coarse divergence never exceeds the full one. What it misses is a divergence inside the tail, which can be
all of it; from the tail mass M and the cap b alone it can still be bounded from above.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from sympy import IndexedBase, Rational, Subs, Symbol, diff, exp, log

from . import intervals
from .cells import MASSES, SPLIT, TAIL, M, P, coarse_f, coarse_kl, f, fp, hidden
from .facts import LOG_TANGENT, TANGENTS
from .forward_kl import forward_kl
from .hypotheses import given, given_all, nonneg, nonneg_all
from .notation import h, m, mean, p, specialise, t, total, v
from .softmax import path
from .theorem import Mutant, Step, Theorem, Verdict, alias

lam, b = Symbol("lambda", real=True), Symbol("b", positive=True)
above, below = IndexedBase("alpha", nonnegative=True), IndexedBase("beta", nonnegative=True)
rise, fall, depth = (IndexedBase(name, nonnegative=True) for name in ("d", "e", "x"))
centred = IndexedBase("c", real=True)
MU, PI = (90, 9, 1), (90, 1, 9)


def policy(i: Any) -> Any:
    """pi before any step."""
    return p[i]


def tail_ratio(i: Any) -> Any:
    """(pi_i / P) / (mu_i / M), the ratio of the distributions within the tail."""
    return p[i] * M / (m[i] * P)


def kl_slack(i: Any) -> Any:
    """y - 1 - log y at y = `tail_ratio`."""
    return tail_ratio(i) - 1 - (log(p[i]) - log(m[i]) + log(M) - log(P))


def bregman(i: Any) -> Any:
    """How far f lies above its tangent at M / P."""
    whole = M / P
    return f(m[i] / p[i]) - f(whole) - fp(whole) * (m[i] / p[i] - whole)


def draw_pair(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """A tail whose pi mass is the larger, a convex f, and positive parts of every difference."""
    mask = (rng.uniform(size=size) < 0.5).astype(float)
    mask[:2] = 0.0, 1.0
    pi, mu = rng.uniform(0.05, 1, (2, size))
    pi, mu = pi / pi.sum(), mu / mu.sum()
    if (mask * (pi - mu)).sum() < 0:
        pi, mu = mu, pi
    values = rng.normal(size=size)
    return {
        "h": mask, "k": 0, "p": pi, "m": mu, "d": np.maximum(pi - mu, 0), "e": np.maximum(mu - pi, 0),
        "f": lambda w: w**2 - np.cos(w), "fp": lambda w: 2 * w + np.sin(w),
        "c": values - (mask * pi * values).sum() / (mask * pi).sum(),
    }  # fmt: skip


def missed() -> Theorem:
    """T7q."""
    inside = hidden(lambda i: m[i] * (log(m[i] / p[i]) - log(M) + log(P)))
    moved = total(lambda i: rise[i] + fall[i]) / 2
    coarse_tv = total(lambda i: (1 - h[i]) * (rise[i] + fall[i])) / 2 + (P - M) / 2
    parts = given_all(lambda i: (p[i], m[i] + rise[i] - fall[i]))
    full_f = total(lambda i: p[i] * f(m[i] / p[i]))
    return Theorem(
        id="T7q",
        title="The coarse divergence is a lower bound, and what it misses",
        statement=r"D = D_{coarse} + M\, KL(\hat\mu \| \hat\pi) \ge D_{coarse}",
        scope="Any vocabulary size and any tail: forward KL, every f-divergence with convex f, and TV. A "
        "coarse divergence above δ proves D > δ; one below δ proves nothing about D (T7s).",
        tier="G",
        steps=(
            Step(
                "Chain rule: forward KL is the coarse one plus M times the KL of the distributions within "
                "the tail.",
                forward_kl() - coarse_kl(policy),
                inside,
                hypotheses=TAIL,
            ),
            Step(
                "With y the ratio of those distributions, y = π̂/μ̂, the missed part is the sum of μ (y − 1 "
                "− log y).",
                inside,
                hidden(lambda i: m[i] * kl_slack(i)),
                kind="nonneg",
                hypotheses=(*TAIL, nonneg_all(kl_slack)),
            ),
            LOG_TANGENT,
            Step(
                "For any convex f the missed part is the sum over the tail of π times the height of f above "
                "its tangent at M/P.",
                full_f - coarse_f(policy),
                hidden(lambda i: p[i] * bregman(i)),
                kind="nonneg",
                hypotheses=(*TAIL, nonneg_all(bregman)),
            ),
            TANGENTS,
            Step(
                "TV with π − μ = d⁺ − d⁻ misses what cancels inside the tail: Σ_tail d⁻ if the tail gains "
                "mass, Σ_tail d⁺ if it loses mass.",
                moved - coarse_tv,
                hidden(lambda i: fall[i]),
                kind="nonneg",
                hypotheses=(*TAIL, parts),
            ),
        ),
        mutants=(
            Mutant("Nothing is missed.", forward_kl(), coarse_kl(policy), TAIL),
            Mutant(
                "The mass of π in place of that of μ.", forward_kl() - coarse_kl(policy), P / M * inside, TAIL
            ),
            Mutant(
                "The tangent at 1.",
                full_f - coarse_f(policy),
                hidden(lambda i: p[i] * (f(m[i] / p[i]) - f(1))),
                TAIL,
            ),
            Mutant("The larger one-sided gap.", moved - coarse_tv, hidden(lambda i: rise[i]), (*TAIL, parts)),
        ),
        assumptions=(*SPLIT, "π_i − μ_i = d_i − e_i with d_i ≥ 0 and e_i ≥ 0"),
        aliases=(
            alias("D", "KL(μ‖π), the full forward KL", forward_kl()),
            alias("D_coarse", "the coarse forward KL", coarse_kl(policy)),
            alias("D_f", "Σ π f(μ/π), the full f-divergence", full_f),
            alias("D_f^coarse", "the coarse f-divergence", coarse_f(policy)),
            alias(
                "KL_in",
                "M times the KL of the distributions within the tail, Σ_tail μ log(μ P / (π M))",
                inside,
            ),
            *MASSES,
        ),
        sample=draw_pair,
    )


def upper_bound() -> Theorem:
    """T7r."""

    def mu(i: Any) -> Any:
        return b * exp(-depth[i])

    def pi(i: Any) -> Any:
        return exp(-(lam + above[i] - below[i]))

    mass = total(mu)
    tail_term = total(lambda i: mu(i) * log(mu(i) / pi(i)))
    bound = mass * log(b) + lam * mass + b * total(lambda i: above[i])
    return Theorem(
        id="T7r",
        title="An upper bound for the tail's part of forward KL",
        statement=r"\sum_{tail} \mu_i \log\frac{\mu_i}{\pi_i} \le M \log b + \lambda M + b \sum_{tail} "
        r"(-\log \pi_i - \lambda)_+ \quad\text{for every } \lambda",
        scope="The tokens are the tail, of any size; M and b are exact, b caps every hidden μ, and all of π "
        "is known. With T7q this puts D between the coarse KL and the coarse KL − M log(M/P) + this bound. "
        "The interval can be wide.",
        tier="G",
        steps=(
            Step(
                "Write μ = b e^{−x} with x ≥ 0 and −log π = λ + α − β with α, β the positive parts: the "
                "bound exceeds the tail's part by a sum of products of things that are not negative.",
                bound - tail_term,
                total(lambda i: mu(i) * depth[i] + mu(i) * below[i] + above[i] * (b - b * exp(-depth[i]))),
                kind="nonneg",
                hypotheses=(nonneg_all(lambda i: b - b * exp(-depth[i])),),
            ),
            Step("The logarithm is increasing, so μ ≤ b gives log(b/μ) ≥ 0.", kind="cited"),
        ),
        mutants=(
            Mutant(
                "The cap on μ left out of the logarithm.",
                bound - mass * log(b) - tail_term,
                bound - tail_term,
                (),
            ),
            Mutant("The price on the wrong side.", bound - 2 * lam * mass, bound, ()),
            Mutant(
                "The positive part of the wrong sign.",
                mass * log(b) + lam * mass + b * total(lambda i: below[i]),
                tail_term,
                (),
            ),
        ),
        aliases=(
            alias(
                "KL_tail", "the tail's part Σ μ log(μ/π) of forward KL, π_i = e^{−λ − α_i + β_i}", tail_term
            ),
            alias("M", "Σ μ, the tail's mass under μ", mass),
            alias("μ_{}", "b e^{−x_i}", mu),
        ),
        sample=_draw_priced,
    )


def _draw_priced(rng: np.random.Generator, size: int) -> dict[str, Any]:
    gain = -np.log(rng.uniform(0.001, 0.05, size)) - 4
    return {"lambda": 4.0, "alpha": np.maximum(gain, 0), "beta": np.maximum(-gain, 0), "b": 0.1}


def _hidden_all() -> Verdict:
    mu, pi = intervals.policy(MU), intervals.policy(PI)
    cells = [intervals.coarsen(row, (0,)) for row in (mu, pi)]
    full = intervals.kl(mu, pi)
    shown = ", ".join(map(str, cells[0]))
    return Verdict(
        cells[0] == cells[1] and intervals.is_positive(full - intervals.enclose(Fraction(17, 100))),
        f"cells {shown} under both, so the coarse KL is 0; the full KL is {intervals.shown(full)}",
    )


def everything_hidden() -> Theorem:
    """T7s."""
    w, q = Symbol("w", positive=True), Symbol("q", positive=True)
    full = Subs(w * log(w / q) + q * log(q / w), (w, q), (Rational(MU[1], 100), Rational(PI[1], 100)))
    curvature = diff(coarse_kl(lambda i: path(i, t)), t, 2).subs(t, 0)
    bend = specialise(curvature, v, lambda i: h[i] * centred[i])
    variance = mean(p, lambda i: v[i] ** 2) - mean(p, lambda i: v[i]) ** 2
    within = hidden(lambda i: p[i] * v[i] ** 2) / P - (hidden(lambda i: p[i] * v[i]) / P) ** 2
    inside = (*TAIL, given(hidden(lambda i: p[i] * centred[i]), 0), nonneg(M - P))
    return Theorem(
        id="T7s",
        title="Coarse cells can hide everything and bend the wrong way",
        statement=r"\mu = (90, 9, 1)/100,\ \pi = (90, 1, 9)/100,\ K = 1:\quad D_{coarse} = 0,\ D = "
        r"\tfrac{2}{25}\log 9; \qquad D_{coarse}'' = \mathrm{Var}_\pi v - M\, \mathrm{Var}_{tail} v",
        scope="The example is exact. The second derivative is that of the coarse forward KL along any logit "
        "line, for any vocabulary size and tail. Where it is negative the certainty of a predicted increase, "
        "which the full forward KL has, is not available; T3h has an example for a token's own step.",
        tier="G",
        steps=(
            Step(
                "With only the first token retained the two policies have the same cells.",
                kind="exact",
                decide=_hidden_all,
            ),
            Step("Their full forward KL is 0.08 log 9.", full, Rational(2, 25) * log(9), "scalar", ()),
            Step(
                "Along any direction v the coarse KL bends by the variance of v under π, less M times its "
                "variance within the tail.",
                curvature,
                variance - M * within,
                hypotheses=TAIL,
            ),
            Step(
                "For a direction that only moves the tail's shape this is negative as soon as M > P: minus "
                "(M − P)/P times a sum of squares.",
                -bend,
                (M - P) / P * hidden(lambda i: p[i] * centred[i] ** 2),
                kind="nonneg",
                hypotheses=inside,
            ),
        ),
        mutants=(
            Mutant("Convex like the full forward KL.", curvature, variance, TAIL),
            Mutant("The mass of π in place of that of μ.", curvature, variance - P * within, TAIL),
        ),
        assumptions=(*SPLIT, "Σ_tail π_i c_i = 0, so that c moves no mass between the tail and the rest"),
        aliases=(
            alias("D_coarse″", "d²/dt² at t = 0 of the coarse forward KL along t v", curvature),
            alias("−D_coarse″(c)", "minus the same along the tail's own direction, v_i = h_i c_i", -bend),
            alias("Var(v)", "Σ π v² − (Σ π v)², the variance under π", variance),
            alias("Var_tail(v)", "the variance within the tail", within),
            *MASSES,
        ),
        sample=_draw_heavier,
    )


def _draw_heavier(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """The same pair with the tail heavier under mu."""
    pair = draw_pair(rng, size)
    pi, mask, values = pair["m"], pair["h"], pair["c"]
    centre = (mask * pi * values).sum() / (mask * pi).sum()
    return {**pair, "p": pi, "m": pair["p"], "c": values - centre}


THEOREMS = (missed, upper_bound, everything_hidden)
