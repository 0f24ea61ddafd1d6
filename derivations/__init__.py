"""Theorems about trust-region masks, each with a proof that a machine checks.

Thirteen chapters, T1 to T13, each a module of this package; `load("T3")` builds the theorems of one chapter.
Importing this package loads no chapter and no SymPy.
"""

import importlib
from collections.abc import Iterable
from string import ascii_lowercase as LETTERS
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .theorem import Report, Theorem

CHAPTERS = {
    "T1": "softmax",
    "T2": "forward_kl",
    "T3": "finite_step",
    "T4": "f_divergences",
    "T5": "directions",
    "T6": "expectations",
    "T7": "top_k",
    "T8": "inequalities",
    "T9": "drpo",
    "T10": "exact_gradients",
    "T11": "geometry",
    "T12": "horizon",
    "T13": "gaussian",
}

TITLES = {
    "T1": "Softmax: how probabilities move when logits do",
    "T2": "Forward KL and its first-order change",
    "T3": "Finite steps: exact change, one-sided certainty, the flip",
    "T4": "Every f-divergence, alpha and Rényi",
    "T5": "Ratio direction against divergence direction",
    "T6": "Expectations over the sampled token",
    "T7": "What a top-K view knows: tails, intervals, certificates",
    "T8": "Inequalities between divergences",
    "T9": "Soft penalties: DRPO and SPO",
    "T10": "Exact gradients, natural gradients, minibatches",
    "T11": "Other geometries: temperature, shared heads, noise",
    "T12": "Horizons: what a token-level surrogate leaves out",
    "T13": "Gaussians and exponential families",
}

READING = (
    "Each step is a sentence and the equation that was checked, for a vocabulary of symbolic size unless\n"
    'the scope says otherwise. "False" lines are plausible mistakes that the prover must refuse, and does.'
)


def load(chapter_id: str) -> "tuple[Theorem, ...]":
    """The theorems of one chapter, in reading order."""
    if chapter_id not in CHAPTERS:
        raise ValueError(f"unknown chapter {chapter_id!r}; valid chapters: {', '.join(CHAPTERS)}")
    chapter = importlib.import_module(f".{CHAPTERS[chapter_id]}", __name__)
    return tuple(build() for build in chapter.THEOREMS)


def lesson(name: str) -> str:
    """The lesson of a chapter such as "T3", or of one theorem such as "T3a", as plain text."""
    from .render import explain

    name = name[:1].upper() + name[1:].lower()
    chapter_id = name.rstrip(LETTERS)
    chapter = load(chapter_id)
    theorems = [theorem for theorem in chapter if name in (chapter_id, theorem.id)]
    if not theorems:
        known = ", ".join(theorem.id for theorem in chapter)
        raise ValueError(f"unknown theorem {name!r}; chapter {chapter_id} has {known}")
    contents = "\n".join(f"  {theorem.id:<5} {theorem.title}" for theorem in theorems)
    opening = [f"{chapter_id}. {TITLES[chapter_id]}\n\n{contents}\n\n{READING}"] if name == chapter_id else []
    return f"\n\n{'─' * 100}\n\n".join([*opening, *(explain(theorem) for theorem in theorems)])


def latex_document(chapter_ids: Iterable[str]) -> str:
    """All statements, steps and residues of some chapters as one LaTeX document."""
    from .document import document

    return document([theorem for chapter_id in chapter_ids for theorem in load(chapter_id)])


def prove(chapter_id: str) -> "tuple[Report, ...]":
    """Every check of every theorem of one chapter, in reading order."""
    from .theorem import certify

    return tuple(certify(theorem) for theorem in load(chapter_id))
