"""A small experiment that worker processes can import: tiles of random numbers, some of them slow."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.experiments.rows import Row, row
from divsim.experiments.runs import Arrays, Experiment, stream
from divsim.experiments.statistics import mean


@dataclass(frozen=True)
class Config:
    tiles: int = 12
    size: int = 50
    pause: float = 0.0
    fails_at: int = -1
    seed: int = 0


def compute(config: Config, key: str) -> dict[str, NDArray[Any]]:
    if int(key.split("-")[1]) == config.fails_at:
        raise ArithmeticError("this tile fails")
    time.sleep(config.pause)
    values = stream(config.seed, key).standard_normal((config.size, config.size))
    return {"values": values @ values.T, "process": np.array(os.getpid())}


def rows(config: Config, tiles: Mapping[str, Arrays]) -> list[Row]:
    traces = [float(np.trace(arrays["values"])) for arrays in tiles.values()]
    return [row(mean(traces), config.size, quantity="trace")]


EXPERIMENT = Experiment(
    "toy",
    __name__,
    lambda config: tuple(f"tile-{n}" for n in range(config.tiles)),
    compute,
    rows,
    lambda config, rows: {},
)


def large_answer(task: int) -> bytes:
    """More than a pipe holds at once; task 3 fails meanwhile."""
    if task == 3:
        raise ArithmeticError("this task fails")
    return bytes(2**24)
