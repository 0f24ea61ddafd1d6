"""One form for all equal expressions in finite sums over a vocabulary of symbolic size n.

Only laws of a commutative field and of finite sums are used: distribute products, split a sum of terms,
pull out factors without the index, contract a Kronecker delta, flatten nested sums, rename bound
indices, rewrite a hypothesis, and split log, exp and powers where a sign is visible. Each law is true
for every n. Every free index is in range, so a delta with a free index contracts to a value, never to a
case split.

It leaves out everything that SymPy's own `doit`, `simplify` and `subs` would do to a `Sum`:
tests/test_kernel.py records why.
"""

from dataclasses import dataclass, field
from functools import cache
from itertools import permutations
from typing import Any

from sympy import (
    Add,
    Indexed,
    KroneckerDelta,
    Mul,
    Pow,
    S,
    Sum,
    default_sort_key,
    exp,
    log,
    sympify,
)

from .hypotheses import Given, Hypothesis, Symmetric
from .notation import at, carry_out, fresh_index, is_index, n


@dataclass
class Rules:
    """Hypotheses in the form in which they are applied."""

    atoms: dict[Any, Any] = field(default_factory=dict)
    sums: list[Given] = field(default_factory=list)
    monomials: list[Given] = field(default_factory=list)
    symmetric: set[Any] = field(default_factory=set)


def normal_form(expr: Any, hypotheses: tuple[Hypothesis, ...] = ()) -> Any:
    """`expr` as a sum of products of atoms; equal polynomial expressions get the same form."""
    return normalise(carry_out(sympify(expr)), compile_rules(hypotheses))


def compile_rules(hypotheses: tuple[Hypothesis, ...]) -> Rules:
    """Sorts hypotheses by what they rewrite; raises ValueError for one that rewrites no single thing."""
    rules = Rules(symmetric={fact.base for fact in hypotheses if isinstance(fact, Symmetric)})
    for fact in hypotheses:
        if not isinstance(fact, Given):
            continue
        lhs = normalise(fact.lhs, rules)
        if isinstance(lhs, Sum) and fact.indices:
            rules.sums.append(Given(lhs, fact.rhs, fact.indices))
        elif fact.indices and all(isinstance(f.as_base_exp()[0], Indexed) for f in Mul.make_args(lhs)):
            rules.monomials.append(Given(lhs, fact.rhs, fact.indices))
        elif not fact.indices and (isinstance(lhs, Sum | Indexed) or lhs.is_Symbol):
            rules.atoms[lhs] = normalise(fact.rhs, rules)
        else:
            raise ValueError(f"hypothesis must rewrite one sum or one monomial, got {fact.lhs} = {fact.rhs}")
    return rules


def normalise(expr: Any, rules: Rules) -> Any:
    """The normal form under compiled rules, from the leaves up."""
    if isinstance(expr, Sum):
        return _normal_sum(expr, rules)
    if isinstance(expr, Indexed):
        expr = _sorted_entry(expr, rules)
    if not expr.args or isinstance(expr, Indexed | KroneckerDelta):
        return rules.atoms.get(expr, expr)
    args = [normalise(arg, rules) for arg in expr.args]
    if isinstance(expr, Mul):
        return _product(args, rules)
    if isinstance(expr, Pow):
        return _power(args[0], args[1], rules)
    if isinstance(expr, exp):
        return _product([exp(term) for term in Add.make_args(args[0])], rules)
    if isinstance(expr, log):
        return _log(args[0], rules)
    return expr.func(*args)


# --- field laws: products, powers, logarithms


def _product(factors: list[Any], rules: Rules) -> Any:
    terms: tuple[Any, ...] = (S.One,)
    for factor in factors:
        terms = Add.make_args(Add(*(a * b for a in terms for b in Add.make_args(factor))))
    return Add(*(_term(term, rules) for term in terms))


def _term(term: Any, rules: Rules) -> Any:
    factors = list(Mul.make_args(term))
    for position, factor in enumerate(factors):
        rest = factors[:position] + factors[position + 1 :]
        base, power = factor.as_base_exp()
        if base.is_Add and power.is_integer and power.is_positive:
            return _product([base] * int(power) + rest, rules)
        if isinstance(base, KroneckerDelta):
            kept, dropped = base.args
            others = Mul(*rest)
            if power.is_integer and (power > 1 or dropped in others.free_symbols):
                return _product([base, normalise(at(others, dropped, kept), rules)], rules)
    for rule in rules.monomials:
        rewritten = _rewrite(term, rule)
        if rewritten is not None:
            return normalise(rewritten, rules)
    return term


def _rewrite(term: Any, rule: Given) -> Any:
    powers = term.as_powers_dict()
    tokens = sorted((symbol for symbol in term.free_symbols if is_index(symbol)), key=default_sort_key)
    for chosen in permutations(tokens, len(rule.indices)):
        lhs, rhs = rule.lhs, rule.rhs
        for index, token in zip(rule.indices, chosen, strict=True):
            lhs, rhs = at(lhs, index, token), at(rhs, index, token)
        wanted = lhs.as_powers_dict()
        if all((have := powers.get(b, S.Zero)).is_integer and have >= need for b, need in wanted.items()):
            return term / lhs * rhs
    return None


def _power(base: Any, power: Any, rules: Rules) -> Any:
    if power.is_Add:
        return _product([_power(base, part, rules) for part in power.args], rules)
    if base.is_Add and power.is_integer and power.is_positive:
        return _product([base] * int(power), rules)
    if base.is_Add:
        base = _pull_common(base, power.is_integer, rules)
    if base.is_Mul:
        free = [f for f in base.args if power.is_integer or f.is_positive]
        rest = Mul(*(f for f in base.args if f not in free))
        return Mul(*(Pow(f, power) for f in free)) * Pow(rest, power)
    return Pow(base, power)


