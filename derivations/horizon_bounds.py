r"""T12c and T12d: how large the gap between a sequence's return and its token-level surrogate can be.

One term of the gap is a token's change times the change of everything after it, so a certificate for two
tokens serves every horizon: the second "token" is the whole rest of the sequence.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from sympy import IndexedBase, Min, Rational, Sum, Symbol

import divsim.formulas as shipped

from .horizon_trees import attained, random_trees
from .hypotheses import given, given_all, nonneg, nonneg_all
from .notation import j, k, m, p, total, v
from .symbolic import SymbolicArray
from .theorem import Mutant, Step, Theorem, alias
from .trace import UNTIED, trace

q, w = IndexedBase("q", positive=True), IndexedBase("w", positive=True)  # the rest, under pi and under mu
up, down = (
    IndexedBase("a", nonnegative=True),
    IndexedBase("b", nonnegative=True),
)  # pi - mu of the first token
rise, fall = IndexedBase("g", nonnegative=True), IndexedBase("h", nonnegative=True)  # and of the rest
R = IndexedBase("R", real=True)
xi, epsilon, reach = (Symbol(name, positive=True) for name in ("xi", "epsilon", "rho"))
c = IndexedBase("c", nonnegative=True)  # 2 TV of the rest, after each first token
T, t = Symbol("T", positive=True), Symbol("t", integer=True, positive=True)
PARTS = (
    given(total(lambda i: m[i]), 1),
    given_all(lambda i: (p[i], m[i] + up[i] - down[i])),
    given_all(lambda i, h: (q[i, h], w[i, h] + rise[i, h] - fall[i, h])),
    given_all(lambda i: (total(lambda h: w[i, h]), 1)),
    given_all(lambda i: (total(lambda h: rise[i, h]), c[i] / 2)),
    given_all(lambda i: (total(lambda h: fall[i, h]), c[i] / 2)),
)
FIRST = total(lambda i: up[i] + down[i])  # 2 TV of the first token
SPREAD = total(lambda i, h: (up[i] + down[i]) * (rise[i, h] + fall[i, h]))
GAP = total(lambda i, h: m[i] * w[i, h] * R[i, h] * (p[i] / m[i] - 1) * (1 - q[i, h] / w[i, h]))

SHORT = (
    alias("Δ", "the gap of a first token and the rest", GAP),
    alias("L₁", "Σ |π − μ| over the first token, twice its total variation", FIRST),
    alias("L₂", "the same times Σ |π − μ| over the rest", SPREAD),
)


def _draw(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """Policies for a first token and for the rest, rewards in [-xi, xi], and the largest changes."""
    first, rest = rng.dirichlet(np.ones(size), size=2), rng.dirichlet(np.ones(size), size=(2, size))
    change, changes = first[0] - first[1], rest[0] - rest[1]
    return {
        "p": first[0], "m": first[1], "a": np.maximum(change, 0), "b": np.maximum(-change, 0),
        "q": rest[0], "w": rest[1], "g": np.maximum(changes, 0), "h": np.maximum(-changes, 0),
        "c": np.abs(changes).sum(axis=-1), "R": rng.uniform(-2, 2, (size, size)), "xi": 2.0,
        "epsilon": np.abs(change).sum() / 2, "rho": np.abs(changes).sum(axis=-1).max() / 2, "T": 5.0,
    }  # fmt: skip


def _signed(sign: int) -> Any:
    """What xi * SPREAD exceeds the gap, or minus the gap, by."""

    def part(i: Any, h: Any) -> Any:
        same, opposite = up[i] * rise[i, h] + down[i] * fall[i, h], up[i] * fall[i, h] + down[i] * rise[i, h]
        return (xi + sign * R[i, h]) * same + (xi - sign * R[i, h]) * opposite

    return total(part)


def _two_tokens() -> tuple[Step, ...]:
    bounded = (*PARTS, nonneg_all(lambda i, h: xi + R[i, h]), nonneg_all(lambda i, h: xi - R[i, h]))
    return (
        Step(
            "A term of the gap is the change of one token times the change of the rest after it.",
            GAP,
            -total(lambda i, h: R[i, h] * (p[i] - m[i]) * (q[i, h] - w[i, h])),
            hypotheses=(),
        ),
        Step(
            "With |R| ≤ ξ it is at most ξ times the absolute changes,",
            xi * SPREAD - GAP,
            _signed(1),
            "nonneg",
            bounded,
        ),
        Step("and at least minus that.", xi * SPREAD + GAP, _signed(-1), "nonneg", bounded),
    )


def quadratic_bound() -> Theorem:
    """T12c."""
    close = (*PARTS, nonneg(2 * epsilon - FIRST), nonneg_all(lambda i: 2 * reach - c[i]))
    joint = total(lambda i, h: (up[i] + down[i]) * q[i, h] + m[i] * (rise[i, h] + fall[i, h]))
    tokens = Sum(4 * (T - t), (t, 1, T))
    return Theorem(
        id="T12c",
        title="The gap is at most quadratic in horizon and divergence",
        statement=r"|\Delta| \le 2\, T (T - 1)\, \xi\, \varepsilon^2, \qquad "
        r"\varepsilon = \max TV \text{ per prefix}, \; |R| \le \xi",
        scope="Any vocabulary size, every horizon, one reward at the end. ε is the largest total variation "
        "over ALL prefixes, not an average over sampled ones. At T = 2 the bound is attained; where it "
        "exceeds 2 ξ it says nothing.",
        tier="G",
        steps=(
            *_two_tokens(),
            Step(
                "If the first token changes by at most ε and the rest by at most ρ, that is at most 4 ξ ε ρ: "
                "first the rest,",
                2 * reach * FIRST - SPREAD,
                total(lambda i: (up[i] + down[i]) * (2 * reach - c[i])),
                "nonneg",
                close,
            ),
            Step(
                "then the token.",
                4 * epsilon * reach - 2 * reach * FIRST,
                2 * reach * (2 * epsilon - FIRST),
                "nonneg",
                close,
            ),
            Step(
                "How much the rest changes adds up: a sequence changes by its first token, or by its rest.",
                p[k] * q[k, j] - m[k] * w[k, j],
                (p[k] - m[k]) * q[k, j] + m[k] * (q[k, j] - w[k, j]),
                hypotheses=(),
            ),
            Step(
                "Summed with absolute values (the triangle inequality), at most 2 ε + 2 ρ.",
                2 * epsilon + 2 * reach - joint,
                total(lambda i: m[i] * (2 * epsilon - FIRST)) + total(lambda i: m[i] * (2 * reach - c[i])),
                "nonneg",
                close,
            ),
            Step(
                "By induction the T − t tokens after token t change by at most (T − t) ε in total variation.",
                kind="cited",
            ),
            Step("Over all tokens the terms 4 ξ ε (T − t) ε add up.", tokens, 2 * T * (T - 1), "scalar", ()),
            Step("Two tokens can attain it.", kind="exact", decide=attained),
            Step("Exact random trees obey it.", kind="exact", decide=random_trees),
        ),
        mutants=(
            Mutant(
                "The sign of the gap.",
                GAP,
                total(lambda i, h: R[i, h] * (p[i] - m[i]) * (q[i, h] - w[i, h])),
                (),
            ),
            Mutant("Half the certificate.", xi * SPREAD / 2 - GAP, _signed(1), PARTS),
            Mutant("The sum over T instead of T − 1.", 2 * T**2, 2 * T * (T - 1), ()),
            Mutant("The rest weighed by π.", joint, FIRST + total(lambda i: p[i] * c[i]), PARTS),
        ),
        residue=(
            "Every continuation after a token counts as one outcome of a single second token; unused ones "
            "have "
            "probability 0.",
        ),
        aliases=SHORT,
        traces=(
            trace(
                "bounds.horizon_quadratic",
                lambda case: [
                    shipped.horizon_quadratic(case.number(epsilon), length, case.number(xi))
                    for length in (1, 2, 3, 4)
                ],
                tuple(2 * length * (length - 1) * xi * epsilon**2 for length in (1, 2, 3, 4)),
                UNTIED[:1],
            ),
        ),
        sample=_draw,
    )


def linear_bound() -> Theorem:
    """T12d."""
    minimum = (*PARTS, nonneg_all(lambda i, h: w[i, h] - fall[i, h]))
    sizes = tuple(
        replace(UNTIED[0], point={**UNTIED[0].point, epsilon: Rational(size)})
        for size in ("1/8", "3/4", "3/2")
    )
    return Theorem(
        id="T12d",
        title="The gap is at most linear in the horizon",
        statement=r"|\Delta| \le 4\, \xi \sum_t E_\mu[TV_t]; \qquad "
        r"|\Delta| \le 4\, \xi \sum_t \min(1, \varepsilon) \min(1, (t - 1)\, \varepsilon)",
        scope="As T12c, with the average total variation over prefixes of μ, which can be sampled. Better "
        "than T12c at long horizons only.",
        tier="G",
        steps=(
            *_two_tokens(),
            Step(
                "No policy changes by more than a total variation of 1, whatever comes after the token.",
                2 * FIRST - SPREAD,
                total(lambda i, h: 2 * (up[i] + down[i]) * (w[i, h] - fall[i, h])),
                "nonneg",
                minimum,
            ),
            Step("Averaged over prefixes of μ, token t adds at most 4 ξ E_μ[TV_t] to the gap.", kind="cited"),
            Step("If two bounds hold for every token, so does the smaller of them.", kind="cited"),
        ),
        mutants=(
            Mutant(
                "The factor 2 lost.",
                FIRST - SPREAD,
                total(lambda i, h: (up[i] + down[i]) * (w[i, h] - fall[i, h])),
                PARTS,
            ),
        ),
        traces=(
            trace(
                "bounds.horizon_linear",
                lambda case: shipped.horizon_linear(case.vector(v), case.number(xi)),
                4 * xi * total(lambda i: v[i]),
                UNTIED[:1],
            ),
            trace(
                "bounds.horizon_coupling",
                lambda case: shipped.horizon_coupling(
                    SymbolicArray(case.number(epsilon)), 3, case.number(xi)
                ),
                4 * xi * Min(1, epsilon) * (Min(1, epsilon) + Min(1, 2 * epsilon)),
                sizes,
            ),
        ),
        aliases=SHORT,
        sample=_draw,
    )
