r"""T3, finite steps: what D = KL(mu || pi) does when a step is not infinitesimal.

The change of D along a logit line is known exactly, at the cost of one pass over the vocabulary; its
derivatives are cumulants of the direction, and convexity makes half of all first-order predictions certain.
Upper sides are in `curvature_bounds.py`, the step where a predicted decrease ends in `flip_step.py`, and the
failure at coarser resolutions in `coarse_certainty.py`.
"""

from sympy import Derivative, Expr, Subs, Symbol, exp, log

from divsim.formulas.change import curvature as shipped_curvature
from divsim.formulas.change import finite_change as shipped_finite_change
from divsim.formulas.softmax import policy_gradient_direction

from .coarse_certainty import coarse_certainty_fails
from .curvature_bounds import third_cumulant, upper_side
from .facts import LOG_TANGENT
from .flip_step import flip_step
from .forward_kl import change, forward_kl, moved_kl, slope, token_step
from .hypotheses import SIMPLEX, nonneg_all
from .notation import k, m, mean, p, s, specialise, total, v
from .softmax import path, path_cumulant, path_mean
from .theorem import Mutant, Step, Theorem, alias
from .trace import stepped, trace

RISE = moved_kl() - forward_kl()
RATE, BEND = Derivative(moved_kl(), s), Derivative(moved_kl(), (s, 2))
BACKWARD = total(lambda i: p[i] * log(p[i] / path(i, s)))
D_AFTER = alias("D(s)", "KL(μ‖π(s)), the divergence after the step s along v", moved_kl())
D_BEFORE = alias("D(0)", "KL(μ‖π)", forward_kl())
MOVED = alias("π_{}(s)", "the policy after the step s along v", lambda i: path(i, s))


def exact_change() -> Theorem:
    """T3a."""
    partition = total(lambda i: p[i] * exp(s * v[i]))
    exact = log(partition) - s * mean(m, lambda i: v[i])
    averages = path_mean(lambda i: v[i], s) - mean(m, lambda i: v[i])
    variance, third = path_cumulant(2, s), path_cumulant(3, s)
    shipped = trace(
        "change.finite_change",
        lambda case: shipped_finite_change(case.log_mu, case.log_pi, case.vector(v)),
        exact.subs(s, 1),
        cases=stepped(v),
    )
    return Theorem(
        id="T3a",
        title="The exact change of forward KL along a logit line",
        statement=r"D(s) - D(0) = \log E_\pi[e^{s v}] - s\, E_\mu[v], \qquad "
        r"D^{(n)}(s) = \kappa_n(v) \; (n \ge 2)",
        scope="Any vocabulary size, any direction v, every step size s; v = e_k − π is one token's own step. "
        "The higher derivatives do not depend on μ. A network's logits do not move along a line.",
        tier="G",
        steps=(
            Step("All that the sum over μ sees of the path is its normaliser, one number.", RISE, exact),
            Step("The first derivative compares the averages of v under π(s) and under μ.", RATE, averages),
            Step(
                "Its derivative is the variance of v under π(s): μ has gone.",
                Derivative(averages, s),
                variance,
            ),
            Step("The derivative of the variance is the third cumulant.", Derivative(variance, s), third),
            Step("The derivative of that is the fourth.", Derivative(third, s), path_cumulant(4, s)),
        ),
        mutants=(
            Mutant("The average of v taken under π.", RISE, log(partition) - s * mean(p, lambda i: v[i])),
            Mutant("The wrong sign.", RISE, -exact),
            Mutant("The second moment.", Derivative(averages, s), path_mean(lambda i: v[i] ** 2, s)),
            Mutant("The fourth central moment.", Derivative(third, s), path_cumulant(4, s) + 3 * variance**2),
        ),
        aliases=(D_AFTER, D_BEFORE, MOVED),
        traces=(shipped,),
    )


def second_order() -> Theorem:
    """T3b."""
    square, cube = total(lambda i: p[i] ** 2), total(lambda i: p[i] ** 3)
    variance = mean(p, lambda i: token_step(i) ** 2) - mean(p, token_step) ** 2
    closed = p[k] - 3 * p[k] ** 2 + 2 * p[k] * square + cube - square**2
    moved = specialise(moved_kl(), v, token_step)
    shipped = trace(
        "change.curvature",
        lambda case: shipped_curvature(case.log_pi, policy_gradient_direction(case.log_pi, case.k)),
        closed,
    )
    return Theorem(
        id="T3b",
        title="The second-order change under one token's step",
        statement=r"D(s) - D(0) \approx s\, c_k + \tfrac{1}{2} s^2 V_0, \quad "
        r"V_0 = \pi_k - 3 \pi_k^2 + 2 \pi_k S_2 + S_3 - S_2^2",
        scope="Any vocabulary size, one token's own logit step; S_2 and S_3 are Σ π² and Σ π³. An expansion, "
        "not a bound: the exact change is T3a.",
        tier="G",
        steps=(
            Step(
                "The second derivative at s = 0 is the variance of e_k − π under π.",
                Subs(Derivative(moved, (s, 2)), s, 0),
                variance,
            ),
            Step("Written out, the variance needs two power sums of π.", variance, closed, polynomial=True),
            Step(
                "The same number, grouped as second moment minus squared mean.",
                closed,
                p[k] - 2 * p[k] ** 2 + cube - (p[k] - square) ** 2,
                polynomial=True,
            ),
        ),
        mutants=(
            Mutant("The squared mean forgotten.", variance, p[k] - 2 * p[k] ** 2 + cube),
            Mutant("The cross term halved.", variance, closed - p[k] * square),
            Mutant("The variance of a Bernoulli variable instead.", variance, p[k] * (1 - p[k])),
        ),
        aliases=(alias("D(s)", "KL(μ‖π(s)) after the step s along e_k − π", moved),),
        traces=(shipped,),
    )


