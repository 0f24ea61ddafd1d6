r"""Steps and theorems for readers: plain text for a terminal, LaTeX for a page.

In plain text p is π, m is μ, and a sum over the vocabulary is `Σ_i π_i (μ_i − π_i)`; in LaTeX the same is
`\sum_{i} \pi_i (\mu_i - \pi_i)`.  Bound indices get letters of their own, so that no letter means two things.
"""

import textwrap
from collections.abc import Iterable
from functools import cache
from typing import Any

from sympy import sympify

from .naming import Label, lettered, named
from .notation import m, p
from .printers import Latex, Plain, tex
from .statement import readable
from .theorem import Alias, Mutant, Step, Theorem

WIDTH = 100


def plain(expr: Any, aliases: tuple[Alias, ...] = ()) -> str:
    """An expression as one line of Unicode, with the given short aliases."""
    return str(Plain().doprint(_shown(sympify(expr), aliases)))


def latex(step: Step, aliases: tuple[Alias, ...] = ()) -> str:
    """The checked line of a step as LaTeX; an exact or cited step is its sentence."""
    if step.lhs is None:
        return rf"\text{{{step.text}}}"
    lhs, rhs = _latex(step.lhs, aliases), _latex(step.rhs, aliases)
    sides = [lhs] if lhs == rhs and step.kind == "nonneg" else [lhs, rhs]
    return " = ".join(sides) + (r" \ge 0" if step.kind == "nonneg" else "")


def explain_step(step: Step, aliases: tuple[Alias, ...] = ()) -> str:
    """The sentence of a step, and below it what was checked."""
    sentence = textwrap.fill(step.text, WIDTH)
    if step.kind == "cited":
        return f"{sentence}\n    (a textbook step, accepted and not checked)"
    if step.decide is not None:
        return f"{sentence}\n" + textwrap.fill(
            step.decide().numbers, WIDTH, initial_indent="    ", subsequent_indent="    "
        )
    lhs, rhs = plain(step.lhs, aliases), plain(step.rhs, aliases)
    lines = [f"    {lhs}"]
    if step.kind != "nonneg" or lhs != rhs:
        lines.append(f"  = {rhs}")
    if step.kind == "nonneg":
        lines.append("  ≥ 0")
    return "\n".join([sentence, *map(_wrapped, lines)])


def explain(theorem: Theorem) -> str:
    """A whole theorem: statement, scope, numbered steps, false variants, and what a human must accept."""
    aliases, names = theorem.aliases, used(theorem)
    return "\n\n".join([
        f"{theorem.id}. {theorem.title}",
        _wrapped(readable(theorem.statement)),
        textwrap.fill(theorem.scope, WIDTH),
        *(textwrap.fill(f"Assumes: {item}.", WIDTH) for item in theorem.assumptions),
        *(["\n".join(_wrapped(f"Write {_name(each)} for {each.meaning}.") for each in names)] * bool(names)),
        *(f"{number}. {explain_step(step, aliases)}" for number, step in enumerate(theorem.steps, 1)),
        *(_explain_mutant(mutant, theorem) for mutant in theorem.mutants),
        *(f"Accepted: {item}" for item in theorem.residue),
    ])  # fmt: skip


def used(theorem: Theorem) -> list[Alias]:
    """The aliases that occur in the printed formulas."""
    claims: Iterable[Step | Mutant] = (*theorem.steps, *theorem.mutants)
    sides = [sympify(side) for claim in claims for side in (claim.lhs, claim.rhs) if side is not None]
    labels = {label.name for side in sides for label in _shown(side, theorem.aliases).atoms(Label)}
    return [each for each in theorem.aliases if any(_is_named(label, each) for label in labels)]


def _is_named(label: str, each: Alias) -> bool:
    before, _, after = each.name.partition("{}")
    return label == each.name or (
        each.index is not None and label.startswith(before) and label.endswith(after)
    )


def _name(each: Alias) -> str:
    return each.name.replace("{}", "i")


def _explain_mutant(mutant: Mutant, theorem: Theorem) -> str:
    """A false variant; a long left-hand side that is a step's is named by the number of the step."""
    lhs, rhs = (plain(side, theorem.aliases) for side in (mutant.lhs, mutant.rhs))
    steps = [
        number
        for number, step in enumerate(theorem.steps, 1)
        if step.lhs is not None and plain(step.lhs, theorem.aliases) == lhs
    ]
    lines = [f"    {lhs} ≠ {rhs}"]
    if len(lines[0]) > WIDTH:
        lines = [f"    (step {steps[0]}) ≠ {rhs}"] if steps else [f"    {lhs}", f"  ≠ {rhs}"]
    return "\n".join([textwrap.fill(f"False: {mutant.text}", WIDTH), *map(_wrapped, lines)])


def _wrapped(line: str) -> str:
    return textwrap.fill(
        line, WIDTH, subsequent_indent="        ", break_long_words=False, break_on_hyphens=False
    )


@cache
def _shown(expr: Any, aliases: tuple[Alias, ...]) -> Any:
    return named(lettered(expr), aliases)


def _latex(expr: Any, aliases: tuple[Alias, ...]) -> str:
    shown = _shown(sympify(expr), aliases)
    symbols = {symbol: tex(symbol.name) for symbol in shown.free_symbols if not symbol.name.isascii()}
    return str(Latex({"symbol_names": {p.label: r"\pi", m.label: r"\mu", **symbols}}).doprint(shown))
