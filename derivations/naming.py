r"""Short names for long expressions where a theorem is printed, and letters for bound indices."""

from functools import cache
from typing import Any

from sympy import Add, Indexed, Mul, S, Sum, Symbol, exp

from .notation import at, is_index
from .theorem import Alias

LETTERS = "ijhabcdefgqw"


class Label(Symbol):  # type: ignore[misc]
    """A name that is printed as it is written."""

    __slots__ = ()


def lettered(expr: Any, taken: frozenset[str] = frozenset()) -> Any:
    """`expr` with bound dummies replaced by letters that are neither free in it nor used by an outer sum."""
    if not expr.has(Sum):
        return expr
    if not isinstance(expr, Sum):
        return expr.func(*(lettered(arg, taken) for arg in expr.args))
    body, limits = expr.function, []
    for index, low, high in expr.limits:
        avoid = taken | {symbol.name for symbol in body.free_symbols if symbol.is_Symbol and symbol != index}
        choices = (*([] if index.name.startswith("_") else [index.name]), *LETTERS)
        letter = Symbol(
            next(choice for choice in choices if choice not in avoid), integer=True, nonnegative=True
        )
        taken |= {letter.name}
        body = at(body, index, letter)
        limits.append((letter, low, high))
    return Sum(lettered(body, taken), *limits)


def named(expr: Any, aliases: tuple[Alias, ...]) -> Any:
    """`expr` with every part that has an alias replaced by its `Label`, the largest part first."""
    for each in aliases:
        tokens = [None] if each.index is None else sorted(filter(is_index, expr.free_symbols), key=str)
        for token in tokens:
            body = each.body if token is None else at(each.body, each.index, token)
            if token is not None and isinstance(body, Indexed):
                continue  # at this token the long expression is an entry, which needs no other name
            shorter = _replaced(expr, body, Label(each.name.format(token), positive=True))
            if shorter is not None:
                return named(lettered(shorter), aliases)
    if not expr.args or isinstance(expr, Indexed):
        return expr
    return expr.func(*(named(arg, aliases) for arg in expr.args))


def _replaced(expr: Any, part: Any, label: Label) -> Any:
    """`expr` with `part` written as `label` if it is all of it, a factor of it or some of its terms."""
    if expr.func == part.func and _anonymous(expr) == _anonymous(part):
        return label
    if isinstance(expr, Mul) and isinstance(part, Mul):
        (count, rest), (unit, wanted) = expr.as_coeff_Mul(), part.as_coeff_Mul()
        have, need = _powers(rest), _powers(wanted)
        if all(base in have and _covers(have[base], power) for base, power in need.items()):
            left = (base ** (power - need.get(base, 0)) for base, power in have.items())
            return count / unit * label * Mul(*left)
    if isinstance(expr, Add) and isinstance(part, Add):
        terms = {_anonymous(term): term for term in expr.args}
        for side in (1, -1):
            gone = {_anonymous(side * term) for term in part.args}
            if gone <= terms.keys():
                return side * label + Add(*(term for key, term in terms.items() if key not in gone))
    return None


@cache
def _anonymous(expr: Any) -> Any:
    """`expr` with its bound indices made anonymous, so that sums are equal whatever their letters."""
    return expr.as_dummy() if expr.has(Sum) else expr


def _powers(product: Any) -> dict[Any, Any]:
    """Powers by base with bound indices made anonymous; an exponential is a base of its own."""
    pairs = ((f, S.One) if isinstance(f, exp) else f.as_base_exp() for f in Mul.make_args(product))
    return {_anonymous(base): power for base, power in pairs}


def _covers(have: Any, need: Any) -> bool:
    return bool(have == need or (have.is_number and need.is_number and 0 < need / have <= 1))
