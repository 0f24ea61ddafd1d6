r"""T10, exact gradients and whole batches: forward KL when the step is not one sampled token's.

With exact action values the policy gradient moves KL by a covariance, and the natural gradient, which is
also the mirror step, moves it by exactly the improvement already made. Steps of several tokens add up to
first order only.
"""

from collections.abc import Sequence
from typing import Any

from sympy import Expr, IndexedBase, KroneckerDelta, exp, log

import divsim.formulas as shipped

from .divergence_table import curvature, moved, slope
from .expectations import change, covariance, gap
from .facts import GIBBS
from .forward_kl import forward_kl
from .intervals import enclose, is_negative, is_positive, iv, policy, shown
from .notation import j, k, m, mean, p, s, t, total, v
from .softmax import path
from .symbolic import SymbolicArray
from .theorem import Mutant, Step, Theorem, Verdict, alias
from .trace import UNTIED, Case, trace

Q = IndexedBase("Q", real=True)  # action values
y = IndexedBase("y", real=True)  # summed step sizes s_b of the sampled tokens that are token i


def value(i: Any) -> Expr:
    """The action value of token i."""
    return Q[i]


def policy_gradient() -> Theorem:
    """T10a."""

    def step(i: Any) -> Any:
        return p[i] * (Q[i] - mean(p, value))

    along = mean(p, step) - mean(m, step)
    return Theorem(
        id="T10a",
        title="Forward KL under the exact policy gradient",
        statement=r"dz = \eta\, \pi (Q - V): \quad \frac{dD}{d\eta} = \mathrm{Cov}_\pi(Q, \pi - \mu), "
        r"\quad V = E_\pi Q",
        scope="Any vocabulary size, one state with given action values, an infinitesimal step on free "
        "logits. The sign can be either: the exact gradient may move π towards μ.",
        tier="G",
        steps=(
            Step(
                "The change along the step is the difference of its averages under π and μ.",
                slope(forward_kl, step),
                along,
            ),
            Step(
                "Here this is a covariance of value and gap.", along, covariance(value, gap), polynomial=True
            ),
        ),
        mutants=(
            Mutant("The factor π forgotten.", slope(forward_kl, step), mean(p, value) - mean(m, value)),
            Mutant(
                "The covariance under μ.",
                along,
                mean(m, lambda i: Q[i] * gap(i)) - mean(m, value) * mean(m, gap),
            ),
            Mutant("The sign turned round.", along, -covariance(value, gap)),
        ),
        aliases=(alias("D(t)", "forward KL after the step t", moved(forward_kl, step)),),
    )


def natural_policy_gradient() -> Theorem:
    """T10b."""
    improvement = mean(p, value) - mean(m, value)
    times_fisher = p[j] * (Q[j] - mean(p, value))
    gradient = slope(mean_value)
    return Theorem(
        id="T10b",
        title="Natural gradient: KL grows by the improvement already made",
        statement=r"dz = \eta\, Q: \quad \frac{dD}{d\eta} = J(\pi) - J(\mu), \quad J(\pi) = E_\pi Q",
        scope="Any vocabulary size, one state, the saturated softmax, fixed action values, an "
        "infinitesimal step. Where π is worse than μ the natural gradient first lowers KL.",
        tier="G",
        steps=(
            Step(
                "The gradient of J in the logits is π (Q − V), by the change along any direction v,",
                gradient,
                total(lambda i: p[i] * (Q[i] - mean(p, value)) * v[i]),
            ),
            Step(
                "which is the Fisher matrix diag(π) − π πᵀ times Q: the natural gradient is Q, up to a "
                "constant (T5g).",
                total(lambda i: (KroneckerDelta(i, j) * p[j] - p[i] * p[j]) * Q[i]),
                times_fisher,
                polynomial=True,
            ),
            Step(
                "Along it KL changes by the difference of the two values.",
                slope(forward_kl, value),
                improvement,
            ),
        ),
        mutants=(
            Mutant("The rate is the value itself.", slope(forward_kl, value), mean(p, value)),
            Mutant("The rate has the other sign.", slope(forward_kl, value), -improvement),
            Mutant("The Fisher matrix taken for diagonal.", p[j] * Q[j], times_fisher),
            Mutant("The baseline under μ.", gradient, total(lambda i: p[i] * (Q[i] - mean(m, value)) * v[i])),
        ),
        aliases=(
            alias("J(t)", "E Q after the step t along v", moved(mean_value)),
            alias("D(t)", "forward KL after the step t along Q", moved(forward_kl, value)),
        ),
        traces=(
            trace(
                "change.directional_change",
                lambda case: shipped.directional_change(
                    shipped.FORWARD_KL, case.log_mu, case.log_pi, case.vector(Q)
                ),
                improvement,
                UNTIED[6:12:3],
            ),
        ),
    )


