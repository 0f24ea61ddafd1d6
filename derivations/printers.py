r"""Printers of expressions: Unicode for a terminal, LaTeX for a page.

A sum over the vocabulary is `Σ_i`; factors that are 0 or 1 are written where they belong, under the sum:
`Σ_tail`, `Σ_kept`, `Σ_i≠k`.
"""

import re
from typing import Any, ClassVar

from sympy import Add, Function, Indexed, KroneckerDelta, Mul, Number, Pow, S, Sum, Symbol
from sympy.printing.latex import LatexPrinter
from sympy.printing.pretty.pretty_symbology import pretty_symbol
from sympy.printing.str import StrPrinter

from .notation import h, m, p
from .statement import SYMBOLS

PRIMES = ("", "′", "″", "‴")
DIGITS = {low: f"_{digit}" for digit, low in enumerate("₀₁₂₃₄₅₆₇₈₉")}
MARKS = {"²": "^2", "³": "^3", "″": "''", "−": "-", "*": "^*"}
COMMANDS = {glyph: command + " " for command, glyph in SYMBOLS.items() if len(glyph) == 1 and glyph > "~"}


def primed(expr: Any) -> tuple[str, int]:
    """The name of an uninterpreted function, and how often it was differentiated (see `notation.smooth`)."""
    name = expr.func.__name__
    return name.rstrip("p"), len(name) - len(name.rstrip("p"))


def summed_over(expr: Sum) -> tuple[list[Any], Any]:
    """What stands under the sum (words, letters, pairs of unequal indices), and the rest of the summand."""
    indices, places, rest = list(expr.bound_symbols), list[Any](), list[Any]()
    for factor in Mul.make_args(expr.function):
        base, power = factor.as_base_exp()
        place, side = _place(base, indices) if power.is_Integer and power > 0 else (None, 1)
        places += [place] if place else []
        rest.append(side**power if place else factor)
    named = {index for place in places if isinstance(place, tuple) for index in place}
    if not places or (len(indices) > 1 and not named.issuperset(indices)):
        places.insert(0, "".join(index.name for index in indices))
    return places, Mul(*rest)


def _place(base: Any, indices: list[Any]) -> tuple[Any, int]:
    """Where a factor that is 0 or 1 puts the sum, and its sign; None if it is no such factor."""
    if len(indices) == 1 and base == h[indices[0]]:
        return "tail", 1
    for side in (1, -1) if isinstance(base, Add) else ():
        complement = 1 - side * base
        if len(indices) == 1 and complement == h[indices[0]]:
            return "kept", side
        if isinstance(complement, KroneckerDelta) and not complement.free_symbols.isdisjoint(indices):
            return tuple(sorted(complement.args, key=lambda index: index not in indices)), side
    return None, 1


class Plain(StrPrinter):  # type: ignore[misc]
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

    def _print_Label(self, expr: Any) -> str:
        return str(expr.name)

    def _print_AppliedUndef(self, expr: Any) -> str:
        name, primes = primed(expr)
        return f"{name}{PRIMES[primes]}({', '.join(map(self._print, expr.args))})"

    def _print_Abs(self, expr: Any) -> str:
        return f"|{self._print(expr.args[0])}|"

    def _print_Infinity(self, expr: Any) -> str:
        return "∞"

    def _print_Integer(self, expr: Any) -> str:
        return str(expr.p).replace("-", "−")

    def _print_Sum(self, expr: Any) -> str:
        places, body = summed_over(expr)
        shown = ", ".join(
            place if isinstance(place, str) else "≠".join(map(self._print, place)) for place in places
        )
        return f"Σ_{f'({shown})' if ',' in shown else shown} {self._factor(body, last=True)}"

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
        shown = str(self._print(expr))
        return shown if bare and not (isinstance(expr, Symbol) and " " in shown) else f"({shown})"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.args
        if power == S.Half:
            return f"√({self._print(base)})"
        if power.could_extract_minus_sign():
            return f"1 / {self._factor(base**-power)}"
        atom = not (isinstance(base, Add | Mul | Sum | Pow) or (base.is_Symbol and " " in self._print(base)))
        raised = _raised(power) if power.is_Integer else f"^{self._atom(power)}"
        return (self._print(base) if atom else f"({self._print(base)})") + raised

    def _atom(self, expr: Any) -> str:
        return str(self._print(expr)) if expr.is_Symbol else f"({self._print(expr)})"

    def _print_Rational(self, expr: Any) -> str:
        return f"{expr.p}/{expr.q}".replace("-", "−")


def _raised(power: Any) -> str:
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(power))


def _place_in_product(factor: Any) -> int:
    base = factor.as_base_exp()[0]
    order = (Number, Symbol, Indexed, KroneckerDelta, Function, Add, Sum)
    return next((place for place, kind in enumerate(order) if isinstance(base, kind)), len(order) - 3)


class Latex(LatexPrinter):  # type: ignore[misc]
    """SymPy's LaTeX with short sums and a positive term first."""

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> list[Any]:
        terms = list(super()._as_ordered_terms(expr, order))
        lead = next((term for term in terms if not term.could_extract_minus_sign()), terms[0])
        return [lead, *(term for term in terms if term is not lead)]

    def _print_Sum(self, expr: Any) -> str:
        places, body = summed_over(expr)
        shown = ", ".join(
            r" \ne ".join(map(self._print, place))
            if isinstance(place, tuple)
            else rf"\text{{{place}}}" if place in ("tail", "kept") else ", ".join(place)
            for place in places
        )  # fmt: skip
        inside = self._print(body)
        return rf"\sum_{{{shown}}} " + (rf"\left({inside}\right)" if isinstance(body, Add) else inside)

    def _print_Label(self, expr: Any) -> str:
        return tex(expr.name)

    def _print_AppliedUndef(self, expr: Any, exp: Any = None) -> str:
        name, primes = primed(expr)
        raised = f"^{{{exp}}}" if exp else ""
        return rf"{name}{chr(39) * primes}{raised}\left({', '.join(map(self._print, expr.args))}\right)"


def tex(name: str) -> str:
    """A name of the terminal, such as `κ₃(s)` or `D_coarse(s)`, as LaTeX."""
    name = name.replace(" ", r"\,")
    for glyph, command in (DIGITS | MARKS | COMMANDS).items():
        name = name.replace(glyph, command)
    name = re.sub(r"(\\[A-Za-z]+) (?![A-Za-z])", r"\1", name)
    words = re.compile(r"(?<![\\A-Za-z])(?!d[A-Za-z]\b)[A-Za-z]{2,}")  # dD is no word
    return words.sub(lambda word: rf"{{\text{{{word[0]}}}}}", name)
