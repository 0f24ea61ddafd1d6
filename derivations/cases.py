"""Small pairs of policies with symbolic masses, on which shipped formulas are traced.

A `Case` is one pair and one point, rational numbers that decide which arm of a formula is taken.  `PAIRS`
puts each of three cells on every side: above and below, nearer and farther than |log r| = 1, tied.  That
these are all sides of the shipped formulas is shown by random policies in tests/test_trace.py, not here.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from sympy import Abs, Add, Expr, Indexed, Max, Min, Rational, S, Sum, log, sign, sympify
from sympy.core.function import AppliedUndef

from divsim.formulas import View

from .notation import is_index, k, m, n, p
from .symbolic import Real, SymbolicArray, order, value_of


@dataclass(frozen=True)
class Case:
    """A pair of policies over a few tokens.

    Attributes:
      mu, pi: the masses, expressions in m[0], m[1], ... and p[0], p[1], ...; 0 in both for a masked token.
      point: a rational number for each of these entries.
      action: the sampled token k.
    """

    mu: tuple[Expr, ...]
    pi: tuple[Expr, ...]
    point: dict[Indexed, Rational] = field(hash=False)
    action: int = 0

    def number(self, expr: Any) -> Real:
        """An expression as an exact number; what the point lacks gets a value of its own from its name."""
        expr = sympify(expr)
        names = expr.free_symbols - {entry.base.label for entry in expr.atoms(Indexed)}
        return Real(expr, value_of(expr.subs({name: self._value(name) for name in names})))

    def _value(self, name: Any) -> Rational:
        unit = Rational(zlib.crc32(str(name).encode()) % 997 + 1, 1000)
        return self.point.get(name, unit if name.is_positive else 2 * unit - 1)

    def vector(self, base: Any) -> SymbolicArray:
        """base[0], base[1], ...: (V)."""
        return self._array([base[i] for i in range(len(self.pi))])

    def table(self, base: Any) -> SymbolicArray:
        """base[0, 0], base[0, 1], ...: (V, V)."""
        tokens = range(len(self.pi))
        return self._array([[base[i, j] for j in tokens] for i in tokens])

    def _array(self, entries: Any) -> SymbolicArray:
        return SymbolicArray(np.frompyfunc(self.number, 1, 1)(np.array(entries, dtype=object)))

    @cached_property
    def log_mu(self) -> SymbolicArray:
        """(V) log of the behaviour policy, nats."""
        return self._array([log(mass) if mass else -S.Infinity for mass in self.mu])

    @cached_property
    def log_pi(self) -> SymbolicArray:
        """(V) log of the training policy, nats."""
        return self._array([log(mass) if mass else -S.Infinity for mass in self.pi])

    @property
    def k(self) -> SymbolicArray:
        """() int, the sampled token."""
        return SymbolicArray(self.action)

    @cached_property
    def full_view(self) -> View:
        """The view that hides nothing, made by the shipped constructor."""
        return View.full(self.log_mu, self.log_pi, self.k, check=False)

    def coarse_view(self, size: int = 2) -> View:
        """The view of the `size` likeliest tokens under mu and the sampled one, with its bracket."""
        return View.top_k(self.log_mu, self.log_pi, self.k, size, bracket=True, check=False)

    def hidden(self, size: int = 2) -> tuple[int, ...]:
        """Indicator of the tail of `coarse_view(size)`: 1 at hidden tokens."""
        ranked = sorted(range(len(self.mu)), key=lambda i: -self.number(self.mu[i]).value)
        return tuple(int(i not in ranked[:size] and i != self.action) for i in range(len(self.mu)))

    def explicit(self, expr: Any, tokens: Iterable[int] | None = None, **values: Any) -> Any:
        """A general-n expression written out: a list over its free index, if it has one besides k.

        Sums run over `tokens`, by default all that are not masked.  p and m become the masses, k the action;
        |x|, sign x, Max and Min are settled at the point; other bases keep their entries.  `values` overrules
        by name: a sequence for a base, an expression for a symbol, a function for a function.
        """
        expr = sympify(expr)
        shown = tuple(i for i, mass in enumerate(self.pi) if mass) if tokens is None else tuple(tokens)
        names = {"p": self.pi, "m": self.mu, k.name: self.action, n.name: len(shown), **values}
        writer = _Writer(self, shown, names)
        free = [index for index in expr.free_symbols if is_index(index) and index.name not in names]
        if not free:
            return writer.write(expr, {})
        (index,) = free
        return [writer.write(expr, {index: token}) for token in range(len(self.pi))]


@dataclass(frozen=True)
class _Writer:
    """Writes sums out over `tokens`, with names replaced and signs settled at the case's point."""

    case: Case
    tokens: tuple[int, ...]
    names: dict[str, Any]

    def write(self, expr: Any, bound: dict[Any, int]) -> Any:
        if isinstance(expr, Sum):
            return self._sum(expr.function, expr.bound_symbols, bound)
        if isinstance(expr, Indexed):
            return self._entry(expr, bound)
        if expr.is_Symbol:
            return sympify(bound[expr] if expr in bound else self.names.get(expr.name, expr))
        args = [self.write(arg, bound) for arg in expr.args]
        if isinstance(expr, AppliedUndef):
            return sympify(self.names[expr.func.__name__](*args))
        if isinstance(expr, Abs | sign):
            side = sympify(order(self.case.number(args[0]), 0))
            return side * args[0] if isinstance(expr, Abs) else side
        if isinstance(expr, Max | Min):
            extreme = max if isinstance(expr, Max) else min
            return extreme(self.case.number(arg) for arg in args).expr
        return expr.func(*args) if args else expr

    def _sum(self, body: Any, indices: list[Any], bound: dict[Any, int]) -> Any:
        if not indices:
            return self.write(body, bound)
        first, *others = indices
        return Add(*(self._sum(body, others, {**bound, first: token}) for token in self.tokens))

    def _entry(self, expr: Any, bound: dict[Any, int]) -> Any:
        if all(index.is_Integer for index in expr.indices):
            return expr  # written out before
        tokens = tuple(int(self.write(index, bound)) for index in expr.indices)
        if (value := self.names.get(str(expr.base))) is None:
            return expr.base[tokens]
        for token in tokens:
            value = value[token]
        return sympify(value)


