"""What every run directory shares: one process at a time, whole files, and the refusal to mix two runs.

Below experiments and the trainer, which both keep such directories; knows neither. What is left out: what is
in a directory.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


class RunError(ValueError):
    """The run cannot start as it was asked for; the message says how to mend it."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While the folder is this process's alone; the lock goes with the process, even if that is killed.

    Errors: RunError if it is in use, or cannot be written.
    """
    try:
        file = (folder / "lock").open("w")
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error.strerror}; name another with --out") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{folder} is in use by another process; wait for it, or name another") from None
        yield


def require_same(folder: Path, name: str, asked: Mapping[str, Any]) -> None:
    """The run directory was made by this very call, as far as the JSON file `name` tells.

    Errors: RunError that names the field that differs.
    """
    found = read_json(folder / name)
    for field, value in asked.items():
        if found.get(field) != value:
            there, here = json.dumps(found.get(field)), json.dumps(value)
            raise RunError(
                f"--resume: {folder} was made with {field} = {there}, now it is {here}; "
                "repeat the call that made it, or name another directory with --out"
            )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Errors: RunError if it cannot be read.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{path} cannot be read ({error}); name another directory with --out") from error
    return found


def write_json(path: Path, document: Any) -> None:
    """A JSON document, the same bytes for the same document."""
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """The whole file or none: a kill leaves nothing half-written under its name."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("wb") as file:
        write(file)
    part.replace(path)
