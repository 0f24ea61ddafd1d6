r"""Numerical checks of T7: what is left of the change when the tail is hidden.

The proportional estimator against exact steps of the coarse divergence, and the interval against behaviour
policies that fit the view. What is left out: how good each estimator is on real tokens, which is a
measurement and not a theorem.
"""

from collections.abc import Iterable

import numpy as np

from divsim.formulas import (
    DIVERGENCES,
    FORWARD_KL,
    TAILS,
    Divergence,
    View,
    change,
    change_interval,
    difference,
    directional_change,
    exponential_path,
    logsumexp,
    policy_gradient_direction,
)

from .check import Check, Simulation, check, truth
from .geometry import EUCLIDEAN
from .ladder import Ladder, climb, order
from .one_step import rate_terms, top_step, value_terms
from .policies import Batch, Bools, Floats, Ints, PolicyPair, at_action, draw_batches

Views = list[tuple[Batch, View]]

COUNTS = {3: 8, 12: 8, 200: 4}
TOP_K = (1, 8)
SHUFFLES = 5

ROUNDING = 1e-14
ROUNDING_REASON = "absolute: sums of at most 200 terms of total mass 2 round to a few times 1e-16"


def simulate_top_k(rng: np.random.Generator) -> Simulation:
    """T7: tail estimators are what they claim to be, and the interval contains every possible change.

    >>> simulate_top_k(np.random.default_rng(0)).ok
    True
    """
    batches = draw_batches(rng, COUNTS)
    views = [(batch, _view(batch, k)) for batch in batches for k in TOP_K if k < batch.pair.vocab]
    return Simulation(
        "T7 top-K tails",
        (
            *_proportional_checks(views),
            _aggregated_check(views),
            _all_seen_check(batches),
            _binary_check(batches),
            *_interval_checks(rng, views),
            _impossibility_check(batches),
            _lumping_check(views),
            _examples(),
        ),
    )


def _view(batch: Batch, k: int) -> View:
    return View.top_k(batch.pair.log_mu, batch.pair.log_pi, batch.action, k, bracket=True)


def _proportional_checks(views: Views) -> Iterable[Check]:
    """`proportional` is the derivative of the coarse divergence along the true full-vocabulary step."""
    for divergence in DIVERGENCES.values():
        ladders = [_coarse_ladder(divergence, batch, view) for batch, view in views]
        yield order(ladders, f"remainder of the proportional change, coarse {divergence.name}", COUNTS, 2.0)


def _coarse_ladder(divergence: Divergence, batch: Batch, view: View) -> Ladder:
    pair, hidden = batch.pair, _hidden(batch, view)
    cells = PolicyPair(_lump(pair.log_mu, hidden), _lump(pair.log_pi, hidden))
    direction = policy_gradient_direction(pair.log_pi, batch.action)
    top = top_step(divergence, cells, direction)
    rate = change(view, divergence, "proportional")
    before = divergence.measure(cells.log_mu, cells.log_pi)

    def remainder(fraction: float) -> Floats:
        step = fraction * top
        after = _lump(exponential_path(pair.log_pi, direction, step[:, None]), hidden)
        return np.asarray(divergence.measure(cells.log_mu, after) - before - step * rate)

    return climb(remainder, value_terms(divergence, cells), top * rate_terms(divergence, cells, direction))


def _lump(log_p: Floats, hidden: Bools) -> Floats:
    """(n, V + 1) log-probabilities of the cells: hidden tokens are emptied into the last one."""
    tail = logsumexp(np.where(hidden, log_p, -np.inf))
    return np.concatenate([np.where(hidden, -np.inf, log_p), tail[:, None]], axis=-1)


def _hidden(batch: Batch, view: View) -> Bools:
    """(n, V) bool: tokens that are neither among the K likeliest under mu nor sampled."""
    kept = view.in_support.shape[-1] - 1
    rank = np.argsort(np.argsort(-batch.pair.log_mu, axis=-1), axis=-1)
    return np.asarray((rank >= kept) & (np.arange(batch.pair.vocab) != batch.action[:, None]))


def _aggregated_check(views: Views) -> Check:
    """`aggregated` is the exact change of a policy whose tail logits are tied: they all move by -P."""
    errors = []
    for batch, view in views:
        pair, hidden = batch.pair, _hidden(batch, view)
        step = policy_gradient_direction(pair.log_pi, batch.action)
        shared = np.sum(np.where(hidden, step, 0.0), axis=-1, keepdims=True)
        tied = np.where(hidden, shared, step)
        exact = directional_change(FORWARD_KL, pair.log_mu, pair.log_pi, tied)
        errors.append(np.abs(change(view, FORWARD_KL, "aggregated") - exact))
    name = "aggregated = exact change with tied tail logits"
    return check(np.concatenate(errors), name, COUNTS, ROUNDING, ROUNDING_REASON)


def _all_seen_check(batches: list[Batch]) -> Check:
    """With K = V every estimator is the change itself."""
    errors = [
        np.abs(
            change(_view(b, b.pair.vocab), FORWARD_KL, tail) - EUCLIDEAN.rate(FORWARD_KL, b.pair, b.action)
        )
        for b in batches
        for tail in TAILS
        if tail != "full"
    ]
    return check(np.concatenate(errors), "K = V: every tail gives c_k", COUNTS, ROUNDING, ROUNDING_REASON)


def _alone(log_p: Floats, action: Ints) -> Floats:
    """(n, V) log-probabilities of the others, the sampled token taken out."""
    is_action = np.arange(log_p.shape[-1]) == action[:, None]
    return np.where(is_action, -np.inf, log_p)


