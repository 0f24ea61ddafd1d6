"""Mutation testing of `divsim/formulas/` with mutmut: break each formula in many small ways, expect red.

    python tests/mutation.py                       every module, in a temporary copy of the checkout
    python tests/mutation.py change tail --work D  some modules, in the folder D; goes on where it stopped

A module's mutants must fall to its own tests (`TESTS`), at `--hypothesis-profile=mutation`. At least 95 % of
all mutants must be killed; a timeout counts as a kill and has its own column. Every survivor must stand in
`mutation_survivors.toml` with a reason, and nothing else may stand there. mutmut changes the bodies and
defaults of functions; tables at module level have tests of their own. Left out, by rule, are two kinds:

- the arguments of `namespace(...)`: all arrays of a call are of one library, and any of them names it;
- the wording of messages: a changed string literal that has a space in it. Names and keys stay in.
"""

import argparse
import ast
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from mutmut.stats import status_by_exit_code

ROOT = Path(__file__).resolve().parents[1]
REQUIRED = 0.95
HEADS = ("mutants", "killed", "survived", "timeouts", "share", "seconds")

RULES = (
    "rules::test_settings_reach_the_rule rules::test_nothing_carries_a_graph rule_errors rule_identities "
    "rule_edges::test_equality_keeps rule_edges::test_a_cap_stops_the_weight_and_not_the_mask "
    "rule_edges::test_an_impossible_token_has_no_weight"
)

TESTS = {
    "divergences": "divergences numerics checkers_checked change rows_apart",
    "change": "change tail device messages rows_apart",
    "tail": "tail interval device",
    "overlap": "overlap interval device",
    "softmax": "softmax numerics device",
    "families": "families numerics messages",
    "rules": f"rule_record {RULES}",
    "clauses": f"clauses {RULES}",
    "gains": f"gains {RULES}",
    "bands": "bands messages",
    "diagnostics": "diagnostics",
    "support": "support view door device",
    "view": "view view_fields door door_records interval device",
    "batch": "batch messages",
    "bounds": "bounds horizon_bounds device messages",
    "sampled_kl": "sampled_kl",
    "catalogue": f"catalogue {RULES}",
    "_array": "array softmax view door overlap",
    "_checks": "door door_records rule_errors batch bounds messages",
    "_door": "door door_records view field_faults device rows_apart",
}
"""Module -> the test files, or tests, that must kill its mutants."""

COPIED = ("divsim", "derivations", "tests", "pyproject.toml", "README.md", "REFERENCES.md")

# A mutant may take twice what its tests take, and 20 s: formulas hold no loop whose end a mutant could move.
CONFIG = """
[tool.mutmut]
source_paths = ["divsim/formulas/"]
only_mutate = ["divsim/formulas/{module}.py"]
also_copy = {copied}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-m", "not slow", "--hypothesis-profile=mutation"]
pytest_add_cli_args_test_selection = {tests}
timeout_multiplier = 2.0
timeout_constant = 10.0
"""


Mutants = list[tuple[str, str]]
"""Each is ("module.function: old line -> new line", mutmut's word for it: "killed", "survived", ...)."""


def prepare(module: str, folder: Path) -> None:
    """A copy of the checkout that mutmut may fill with mutants of one module."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "runs"))
    tests = [re.sub(r"^(\w+)", r"tests/test_\1.py", name) for name in TESTS[module].split()]
    with (folder / "pyproject.toml").open("a") as config:
        config.write(CONFIG.format(module=module, copied=list(COPIED), tests=tests))


def run(module: str, folder: Path) -> None:
    """Try what was not tried yet; mutmut keeps its results in the folder."""
    if not folder.exists():
        prepare(module, folder)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    mutmut = Path(sys.executable).with_name("mutmut")
    done = subprocess.run([mutmut, "run"], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"mutmut failed on {module}:\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}")


def functions(source: str) -> dict[str, str]:
    """Name -> text of every function, at any depth."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    lines = source.splitlines()
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in found}


