"""The one file that knows about array libraries: dispatch, lifting, gathering. No formula lives here."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import array_api_compat

Array: TypeAlias = Any
"""An array of NumPy, torch, or the symbolic namespace of `derivations`; shapes are in the docstrings."""


def namespace(*arrays: Array) -> Any:
    """The array-API namespace that the arrays share (NumPy, torch, or any `__array_namespace__`)."""
    types = tuple(map(type, arrays))
    found = _NAMESPACES.get(types)
    if found is None:
        found = _NAMESPACES[types] = array_api_compat.array_namespace(*arrays)
    return found


_NAMESPACES: dict[tuple[type, ...], Any] = {}
"""By the types of the arrays: every formula asks, and on small arrays the answer costs more than the sum."""


def detach(array: Array) -> Array:
    """The same values outside the autograd graph; arrays without one pass through."""
    return array.detach() if hasattr(array, "detach") else array


def lift(array: Array) -> Array:
    """float16 and bfloat16 to float32, before any difference is taken; float32 and float64 stay."""
    xp = namespace(array)
    if array.dtype in (xp.float32, xp.float64):
        return array
    return xp.astype(array, xp.float32)


def take(array: Array, index: Array) -> Array:
    """`array[..., index]`: (..., L) and (...) int -> (...)."""
    return take_cells(array, index[..., None])[..., 0]


def take_cells(array: Array, index: Array) -> Array:
    """Some entries of each row: (..., V) and (..., L) int -> (..., L); leading shapes broadcast."""
    if hasattr(array, "gather") and array.shape[:-1] == index.shape[:-1]:  # torch
        return array.gather(-1, index)
    return namespace(array).take_along_axis(array, index, axis=-1)


TILE = 2**18
"""Entries of a tile: it stays in a core's cache with what comes of it."""


def by_rows(function: Callable[..., tuple[Array, ...]], *arrays: Array) -> tuple[Array, ...]:
    """`function(*arrays)` of large arrays a few rows at a time: (rows, ...) each; every result likewise.

    Fresh memory for each intermediate of a large vocabulary costs more than the arithmetic does. The rows
    must not know of one another. On an accelerator everything is worked on at once.
    """
    rows = arrays[0].shape[0]
    tile = max(1, TILE // max(1, math.prod(arrays[0].shape[1:])))
    if rows <= tile or str(arrays[0].device).partition(":")[0] != "cpu":
        return function(*arrays)
    xp = namespace(arrays[0])
    starts = range(0, rows, tile)
    parts = [function(*(array[start : start + tile] for array in arrays)) for start in starts]
    return tuple(xp.concat(column, axis=0) for column in zip(*parts, strict=True))


def append(array: Array, last: Array) -> Array:
    """One more cell: (..., L) and (...) -> (..., L + 1)."""
    xp = namespace(array)
    return xp.concat([array, last[..., None]], axis=-1)


def largest(array: Array, count: int) -> Array:
    """Indices of the `count` largest entries, descending: (..., V) -> (..., count) int64."""
    xp = namespace(array)
    if hasattr(xp, "topk"):  # torch: selects without sorting everything
        return xp.topk(array, count, dim=-1).indices
    if not hasattr(xp, "argpartition") or count == array.shape[-1]:
        return xp.argsort(array, axis=-1, descending=True, stable=True)[..., :count]
    chosen = xp.argpartition(array, array.shape[-1] - count, axis=-1)[..., -count:]  # NumPy: likewise
    order = xp.argsort(xp.take_along_axis(array, chosen, axis=-1), axis=-1, descending=True)
    return xp.take_along_axis(chosen, order, axis=-1)


def fill_at(array: Array, index: Array, value: Array | float) -> Array:
    """A copy of `array` (..., V) that holds `value`, a number or (..., L), at `index` (..., L)."""
    if hasattr(array, "scatter"):  # torch
        return array.scatter(-1, index, value)
    xp = namespace(array)
    filled = xp.asarray(array, copy=True)
    xp.put_along_axis(filled, index, value, axis=-1)
    return filled
