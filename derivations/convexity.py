r"""T4n, convexity: Renyi and alpha divergences of order a >= 1 keep forward KL's one-sided certainty.

Their second derivative along every logit line is a sum of squares, so that D lies above its tangents and
a predicted increase is real at every step size. `non_convex.py` shows who lacks this.
"""

from typing import Any

from sympy import Expr, Symbol, exp

from .divergence_table import CHI2_MU_PI, Policy, curvature, here, moved
from .facts import TANGENTS
from .families import alpha, geodesic, power_sum, renyi
from .notation import k, p, s, t, total, v
from .softmax import path
from .theorem import Mutant, Step, Theorem, alias

excess = Symbol("b", nonnegative=True)  # a - 1


def _pairs(policy: Policy) -> Expr:
    """Variance of v as a sum over pairs of tokens."""
    return total(lambda i, h: policy(i) * policy(h) * (v[i] - v[h]) ** 2) / 2


def convexity() -> Theorem:
    """T4n."""
    order = 1 + excess

    def tau(i: Any) -> Any:
        return geodesic(here, i, order)

    of_renyi = curvature(lambda policy: renyi(policy, order))
    of_alpha = curvature(lambda policy: alpha(policy, order))
    drift = total(lambda i: (tau(i) - p[i]) * v[i])
    squares = _pairs(here) + excess * _pairs(tau)
    restarted = path(k, t) * exp(s * v[k]) / total(lambda i: path(i, t) * exp(s * v[i]))
    return Theorem(
        id="T4n",
        title="Rényi and alpha divergences of order a ≥ 1 are convex",
        statement=r"\frac{d^2 R_a}{dt^2} = \mathrm{Var}_\pi v + (a - 1) \mathrm{Var}_\tau v \ge 0 \quad "
        r"(a \ge 1), \qquad R_a(s) - R_a(0) \ge s\, c_k \text{ for every } s",
        scope="Full Rényi and alpha divergences of order a ≥ 1, forward KL (a = 1) and χ²(μ‖π) (a = 2) "
        "among them; any vocabulary size, any direction, every step size: a predicted increase of one "
        "token's logit step is real. Not for orders below 1, reverse KL or TV (T4o), not for top-K "
        "versions, a network, or many tokens judged one by one.",
        tier="G",
        steps=(
            Step(
                "R_a bends by Var_π v + b Var_τ v with b = a − 1, written as sums over pairs.",
                of_renyi,
                squares,
                "nonneg",
            ),
            Step(
                "D_a bends at least as much, scaled by H/a.",
                of_alpha,
                power_sum(here, order) / order * (squares + excess * drift**2),
                "nonneg",
            ),
            Step("χ²(μ‖π) is twice D_2, so it is convex too.", CHI2_MU_PI.measure(here), 2 * alpha(here, 2)),
            Step(
                "A path restarted at t is the same path, so this holds at every point of the line.",
                restarted,
                path(k, t + s),
            ),
            TANGENTS,
        ),
        mutants=(
            Mutant("The variance under τ alone.", of_renyi, excess * _pairs(tau)),
            Mutant("a in the place of a − 1.", of_renyi, squares + _pairs(tau)),
            Mutant("Both variances under π.", of_renyi, order * _pairs(here)),
            Mutant("The drift forgotten.", of_alpha, power_sum(here, order) / order * squares),
        ),
        aliases=(
            alias(
                "R(t)", "R_a after the step t along v, a = 1 + b", moved(lambda policy: renyi(policy, order))
            ),
            alias("D(t)", "D_a after the step t along v", moved(lambda policy: alpha(policy, order))),
            alias("τ_{}", "μ_i^a π_i^(1−a) / H", tau),
            alias("H", "the sum of μ_i^a π_i^(1−a)", power_sum(here, order)),
            alias("π_{}(t)", "the policy on the path", path),
        ),
        sample=lambda rng, size: {"b": rng.uniform(0.5, 2)},
    )


THEOREMS = (convexity,)
