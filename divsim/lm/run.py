"""The directory of a training run: config, environment, metrics and checkpoints, and going on after a stop.

An interrupt is answered at the end of the iteration, with a checkpoint; a kill loses the iterations since the
last one, which come out the same to the last bit when the run resumes. What is left out: many runs at once.
"""

import dataclasses
import json
import platform
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from divsim.run_folder import RunError, locked, read_json, require_same, write_json, write_whole

from .checkpoint import load, save
from .config import Config, check, check_device
from .evaluate import evaluate
from .fp8 import has_products
from .precision import PRECISIONS
from .train import begin, iterate, restore, snapshot
from .warm_start import key, warm_start

Advance = Callable[[str, int, int, Mapping[str, Any]], None]
"""(what is done, finished, of all, the newest measurements)."""


def silent(what: str, done: int, total: int, measured: Mapping[str, Any]) -> None:
    """Tell nobody."""


def train(
    config: Config, folder: Path, device: str = "cpu", resume: bool = False, save_every: int = 10,
    advance: Advance = silent,
) -> list[dict[str, Any]]:  # fmt: skip
    """Train, or go on; returns all measurements, which also are the lines of `metrics.jsonl`.

    Args:
      config: what to train.
      folder: the run directory; it must not exist, or hold this very run if `resume`.
      device: as torch names it.
      resume: go on from the last checkpoint.
      save_every: iterations between checkpoints.
      advance: is told of every step.

    Errors: RunError or ValueError before any work; KeyboardInterrupt after a checkpoint.
    """
    check(config)
    check_device(config, device)
    if save_every < 1:
        raise RunError(f"save_every must be >= 1, got {save_every}")
    with _opened(config, folder, device, resume), _interruptible() as wants_to_stop:
        base = warm_start(config, lambda done, total: advance("warm start", done, total, {}))
        state = begin(config, base, device)
        saved = load(folder)
        if saved is not None:
            restore(state, *saved)
        metrics = _metrics(folder)[: state.iteration]
        kept = "".join(map(_line, metrics)).encode()
        write_whole(folder / "metrics.jsonl", lambda file: file.write(kept))
        while state.iteration < config.iterations:
            start = time.perf_counter()
            measured = iterate(config, state, device)
            if state.iteration % config.eval_every == 0 or state.iteration == config.iterations:
                measured |= evaluate(config, state.model, device)
            tokens = measured["length"] * config.prompts * config.group
            metrics.append(measured)
            seconds = {"tokens_per_second": round(tokens / (time.perf_counter() - start))}
            _append(folder / "metrics.jsonl", measured)
            advance("train", state.iteration, config.iterations, measured | seconds)
            due = state.iteration % save_every == 0 or state.iteration == config.iterations
            if due or wants_to_stop():
                save(folder, state.iteration, *snapshot(state))
            if wants_to_stop() and state.iteration < config.iterations:
                raise KeyboardInterrupt(f"saved after iteration {state.iteration}; add --resume to go on")
    return metrics


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Whether an interrupt came; the first one waits for the iteration to end, the second does not."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt("stopped at once; add --resume to go on from the last checkpoint")
        asked.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread, which alone gets signals
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _opened(config: Config, folder: Path, device: str, resume: bool) -> Iterator[None]:
    asked = json.loads(json.dumps(dataclasses.asdict(config)))
    begun = (folder / "config.json").exists()
    if resume and not begun:
        raise RunError(f"--resume: {folder} holds no run; leave --resume out to begin it, or name another")
    if resume:
        require_same(folder, "config.json", asked)
    elif folder.exists() and (not folder.is_dir() or any(map(_is_something, folder.iterdir()))):
        way = "add --resume to go on with it, or " if begun else ""
        raise RunError(f"{folder} exists already; {way}name another with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error.strerror}; name another with --out") from error
    with locked(folder):
        if not resume:
            write_json(folder / "config.json", asked)
        if not (folder / "env.json").exists():
            write_json(folder / "env.json", environment(config, device))
        yield


def _is_something(path: Path) -> bool:
    """Not what a run leaves that was killed before it said what it is."""
    return path.name != "lock" and not path.name.startswith(".config.json")


def config_of(folder: Path) -> Config:
    """What a run was asked.

    Errors: RunError if there is no run.
    """
    path = folder / "config.json"
    if not path.exists():
        raise RunError(f"{folder} holds no run; name the directory of one")
    asked = read_json(path)
    return Config(**(asked | {"betas": tuple(asked["betas"])}))


def environment(config: Config, device: str) -> dict[str, Any]:
    """What the bits of a run depend on besides its config, and what FP8 means in it."""
    is_fp8 = any(PRECISIONS[name].is_fp8 for name in (config.precision, config.rollout_precision))
    fp8 = "hardware: torch._scaled_mm" if has_products(device) else "simulated: e4m3, products in bfloat16"
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("divsim", "torch", "numpy", "safetensors")},
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
        "threads": torch.get_num_threads(),
        "fp8": fp8 if is_fp8 else "none",
        "warm_start": key(config) if config.warm_steps else "none",
    }


def _metrics(folder: Path) -> list[dict[str, Any]]:
    """The whole lines; a kill may have left half of the last one."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _append(path: Path, measured: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(_line(measured))


def _line(measured: Mapping[str, Any]) -> str:
    return json.dumps(measured, sort_keys=True) + "\n"
