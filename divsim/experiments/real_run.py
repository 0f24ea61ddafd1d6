"""A run on recorded tokens of a real language model: one tile, since nothing in it is drawn anew."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from divsim.tabular.real_tokens import RealTokens, load

from .real import direction_rows, tails_rows
from .rows import Row
from .runs import Arrays, Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = {"direction": direction_rows, "tails": tails_rows}


@dataclass(frozen=True)
class Config:
    """What is asked of the recorded tokens.

    Attributes:
      question: a key of `ROWS`.
      data: path of an archive, or "" for the one that ships.
      seed: kept for the record; the bootstrap has a seed of its own.
    """

    question: str
    data: str = ""
    seed: int = 0


def check(config: Config) -> None:
    """Refuse an archive that cannot be read, before any work.

    Errors: ValueError that names the file and the remedy.
    """
    if config.data and not Path(config.data).is_file():
        raise ValueError(f"--data {config.data} is not a file; leave --data out for the tokens that ship")
    _tokens(config)


def _tokens(config: Config) -> dict[str, RealTokens]:
    return load(Path(config.data) if config.data else None)


def _compute(config: Config, key: str) -> dict[str, NDArray[Any]]:
    rows = ROWS[config.question](_tokens(config))
    return {"rows": np.array(json.dumps(rows))}


def _rows(config: Config, tiles: Mapping[str, Arrays]) -> list[Row]:
    rows: list[Row] = json.loads(str(tiles["real"]["rows"]))
    return rows


def _figures(config: Config, rows: Sequence[Row]) -> "dict[str, Figure]":
    return {}


EXPERIMENT = Experiment("real", __name__, lambda config: ("real",), _compute, _rows, _figures)
