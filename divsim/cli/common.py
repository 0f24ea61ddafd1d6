"""What commands share: consoles that respect pipes and NO_COLOR, progress bars, refusals."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PIPE_WIDTH = 120
"""Columns of a table that goes to a file or a pipe."""


class BadCall(Exception):
    """The command was called in a way that cannot work; the message says how to mend it."""


def die_with_the_pipe() -> None:
    """End silently when whoever reads stdout stops reading, as other commands do (`| head`)."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


@contextmanager
def workers() -> Iterator[None]:
    """While worker processes live, a broken pipe is theirs and must not end this process."""
    if not hasattr(signal, "SIGPIPE") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


def output() -> Console:
    """Results, on stdout; plain and of a fixed width in a pipe, without colour if NO_COLOR is set."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def progress(disable: bool = False) -> Progress:
    """A progress bar on stderr, silent where stderr is not a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=disable or not sys.stderr.isatty(),
        transient=True,
    )


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
