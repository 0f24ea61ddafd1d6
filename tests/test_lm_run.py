"""Runs of the trainer: kills and resumes to the last bit, refusals, checkpoints whole or not there."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from divsim.lm import checkpoint  # noqa: E402
from divsim.lm.checkpoint import CheckpointError, found, load, save  # noqa: E402
from divsim.lm.config import Config, preset  # noqa: E402
from divsim.lm.model import build, load_weights, untied  # noqa: E402
from divsim.lm.run import config_of, train  # noqa: E402
from divsim.run_folder import RunError  # noqa: E402

SMALL: dict[str, Any] = {
    "task": "bandit", "task_settings": {"prompts": 40, "arms": 40}, "warm_steps": 0, "prompts": 4, "group": 4,
    "minibatches": 2, "iterations": 6, "held_out": 4, "eval_every": 2, "k": 4, "lr": 1e-2, "lag": 1,
    "rollout_precision": "fp8", "decay": True, "reference": 0.01,
}  # fmt: skip


def small(**changes: Any) -> Config:
    return preset("smoke", **(SMALL | changes))


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("DIVSIM_CACHE", str(tmp_path / "cache"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def final(folder: Path) -> tuple[Any, Any, str]:
    weights, state = load(folder) or ({}, {})
    return weights, state, (folder / "metrics.jsonl").read_text()


def same(left: Any, right: Any) -> bool:
    """Equal to the last bit, all the way down."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right) and left.dtype == right.dtype
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def test_a_run_repeats_itself_and_another_seed_does_not(tmp_path: Path) -> None:
    metrics = train(small(), tmp_path / "a")
    train(small(), tmp_path / "b")
    train(small(seed=1), tmp_path / "c")
    assert same(final(tmp_path / "a"), final(tmp_path / "b"))
    assert not same(final(tmp_path / "a")[0], final(tmp_path / "c")[0])
    assert [line["iteration"] for line in metrics] == [1, 2, 3, 4, 5, 6]
    assert [line["iteration"] for line in metrics if "held_out_greedy" in line] == [2, 4, 6]
    assert config_of(tmp_path / "a") == small()


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
from test_lm_run import small
from divsim.lm.run import train
print("ready", flush=True)
train(small(iterations=30), Path({folder!r}), resume={resume}, save_every=1)
"""


def start(folder: Path, resume: bool) -> "subprocess.Popen[str]":
    code = SCRIPT.format(tests=str(Path(__file__).parent), folder=str(folder), resume=resume)
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)


def killed_and_resumed(folder: Path, kills: int, seed: int) -> int:
    """Start, kill after a random time, resume, until the run ends; the number of kills that hit."""
    rng, hits = random.Random(seed), 0
    for attempt in range(kills + 1):
        with start(folder, resume=(folder / "config.json").exists()) as process:
            assert process.stdout is not None
            process.stdout.readline()
            if attempt < kills:
                time.sleep(rng.uniform(0.0, 0.6))
                process.kill()
        hits += process.returncode == -signal.SIGKILL
        if checkpoints := found(folder):
            assert load(folder) is not None, checkpoints
    return hits


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_at_random_instants_leave_no_trace(tmp_path: Path, kills: int) -> None:
    train(small(iterations=30), tmp_path / "whole", save_every=1)
    assert killed_and_resumed(tmp_path / "killed", kills, seed=kills) > 0
    assert same(final(tmp_path / "whole"), final(tmp_path / "killed"))
    assert not list((tmp_path / "killed").glob(".*"))


def test_an_interrupt_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        folder = tmp_path / number.name

        def interrupt(what: str, done: int, total: int, measured: Any, number: int = number) -> None:
            if what == "train" and done == 3:
                os.kill(os.getpid(), number)

        with pytest.raises(KeyboardInterrupt, match=r"saved after iteration [34]; add --resume"):
            train(small(), folder, advance=interrupt)
        assert len(found(folder)) == 1
        train(small(), folder, resume=True)
        train(small(), tmp_path / f"whole-{number.name}")
        assert same(final(folder), final(tmp_path / f"whole-{number.name}"))


def test_what_cannot_be_begun_or_resumed_is_refused(tmp_path: Path) -> None:
    train(small(iterations=1), tmp_path / "a")
    with pytest.raises(RunError, match="exists already; add --resume to go on with it"):
        train(small(iterations=1), tmp_path / "a")
    with pytest.raises(RunError, match=r"was made with lr = 0.01, now it is 0.02"):
        train(small(iterations=1, lr=0.02), tmp_path / "a", resume=True)
    with pytest.raises(RunError, match="holds no run; leave --resume out"):
        train(small(), tmp_path / "b", resume=True)
    assert not (tmp_path / "b").exists()
    (tmp_path / "killed early").mkdir()
    (tmp_path / "killed early" / "lock").write_text("")
    train(small(iterations=1), tmp_path / "killed early")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        train(small(), tmp_path / "file" / "run")
    with pytest.raises(RunError, match="save_every must be >= 1"):
        train(small(), tmp_path / "d", save_every=0)


def test_a_full_disk_leaves_earlier_checkpoints_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"w": torch.arange(3.0)}
    save(tmp_path, 1, weights, {"updates": 1})

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    for writer in ("save_file", "_sync"):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, writer, full)
            with pytest.raises(
                CheckpointError, match=r"No space left on device.+free some room and add --resume"
            ):
                save(tmp_path, 2, weights, {"updates": 2})
        (path,) = found(tmp_path)
        assert path.name == "checkpoint-000001" and not list(tmp_path.glob(".*"))
    restored = load(tmp_path)
    assert (
        restored is not None and restored[1]["updates"] == 1 and torch.equal(restored[0]["w"], weights["w"])
    )


def test_the_last_two_checkpoints_are_kept_and_a_broken_one_is_named(tmp_path: Path) -> None:
    for iteration in (1, 2, 3):
        save(tmp_path, iteration, {"w": torch.ones(1)}, {})
    assert [path.name for path in found(tmp_path)] == ["checkpoint-000002", "checkpoint-000003"]
    (tmp_path / "checkpoint-000003" / "state.pt").write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"checkpoint-000003 cannot be read .+delete it to go on from"):
        load(tmp_path)


def test_half_a_line_of_metrics_is_left_out(tmp_path: Path) -> None:
    train(small(iterations=3), tmp_path / "a")
    path = tmp_path / "a" / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"iteration": 4, "rew')
    train(small(iterations=3), tmp_path / "a", resume=True)
    assert path.read_text() == whole


def divsim(*words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "divsim", "lm", *words], capture_output=True, text=True, env=os.environ | env
    )


def test_the_commands(tmp_path: Path) -> None:
    said = [f"{name}={value}" for name, value in SMALL.items()]
    done = divsim("train", "--set", *said, "--out", str(tmp_path / "a"))
    assert done.returncode == 0, done.stderr
    assert "held_out_greedy" in done.stdout and "6 iterations" in done.stdout and done.stderr == ""
    environment = json.loads((tmp_path / "a" / "env.json").read_text())
    assert environment["fp8"].startswith("simulated") and environment["torch"]
    shown = divsim("eval", str(tmp_path / "a"), "--prompts", "20")
    assert shown.returncode == 0 and "of 20 prompts" in shown.stdout, shown.stderr
    shown = divsim("sample", str(tmp_path / "a"), "--prompts", "3", "--temperature", "0")
    assert shown.returncode == 0 and len(shown.stdout.splitlines()) == 4, shown.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train", "--preset", "huge"), "preset 'huge' is unknown; it is one of smoke"),
        (("train", "--set", "lr"), "--set takes NAME=VALUE, got 'lr'"),
        (("train", "--set", "lr=-1"), "lr must be a finite number > 0, got -1"),
        (("train", "--set", "lr=much"), "lr must be a number, got 'much'"),
        (("train", "--device", "tpu"), "--device must be auto, cpu or cuda"),
        (("train", "--threads", "0"), "--threads must be >= 1"),
        (("eval", "nowhere"), "nowhere holds no run"),
        (("sample", "nowhere"), "nowhere holds no run"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "divsim", "lm", *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not list(tmp_path.glob("runs"))


def test_weights_of_another_model_are_refused() -> None:
    tied, untied_head = (build(model, vocab_size=11, longest=6, seed=0) for model in ("tiny", "untied"))
    weights = untied(tied)
    assert "head.weight" not in weights
    load_weights(tied, weights)
    for wrong in (untied(untied_head), {name: part for name, part in weights.items() if "norm" not in name}):
        with pytest.raises(ValueError, match=r"weights are not those of this model: .*(head|norm)\.weight"):
            load_weights(tied, wrong)
