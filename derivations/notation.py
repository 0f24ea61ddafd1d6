"""The letters that every chapter shares, and the one way to write a sum over the vocabulary.

Tokens are numbered 0..n-1 with n symbolic. `p` is the training policy pi, `m` the behaviour policy mu
(SymPy's own `pi` is the number 3.14...; it appears nowhere here). A sum is `total(lambda i: p[i] *
v[i])`: the constructor makes a fresh dummy index, so two sums can never share one, and the index of a
sum can never be confused with a free index. `at` replaces a free index and refuses a value that a sum
inside would capture.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from sympy import (
    Derivative,
    Dummy,
    Expr,
    Indexed,
    IndexedBase,
    Integral,
    Limit,
    Subs,
    Sum,
    Symbol,
    integrate,
    limit,
    symbols,
    sympify,
)
from sympy.core.function import AppliedUndef, UndefinedFunction

n = Symbol("n", integer=True, positive=True)
k, j, l = symbols("k j l", integer=True, nonnegative=True)  # noqa: E741 (the letter of the literature)
t, s = symbols("t s", real=True)
p = IndexedBase("p", positive=True)
m = IndexedBase("m", positive=True)
v = IndexedBase("v", real=True)
z = IndexedBase("z", real=True)
h = IndexedBase("h", nonnegative=True)  # 1 at the tokens of a tail, 0 elsewhere, where a hypothesis says so


class CaptureError(ValueError):
    """A substitution would have moved a free index into the scope of a sum."""


def fresh_index(name: str = "i") -> Any:
    """A token index that occurs nowhere else."""
    return Dummy(name, integer=True, nonnegative=True)


def fresh_indices(body: Callable[..., Any]) -> tuple[Any, ...]:
    """One new token index for every parameter of `body` that has no default."""
    parameters = inspect.signature(body).parameters.values()
    return tuple(fresh_index(each.name) for each in parameters if each.default is each.empty)


def total(body: Callable[..., Any]) -> Any:
    """Sum of `body(i)` over all tokens; `body(i, j)` gives a double sum, and so on."""
    indices = fresh_indices(body)
    return Sum(sympify(body(*indices)), *((index, 0, n - 1) for index in indices))


def mean(base: Any, body: Callable[[Any], Any]) -> Any:
    """Expectation of `body(i)` when token i has probability `base[i]`."""
    return total(lambda i: base[i] * body(i))


def at(expr: Any, index: Any, value: Any) -> Any:
    """`expr` with the free index replaced by `value`; raises CaptureError where a sum would capture it."""
    if index not in expr.free_symbols:
        return expr
    if expr == index:
        return value
    if isinstance(expr, Sum) and sympify(value).free_symbols & set(expr.bound_symbols):
        raise CaptureError(f"{value} is bound in {expr}; build sums with total(), which uses fresh indices")
    return expr.func(*(at(arg, index, value) for arg in expr.args))


def specialise(expr: Any, base: Any, body: Callable[..., Any]) -> Any:
    """`expr` with every `base[i]` replaced by `body(i)`, inside sums too.

    Safe because indices of sums are dummies that `body` cannot know except through its argument.
    """
    if isinstance(expr, Indexed) and expr.base == base:
        return sympify(body(*expr.indices))
    if not expr.has(base):
        return expr
    return expr.func(*(specialise(arg, base, body) for arg in expr.args))


@cache
def carry_out(expr: Any) -> Any:
    """`expr` with its Derivative, Subs, Integral and Limit carried out, and its sums left alone.

    A step may keep them unevaluated, so that a reader sees d/ds and not its result.  SymPy's `doit`
    would also rewrite the sums inside.
    """
    if not isinstance(expr, Expr) or not expr.has(Derivative, Subs, Integral, Limit):
        return expr
    if isinstance(expr, Derivative):
        return carry_out(expr.expr).diff(*expr.variable_count)
    if isinstance(expr, Subs):
        return carry_out(expr.expr).subs(dict(zip(expr.variables, expr.point, strict=True)))
    if isinstance(expr, Integral):
        return integrate(carry_out(expr.function), *expr.limits)
    if isinstance(expr, Limit):
        return limit(carry_out(expr.args[0]), *expr.args[1:])
    return expr.func(*(carry_out(arg) for arg in expr.args))


def smooth(name: str, order: int = 3) -> Any:
    """An uninterpreted real function; its derivatives are the functions `name + "p"`, `name + "pp"`, ..."""
    if order == 0:
        return UndefinedFunction(name, real=True)
    derivative = smooth(name + "p", order - 1)
    rules = {"fdiff": lambda self, argindex=1: derivative(self.args[0])}
    return UndefinedFunction(name, bases=(AppliedUndef,), __dict__=rules, real=True)


def is_index(symbol: Expr) -> bool:
    """Token indices are the integer symbols other than n."""
    return bool(symbol.is_Symbol and symbol.is_integer and symbol != n)