def _log(arg: Any, rules: Rules) -> Any:
    if arg.is_Add:
        arg = _pull_common(arg, False, rules)
    logs, opaque = [], S.One
    for factor in Mul.make_args(arg):
        base, power = factor.as_base_exp()
        if base.is_positive and power.is_real:
            logs.append(normalise(power, rules) * log(base))
        else:
            opaque *= factor
    return Add(*(_product([part], rules) for part in logs)) + log(opaque)


def _pull_common(expr: Any, signed: bool, rules: Rules) -> Any:
    """The sum `expr` as (common factor) * (sum without one), so that equal sums look equal inside a power."""
    content, primitive = expr.as_content_primitive()
    terms = Add.make_args(primitive)
    powers = [{b: e for b, e in term.as_powers_dict().items() if not b.is_number} for term in terms]
    factor = S.One
    for base in set().union(*powers):
        exponents = [each.get(base, S.Zero) for each in powers]
        if all(exponent.is_Rational for exponent in exponents):
            factor *= base ** min(exponents)
    rest = Add(*(_product([term, 1 / factor], rules) for term in terms))
    if signed and rest.could_extract_minus_sign():
        content, rest = -content, -rest
    return Mul(content, factor, rest, evaluate=False) if content * factor != 1 else rest


# --- finite sums


def _normal_sum(expr: Any, rules: Rules) -> Any:
    body, indices = expr.function, []
    for index, low, high in expr.limits:
        if low != 0 or high != n - 1:
            raise ValueError(f"sums run over 0..n-1, got {low}..{high}; build them with total()")
        indices.append(fresh_index())
        body = at(body, index, indices[-1])
    return sum_over(normalise(body, rules), indices, rules)


def sum_over(body: Any, indices: list[Any], rules: Rules) -> Any:
    """The normal form of the sum of a normalised `body` over `indices`."""
    for index in indices:
        body = Add(*(_sum_term(term, index, rules) for term in Add.make_args(body)))
    return body


def _sum_term(term: Any, index: Any, rules: Rules) -> Any:
    inside = [f for f in Mul.make_args(term) if index in f.free_symbols]
    outside = [f for f in Mul.make_args(term) if index not in f.free_symbols]
    if not inside:
        return _product([*outside, n], rules)
    for factor in inside:
        if isinstance(factor, KroneckerDelta) and all(arg.is_Symbol for arg in factor.args):
            other = next(arg for arg in factor.args if arg != index)
            return normalise(at(Mul(*outside, *(f for f in inside if f != factor)), index, other), rules)
    indices, flat = [index], []
    for factor in inside:
        base, power = factor.as_base_exp()
        if isinstance(base, Sum) and power.is_integer and power.is_positive:
            for _ in range(int(power)):
                body = base.function
                for bound in base.bound_symbols:
                    indices.append(fresh_index())
                    body = at(body, bound, indices[-1])
                flat.append(body)
        else:
            flat.append(factor)
    merged = _product(flat, rules)
    if len(indices) > 1 and set(Mul.make_args(merged)) != {f for g in flat for f in Mul.make_args(g)}:
        return _product([*outside, sum_over(merged, indices, rules)], rules)
    return _product([*outside, _multi_sum(merged, indices, rules)], rules)


def _multi_sum(body: Any, indices: list[Any], rules: Rules) -> Any:
    for index in indices if rules.sums else ():
        inside = Mul(*(f for f in Mul.make_args(body) if index in f.free_symbols))
        known = _known_sum(_canonical(inside, [index], rules), rules)
        if known is not None:
            rest = _product([body / inside, known], rules)
            return sum_over(rest, [i for i in indices if i != index], rules)
    atom = _canonical(body, indices, rules)
    return rules.atoms.get(atom, atom)


def _known_sum(atom: Any, rules: Rules) -> Any:
    tokens = sorted((symbol for symbol in atom.free_symbols if is_index(symbol)), key=default_sort_key)
    for rule in rules.sums:
        for chosen in permutations(tokens, len(rule.indices)):
            lhs, rhs = rule.lhs, rule.rhs
            for index, token in zip(rule.indices, chosen, strict=True):
                lhs, rhs = at(lhs, index, token), at(rhs, index, token)
            if lhs == atom:
                return normalise(rhs, rules)
    return None


def _canonical(body: Any, indices: list[Any], rules: Rules) -> Any:
    """One name for all sums that differ by the names and the order of their bound indices.

    Names are numbered from the inside out, so a name is never bound twice along one branch.
    """
    inner = {index for inside in body.atoms(Sum) for index in inside.bound_symbols}
    level = 1 + max((_LEVEL[index] for index in inner), default=-1)
    names = [_bound(level + offset) for offset in range(len(indices))]
    candidates = []
    for order in permutations(names):
        renamed = body
        for index, name in zip(indices, order, strict=True):
            renamed = at(renamed, index, name)
        if rules.symmetric:
            entries = {entry: _sorted_entry(entry, rules) for entry in renamed.atoms(Indexed)}
            renamed = renamed.xreplace(entries)
        candidates.append(renamed)
    return Sum(min(candidates, key=default_sort_key), *((name, 0, n - 1) for name in names))


_LEVEL: dict[Any, int] = {}


@cache
def _bound(level: int) -> Any:
    name = fresh_index(f"b{level}")
    _LEVEL[name] = level
    return name


def _sorted_entry(entry: Any, rules: Rules) -> Any:
    if entry.base not in rules.symmetric:
        return entry
    return entry.base[tuple(sorted(entry.indices, key=default_sort_key))]
