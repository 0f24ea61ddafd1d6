"""The command line: exit codes, refusals, machine-readable output, and what a pipe gets to see."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from divsim.cli import main
from divsim.cli.verify import CLAIM, COLUMNS, NAME, SCOPE, TIERS, _columns
from divsim.derivations import prove
from divsim.experiments.verify import ChapterResult, Config, chapter_ids, run, verify_chapter
from divsim.tabular.simulations import SIMULATIONS


@pytest.fixture(scope="module")
def t2() -> ChapterResult:
    return verify_chapter("T2", seed=0)


def divsim(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "divsim", *args]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | env)


def code_of(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(args)
    return int(stop.value.code or 0)


def test_a_chapter_is_verified_and_the_pipe_gets_plain_text() -> None:
    done = divsim("verify", "--only", "T2")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar outside a terminal
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[0].startswith("theorem claim")
    assert "proven: 3 of 3 theorems proven, 1 of 1 chapters simulated" in done.stdout
    assert "What the machine does not prove" in done.stdout


def test_json_holds_every_count_and_nothing_else_is_printed() -> None:
    done = divsim("verify", "--only", "T2", "--json")
    document = json.loads(done.stdout)
    assert document["ok"] is True
    (chapter,) = document["chapters"]
    assert [report["id"] for report in chapter["reports"]] == ["T2a", "T2b", "T2c"]
    assert all(report["mutants_refused"] > 0 and not report["failures"] for report in chapter["reports"])
    assert all(check["violations"] == 0 < check["cases"] for check in chapter["simulation"]["checks"])


def test_a_failed_proof_or_simulation_is_exit_code_1(
    t2: ChapterResult, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken_proof = replace(
        t2, reports=(replace(t2.reports[0], failures=("T2a, step 1: false",)), *t2.reports[1:])
    )
    worst = replace(t2.simulation.checks[0], violations=3)
    broken_world = replace(t2, simulation=replace(t2.simulation, checks=(worst, *t2.simulation.checks[1:])))
    for result, says in ((broken_proof, "T2a, step 1: false"), (broken_world, "simulator")):
        monkeypatch.setattr("divsim.experiments.verify.run", lambda config, result=result: iter([result]))
        assert code_of("verify", "--only", "T2") == 1
        shown = capsys.readouterr().out
        assert says in shown and "failed" in shown
    monkeypatch.setattr("divsim.experiments.verify.run", lambda config: iter([t2]))
    assert code_of("verify", "--only", "T2") == 0


def test_a_chapter_without_theorems_is_a_failure(t2: ChapterResult) -> None:
    assert replace(t2, reports=()).failures == ("T2: the chapter has no theorem",)
    assert t2.failures == ()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("verify", "--only", "T99"), "unknown chapter T99; valid ids: T1, T2"),
        (("verify", "--explain", "X"), "unknown chapter 'X'"),
        (("verify", "--explain", "T3z"), "unknown theorem 'T3z'; chapter T3 has T3a"),
        (("verify", "--processes", "0"), "--processes must be >= 1, got 0"),
        (("verify", "--tex", "/nowhere/x.tex"), "does not exist"),
    ],
)
def test_a_wrong_call_is_exit_code_2_and_says_what_is_valid(
    args: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(*args) == 2
    assert says in capsys.readouterr().err


def test_unknown_flags_are_refused() -> None:
    assert divsim("verify", "--onyl", "T1").returncode == 2


def test_tex_is_written_once_and_never_over_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "theorems.tex"
    assert code_of("verify", "--only", "T1", "--tex", str(file)) == 0
    source = file.read_text()
    assert r"\documentclass" in source and r"\end{document}" in source and "T1a" in source
    assert source.count(r"\begin{") == source.count(r"\end{")
    file.write_text("mine")
    assert code_of("verify", "--only", "T1", "--tex", str(file)) == 2
    assert file.read_text() == "mine"
    assert "exists already" in capsys.readouterr().err


def test_explain_prints_statement_steps_and_scope(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("verify", "--explain", "T2b") == 0
    lesson = capsys.readouterr().out
    assert "cₖ = (πₖ - μₖ) + Σᵢ πᵢ (μᵢ - πᵢ)" in lesson
    assert "Says nothing about finite steps" in " ".join(lesson.split())
    assert "\\" not in lesson  # no LaTeX in a terminal


def test_colour_is_off_with_no_color_even_on_a_terminal() -> None:
    forced = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
    assert "\x1b[32m" in divsim("verify", "--only", "T2", **forced).stdout
    assert "\x1b[32m" not in divsim("verify", "--only", "T2", NO_COLOR="1", **forced).stdout


def test_chapters_run_in_parallel_processes_with_the_same_result(t2: ChapterResult) -> None:
    results = {result.chapter: result for result in run(Config(("T2", "T8"), seed=0, processes=2))}
    assert set(results) == {"T2", "T8"}
    for ours, theirs in zip(t2.simulation.checks, results["T2"].simulation.checks, strict=True):
        assert (ours.name, ours.cases, ours.max_error) == (theirs.name, theirs.cases, theirs.max_error)


def test_the_seed_changes_the_cases() -> None:
    errors = [SIMULATIONS["T2"](np.random.default_rng(seed)).max_error for seed in (0, 0, 1)]
    assert errors[0] == errors[1] != errors[2]


def test_every_chapter_has_theorems_and_a_simulation() -> None:
    assert set(chapter_ids()) == set(SIMULATIONS)
    assert chapter_ids() == tuple(f"T{number}" for number in range(1, 14))


def test_help_and_version_are_exit_code_0() -> None:
    assert divsim("--help").returncode == 0
    assert divsim("verify", "--help").returncode == 0
    assert divsim("--version").stdout.startswith("divsim 0.")
    assert TIERS.keys() >= {report.tier for report in prove("T2")}


def test_three_outputs_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("verify", "--json", "--tex", "x.tex") == 2
    assert "ask for one at a time" in capsys.readouterr().err


def test_ids_may_be_written_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert chapter_ids(["t3", "T1", "t1"]) == ("T1", "T3")
    assert code_of("verify", "--explain", "t2b") == 0
    assert capsys.readouterr().out.startswith("T2b.")


def test_a_narrow_terminal_drops_columns_and_keeps_the_claim() -> None:
    for width in (60, 80, 100, 120, 200):
        shown, claim = _columns(width)
        assert claim >= CLAIM or shown == ["false", "error"]
        assert NAME + SCOPE + 2 + claim + sum(COLUMNS[heading][0] + 1 for heading in shown) <= width
    assert _columns(120)[0] == list(COLUMNS)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_one_line_and_leaves_no_worker(stop: signal.Signals) -> None:
    command = [sys.executable, "-m", "divsim", "verify", "--processes", "2"]
    running = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    time.sleep(6)  # long enough for the workers to be up, far too short for all chapters
    running.send_signal(stop)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, "divsim: interrupted\n")
    for _ in range(100):  # the workers' resource tracker follows within moments
        try:
            os.killpg(running.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a worker outlived the command")


def test_a_closed_pipe_and_a_poor_encoding_are_no_failure() -> None:
    done = divsim("verify", "--explain", "T2a", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stderr == ""
    shell = f"{sys.executable} -m divsim verify --explain T3 | head -1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("T3. ") and done.stderr == ""