def _gap(i: object) -> Expr:
    """x - 1 - log x at x = pi_i(s) / pi_i."""
    ratio = path(i, s) / p[i]
    return ratio - 1 - log(ratio)


def one_sided_certainty() -> Theorem:
    """T3c."""
    pairs = total(lambda i, h: path(i, s) * path(h, s) * (v[i] - v[h]) ** 2)
    forward = total(lambda i: path(i, s) * log(path(i, s) / p[i]))
    known = (*SIMPLEX, nonneg_all(_gap))
    return Theorem(
        id="T3c",
        title="A predicted increase is certain at every step size",
        statement=r"D(s) - D(0) - s\, c_k = \mathrm{KL}(\pi \| \pi(s)) \ge 0 \quad \text{for every } s",
        scope="Full forward KL, any vocabulary size, one logit line, every step size. If s c_k > 0 then D "
        "rises: the full-vocabulary mask never blocks a single token's logit step that would have lowered D. "
        "Not for the coarse (top-K) KL (T3h), not for reverse KL or TV, not for many tokens at once, and not "
        "for a network, which is not linear in its logits. The ratio test has the same property in its own "
        "geometry.",
        tier="G",
        steps=(
            Step(
                "What the first order misses is exactly the divergence from the old policy to the new one.",
                RISE - s * slope(),
                BACKWARD,
            ),
            Step(
                "For one token's own step the slope is c_k.",
                specialise(slope(), v, token_step),
                change(),
                polynomial=True,
            ),
            Step(
                "That divergence is an average of x − 1 − log x at x = π_i(s)/π_i.",
                BACKWARD,
                mean(p, _gap),
                "nonneg",
                known,
            ),
            LOG_TANGENT,
            Step(
                "Another way to see it: D is convex along the line, because its second derivative is a sum "
                "of squares over pairs of tokens.",
                BEND,
                pairs / 2,
                "nonneg",
            ),
        ),
        mutants=(
            Mutant("The two policies swapped.", RISE - s * slope(), forward),
            Mutant("The slope with the wrong sign.", RISE + s * slope(), BACKWARD),
            Mutant("Each pair counted twice.", BEND, pairs),
        ),
        aliases=(D_AFTER, D_BEFORE, alias("KL(π‖π(s))", "what the step itself costs", BACKWARD), MOVED),
    )


def from_the_anchor() -> Theorem:
    """T3d."""
    start, x = specialise(moved_kl(), m, lambda i: p[i]), Symbol("x", positive=True)
    bend = Subs(Derivative(start, (s, 2)), s, 0)
    pairs = total(lambda i, h: p[i] * p[h] * (v[i] - v[h]) ** 2)
    return Theorem(
        id="T3d",
        title="From π = μ every step raises the divergence",
        statement=r"\pi = \mu: \quad c_k = 0, \qquad D(s) \approx \tfrac{1}{2} s^2 V_0",
        scope="The first step after a rollout, any vocabulary size, one logit line: c_k has no sign there.",
        tier="G",
        steps=(
            Step(
                "Both the local and the global term vanish at μ = π; here μ is x π.",
                Subs(specialise(change(), m, lambda i: x * p[i]), x, 1),
                0,
            ),
            Step("So does the slope along any direction.", Subs(Derivative(start, s), s, 0), 0),
            Step(
                "The second derivative is a variance, positive unless v is constant.",
                bend,
                pairs / 2,
                "nonneg",
            ),
        ),
        mutants=(
            Mutant("c_k taken to vanish everywhere.", change(), 0),
            Mutant("The factor 1/2 lost.", bend, pairs),
        ),
        aliases=(alias("D(s)", "KL(π‖π(s)), where μ = π", start),),
    )


THEOREMS = (
    exact_change,
    second_order,
    one_sided_certainty,
    from_the_anchor,
    upper_side,
    third_cumulant,
    flip_step,
    coarse_certainty_fails,
)
