r"""Steps and theorems for readers: plain text for a terminal, LaTeX for a page.

In plain text p is π, m is μ, and a sum over the vocabulary is `Σ_i π_i (μ_i − π_i)`; in LaTeX the same is
`\sum_{i} \pi_i (\mu_i - \pi_i)`.  Bound indices get letters of their own, so that no letter means two things.
"""

import textwrap
from functools import cache
from typing import Any, ClassVar

from sympy import Add, Function, Indexed, KroneckerDelta, Mul, Number, Pow, S, Sum, Symbol, exp, sympify
from sympy.printing.latex import LatexPrinter
from sympy.printing.pretty.pretty_symbology import pretty_symbol
from sympy.printing.str import StrPrinter

from .notation import at, is_index, m, p
from .statement import readable
from .theorem import Alias, Step, Theorem

LETTERS = "ijhabcdefgqw"
WIDTH = 100


def plain(expr: Any, aliases: tuple[Alias, ...] = ()) -> str:
    """An expression as one line of Unicode, with the given short aliases."""
    return str(_Plain().doprint(_named(_lettered(sympify(expr), frozenset()), aliases)))


def latex(step: Step, aliases: tuple[Alias, ...] = ()) -> str:
    """The checked line of a step as LaTeX; an exact or cited step is its sentence."""
    if step.lhs is None:
        return rf"\text{{{step.text}}}"
    relation = r" \ge 0" if step.kind == "nonneg" else ""
    return f"{_latex(step.lhs, aliases)} = {_latex(step.rhs, aliases)}{relation}"


def explain_step(step: Step, aliases: tuple[Alias, ...] = ()) -> str:
    """The sentence of a step, and below it what was checked."""
    sentence = textwrap.fill(step.text, WIDTH)
    if step.kind == "cited":
        return f"{sentence}\n    (a textbook step, accepted and not checked)"
    if step.decide is not None:
        return f"{sentence}\n" + textwrap.fill(
            step.decide().numbers, WIDTH, initial_indent="    ", subsequent_indent="    "
        )
    lines = [f"    {plain(step.lhs, aliases)}", f"  = {plain(step.rhs, aliases)}"]
    if step.kind == "nonneg":
        lines.append("  ≥ 0")
    return "\n".join([sentence, *(_wrapped(line) for line in lines)])


def explain(theorem: Theorem) -> str:
    """A whole theorem: statement, scope, numbered steps, false variants, and what a human must accept."""
    parts = [
        f"{theorem.id}. {theorem.title}",
        _wrapped(readable(theorem.statement)),
        textwrap.fill(theorem.scope, WIDTH),
    ]
    parts += [f"Assumes: {item}" for item in theorem.assumptions]
    aliases = theorem.aliases
    parts += (
        ["\n".join(f"Write {each.name.replace('{}', 'i')} for {each.meaning}." for each in aliases)]
        if aliases
        else []
    )
    parts += [f"{number}. {explain_step(step, aliases)}" for number, step in enumerate(theorem.steps, 1)]
    parts += [
        f"False: {mutant.text}\n"
        + _wrapped(f"    {plain(mutant.lhs, aliases)} ≠ {plain(mutant.rhs, aliases)}")
        for mutant in theorem.mutants
    ]
    parts += [f"Accepted: {item}" for item in theorem.residue]
    return "\n\n".join(parts)


def _wrapped(line: str) -> str:
    return textwrap.fill(
        line, WIDTH, subsequent_indent="        ", break_long_words=False, break_on_hyphens=False
    )


def _lettered(expr: Any, taken: frozenset[str]) -> Any:
    """`expr` with bound dummies replaced by letters that are neither free in it nor used by an outer sum."""
    if not expr.has(Sum):
        return expr
    if not isinstance(expr, Sum):
        return expr.func(*(_lettered(arg, taken) for arg in expr.args))
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
    return Sum(_lettered(body, taken), *limits)


def _named(expr: Any, aliases: tuple[Alias, ...]) -> Any:
    """`expr` with every part that has an alias replaced by a symbol of that name, the largest part first."""
    for each in aliases:
        tokens = [None] if each.index is None else sorted(filter(is_index, expr.free_symbols), key=str)
        for token in tokens:
            body = each.body if token is None else at(each.body, each.index, token)
            rest = _without(expr, body)
            if rest is not None:
                label = Symbol(each.name.format(token), positive=True)
                return label * _named(_lettered(rest, frozenset()), aliases)
    if not expr.args or isinstance(expr, Indexed):
        return expr
    return expr.func(*(_named(arg, aliases) for arg in expr.args))


def _without(expr: Any, part: Any) -> Any:
    """`expr / part` if `part` is all of `expr` or a part of the product `expr`, else None."""
    if expr.func == part.func and _anonymous(expr) == _anonymous(part):
        return S.One
    if not (isinstance(expr, Mul) and isinstance(part, Mul)):
        return None
    have, need = _powers(expr), _powers(part)
    if all(base in have and _covers(have[base], power) for base, power in need.items()):
        return Mul(*(base ** (power - need.get(base, 0)) for base, power in have.items()))
    return None


@cache
def _anonymous(expr: Any) -> Any:
    """`expr` with its bound indices made anonymous, so that sums are equal whatever their letters."""
    return expr.as_dummy() if expr.has(Sum) else expr


def _powers(product: Any) -> dict[Any, Any]:
    """Powers by base with bound indices made anonymous; an exponential is a base of its own."""
    pairs = ((f, S.One) if isinstance(f, exp) else f.as_base_exp() for f in product.args)
    return {_anonymous(base): power for base, power in pairs}


def _covers(have: Any, need: Any) -> bool:
    return bool(have == need or (have.is_number and need.is_number and 0 < need / have <= 1))


