r"""T1, softmax: how probabilities move when logits move, for any vocabulary size.

Everything later rests on two facts: the Jacobian d pi_i / d z_j = pi_i (delta_ij - pi_j), and the
exponential path, which says what a finite step along a direction v does to pi without mentioning
logits.
"""

from collections.abc import Callable
from typing import Any

from sympy import Derivative, Expr, KroneckerDelta, Symbol, diff, exp, log

from divsim.formulas.softmax import entropy as shipped_entropy
from divsim.formulas.softmax import exponential_path as shipped_path
from divsim.formulas.softmax import log_softmax as shipped_log_softmax
from divsim.formulas.softmax import policy_gradient_direction as shipped_direction

from .notation import j, k, mean, p, specialise, t, total, v, z
from .theorem import Mutant, Step, Theorem, alias
from .trace import MASKED, stepped, trace


def softmax(i: Any, logits: Any = z) -> Expr:
    """The policy at token i, from logits."""
    return exp(logits[i]) / total(lambda a: exp(logits[a]))


def path(i: Any, step: Any = t, direction: Any = v) -> Expr:
    """The policy at token i after the logits moved by `step * direction`, written from p alone."""
    return p[i] * exp(step * direction[i]) / total(lambda a: p[a] * exp(step * direction[a]))


def slope(divergence: Callable[[Any], Any], direction: Callable[[Any], Any]) -> Expr:
    """d/dt at t = 0 of a function of the policy while the logits move along t times `direction(i)`."""
    along = diff(divergence(lambda i: path(i, t)), t).subs(t, 0)
    return specialise(along, v, direction)


def path_mean(body: Any, step: Any = t, direction: Any = v) -> Expr:
    """Expectation of `body(i)` under the policy on the path."""
    return total(lambda i: path(i, step, direction) * body(i))


def path_cumulant(order: int, step: Any = t) -> Expr:
    """Cumulant of v under the policy on the path, for orders 2, 3 and 4."""
    average = path_mean(lambda i: v[i], step)
    central = path_mean(lambda i: (v[i] - average) ** order, step)
    return central - 3 * path_cumulant(2, step) ** 2 if order == 4 else central


def jacobian() -> Theorem:
    """T1a."""
    derivative = Derivative(softmax(k), z[j])
    return Theorem(
        id="T1a",
        title="Jacobian of softmax",
        statement=r"\partial \pi_k / \partial z_j = \pi_k (\delta_{kj} - \pi_j)",
        scope="Any vocabulary size, one free logit per token. A network's logits share weights: this is "
        "about logits alone.",
        tier="G",
        steps=(
            Step(
                "Differentiate exp(z_k) / Σ exp(z) by the quotient rule: raising logit j raises token j and "
                "takes from every token in proportion to its probability.",
                derivative,
                softmax(k) * (KroneckerDelta(k, j) - softmax(j)),
            ),
            Step(
                "The changes of all probabilities add up to zero, because probabilities add up to one.",
                total(lambda i: Derivative(softmax(i), z[j])),
                0,
            ),
            Step(
                "So the gradient of log π_k is e_k − π, the direction in which a sampled token pushes.",
                Derivative(log(softmax(k)), z[j]),
                KroneckerDelta(k, j) - softmax(j),
            ),
        ),
        mutants=(
            Mutant("The minus sign lost.", derivative, softmax(k) * (KroneckerDelta(k, j) + softmax(j))),
            Mutant("The Jacobian taken for diagonal.", derivative, softmax(k) * KroneckerDelta(k, j)),
            Mutant("The factor π_k lost.", derivative, KroneckerDelta(k, j) - softmax(j)),
        ),
        aliases=(alias("π_{}", "softmax(z) at token i", softmax),),
        traces=(
            trace(
                "softmax.policy_gradient_direction",
                lambda case: shipped_direction(case.log_pi, case.k),
                KroneckerDelta(j, k) - p[j],
            ),
            trace(
                "softmax.log_softmax",
                lambda case: shipped_log_softmax(case.vector(z)),
                log(softmax(j)),
                cases=stepped(z)[:4],
            ),
            trace(
                "softmax.entropy",
                lambda case: shipped_entropy(case.log_pi),
                -total(lambda i: p[i] * log(p[i])),
                cases=MASKED,
            ),
        ),
    )


def exponential_path() -> Theorem:
    """T1b."""
    shifted = exp(z[k] + t * v[k]) / total(lambda a: exp(z[a] + t * v[a]))
    from_policy = softmax(k) * exp(t * v[k]) / total(lambda a: softmax(a) * exp(t * v[a]))
    drift = path_mean(lambda i: v[i])
    variance = path_mean(lambda i: v[i] ** 2) - drift**2
    speed, bend, c = Derivative(path(k), t), Derivative(path(k), (t, 2)), Symbol("c", real=True)
    return Theorem(
        id="T1b",
        title="The exponential path",
        statement=r"\pi_k(t) = \frac{\pi_k e^{t v_k}}{\sum_i \pi_i e^{t v_i}}, \quad "
        r"\pi_k' = \pi_k (v_k - E v), \quad \pi_k'' = \pi_k [(v_k - E v)^2 - \mathrm{Var}\, v]",
        scope="Any vocabulary size, any direction v in logit space, every step size t; E and Var under π(t).",
        tier="G",
        steps=(
            Step(
                "Softmax of z + t v needs only the old probabilities: the normaliser of softmax cancels.",
                shifted,
                from_policy,
            ),
            Step(
                "A token gains probability when its logit rises faster than the average logit.",
                speed,
                path(k) * (v[k] - drift),
            ),
            Step(
                "The second derivative compares the squared lead with the variance.",
                bend,
                path(k) * ((v[k] - drift) ** 2 - variance),
            ),
            Step(
                "A constant added to every logit changes nothing: the path along v + c is that along v.",
                p[k] * exp(t * (v[k] + c)) / total(lambda a: p[a] * exp(t * (v[a] + c))),
                path(k),
            ),
        ),
        mutants=(
            Mutant("The average taken under π(0).", speed, path(k) * (v[k] - mean(p, lambda i: v[i]))),
            Mutant("The variance forgotten.", bend, path(k) * (v[k] - drift) ** 2),
            Mutant("The normaliser forgotten.", shifted, softmax(k) * exp(t * v[k])),
        ),
        aliases=(
            alias("π_{}", "softmax(z) at token i", softmax),
            alias("π_{}(t)", "the policy at token i on the path", path),
        ),
        traces=(
            trace(
                "softmax.exponential_path",
                lambda case: shipped_path(case.log_pi, case.vector(v), case.number(t)),
                log(path(j)),
                cases=stepped(v)[:4],
            ),
        ),
    )


THEOREMS = (jacobian, exponential_path)
