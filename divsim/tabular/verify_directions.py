r"""Numerical checks of T5 and T6: when ratio and divergence disagree, and what they are in expectation.

Every token of every pair is sampled in turn, so signs and expectations are exact up to rounding. What is left
out: partial views (`verify_tails.py`), other heads and temperatures (`verify_geometry.py`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from divsim.formulas import (
    DIVERGENCES,
    FORWARD_KL,
    REVERSE_KL,
    TV,
    Divergence,
    difference,
    directional_change,
    log_ratio,
    mean_under,
    policy_gradient_direction,
)

from .check import Check, Simulation, check, truth
from .geometry import EUCLIDEAN, NATURAL, SIGN
from .ladder import order
from .one_step import one_step
from .policies import Batch, Bools, Floats, PolicyPair, draw_batches, every_token

COUNTS = {2: 20, 3: 20, 7: 20, 40: 6}

SIGN_FLOOR = 1e-14
"""Signs are compared where both numbers exceed this; nearer to zero, rounding decides."""

SUM_REASON = "relative to the sum of the sizes of the terms: at most 40 of them, each of a few roundings"


@dataclass(frozen=True)
class Signs:
    """The two criteria for every token of every pair.

    Attributes:
      gap: (n, V) d_k = pi_k - mu_k, whose sign is the ratio test.
      change: (n, V) c_k, the forward-KL change.
      mean_gap: (n, 1) E_pi[d], so that c_k = d_k - E_pi[d].
      agree: (n, V) bool, the signs are equal.
      is_clear: (n, V) bool, neither is so near to zero that rounding decides.
    """

    gap: Floats
    change: Floats
    mean_gap: Floats
    agree: Bools
    is_clear: Bools


def signs(pair: PolicyPair) -> Signs:
    """Ratio test and forward-KL test of every token: (n, V) policies -> `Signs`.

    >>> pair = PolicyPair(np.log(np.array([[5, 1, 1]]) / 7), np.log(np.array([[1, 2, 4]]) / 7))
    >>> signs(pair).agree.tolist()  # the second token is the smallest counterexample
    [[True, False, True]]
    """
    gap = difference(pair.log_mu, pair.log_pi)
    change = EUCLIDEAN.rate(FORWARD_KL, *every_token(pair))
    is_clear = np.minimum(np.abs(gap), np.abs(change)) > SIGN_FLOOR
    mean_gap = mean_under(pair.log_pi, gap)[:, None]
    return Signs(gap, change, mean_gap, np.sign(gap) == np.sign(change), is_clear)


def simulate_directions(rng: np.random.Generator) -> Simulation:
    """T5: the disagreement condition, where it cannot occur, and the geometry in which the ratio is right.

    >>> simulate_directions(np.random.default_rng(0)).ok
    True
    """
    batches = draw_batches(rng, COUNTS)
    return Simulation(
        "T5 directions",
        (
            _each(_disagreement, batches, "disagree iff d_k lies strictly between 0 and E_pi[d]"),
            _each(_must_agree, batches, "agree where d_k is large, extreme, or opposite to E_pi[d]"),
            _each(
                _ranges, batches, "|E_pi[d]| <= (max pi - min pi) TV, -1/4 <= E_pi[d] <= 1, -2 <= c_k <= 1/2"
            ),
            _two_tokens(batches),
            truth(~signs(SEVENTHS).agree[0, 1], "V = 3, pi = (1,2,4)/7, mu = (5,1,1)/7: disagree", [3]),
            *_natural_checks(batches),
            *_realised_checks(batches),
        ),
    )


SEVENTHS = PolicyPair(np.log(np.array([[5, 1, 1]]) / 7), np.log(np.array([[1, 2, 4]]) / 7))
"""The smallest pair, by vocabulary and by common denominator, on which the two criteria disagree."""


def _each(claim: Callable[[PolicyPair], Bools], batches: list[Batch], name: str) -> Check:
    holds = [np.ravel(claim(batch.pair)) for batch in batches]
    return truth(np.concatenate(holds), name, COUNTS)


def _disagreement(pair: PolicyPair) -> Bools:
    x = signs(pair)
    between = (x.gap * x.mean_gap > 0) & (np.abs(x.gap) < np.abs(x.mean_gap))
    return np.asarray((between == ~x.agree) | ~x.is_clear)


def _must_agree(pair: PolicyPair) -> Bools:
    x = signs(pair)
    is_large = np.abs(x.gap) > _probability_range(pair) * TV.measure(pair.log_mu, pair.log_pi)[:, None]
    is_extreme = (x.gap == np.max(x.gap, axis=-1, keepdims=True)) | (
        x.gap == np.min(x.gap, axis=-1, keepdims=True)
    )
    is_opposite = x.gap * x.mean_gap < 0
    return np.asarray(x.agree | ~(is_large | is_extreme | is_opposite) | ~x.is_clear)


def _ranges(pair: PolicyPair) -> Bools:
    x = signs(pair)
    bound = _probability_range(pair) * TV.measure(pair.log_mu, pair.log_pi)[:, None]
    in_mean_range = (np.abs(x.mean_gap) <= bound + SIGN_FLOOR) & (x.mean_gap >= -1 / 4) & (x.mean_gap <= 1)
    return np.asarray(in_mean_range & (x.change >= -2) & (x.change <= 1 / 2))


def _probability_range(pair: PolicyPair) -> Floats:
    return np.asarray(np.ptp(np.exp(pair.log_pi), axis=-1, keepdims=True))


def _two_tokens(batches: list[Batch]) -> Check:
    errors = []
    for pair in (batch.pair for batch in batches if batch.pair.vocab == 2):
        x = signs(pair)
        errors.append(np.abs(x.change - 2 * -np.expm1(pair.log_pi) * x.gap))
    reason = "absolute: three terms of size at most 2, of policies that sum to 1 within a few times 1e-16"
    return check(np.concatenate(errors), "V = 2: c_k = 2 (1 - pi_k) d_k", [2], tolerance=1e-14, reason=reason)


def _natural_checks(batches: list[Batch]) -> tuple[Check, ...]:
    forward, reverse, fisher = [], [], []
    for batch in batches:
        pair, action = every_token(batch.pair)
        direction = NATURAL.direction(pair.log_pi, action)
        log_r = log_ratio(batch.pair.log_mu, batch.pair.log_pi)
        divergence = REVERSE_KL.measure(batch.pair.log_mu, batch.pair.log_pi)[:, None]
        of_forward = directional_change(FORWARD_KL, pair.log_mu, pair.log_pi, direction)
        of_reverse = directional_change(REVERSE_KL, pair.log_mu, pair.log_pi, direction)
        expected = -np.expm1(-log_r)
        forward.append(np.abs(of_forward - expected) / np.abs(expected))
        reverse.append(np.abs(of_reverse - (log_r - divergence)) / (1 + np.abs(log_r) + divergence))
        pi = np.exp(pair.log_pi)
        solved = pi * direction - pi * mean_under(pair.log_pi, direction)[..., None]
        fisher.append(np.abs(solved - policy_gradient_direction(pair.log_pi, action)))
    reason = (
        "relative (reverse KL: to 1 + its terms, as policies sum to 1 within rounding); exp of 50 nats: 1e-14"
    )
    claims = (
        ("natural gradient, forward KL: A r dD/ds = A (r - 1)", forward),
        ("natural gradient, reverse KL: dD/ds = log r - KL(pi || mu)", reverse),
        ("Fisher matrix times e_k / pi_k = e_k - pi", fisher),
    )
    return tuple(
        check(np.concatenate([e.ravel() for e in errors]), name, COUNTS, tolerance=1e-13, reason=reason)
        for name, errors in claims
    )


def _realised_checks(batches: list[Batch]) -> Iterable[Check]:
    """The rates of the natural and the sign geometry against exact steps, for every divergence."""
    for geometry in (NATURAL, SIGN):
        for divergence in DIVERGENCES.values():
            ladders = [one_step(divergence, geometry, b.pair, b.action).ladder for b in batches]
            yield order(ladders, f"remainder of dD/ds, {geometry.name} step, {divergence.name}", COUNTS, 2.0)


def simulate_expectations(rng: np.random.Generator) -> Simulation:
    """T6: expectations over the sampled token, enumerated exactly, for every divergence.

    >>> simulate_expectations(np.random.default_rng(0)).ok
    True
    """
    batches = draw_batches(rng, COUNTS)
    advantages = [rng.standard_normal(batch.pair.log_pi.shape) for batch in batches]
    errors: dict[str, list[Floats]] = {}
    for batch, advantage in zip(batches, advantages, strict=True):
        for divergence in DIVERGENCES.values():
            for name, error in _expectations(divergence, batch.pair, advantage).items():
                errors.setdefault(name, []).append(error)
        errors.setdefault("E_mu[c] = -|pi - mu|^2, forward KL", []).append(_mean_change(batch.pair))
        errors.setdefault("E_mu[A r (e_k - pi)] = pi (A - E_pi A)", []).append(
            _mean_step(batch.pair, advantage)
        )
    return Simulation(
        "T6 expectations",
        tuple(
            check(np.concatenate(found), name, COUNTS, tolerance=1e-13, reason=SUM_REASON)
            for name, found in errors.items()
        ),
    )


def _expectations(divergence: Divergence, pair: PolicyPair, advantage: Floats) -> dict[str, Floats]:
    change = EUCLIDEAN.rate(divergence, *every_token(pair))
    weighted = np.exp(pair.log_mu + log_ratio(pair.log_mu, pair.log_pi))  # mu r
    q = divergence.logit_grad(pair.log_mu, pair.log_pi)
    centred = advantage - mean_under(pair.log_pi, advantage)[:, None]
    covariance = mean_under(pair.log_pi, centred * q)
    # c is itself a difference of numbers of size |q|, and rounds as such.
    size = np.sum(weighted * (np.abs(change) + np.max(np.abs(q), axis=-1, keepdims=True)), axis=-1)

    def error(a: Floats, expected: Floats) -> Floats:
        gap = np.abs(np.sum(weighted * a * change, axis=-1) - expected)
        return np.asarray(gap / (size * (1 + np.max(np.abs(a)))))

    nothing = np.zeros_like(covariance)
    return {
        "E_mu[r c] = 0": error(np.ones_like(advantage), nothing),
        "E_mu[A r c] = Cov_pi(A, q)": error(advantage, covariance),
        "E_mu[A r c] is unchanged by A + 3": error(advantage + 3, covariance),
    }


def _mean_change(pair: PolicyPair) -> Floats:
    x = signs(pair)
    mean = mean_under(pair.log_mu, x.change)
    return np.asarray(np.abs(mean + np.sum(x.gap**2, axis=-1)) / np.sum(np.abs(x.gap), axis=-1))


def _mean_step(pair: PolicyPair, advantage: Floats) -> Floats:
    each, action = every_token(pair)
    step = policy_gradient_direction(each.log_pi, action)
    weight = np.exp(pair.log_mu + log_ratio(pair.log_mu, pair.log_pi)) * advantage
    mean = np.sum(weight[..., None] * step, axis=-2)
    expected = np.exp(pair.log_pi) * (advantage - mean_under(pair.log_pi, advantage)[:, None])
    return np.asarray(np.max(np.abs(mean - expected), axis=-1) / np.max(np.abs(advantage), axis=-1))
