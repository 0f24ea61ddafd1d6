"""Sets a shipped formula against the form that a chapter derives, so that code cannot drift from its proof.

`trace` makes the record: it runs the shipped function on the symbolic policies of `cases.py`, and writes the
derived form, stated for every n, out for the same few tokens.  `theorem.check` compares the two.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from sympy import Add, Basic, Mul, Pow, exp, expand_log, factor, log

from .cases import FOUR, MASKED, PAIRS, UNTIED, Case, stepped
from .hypotheses import Hypothesis, given
from .notation import m, p
from .symbolic import SymbolicArray, real
from .theorem import Trace

__all__ = ["FOUR", "MASKED", "PAIRS", "UNTIED", "Case", "expressions", "stepped", "trace"]


def trace(function: str, run: Callable[[Case], Any], derived: Any, cases: tuple[Case, ...] = PAIRS) -> Trace:
    """The record that a shipped function gives the derived form on every case.

    Args:
      function: its dotted name in divsim.formulas, e.g. "divergences.JS.measure".
      run: calls it on a case; returns an array or a tuple of arrays.
      derived: an expression for every n as the chapter states it, or a tuple of them; or a function of the
        case that returns these.
      cases: all with the same number of tokens.
    """

    def wanted(case: Case) -> Any:
        is_rule = callable(derived) and not isinstance(derived, Basic)
        return _explicit(case, derived(case) if is_rule else derived)

    sizes = {sum(mass != 0 for mass in case.pi) for case in cases}
    if len(sizes) != 1:
        raise ValueError(f"cases must have one number of tokens, got {sorted(sizes)}; write a trace for each")
    (tokens,) = sizes
    return Trace(
        function,
        traced=lambda: [_tidy(expressions(run(case))) for case in cases],
        derived=lambda: [_tidy(wanted(case)) for case in cases],
        tokens=tokens,
        hypotheses=_normalised(tokens),
    )


def _normalised(tokens: int) -> tuple[Hypothesis, ...]:
    last = tokens - 1
    return tuple(given(base[last], 1 - Add(*(base[i] for i in range(last)))) for base in (p, m))


def expressions(result: Any) -> Any:
    """The expressions of an array, nested as its axes are; of several arrays, a list of them."""
    if isinstance(result, SymbolicArray):
        return expressions(result.data.tolist())
    if isinstance(result, tuple | list):
        return [expressions(part) for part in result]
    return real(result).expr


def _explicit(case: Case, nested: Any) -> Any:
    if isinstance(nested, tuple | list):
        return [_explicit(case, part) for part in nested]
    return case.explicit(nested)


def _tidy(nested: Any) -> Any:
    return [_tidy(part) for part in nested] if isinstance(nested, tuple | list) else _split(nested)


@cache
def _split(expr: Any) -> Any:
    """The same expression with logs and symbolic powers of products split, so that equal ones look equal."""
    return expr.replace(lambda part: isinstance(part, Pow | exp | log), _split_one)


def _split_one(part: Any) -> Any:
    if isinstance(part, log):
        return expand_log(log(factor(part.args[0])))
    if isinstance(part, Pow) and part.exp.is_number:
        return part
    exponent = part.args[0] if isinstance(part, exp) else part.exp * expand_log(log(part.base))
    return Mul(*(_power(term) for term in Add.make_args(exponent.expand())))


def _power(exponent: Any) -> Any:
    logs = [each for each in Mul.make_args(exponent) if isinstance(each, log)]
    return logs[0].args[0] ** (exponent / logs[0]) if logs else exp(exponent)
