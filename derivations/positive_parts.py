r"""T8, first part: total variation, and the positive parts d+ and d- of pi - mu = d+ - d-.

The parts make |pi - mu|, the minimum and the maximum of two policies into plain sums, without a case split.
"""

from typing import Any

import numpy as np
from sympy import Expr, IndexedBase, KroneckerDelta

from .hypotheses import given, given_all
from .notation import k, m, mean, p, total
from .theorem import Mutant, Step, Theorem, alias

up, down = IndexedBase("d", nonnegative=True), IndexedBase("e", nonnegative=True)
below = IndexedBase("g", nonnegative=True)
PARTS = (
    given(total(lambda i: m[i]), 1),
    given(total(lambda i: up[i]), total(lambda i: down[i])),
    given_all(lambda i: (p[i], m[i] + up[i] - down[i])),
    given_all(lambda i: (up[i] * down[i], 0)),
)
INDICATOR = given_all(lambda i: (below[i] ** 2, below[i]))
BELOW = (given_all(lambda i: (below[i] * down[i], down[i])), given_all(lambda i: (below[i] * up[i], 0)))
RISEN = total(lambda i: up[i])
APART = ("π_i − μ_i = d_i − e_i, with d_i and e_i not negative and never both positive",)


def draw_parts(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """Two policies, the positive parts of their difference, their minimum and maximum, and {mu > pi}."""
    pi, mu = rng.uniform(0.05, 1, (2, size))
    pi, mu = pi / pi.sum(), mu / mu.sum()
    return {
        "p": pi, "m": mu, "d": np.maximum(pi - mu, 0), "e": np.maximum(mu - pi, 0),
        "a": np.minimum(pi, mu), "b": np.maximum(pi, mu), "g": (mu > pi).astype(float),
        "c": float((mu * np.log(pi / mu)).sum()) / 2,
    }  # fmt: skip


def total_variation() -> Theorem:
    """T8a."""
    distance = total(lambda i: up[i] + down[i]) / 2

    def others(base: Any) -> Expr:
        return total(lambda i: (1 - KroneckerDelta(i, k)) ** 2 * base[i])

    return Theorem(
        id="T8a",
        title="Facts about total variation",
        statement=r"TV = \tfrac12 \sum_i |\pi_i - \mu_i| = \sum_i (\pi_i - \mu_i)_+ = \tfrac12 E_\mu |r - "
        r"1|, \qquad |\pi_k - \mu_k| \le TV",
        scope="Any vocabulary size. The binary distance |π_k − μ_k| is a lower bound of TV, and the average "
        "of |r − 1| over sampled tokens is an unbiased estimate of 2 TV; neither is TV itself.",
        tier="G",
        steps=(
            Step(
                "The two parts never overlap, so |π − μ| is their sum: both have the square (π − μ)².",
                (p[k] - m[k]) ** 2,
                (up[k] + down[k]) ** 2,
                hypotheses=PARTS,
            ),
            Step(
                "Probabilities sum to one, so what rises equals what falls, and half of the whole is either.",
                distance,
                RISEN,
                hypotheses=PARTS,
            ),
            Step(
                "Averaged over samples of μ, |r − 1| is twice TV.",
                mean(m, lambda i: (up[i] + down[i]) / m[i]) / 2,
                RISEN,
                hypotheses=PARTS,
            ),
            Step(
                "No token's rise exceeds TV.",
                RISEN - (p[k] - m[k]),
                others(up) + down[k],
                kind="nonneg",
                hypotheses=PARTS,
            ),
            Step(
                "No token's fall exceeds TV.",
                RISEN - (m[k] - p[k]),
                others(down) + up[k],
                kind="nonneg",
                hypotheses=(*PARTS, given(p[k], m[k] + up[k] - down[k])),
            ),
        ),
        mutants=(
            Mutant("The half lost.", total(lambda i: up[i] + down[i]), RISEN, PARTS),
            Mutant("|π − μ| taken for the rise alone.", (p[k] - m[k]) ** 2, up[k] ** 2, PARTS),
            Mutant("TV taken for the largest single gap.", RISEN, up[k], PARTS),
        ),
        assumptions=APART,
        aliases=(alias("TV", "Σ d, total variation", RISEN),),
        sample=draw_parts,
    )
