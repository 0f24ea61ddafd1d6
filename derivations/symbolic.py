"""Arrays of expressions that run the shipped formulas: the third array library beside NumPy and torch.

Every entry is a `Real`: an exact expression, and its value at one chosen point.  Expressions do the algebra;
values decide comparisons, and nothing else.  So a formula with a near arm and a far arm yields the expression
of the arm that its point takes, and a comparison that the point leaves open is an error, not a guess.  Shapes
and indices are NumPy's.  Whatever `divsim.formulas` does not use is left out.
"""

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import sympy
from mpmath import MPContext

DIGITS = 40
TIE = 1e-25
"""Values of order one, known to 40 digits, that are closer than this must be shown to be equal."""

_mp = MPContext()
_mp.dps = DIGITS


class OpenComparisonError(ArithmeticError):
    """The point lies on the border of two regions, so that it decides no comparison."""


class Real:
    """An exact number: what it is, and how large it is at the point of the trace."""

    __slots__ = ("expr", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expr: Any, value: Any) -> None:
        self.expr, self.value = expr, value

    def __add__(self, other: Any) -> Any:
        return _binary(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _binary(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return _binary(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _binary(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return _binary(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _binary(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _binary(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _binary(operator.truediv, other, self)

    def __pow__(self, other: Any) -> Any:
        return _binary(operator.pow, self, other)

    def __neg__(self) -> "Real":
        return Real(-self.expr, -self.value)

    def __abs__(self) -> "Real":
        return -self if self < 0 else self

    def __lt__(self, other: Any) -> bool:
        return order(self, other) < 0

    def __le__(self, other: Any) -> bool:
        return order(self, other) <= 0

    def __gt__(self, other: Any) -> bool:
        return order(self, other) > 0

    def __ge__(self, other: Any) -> bool:
        return order(self, other) >= 0

    def __eq__(self, other: object) -> bool:
        return order(self, other) == 0

    def __format__(self, spec: str) -> str:
        return str(self.expr)


def _binary(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if isinstance(left, SymbolicArray) or isinstance(right, SymbolicArray):
        return NotImplemented
    left, right = real(left), real(right)
    if operation is operator.truediv and right.expr == 0:
        return real(np.nan)
    value = operation(left.value, right.value)
    return Real(operation(left.expr, right.expr), value) if _mp.isfinite(value) else real(float(value))


def real(number: Any) -> Real:
    """A number as an exact one; a float stands for the binary fraction that it is."""
    if isinstance(number, Real):
        return number
    exact = sympy.sympify(float(number) if isinstance(number, float | np.floating) else int(number))
    exact = exact if exact.is_finite is not True else sympy.Rational(exact)
    return Real(exact, value_of(exact))


def value_of(constant: Any) -> Any:
    """The value of an expression without symbols, to 40 digits."""
    if constant.is_Rational:
        return _mp.mpf(constant.p) / constant.q
    digits = sympy.N(constant, DIGITS)
    return _mp.mpf(str(digits) if digits.is_finite else float(digits))


def order(left: Any, right: Any) -> float:
    """Minus one, zero or one as left is below, equal to or above right at the point; nan beside a nan."""
    left, right = real(left), real(right)
    if _mp.isnan(left.value) or _mp.isnan(right.value):
        return float("nan")
    if left.expr == right.expr:
        return 0
    gap = left.value - right.value
    if abs(gap) > TIE:
        return 1 if gap > 0 else -1
    if sympy.simplify(left.expr - right.expr) == 0:
        return 0
    raise OpenComparisonError(f"{left.expr} and {right.expr} agree at this point, but not everywhere")


class SymbolicArray:
    """A NumPy array of `Real` entries, of integers or of booleans, that dispatches to `xp`."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]
    device = None

    def __init__(self, entries: Any) -> None:
        data = np.asarray(entries)
        self.data: Any = np.asarray(np.frompyfunc(real, 1, 1)(data) if data.dtype.kind in "fO" else data)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return xp

    @property
    def shape(self) -> tuple[int, ...]:
        """NumPy's shape."""
        return tuple(self.data.shape)

    @property
    def dtype(self) -> Any:
        """NumPy's dtype, or "float64" for exact numbers, which formulas must not lift."""
        return "float64" if self.data.dtype == object else self.data.dtype

    def __getitem__(self, index: Any) -> "SymbolicArray":
        return SymbolicArray(self.data[index])

    def __bool__(self) -> bool:
        return bool(self.data)

    def __neg__(self) -> "SymbolicArray":
        return SymbolicArray(-self.data)

    def __invert__(self) -> "SymbolicArray":
        return SymbolicArray(~self.data)


def _data(operand: Any) -> Any:
    """NumPy's view of an operand; floats and reals become exact, so that NumPy never rounds them."""
    if isinstance(operand, SymbolicArray):
        return operand.data
    return np.asarray(real(operand)) if isinstance(operand, float | Real) else operand


def _operator(name: str, swapped: bool = False) -> Callable[[SymbolicArray, Any], SymbolicArray]:
    operation = getattr(operator, f"__{name}__")

    def method(self: SymbolicArray, other: Any) -> SymbolicArray:
        left, right = self.data, _data(other)
        return SymbolicArray(operation(right, left) if swapped else operation(left, right))

    return method


for _name in ("add", "sub", "mul", "truediv"):
    setattr(SymbolicArray, f"__{_name}__", _operator(_name))
    setattr(SymbolicArray, f"__r{_name}__", _operator(_name, swapped=True))
for _name in ("pow", "and", "or", "xor", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(SymbolicArray, f"__{_name}__", _operator(_name))


# --- the namespace ------------------------------------------------------------------------------------------


def _entrywise(function: Callable[[Real], Real]) -> Callable[[SymbolicArray], SymbolicArray]:
    over_entries = np.frompyfunc(lambda entry: function(real(entry)), 1, 1)
    return lambda array: SymbolicArray(over_entries(array.data))


def _test(predicate: Callable[[Any], Any]) -> Callable[[SymbolicArray], SymbolicArray]:
    over_entries = np.vectorize(lambda entry: bool(predicate(real(entry).value)), otypes=[bool])
    return lambda array: SymbolicArray(over_entries(array.data))


def _numpy(name: str) -> Callable[..., SymbolicArray]:
    """NumPy's function of this name, where it only moves entries, or compares, adds and multiplies them."""
    function = getattr(np, name)

    def lifted(*args: Any, **kwargs: Any) -> SymbolicArray:
        return SymbolicArray(function(*(_data(arg) for arg in args), **kwargs))

    return lifted


def _joined(name: str) -> Callable[..., SymbolicArray]:
    join = getattr(np, name)
    return lambda arrays, axis=0: SymbolicArray(join([array.data for array in arrays], axis=axis))


def _exp(x: Real) -> Real:
    return Real(sympy.exp(x.expr), _mp.exp(x.value))


def _log(x: Real) -> Real:
    return real(-np.inf) if x.expr == 0 else Real(sympy.log(x.expr), _mp.log(x.value))


def _where(condition: Any, yes: Any, no: Any) -> SymbolicArray:
    yes, no = np.asarray(_data(yes)), np.asarray(_data(no))
    if object in (yes.dtype, no.dtype):
        yes, no = yes.astype(object), no.astype(object)
    return SymbolicArray(np.where(_data(condition), yes, no))


def _clip(array: Any, min: Any = None, max: Any = None) -> SymbolicArray:
    data = array.data if min is None else np.maximum(array.data, _data(min))
    return SymbolicArray(data if max is None else np.minimum(data, _data(max)))


def _astype(array: Any, dtype: Any) -> SymbolicArray:
    return SymbolicArray(array.data.astype(object if isinstance(dtype, str) else dtype))


def _full(shape: Any, value: Any, dtype: Any, device: Any = None) -> SymbolicArray:
    return _astype(SymbolicArray(np.full(shape, value)), dtype)


def _full_like(like: Any, value: Any, dtype: Any = None) -> SymbolicArray:
    return _full(like.shape, value, like.dtype if dtype is None else dtype)


def _arange(stop: int, dtype: Any = np.int64, device: Any = None) -> SymbolicArray:
    return _astype(SymbolicArray(np.arange(stop)), dtype)


def _argsort(array: Any, axis: int = -1, descending: bool = False, stable: bool = True) -> SymbolicArray:
    return SymbolicArray(np.argsort(-array.data if descending else array.data, axis=axis, kind="stable"))


def _put_along_axis(array: Any, index: Any, value: Any, axis: int) -> None:
    np.put_along_axis(array.data, index.data, np.asarray(_data(value)), axis=axis)


_ORDERS = ("max", "min", "maximum", "minimum", "sort", "argmax", "argmin")
_MOVES = ("flip", "reshape", "broadcast_to", "take_along_axis")
_SUMS = ("sum", "all", "any", "matmul")

xp = SimpleNamespace(
    __name__="divsim.derivations.symbolic",
    float32="float32",
    float64="float64",
    int64=np.dtype("int64"),
    bool=np.dtype("bool"),
    inf=np.inf,
    nan=np.nan,
    finfo=lambda dtype: SimpleNamespace(eps=0.0, min=float(np.finfo(np.float64).min), max=np.inf),
    **{name: _numpy(name) for name in (*_ORDERS, *_MOVES, *_SUMS)},
    **{name: _joined(name) for name in ("concat", "stack")},
    exp=_entrywise(_exp),
    log=_entrywise(_log),
    expm1=_entrywise(lambda x: _exp(x) - 1),
    log1p=_entrywise(lambda x: _log(x + 1)),
    sqrt=_entrywise(lambda x: x ** real(0.5)),
    abs=_entrywise(abs),
    sign=_entrywise(lambda x: real(order(x, 0))),
    **{name: _test(getattr(_mp, name)) for name in ("isnan", "isinf", "isfinite")},
    where=_where,
    clip=_clip,
    astype=_astype,
    asarray=lambda array, copy=False: SymbolicArray(np.array(array.data)),
    ones=lambda shape, dtype, device=None: _full(shape, 1, dtype),
    ones_like=lambda like, dtype=None: _full_like(like, 1, dtype),
    zeros_like=lambda like, dtype=None: _full_like(like, 0, dtype),
    full_like=_full_like,
    arange=_arange,
    argsort=_argsort,
    put_along_axis=_put_along_axis,
)
"""The array-API namespace of `SymbolicArray`; an exact number has no rounding and no largest value.
The lowest is what formulas put for log 0."""