def mean_value(at_policy: Any) -> Expr:
    """J of a policy."""
    return total(lambda i: at_policy(i) * Q[i])


def mirror_step() -> Theorem:
    """T10c."""
    normaliser = total(lambda i: m[i] * exp(s * Q[i]))

    def moved(i: Any) -> Any:
        return m[i] * exp(s * Q[i]) / normaliser

    there, back = forward_kl(moved), total(lambda i: moved(i) * log(moved(i) / m[i]))
    improvement = mean_value(moved) - mean(m, value)
    return Theorem(
        id="T10c",
        title="One mirror step: the two KLs add up to the improvement",
        statement=r"\pi_s \propto \mu\, e^{s Q}: \quad KL(\mu\|\pi_s) + KL(\pi_s\|\mu) = s\, (J(\pi_s) - "
        r"J(\mu))",
        scope="Any vocabulary size, one state, fixed action values, every step size s; the step starts at μ.",
        tier="G",
        steps=(
            Step("Forward KL is what the normaliser costs.", there, log(normaliser) - s * mean(m, value)),
            Step("Reverse KL is what the tilt earns.", back, s * mean_value(moved) - log(normaliser)),
            Step(
                "In the sum the normaliser cancels; neither divergence is negative, so J rises for s > 0 "
                "unless "
                "nothing moves.",
                there + back,
                s * improvement,
            ),
            GIBBS,
        ),
        mutants=(
            Mutant("Forward KL alone.", there, s * improvement),
            Mutant("The step size lost.", there + back, improvement),
            Mutant("The difference of the divergences.", there - back, s * improvement),
        ),
        aliases=(
            alias("KL(μ‖π_s)", "forward KL after the step", there),
            alias("KL(π_s‖μ)", "reverse KL after the step", back),
            alias("J(π_s)", "E Q after the step", mean_value(moved)),
            alias("J(μ)", "E Q before it", mean(m, value)),
            alias("Z", "the normaliser", normaliser),
        ),
    )


def batch(i: Any) -> Expr:
    """The summed step of a batch, sum_j y_j (delta_ij - pi_i)."""
    return y[i] - p[i] * total(lambda h: y[h])


def cross_term(a: Any, b: Any) -> Expr:
    """Cov_pi(e_a - pi, e_b - pi), written out."""
    square, cube = total(lambda i: p[i] ** 2), total(lambda i: p[i] ** 3)
    diagonal = KroneckerDelta(a, b) * p[a] - p[a] ** 2 - p[b] ** 2 + cube
    return diagonal - (p[a] - square) * (p[b] - square)


def _joint_overshoot() -> Verdict:
    mu, pi = ([enclose(mass) for mass in policy(weights)] for weights in ((1, 2, 2), (1, 1, 3)))
    rises = [_rise(mu, pi, steps) for steps in ((0, 1, 0), (0, 0, -2), (0, 1, -2))]
    holds = is_negative(rises[0]) and is_negative(rises[1]) and is_positive(rises[2])
    numbers = "{} and {} alone, {} together".format(*map(shown, rises))
    return Verdict(
        holds, f"μ = (1, 2, 2)/5, π = (1, 1, 3)/5, steps 1 on token 2 and −2 on token 3: {numbers}"
    )


