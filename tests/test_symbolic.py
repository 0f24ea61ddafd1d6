"""The symbolic arrays of the tracer: functions agree with NumPy, numbers are exact, ties are not guessed."""

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import array_api_compat.numpy as numpy_xp
import numpy as np
import pytest
from sympy import Rational, Symbol, oo

import divsim.formulas as shipped
from divsim.derivations.notation import m
from divsim.derivations.symbolic import OpenComparisonError, Real, SymbolicArray, real, xp
from divsim.derivations.trace import PAIRS, expressions
from divsim.formulas import divergences

# --- the namespace ------------------------------------------------------------------------------------------

ROWS = np.array([[0.5, -1.25, 2.0], [0.25, 3.0, -0.5]])
POSITIVE = np.array([[0.5, 1.25, 2.0], [0.25, 3.0, 4.0]])
IDS = np.array([[2, 0], [1, 1]])
SIGNS = ROWS > 0

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    **{name: ((ROWS,), {}) for name in ("exp", "expm1", "abs", "sign", "isnan", "isinf", "isfinite")},
    **{name: ((POSITIVE,), {}) for name in ("log", "log1p", "sqrt")},
    **{name: ((ROWS,), {"axis": -1, "keepdims": True}) for name in ("sum", "max", "min")},
    **{name: ((SIGNS,), {"axis": -1}) for name in ("all", "any")},
    **{name: ((ROWS, POSITIVE), {}) for name in ("maximum", "minimum")},
    **{name: ((ROWS,), {"axis": -1}) for name in ("sort", "flip", "argmax", "argmin", "argsort")},
    **{name: (((ROWS, POSITIVE),), {"axis": -1}) for name in ("concat", "stack")},
    **{name: ((ROWS,), {}) for name in ("zeros_like", "ones_like", "asarray")},
    "matmul": ((ROWS, POSITIVE.T), {}),
    "reshape": ((ROWS, (3, 2)), {}),
    "broadcast_to": ((ROWS, (4, 2, 3)), {}),
    "take_along_axis": ((ROWS, IDS), {"axis": -1}),
    "where": ((SIGNS, ROWS, 0.5), {}),
    "clip": ((ROWS,), {"min": -0.25, "max": 1}),
    "full_like": ((ROWS, -np.inf), {}),
    "arange": ((4,), {"dtype": np.int64}),
    "ones": (((2, 3),), {"dtype": np.bool_}),
    "astype": ((SIGNS, np.int64), {}),
}
ELSEWHERE = {
    *("float32", "float64", "int64", "bool", "inf", "nan", "finfo"),  # constants
    *("put_along_axis", "topk", "argpartition", "nonzero"),  # below; torch; NumPy; error messages
}


def symbolic(value: Any) -> Any:
    if isinstance(value, tuple) and isinstance(value[0], np.ndarray):
        return tuple(symbolic(part) for part in value)
    return SymbolicArray(value) if isinstance(value, np.ndarray) else value


def numbers(array: SymbolicArray) -> Any:
    to_float = np.frompyfunc(lambda entry: float(entry.value), 1, 1)
    return to_float(array.data).astype(float) if array.dtype == xp.float64 else array.data


@pytest.mark.parametrize("name", CALLS)
def test_a_function_agrees_with_numpy(name: str) -> None:
    args, kwargs = CALLS[name]
    ours = getattr(xp, name)(*(symbolic(arg) for arg in args), **kwargs)
    theirs = getattr(numpy_xp, name)(*args, **kwargs)
    assert ours.shape == theirs.shape and (ours.dtype == "float64") == (theirs.dtype.kind == "f")
    np.testing.assert_allclose(numbers(ours), theirs, rtol=4e-16)  # two roundings of float64


@pytest.mark.parametrize("name", ("add", "sub", "mul", "truediv", "radd", "rsub", "rmul", "rtruediv", "pow"))
@pytest.mark.parametrize("other", (POSITIVE, 2, 0.1, np.array(3)), ids=("array", "int", "float", "0-d"))
def test_an_operator_agrees_with_numpy(name: str, other: Any) -> None:
    ours = getattr(SymbolicArray(POSITIVE), f"__{name}__")(symbolic(other))
    np.testing.assert_allclose(numbers(ours), getattr(POSITIVE, f"__{name}__")(other), rtol=1e-15)  # pow


@pytest.mark.parametrize("name", ("lt", "le", "gt", "ge", "eq", "ne"))
def test_a_comparison_agrees_with_numpy(name: str) -> None:
    ours = getattr(SymbolicArray(ROWS), f"__{name}__")(symbolic(POSITIVE))
    assert (ours.data == getattr(ROWS, f"__{name}__")(POSITIVE)).all() and ours.data.dtype == bool


def test_booleans_indices_and_places_are_numpys() -> None:
    flags, rows = SymbolicArray(SIGNS), SymbolicArray(ROWS)
    assert ((~flags | (flags & ~flags)).data == ~SIGNS).all() and ((flags ^ flags).data == 0).all()
    assert rows[..., None, 1].shape == (2, 1) and float(rows[1, 2].data[()].value) == -0.5
    copy = xp.asarray(rows, copy=True)
    xp.put_along_axis(copy, SymbolicArray(IDS), -np.inf, axis=-1)
    expected = ROWS.copy()
    np.put_along_axis(expected, IDS, -np.inf, axis=-1)
    np.testing.assert_array_equal(numbers(copy), expected)
    np.testing.assert_array_equal(numbers(rows), ROWS)


def test_every_function_that_the_formulas_use_is_there_and_compared() -> None:
    folder = Path(shipped.__file__).parent
    source = "".join(file.read_text() for file in folder.glob("*.py"))
    used = set(re.findall(r"\bxp\.([a-z]\w*)|namespace\([^()]*\)\.([a-z]\w*)", source))
    names = {name for pair in used for name in pair if name}
    assert len(names) > 30 and names - ELSEWHERE <= set(CALLS)
    assert set(CALLS) <= set(vars(xp))


# --- exact numbers ------------------------------------------------------------------------------------------


def test_numbers_are_exact() -> None:
    assert real(0.1).expr == Rational(Fraction(0.1)) and real(np.float64(0.5)).expr == Rational(1, 2)
    assert expressions(xp.exp(PAIRS[0].log_pi)) == list(PAIRS[0].pi)
    assert expressions(xp.log(SymbolicArray([0, 1.0]))) == [-oo, 0]


def test_infinity_and_nan_are_compared_as_floats_are() -> None:
    infinite, undefined = real(np.inf), real(np.nan)
    assert infinite > 3 and -infinite < 3 and infinite == np.inf
    assert not (undefined < 1 or undefined > 1 or undefined == undefined)


def test_a_point_on_a_border_decides_nothing() -> None:
    case = replace(PAIRS[0], point={**PAIRS[0].point, m[0]: Rational(1, 3)})
    with pytest.raises(OpenComparisonError, match="agree at this point"):
        divergences.difference(case.log_mu, case.log_pi)


def test_values_that_are_equal_in_another_form_are_equal() -> None:
    x = Symbol("x")
    one = Real(x * (x + 1) - x**2, real(3).value)
    assert one == Real(x, real(3).value) and not one < Real(x, real(3).value)
