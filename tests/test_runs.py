"""A run directory: the same bytes on any number of processes, after any kill; nothing is overwritten."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_experiment import EXPERIMENT, Config

from divsim.experiments import runs
from divsim.experiments.pool import spread
from divsim.experiments.runs import run, stream
from divsim.run_folder import RunError

HERE = Path(__file__).parent
DEFAULT = Config()


def results(folder: Path) -> bytes:
    return (folder / "results.json").read_bytes()


def snapshot(folder: Path) -> dict[str, bytes]:
    """What is in a folder; the lock file, which is empty, may come and go."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_number_of_processes_changes_no_byte(tmp_path: Path) -> None:
    for processes in (1, 2, 3):
        run(EXPERIMENT, Config(), tmp_path / str(processes), processes)
    assert results(tmp_path / "1") == results(tmp_path / "2") == results(tmp_path / "3")
    used = {int(np.load(path)["process"]) for path in (tmp_path / "3" / "tiles").iterdir()}
    assert len(used) > 1, "the tiles were not spread over processes"


def test_another_seed_is_another_result(tmp_path: Path) -> None:
    run(EXPERIMENT, Config(), tmp_path / "a", 2)
    run(EXPERIMENT, Config(seed=1), tmp_path / "b", 2)
    assert results(tmp_path / "a") != results(tmp_path / "b")


def test_streams_depend_on_seed_and_key_alone() -> None:
    first = stream(0, "own@engine@1").random(4)
    assert np.array_equal(first, stream(0, "own@engine@1").random(4))
    for seed, key in ((1, "own@engine@1"), (0, "own@engine@2"), (0, "own@engine@11")):
        assert not np.array_equal(first, stream(seed, key).random(4))


def start(folder: Path, config: str) -> subprocess.Popen[bytes]:
    code = (
        "from pathlib import Path; from divsim.experiments.runs import run; import toy_experiment as t;"
        f"run(t.EXPERIMENT, t.Config({config}), Path({str(folder)!r}), 2)"
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env=environment)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_a_kill_leaves_finished_tiles_and_resume_ends_with_the_same_bytes(tmp_path: Path) -> None:
    config = Config(pause=0.15)
    folder, tiles = tmp_path / "killed", tmp_path / "killed" / "tiles"
    process = start(folder, "pause=0.15")
    wait_for(lambda: tiles.is_dir() and len(list(tiles.glob("tile-*.npz"))) >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    left = sorted(tiles.glob("tile-*.npz"))
    assert 3 <= len(left) < config.tiles
    assert not (folder / "results.json").exists()
    before = {path.name: np.load(path)["values"] for path in left}  # readable, every one
    stamps = {path.name: path.stat().st_mtime_ns for path in left}
    run(EXPERIMENT, config, folder, 1, resume=True)
    assert all((tiles / name).stat().st_mtime_ns == stamp for name, stamp in stamps.items()), "made anew"
    assert before.keys() == stamps.keys()
    run(EXPERIMENT, config, tmp_path / "whole", 2)
    assert results(folder) == results(tmp_path / "whole")


def test_a_half_written_tile_is_not_taken_for_one(tmp_path: Path) -> None:
    run(EXPERIMENT, Config(), tmp_path / "run", 2)
    whole, tile = results(tmp_path / "run"), tmp_path / "run" / "tiles" / "tile-3.npz"
    tile.rename(tile.with_name(".tile-3.npz.123"))
    tile.with_name(".tile-3.npz.123").write_bytes(b"half")
    run(EXPERIMENT, Config(), tmp_path / "run", 2, resume=True)
    assert results(tmp_path / "run") == whole


def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "pause=0.15")
    wait_for(lambda: len(list((tmp_path / "run").glob("tiles/tile-*.npz"))) >= 2)
    process.kill()
    process.wait()

    def is_empty() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_for(is_empty, seconds=20)


def test_a_tile_that_cannot_be_read_is_named_with_the_remedy(tmp_path: Path) -> None:
    run(EXPERIMENT, Config(), tmp_path / "run", 2)
    (tmp_path / "run" / "tiles" / "tile-3.npz").write_bytes(b"junk")
    refused("tile-3.npz cannot be read; delete it and add --resume", tmp_path / "run", resume=True)


def test_a_finished_run_can_be_resumed_without_work(tmp_path: Path) -> None:
    run(EXPERIMENT, Config(), tmp_path / "run", 2)
    seen: list[tuple[int, int]] = []
    run(EXPERIMENT, Config(), tmp_path / "run", 2, resume=True, advance=lambda *done: seen.append(done))
    assert seen == [(12, 12)]


