"""Tasks in worker processes: results as they come, one thread each, and nothing left behind when
interrupted."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")

THREADS = 1
"""Of every worker. A product of matrices sums in an order that may depend on the number of threads; with one,
the same task gives the same bits on any number of processes."""

LARGE = 2**24
"""Bytes of a block whose release makes glibc keep what is freed later."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def spread(
    work: Callable[[Task], Answer], tasks: Sequence[Task], processes: int
) -> Iterator[tuple[Task, Answer]]:
    """Do every task; pairs of a task and its answer come as they are finished, in any order.

    Args:
      work: importable by name.
      tasks: picklable.
      processes: how many at once, >= 1.

    Errors: whatever `work` raises; the workers are then stopped.
    """
    if not tasks:
        return
    # Spawned, not forked: the caller may already run threads (progress bars, BLAS).
    context = multiprocessing.get_context("spawn")
    with _single_threaded():
        pool = ProcessPoolExecutor(min(processes, len(tasks)), mp_context=context, initializer=_prepare)
        try:
            pending = {pool.submit(work, task): task for task in tasks}
            for done in as_completed(pending):
                yield pending.pop(done), done.result()
        except BaseException:  # an interrupt too must not leave workers behind
            # A worker that is stopped amid an answer leaves half of it in the pipe. Its rest is awaited until
            # no writer is left, and one of them is the pool's own.
            pool._result_queue._writer.close()  # type: ignore[attr-defined]
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Children inherit the environment when they start, before they load a numerical library."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(THREADS)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _prepare() -> None:
    """Leave interrupts to the parent, end when it ends, and keep the memory that blocks need again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    # glibc gives freed memory back at once until a large block was freed; that costs a third of a run.
    bytearray(LARGE)


def _end_with_the_parent() -> None:
    """A parent that was killed cannot stop its workers, which would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
