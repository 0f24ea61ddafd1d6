r"""Numerical checks of T3: finite steps of forward KL, for V up to 50,000.

The exact finite change against the step taken exactly, its bounds on both sides, and the step at which a
predicted decrease turns into an increase, against the root that `scipy.optimize.brentq` finds. What is left
out: first-order claims (`verify_softmax.py`).
"""

from collections.abc import Iterable

import numpy as np
from scipy.optimize import brentq

from divsim.formulas import (
    DIVERGENCES,
    FORWARD_KL,
    curvature,
    difference,
    directional_change,
    finite_change,
    flip_step_bracket,
    policy_gradient_direction,
)

from .check import Check, Simulation, check, truth
from .geometry import EUCLIDEAN
from .ladder import RATIO_THIRD, TOP_SPREAD, Ladder, climb, order
from .one_step import rate_terms, realised_change
from .policies import Batch, Floats, Ints, PolicyPair, draw_batches

COUNTS = {2: 8, 3: 8, 30: 8, 1000: 4, 50_000: 1}
STEPS = (-30.0, -0.3, -1e-6, 1e-6, 0.3, 30.0)
RANDOM_STEPS = 4  # more, a size for every case: log-uniform between the extremes of `STEPS`, any sign

ROUNDING = 1e-13
REALISED_REASON = (
    "relative to 1 + D before + D after + x, x the spread of the logits' move: log-probabilities of at most "
    "50 nats round to 1e-14"
)
BOUND_REASON = (
    "relative to x, the spread of the logits' move: the finite change is a sum of terms of size x with total "
    "weight 1, and keeps its digits at small steps"
)

CLEAR_RATE = 1e-6  # of the sum of the sizes of its terms: c_k has 10 digits then

DECREASES: dict[str, tuple[tuple[int, int, int], tuple[int, int, int]]] = {
    "reverse_kl": ((594, 295, 111), (357, 12, 631)),
    "tv": ((482, 443, 75), (781, 105, 114)),
}
"""pi and mu in thousandths: s = -6 on the third token is predicted to raise the divergence, and lowers it."""


def simulate_finite_step(rng: np.random.Generator) -> Simulation:
    """T3: the exact finite change, what bounds it, and the step at which its sign flips.

    >>> simulate_finite_step(np.random.default_rng(0)).ok
    True
    """
    batches = draw_batches(rng, COUNTS)
    return Simulation(
        "T3 finite steps",
        (
            *_finite_checks(rng, batches),
            order([_second_order(b) for b in batches], "remainder of s c_k + s^2 V0 / 2", COUNTS, 3.0),
            _flip_check(batches),
            _counterexamples(),
        ),
    )


CLAIMS = (
    ("finite change = D after - D before", REALISED_REASON),
    ("predicted increases are real: change >= s c_k", BOUND_REASON),
    ("change <= s c_k + x^2 / 8", BOUND_REASON),
    ("change - s c_k >= V0 / R^2 (e^{-x} - 1 + x)", BOUND_REASON),
    ("change - s c_k <= V0 / R^2 (e^x - 1 - x)", BOUND_REASON),
)
"""Checked at every step; R is the spread of e_k - pi, x = R |s|, V0 its variance under pi."""


def _finite_checks(rng: np.random.Generator, batches: list[Batch]) -> tuple[Check, ...]:
    errors = [_errors_at(batch, step) for batch in batches for step in _steps(rng, len(batch.action))]
    return tuple(
        check(np.concatenate(found), name, COUNTS, ROUNDING, reason)
        for (name, reason), found in zip(CLAIMS, zip(*errors, strict=True), strict=True)
    )


def _steps(rng: np.random.Generator, n: int) -> Iterable[Floats]:
    """(n,) signed step sizes, several times."""
    for step in STEPS:
        yield np.full(n, step)
    smallest, largest = np.log(1e-6), np.log(30.0)
    for _ in range(RANDOM_STEPS):
        yield rng.choice([-1.0, 1.0], n) * np.exp(rng.uniform(smallest, largest, n))


