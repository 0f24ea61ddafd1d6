"""Run directories: what every long experiment shares, so that a figure can always be traced to a command.

An experiment is a set of tiles, each an independent piece of work with random numbers of its own. A run
directory holds `config.json` (what was asked), `environment.json` (versions, threads), `tiles/` (one file a
finished tile, written whole or not at all), `results.json` and figures. The same config gives the same
`results.json`, byte for byte, on any number of processes and after any number of interruptions.
"""

import dataclasses
import functools
import importlib
import json
import platform
import resource
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from divsim.run_folder import RunError, locked, read_json, require_same, write_json, write_whole

from .pool import THREADS, spread
from .rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Arrays = Mapping[str, NDArray[Any]]
C = TypeVar("C")


@dataclass(frozen=True)
class Experiment(Generic[C]):
    """One question, cut into tiles.

    Attributes:
      name: of the command, such as "direction".
      module: where worker processes find this very record, under the name EXPERIMENT.
      tiles: config -> the keys of its tiles, in a fixed order; a key is a valid file name.
      compute: (config, key) -> named arrays; all randomness comes from `stream(config.seed, key)`.
      rows: (config, {key: arrays}) -> what is reported.
      figures: (config, rows) -> figures by name.
      packages: whose versions the bits of a result depend on.
    """

    name: str
    module: str
    tiles: Callable[[C], tuple[str, ...]]
    compute: Callable[[C, str], dict[str, NDArray[Any]]]
    rows: Callable[[C, Mapping[str, Arrays]], list[Row]]
    figures: Callable[[C, Sequence[Row]], "dict[str, Figure]"]
    packages: tuple[str, ...] = ("divsim", "numpy", "scipy")


def stream(seed: int, key: str) -> np.random.Generator:
    """The random numbers of one tile: independent of every other tile, whatever runs first.

    >>> stream(0, "a").random() == stream(0, "a").random() != stream(0, "b").random()
    True
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(key.encode())))


def run(
    experiment: Experiment[C],
    config: C,
    folder: Path,
    processes: int,
    resume: bool = False,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Compute what is missing, then write results and figures.

    Args:
      experiment: what to compute.
      config: a frozen dataclass that JSON can hold.
      folder: the run directory; it must not exist, or hold this very run if `resume`.
      processes: worker processes, >= 1.
      resume: go on with the tiles that are there.
      advance: called with the number of finished tiles and of all tiles.

    Returns:
      The rows, also in `results.json`.

    Errors: RunError if the directory exists, is in use, or holds another run.
    """
    start, keys = time.perf_counter(), experiment.tiles(config)
    earlier = _environment(folder) if resume else {}
    with _opened(experiment, config, folder, resume) as tiles:
        missing = [key for key in keys if not (tiles / f"{key}.npz").exists()]
        advance(len(keys) - len(missing), len(keys))
        work = functools.partial(_compute, experiment.module, config)
        for done, (key, arrays) in enumerate(spread(work, missing, processes), len(keys) - len(missing) + 1):
            write_whole(tiles / f"{key}.npz", functools.partial(_save, arrays))
            advance(done, len(keys))
        rows = experiment.rows(config, {key: _load(tiles / f"{key}.npz") for key in keys})
        document = {"experiment": experiment.name, "seed": getattr(config, "seed", None), "rows": rows}
        write_json(folder / "results.json", document)
        _draw(experiment.figures(config, rows), folder / "figures")
        effort = _effort(processes, time.perf_counter() - start, earlier)
        write_json(folder / "environment.json", versions(experiment.packages) | effort)
    return rows


def _effort(processes: int, seconds: float, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """What the run took, all its calls that came to an end together; no result depends on it."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # in kilobytes, but on macOS in bytes
    megabytes = peak // (2**20 if sys.platform == "darwin" else 2**10)
    return {
        "processes": processes,
        "seconds": round(seconds + earlier.get("seconds", 0.0), 1),
        "largest_worker_mb": max(megabytes, earlier.get("largest_worker_mb", 0)),
    }


def _environment(folder: Path) -> dict[str, Any]:
    """What is written of an earlier call; nothing if there was none."""
    path = folder / "environment.json"
    return read_json(path) if path.exists() else {}


def _compute(module: str, config: Any, key: str) -> dict[str, NDArray[Any]]:
    """One tile, in a worker process."""
    experiment: Experiment[Any] = importlib.import_module(module).EXPERIMENT
    return experiment.compute(config, key)


def _draw(figures: "Mapping[str, Figure]", folder: Path) -> None:
    if not figures:
        return
    from .style import save

    for name, figure in figures.items():
        for ending in (".svg", ".png"):
            save(figure, folder / (name + ending))


@contextmanager
def _opened(experiment: Experiment[C], config: C, folder: Path, resume: bool) -> Iterator[Path]:
    """The folder of the tiles, in a run directory that is ours alone."""
    asked = {"experiment": experiment.name} | json.loads(json.dumps(dataclasses.asdict(config)))  # type: ignore[call-overload]
    if resume:
        _require_same(folder, "config.json", asked)
        _require_same(folder, "environment.json", versions(experiment.packages))
    elif folder.exists():
        begun = (folder / "config.json").exists()
        way = "; add --resume to go on with it, or" if begun else " and holds no run;"
        raise RunError(f"{folder} exists already{way} name another with --out")
    tiles = folder / "tiles"
    try:
        tiles.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror}; name another with --out") from error
    with locked(folder):
        if not resume:
            write_json(folder / "config.json", asked)
            write_json(folder / "environment.json", versions(experiment.packages))
        yield tiles


def versions(packages: Sequence[str]) -> dict[str, Any]:
    """What the bits of a result depend on besides the config."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "machine": platform.machine(),
        "threads": THREADS,
    }


def _require_same(folder: Path, name: str, asked: Mapping[str, Any]) -> None:
    """The run directory holds a run, and one that was made by this very call."""
    if not (folder / name).exists():
        way = "name another with --out" if folder.exists() else "leave --resume out to begin it"
        raise RunError(f"--resume: {folder} holds no run ({name} is missing); {way}")
    require_same(folder, name, asked)


def _save(arrays: Arrays, file: IO[bytes]) -> None:
    np.savez_compressed(file, **dict(arrays))  # type: ignore[arg-type]


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path) as archive:
            return dict(archive)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(f"{path} cannot be read; delete it and add --resume to compute it anew") from error
