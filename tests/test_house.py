"""House rules that a machine can read: who imports whom, what `import divsim` loads, how long a file is."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# The dependency table of the house. A floor may import what stands in its row, and the standard library.
MAY_IMPORT = {
    "divsim/formulas": {"array_api_compat", "divsim.formulas"},
    "divsim/tabular": {"numpy", "scipy", "divsim.formulas", "divsim.tabular"},
    "derivations": {"sympy", "mpmath", "numpy", "divsim.formulas", "divsim.derivations"},
    "divsim/lm": {"numpy", "torch", "safetensors", "divsim.formulas", "divsim.lm", "divsim.run_folder"},
    "divsim/experiments": {
        *("numpy", "scipy", "torch", "sympy", "mpmath", "matplotlib", "rich"),
        *("divsim.formulas", "divsim.tabular", "divsim.lm", "divsim.derivations", "divsim.experiments"),
        "divsim.run_folder",
    },
    "divsim/claims": {"divsim.claims", "divsim.derivations", "divsim.experiments"},
    "divsim/cli": {
        *("tyro", "rich", "divsim", "divsim.cli", "divsim.claims"),
        *("divsim.tabular", "divsim.experiments", "divsim.derivations"),
        *("torch", "divsim.lm", "divsim.run_folder"),
    },
    "tutorials": {
        "torch",
        "divsim.lm",
        "numpy",
        "scipy",
        "sympy",
        "matplotlib",
        "divsim",
        "divsim.formulas",
        "divsim.tabular",
        "divsim.derivations",
    },
}
PUBLIC_ONLY = ("tutorials", "benchmarks")
LONGEST_FILE = 320  # "300 lines is long": a little slack for tables


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def package_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    dotted = ".".join(parts[:-1])
    return "divsim." + dotted if parts[0] == "derivations" else dotted


def imports_of(source: str, package: str) -> list[str]:
    """The dotted modules that a file imports, relative ones made absolute."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            found.append(".".join([*base, *([node.module] if node.module else [])]))
    return found


def allowed(module: str, row: set[str]) -> bool:
    if module.split(".")[0] in sys.stdlib_module_names:
        return True
    if module == "divsim":
        return "divsim" in row
    return any(module == name or module.startswith(name + ".") for name in row if name != "divsim")


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_floors_import_only_what_stands_below(folder: str) -> None:
    trespasses = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in python_files(folder)
        for module in imports_of(file.read_text(), package_of(file))
        if not allowed(module, MAY_IMPORT[folder])
    ]
    assert python_files(folder), f"{folder} is empty"
    assert not trespasses


def test_the_import_check_sees_a_trespass() -> None:
    row = MAY_IMPORT["divsim/formulas"]
    for line in (
        "import torch",
        "from ..tabular import worlds",
        "import scipy.stats",
        "from divsim import cli",
    ):
        assert not all(allowed(module, row) for module in imports_of(line, "divsim.formulas")), line
    for line in ("import math", "from ._array import Array", "import array_api_compat"):
        assert all(allowed(module, row) for module in imports_of(line, "divsim.formulas")), line


def test_importing_divsim_loads_nothing_heavy() -> None:
    code = (
        "import sys, divsim, divsim.formulas, divsim.cli;"
        "print(*[m for m in ('torch', 'sympy', 'scipy.stats', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("folder", ["divsim", "derivations", "tests"])
def test_files_stay_short(folder: str) -> None:
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in python_files(folder)
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


@pytest.mark.parametrize("folder", PUBLIC_ONLY)
def test_lessons_and_benchmarks_use_public_names_only(folder: str) -> None:
    for file in python_files(folder):
        private = [
            node.attr
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
        ]
        hidden = [
            m for m in imports_of(file.read_text(), folder) if any(p.startswith("_") for p in m.split("."))
        ]
        assert not private + hidden, file


def test_every_cited_key_is_in_the_references() -> None:

    known = set(re.findall(r"^\| \[(\w+)\]", (ROOT / "REFERENCES.md").read_text(), flags=re.MULTILINE))
    pattern = re.compile(r"\[([A-Z][A-Za-z]*\d*|k3)\](?![\[(])")
    for folder in ("divsim", "derivations", "tutorials"):
        for file in python_files(folder):
            docs = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(file.read_text()))
                    if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)]  # fmt: skip
            cited = {
                key
                for doc in docs
                for line in doc.splitlines()
                if "ource" in line
                for key in pattern.findall(line)
            }
            assert cited <= known, (file, cited - known)