def _errors_at(batch: Batch, step: Floats) -> tuple[Floats, ...]:
    """Errors of the five `CLAIMS` at one step size per case, each (n,)."""
    pair = batch.pair
    direction = policy_gradient_direction(pair.log_pi, batch.action)
    change = finite_change(pair.log_mu, pair.log_pi, step[:, None] * direction)
    first = step * directional_change(FORWARD_KL, pair.log_mu, pair.log_pi, direction)
    variance = curvature(pair.log_pi, direction)
    spread = np.ptp(direction, axis=-1)
    x = np.abs(step) * spread
    around = 1 + 2 * FORWARD_KL.measure(pair.log_mu, pair.log_pi) + np.abs(change) + x
    realised = realised_change(FORWARD_KL, pair, direction, step)
    excess = change - first
    least = variance / spread**2 * (np.expm1(-x) + x)
    most = variance / spread**2 * (np.expm1(x) - x)
    return (
        np.abs(change - realised) / around,
        np.maximum(-excess, 0) / x,
        np.maximum(excess - x * x / 8, 0) / x,
        np.maximum(least - excess, 0) / x,
        np.maximum(excess - most, 0) / x,
    )


def _second_order(batch: Batch) -> Ladder:
    pair = batch.pair
    direction = policy_gradient_direction(pair.log_pi, batch.action)
    first = EUCLIDEAN.rate(FORWARD_KL, pair, batch.action)
    second = curvature(pair.log_pi, direction)
    top = TOP_SPREAD / np.ptp(direction, axis=-1)

    def remainder(fraction: float) -> Floats:
        step = fraction * top
        change = finite_change(pair.log_mu, pair.log_pi, step[:, None] * direction)
        return np.asarray(change - step * first - step**2 / 2 * second)

    terms = top * rate_terms(FORWARD_KL, pair, direction)
    return climb(remainder, scale=np.zeros_like(top), terms=terms, ratio=RATIO_THIRD)


def flip_step(pair: PolicyPair, action: Ints) -> Floats:
    """The step at which a predicted decrease of forward KL turns into an increase, by root finding.

    Args:
      pair: mu and pi, (n, V).
      action: (n,) int, the sampled tokens.

    Returns:
      (n,) the size |s*| of the step against the sign of c_k at which D is back at its start; NaN where c_k
      is so small that rounding decides its sign.

    Source: definition; derivations, T3.

    >>> pair = PolicyPair(np.log(np.array([[0.4, 0.3, 0.3]])), np.log(np.array([[0.45, 0.5, 0.05]])))
    >>> flip_step(pair, np.array([0])).round(3).tolist()
    [0.459]
    """
    direction = policy_gradient_direction(pair.log_pi, action)
    terms = difference(pair.log_mu, pair.log_pi) * direction
    rate = np.sum(terms, axis=-1)
    is_clear = np.abs(rate) > CLEAR_RATE * np.sum(np.abs(terms), axis=-1)
    against = -np.sign(rate)[:, None] * direction
    rows = zip(pair.log_mu, pair.log_pi, against, is_clear, strict=True)
    return np.array([_root(mu, pi, v) if clear else np.nan for mu, pi, v, clear in rows])


def _root(log_mu: Floats, log_pi: Floats, direction: Floats) -> float:
    """The positive root of the convex `finite_change(step) / step`, which starts below zero."""

    def mean_rate(step: float) -> float:
        return float(finite_change(log_mu, log_pi, step * direction)) / step

    far = 1.0
    while mean_rate(far) <= 0:
        far *= 2
    near = far
    while mean_rate(near) >= 0:
        near /= 2
    return float(brentq(mean_rate, near, far, xtol=1e-15, rtol=1e-13))


def _flip_check(batches: list[Batch]) -> Check:
    small = [batch for batch in batches if batch.pair.vocab <= 1000]
    errors = []
    for batch in small:
        low, high = flip_step_bracket(batch.pair.log_mu, batch.pair.log_pi, batch.action)
        root = flip_step(batch.pair, batch.action)
        outside = np.maximum(np.maximum(low - root, root - high), 0) / root
        errors.append(outside[np.isfinite(root)])
    return check(
        np.concatenate(errors),
        "flip step lies in its bracket",
        [batch.pair.vocab for batch in small],
        tolerance=1e-9,
        reason="relative: c_k is a millionth of its terms at least, so that 10 of 16 digits are left",
    )


def _counterexamples() -> Check:
    """Reverse KL and TV have no one-sided certainty: a predicted increase that is a decrease."""
    holds = []
    for name, (pi, mu) in DECREASES.items():
        pair = PolicyPair(np.log(np.array(mu) / 1000), np.log(np.array(pi) / 1000))
        token = np.array(2)
        predicted = -6.0 * EUCLIDEAN.rate(DIVERGENCES[name], pair, token)
        direction = policy_gradient_direction(pair.log_pi, token)
        holds.append(predicted > 0 > realised_change(DIVERGENCES[name], pair, direction, -6.0))
    return truth(holds, "reverse KL and TV: a predicted increase that is a decrease exists", [3])