_Weights = tuple[int, ...]
ABOVE_AND_BELOW: tuple[tuple[_Weights, _Weights], ...] = (
    ((3, 4, 5), (4, 5, 3)),
    ((4, 6, 10), (7, 12, 1)),
    ((4, 1, 15), (6, 5, 9)),
    ((5, 2, 13), (7, 12, 1)),
    ((2, 3, 95), (12, 20, 68)),
    ((1, 2, 17), (6, 11, 3)),
)
"""Weights of mu and pi: every mix of above, below, near and far that two policies allow, up to order."""


def _pair(mu: _Weights, pi: _Weights) -> Case:
    point = {
        base[i]: Rational(weights[i], sum(weights))
        for base, weights in ((m, mu), (p, pi))
        for i in range(len(mu))
    }
    tokens = range(len(mu))
    return Case(tuple(m[i] for i in tokens), tuple(p[i] for i in tokens), point)


def _turns(mu: tuple[Any, ...], pi: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    return [(mu[turn:] + mu[:turn], pi[turn:] + pi[:turn]) for turn in range(len(mu))]


def _untied() -> tuple[Case, ...]:
    both = [sides for mu, pi in ABOVE_AND_BELOW for sides in ((mu, pi), (pi, mu))]
    turned = [turn for sides in both for turn in _turns(*sides)]
    return tuple(_pair(mu, pi) for mu, pi in turned)


def _tied() -> tuple[Case, ...]:
    """One token is as likely under mu as under pi, the other two are near, or far; and mu = pi."""
    rest, pi = (p[1] + p[2]) / (m[1] + m[2]), (p[0], p[1], p[2])
    near, far = _pair((2, 3, 5), (2, 5, 3)).point, _pair((2, 1, 7), (2, 7, 1)).point
    turned = _turns((p[0], rest * m[1], rest * m[2]), pi)
    return (*(Case(*turn, point) for turn in turned for point in (near, far)), Case(pi, pi, near))


def _masked(case: Case) -> Case:
    """The same pair with one more token, which neither policy can say."""
    return replace(case, mu=(*case.mu, S.Zero), pi=(*case.pi, S.Zero))


UNTIED = _untied()
PAIRS = (*UNTIED, *_tied())
"""Three cells on every side."""
MASKED = (_masked(UNTIED[0]), _masked(UNTIED[-1]))
"""Three cells and a token that both policies exclude."""
FOUR = tuple(
    _pair(*turn)
    for mu, pi in (((9, 6, 4, 1), (5, 8, 2, 5)), ((1, 4, 9, 6), (5, 6, 2, 7)))
    for turn in _turns(mu, pi)
)
"""Pairs over four tokens, for views that hide one or two of them."""


def stepped(base: Any) -> tuple[Case, ...]:
    """Every sign pattern of pi - mu, with a small step along `base` and large ones that lift each token."""
    return tuple(
        replace(case, point={**case.point, **{base[i]: Rational(length) for i, length in enumerate(step)}})
        for case in UNTIED[:6]
        for step in ((0.25, -0.25, 0.125), (4, -5, 2), (2, 4, -5), (-5, 2, 4))
    )
