"""Signs read off the shape of an expression, with the facts that a step declares.

SymPy knows the signs of sums, products and even powers of symbols with assumptions, but neither that a
Kronecker delta is 0 or 1 nor what a step assumes, for example cap - m[i] >= 0. Here a sum or product of
visibly non-negative parts is non-negative, and nothing else is: False means "not visible", never "negative".
"""

from itertools import permutations
from typing import Any

from sympy import Add, KroneckerDelta, Mul, Pow, Sum

from .hypotheses import Hypothesis, Nonneg
from .notation import at, is_index


def nonnegative(expr: Any, hypotheses: tuple[Hypothesis, ...] = ()) -> bool:
    """Whether `expr` is visibly >= 0, the declared `Nonneg` hypotheses included."""
    if expr.is_nonnegative or isinstance(expr, KroneckerDelta) or isinstance(1 - expr, KroneckerDelta):
        return True
    if _declared(expr, hypotheses):
        return True
    if isinstance(expr, Sum):
        return nonnegative(expr.function, hypotheses)
    if isinstance(expr, Add | Mul):
        return all(nonnegative(arg, hypotheses) for arg in expr.args)
    return isinstance(expr, Pow) and bool(expr.exp.is_real) and nonnegative(expr.base, hypotheses)


def _declared(expr: Any, hypotheses: tuple[Hypothesis, ...]) -> bool:
    tokens = sorted((symbol for symbol in expr.free_symbols if is_index(symbol)), key=str)
    for fact in hypotheses:
        if isinstance(fact, Nonneg):
            for chosen in permutations(tokens, len(fact.indices)):
                instance = fact.expr
                for index, token in zip(fact.indices, chosen, strict=True):
                    instance = at(instance, index, token)
                if instance.as_dummy() == expr.as_dummy():
                    return True
    return False
