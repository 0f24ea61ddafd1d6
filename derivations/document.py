r"""Theorems as one LaTeX document: statement, scope, checked steps, refused variants, residue.

It needs a Unicode engine (`lualatex` or `xelatex`), since the sentences of the steps hold symbols such as π.
"""

import re
from collections.abc import Sequence

from .render import latex, used
from .theorem import Step, Theorem

PREAMBLE = r"""% compile with lualatex or xelatex
\documentclass[11pt]{article}
\usepackage[a4paper, margin=25mm]{geometry}
\usepackage{amsmath, amssymb, fontspec, breqn}
\setmainfont{DejaVu Serif}[Scale=0.9]
\setlength{\parindent}{0pt}
\setlength{\parskip}{6pt}
\title{divsim: theorems about trust-region masks}
\date{}
\begin{document}
\maketitle
"""

SPECIAL = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip


def document(theorems: Sequence[Theorem]) -> str:
    """The LaTeX source of a document with these theorems, in order."""
    return PREAMBLE + "\n\n".join(map(_section, theorems)) + "\n\\end{document}\n"


def _section(theorem: Theorem) -> str:
    parts = [
        rf"\section*{{{theorem.id}. {_text(theorem.title)}}}",
        rf"\begin{{gather*}} {_lines(theorem.statement)} \end{{gather*}}",
        rf"\emph{{Scope.}} {_text(theorem.scope)}",
        *(rf"\emph{{Assumes.}} {_text(item)}" for item in theorem.assumptions),
        *_glossary(theorem),
        *(f"{number}. {_step(step, theorem)}" for number, step in enumerate(theorem.steps, 1)),
        *(rf"\emph{{False.}} {_text(mutant.text)}" for mutant in theorem.mutants),
        *(rf"\emph{{Accepted.}} {_text(item)}" for item in theorem.residue),
    ]
    return "\n\n".join(parts)


def _lines(statement: str) -> str:
    """One line for every formula of a statement."""
    return r" \\ ".join(re.split(r"\s*\\q?quad\s*", statement))


def _glossary(theorem: Theorem) -> list[str]:
    entries = [f"{_text(each.name.format('i'))} for {_text(each.meaning)}" for each in used(theorem)]
    return [rf"\emph{{Write}} {'; '.join(entries)}."] if entries else []


def _step(step: Step, theorem: Theorem) -> str:
    sentence = _text(step.text)
    if step.kind == "cited":
        return sentence + r" \emph{(accepted, not checked)}"
    if step.decide is not None:
        return f"{sentence} {_text(step.decide().numbers)}"
    return f"{sentence}\n\\begin{{dmath*}} {latex(step, theorem.aliases)} \\end{{dmath*}}"


def _text(words: str) -> str:
    return words.translate(SPECIAL)
