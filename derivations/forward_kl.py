r"""T2, forward KL: how D = KL(mu || pi) moves when one sampled token is reinforced.

The policy-gradient step on the logits is dz = s (e_k - pi) with s = eta A r. To first order D changes
by s c_k, and c_k is the local term pi_k - mu_k plus one number that is the same for every token. Finite
steps are T3.
"""

from typing import Any

from sympy import Derivative, Expr, KroneckerDelta, Subs, Symbol, log

from divsim.formulas.change import change as shipped_change
from divsim.formulas.divergences import FORWARD_KL

from .notation import j, k, m, mean, n, p, s, specialise, total, v, z
from .softmax import path, softmax
from .theorem import Mutant, Step, Theorem, alias
from .trace import trace

eta = Symbol("eta", positive=True)
A = Symbol("A", real=True)


def forward_kl(policy: Any = lambda i: p[i]) -> Expr:
    """KL(mu || policy), the textbook definition."""
    return total(lambda i: m[i] * log(m[i] / policy(i)))


def moved_kl(step: Any = s) -> Expr:
    """D after the logits moved by `step * v`."""
    return forward_kl(lambda i: path(i, step))


def slope() -> Expr:
    """dD/ds at s = 0 along v: the average of v under pi minus the average under mu."""
    return mean(p, lambda i: v[i]) - mean(m, lambda i: v[i])


def token_step(i: Any) -> Expr:
    """Entry i of e_k - pi, the gradient of log pi_k in the logits."""
    return KroneckerDelta(i, k) - p[i]


def change() -> Expr:
    """c_k, the local term plus the global term."""
    return p[k] - m[k] + total(lambda i: p[i] * (m[i] - p[i]))


def gradient() -> Theorem:
    """T2a."""
    derivative = Derivative(forward_kl(softmax), z[j])
    reverse = total(lambda i: softmax(i) * log(softmax(i) / m[i]))
    return Theorem(
        id="T2a",
        title="Gradient of forward KL in the logits",
        statement=r"\partial D / \partial z_j = \pi_j - \mu_j",
        scope="Any vocabulary size, all probabilities positive, one free logit per token.",
        tier="G",
        steps=(
            Step(
                "Differentiate KL(μ‖π) with π = softmax(z): the logarithm turns the Jacobian of softmax into "
                "a difference.",
                derivative,
                softmax(j) - m[j],
            ),
        ),
        mutants=(
            Mutant("The arguments swapped.", derivative, m[j] - softmax(j)),
            Mutant("The reverse KL differentiated.", Derivative(reverse, z[j]), softmax(j) - m[j]),
            Mutant("The gradient in π_j taken for the one in z_j.", derivative, -m[j] / softmax(j)),
        ),
        aliases=(
            alias("D", "KL(μ‖π), the sum of μ_i log(μ_i / π_i)", forward_kl(softmax)),
            alias("KL(π‖μ)", "the reverse KL", reverse),
            alias("π_{}", "softmax(z) at token i", softmax),
        ),
        traces=(
            trace(
                "divergences.FORWARD_KL.measure",
                lambda case: FORWARD_KL.measure(case.log_mu, case.log_pi),
                forward_kl(),
            ),
            trace(
                "divergences.FORWARD_KL.logit_grad",
                lambda case: FORWARD_KL.logit_grad(case.log_mu, case.log_pi),
                p[j] - m[j],
            ),
        ),
    )


def first_order_change() -> Theorem:
    """T2b."""
    along_token = specialise(slope(), v, token_step)
    step = eta * A * p[k] / m[k]
    moved = specialise(moved_kl(step), v, token_step)
    in_eta = Subs(Derivative(moved, eta), eta, 0)
    d_k, average = p[k] - m[k], mean(p, lambda i: p[i] - m[i])
    return Theorem(
        id="T2b",
        title="First-order change of forward KL under one token's step",
        statement=r"\frac{dD}{d\eta}\Big|_0 = A\, r\, c_k, \qquad "
        r"c_k = (\pi_k - \mu_k) + \sum_i \pi_i (\mu_i - \pi_i)",
        scope="Any vocabulary size, one token, an infinitesimal step along the plain gradient in the logits. "
        "Says nothing about finite steps (T3), many tokens at once (T10) or shared weights (T11).",
        tier="G",
        steps=(
            Step(
                "Along any direction v the change is the difference of two averages of v, one under π and "
                "one under μ.",
                Subs(Derivative(moved_kl(), s), s, 0),
                slope(),
            ),
            Step(
                "For v = e_k − π this is a local term, how far π is above μ at k, plus a global term.",
                along_token,
                change(),
                polynomial=True,
            ),
            Step(
                "The global term is minus the average of d = π − μ under π: c_k is the token's lead over it.",
                change(),
                d_k - average,
                polynomial=True,
            ),
            Step(
                "The learning rate, the advantage and the ratio only scale the change: dD/dη = A r c_k.",
                in_eta,
                A * p[k] / m[k] * change(),
            ),
        ),
        mutants=(
            Mutant("The local term alone, which is the ratio test.", along_token, d_k),
            Mutant("The global term subtracted instead of added.", along_token, 2 * d_k - change()),
            Mutant("The average taken under μ.", along_token, d_k - mean(m, lambda i: p[i] - m[i])),
            Mutant("The average with equal weights.", along_token, d_k - total(lambda i: p[i] - m[i]) / n),
            Mutant("The ratio forgotten.", in_eta, A * change()),
        ),
        aliases=(
            alias("D(s)", "KL(μ‖π(s)), the divergence after the step s along v", moved_kl()),
            alias("D(ηAr)", "KL(μ‖π(s)) at s = η A r, v = e_k − π", moved),
        ),
        traces=(trace("change.change", lambda case: shipped_change(case.full_view), change()),),
    )


def threshold() -> Theorem:
    """T2c."""
    theta = total(lambda i: p[i] ** 2) - total(lambda i: p[i] * m[i])
    wrong = total(lambda i: p[i] ** 2) - total(lambda i: m[i] ** 2)
    return Theorem(
        id="T2c",
        title="The predictive test is one threshold per state",
        statement=r"c_k = (\pi_k - \mu_k) - \theta, \qquad \theta = \sum_i \pi_i^2 - \sum_i \pi_i \mu_i",
        scope="Any vocabulary size. The ratio test compares π_k − μ_k with 0, the predictive test compares "
        "it with θ; which of the two serves a network better is not decided here.",
        tier="G",
        steps=(
            Step(
                "The global term does not mention the token, so it can go to the other side of the test.",
                change(),
                p[k] - m[k] - theta,
                polynomial=True,
            ),
        ),
        mutants=(
            Mutant("The threshold taken to be zero, as in the ratio test.", change(), p[k] - m[k]),
            Mutant("The square of μ in place of the overlap.", change(), p[k] - m[k] - wrong),
        ),
    )


THEOREMS = (gradient, first_order_change, threshold)
