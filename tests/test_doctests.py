"""Every example in every docstring runs, and says what it prints. Warnings are errors here as everywhere."""

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import divsim


def module_names() -> list[str]:
    """Every module that is not a command; in a checkout the derivations are a folder of their own."""
    derivations = importlib.import_module("divsim.derivations")
    found = [
        *pkgutil.walk_packages(divsim.__path__, "divsim."),
        *pkgutil.walk_packages(derivations.__path__, "divsim.derivations."),
    ]
    return sorted({module.name for module in found if not module.name.endswith("__main__")})


def failures(module: ModuleType) -> int:
    return doctest.testmod(module, raise_on_error=False).failed


@pytest.mark.parametrize("name", module_names())
def test_examples_of(name: str) -> None:
    assert failures(importlib.import_module(name)) == 0


def test_the_formulas_have_examples() -> None:
    """A module without examples would pass in silence."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    floor = [importlib.import_module(name) for name in module_names() if name.startswith("divsim.formulas.")]
    examples = [test for module in floor for test in finder.find(module) if test.examples]
    assert len(examples) > 60


def test_a_wrong_example_is_seen() -> None:
    broken = ModuleType("broken", doc="\n>>> 1 + 1\n3\n")
    assert failures(broken) == 1
