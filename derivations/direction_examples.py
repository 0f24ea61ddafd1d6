r"""T5e, how strange disagreement can be: exact examples, an exhaustive search, two families without bound.

All policies are whole numbers over a common denominator; nothing here is rounded.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from sympy import Limit, Rational, Symbol

from .hypotheses import nonneg
from .intervals import policy, shown
from .theorem import Mutant, Step, Theorem, Verdict

e = Symbol("e", positive=True)
HALF = Rational(1, 2)


def average_shift(mu: Sequence[Any], pi: Sequence[Any]) -> Any:
    """E_pi[d], d = pi - mu; of numbers or of expressions."""
    return sum(b * (b - a) for a, b in zip(mu, pi, strict=True))


def change_at(mu: Sequence[Any], pi: Sequence[Any], k: int) -> Any:
    """c_k, the first-order change of forward KL."""
    return pi[k] - mu[k] - average_shift(mu, pi)


def disagreeing(mu: Sequence[Fraction], pi: Sequence[Fraction]) -> list[int]:
    """The tokens on which d_k and c_k have strictly opposite signs."""
    return [k for k in range(len(pi)) if (pi[k] - mu[k]) * change_at(mu, pi, k) < 0]


def compositions(size: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `size` as an ordered sum of `parts` positive whole numbers."""
    if parts == 1:
        yield (size,)
        return
    for first in range(1, size - parts + 2):
        for rest in compositions(size - first, parts - 1):
            yield (first, *rest)


def examples(size: int) -> list[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Every (mu, pi, token) over the common denominator `size`, any vocabulary, where the tests disagree."""
    return [
        (a, b, k)
        for parts in range(1, size + 1)
        for a in compositions(size, parts)
        for b in compositions(size, parts)
        for k in disagreeing(policy(a), policy(b))
    ]


def _none_below_seven() -> Verdict:
    found = [example for size in range(1, 7) for example in examples(size)]
    return Verdict(not found, f"{len(found)} disagreements with a common denominator up to 6")


def _one_at_seven() -> Verdict:
    found = examples(7)
    kinds = {tuple(sorted((a[i], b[i], i == k) for i in range(len(a)))) for a, b, k in found}
    mu, pi = policy((5, 1, 1)), policy((1, 2, 4))
    holds = (
        len(kinds) == 1 and ((5, 1, 1), (1, 2, 4), 1) in found and change_at(mu, pi, 1) == Fraction(-3, 49)
    )
    return Verdict(
        holds, f"μ = (5, 1, 1)/7, π = (1, 2, 4)/7, middle token: d = 1/7, c = {change_at(mu, pi, 1)}"
    )


def _ninety_eight_percent() -> Verdict:
    mu, pi = policy((9898, 1, 101)), policy((9899, 100, 1))
    mass = sum(pi[k] for k in disagreeing(mu, pi))
    return Verdict(
        mass > Fraction(98, 100), f"μ = (9898, 1, 101)/10⁴, π = (9899, 100, 1)/10⁴: {float(mass):.2%} of π"
    )


def _ten_thousandfold() -> Verdict:
    mu, pi = policy((1, 550_000, 449_999)), policy((10_000, 700_000, 290_000))
    change = change_at(mu, pi, 0)
    holds = pi[0] / mu[0] == 10_000 and Fraction(-0.049) < change < Fraction(-0.0485)
    return Verdict(
        holds, f"μ = (1, 550000, 449999)/10⁶, π = (10000, 700000, 290000)/10⁶: r = 10⁴, c = {shown(change)}"
    )


CROWD = (1 - e - 2 * e**2, e**2, e + e**2), (1 - e - e**2, e, e**2)  # mu and pi: nearly all mass disagrees
RAISED = (e**2, HALF - e**2, HALF), (e, Rational(3, 4) - e, Rational(1, 4))  # r = 1/e, and c stays below 0


def smallest_and_worst() -> Theorem:
    """T5e."""
    crowd, raised = change_at(*CROWD, 0), change_at(*RAISED, 0)
    return Theorem(
        id="T5e",
        title="Disagreement: the smallest example, and no bound on it",
        statement=r"n = 3,\ \mu = (5,1,1)/7,\ \pi = (1,2,4)/7: \quad d_2 = \tfrac17 > 0 > c_2 = "
        r"-\tfrac{3}{49}",
        scope="Existence, and an exhaustive search over all policies with positive probabilities and a "
        "common denominator up to 7, any vocabulary size. The search says what can happen, not what "
        "does: how often the tests disagree on real tokens must be measured.",
        tier="Q",
        steps=(
            Step(
                "With a common denominator up to 6 the two tests never disagree.",
                kind="exact",
                decide=_none_below_seven,
            ),
            Step(
                "With 7 they disagree once, up to the names of the tokens.",
                kind="exact",
                decide=_one_at_seven,
            ),
            Step("The tests can disagree on 98% of π's mass.", kind="exact", decide=_ninety_eight_percent),
            Step(
                "Take π = (1 − e − e², e, e²), μ = (1 − e − 2e², e², e + e²) with e ≤ 1/4: for the first "
                "token d = e² is positive, and −c is this.",
                -crowd,
                e**2 * (1 - 4 * e) + e**3 * (1 - e),
                "nonneg",
                (nonneg(1 - 4 * e), nonneg(1 - e)),
            ),
            Step("Its probability tends to one as e shrinks.", Limit(CROWD[1][0], e, 0), 1, "scalar", ()),
            Step(
                "A rare token that was raised 10 000-fold can lower KL by being raised further.",
                kind="exact",
                decide=_ten_thousandfold,
            ),
            Step(
                "Take π = (e, 3/4 − e, 1/4), μ = (e², 1/2 − e², 1/2): the first token has r = 1/e, without "
                "bound, and c tends to −1/8.",
                Limit(raised, e, 0),
                Rational(-1, 8),
                "scalar",
                (),
            ),
        ),
        mutants=(
            Mutant("c of the likely token without the global term.", -crowd, CROWD[0][0] - CROWD[1][0], ()),
            Mutant(
                "The average of d under μ.",
                -crowd,
                -(e**2) + sum(a * (b - a) for a, b in zip(*CROWD, strict=True)),
                (),
            ),
            Mutant("The last power lost.", -crowd, e**2 * (1 - 3 * e), ()),
        ),
        sample=lambda rng, size: {"e": rng.uniform(0.05, 0.25)},
    )
