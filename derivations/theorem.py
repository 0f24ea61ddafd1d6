"""A theorem that is at once a lesson and a certificate.

How to write one. A chapter is a module with functions that build `Theorem` objects, and a tuple
`THEOREMS` of those functions, so that importing the chapter costs little. A theorem is a list of
`Step`s; the text of a step is a full sentence, its lhs and rhs are SymPy expressions with sums from
`notation.total`, and its kind says how it is checked:

    identity   lhs == rhs for every n, decided by the kernel
    nonneg     the same, and rhs is visibly >= 0 (`signs.nonnegative`); so lhs >= 0
    scalar     lhs == rhs for finitely many symbols, decided by `sympy.simplify`
    exact      `decide()` returns a `Verdict` found with rationals or outward-rounded intervals
    cited      a textbook fact that a human must accept; it is printed in the residue

`polynomial=True` asks for a second proof of an identity by the degree principle (`degree.py`).
Identity, nonneg and scalar steps are replayed on random numbers by the independent evaluator
(`shadow.py`). A `Mutant` is a false variant: the kernel must refuse it and the evaluator must find it
false. A `Trace` compares a shipped function with the derived form. A step may hold unevaluated
`Derivative`, `Subs`, `Integral` or `Limit`; the checker carries them out, and the reader sees what was
differentiated. An `alias` shortens what is printed.

    def kl_gradient() -> Theorem:
        slope = Derivative(forward_kl(softmax), z[j])
        return Theorem(
            id="T2a", title="...", statement=r"\\partial D / \\partial z_j = \\pi_j - \\mu_j",
            scope="Any vocabulary size. Says nothing about ...", tier="G",
            steps=(Step("Differentiate the definition.", slope, softmax(j) - m[j]),),
            mutants=(Mutant("The arguments swapped.", slope, m[j] - softmax(j)),),
        )

    THEOREMS = (kl_gradient,)

`check(theorem)` does all of this and returns a `Report`. It does not raise: every failure is in
`report.failures`, with the theorem and the step in its message.
"""

import importlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from sympy import Expr, flatten, fraction, nan, simplify, sympify, together, zoo

from . import degree, evaluator
from .hypotheses import SIMPLEX, Hypothesis
from .kernel import is_zero
from .notation import carry_out, fresh_index
from .shadow import SIZES, TOLERANCE, Sampler, Shadow
from .signs import nonnegative

Kind = Literal["identity", "nonneg", "scalar", "exact", "cited"]
Tier = Literal["G", "F", "Q", "N"]  # general n; finite or scalar; exact rational; interval
MUTANT_GAP = 1e-6  # a false variant must be false by far more than rounding


@dataclass(frozen=True)
class Verdict:
    """What an exact decision found: whether the claim holds, and the numbers to print."""

    holds: bool
    numbers: str


@dataclass(frozen=True)
class Step:
    """One line of a proof, shown and checked."""

    text: str
    lhs: Any = None
    rhs: Any = None
    kind: Kind = "identity"
    hypotheses: tuple[Hypothesis, ...] = SIMPLEX
    decide: Callable[[], Verdict] | None = None  # kind "exact" only
    polynomial: bool = False  # prove it a second time by the degree principle


@dataclass(frozen=True)
class Mutant:
    """A false variant of a step, which must be refused."""

    text: str
    lhs: Any
    rhs: Any
    hypotheses: tuple[Hypothesis, ...] = SIMPLEX


@dataclass(frozen=True)
class Trace:
    """A shipped function, `module.name` in divsim.formulas, run on symbols, and its derived form.

    `traced` and `derived` return an expression or a (nested) list of them for a few tokens, in positive or
    real symbols; `trace.trace` writes the record. Equal pairs are decided once.
    """

    function: str
    traced: Callable[[], Any]
    derived: Callable[[], Any]
    tokens: int = 3
    hypotheses: tuple[Hypothesis, ...] = ()


@dataclass(frozen=True)
class Alias:
    """A short name for a long expression where a theorem is printed; `{}` stands for the index, if any."""

    name: str
    meaning: str
    body: Any
    index: Any = None


def alias(name: str, meaning: str, body: Any) -> Alias:
    """`alias("D(s)", "forward KL after the step s", expr)`; with an index `alias("π_{}", "...", softmax)`."""
    if isinstance(body, Expr):
        return Alias(name, meaning, body)
    index = fresh_index()
    return Alias(name, meaning, body(index), index)


@dataclass(frozen=True)
class Theorem:
    """A statement with its scope, its proof, its false variants and the code that it vouches for."""

    id: str
    title: str
    statement: str  # LaTeX
    scope: str  # plain words: what it covers, and what it does not claim
    tier: Tier
    steps: tuple[Step, ...]
    mutants: tuple[Mutant, ...] = ()
    assumptions: tuple[str, ...] = ()
    traces: tuple[Trace, ...] = ()
    residue: tuple[str, ...] = ()  # what a human must accept besides the cited steps
    aliases: tuple[Alias, ...] = ()  # for printing only
    sample: Sampler | None = None  # replaces random values by name


@dataclass(frozen=True)
class Report:
    """The outcome of `check`: counts of what was proven, and every failure in words."""

    id: str
    title: str
    scope: str
    tier: str
    identities: int
    certificates: int
    exact: int
    mutants_refused: int
    traces: int
    traced: tuple[str, ...]  # names of the shipped functions that the traces ran
    degree_proofs: int
    shadow_sizes: tuple[int, ...]
    shadow_error: float
    seconds: float
    residue: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return not self.failures


