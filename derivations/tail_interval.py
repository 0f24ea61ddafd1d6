r"""T7, fourth part: an interval for the change that is proven, not guessed.

The trainer has all of pi; of mu it has K entries, the mass M of the rest, and a cap b = mu_(K) on every
hidden entry. The change c_k is linear in mu, so its extremes are those of the hidden overlap sum pi mu: a
fractional knapsack.
"""

from collections.abc import Iterable
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
from sympy import Add, Expr, IndexedBase, Max, Min, Symbol

from divsim.formulas.overlap import overlap_bounds_at, overlap_bracket

from .hypotheses import given_all, nonneg_all
from .notation import m, p, total
from .symbolic import SymbolicArray
from .theorem import Mutant, Step, Theorem, Verdict, alias
from .trace import FOUR, UNTIED, Case, trace

lam = Symbol("lambda", real=True)
a, b, MASS = (Symbol(name, positive=True) for name in ("a", "b", "M"))
above, below = IndexedBase("alpha", nonnegative=True), IndexedBase("beta", nonnegative=True)
full, low, rest = (IndexedBase(name, nonnegative=True) for name in ("f", "g", "e"))
M, OVERLAP = total(lambda i: m[i]), total(lambda i: p[i] * m[i])
PRICED = given_all(lambda i: (p[i], lam + above[i] - below[i]))
CAPPED = nonneg_all(lambda i: b - m[i])
UPPER = lam * M + b * total(lambda i: above[i])
LOWER = lam * M - b * total(lambda i: below[i])


