"""Every lesson runs as a plain script within a minute, without a warning or a window, and ends in asserts."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

LESSONS = sorted((Path(__file__).resolve().parents[1] / "tutorials").glob("*.py"))
SECONDS = 60
WIDEST_LINE = 120  # of what a lesson prints: more wraps in a terminal, and in a lecture hall

HEADER = ("# ---", "# jupyter:", "#   jupytext:", "#       format_name: percent", "# ---")


def faults(source: str) -> list[str]:
    """What makes a source not a lesson; empty if it is one."""
    lines, body = source.splitlines(), ast.parse(source).body
    found = []
    if lines[:3] != list(HEADER[:3]) or not set(HEADER) <= set(lines[: lines.index("# %% [markdown]")]):
        found.append("no jupytext header in percent format")
    if not {"# %%", "# %% [markdown]"} <= set(lines):
        found.append("no markdown cell or no code cell")
    if not isinstance(body[-1], ast.Assert):
        found.append("does not end in asserts")
    return found


def run_lesson(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a lesson from an empty folder, warnings being errors."""
    quiet = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-W", "error", str(path)]
    return subprocess.run(
        command, cwd=folder, env=quiet, capture_output=True, encoding="utf-8", timeout=SECONDS
    )


def test_there_are_lessons() -> None:
    assert LESSONS


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_it_is_a_lesson(lesson: Path) -> None:
    assert faults(lesson.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_it_runs_and_tells_a_story(lesson: Path, tmp_path: Path) -> None:
    done = run_lesson(lesson, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) >= 10
    assert max(map(len, done.stdout.splitlines())) <= WIDEST_LINE


LESSON = """\
# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # A lesson

# %%
import warnings
assert 1 + 1 == 2
"""


def test_each_fault_is_seen() -> None:
    assert faults(LESSON) == []
    for good, bad, fault in (
        ("format_name: percent", "format_name: light", "no jupytext header in percent format"),
        ("# ---\n# jupyter", "# jupyter", "no jupytext header in percent format"),
        ("# %%\n", "\n", "no markdown cell or no code cell"),
        ("assert 1 + 1 == 2", "print(2)", "does not end in asserts"),
    ):
        assert faults(LESSON.replace(good, bad)) == [fault]


@pytest.mark.parametrize("line", ["assert 1 + 1 == 3", "warnings.warn('careless')"])
def test_a_false_assert_and_a_warning_fail(line: str, tmp_path: Path) -> None:
    path = tmp_path / "lesson.py"
    path.write_text(LESSON.replace("assert 1 + 1 == 2", line), encoding="utf-8")
    assert run_lesson(path, tmp_path).returncode != 0
