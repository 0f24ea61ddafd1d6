"""Decides whether two finite sums over a vocabulary of symbolic size n are equal.

`is_zero` answering True is a proof for every n, because every law used is true (`normal_form.py`).
False only means "not shown equal"; in practice the kernel has never failed on a true identity between
polynomials in p, m, log and exp, nor on denominators such as p[i] + m[i] inside single sums.
"""

from collections.abc import Callable
from typing import Any

from sympy import Add, Dummy, Float, Mul, Sum, cancel, fraction, sympify, together

from .hypotheses import SIMPLEX, Hypothesis
from .normal_form import Rules, compile_rules, normal_form, normalise, sum_over
from .notation import at, carry_out, fresh_index

__all__ = ["is_zero", "normal_form"]


def is_zero(expr: Any, hypotheses: tuple[Hypothesis, ...] = SIMPLEX) -> bool:
    """True: `expr` is 0 for every n, by the hypotheses, wherever it is defined.  False: not shown.

    A quotient is not defined where its denominator is 0, so `total((p - m)^2 / (p - m))` is 0 away from ties.
    A floating number is refused: it is a rounded one, and a rounded 1/3 is not 1/3.
    """
    expr = sympify(expr)
    if expr.has(Float):
        raise ValueError(f"a proof needs exact numbers, got {sorted(expr.atoms(Float))}; use Rational")
    rules = compile_rules(hypotheses)
    form = normalise(carry_out(sympify(expr)), rules)
    if _vanishes(form, rules):
        return True
    gathered = _gather(form, rules)
    return gathered != form and _vanishes(gathered, rules)


def _vanishes(form: Any, rules: Rules) -> bool:
    numerator = _on_symbols(lambda masked: fraction(together(masked))[0], form)
    return bool(normalise(numerator, rules) == 0)


def _gather(form: Any, rules: Rules) -> Any:
    """`form` with its sums over index-dependent denominators put under one sum, and that sum cancelled."""
    token, gathered, rest = fresh_index(), [], []
    for term in Add.make_args(form):
        factors = Mul.make_args(term)
        fractions = [f for f in factors if isinstance(f, Sum) and _has_denominator(f)]
        if fractions:
            (index,) = fractions[0].bound_symbols
            gathered.append(term / fractions[0] * at(fractions[0].function, index, token))
        else:
            rest.append(term)
    if not gathered:
        return form
    whole = _on_symbols(cancel, Add(*gathered))
    return Add(*rest, sum_over(normalise(whole, rules), [token], rules))


def _has_denominator(atom: Any) -> bool:
    index, *others = atom.bound_symbols
    return not others and any(
        f.is_Pow and f.base.is_Add and index in f.base.free_symbols and f.exp.is_Integer and f.exp < 0
        for f in Mul.make_args(atom.function)
    )


def _on_symbols(operation: Callable[[Any], Any], form: Any) -> Any:
    """Applies a SymPy operation with the sums hidden behind symbols, so that it cannot touch them."""
    names = {atom: Dummy() for atom in form.atoms(Sum)}
    return operation(form.xreplace(names)).xreplace({name: atom for atom, name in names.items()})
