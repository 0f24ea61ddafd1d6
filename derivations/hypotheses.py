"""What a step may assume: equalities, symmetry, and signs, each closed or for all tokens.

The kernel rewrites equalities, the sign walker uses `Nonneg`, and the evaluator checks that every random
assignment it tries really satisfies all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sympy import sympify

from .notation import fresh_indices, m, p, total


@dataclass(frozen=True)
class Given:
    """`lhs = rhs` for all values of `indices`; the kernel rewrites lhs into rhs."""

    lhs: Any
    rhs: Any
    indices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Symmetric:
    """A two-index base with base[i, j] = base[j, i]."""

    base: Any


@dataclass(frozen=True)
class Nonneg:
    """`expr >= 0` for all values of `indices`."""

    expr: Any
    indices: tuple[Any, ...] = ()


Hypothesis = Given | Symmetric | Nonneg


def given(lhs: Any, rhs: Any) -> Given:
    """A closed equality.  After normalising, lhs must be one sum, one symbol or one indexed entry."""
    return Given(sympify(lhs), sympify(rhs))


def given_all(body: Callable[..., tuple[Any, Any]]) -> Given:
    """An equality for every token, e.g. `given_all(lambda i: (b[i] ** 2, b[i]))`.

    lhs is a product of powers of indexed entries, or one sum such as `total(lambda j: q[i, j])`.
    """
    indices = fresh_indices(body)
    lhs, rhs = body(*indices)
    return Given(sympify(lhs), sympify(rhs), indices)


def nonneg(expr: Any) -> Nonneg:
    """A closed inequality expr >= 0."""
    return Nonneg(sympify(expr))


def nonneg_all(body: Callable[..., Any]) -> Nonneg:
    """An inequality for every token, e.g. `nonneg_all(lambda i: cap - m[i])`."""
    indices = fresh_indices(body)
    return Nonneg(sympify(body(*indices)), indices)


SIMPLEX: tuple[Hypothesis, ...] = (given(total(lambda i: p[i]), 1), given(total(lambda i: m[i]), 1))
