"""Streaming: long batches in blocks of rows that fit a processor's cache, whatever the vocabulary."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ENTRIES = 2**15
"""Of one array of a block, rows times vocabulary: a quarter of a megabyte in float64; it uses some twenty."""


def blocks(rows: int, vocab: int) -> Iterator[int]:
    """Sizes of the blocks that make up `rows` rows of `vocab` entries.

    >>> list(blocks(5, 15_000))
    [2, 2, 1]
    """
    most = max(1, ENTRIES // vocab)
    full, rest = divmod(rows, most)
    yield from [most] * full + [rest] * (rest > 0)


def total(
    compute: Callable[[int], Mapping[str, NDArray[Any]]], rows: int, vocab: int
) -> dict[str, NDArray[Any]]:
    """The entrywise sum of named arrays over the blocks of a batch; integers stay exact.

    Args:
      compute: number of rows of a block -> its arrays.
      rows, vocab: of the whole batch.

    >>> total(lambda n: {"rows": np.array([n])}, 5, 15_000)["rows"].tolist()
    [5]
    """
    sums: dict[str, NDArray[Any]] = {}
    for n in blocks(rows, vocab):
        for name, array in compute(n).items():
            sums[name] = sums[name] + array if name in sums else np.asarray(array)
    return sums