def _binary_check(batches: list[Batch]) -> Check:
    """At K = 0 the proportional change is d_k times a positive number: the ratio test."""
    errors = []
    for batch in batches:
        pair = batch.pair
        view = View.full(pair.log_mu, pair.log_pi, batch.action).binary()
        others = np.exp(_alone(pair.log_pi, batch.action))
        rest = np.sum(others, axis=-1)
        factor = rest + np.sum(others**2, axis=-1) / rest
        gap = difference(view.log_mu_k, view.log_pi_k)
        errors.append(np.abs(change(view, FORWARD_KL, "proportional") - gap * factor))
    name = "K = 0: proportional = d_k (1 - 2 pi_k + S2) / (1 - pi_k)"
    return check(np.concatenate(errors), name, COUNTS, ROUNDING, ROUNDING_REASON)


def _impossibility_check(batches: list[Batch]) -> Check:
    """Whatever pi and mu_k are, one mu that fits them has a change of the ratio's sign."""
    holds = []
    for batch in batches:
        pair, k = batch.pair, batch.action
        log_mu_k, log_pi_k = at_action(pair.log_mu, k), at_action(pair.log_pi, k)
        shift = np.log(-np.expm1(log_mu_k)) - np.log(-np.expm1(log_pi_k))
        is_action = np.arange(pair.vocab) == k[:, None]
        fits = PolicyPair(np.where(is_action, pair.log_mu, pair.log_pi + shift[:, None]), pair.log_pi)
        c = EUCLIDEAN.rate(FORWARD_KL, fits, k)
        gap = difference(log_mu_k, log_pi_k)
        holds.append((np.sign(c) == np.sign(gap)) | (np.abs(c) < ROUNDING))
    return truth(np.concatenate(holds), "K = 0: no certificate can contradict the ratio test", COUNTS)


def _interval_checks(rng: np.random.Generator, views: Views) -> tuple[Check, Check]:
    """The interval contains the change of every mu that fits, and the two extreme ones attain its ends."""
    inside, gaps = [], []
    for batch, view in views:
        low, high = change_interval(view)
        changes = [
            EUCLIDEAN.rate(FORWARD_KL, PolicyPair(log_mu, batch.pair.log_pi), batch.action)
            for log_mu in _fitting(rng, batch, _hidden(batch, view), np.exp(view.field("log_mu_cap")))
        ]
        inside += [(low <= c) & (c <= high) for c in changes]
        gaps.append(np.maximum(np.min(changes, axis=0) - low, high - np.max(changes, axis=0)))
    name = "the interval contains c_k for every mu that fits the view"
    reason = "absolute: the interval is rounded outward by 64 units in the last place of numbers of size 1"
    return (
        truth(np.concatenate(inside), name, COUNTS),
        check(np.concatenate(gaps), "both ends of the interval are attained", COUNTS, 1e-13, reason),
    )


def _fitting(rng: np.random.Generator, batch: Batch, hidden: Bools, cap: Floats) -> Iterable[Floats]:
    """(n, V) behaviour policies with the same retained entries, tail mass and cap."""
    mu, pi = np.exp(batch.pair.log_mu), np.exp(batch.pair.log_pi)
    yield batch.pair.log_mu
    orders = [np.where(hidden, side * pi, np.inf) for side in (1, -1)]
    for places in (*orders, *(np.where(hidden, rng.random(pi.shape), np.inf) for _ in range(SHUFFLES))):
        filled = mu.copy()
        for row, (place, is_hidden) in enumerate(zip(places, hidden, strict=True)):
            tail = np.argsort(place)[: np.sum(is_hidden)]
            mass = np.sum(mu[row, tail])
            filled[row, tail] = np.clip(mass - cap[row] * np.arange(len(tail)), 0.0, cap[row])
        with np.errstate(divide="ignore"):
            yield np.log(filled)


def _examples() -> Check:
    """Exact small pairs: lumping hides the whole KL; two estimators get the sign of c_k = -3/400 wrong."""
    hiding = _kept_first([[90, 9, 1]], [[90, 1, 9]], action=0, k=1)
    wrong = _kept_first([[14, 13, 6, 5, 2]], [[5, 16, 1, 14, 4]], action=1, k=2)
    estimates = [change(wrong, FORWARD_KL, tail)[0] for tail in ("aggregated", "uniform")]
    pair = PolicyPair(_log_shares([[14, 13, 6, 5, 2]]), _log_shares([[5, 16, 1, 14, 4]]))
    exact = EUCLIDEAN.rate(FORWARD_KL, pair, np.array([1]))[0]
    holds = [
        FORWARD_KL.measure(*hiding.cells)[0] < ROUNDING,
        abs(exact + 3 / 400) < ROUNDING,
        min(estimates) > 0,
    ]
    return truth(holds, "lumping can hide all of D, and flip the sign of two estimators", [3, 5])


def _log_shares(counts: list[list[int]]) -> Floats:
    return np.asarray(np.log(np.array(counts) / np.sum(counts)))


def _kept_first(mu: list[list[int]], pi: list[list[int]], action: int, k: int) -> View:
    return View.top_k(_log_shares(mu), _log_shares(pi), np.array([action]), k)


def _lumping_check(views: Views) -> Check:
    """Data processing: lumping the tail never raises a divergence, and can hide all of it."""
    errors = []
    for divergence in DIVERGENCES.values():
        for batch, view in views:
            full = divergence.measure(batch.pair.log_mu, batch.pair.log_pi)
            errors.append(np.maximum(divergence.measure(*view.cells) - full, 0) / (1 + full))
    reason = "relative to 1 + D: sums of at most 200 non-negative terms"
    return check(np.concatenate(errors), "coarse D <= D, every divergence", COUNTS, ROUNDING, reason)
