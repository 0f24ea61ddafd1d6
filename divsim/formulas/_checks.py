"""Checks at the door: each error names the argument, the value and the remedy. Formulas never check."""

import math
from collections.abc import Collection, Mapping
from numbers import Real

from ._array import Array, namespace

SUM_TOLERANCE = 1e-3
"""How far a row of float32 or float64 probabilities may sum from 1: rounding is below, mistakes are above."""


FLOATING = ("float16", "bfloat16", "float32", "float64")
"""The dtypes that log-probabilities may come in."""


def sum_tolerance(dtype_eps: float) -> float:
    """The tolerance of a row sum for inputs of a given machine epsilon: half precision rounds more."""
    return max(SUM_TOLERANCE, 16 * dtype_eps)


def require_one_library(arrays: Mapping[str, Array]) -> None:
    """All named arrays come from one array library."""
    try:
        namespace(*arrays.values())
        is_mixed = not all(hasattr(value, "dtype") for value in arrays.values())
    except TypeError:
        is_mixed = True
    if is_mixed:
        kinds = ", ".join(f"{name}: {type(value).__name__}" for name, value in arrays.items())
        raise TypeError(f"arrays must come from one library, got {kinds}; convert them to one")


def require_floating(arrays: Mapping[str, Array], remedy: str = "take the log first") -> None:
    """All named arrays hold real floating numbers of one dtype."""
    for name, value in arrays.items():
        if str(value.dtype).rpartition(".")[2] not in FLOATING:
            known = ", ".join(FLOATING)
            raise TypeError(f"{name} must hold floating numbers ({known}), got {value.dtype}; {remedy}")
    if len({value.dtype for value in arrays.values()}) > 1:
        listed = ", ".join(f"{name}: {value.dtype}" for name, value in arrays.items())
        raise TypeError(f"dtypes must agree, got {listed}; convert the arrays to one dtype")


def require_shape(name: str, array: Array, shape: tuple[int, ...], meaning: str) -> None:
    """`array` has exactly this shape."""
    if tuple(array.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)} ({meaning}), got {tuple(array.shape)}")


def require_integer(name: str, array: Array) -> None:
    """`array` holds integers."""
    if "int" not in str(array.dtype):
        raise TypeError(f"{name} must hold integer token ids, got {array.dtype}; convert it")


def require_bool(name: str, array: Array) -> None:
    """`array` holds booleans."""
    if "bool" not in str(array.dtype):
        raise TypeError(f"{name} must be boolean, got {array.dtype}; compare it with 0 first")


def require(ok: Array, name: str, values: Array, problem: str, remedy: str) -> None:
    """Every entry of `ok` holds; otherwise name the first place and value where it does not."""
    xp = namespace(ok)
    if bool(xp.all(ok)):
        return
    place = tuple(int(axis[0]) for axis in xp.nonzero(xp.reshape(~ok, ok.shape or (1,))))
    index = place[: len(values.shape)]
    value = values[index] if values.shape else values
    shown = int(value) if "int" in str(value.dtype) else f"{float(value):g}"
    where = f" at {list(index)}" if values.shape else ""
    raise ValueError(f"{name} {problem}, got {shown}{where}; {remedy}")


def require_log_probs(name: str, array: Array, tolerance: float) -> None:
    """Entries are log-probabilities: not NaN, not above 0 by more than rounding."""
    xp = namespace(array)
    if bool(xp.all(xp.max(array, axis=-1) <= tolerance)):  # one pass; the largest of a NaN is NaN
        return
    require(
        ~xp.isnan(array), name, array, "must not be NaN at a response position", "mask it with is_response"
    )
    require(
        array <= tolerance, name, array, "must be log-probabilities (<= 0, natural log)",
        "normalise logits with log_softmax",
    )  # fmt: skip


def require_row_sums(name: str, sums: Array, tolerance: float, exactly: bool) -> None:
    """Rows of probabilities sum to 1, or to at most 1 where some tokens are hidden."""
    xp = namespace(sums)
    ok = xp.abs(sums - 1) <= tolerance if exactly else sums <= 1 + tolerance
    problem = (
        "must sum to 1 over the vocabulary" if exactly else "must sum to at most 1 over the retained tokens"
    )
    require(ok, name, sums, problem, "pass normalised natural log-probabilities (log_softmax)")


def require_logits(name: str, logits: Array) -> None:
    """Logits are below +inf, not NaN, and not all -inf in a row."""
    xp = namespace(logits)
    remedy = "mask padding with is_response"
    peak = xp.max(logits, axis=-1)
    if not bool(xp.all(peak < xp.inf)):  # nor NaN, which is the largest of its row
        require(logits < xp.inf, name, logits, "must be finite or -inf", remedy)
    require(peak > -xp.inf, name, peak, "must have a finite entry in each row", remedy)


def require_token_ids(name: str, ids: Array, vocab_size: int) -> None:
    """Token ids lie in the vocabulary."""
    ok = (ids >= 0) & (ids < vocab_size)
    require(ok, name, ids, f"must be a token id in [0, {vocab_size})", "mask padding with is_response")


def require_distinct(name: str, ids: Array) -> None:
    """No id stands twice in a row."""
    xp = namespace(ids)
    ascending = xp.sort(ids, axis=-1)
    ok = ascending[..., 1:] != ascending[..., :-1]
    require(
        ok,
        name,
        ascending[..., 1:],
        "must not name a token twice in a row",
        "pass the K likeliest tokens once each",
    )


def require_rows(name: str, array: Array) -> None:
    """`array` has a last axis, such as the vocabulary, and something on it."""
    if len(array.shape) == 0 or array.shape[-1] == 0:
        raise ValueError(
            f"{name} must have a last axis with at least one entry, got shape {tuple(array.shape)}"
        )


def require_possible(name: str, log_prob: Array) -> None:
    """The sampled token has positive probability under the policy that sampled it."""
    xp = namespace(log_prob)
    require(
        log_prob > -xp.inf, name, log_prob, "must be finite: a sampled token had positive probability",
        "check that tokens and log-probabilities are aligned and come from the sampling distribution itself",
    )  # fmt: skip


def require_number(name: str, value: float, unit: str) -> None:
    """A setting is a real number, not the text of one."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number ({unit}), got {value!r}")


def require_positive(name: str, value: float, unit: str) -> None:
    """A radius or width is a finite number > 0."""
    require_number(name, value, unit)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a finite number > 0 ({unit}), got {value}")


def require_error(name: str, value: float) -> None:
    """A stated error of a log-probability: nats, from 0 (exact) to a factor e of the probability."""
    require_number(name, value, "nats")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1 (nats), got {value}; 0 means exact")


def require_count(name: str, value: int, unit: str, remedy: str) -> None:
    """A count is a whole number, 1 at least."""
    require_number(name, value, unit)
    if not (math.isfinite(value) and value >= 1 and value == int(value)):
        raise ValueError(f"{name} must be a whole number >= 1 ({unit}), got {value}; {remedy}")


def require_known(name: str, value: str, known: Collection[str]) -> None:
    """A name is one of a table's."""
    if value not in known:
        choice = f"must be one of {', '.join(known)}" if known else "does not exist: there is none"
        raise ValueError(f"{name} {choice}, got {value!r}")


def require_record(name: str, value: object, kind: type, maker: str) -> None:
    """A record is of its type, not its name or its array."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__} record, got {value!r:.60}; {maker} is one")
