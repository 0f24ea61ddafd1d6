r"""The f-divergences of T4, one row each: D_f = sum_i pi_i f(w_i) with w = mu / pi.

A row holds the textbook definition, the function f that generates it, g = f - w f', and the closed logit
gradient that the package ships; `f_divergences.py` proves that they belong together. Total variation has
a kink and a file of its own (`total_variation.py`); the families with an order are in `families.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sympy import Derivative, Expr, S, Subs, Symbol, log, sqrt

from .forward_kl import forward_kl
from .notation import m, p, specialise, t, total, v
from .softmax import path

Policy = Callable[[Any], Any]
w = Symbol("w", positive=True)


def here(i: Any) -> Expr:
    """The policy pi itself."""
    return p[i]


def moved(measure: Callable[[Policy], Any], direction: Policy | None = None, step: Any = t) -> Any:
    """A divergence after the logits moved by `step * v`, v any direction or the given one."""
    after = measure(lambda i: path(i, step))
    return after if direction is None else specialise(after, v, direction)


def slope(measure: Callable[[Policy], Any], direction: Policy | None = None) -> Any:
    """Its first derivative in the step, at zero."""
    return Subs(Derivative(moved(measure, direction), t), t, 0)


def curvature(measure: Callable[[Policy], Any], direction: Policy | None = None) -> Any:
    """Its second derivative in the step, at zero."""
    return Subs(Derivative(moved(measure, direction), (t, 2)), t, 0)


@dataclass(frozen=True)
class Row:
    """One divergence: `f`, `g` and `bend` = w^2 f'' are expressions in w, the rest functions of a policy."""

    name: str  # of the shipped record, divsim.formulas.DIVERGENCES[name]
    title: str
    gradient_tex: str
    f: Expr
    g: Expr
    bend: Expr
    measure: Callable[[Policy], Expr]
    gradient: Callable[[Policy, Any], Expr]
    inside: tuple[str, Callable[[Policy], Expr]]  # a sum that its gradients contain
    false_gradients: tuple[tuple[str, Callable[[Policy, Any], Expr]], ...]

    def push(self, policy: Policy, i: Any) -> Expr:
        """g at token i."""
        return self.g.subs(w, m[i] / policy(i))


def reverse_kl(policy: Policy, other: Policy = lambda i: m[i]) -> Expr:
    """KL(policy || other), the expectation under the policy."""
    return total(lambda i: policy(i) * log(policy(i) / other(i)))


def middle(policy: Policy) -> Policy:
    """The midpoint (mu + policy) / 2."""
    return lambda i: (m[i] + policy(i)) / 2


def jensen_shannon(policy: Policy) -> Expr:
    """(KL(mu || M) + KL(policy || M)) / 2 with M the midpoint."""
    return (forward_kl(middle(policy)) + reverse_kl(policy, middle(policy))) / 2


def chi2_mu_pi(policy: Policy) -> Expr:
    """chi2(mu || policy)."""
    return total(lambda i: (m[i] - policy(i)) ** 2 / policy(i))


def chi2_pi_mu(policy: Policy) -> Expr:
    """chi2(policy || mu)."""
    return total(lambda i: (policy(i) - m[i]) ** 2 / m[i])


def overlap(policy: Policy) -> Expr:
    """The Bhattacharyya coefficient BC."""
    return total(lambda i: sqrt(m[i] * policy(i)))


def hellinger2(policy: Policy) -> Expr:
    """The squared Hellinger distance."""
    return total(lambda i: (sqrt(policy(i)) - sqrt(m[i])) ** 2) / 2


FORWARD_KL = Row(
    "forward_kl", "Forward KL, KL(μ‖π)", r"\pi_j - \mu_j",
    f=w * log(w), g=-w, bend=w, measure=forward_kl,
    gradient=lambda policy, i: policy(i) - m[i],
    inside=("KL(π‖μ)", lambda policy: reverse_kl(policy)),
    false_gradients=(
        ("The sign turned round.", lambda policy, i: m[i] - policy(i)),
        ("The gradient of reverse KL.", lambda policy, i: _reverse_kl_gradient(policy, i)),
    ),
)  # fmt: skip


def _reverse_kl_gradient(policy: Policy, i: Any) -> Expr:
    return policy(i) * (log(policy(i) / m[i]) - reverse_kl(policy))


REVERSE_KL = Row(
    "reverse_kl", "Reverse KL, KL(π‖μ)", r"\pi_j (\log(\pi_j/\mu_j) - KL(\pi\|\mu))",
    f=-log(w), g=1 - log(w), bend=S.One, measure=reverse_kl, gradient=_reverse_kl_gradient,
    inside=("KL(μ‖π)", forward_kl),
    false_gradients=(
        ("The average left out.", lambda policy, i: policy(i) * log(policy(i) / m[i])),
        ("Centred at KL(μ‖π).", lambda policy, i: policy(i) * (log(policy(i) / m[i]) - forward_kl(policy))),
    ),
)  # fmt: skip


def _js_gradient(policy: Policy, i: Any) -> Expr:
    centre = middle(policy)
    return policy(i) * (log(policy(i) / centre(i)) - reverse_kl(policy, centre)) / 2


JS = Row(
    "js", "Jensen–Shannon, M = (μ + π)/2", r"\pi_j (\log(\pi_j/M_j) - KL(\pi\|M)) / 2",
    f=(w * log(2 * w / (1 + w)) + log(2 / (1 + w))) / 2, g=log(2 / (1 + w)) / 2, bend=w / (2 * (1 + w)),
    measure=jensen_shannon, gradient=_js_gradient,
    inside=("KL(π‖M)", lambda policy: reverse_kl(policy, middle(policy))),
    false_gradients=(
        ("The factor 1/2 lost.", lambda policy, i: 2 * _js_gradient(policy, i)),
        ("μ in place of the midpoint.", lambda policy, i: _reverse_kl_gradient(policy, i) / 2),
    ),
)  # fmt: skip

CHI2_MU_PI = Row(
    "chi2_mu_pi", "Chi-squared χ²(μ‖π)", r"\pi_j (1 + \chi^2(\mu\|\pi)) - \mu_j^2/\pi_j",
    f=w**2 - 1, g=-(w**2) - 1, bend=2 * w**2, measure=chi2_mu_pi,
    gradient=lambda policy, i: policy(i) * (1 + chi2_mu_pi(policy)) - m[i] ** 2 / policy(i),
    inside=("χ²(μ‖π)", chi2_mu_pi),
    false_gradients=(
        ("The 1 lost.", lambda policy, i: policy(i) * chi2_mu_pi(policy) - m[i] ** 2 / policy(i)),
        ("The other χ².", lambda policy, i: policy(i) * (1 + chi2_pi_mu(policy)) - m[i] ** 2 / policy(i)),
    ),
)  # fmt: skip

CHI2_PI_MU = Row(
    "chi2_pi_mu", "Chi-squared χ²(π‖μ)", r"2 \pi_j (\pi_j/\mu_j - 1 - \chi^2(\pi\|\mu))",
    f=1 / w - 1, g=2 / w - 1, bend=2 / w, measure=chi2_pi_mu,
    gradient=lambda policy, i: 2 * policy(i) * (policy(i) / m[i] - 1 - chi2_pi_mu(policy)),
    inside=("χ²(π‖μ)", chi2_pi_mu),
    false_gradients=(
        ("The factor 2 lost.", lambda policy, i: policy(i) * (policy(i) / m[i] - 1 - chi2_pi_mu(policy))),
        ("Not centred.", lambda policy, i: 2 * policy(i) * (policy(i) / m[i] - 1)),
    ),
)  # fmt: skip

HELLINGER2 = Row(
    "hellinger2", "Squared Hellinger distance, 1 − BC", r"(\pi_j BC - \sqrt{\mu_j \pi_j}) / 2",
    f=1 - sqrt(w), g=1 - sqrt(w) / 2, bend=sqrt(w) / 4, measure=hellinger2,
    gradient=lambda policy, i: (policy(i) * overlap(policy) - sqrt(m[i] * policy(i))) / 2,
    inside=("BC", overlap),
    false_gradients=(
        ("The factor 1/2 lost.", lambda policy, i: policy(i) * overlap(policy) - sqrt(m[i] * policy(i))),
        ("BC taken for 1.", lambda policy, i: (policy(i) - sqrt(m[i] * policy(i))) / 2),
    ),
)  # fmt: skip

ROWS = (FORWARD_KL, REVERSE_KL, JS, CHI2_MU_PI, CHI2_PI_MU, HELLINGER2)