def draw_knapsack(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """A tail of pi, a capped mu, a price equal to one pi, and the tokens that each extreme fills."""
    pi, cap = rng.uniform(0.05, 1, size) / size, 0.3
    price, spare = float(rng.choice(pi)), rng.uniform(0, cap, size)
    gain = pi - price
    return {
        "p": pi, "m": rng.uniform(0, cap, size), "b": cap, "a": float(pi.max()), "lambda": price,
        "alpha": np.maximum(gain, 0), "beta": np.maximum(-gain, 0),
        "f": (gain > 0).astype(float), "g": (gain < 0).astype(float), "e": np.where(gain == 0, spare, 0.0),
    }  # fmt: skip


def fill(values: Iterable[Fraction], mass: Fraction, cap: Fraction) -> Fraction:
    """sum of value * mu when mu gives `cap` to the first values until `mass` is spent."""
    spent, overlap = Fraction(0), Fraction(0)
    for value in values:
        share = min(cap, mass - spent)
        spent, overlap = spent + share, overlap + share * value
    return overlap


def _cases() -> list[tuple[list[Fraction], Fraction, Fraction]]:
    """Tails of pi with M and b, in 64ths, so that double precision does not round their overlaps."""
    tails = ([9], [5, 3], [7, 2, 2], [8, 1, 4, 3], [1, 2, 3, 4], [6, 6, 6, 1, 2])
    sizes = [(mass, cap) for cap in (2, 3, 5) for mass in (1, 4, 7, 9)]
    return [
        ([Fraction(q, 64) for q in tail], Fraction(mass, 64), Fraction(cap, 64))
        for tail in tails
        for mass, cap in sizes
        if mass <= cap * len(tail)
    ]


def _priced(pi: list[Fraction], mass: Fraction, cap: Fraction, price: Fraction) -> list[Fraction]:
    zero = Fraction(0)
    short = sum((max(price - q, zero) for q in pi), zero)
    excess = sum((max(q - price, zero) for q in pi), zero)
    return [price * mass - cap * short, price * mass + cap * excess]


def filled(case: Case) -> list[Any]:
    """The lower and the upper end of the hidden overlap of a coarse view, written out."""
    hidden = [i for i, is_hidden in enumerate(case.hidden()) if is_hidden]
    rising = sorted(hidden, key=lambda i: case.number(case.pi[i]).value)
    cap = sorted(case.mu, key=lambda mass: case.number(mass).value)[-2]
    mass = Add(*(case.mu[i] for i in hidden))

    def end(order: list[int]) -> Expr:
        shares = (Min(cap, Max(mass - place * cap, 0)) for place in range(len(order)))
        return Add(*(case.pi[i] * share for i, share in zip(order, shares, strict=True)))

    return [case.explicit(end(order)) for order in (rising, rising[::-1])]


def _run_bounds(case: Case) -> Any:
    mass, cap, price = (SymbolicArray(case.number(symbol)) for symbol in (MASS, b, lam))
    return overlap_bounds_at(SymbolicArray([case.number(q) for q in case.pi]), mass, cap, price, price)


def _run_bracket(case: Case) -> Any:
    view = case.coarse_view()
    return view.overlap_low, view.overlap_high


def _all_vertices() -> Verdict:
    cases = _cases()
    for pi, mass, cap in cases:
        corners = [fill(order, mass, cap) for order in permutations(pi)]
        lowest, highest = fill(sorted(pi), mass, cap), fill(sorted(pi, reverse=True), mass, cap)
        bounds = [_priced(pi, mass, cap, price) for price in pi]
        tight = max(under for under, _ in bounds) == lowest == min(corners)
        if not (tight and min(over for _, over in bounds) == highest == max(corners)):
            return Verdict(False, f"π = {pi}, M = {mass}, b = {cap}")
        shipped = overlap_bracket(np.array(pi, dtype=float), np.float64(mass), np.float64(cap))
        if tuple(map(Fraction, map(float, shipped))) != (lowest, highest):
            return Verdict(False, f"overlap_bracket at π = {pi}, M = {mass}, b = {cap}: {shipped}")
    return Verdict(
        True, f"{len(cases)} tails of 1 to 5 tokens, all vertices, and overlap_bracket bit for bit"
    )


def knapsack() -> Theorem:
    """T7k."""
    return Theorem(
        id="T7k",
        title="The hidden overlap lies in a knapsack interval",
        statement=r"0 \le \mu_i \le b,\ \sum_i \mu_i = M:\quad \lambda M - b\sum_i(\lambda-\pi_i)_+ \le "
        r"\sum_i\pi_i\mu_i \le \lambda M + b\sum_i(\pi_i-\lambda)_+ \quad\text{for every } \lambda",
        scope="The tokens are the tail, of any size; M and b are exact and b caps every hidden entry of μ. "
        "The bounds hold for any price λ; at the best one they are attained, so nothing better follows from "
        "M and b alone (overlap.bracket, overlap.bounds_at).",
        tier="G",
        steps=(
            Step(
                "With π − λ = α − β, α and β the positive parts, the upper bound exceeds the overlap by a "
                "sum of products of things that are not negative.",
                UPPER - OVERLAP,
                total(lambda i: below[i] * m[i] + above[i] * (b - m[i])),
                kind="nonneg",
                hypotheses=(PRICED, CAPPED),
            ),
            Step(
                "The overlap exceeds the lower bound in the same way.",
                OVERLAP - LOWER,
                total(lambda i: above[i] * m[i] + below[i] * (b - m[i])),
                kind="nonneg",
                hypotheses=(PRICED, CAPPED),
            ),
            Step(
                "The upper bound is attained: fill every token above the price to b, and leave those below "
                "it empty.",
                _gap(full, 1),
                0,
                hypotheses=_filled(full, above, below),
            ),
            Step(
                "The lower bound is attained by filling the tokens below the price instead.",
                _gap(low, -1),
                0,
                hypotheses=_filled(low, below, above),
            ),
            Step(
                "Without sorting or a price, the overlap is at most b P.",
                b * total(lambda i: p[i]) - OVERLAP,
                total(lambda i: p[i] * (b - m[i])),
                kind="nonneg",
                hypotheses=(CAPPED,),
            ),
            Step(
                "It is also at most M times the largest hidden π, called a.",
                a * M - OVERLAP,
                total(lambda i: m[i] * (a - p[i])),
                kind="nonneg",
                hypotheses=(nonneg_all(lambda i: a - p[i]),),
            ),
            Step(
                "A linear function on a polytope is largest and smallest at vertices, and a vertex of the "
                "rows with 0 ≤ μ ≤ b and a given sum has at most one entry strictly between 0 and b.",
                kind="cited",
            ),
            Step(
                "On exact tails the filled value, the best price and the best of all vertices are one "
                "number.",
                kind="exact",
                decide=_all_vertices,
            ),
        ),
        mutants=(
            Mutant(
                "The cap forgotten.",
                lam * M + total(lambda i: above[i]) - OVERLAP,
                total(lambda i: below[i] * m[i] + above[i] * (b - m[i])),
                (PRICED,),
            ),
            Mutant(
                "The free mass priced on the wrong side.",
                lam * M + b * total(lambda i: below[i]) - OVERLAP,
                total(lambda i: below[i] * m[i] + above[i] * (b - m[i])),
                (PRICED,),
            ),
            Mutant("The upper bound attained by any μ.", UPPER - OVERLAP, 0, (PRICED,)),
        ),
        traces=(
            trace(
                "overlap.overlap_bounds_at",
                _run_bounds,
                (
                    lam * MASS - b * total(lambda i: Max(lam - p[i], 0)),
                    lam * MASS + b * total(lambda i: Max(p[i] - lam, 0)),
                ),
                UNTIED,
            ),
            trace("overlap.overlap_bracket", _run_bracket, filled, FOUR),
        ),
        aliases=(
            alias("O", "the overlap Σ μ π; all sums run over the hidden tokens", OVERLAP),
            alias("M", "Σ μ, the tail's mass under μ", M),
            alias("P", "Σ π, its mass under π", total(lambda i: p[i])),
        ),
        sample=draw_knapsack,
    )


def _gap(filled: Any, side: int) -> Any:
    """Bound minus overlap, up to sign, where mu is b on `filled` tokens and the rest lies at the price."""
    excess = above if side > 0 else below

    def slack(i: Any) -> Any:
        return (lam - p[i]) * (b * filled[i] + rest[i]) + side * b * excess[i]

    return total(slack)


def _filled(filled: Any, inside: Any, outside: Any) -> tuple[Any, ...]:
    return (
        PRICED,
        given_all(lambda i: (filled[i] * inside[i], inside[i])),
        given_all(lambda i: (filled[i] * outside[i], 0)),
        given_all(lambda i: (rest[i] * inside[i], 0)),
        given_all(lambda i: (rest[i] * outside[i], 0)),
    )


THEOREMS = (knapsack,)
