r"""T6, expectations: what the first-order change is on average over the sampled token.

One token's change c_k tells little about the whole batch. Averaged over the tokens that mu samples, with
the ratio as importance weight, it becomes a covariance under pi, for every smooth divergence.
"""

from dataclasses import replace
from typing import Any

from sympy import Expr, IndexedBase, KroneckerDelta, Symbol

import divsim.formulas as shipped

from . import divergence_table as table
from . import forward_kl
from .divergence_table import here
from .notation import at, j, k, m, mean, p, total
from .symbolic import xp
from .theorem import Mutant, Step, Theorem, Trace, alias
from .trace import UNTIED, Case, trace

A = IndexedBase("A", real=True)  # advantage of each token
q = IndexedBase("q", real=True)  # logit gradient of any smooth divergence
shift = Symbol("shift", real=True)


def change(i: Any) -> Expr:
    """c_i of forward KL."""
    return at(forward_kl.change(), k, i)


CHANGE = (alias("c_{}", "π_i − μ_i + Σ_j π_j (μ_j − π_j)", change),)


def change_of(i: Any, gradient: Any) -> Expr:
    """c_i of a divergence with this logit gradient."""
    return gradient(i) - mean(p, gradient)


def ratio(i: Any) -> Expr:
    """pi_i / mu_i."""
    return p[i] / m[i]


def covariance(first: Any, second: Any) -> Expr:
    """Cov_pi."""
    return mean(p, lambda i: first(i) * second(i)) - mean(p, first) * mean(p, second)


def advantage(i: Any) -> Expr:
    """The advantage of token i."""
    return A[i]


def gap(i: Any) -> Expr:
    """d_i = pi_i - mu_i."""
    return p[i] - m[i]


def _average(case: Case, of_token: Any) -> Any:
    """E_mu[A r x] of a shipped x, token by token; mu r is pi."""
    pi, weights = xp.exp(case.log_pi), case.vector(A)
    return sum(pi[i] * weights[i] * of_token(replace(case, action=i)) for i in range(len(case.pi)))


def _trace_of(divergence: shipped.Divergence, gradient: Any) -> Trace:
    return trace(
        "change.change",
        lambda case: _average(case, lambda each: shipped.change(each.full_view, divergence)),
        covariance(advantage, gradient),
        UNTIED[6:12:3],
    )


def without_advantage() -> Theorem:
    """T6a."""
    squared_distance = total(lambda i: gap(i) ** 2)
    return Theorem(
        id="T6a",
        title="The change averages to zero under π and to −|π − μ|² under μ",
        statement=r"E_\pi[c] = 0, \qquad E_\mu[r\, c] = 0, \qquad E_\mu[c] = -|\pi - \mu|^2",
        scope="Forward KL, any vocabulary size, the sampled token drawn from μ (or π), first order. An "
        "advantage that does not depend on the token therefore has no first-order effect on D on "
        "average; the second order, a variance, is never negative (T3b).",
        tier="G",
        steps=(
            Step(
                "c is d minus its average under π, so its average under π is zero.",
                mean(p, change),
                0,
                polynomial=True,
            ),
            Step(
                "The importance weight r turns an average under μ into one under π.",
                mean(m, lambda i: ratio(i) * change(i)),
                0,
                polynomial=True,
            ),
            Step(
                "Without the weight the average is minus the squared distance of the two policies.",
                mean(m, change),
                -squared_distance,
                polynomial=True,
            ),
        ),
        mutants=(
            Mutant("The average under μ is zero.", mean(m, change), 0),
            Mutant("The sign of the distance lost.", mean(m, change), squared_distance),
            Mutant("The global term left out.", mean(p, gap), 0),
            Mutant("The weight squared.", mean(m, lambda i: ratio(i) ** 2 * change(i)), 0),
        ),
        aliases=CHANGE,
    )


