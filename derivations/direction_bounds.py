r"""T5b, T5c and T5h: how large the global term can be, and when the two direction tests must agree.

d = pi - mu is written as up - down with two non-negative vectors, so that no absolute value is needed:
their common sum is TV(mu, pi). Each inequality is an identity whose right side is visibly non-negative.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from sympy import Expr, IndexedBase, KroneckerDelta, Limit, Rational, oo, symbols

from .direction_examples import average_shift, change_at
from .forward_kl import change
from .hypotheses import SIMPLEX, given, given_all, nonneg, nonneg_all
from .intervals import policy
from .notation import j, k, m, mean, n, p, specialise, total
from .theorem import Mutant, Step, Theorem, Verdict

up, down = IndexedBase("up", nonnegative=True), IndexedBase("down", nonnegative=True)
TV, top, bottom = symbols("TV pi_max pi_min", nonnegative=True)
ceiling, floor = symbols("d_max d_min", real=True)
e, size = symbols("e size", positive=True)
HALF = Rational(1, 2)
SPLIT = (
    *SIMPLEX,
    given_all(lambda i: (m[i], p[i] - up[i] + down[i])),
    given(total(lambda i: up[i]), TV),
    given(total(lambda i: down[i]), TV),
    nonneg_all(lambda i: top - p[i]),
    nonneg_all(lambda i: p[i] - bottom),
)
RANGE = (*SIMPLEX, nonneg_all(lambda i: ceiling - p[i] + m[i]), nonneg_all(lambda i: p[i] - m[i] - floor))
BELOW_ONE = (*SIMPLEX, nonneg_all(lambda i: 1 - p[i]), nonneg_all(lambda i: 1 - m[i]))

ASSUMPTIONS = (
    "π − μ = up − down, both ≥ 0, with the common sum TV",
    "π_max, π_min, d_max and d_min are the largest and the smallest entries",
)


def average() -> Expr:
    """E_pi[d]; the global term is minus this."""
    return mean(p, lambda i: p[i] - m[i])


def sample_split(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """Values of all the letters above that belong together."""
    pi, mu = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    d = pi - mu
    split = {"up": np.maximum(d, 0), "down": np.maximum(-d, 0), "TV": np.abs(d).sum() / 2}
    extremes = {"pi_max": pi.max(), "pi_min": pi.min(), "d_max": d.max(), "d_min": d.min()}
    return {"p": pi, "m": mu, "e": rng.uniform(0.1, 0.4), **split, **extremes}


def _neither_is_sharper() -> Verdict:
    """(pi_max - pi_min) TV and max |d| on two pairs; each bound is the smaller one once."""
    holds, lines = [], []
    for a, b in (((5, 1, 1), (1, 2, 4)), ((10, 3, 3, 3, 3, 1, 1, 1, 1), (10, 1, 1, 1, 1, 3, 3, 3, 3))):
        mu, pi = policy(a), policy(b)
        sizes = [abs(y - x) for x, y in zip(mu, pi, strict=True)]
        by_range = (max(pi) - min(pi)) * sum(sizes) / 2
        holds.append(by_range < max(sizes))
        lines.append(f"μ = {a}/{sum(a)}, π = {b}/{sum(b)}: {by_range} and {max(sizes)}")
    return Verdict(holds == [True, False], "; ".join(lines))


def _ends_with_zeros() -> Verdict:
    """The values at policies that put 0 on a token."""
    first, second, even = policy((1, 0)), policy((0, 1)), policy((1, 1))
    found = -average_shift(second, first), change_at(second, first, 1), change_at(second, even, 0)
    return Verdict(found == (-1, -2, Fraction(1, 2)), "global term {}, c_k {} and {}".format(*found))


def size_of_the_global_term() -> Theorem:
    """T5b."""
    x = symbols("x", real=True)
    slack = (top - bottom) * TV
    above = total(lambda i: up[i] * (top - p[i]) + down[i] * (p[i] - bottom))
    below = total(lambda i: up[i] * (p[i] - bottom) + down[i] * (top - p[i]))
    moved_mass = specialise(average(), m, lambda i: p[i] - x * (KroneckerDelta(i, k) - KroneckerDelta(i, j)))
    return Theorem(
        id="T5b",
        title="The global term is at most the range of π times TV",
        statement=r"|E_\pi d| \le (\pi_{\max} - \pi_{\min})\, TV(\mu, \pi), \qquad \min d \le E_\pi d "
        r"\le \max d",
        scope="Any vocabulary size, any two policies. Neither bound is always the smaller one.",
        tier="G",
        steps=(
            Step(
                "Rising tokens weigh at most π_max and falling ones at least π_min,",
                slack - average(),
                above,
                "nonneg",
                SPLIT,
            ),
            Step("and the other way round.", slack + average(), below, "nonneg", SPLIT),
            Step(
                "Moving mass x from token j to token k gives E_π d = x (π_k − π_j): with the likeliest "
                "and the least likely token the bound is attained.",
                moved_mass,
                x * (p[k] - p[j]),
            ),
            Step(
                "An average is at most the largest value",
                ceiling - average(),
                mean(p, _below_ceiling),
                "nonneg",
                RANGE,
                polynomial=True,
            ),
            Step(
                "and at least the smallest.",
                average() - floor,
                mean(p, _above_floor),
                "nonneg",
                RANGE,
                polynomial=True,
            ),
            Step("Each of the two bounds can be the sharper one.", kind="exact", decide=_neither_is_sharper),
        ),
        mutants=(
            Mutant("The range of π forgotten.", TV - average(), above, SPLIT),
            Mutant("The two sums swapped.", slack - average(), below, SPLIT),
            Mutant("The mass moved counted twice.", moved_mass, 2 * x * (p[k] - p[j])),
            Mutant("Averaged under μ.", ceiling - average(), mean(m, _below_ceiling), RANGE),
        ),
        assumptions=ASSUMPTIONS,
        sample=sample_split,
    )


def _below_ceiling(i: Any) -> Expr:
    return ceiling - p[i] + m[i]


def _above_floor(i: Any) -> Expr:
    return p[i] - m[i] - floor


def range_of_the_change() -> Theorem:
    """T5h."""
    others = total(lambda i: ((1 - KroneckerDelta(i, k)) * (p[i] - m[i] / 2)) ** 2)
    mixed = total(lambda i: m[i] * (1 - m[i])) / 4
    low_global = total(lambda i: p[i] * m[i]) + total(lambda i: p[i] * (1 - p[i]))
    high_global = total(lambda i: (p[i] - m[i] / 2) ** 2) + mixed
    high_change = (p[k] - HALF) ** 2 + m[k] * (1 - p[k]) + others + mixed + m[k] ** 2 / 4
    not_said = total(lambda i: KroneckerDelta(i, k) * (1 - m[i]))  # 1 - mu_k
    swap, even = ((e, 1 - e), (1 - e, e)), ((e, 1 - e), (HALF, HALF))
    spread = -HALF * (HALF - (1 - e)) - HALF * (HALF - e) / (size - 1)
    return Theorem(
        id="T5h",
        title="The range of the global term and of c_k",
        statement=r"-1 < -E_\pi d < \tfrac14, \qquad -2 < c_k < \tfrac12",
        scope="Any vocabulary size, all probabilities positive; every end is approached. If zero "
        "probabilities are allowed, −1, −2 and 1/2 are attained and 1/4 is not.",
        tier="G",
        steps=(
            Step(
                "−E_π d exceeds −1 by the overlap of μ and π and more.",
                1 - average(),
                low_global,
                "nonneg",
                BELOW_ONE,
                polynomial=True,
            ),
            Step(
                "It stays below 1/4 by a sum of squares and more.",
                HALF**2 + average(),
                high_global,
                "nonneg",
                BELOW_ONE,
                polynomial=True,
            ),
            Step(
                "c_k exceeds −2.",
                change() + 2,
                p[k] + not_said + low_global,
                "nonneg",
                BELOW_ONE,
                polynomial=True,
            ),
            Step("It stays below 1/2.", HALF - change(), high_change, "nonneg", BELOW_ONE, polynomial=True),
            Step(
                "Two tokens that swap nearly all their mass approach −1,",
                Limit(-average_shift(*swap), e, 0),
                -1,
                "scalar",
                (),
            ),
            Step("and −2 for the token that lost it.", Limit(change_at(*swap, 1), e, 0), -2, "scalar", ()),
            Step(
                "An even coin against a nearly certain one approaches 1/2.",
                Limit(change_at(*even, 0), e, 0),
                HALF,
                "scalar",
                (),
            ),
            Step(
                "Half of π on the token that μ nearly always says, the rest spread over ever more "
                "tokens, approaches 1/4.",
                Limit(Limit(spread, size, oo), e, 0),
                HALF**2,
                "scalar",
                (),
            ),
            Step(
                "With zeros allowed three of the four ends are attained.",
                kind="exact",
                decide=_ends_with_zeros,
            ),
        ),
        mutants=(
            Mutant("The overlap forgotten.", 1 - average(), total(lambda i: p[i] * (1 - p[i])), BELOW_ONE),
            Mutant(
                "μ in place of μ/2.",
                HALF**2 + average(),
                total(lambda i: (p[i] - m[i]) ** 2) + mixed,
                BELOW_ONE,
            ),
            Mutant(
                "The sampled token not left out of the squares.",
                HALF - change(),
                high_change - others + high_global - mixed,
                BELOW_ONE,
            ),
        ),
        sample=sample_split,
    )


def agreement() -> Theorem:
    """T5c."""
    slack = (top - bottom) * TV
    x, y = symbols("x y", real=True)
    above = total(lambda i: up[i] * (top - p[i]) + down[i] * (p[i] - bottom))
    below = total(lambda i: up[i] * (p[i] - bottom) + down[i] * (top - p[i]))
    d_k = p[k] - m[k]
    return Theorem(
        id="T5c",
        title="Four cases in which the two tests must agree",
        statement=r"|d_k| > (\pi_{\max} - \pi_{\min})\, TV, \quad k \in \arg\max d \cup \arg\min d, \quad "
        r"d_k E_\pi d \le 0, \quad \pi \text{ uniform}",
        scope="Any vocabulary size, any two different policies, d_k ≠ 0. Sufficient conditions: none of "
        "them is necessary.",
        tier="G",
        steps=(
            Step("c_k is at least d_k − (π_max − π_min) TV,", change() - d_k + slack, above, "nonneg", SPLIT),
            Step("and at most d_k + (π_max − π_min) TV.", d_k + slack - change(), below, "nonneg", SPLIT),
            Step(
                "At the largest d the change is positive unless all d are equal,",
                ceiling - average(),
                mean(p, _below_ceiling),
                "nonneg",
                RANGE,
                polynomial=True,
            ),
            Step(
                "and so is d, because the d add up to zero.",
                n * ceiling,
                total(_below_ceiling),
                "nonneg",
                RANGE,
            ),
            Step(
                "At the smallest d the change is negative,",
                average() - floor,
                mean(p, _above_floor),
                "nonneg",
                RANGE,
                polynomial=True,
            ),
            Step("and so is d.", -n * floor, total(_above_floor), "nonneg", RANGE),
            Step(
                "If x = d_k and y = E_π d do not have the same sign, x and x − y do.",
                x * (x - y),
                x**2 + (-x * y),
                "nonneg",
                (nonneg(-x * y),),
            ),
            Step("If π is uniform there is no global term.", specialise(average(), p, lambda i: 1 / n), 0),
        ),
        mutants=(
            Mutant("The bound of the other side.", change() - d_k + slack, below, SPLIT),
            Mutant("The sum of the leads averaged.", ceiling, total(_below_ceiling), RANGE),
            Mutant("Uniform μ in place of π.", specialise(average(), m, lambda i: 1 / n), 0),
        ),
        assumptions=ASSUMPTIONS,
        sample=lambda rng, count: {
            **sample_split(rng, count),
            "x": rng.uniform(0.1, 1),
            "y": -rng.uniform(0.1, 1),
        },
    )
