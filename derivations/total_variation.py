r"""T4j and T4k, total variation: the gradient away from ties, and the one-sided derivatives at a tie.

|x| has no derivative at 0, so TV has none where some pi_i = mu_i. A logit line through such a point
arrives with one slope and leaves with another; the shipped gradient takes sign(0) = 0, their average.
"""

from typing import Any

import numpy as np
from sympy import Abs, Derivative, Expr, IndexedBase, Limit, Rational, Subs, exp, sign, symbols

import divsim.formulas as shipped

from .divergence_table import Policy, here
from .hypotheses import SIMPLEX, given_all
from .notation import j, k, m, mean, p, specialise, t, total, v, z
from .softmax import path, softmax
from .theorem import Mutant, Step, Theorem, alias
from .trace import PAIRS, UNTIED, trace

side = IndexedBase("side", real=True)  # sign(pi - mu): 0 at a tie
tie = IndexedBase("b", nonnegative=True)  # 1 at a tie, else 0
TIES = (*SIMPLEX, given_all(lambda i: (tie[i] * side[i], 0)))
x, y = symbols("x y", positive=True)
CASES = (*UNTIED[6:12:3], *PAIRS[len(UNTIED) :])  # every kind of tie, all tokens tied among them


def tv(policy: Policy) -> Expr:
    """TV(mu, policy), half the sum of absolute differences."""
    return total(lambda i: Abs(policy(i) - m[i])) / 2


def tv_gradient(policy: Policy, i: Any) -> Expr:
    """The closed logit gradient, with sign(0) = 0."""

    def signs(h: Any) -> Any:
        return sign(policy(h) - m[h])

    return policy(i) * (signs(i) - total(lambda h: policy(h) * signs(h))) / 2


def away_from_ties() -> Theorem:
    """T4j."""
    derivative = Derivative(tv(softmax), z[j])
    return Theorem(
        id="T4j",
        title="Total variation away from ties",
        statement=r"\partial TV / \partial z_j = \pi_j (s_j - E_\pi s) / 2, \qquad s = \mathrm{sign}(\pi "
        r"- \mu)",
        scope="Any vocabulary size, one free logit per token, π_i ≠ μ_i for every token. At a tie: T4k. "
        "Code: tv.measure, tv.logit_grad.",
        tier="G",
        steps=(
            Step(
                "TV is D_f with f(w) = |w − 1|/2, since y |x/y − 1| = |x − y|.",
                y * Abs(x / y - 1),
                Abs(x - y),
                kind="scalar",
                hypotheses=(),
            ),
            Step(
                "Away from ties |x| has the slope sign(x), so g is sign(π − μ)/2.",
                derivative,
                tv_gradient(softmax, j),
            ),
        ),
        mutants=(
            Mutant("The factor 1/2 lost.", derivative, 2 * tv_gradient(softmax, j)),
            Mutant("The sign turned round.", derivative, -tv_gradient(softmax, j)),
            Mutant("Not centred.", derivative, softmax(j) * sign(softmax(j) - m[j]) / 2),
        ),
        aliases=(
            alias("TV", "TV(μ, softmax(z))", tv(softmax)),
            alias("π_{}", "softmax(z) at token i", softmax),
        ),
        traces=(
            trace(
                "divergences.TV.measure",
                lambda case: shipped.TV.measure(case.log_mu, case.log_pi),
                tv(here),
                CASES,
            ),
            trace(
                "divergences.TV.logit_grad",
                lambda case: shipped.TV.logit_grad(case.log_mu, case.log_pi),
                tv_gradient(here, j),
                CASES,
            ),
        ),
    )


def _sample(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """The first token is tied, the others are not."""
    pi, mu = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    mu[0], mu[1:] = pi[0], mu[1:] / mu[1:].sum() * (1 - pi[0])
    is_tied = np.arange(size) == 0
    return {"p": pi, "m": mu, "b": is_tied.astype(float), "side": np.where(is_tied, 0.0, np.sign(pi - mu))}


def one_sided_derivatives() -> Theorem:
    """T4k."""

    def lead(i: Any) -> Any:
        return v[i] - mean(p, lambda h: v[h])

    kinks = total(lambda i: tie[i] * Abs(p[i] * lead(i))) / 2
    after = total(lambda i: side[i] * p[i] * lead(i)) / 2 + kinks
    before = -specialise(after, v, lambda i: -v[i])
    shipped = total(lambda i: p[i] * (side[i] - mean(p, lambda h: side[h])) * v[i]) / 2
    extra = mean(p, lambda i: tie[i] * Abs(lead(i))) / 2
    coin = Abs(exp(t) / (1 + exp(t)) - 1 / (1 + exp(t))) / 2
    return Theorem(
        id="T4k",
        title="Total variation at a tie: one-sided derivatives",
        statement=r"\frac{dTV}{dt}\Big|_{0\pm} = \nabla TV \cdot v \pm \tfrac{1}{2} \sum_{i:\, \pi_i = "
        r"\mu_i} \pi_i |v_i - E_\pi v|",
        scope="Any vocabulary size, any direction, any set of ties. With ties TV has no derivative along "
        "most directions: the first-order change of TV that the package computes is then the average of "
        "the two slopes.",
        tier="G",
        steps=(
            Step(
                "The right derivative of |h| at 0 is sign(h(0)) h'(0) where h(0) ≠ 0, and |h'(0)| where "
                "h(0) = 0.",
                kind="cited",
            ),
            Step(
                "Token k moves at the rate π_k (v_k − E v).",
                Subs(Derivative(path(k), t), t, 0),
                p[k] * lead(k),
            ),
            Step(
                "Summed over the tokens, the ties add a term that is never negative.",
                after,
                shipped + extra,
                hypotheses=TIES,
            ),
            Step(
                "Walking backwards is walking along −v, so before the tie the term is subtracted.",
                before,
                shipped - extra,
                hypotheses=TIES,
            ),
            Step(
                "The shipped gradient is the average of both.", (after + before) / 2, shipped, hypotheses=TIES
            ),
            Step(
                "Two equal coins, one logit raised: the slope is 1/4 after the tie.",
                Limit(coin / t, t, 0, "+"),
                Rational(1, 4),
                kind="scalar",
            ),
            Step("Before the tie it is −1/4.", Limit(coin / t, t, 0, "-"), -Rational(1, 4), kind="scalar"),
        ),
        mutants=(
            Mutant("The ties forgotten.", after, shipped, TIES),
            Mutant("The ties counted twice.", after, shipped + 2 * extra, TIES),
            Mutant("The ties added on both sides.", before, shipped + extra, TIES),
            Mutant(
                "The average of v left out.", after, shipped + mean(p, lambda i: tie[i] * Abs(v[i])) / 2, TIES
            ),
        ),
        assumptions=("side_i = sign(π_i − μ_i)", "b_i = 1 at ties and 0 elsewhere, so b_i side_i = 0"),
        sample=_sample,
    )


THEOREMS = (away_from_ties, one_sided_derivatives)
