r"""T3e and T3f: how large the second derivative of D can be, from the range of the direction alone.

D'' is the variance of v under the policy on the path.  It is at most R^2 / 4 (Popoviciu), and it grows or
shrinks at most exponentially, because the third cumulant is at most R times the variance.
"""

from typing import Any

import numpy as np
from sympy import Expr, Integral, KroneckerDelta, Symbol, exp

from .facts import TAYLOR
from .forward_kl import token_step
from .hypotheses import SIMPLEX, nonneg_all
from .notation import j, k, p, s, total, v
from .softmax import path, path_cumulant, path_mean
from .theorem import Mutant, Step, Theorem, alias

a, b = Symbol("a", real=True), Symbol("b", real=True)
q = Symbol("q", positive=True)  # the largest probability among the tokens other than k
R = Symbol("R", positive=True)  # range of the direction
V0 = Symbol("V0", positive=True)  # its variance at s = 0
x = Symbol("x", positive=True)  # |s|
tau = Symbol("tau", positive=True)

GROWING = V0 * (exp(R * x) - 1 - R * x) / R**2
SHRINKING = V0 * (exp(-R * x) - 1 + R * x) / R**2
CONSTANT = Integral((s - tau) * R**2 / 4, (tau, 0, s))
AVERAGE = path_mean(lambda i: v[i], s)
ALIASES = (
    alias("Var(s)", "the variance of v under the policy after the step s", path_cumulant(2, s)),
    alias("κ₃(s)", "its third cumulant", path_cumulant(3, s)),
    alias("E(s)", "its mean", AVERAGE),
    alias("π_{}(s)", "the policy after the step s along v", lambda i: path(i, s)),
)


def _sample_range(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """A direction with its range, and a token with the largest probability among the others."""
    direction, policy, token = rng.normal(size=size), rng.dirichlet(np.ones(size)), int(rng.integers(size))
    low, high, others = direction.min() - 0.1, direction.max() + 0.1, np.delete(policy, token).max()
    return {"v": direction, "a": low, "b": high, "R": high - low, "p": policy, "k": token, "q": others}


def upper_side() -> Theorem:
    """T3e."""
    products = path_mean(lambda i: (b - v[i]) * (v[i] - a), s)
    missing = products + (AVERAGE - (a + b) / 2) ** 2
    others = total(lambda i: (1 - KroneckerDelta(i, k)) * p[i])
    in_range = (*SIMPLEX, nonneg_all(lambda i: b - v[i]), nonneg_all(lambda i: v[i] - a))
    below_q = nonneg_all(lambda i: (1 - KroneckerDelta(i, k)) * (q - p[i]))
    not_k, is_k = 1 - KroneckerDelta(j, k), KroneckerDelta(j, k)
    return Theorem(
        id="T3e",
        title="An upper side that needs only the range of the direction",
        statement=r"D(s) - D(0) \le s\, c_k + \tfrac{1}{8} s^2 R^2, "
        r"\qquad R = 1 - \pi_k + \max_{i \ne k} \pi_i",
        scope="Any vocabulary size, every step size, any direction with values in [a, b], R = b − a.",
        tier="G",
        steps=(
            Step(
                "The variance on the path is at most R²/4: what is missing is an average of products of "
                "non-negative factors, and a square.",
                (b - a) ** 2 / 4 - path_cumulant(2, s),
                missing,
                "nonneg",
                in_range,
            ),
            Step(
                "For the token's own step no entry exceeds 1 − π_k.",
                1 - p[k] - token_step(j),
                not_k * (others + p[j]),
                "nonneg",
            ),
            Step(
                "And none is below −q, with q the largest probability among the other tokens.",
                token_step(j) + q,
                is_k * (others + q) + not_k * (q - p[j]),
                "nonneg",
                (*SIMPLEX, below_q),
            ),
            Step(
                "A second derivative of R²/4, integrated twice, gives s²R²/8 (Hoeffding's bound).",
                CONSTANT,
                s**2 * R**2 / 8,
                "scalar",
            ),
            TAYLOR,
        ),
        mutants=(
            Mutant(
                "The bound R²/8 on the variance.", (b - a) ** 2 / 8 - path_cumulant(2, s), missing, in_range
            ),
            Mutant("The lower end of the range put at zero.", token_step(j), is_k * others),
            Mutant("The second integration forgotten.", CONSTANT, s * R**2 / 4),
        ),
        sample=_sample_range,
        aliases=ALIASES,
    )


def _pair(i: Any, h: Any) -> Expr:
    return path(i, s) * path(h, s) * (v[i] - AVERAGE) ** 2


def third_cumulant() -> Theorem:
    """T3f."""
    variance, third = path_cumulant(2, s), path_cumulant(3, s)
    falling = total(lambda i, h: _pair(i, h) * (R - v[i] + v[h]))
    rising = total(lambda i, h: _pair(i, h) * (R - v[h] + v[i]))
    spread = (*SIMPLEX, nonneg_all(lambda i, h: R - v[i] + v[h]))
    upper, lower = (Integral((x - tau) * V0 * exp(sign * R * tau), (tau, 0, x)) for sign in (1, -1))
    return Theorem(
        id="T3f",
        title="The variance changes at most exponentially along the path",
        statement=r"|\kappa_3| \le R\, V, \qquad "
        r"\frac{V_0 (e^{-R|s|} - 1 + R|s|)}{R^2} \le D(s) - D(0) - s\, c_k "
        r"\le \frac{V_0 (e^{R|s|} - 1 - R|s|)}{R^2}",
        scope="Any vocabulary size, every step size, any direction whose values differ by at most R.",
        tier="G",
        steps=(
            Step(
                "R times the variance exceeds the third cumulant: compare every token with every other.",
                R * variance - third,
                falling,
                "nonneg",
                spread,
            ),
            Step(
                "It exceeds minus the third cumulant in the same way.",
                R * variance + third,
                rising,
                "nonneg",
                spread,
            ),
            Step(
                "If |V′| ≤ R V for every s, then V(0) e^{−R|s|} ≤ V(s) ≤ V(0) e^{R|s|} (Grönwall's "
                "inequality).",
                kind="cited",
            ),
            Step(
                "Integrated twice, the growing exponential gives the upper side.",
                upper,
                GROWING,
                "scalar",
                (),
            ),
            Step("And the shrinking exponential gives the lower side.", lower, SHRINKING, "scalar", ()),
            TAYLOR,
        ),
        mutants=(
            Mutant("Half the range.", R * variance / 2 - third, falling, spread),
            Mutant(
                "The third moment about zero.",
                R * variance - path_mean(lambda i: v[i] ** 3, s),
                falling,
                spread,
            ),
            Mutant("The factor 1/R lost.", upper, GROWING * R, ()),
        ),
        sample=_sample_range,
        aliases=ALIASES,
    )
