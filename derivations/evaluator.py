"""Replays an expression on random numbers, exactly as it was written.

This is the witness that shares nothing with the kernel: no normal form, no rewriting, only NumPy arithmetic
on the original tree.  A bound index becomes an axis of its own, so a double sum is a sum over a table.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sympy import Abs, Add, Indexed, KroneckerDelta, Max, Min, Mul, Pow, Sum, exp, log, sign, sympify
from sympy.core.function import AppliedUndef

from .hypotheses import Given, Hypothesis, Nonneg, Symmetric
from .notation import is_index, n

Values = Mapping[str, Any]
_FUNCTIONS: dict[Any, Callable[..., Any]] = {exp: np.exp, log: np.log, Abs: np.abs, sign: np.sign}
_FOLDS: dict[Any, Any] = {Add: np.add, Mul: np.multiply, Max: np.maximum, Min: np.minimum}


def evaluate(expr: Any, values: Values) -> float:
    """The number that `expr` takes when symbols, bases and functions have the `values` of their names."""
    with np.errstate(all="ignore"):  # a nan or inf is reported by `difference`, not warned about
        return float(_evaluate(sympify(expr), values, {}))


def _evaluate(expr: Any, values: Values, axes: dict[Any, Any]) -> Any:
    if expr.is_Symbol:
        return axes[expr] if expr in axes else values[expr.name]
    if expr.is_number and not expr.atoms(Sum):
        return float(expr)
    if isinstance(expr, Indexed):
        tokens = (np.asarray(_evaluate(index, values, axes), dtype=int) for index in expr.indices)
        return values[str(expr.base)][tuple(tokens)]
    if isinstance(expr, Sum):
        return _evaluate_sum(expr, values, axes)
    args = [_evaluate(arg, values, axes) for arg in expr.args]
    for kind, fold in _FOLDS.items():
        if isinstance(expr, kind):
            result = args[0]
            for arg in args[1:]:
                result = fold(result, arg)
            return result
    if isinstance(expr, Pow):
        return np.power(np.asarray(args[0], dtype=float), args[1])
    if isinstance(expr, KroneckerDelta):
        return np.equal(args[0], args[1]).astype(float)
    if isinstance(expr, AppliedUndef):
        return values[expr.func.__name__](*args)
    if type(expr) in _FUNCTIONS:
        return _FUNCTIONS[type(expr)](*args)
    raise TypeError(f"the evaluator does not know {type(expr).__name__}; add it or rewrite {expr}")


def _evaluate_sum(expr: Any, values: Values, axes: dict[Any, Any]) -> Any:
    axes, count = dict(axes), len(expr.limits)
    for index, low, high in expr.limits:
        span = np.arange(int(_evaluate(low, values, axes)), int(_evaluate(high, values, axes)) + 1)
        depth = max((axis.ndim for axis in axes.values()), default=0)
        axes[index] = span.reshape((-1,) + (1,) * depth)
    shape = np.broadcast_shapes(*(axis.shape for axis in axes.values()))
    body = np.broadcast_to(_evaluate(expr.function, values, axes), shape)
    return body.sum(axis=tuple(range(count)))


def draw(exprs: list[Any], size: int, rng: np.random.Generator) -> dict[str, Any]:
    """Random values for everything free in `exprs`: positive where declared, p and m on the simplex."""
    values: dict[str, Any] = {n.name: size}
    for expr in map(sympify, exprs):
        for entry in sorted(expr.atoms(Indexed), key=str):
            name, shape = str(entry.base), (size,) * len(entry.indices)
            if name not in values:
                positive = entry.is_positive or entry.is_nonnegative
                values[name] = rng.uniform(0.05, 1, shape) if positive else rng.normal(size=shape)
        labels = {entry.base.label for entry in expr.atoms(Indexed)}
        bound = {index for inner in expr.atoms(Sum) for index in inner.bound_symbols}
        for symbol in sorted(expr.free_symbols - labels - bound, key=str):
            if symbol.is_Symbol and symbol.name not in values:
                values[symbol.name] = _draw_symbol(symbol, size, rng)
    for name in {"p", "m"} & set(values):
        values[name] = values[name] / values[name].sum()
    return values


def _draw_symbol(symbol: Any, size: int, rng: np.random.Generator) -> Any:
    if is_index(symbol):
        return int(rng.integers(size))
    return rng.uniform(0.05, 1) if symbol.is_positive or symbol.is_nonnegative else rng.normal()


def difference(lhs: Any, rhs: Any, values: Values) -> float:
    """|lhs - rhs| relative to the largest of 1, |lhs| and |rhs|; infinite unless both are finite."""
    left, right = evaluate(lhs, values), evaluate(rhs, values)
    gap = abs(left - right) / max(1.0, abs(left), abs(right))
    return gap if math.isfinite(gap) else math.inf


def violated(fact: Hypothesis, values: Values, tolerance: float) -> bool:
    """Whether `values` break the hypothesis by more than `tolerance`."""
    if isinstance(fact, Symmetric):
        table = values.get(str(fact.base))
        return table is not None and not np.allclose(table, table.T, rtol=0, atol=tolerance)
    gap = fact.lhs - fact.rhs if isinstance(fact, Given) else fact.expr
    axes: dict[Any, Any] = {}
    for index in fact.indices:
        axes[index] = np.arange(values["n"]).reshape((-1,) + (1,) * len(axes))
    result = np.asarray(_evaluate(gap, values, axes))
    return bool(
        (result < -tolerance).any() if isinstance(fact, Nonneg) else (np.abs(result) > tolerance).any()
    )