def with_advantage() -> Theorem:
    """T6b."""
    weighted = mean(m, lambda i: A[i] * ratio(i) * change(i))
    shifted = mean(m, lambda i: (A[i] + shift) * ratio(i) * change(i))
    return Theorem(
        id="T6b",
        title="Weighted by advantage, the average change is a covariance",
        statement=r"E_\mu[A\, r\, c] = \mathrm{Cov}_\pi(A, \pi - \mu), \text{ unchanged by } A \to A + b",
        scope="Forward KL, any vocabulary size, any advantages that depend on the token alone, one "
        "state, first order, the unmasked gradient; nothing is claimed for masked or capped weights.",
        tier="G",
        steps=(
            Step(
                "On average D rises when tokens that π already favours over μ have the larger advantages.",
                weighted,
                covariance(advantage, gap),
                polynomial=True,
            ),
            Step("A baseline drops out, because r c has mean zero.", shifted, weighted, polynomial=True),
        ),
        mutants=(
            Mutant(
                "The covariance under μ.",
                weighted,
                mean(m, lambda i: A[i] * gap(i)) - mean(m, advantage) * mean(m, gap),
            ),
            Mutant("The product of the means forgotten.", weighted, mean(p, lambda i: A[i] * gap(i))),
            Mutant("The weight forgotten.", mean(m, lambda i: A[i] * change(i)), covariance(advantage, gap)),
            Mutant("A baseline that counts.", shifted, weighted + shift * mean(p, gap)),
        ),
        aliases=CHANGE,
        traces=(_trace_of(shipped.FORWARD_KL, gap),),
    )


def every_divergence() -> Theorem:
    """T6c."""

    def gradient(i: Any) -> Any:
        return q[i]

    weighted = mean(m, lambda i: A[i] * ratio(i) * change_of(i, gradient))
    return Theorem(
        id="T6c",
        title="The same covariance for every smooth divergence",
        statement=r"E_\mu[A\, r\, c^D] = \mathrm{Cov}_\pi(A, \nabla_z D)",
        scope="Any divergence with a logit gradient q, any vocabulary size, one state, first order, the "
        "unmasked gradient.",
        tier="G",
        steps=(
            Step(
                "c^D is the gradient at the token minus its average under π, so the average change is a "
                "covariance.",
                weighted,
                covariance(advantage, gradient),
                polynomial=True,
            ),
            Step(
                "With A constant it vanishes.",
                mean(m, lambda i: ratio(i) * change_of(i, gradient)),
                0,
                polynomial=True,
            ),
            Step("Forward KL is the case q = π − μ.", change_of(j, gap), change(j), polynomial=True),
        ),
        mutants=(
            Mutant("The gradient not centred.", weighted, mean(p, lambda i: A[i] * q[i])),
            Mutant("The sum over tokens in place of the covariance.", weighted, total(lambda i: A[i] * q[i])),
            Mutant("The sign lost.", weighted, -covariance(advantage, gradient)),
        ),
        traces=(_trace_of(shipped.REVERSE_KL, lambda i: table.REVERSE_KL.gradient(here, i)),),
    )


def expected_step() -> Theorem:
    """T6d."""
    step = mean(m, lambda i: A[i] * ratio(i) * (KroneckerDelta(i, j) - p[j]))
    exact = p[j] * (A[j] - mean(p, advantage))
    return Theorem(
        id="T6d",
        title="The sampled steps average to the exact policy gradient",
        statement=r"E_\mu[A\, r\, (e_k - \pi)] = \pi\, (A - E_\pi A)",
        scope="Any vocabulary size, one state, the unmasked gradient with the plain ratio; nothing is "
        "claimed for a mask or a cap.",
        tier="G",
        steps=(
            Step(
                "Each logit moves in proportion to its probability and its lead in advantage.",
                step,
                exact,
                polynomial=True,
            ),
        ),
        mutants=(
            Mutant("The factor π lost, which is the natural gradient.", step, A[j] - mean(p, advantage)),
            Mutant("The average of A under μ.", step, p[j] * (A[j] - mean(m, advantage))),
            Mutant("The ratio forgotten.", mean(m, lambda i: A[i] * (KroneckerDelta(i, j) - p[j])), exact),
        ),
        traces=(
            trace(
                "softmax.policy_gradient_direction",
                lambda case: _average(
                    case, lambda each: shipped.policy_gradient_direction(each.log_pi, each.k)
                ),
                exact,
                UNTIED[:1],
            ),
        ),
    )


THEOREMS = (without_advantage, with_advantage, every_divergence, expected_step)
