r"""T7, sixth part: what the tail masses alone say about the tail term.

If only P, M, the tail's size N and caps pi_i <= a, mu_i <= b are known, the tail term T = sum pi (mu - pi) is
still bounded. The trainer knows more, all of pi, and should use `tail_interval.py`; this is for records that
hold masses only.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
from sympy import Expr, IndexedBase, Symbol

from .hypotheses import given, given_all, nonneg, nonneg_all
from .notation import m, n, p, total
from .theorem import Mutant, Step, Theorem, Verdict, alias

a, b, x, y = (Symbol(name, positive=True) for name in "abxy")
theta = Symbol("theta", real=True)
full, empty, water, above, below = (
    IndexedBase(name, nonnegative=True) for name in ("f", "e", "w", "alpha", "beta")
)
P, M, TERM = total(lambda i: p[i]), total(lambda i: m[i]), total(lambda i: p[i] * (m[i] - p[i]))
NAMES = (
    alias("T", "the tail term Σ π (μ − π)", TERM),
    alias("P", "Σ π, the tail's mass under π", P),
    alias("M", "Σ μ, its mass under μ", M),
    alias("N", "the number of hidden tokens; all sums run over them", n),
)
CAPPED = nonneg_all(lambda i: b - m[i])
ON_OFF = given_all(lambda i: (full[i] ** 2, full[i]))
DISJOINT = (
    ON_OFF,
    given_all(lambda i: (empty[i] ** 2, empty[i])),
    given_all(lambda i: (full[i] * empty[i], 0)),
)
SMALL = (CAPPED, given(P, x * M), nonneg(1 - 2 * x))
FILLED = (
    given_all(lambda i: (m[i], theta + 2 * water[i] + above[i] - below[i])),
    given_all(lambda i: (above[i] * water[i], above[i] * a)),
    given_all(lambda i: (below[i] * water[i], 0)),
    given(total(lambda i: water[i]), P),
    nonneg_all(lambda i: a - p[i]),
)


def term(pi: Callable[[Any], Any], mu: Callable[[Any], Any]) -> Expr:
    """T for given tails."""
    return total(lambda i: pi(i) * (mu(i) - pi(i)))


def draw_caps(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """A tail within its caps, with P <= M / 2, and disjoint sets of tokens."""
    mu, pi, share = rng.uniform(0.05, 0.2, size), rng.uniform(0.05, 1, size), rng.uniform(0.1, 0.5)
    side = rng.integers(0, 3, size)
    return {
        "m": mu, "p": pi / pi.sum() * share * mu.sum(), "x": share, "a": 1.0, "b": 0.2,
        "f": (side == 0).astype(float), "e": (side == 1).astype(float),
    }  # fmt: skip


def mass_bounds() -> Theorem:
    """T7o."""
    upper = b * M / 4 - (P - M / 2) ** 2 / n
    return Theorem(
        id="T7o",
        title="Bounds of the tail term from masses and caps",
        statement=r"-aP \le T \le \frac{bM}{4} - \frac{(P - M/2)^2}{N}, \qquad T \le bP\Big(1 - "
        r"\frac{P}{M}\Big) \text{ if } P \le \tfrac{M}{2}",
        scope="Any tail size N; every hidden π is at most a and every hidden μ at most b. Without a cap on π "
        "take a = P. The bounds are attained by some tails, but for given P, M, N, a and b the exact "
        "extremes (T7p) can be tighter.",
        tier="G",
        steps=(
            Step(
                "The term is at least −a P.",
                TERM + a * P,
                total(lambda i: p[i] * m[i] + p[i] * (a - p[i])),
                kind="nonneg",
                hypotheses=(nonneg_all(lambda i: a - p[i]),),
            ),
            Step(
                "It is at most b P.",
                b * P - TERM,
                total(lambda i: p[i] * (b - m[i]) + p[i] ** 2),
                kind="nonneg",
                hypotheses=(CAPPED,),
            ),
            Step(
                "Complete the square in π and count each token once: the term is at most b M/4 − (P − "
                "M/2)²/N.",
                upper - TERM,
                total(lambda i: m[i] * (b - m[i]) / 4 + (p[i] - m[i] / 2 - (P - M / 2) / n) ** 2),
                kind="nonneg",
                hypotheses=(CAPPED,),
            ),
            Step(
                "If P = x M with x ≤ 1/2, it is at most b P (1 − x).",
                b * P * (1 - x) - TERM,
                total(
                    lambda i: (
                        m[i] * (p[i] - x * b) ** 2 / b + (b - m[i]) * (p[i] ** 2 / b + (1 - 2 * x) * p[i])
                    )
                ),
                kind="nonneg",
                hypotheses=SMALL,
            ),
            Step(
                "The first bound is attained where π is a on some tokens and μ is b on others.",
                term(lambda i: a * empty[i], lambda i: b * full[i]),
                -a * total(lambda i: a * empty[i]),
                hypotheses=DISJOINT,
            ),
            Step(
                "The third is attained where μ is b or 0 and π − μ/2 is constant.",
                term(lambda i: b * full[i] / 2 + y, lambda i: b * full[i]),
                b * total(lambda i: b * full[i]) / 4 - total(lambda i: y) ** 2 / n,
                hypotheses=(ON_OFF,),
            ),
            Step(
                "The fourth is attained where μ is b or 0 and π = x μ.",
                term(lambda i: x * b * full[i], lambda i: b * full[i]),
                b * total(lambda i: x * b * full[i]) * (1 - x),
                hypotheses=(ON_OFF,),
            ),
        ),
        mutants=(
            Mutant("The quarter lost.", upper - TERM, b * M - (P - M / 2) ** 2 / n - TERM, (CAPPED,)),
            Mutant(
                "N forgotten in the square.",
                b * M / 4 - (P - M / 2) ** 2 - TERM,
                total(lambda i: m[i] * (b - m[i]) / 4 + (p[i] - m[i] / 2 - (P - M / 2) / n) ** 2),
                (CAPPED,),
            ),
            Mutant(
                "The fourth bound attained by π = μ.",
                term(lambda i: m[i], lambda i: m[i]),
                b * M * (1 - x),
                SMALL,
            ),
        ),
        aliases=NAMES,
        sample=draw_caps,
    )


# --- tight values ------------------------------------------------------------------------------------------


def corner(mass: Fraction, cap: Fraction, size: int) -> list[Fraction]:
    """Caps, one remainder, zeros: a vertex of the entries in [0, cap] with that mass."""
    number, remainder = divmod(mass, cap)
    row = [*[cap] * int(number), remainder, *[Fraction(0)] * size]
    return row[:size]


def fill_to(mu: Sequence[Fraction], mass: Fraction, cap: Fraction) -> list[Fraction]:
    """pi_i = (mu_i - theta) / 2, clipped to [0, cap], with theta such that the mass is right."""

    def at(level: Fraction) -> list[Fraction]:
        return [min(max((w - level) / 2, Fraction(0)), cap) for w in mu]

    bends = sorted({*mu, *(w - 2 * cap for w in mu)})
    left = max(bend for bend in bends if sum(at(bend)) >= mass)
    above_it = [bend for bend in bends if bend > left]
    right = above_it[0] if above_it else left + 1
    more, less = sum(at(left), Fraction(0)), sum(at(right), Fraction(0))
    return at(left + (right - left) * (more - mass) / (more - less)) if more > less else at(left)


def value(pi: Sequence[Fraction], mu: Sequence[Fraction]) -> Fraction:
    """The tail term of exact tails."""
    return sum((q * (w - q) for q, w in zip(pi, mu, strict=True)), Fraction(0))


def grid(mass: int, cap: int, size: int) -> Iterator[list[Fraction]]:
    """All rows of whole numbers up to the cap with that sum."""
    for row in product(range(cap + 1), repeat=size):
        if sum(row) == mass:
            yield [Fraction(entry) for entry in row]


CASES = ((3, 6, 2, 3, 3), (2, 8, 2, 4, 3), (6, 3, 3, 2, 3), (5, 4, 2, 2, 4), (4, 8, 4, 4, 3), (3, 5, 1, 2, 4))


def _tight() -> Verdict:
    gaps = []
    for mass_pi, mass_mu, cap_pi, cap_mu, size in CASES:
        pi, mu = (corner(Fraction(w), Fraction(c), size) for w, c in ((mass_pi, cap_pi), (mass_mu, cap_mu)))
        highest = value(fill_to(mu, Fraction(mass_pi), Fraction(cap_pi)), mu)
        lowest = value(pi, mu[::-1])
        turns = [value(pi, turn) for turn in permutations(mu)]
        tails = [(q, w) for w in grid(mass_mu, cap_mu, size) for q in grid(mass_pi, cap_pi, size)]
        best = max(
            value(fill_to(w, Fraction(mass_pi), Fraction(cap_pi)), w) for w in grid(mass_mu, cap_mu, size)
        )
        if not (lowest == min(turns) == min(value(*tail) for tail in tails) and highest == best):
            return Verdict(False, f"(P, M, a, b, N) = {(mass_pi, mass_mu, cap_pi, cap_mu, size)}")
        gaps.append(Fraction(cap_mu * mass_mu, 4) - (mass_pi - Fraction(mass_mu, 2)) ** 2 / size - highest)
    shown = ", ".join(map(str, gaps))
    return Verdict(
        min(gaps) == 0, f"{len(CASES)} cases; the third bound of T7o exceeds the maximum by {shown}"
    )


def tight_values() -> Theorem:
    """T7p."""
    return Theorem(
        id="T7p",
        title="The exact extremes given masses and caps",
        statement=r"\max T:\ \mu = (b,\dots,b,\rho,0,\dots),\ \pi_i = \mathrm{clip}\big((\mu_i - \theta)/2, "
        r"0, a\big); \qquad \min T:\ \text{vertices sorted against each other}",
        scope="Any tail size for the step that says which π is best for a given μ. That the best μ is a "
        "vertex is convexity, a cited step, and the extremes were compared with all whole-number tails for a "
        "few small sets of masses.",
        tier="G",
        steps=(
            Step(
                "Among all π with mass P and cap a, none beats water filling, π_i = w_i: with μ − θ = 2w + α "
                "− β, where α is zero unless w = a and β zero unless w = 0, the difference is a sum of terms "
                "that are not negative.",
                term(lambda i: water[i], lambda i: m[i]) - TERM,
                total(lambda i: (water[i] - p[i]) ** 2 + below[i] * p[i])
                + total(lambda i: above[i] * (a - p[i])),
                kind="nonneg",
                hypotheses=FILLED,
            ),
            Step(
                "A maximum of functions that are linear in μ is convex in μ; a convex function on a polytope "
                "is largest at a vertex, and one that is concave in π and linear in μ is smallest at "
                "vertices of both.",
                kind="cited",
            ),
            Step(
                "In exact cases the smallest T is that of oppositely sorted vertices, and the largest is "
                "water filling against a vertex.",
                kind="exact",
                decide=_tight,
            ),
        ),
        mutants=(
            Mutant(
                "The cap on π ignored.",
                term(lambda i: water[i], lambda i: m[i]) - TERM,
                total(lambda i: (water[i] - p[i]) ** 2 + below[i] * p[i]),
                FILLED,
            ),
            Mutant(
                "Water filling no better than the rest.",
                term(lambda i: water[i], lambda i: m[i]),
                TERM,
                FILLED,
            ),
        ),
        aliases=(alias("T*", "T at π = w, water filling", term(lambda i: water[i], lambda i: m[i])), *NAMES),
        sample=_draw_filled,
    )


def _draw_filled(rng: np.random.Generator, size: int) -> dict[str, Any]:
    mu, level, cap = rng.uniform(0, 1, size), 0.3, 0.2
    gain = mu - level
    filled = np.clip(gain / 2, 0, cap)
    return {
        "m": mu, "theta": level, "a": cap, "w": filled, "p": np.roll(filled, 1),
        "alpha": np.maximum(gain - 2 * cap, 0), "beta": np.maximum(-gain, 0),
    }  # fmt: skip


THEOREMS = (mass_bounds, tight_values)
