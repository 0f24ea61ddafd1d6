"""Checkpoints: the whole state at the end of an iteration, written whole or not at all.

A checkpoint is a directory that appears under its name when everything in it is on the disk. Random numbers
belong to iterations (`streams.py`), so the state holds none, and a run that is killed in the middle of an
iteration repeats it to the last bit. What is left out: states within an iteration.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

KEPT = 2
"""Checkpoints that are kept: the last, and the one before."""
PREFIX = "checkpoint-"


class CheckpointError(ValueError):
    """A checkpoint cannot be written or read; the message says how to go on."""


def save(folder: Path, iteration: int, weights: dict[str, Tensor], state: dict[str, Any]) -> Path:
    """Write a checkpoint, then remove older ones than are kept.

    Args:
      folder: of the run.
      iteration: finished iterations.
      weights: by name.
      state: tensors, numbers, strings, and lists and dicts of them.

    Errors: CheckpointError if the disk is full or the directory cannot be written; older ones are left alone.
    """
    target = folder / f"{PREFIX}{iteration:06d}"
    part = folder / f".{target.name}.{os.getpid()}"
    try:
        _clear(folder)
        part.mkdir()
        save_file(weights, part / "weights.safetensors")
        torch.save({"iteration": iteration, **state}, part / "state.pt")
        for path in (*part.iterdir(), part):
            _sync(path)
        if target.exists():
            shutil.rmtree(target)
        part.rename(target)
        _sync(folder)
    except (OSError, RuntimeError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise CheckpointError(
            f"{target} cannot be written ({error}); free some room and add --resume: "
            f"earlier checkpoints are whole"
        ) from error
    for old in found(folder)[:-KEPT]:
        shutil.rmtree(old)
    return target


def found(folder: Path) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    return sorted(folder.glob(PREFIX + "*"))


def load(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The last checkpoint of a run: weights and state; None if there is none.

    Errors: CheckpointError if it cannot be read.
    """
    paths = found(folder)
    if not paths:
        return None
    try:
        weights = load_file(paths[-1] / "weights.safetensors")
        state: dict[str, Any] = torch.load(paths[-1] / "state.pt", weights_only=True)
    except Exception as error:
        raise CheckpointError(
            f"{paths[-1]} cannot be read ({error}); delete it to go on from the one before"
        ) from error
    return weights, state


def _clear(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for part in folder.glob(f".{PREFIX}*"):
        shutil.rmtree(part)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