def test_progress_counts_every_tile(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    run(EXPERIMENT, Config(), tmp_path / "run", 2, advance=lambda *done: seen.append(done))
    assert seen == [(n, 12) for n in range(13)]


def refused(words: str, folder: Path, config: Config = DEFAULT, **settings: Any) -> None:  # a frozen default
    before = snapshot(folder)
    with pytest.raises(RunError, match=words):
        run(EXPERIMENT, config, folder, 1, **settings)
    assert snapshot(folder) == before, "a refused call changed something"


def test_an_existing_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("three years")
    refused("exists already and holds no run; name another with --out", tmp_path / "mine")
    refused("config.json is missing.; name another with --out", tmp_path / "mine", resume=True)
    run(EXPERIMENT, Config(), tmp_path / "run", 2)
    refused("exists already; add --resume .* or name another with --out", tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text("{")
    refused("environment.json cannot be read .*; name another", tmp_path / "run", resume=True)


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "pause=0.5")
    try:
        wait_for(lambda: (tmp_path / "run" / "environment.json").exists())
        with pytest.raises(RunError, match="in use by another process"):
            run(EXPERIMENT, Config(pause=0.5), tmp_path / "run", 1, resume=True)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_resume_refuses_another_config_and_says_which_field(tmp_path: Path) -> None:
    run(EXPERIMENT, Config(), tmp_path / "run", 2)
    refused("made with size = 50, now it is 51", tmp_path / "run", Config(size=51), resume=True)


def test_resume_refuses_other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(EXPERIMENT, Config(), tmp_path / "run", 2)
    now = runs.versions(("divsim", "numpy", "scipy"))
    monkeypatch.setattr(runs, "versions", lambda packages: now | {"numpy": "1.0"})
    refused('numpy = .*, now it is "1.0"', tmp_path / "run", resume=True)


def test_resume_refuses_what_is_no_run(tmp_path: Path) -> None:
    refused("holds no run .config.json is missing.; leave --resume out", tmp_path / "none", resume=True)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    refused("cannot be made: .*; name another with --out", tmp_path / "file" / "run")


def test_a_failing_tile_fails_the_run_and_loses_nothing(tmp_path: Path) -> None:
    config = Config(fails_at=5)
    with pytest.raises(ArithmeticError, match="this tile fails"):
        run(EXPERIMENT, config, tmp_path / "run", 1)
    assert not (tmp_path / "run" / "results.json").exists()
    assert (tmp_path / "run" / "tiles" / "tile-0.npz").exists()


def test_a_run_says_what_it_was_made_with(tmp_path: Path) -> None:
    run(EXPERIMENT, Config(), tmp_path / "run", 2)
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert {"python", "divsim", "numpy", "scipy", "threads", "processes", "seconds"} <= environment.keys()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config == {"experiment": "toy", "tiles": 12, "size": 50, "pause": 0.0, "fails_at": -1, "seed": 0}


def stopped(folder: Path, error: type[BaseException], stop: Callable[[], object]) -> None:
    """A run of two processes in which `stop` happens when three tiles are there."""

    def advance(done: int, total: int) -> None:
        if done == 3:
            stop()

    with pytest.raises(error):
        run(EXPERIMENT, Config(pause=0.1), folder, 2, advance=advance)
    assert multiprocessing.active_children() == [], "a worker was left behind"
    left = list((folder / "tiles").glob("tile-*.npz"))
    assert 3 <= len(left) < Config().tiles and not (folder / "results.json").exists()
    run(EXPERIMENT, Config(pause=0.1), folder, 1, resume=True)
    run(EXPERIMENT, Config(pause=0.1), folder.with_name("whole"), 3)
    assert results(folder) == results(folder.with_name("whole"))


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_leaves_no_worker_and_loses_nothing(tmp_path: Path) -> None:
    stopped(tmp_path / "run", KeyboardInterrupt, interrupt)


def test_a_worker_that_is_killed_fails_the_run_and_loses_nothing(tmp_path: Path) -> None:
    """As when memory runs out: an error, not a wait without end."""
    stopped(tmp_path / "run", BrokenProcessPool, lambda: multiprocessing.active_children()[0].kill())


def test_workers_have_one_thread_and_the_caller_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    asked = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"]
    assert dict(spread(os.getenv, asked, 2)) == dict.fromkeys(asked, "1")
    assert os.environ["OMP_NUM_THREADS"] == "7" and "MKL_NUM_THREADS" not in os.environ


def test_nothing_to_do_starts_no_worker() -> None:
    assert list(spread(os.getenv, [], 2)) == []


def test_stopping_does_not_wait_for_the_tasks_at_work() -> None:
    answers = spread(time.sleep, [0.0, 40.0], 2)
    assert next(answers) == (0.0, None)
    start = time.monotonic()
    answers.close()  # type: ignore[attr-defined]  # an iterator that is a generator
    assert time.monotonic() - start < 20, "half of what the task takes; a worker ends in moments"


def test_a_worker_that_is_stopped_amid_its_answer_is_not_waited_for() -> None:
    """Half an answer lies in the pipe; a reader that waits for the rest of it waits for ever."""
    script = (
        "from divsim.experiments.pool import spread\nfrom toy_experiment import large_answer\n"
        "if __name__ == '__main__':\n"
        "    for _ in range(6):\n"
        "        try:\n            list(spread(large_answer, range(20), 4))\n"
        "        except ArithmeticError:\n            print('failed')\n"
    )
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=here, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["failed"] * 6, done.stderr