class _Log:
    """The failures of one theorem."""

    def __init__(self, theorem_id: str) -> None:
        self.theorem_id, self.failures = theorem_id, list[str]()

    def passed(self, label: str, verify: Callable[[], str | None]) -> bool:
        """Runs a check that returns None or what is wrong; a crash is a failure with a name, not the end."""
        try:
            fault = verify()
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if fault:
            self.failures.append(f"{self.theorem_id}, {label}: {fault}")
        return not fault


def check(theorem: Theorem, sizes: tuple[int, ...] = SIZES, seed: int = 0) -> Report:
    """Runs every check of `theorem`; failures name the theorem and the step."""
    start, log = time.perf_counter(), _Log(theorem.id)
    shadow, gaps = Shadow(theorem.sample, sizes, seed), [0.0]
    count, degree_proofs = Counter[str](), 0
    for number, step in enumerate(theorem.steps, 1):
        label = f"step {number} ({step.text})"
        count[step.kind] += log.passed(label, partial(_check_step, step))
        if step.kind in ("identity", "nonneg", "scalar"):
            log.passed(label, partial(_check_shadow, step, shadow, gaps))
        if step.polynomial:
            degree_proofs += log.passed(label, partial(_check_degree, step))
    refused = sum(
        log.passed(f"mutant ({each.text})", partial(_check_mutant, each, shadow)) for each in theorem.mutants
    )
    traces = sum(
        log.passed(f"trace of {each.function}", partial(_check_trace, each, seed)) for each in theorem.traces
    )
    return Report(
        id=theorem.id,
        title=theorem.title,
        scope=theorem.scope,
        tier=theorem.tier,
        identities=count["identity"] + count["scalar"],
        certificates=count["nonneg"],
        exact=count["exact"],
        mutants_refused=refused,
        traces=traces,
        traced=tuple(dict.fromkeys(each.function for each in theorem.traces)),
        degree_proofs=degree_proofs,
        shadow_sizes=sizes,
        shadow_error=max(gaps),
        seconds=time.perf_counter() - start,
        residue=theorem.residue + tuple(step.text for step in theorem.steps if step.kind == "cited"),
        failures=tuple(log.failures),
    )


def certify(theorem: Theorem) -> Report:
    """`check`, and the theorem must be one: a step that is checked, and a false variant that is refused."""
    report, log = check(theorem), _Log(theorem.id)
    is_empty = all(step.kind == "cited" for step in theorem.steps)
    log.passed("steps", lambda: "no step is checked" if is_empty else None)
    log.passed("mutants", lambda: None if theorem.mutants else "no false variant is refused")
    return replace(report, failures=report.failures + tuple(log.failures))


def _sides(claim: Step | Mutant) -> tuple[Any, Any]:
    return carry_out(sympify(claim.lhs)), carry_out(sympify(claim.rhs))


def _check_step(step: Step) -> str | None:
    if step.kind == "cited":
        return None
    if step.kind == "exact":
        if step.decide is None:
            return "an exact step needs decide=, a function that returns a Verdict"
        verdict = step.decide()
        return None if verdict.holds else f"the claim does not hold: {verdict.numbers}"
    if step.kind != "nonneg" and sympify(step.lhs) == sympify(step.rhs):
        return "both sides are the same expression, so nothing is proved"
    lhs, rhs = _sides(step)
    gap = lhs - rhs
    if step.kind == "scalar":
        return None if simplify(gap) == 0 else f"simplify leaves {simplify(gap)}"
    if not is_zero(gap, step.hypotheses):
        return "the kernel does not show lhs == rhs"
    if step.kind == "nonneg" and not nonnegative(rhs, step.hypotheses):
        return "rhs is not visibly >= 0"
    return None


def _check_shadow(step: Step, shadow: Shadow, gaps: list[float]) -> str | None:
    gaps.append(shadow.gap(*_sides(step), step.hypotheses))
    return None if gaps[-1] <= TOLERANCE else f"numerically false: the sides differ by {gaps[-1]:.2g}"


def _check_degree(step: Step) -> str | None:
    normalised = set(SIMPLEX) <= set(step.hypotheses)
    holds = degree.prove(*_sides(step), normalised).holds
    return None if holds else "the degree principle finds lhs != rhs"


def _check_mutant(mutant: Mutant, shadow: Shadow) -> str | None:
    lhs, rhs = _sides(mutant)
    if is_zero(lhs - rhs, mutant.hypotheses):
        return "the kernel accepts this false variant"
    gap = shadow.gap(lhs, rhs, mutant.hypotheses)
    if not math.isfinite(gap):
        return "a side of this variant is not a finite number, so nothing is refuted"
    return None if gap > MUTANT_GAP else "the evaluator cannot tell this variant from the truth"


def _check_trace(trace: Trace, seed: int) -> str | None:
    module, *names = trace.function.split(".")
    try:
        attrgetter(".".join(names))(importlib.import_module(f"divsim.formulas.{module}"))
    except AttributeError as error:
        return f"divsim.formulas has no {trace.function}: {error}"
    traced, derived = _entries(trace.traced()), _entries(trace.derived())
    if not traced or len(traced) != len(derived):
        return f"traced {len(traced)} entries, derived {len(derived)}"
    values = evaluator.draw([*traced, *derived], trace.tokens, np.random.default_rng(seed))
    for got, want in dict.fromkeys(zip(traced, derived, strict=True)):
        if got == want and not got.has(nan, zoo):  # also where both are infinite
            continue
        if evaluator.difference(got, want, values) > TOLERANCE:
            return f"the code computes {got}, the theorem says {want}; they differ at {values}"
        numerator, _ = fraction(together(got - want))
        if not is_zero(numerator, trace.hypotheses) and simplify(got - want) != 0:
            return f"the code computes {got}, the theorem says {want}, and this is not shown to be equal"
    return None


def _entries(value: Any) -> list[Any]:
    return [sympify(entry) for entry in (flatten(value) if isinstance(value, Iterable) else [value])]