def _rise(mu: Sequence[Any], pi: Sequence[Any], steps: Sequence[int]) -> Any:
    """The exact change of forward KL, log E_pi[e^v] - E_mu[v] (T3a), for given steps on the tokens."""
    direction = [own - mass * sum(steps) for own, mass in zip(steps, pi, strict=True)]
    normaliser = sum(mass * iv.exp(move) for mass, move in zip(pi, direction, strict=True))
    return iv.log(normaliser) - sum(mass * move for mass, move in zip(mu, direction, strict=True))


def _shipped_batch(case: Case) -> SymbolicArray:
    return SymbolicArray([case.number(entry) for entry in case.explicit(batch(j))])


def minibatch() -> Theorem:
    """T10d."""

    def score(token: Any) -> Any:
        return lambda i: KroneckerDelta(i, token) - p[i]

    bend = curvature(forward_kl, batch)
    averages, summed = mean(p, batch) - mean(m, batch), total(lambda i: y[i] * change(i))
    along_v = mean(p, lambda i: v[i]) - mean(m, lambda i: v[i])
    missed = moved(forward_kl) - forward_kl() - t * along_v
    return Theorem(
        id="T10d",
        title="A minibatch: first order adds up, second order does not",
        statement=r"v = \sum_b s_b (e_{k_b} - \pi): \quad D' = \sum_b s_b c_{k_b}, \quad D'' = "
        r"\sum_{b, b'} s_b s_{b'} C_{k_b k_{b'}}, \quad C_{kj} = \delta_{kj} \pi_k - \pi_k^2 - \pi_j^2 + S_3 "
        r"- (\pi_k - S_2)(\pi_j - S_2)",
        scope="Any vocabulary size, any number of sampled tokens at one state, free logits. A positive "
        "total prediction is certain at every step size; votes of single tokens are not: steps that each "
        "lower D can raise it together. Tokens at other states act through shared weights, which is not "
        "covered.",
        tier="G",
        steps=(
            Step(
                "The change along the summed step is a difference of averages.",
                slope(forward_kl, batch),
                averages,
            ),
            Step("To first order the tokens' own changes add up.", averages, summed, polynomial=True),
            Step(
                "The covariance of the scores of tokens k and j is not zero.",
                covariance(score(k), score(j)),
                cross_term(k, j),
            ),
            Step(
                "The second derivative is a double sum over the batch of these covariances.",
                bend,
                total(lambda a, b: y[a] * y[b] * cross_term(a, b)),
            ),
            Step(
                "What the first order misses is KL(π‖π(t)), along the summed step as along any other.",
                missed,
                total(lambda i: p[i] * log(p[i] / path(i))),
            ),
            GIBBS,
            Step(
                "Two steps that each lower KL can raise it together.", kind="exact", decide=_joint_overshoot
            ),
        ),
        mutants=(
            Mutant(
                "No cross terms: every token's own variance alone.",
                bend,
                total(lambda a: y[a] ** 2 * cross_term(a, a)),
            ),
            Mutant(
                "The scores taken for independent.",
                covariance(score(k), score(j)),
                KroneckerDelta(k, j) * cross_term(k, k),
            ),
            Mutant("The local terms alone.", averages, total(lambda i: y[i] * gap(i))),
            Mutant("KL with its arguments swapped.", missed, total(lambda i: path(i) * log(path(i) / p[i]))),
        ),
        aliases=(
            alias("D(t)", "forward KL after the step t along v", moved(forward_kl)),
            alias("D(b)", "forward KL after a step along the batch's v", moved(forward_kl, batch)),
            alias("D", "forward KL before it", forward_kl()),
            alias("π_{}(t)", "the policy on the path", path),
            alias("S₂", "Σ π²", total(lambda i: p[i] ** 2)),
            alias("S₃", "Σ π³", total(lambda i: p[i] ** 3)),
        ),
        traces=(
            trace(
                "change.curvature",
                lambda case: shipped.curvature(case.log_pi, _shipped_batch(case)),
                total(lambda a, b: y[a] * y[b] * cross_term(a, b)),
                UNTIED[:1],
            ),
        ),
    )


THEOREMS = (policy_gradient, natural_policy_gradient, mirror_step, minibatch)