def changed(old: str, new: str) -> tuple[str, str]:
    """The lines that differ, joined."""
    diff = [line for line in difflib.ndiff(old.splitlines(), new.splitlines()) if line[:2] in ("- ", "+ ")]
    before, after = (" ".join(line[2:].strip() for line in diff if line[0] == sign) for sign in "-+")
    return before, after


def is_left_out(old: str, new: str) -> bool:
    """Only the arguments of `namespace`, or literals with a space in them, are other."""

    def calls(text: str) -> str:
        return re.sub(r"namespace\([^()]*\)", "", text)

    def prose(text: str) -> str:
        return re.sub(r'"[^"]*"', lambda literal: "" if " " in literal[0] else literal[0], text)

    return calls(old) == calls(new) or prose(old) == prose(new)


def read(module: str, folder: Path) -> Mutants:
    """Every mutant of a module, but for those left out."""
    mutated = folder / "mutants" / "divsim" / "formulas" / f"{module}.py"
    texts = functions(mutated.read_text())
    exit_codes = json.loads(mutated.with_suffix(".py.meta").read_text())["exit_code_by_key"]
    mutants: Mutants = []
    for key, exit_code in exit_codes.items():
        mangled = key.rpartition(".")[2]
        original = re.sub(r"__mutmut_\d+$", "__mutmut_orig", mangled)
        name = re.sub(r"^x(_|ǁ)|__mutmut_\d+$", "", mangled).replace("ǁ", ".")
        old, new = changed(texts[original].replace(original, name), texts[mangled].replace(mangled, name))
        if not is_left_out(old, new):
            mutants.append((f"{module}.{name}: {old} -> {new}", status_by_exit_code[exit_code]))
    return mutants


def explained() -> set[str]:
    """The mutants that may survive, each for a reason."""
    table = tomllib.loads((ROOT / "tests" / "mutation_survivors.toml").read_text())
    return {name for entry in table["survivors"] if entry["reason"] for name in entry["mutants"]}


def show(name: str, mutants: Mutants, seconds: float) -> None:
    """One line of the table, at once."""
    of = Counter(status for _, status in mutants)
    killed, timeouts = of["killed"], of["timeout"]
    counts = (len(mutants), killed, len(mutants) - killed - timeouts, timeouts)
    share = (killed + timeouts) / len(mutants)
    print(f"{name:12}", *(f"{count:9}" for count in counts), f"{share:9.1%} {seconds:9.0f}", flush=True)


def judge(modules: Collection[str], work: Path) -> list[str]:
    """Run the modules, print the table; what is wrong."""
    every: Mutants = []
    started = time.monotonic()
    print(f"{'module':12}", *(f"{head:>9}" for head in HEADS))
    for module in modules:
        begun = time.monotonic()
        run(module, work / module)
        mutants = read(module, work / module)
        show(module, mutants, time.monotonic() - begun)
        every += mutants
    show("all", every, time.monotonic() - started)
    survivors = [name for name, status in every if status not in ("killed", "timeout")]
    standing = {name for name, status in every if status != "killed"}
    here = {name for name in explained() if name.partition(".")[0] in modules}
    wrong = [f"survives, unexplained: {name}" for name in sorted(set(survivors) - here)]
    wrong += [f"explained, but killed or gone: {name}" for name in sorted(here - standing)]
    if set(modules) == TESTS.keys() and len(survivors) > (1 - REQUIRED) * len(every):
        wrong.append(f"less than {REQUIRED:.0%} are killed")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="mutation testing of divsim/formulas/")
    parser.add_argument("modules", nargs="*", metavar="module", help=f"of {', '.join(TESTS)}; all by default")
    parser.add_argument("--work", type=Path, help="folder to work in, or to go on in; else a temporary one")
    arguments = parser.parse_args()
    shipped = {file.stem for file in (ROOT / "divsim" / "formulas").glob("*.py")} - {"__init__"}
    if not shipped == TESTS.keys() >= set(arguments.modules):
        parser.error(f"modules are {', '.join(sorted(shipped))}; TESTS must name the tests of each")
    with tempfile.TemporaryDirectory() as temporary:
        wrong = judge(arguments.modules or TESTS, (arguments.work or Path(temporary)).resolve())
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
