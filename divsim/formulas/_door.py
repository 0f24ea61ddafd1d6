"""What every `View` constructor does at its door: lift, detach, neutralise padding, then validate."""

import math
from collections.abc import Mapping
from dataclasses import replace

from . import _checks as checks
from ._array import Array, detach, lift, namespace, take
from .support import Record


def admit_policies(
    log_mu: Array,
    log_pi: Array,
    action: Array,
    is_response: Array | None,
    check: bool,
    log_mu_error: float = 0.0,
) -> tuple[Array, Array, Array]:
    """Whole policies (..., V) and the sampled tokens, clean: log_mu, log_pi, action."""
    named = {"log_mu": log_mu, "log_pi": log_pi}
    _require_arrays(named | {"action": action}, is_response)
    checks.require_rows("log_pi", log_pi)
    tolerance = _enter(named, tuple(log_pi.shape[:-1]), is_response)
    tolerances = {"log_mu": tolerance + math.expm1(log_mu_error), "log_pi": tolerance}
    xp = namespace(log_mu, log_pi)
    checks.require_shape("log_mu", log_mu, log_pi.shape, "that of log_pi")
    action = _admit_ids("action", action, tuple(log_pi.shape[:-1]), is_response)
    log_mu, log_pi = (_neutral_row(lift(detach(x)), is_response) for x in (log_mu, log_pi))
    if check:
        checks.require_token_ids("action", action, log_pi.shape[-1])
        for name, rows in (("log_mu", log_mu), ("log_pi", log_pi)):
            checks.require_log_probs(name, rows, tolerances[name])
            checks.require_row_sums(name, xp.sum(xp.exp(rows), axis=-1), tolerances[name], exactly=True)
        checks.require_possible("log_mu of the sampled token", take(log_mu, action))
    return log_mu, log_pi, action


def admit_sampled(
    log_mu_k: Array, log_pi_k: Array, vocab_size: int, is_response: Array | None, check: bool
) -> tuple[Array, Array]:
    """The sampled tokens' log-probabilities (...), clean: log_mu_k, log_pi_k."""
    named = {"log_mu_k": log_mu_k, "log_pi_k": log_pi_k}
    _require_arrays(named, is_response)
    tolerance = _enter(named, tuple(log_pi_k.shape), is_response)
    checks.require_shape("log_mu_k", log_mu_k, log_pi_k.shape, "that of log_pi_k")
    log_mu_k, log_pi_k = (_neutral(lift(detach(x)), is_response, 0.0) for x in (log_mu_k, log_pi_k))
    if check:
        checks.require_log_probs("log_mu_k", log_mu_k, tolerance)
        checks.require_log_probs("log_pi_k", log_pi_k, tolerance)
        checks.require_possible("log_mu_k", log_mu_k)
        if vocab_size == 1:
            xp = namespace(log_mu_k, log_pi_k)
            checks.require_row_sums("log_mu_k", xp.exp(log_mu_k), tolerance, exactly=True)
            checks.require_row_sums("log_pi_k", xp.exp(log_pi_k), tolerance, exactly=True)
    return log_mu_k, log_pi_k


def admit_record(
    pi_logits: Array, record: Record, is_response: Array | None, check: bool, log_mu_error: float
) -> tuple[Array, Record]:
    """A trainer's logits (..., V) and an engine's record, clean; the record in the logits' lifted dtype."""
    _require_arrays({"pi_logits": pi_logits}, is_response)
    checks.require_rows("pi_logits", pi_logits)
    checks.require_floating({"pi_logits": pi_logits})
    checks.require_one_library({"pi_logits": pi_logits} | vars(record))
    shape = tuple(pi_logits.shape[:-1])
    checks.require_shape("log_mu_k", record.log_mu_k, shape, "that of pi_logits without V")
    clean, tolerance = _clean_record(record, is_response)
    pi_logits = _neutral_row(lift(detach(pi_logits)), is_response)
    xp = namespace(pi_logits, clean.log_mu_k)
    if check:
        checks.require_logits("pi_logits", pi_logits)
        _check_record(clean, pi_logits.shape[-1], tolerance + math.expm1(log_mu_error))
    log_mu_k, top = (xp.astype(said, pi_logits.dtype) for said in (clean.log_mu_k, clean.top_log_mu))
    return pi_logits, replace(clean, log_mu_k=log_mu_k, top_log_mu=top)


def check_record(
    action: Array, log_mu_k: Array, top_ids: Array, top_log_mu: Array, vocab_size: int, *,
    is_response: Array | None = None, log_mu_error: float = 0.0,
) -> None:  # fmt: skip
    """Refuse what no engine can have said: once for a rollout whose views are made with `check=False`.

    Args:
      action, log_mu_k, top_ids, top_log_mu, is_response, log_mu_error: as in `View.from_logits`.
      vocab_size: V.

    Errors: TypeError or ValueError that names the argument, the value and the remedy.

    >>> import numpy as np
    >>> check_record(np.array([12]), np.log([0.5]), np.array([[3]]), np.log([[0.5]]), vocab_size=10)
    Traceback (most recent call last):
    ValueError: action must be a token id in [0, 10), got 12 at [0]; mask padding with is_response
    """
    checks.require_count("vocab_size", vocab_size, "tokens", "pass the size of the vocabulary")
    checks.require_error("log_mu_error", log_mu_error)
    clean, tolerance = _clean_record(Record(action, log_mu_k, top_ids, top_log_mu), is_response)
    _check_record(clean, vocab_size, tolerance + math.expm1(log_mu_error))


