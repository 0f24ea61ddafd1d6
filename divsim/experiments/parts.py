"""Experiments made of parts: each part has cells, each cell is repeated for independent seeds.

One seed of one cell is one tile, and an interval of a cell is made from its seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from .rows import Row
from .runs import Arrays, Experiment, stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

C = TypeVar("C")
Seeds = Mapping[str, NDArray[Any]]
"""Named arrays, the seeds first."""


@dataclass(frozen=True)
class Part(Generic[C]):
    """One question of an experiment.

    Attributes:
      name: first word of its tiles' keys.
      cells: config -> names of its cells.
      seeds: config -> how many seeds a cell has.
      compute: (config, cell, generator) -> named arrays of one seed.
      rows: (config, cell, arrays stacked over seeds) -> rows.
    """

    name: str
    cells: Callable[[C], tuple[str, ...]]
    seeds: Callable[[C], int]
    compute: Callable[[C, str, np.random.Generator], dict[str, NDArray[Any]]]
    rows: Callable[[C, str, Seeds], list[Row]]


def assemble(
    name: str,
    module: str,
    parts: Sequence[Part[C]],
    figures: "Callable[[C, Sequence[Row]], dict[str, Figure]]",
) -> Experiment[C]:
    """An experiment from its parts, tiles in the order of parts, cells and seeds.

    Args:
      name, module, figures: see `Experiment`.
      parts: with distinct names.
    """
    by_name = {part.name: part for part in parts}

    def tiles(config: C) -> tuple[str, ...]:
        return tuple(
            key for part in parts for cell in part.cells(config) for key in _keys(part, config, cell)
        )

    def compute(config: C, key: str) -> dict[str, NDArray[Any]]:
        name, cell, _ = key.split("@")
        return by_name[name].compute(config, cell, stream(config.seed, key))  # type: ignore[attr-defined]

    def rows(config: C, tiles: Mapping[str, Arrays]) -> list[Row]:
        found = []
        for part in parts:
            for cell in part.cells(config):
                seeds = [tiles[key] for key in _keys(part, config, cell)]
                stacked = {name: np.stack([seed[name] for seed in seeds]) for name in seeds[0]}
                found += part.rows(config, cell, stacked)
        return found

    return Experiment(name, module, tiles, compute, rows, figures)


def _keys(part: Part[C], config: C, cell: str) -> list[str]:
    return [f"{part.name}@{cell}@{seed}" for seed in range(part.seeds(config))]
