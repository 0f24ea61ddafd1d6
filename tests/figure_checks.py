"""What must hold of every picture: the same bytes in any process and under any settings, and few of them."""

import importlib
import subprocess
import sys
from pathlib import Path

import matplotlib

LARGEST_FILE = 300_000  # bytes: a page or a slide loads it


def check_the_command_writes_the_same_bytes_everywhere(module: str, folder: Path) -> None:
    """`python -m module` in a process of its own, against `main` here under a user's own taste."""
    elsewhere, here = ([folder / f"{place}.{ending}" for ending in ("svg", "png")] for place in "ab")
    command = [sys.executable, "-m", module, *map(str, elsewhere)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other"}):
        importlib.import_module(module).main([str(path) for path in here])
    for one, other in zip(here, elsewhere, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert 1000 < len(one.read_bytes()) < LARGEST_FILE