class _Plain(StrPrinter):  # type: ignore[misc]
    """Unicode, products by juxtaposition, a positive term first."""

    printmethod = "_plain"  # not _sympystr, by which Indexed would print itself

    _GLYPHS: ClassVar = {p.label: "π", m.label: "μ"}

    def _print_Symbol(self, expr: Any) -> str:
        spelled = expr.name if not expr.name.isascii() else str(pretty_symbol(expr.name))
        return self._GLYPHS.get(expr, spelled)

    _print_Dummy = _print_Symbol

    def _print_Indexed(self, expr: Any) -> str:
        indices = [self._print(index) for index in expr.indices]
        separator = "" if all(len(index) == 1 for index in indices) else ","
        return f"{self._print(expr.base.label)}_{separator.join(indices)}"

    def _print_KroneckerDelta(self, expr: Any) -> str:
        return "δ_" + "".join(self._print(arg) for arg in expr.args)

    def _print_Sum(self, expr: Any) -> str:
        indices = "".join(self._print(limit[0]) for limit in expr.limits)
        return f"Σ_{indices} {self._factor(expr.function, last=True)}"

    def _print_Derivative(self, expr: Any) -> str:
        variable, order = expr.variable_count[0]
        power = "" if order == 1 else _raised(order)
        return f"d{power}/d{self._print(variable)}{power} {self._factor(expr.expr)}"

    def _print_Subs(self, expr: Any) -> str:
        places = ", ".join(
            f"{self._print(v)} = {self._print(x)}" for v, x in zip(expr.variables, expr.point, strict=True)
        )
        return f"[{self._print(expr.expr)} at {places}]"

    def _print_Integral(self, expr: Any) -> str:
        variable, low, high = expr.limits[0]
        return (
            f"∫_{self._print(low)}^{self._print(high)} {self._factor(expr.function)} d{self._print(variable)}"
        )

    def _print_Limit(self, expr: Any) -> str:
        body, variable, point = expr.args[:3]
        return f"lim_{self._print(variable)}→{self._print(point)} {self._factor(body)}"

    def _print_Add(self, expr: Any, order: Any = None) -> str:
        terms = self._as_ordered_terms(expr)
        lead = next((term for term in terms if not term.could_extract_minus_sign()), terms[0])
        text = str(self._print(lead))
        for term in terms:
            if term is lead:
                continue
            negative = term.could_extract_minus_sign()
            shown = -term if negative else term
            body = f"({self._print(shown)})" if isinstance(shown, Add) else self._print(shown)
            text += (" − " if negative else " + ") + body
        return text

    def _print_Mul(self, expr: Any) -> str:
        if expr.could_extract_minus_sign():
            return "−" + self._factor(-expr, last=True)
        above, below = [], []
        for factor in expr.as_ordered_factors():
            if isinstance(factor, Number):
                above += [S(factor.p)] if factor.p != 1 else []
                below += [S(factor.q)] if factor.q != 1 else []
            elif isinstance(factor, Pow) and factor.exp.could_extract_minus_sign():
                below.append(1 / factor)
            else:
                above.append(factor)
        text = self._product(above, bare=not below) if above else "1"
        if not below:
            return text
        return f"{text} / " + (self._factor(below[0]) if len(below) == 1 else f"({self._product(below)})")

    def _product(self, factors: list[Any], bare: bool = True) -> str:
        factors = sorted(factors, key=_place_in_product)
        return " ".join(self._factor(f, last=bare and f is factors[-1]) for f in factors)

    def _factor(self, expr: Any, last: bool = False) -> str:
        """A factor of a product; only the last may be a bare sum, because a sum swallows what follows."""
        bare = not isinstance(expr, Add) and (last or not isinstance(expr, Sum | Mul))
        return str(self._print(expr)) if bare else f"({self._print(expr)})"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.args
        if power == S.Half:
            return f"√({self._print(base)})"
        if power.could_extract_minus_sign():
            return f"1 / {self._factor(base**-power)}"
        atom = base.is_Symbol or base.is_number or not isinstance(base, Add | Mul | Sum | Pow)
        raised = _raised(power) if power.is_Integer else f"^({self._print(power)})"
        return (self._print(base) if atom else f"({self._print(base)})") + raised

    def _print_Rational(self, expr: Any) -> str:
        return f"{expr.p}/{expr.q}".replace("-", "−")


def _raised(power: Any) -> str:
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(power))


def _place_in_product(factor: Any) -> int:
    base = factor.as_base_exp()[0]
    order = (Number, Symbol, Indexed, KroneckerDelta, Function, Add, Sum)
    return next((place for place, kind in enumerate(order) if isinstance(base, kind)), len(order) - 3)


class _Latex(LatexPrinter):  # type: ignore[misc]
    """SymPy's LaTeX with short sums."""

    def _print_Sum(self, expr: Any) -> str:
        indices = ", ".join(self._print(limit[0]) for limit in expr.limits)
        body = self._print(expr.function)
        return rf"\sum_{{{indices}}} " + (rf"\left({body}\right)" if isinstance(expr.function, Add) else body)


def _latex(expr: Any, aliases: tuple[Alias, ...]) -> str:
    shown = _named(_lettered(sympify(expr), frozenset()), aliases)
    symbols = {symbol: _tex(symbol.name) for symbol in shown.free_symbols if not symbol.name.isascii()}
    return str(_Latex({"symbol_names": {p.label: r"\pi", m.label: r"\mu", **symbols}}).doprint(shown))


def _tex(name: str) -> str:
    for glyph, command in {
        "π": r"\pi",
        "μ": r"\mu",
        "κ": r"\kappa",
        "θ": r"\theta",
        "τ": r"\tau",
        "‖": r"\|",
    }.items():
        name = name.replace(glyph, command)
    return name
