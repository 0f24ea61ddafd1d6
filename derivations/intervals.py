"""Outward-rounded interval arithmetic for claims that contain log or exp and exact rational data.

Every result is an interval that surely contains the true number: `is_positive` and `is_negative` prove.
Rational data are given as whole numbers over a common denominator: `policy((5, 7, 7))` is (5, 7, 7)/19.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mpmath.ctx_iv import MPIntervalContext

iv = MPIntervalContext()  # a context of our own: the precision of mpmath.iv stays as the reader left it
iv.dps = 30


def policy(weights: Sequence[int]) -> list[Fraction]:
    """Exact probabilities proportional to whole numbers."""
    return [Fraction(weight, sum(weights)) for weight in weights]


def enclose(number: Any) -> Any:
    """The tightest interval around a Fraction or an int; an interval is returned as it is."""
    return iv.mpf(number.numerator) / number.denominator if isinstance(number, Fraction | int) else number


def kl(first: Sequence[Any], second: Sequence[Any]) -> Any:
    """KL(first || second), both positive."""
    pairs = [(enclose(a), enclose(b)) for a, b in zip(first, second, strict=True)]
    return sum((a * iv.log(a / b) for a, b in pairs), iv.mpf(0))


def tv(first: Sequence[Any], second: Sequence[Any]) -> Any:
    """Total variation, half the sum of absolute differences."""
    return sum((abs(enclose(a) - enclose(b)) for a, b in zip(first, second, strict=True)), iv.mpf(0)) / 2


def moved(pi: Sequence[Fraction], k: int, s: Fraction | int) -> list[Any]:
    """`pi` after the logit step s (e_k - pi)."""
    weights = [enclose(q) * iv.exp(enclose(s * (int(i == k) - q))) for i, q in enumerate(pi)]
    return [weight / sum(weights) for weight in weights]


def coarsen(probabilities: Sequence[Any], retained: Sequence[int]) -> list[Any]:
    """The retained tokens, each its own cell, and one cell with the mass of all others."""
    rest = [q for i, q in enumerate(probabilities) if i not in retained]
    return [*(probabilities[i] for i in retained), sum(rest[1:], rest[0])]


def is_positive(interval: Any) -> bool:
    """Whether every number in the interval is > 0."""
    return bool(enclose(interval).a > 0)


def is_negative(interval: Any) -> bool:
    """Whether every number in the interval is < 0."""
    return bool(enclose(interval).b < 0)


def shown(number: Any) -> str:
    """A short decimal for a Fraction or for the middle of a tight interval."""
    return f"{float(number) if isinstance(number, Fraction | int) else float(number.mid):+.4f}"