def _clean_record(record: Record, is_response: Array | None) -> tuple[Record, float]:
    """Lifted and detached, neutral at padding; and the tolerance of a row sum."""
    _require_arrays(vars(record), is_response)
    checks.require_rows("top_ids", record.top_ids)
    shape = tuple(record.log_mu_k.shape)
    said = {"log_mu_k": record.log_mu_k, "top_log_mu": record.top_log_mu}
    tolerance = _enter(said, shape, is_response)
    record_shape = (*shape, record.top_ids.shape[-1])
    checks.require_shape("top_log_mu", record.top_log_mu, record_shape, "that of top_ids")
    log_mu_k, top_log_mu = (lift(detach(one)) for one in said.values())
    is_row = None if is_response is None else is_response[..., None]
    ids = _admit_ids("top_ids", record.top_ids, record_shape, is_row)
    xp = namespace(ids)
    distinct = xp.arange(ids.shape[-1], device=ids.device, dtype=ids.dtype)  # neutral rows need distinct ids
    clean = Record(
        action=_admit_ids("action", record.action, shape, is_response),
        log_mu_k=_neutral(log_mu_k, is_response, 0.0),
        top_ids=_or_neutral(ids, is_row, distinct),
        top_log_mu=_neutral_row(top_log_mu, is_response),
    )
    return clean, tolerance


def _check_record(record: Record, vocab_size: int, tolerance: float) -> None:
    checks.require_token_ids("action", record.action, vocab_size)
    checks.require_token_ids("top_ids", record.top_ids, vocab_size)
    checks.require_distinct("top_ids", record.top_ids)
    checks.require_log_probs("log_mu_k", record.log_mu_k, tolerance)
    checks.require_log_probs("top_log_mu", record.top_log_mu, tolerance)
    checks.require_possible("log_mu_k", record.log_mu_k)
    _check_masses(record, vocab_size, tolerance)


def _check_masses(record: Record, vocab_size: int, tolerance: float) -> None:
    """The record can be the top K of one distribution, to which the sampled token belongs."""
    xp = namespace(record.log_mu_k)
    aligned = "check that tokens and records are aligned"
    mu_k, top_mu = xp.exp(record.log_mu_k), xp.exp(record.top_log_mu)
    cap = xp.min(top_mu, axis=-1)
    is_top = record.top_ids == record.action[..., None]
    is_outside = ~xp.any(is_top, axis=-1)
    repeated = xp.sum(xp.where(is_top, top_mu, xp.zeros_like(top_mu)), axis=-1)
    agrees = is_outside | (xp.abs(repeated - mu_k) <= tolerance)
    checks.require(agrees, "log_mu_k", record.log_mu_k, "must equal top_log_mu at the same token", aligned)
    below = ~is_outside | (mu_k <= cap + tolerance)
    checks.require(
        below, "log_mu_k", record.log_mu_k, "must not exceed top_log_mu outside the top K", aligned
    )
    seen = xp.sum(top_mu, axis=-1) + xp.where(is_outside, mu_k, xp.zeros_like(mu_k))
    checks.require_row_sums("top_log_mu", seen, tolerance, exactly=False)
    hidden = vocab_size - record.top_ids.shape[-1] - xp.astype(is_outside, mu_k.dtype)
    fits = 1 - seen <= hidden * cap + tolerance
    problem = "must leave no more mass than the hidden tokens can hold at the K-th largest each"
    checks.require(fits, "top_log_mu", seen, problem, "pass the K likeliest tokens of one distribution")


def _require_arrays(named: Mapping[str, Array], is_response: Array | None) -> None:
    checks.require_one_library(dict(named) | ({} if is_response is None else {"is_response": is_response}))


def _enter(named: Mapping[str, Array], shape: tuple[int, ...], is_response: Array | None) -> float:
    """Types and shapes; the tolerance of a row sum."""
    checks.require_floating(named)
    first = next(iter(named.values()))
    if is_response is not None:
        checks.require_bool("is_response", is_response)
        checks.require_shape("is_response", is_response, shape, "one entry a token")
    return checks.sum_tolerance(float(namespace(first).finfo(first.dtype).eps))


def _admit_ids(name: str, ids: Array, shape: tuple[int, ...], is_response: Array | None) -> Array:
    checks.require_integer(name, ids)
    checks.require_shape(name, ids, shape, "one token id each")
    xp = namespace(ids)
    ids = xp.astype(ids, xp.int64)
    return _or_neutral(ids, is_response, xp.zeros_like(ids))


def _neutral(values: Array, is_response: Array | None, value: float) -> Array:
    return _or_neutral(values, is_response, namespace(values).full_like(values, value))


def _neutral_row(rows: Array, is_response: Array | None) -> Array:
    """Rows of padding become the policy that always says token 0."""
    if is_response is None:
        return rows
    xp = namespace(rows)
    is_first = xp.arange(rows.shape[-1], device=rows.device) == 0
    certain = xp.where(is_first, xp.zeros_like(rows), xp.full_like(rows, -xp.inf))
    return _or_neutral(rows, is_response[..., None], certain)


def _or_neutral(values: Array, is_response: Array | None, neutral: Array) -> Array:
    """The values where they are a response's; all of them, uncopied, where nothing is padding."""
    return values if is_response is None else namespace(values).where(is_response, values, neutral)
