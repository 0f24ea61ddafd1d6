"""What a certificate may not be: empty, about nothing, or about code that did not run."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from types import CodeType
from typing import Any

import pytest
from sympy import Float, Rational

from divsim.derivations import CHAPTERS, kernel, load
from divsim.derivations.theorem import Step, Theorem, Trace, certify, check


@pytest.fixture(scope="module")
def t2a() -> Theorem:
    return load("T2")[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": ()}, "no step is checked"),
        ({"steps": (Step("P = NP.", kind="cited"),)}, "no step is checked"),
        ({"mutants": ()}, "no false variant"),
    ],
)
def test_an_empty_certificate_is_a_failure(t2a: Theorem, change: dict[str, Any], says: str) -> None:
    assert certify(t2a).ok
    assert any(says in failure for failure in certify(replace(t2a, **change)).failures)


def test_a_step_with_one_expression_on_both_sides_proves_nothing(t2a: Theorem) -> None:
    vacuous = replace(t2a.steps[0], lhs=t2a.steps[0].rhs)
    report = check(replace(t2a, steps=(vacuous,)))
    assert any("the same expression" in failure for failure in report.failures)


def test_a_rounded_number_is_no_proof() -> None:
    with pytest.raises(ValueError, match="a proof needs exact numbers"):
        kernel.is_zero(Rational(1, 3) * kernel.normal_form(1) - Float("0.333333333333333333"))


def code_that_ran(call: Callable[[], Any]) -> set[CodeType]:
    seen: set[CodeType] = set()
    sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def code_of(function: str) -> CodeType:
    module, _, name = function.partition(".")
    shipped = attrgetter(name)(importlib.import_module(f"divsim.formulas.{module}"))
    code = shipped.__code__
    assert isinstance(code, CodeType)
    return code


def traces() -> list[Trace]:
    """One trace of every function that any theorem traces, the first of each."""
    first: dict[str, Trace] = {}
    for chapter in CHAPTERS:
        for theorem in load(chapter):
            for trace in theorem.traces:
                first.setdefault(trace.function, trace)
    return list(first.values())


@pytest.mark.parametrize("trace", traces(), ids=lambda trace: trace.function)
def test_a_trace_runs_the_function_that_it_names(trace: Trace) -> None:
    assert code_of(trace.function) in code_that_ran(trace.traced)


def test_the_run_is_seen_and_so_is_its_absence() -> None:
    assert code_of("softmax.entropy") not in code_that_ran(lambda: code_of("softmax.entropy"))
