"""A second proof of polynomial identities, which shares nothing with the kernel: the degree principle.

Let F be a polynomial with rational coefficients in power sums sum_i x_i^a (x_i = the entries of all
bases at token i, |a| >= 1) and in the entries x_k of one distinguished token, not containing n itself.
Claim: if F = 0 for every assignment at one size V >= g + 1, g the total degree of F, then F = 0 at
every size.

Why. A product of r power sums, expanded, contains the monomial in which r different tokens carry one
power each, and merging tokens only ever lowers their number; so over V - 1 ordinary tokens the products
of at most V - 1 power sums are linearly independent. A product of total degree g has at most g <= V - 1
factors, since every power sum has degree at least one. Hence every coefficient of F, written in power
sums over the tokens other than k, is zero, and the coefficients do not depend on V.

The hypotheses sum p = 1 and sum m = 1 are used by homogenising: F of degree a in p and b in m vanishes
on the two simplices iff (sum p)^a (sum m)^b F(p / sum p, m / sum m), of total degree a + b + ...,
vanishes. At fixed V this is checked by eliminating the last entry of p and of m, which is the same
statement.

Conditions, all enforced: only +, *, natural powers, rational numbers, scalar symbols, entries of
one-index bases at a bound or the distinguished index, `Sum` over 0..n-1, and Kronecker deltas between a
bound and the distinguished index; n nowhere else; and every monomial under a sum contains each of its
bound indices, so that no factor n hides in it.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

from sympy import Add, Indexed, KroneckerDelta, Mul, Poly, Pow, Sum, Symbol, expand_mul, sympify

from .notation import is_index, m, n, p

MAX_DEGREE = 8  # V = 9 tokens: beyond, an exact expansion is no longer a matter of seconds


@dataclass(frozen=True)
class DegreeProof:
    """Whether the identity holds at the size that decides all sizes."""

    holds: bool
    degree: int
    size: int


def prove(lhs: Any, rhs: Any, normalised: bool = True) -> DegreeProof:
    """Expands lhs - rhs at V = degree + 1 tokens, on the simplices sum p = sum m = 1 if `normalised`."""
    gap = expand_mul(sympify(lhs) - sympify(rhs))
    free = {symbol for symbol in gap.free_symbols if is_index(symbol)}
    if len(free) > 1:
        raise ValueError(f"the degree principle takes one distinguished token, got {sorted(map(str, free))}")
    if any(len(entry.indices) != 1 for entry in gap.atoms(Indexed)):
        raise ValueError("the degree principle takes bases with one index")
    bases = {entry.base for entry in gap.atoms(Indexed)}
    degree = sum(_degree(gap, base) for base in bases)
    if degree > MAX_DEGREE:
        raise ValueError(f"degree {degree} is above {MAX_DEGREE}: prove a simpler identity")
    _require_deltas_at_k(gap, free)
    _indices(gap)
    eliminated = (p, m) if normalised else ()
    return DegreeProof(vanishes_at(gap, degree + 1, eliminated), degree, degree + 1)


def _degree(expr: Any, base: Any) -> int:
    """An upper bound of the degree of `expr` in the entries of `base`."""
    if isinstance(expr, Indexed):
        return int(expr.base == base)
    if isinstance(expr, Add):
        return max(_degree(arg, base) for arg in expr.args)
    if isinstance(expr, Mul):
        return sum(_degree(arg, base) for arg in expr.args)
    if isinstance(expr, Pow) and expr.exp.is_Integer and expr.exp > 0:
        return int(expr.exp) * _degree(expr.base, base)
    if isinstance(expr, Sum):
        return _degree(expr.function, base)
    if expr.is_Rational or isinstance(expr, KroneckerDelta) or (expr.is_Symbol and expr != n):
        return 0
    raise ValueError(f"not a polynomial in power sums: {expr}")


def _require_deltas_at_k(expr: Any, free: set[Any]) -> None:
    for delta in expr.atoms(KroneckerDelta):
        if not free & set(delta.args):
            raise ValueError(f"a delta must compare a bound index with the distinguished token, got {delta}")


def _indices(expr: Any) -> set[frozenset[Any]]:
    """The index sets of the monomials of `expr`; raises where a sum would contribute a factor n."""
    if isinstance(expr, Indexed | KroneckerDelta):
        return {frozenset(expr.free_symbols)}
    if isinstance(expr, Add):
        return set().union(*(_indices(arg) for arg in expr.args))
    if isinstance(expr, Pow):
        return _indices(Mul(*[expr.base] * int(expr.exp), evaluate=False))
    if isinstance(expr, Sum):
        if any((low, high) != (0, n - 1) for _, low, high in expr.limits):
            raise ValueError(f"sums run over 0..n-1, got {expr.limits}")
        monomials = _indices(expr.function)
        for index in expr.bound_symbols:
            if not all(index in monomial for monomial in monomials):
                raise ValueError(f"a term of {expr.function} lacks {index}: its sum hides a factor n")
        return {monomial - set(expr.bound_symbols) for monomial in monomials}
    found = {frozenset[Any]()}
    for arg in expr.args:
        found = {left | right for left in found for right in _indices(arg)}
    return found


def vanishes_at(gap: Any, size: int, eliminated: tuple[Any, ...] = ()) -> bool:
    """Whether `gap` is 0 for `size` tokens, where each of the `eliminated` bases sums to one."""
    token = {symbol: 0 for symbol in gap.free_symbols if is_index(symbol)}
    expanded = sympify(_at_size(gap, token, size))
    for base in eliminated:
        others = Add(*(Symbol(f"{base}_{i}") for i in range(size - 1)))
        expanded = expanded.xreplace({Symbol(f"{base}_{size - 1}"): 1 - others})
    variables = expanded.free_symbols
    return bool(Poly(expanded, *variables).is_zero) if variables else bool(expanded == 0)


def _at_size(expr: Any, place: dict[Any, int], size: int) -> Any:
    if isinstance(expr, Indexed):
        return Symbol(f"{expr.base}_{'_'.join(str(place[index]) for index in expr.indices)}")
    if isinstance(expr, KroneckerDelta):
        return int(place[expr.args[0]] == place[expr.args[1]])
    if isinstance(expr, Sum):
        terms = []
        for tokens in product(range(size), repeat=len(expr.limits)):
            inside = place | dict(zip(expr.bound_symbols, tokens, strict=True))
            terms.append(_at_size(expr.function, inside, size))
        return Add(*terms)
    return expr.func(*(_at_size(arg, place, size) for arg in expr.args)) if expr.args else expr
