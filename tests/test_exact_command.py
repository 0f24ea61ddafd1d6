"""`divsim exact` as a user calls it: refusals before any work, short tables, files that say what they are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from divsim.cli import main

SMALL = ("--seeds", "2", "--tokens", "6", "--vocab", "60", "--mismatch", "noise_0.5")
TINY = ("--world", "flat", "--vocab", "120", "--seeds", "2", "--k", "5", "20")


def call(*args: object) -> int:
    with pytest.raises(SystemExit) as done:
        main(["exact", *map(str, args)])
    return int(done.value.code or 0)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("direction", "--k", 61, "--vocab", 60),
            "k must be at most the vocabulary, got k = 61 and vocab = 60",
        ),
        (("direction", "--delta", 0), "delta must be from 1e-12 to 10000, got 0.0"),
        (("direction", "--delta", "nan"), "delta must be from 1e-12 to 10000, got nan"),
        (("direction", "--rules", "ratoi"), "unknown rule 'ratoi'; the rules are ratio, full"),
        (("direction", "--world", "moon"), "world 'moon' is unknown; it must be one of language"),
        (("direction", "--mismatch", "noise"), "mismatch 'noise' is unknown"),
        (("direction", "--mismatch", "engine", "engine"), "mismatch must not repeat, got engine, engine"),
        (("direction", "--delta", 0.1, 0.1), "delta must be one or more distinct radii, got (0.1, 0.1)"),
        (("tails", "--k", 5, 5), "k must not repeat, got (5, 5); name each size once"),
        (("tails", "--world", "flat", "--vocab", 50, 50, "--k", 5), "vocab must not repeat"),
        (("tails", "--seed", -1), "seed must be >= 0, got -1"),
        (
            ("tails", "--out", "/proc/none"),
            "/proc/none cannot be made: No such file or directory; name another",
        ),
        (("direction", "--processes", 0), "--processes must be >= 1, got 0"),
        (("direction", "--seeds", 0), "seeds must be from 2 to 10,000, got 0"),
        (("direction", "--data", "x.npz"), "--data goes with --world real"),
        (("direction", "--world", "real", "--data", "none.npz"), "--data none.npz is not a file"),
        (("direction", "--world", "real", "--k", 5), "leave --k out"),
        (("tails", "--k", 200_000), "k must be at most the vocabulary"),
        (("tails", "--vocab", 100), "--vocab needs a --world"),
        (("tails", "--world", "flat", "--vocab", 100, "--k", 101), "got k = 101 and vocab = 100"),
        (("tails", "--delta", -1), "delta must be from 1e-12 to 10000, got -1.0"),
        (("tails", "--world", "flat", "--mismatch", "moon"), "mismatch 'moon' is unknown"),
        (("tails", "--world", "moon", "--mismatch", "independent"), "world 'moon' is unknown"),
        (("tails", "--mismatch", "moon"), "--mismatch needs a --world"),
        (("bandit", "--world", "moon"), "world 'moon' is unknown"),
        (("mdp", "--rules", "ppo"), "rules 'ppo' is unknown"),
        (("bandit", "--minibatches", 5), "minibatches must divide the 64 episodes"),
        (("mdp", "--noise", "-1"), "noise must be a finite number >= 0"),
        (("bandit", "--processes", 0), "--processes must be >= 1"),
        (("bounds", "--gamma", 1.0), "gamma"),
        (("bounds", "--seeds", 0), "seeds must be"),
        (("drpo", "--delta", 0), "delta must be a finite"),
        (("tails", "--world", "flat", "--mismatch", ""), "mismatch '' is unknown"),
        (("tails", "--world", "flat", "--vocab", 100, "--k", 100), "k must be below a vocabulary"),
        (("tails", "--world", "real", "--mismatch", "moon"), "leave --mismatch out"),
        (("tails", "--world", "real", "--k", 5), "leave --k out"),
        (("direction", "--world", "real", "--delta", 0.1), "leave --delta out"),
        (("direction", "--world", "real", "--rules", "nonsense"), "unknown rule 'nonsense'"),
        (("direction", "--world", "real", "--rules", "ratio"), "leave --rules out"),
        (("direction", "--world", "real", "--preset", "full"), "leave --preset out"),
    ],
)
def test_a_call_that_cannot_work_is_refused_before_any_work(
    args: tuple[object, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert call(*args) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_is_none_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.npz").write_text("x")
    assert call("tails", "--world", "real", "--data", "data.npz") == 2
    assert "data.npz is not a readable .npz archive" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_exact_alone_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 2
    assert "direction, tails, bandit, mdp, drpo, bounds" in " ".join(capsys.readouterr().err.split())


def test_direction_prints_its_tables_and_writes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("direction", *SMALL, "--out", "here", "--rules", "ratio", "full") == 0
    out = capsys.readouterr().out
    for words in (
        "How mu and pi come apart",
        "Right about a token",
        "A minibatch on a shared head",
        "0 false blocks",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 120 and "\x1b" not in out and "…" not in out
    written = {path.name for path in (tmp_path / "here").iterdir()}
    assert {"config.json", "environment.json", "results.json", "tiles", "figures"} <= written
    assert "prototype.md" not in written  # the prototype had another vocabulary
    assert {path.suffix for path in (tmp_path / "here" / "figures").iterdir()} == {".png", ".svg"}
    config = json.loads((tmp_path / "here" / "config.json").read_text())
    assert (config["vocab"], config["seeds"], config["mismatches"]) == (60, 2, ["noise_0.5"])
    assert call("direction", *SMALL, "--out", "here") == 2
    assert "exists already" in capsys.readouterr().err
    before = (tmp_path / "here" / "results.json").read_bytes()
    assert call("direction", *SMALL, "--out", "here", "--resume") == 0
    assert (tmp_path / "here" / "results.json").read_bytes() == before
    assert call("direction", *SMALL, "--out", "here", "--resume", "--seed", 1) == 2
    assert "made with seed = 0, now it is 1" in " ".join(capsys.readouterr().err.split())


def test_tails_prints_its_table_and_does_not_depend_on_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for processes in (1, 2):
        assert call("tails", *TINY, "--out", processes, "--processes", processes) == 0
    out = capsys.readouterr().out
    assert (
        "K = 20" in out and "aggr(egated)" in out and "cert: the sign is certified" in " ".join(out.split())
    )
    one, two = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("1", "2"))
    assert one == two and one["rows"]


def test_a_vocabulary_below_some_of_the_presets_k_leaves_them_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("tails", "--world", "flat", "--vocab", 20, "--seeds", 2, "--out", "here") == 0
    assert "What K = 8 forgets" in capsys.readouterr().out
    rows = json.loads((tmp_path / "here" / "results.json").read_text())["rows"]
    assert {row["k"] for row in rows if "k" in row} == {1, 5, 8}


def test_one_radius_has_one_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("direction", *SMALL, "--delta", 0.1, "--out", "here") == 0
    heading = next(line for line in capsys.readouterr().out.splitlines() if "mean KL" in line)
    assert heading.split() == ["mismatch", "mean", "KL", ">0.1", "disagree", ">0.1", "s*"]


LEARN = ("--rules", "importance_sampling", "ppo_clip", "trpo", "--seeds", 3, "--rollouts", 3, "--delta", 1.0)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("bandit", "--world", "bernoulli", *LEARN), ("bernoulli, 16 minibatches, K = 5", "Regret against")),
        (
            ("mdp", "--world", "chain", "--minibatches", 4, 8, *LEARN),
            ("chain, 4 minibatches", "chain, 8 mini"),
        ),
        (("bounds", "--seeds", 2, "--horizons", 4, 8, 16, 32, 64), ("vacuous", "Violations: 0 of")),
        (("drpo", "--seeds", 4, "--tokens", 20, "--world", "bernoulli"), ("12.5",)),
    ],
    ids=["bandit", "mdp", "bounds", "drpo"],
)
def test_studies_print_their_tables_and_write_their_figures(
    args: tuple[object, ...], words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert call(*args, "--out", "here") == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words), out
    assert max(map(len, out.splitlines())) <= 120 and "\x1b" not in out and "…" not in out
    assert {path.suffix for path in (tmp_path / "here" / "figures").iterdir()} == {".png", ".svg"}


@pytest.mark.parametrize("question", ["direction", "tails"])
def test_recorded_tokens_are_a_world(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(question, "--world", "real", "--out", "run") == 0
    out = capsys.readouterr().out
    assert "Recorded tokens" in out and "top-20 mass > .99" in out and "fp32_stale" in out
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config == {"experiment": "real", "question": question, "data": "", "seed": 0}


def test_it_behaves_in_a_pipe_and_without_colour(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "divsim", "exact", "tails", *TINY]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "\x1b" not in done.stdout
    assert (tmp_path / "runs" / "tails-quick" / "results.json").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("direction", "--vocav", "60"), "Unrecognized options: --vocav"),
        (("tails", "--seeds", "two"), "--seeds"),
        (("tials",), "tials"),
        (("direction", "--preset", "huge"), "huge"),
    ],
)
def test_what_no_flag_means_is_refused(
    args: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert call(*args) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [("tails", *TINY), ("tails", "--world", "real")])
def test_a_directory_that_exists_is_left_alone(
    args: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("three years")
    assert call(*args, "--out", tmp_path) == 2
    assert f"{tmp_path} exists already" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"thesis.txt": "three years"}


@pytest.mark.parametrize("question", ["direction", "tails"])
def test_help_tells_every_flag(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(question, "--help") == 0
    out = capsys.readouterr().out
    common = "--preset --world --vocab --mismatch --k --delta --data --out --resume --seed --processes"
    for flag in common.split():
        assert flag in out
    assert call("--help") == 0
    assert question in capsys.readouterr().out
