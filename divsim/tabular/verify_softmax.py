"""Numerical checks of T1, T2 and T4: softmax paths, and the first-order change of every divergence.

Each derivative is tested by the order of its Taylor remainder on exact steps. What is left out: finite steps
(`verify_finite_step.py`), tails, other geometries.
"""

import numpy as np

from divsim.formulas import (
    DIVERGENCES,
    FORWARD_KL,
    Divergence,
    alpha,
    exponential_path,
    policy_gradient_direction,
    renyi,
)

from .check import Check, Simulation, check
from .geometry import EUCLIDEAN
from .ladder import RATIO_THIRD, TOP_SPREAD, Ladder, climb, order
from .one_step import first_order_ladder, one_step
from .policies import Batch, Floats, at_action, draw_batches

ALL_DIVERGENCES: tuple[Divergence, ...] = (
    *DIVERGENCES.values(),
    *(alpha(a) for a in (-0.5, 0.3, 2.5)),
    *(renyi(a) for a in (0.5, 2.0)),
)
"""Every named divergence, and orders of the two families between and beyond the named ones."""

LINE_COUNTS = {2: 8, 7: 8, 300: 4}
FORWARD_KL_COUNTS = {2: 8, 3: 8, 30: 8, 1000: 4, 50_000: 1}
DIVERGENCE_COUNTS = {2: 8, 3: 8, 30: 8, 400: 3}


def simulate_softmax(rng: np.random.Generator) -> Simulation:
    """T1: first and second derivative of pi along a logit line, and the gradient of log pi_k.

    >>> simulate_softmax(np.random.default_rng(0)).ok
    True
    """
    ladders: tuple[list[Ladder], ...] = ([], [], [])
    for batch in draw_batches(rng, LINE_COUNTS):
        direction = rng.standard_normal(batch.pair.log_pi.shape)
        for found, ladder in zip(ladders, _path_ladders(batch, direction), strict=True):
            found.append(ladder)
    claims = (
        ("pi' = pi (v - E v)", 2.0),
        ("pi'' = pi ((v - E v)^2 - Var v)", 3.0),
        ("gradient of log pi_k = e_k - pi", 2.0),
    )
    return Simulation(
        "T1 softmax",
        tuple(
            order(found, f"remainder of {claim}", LINE_COUNTS, claimed)
            for (claim, claimed), found in zip(claims, ladders, strict=True)
        ),
    )


def _path_ladders(batch: Batch, direction: Floats) -> tuple[Ladder, Ladder, Ladder]:
    log_pi = batch.pair.log_pi
    pi = np.exp(log_pi)
    centred = direction - np.sum(pi * direction, axis=-1, keepdims=True)
    first = pi * centred
    second = pi * (centred**2 - np.sum(pi * centred**2, axis=-1, keepdims=True))
    log_rate = np.sum(policy_gradient_direction(log_pi, batch.action) * direction, axis=-1)
    top = (TOP_SPREAD / np.ptp(direction, axis=-1))[:, None]

    def moved(fraction: float) -> Floats:
        log_moved: Floats = exponential_path(log_pi, direction, fraction * top)
        return log_moved

    def past_first(fraction: float) -> Floats:
        return np.asarray(np.max(np.abs(np.exp(moved(fraction)) - pi - fraction * top * first), axis=-1))

    def past_second(fraction: float) -> Floats:
        t = fraction * top
        return np.asarray(
            np.max(np.abs(np.exp(moved(fraction)) - pi - t * first - t**2 / 2 * second), axis=-1)
        )

    def of_log(fraction: float) -> Floats:
        gain = at_action(moved(fraction) - log_pi, batch.action)
        return np.asarray(gain - fraction * top[:, 0] * log_rate)

    # exp turns the rounding of log pi, a difference of numbers of size 1 at least, into one of pi.
    size = np.max(pi * (2 - log_pi), axis=-1)
    log_size = 2 - at_action(log_pi, batch.action)
    terms = top[:, 0] * np.max(np.abs(direction), axis=-1)
    return (
        climb(past_first, size, size * terms),
        climb(past_second, size, size * terms, ratio=RATIO_THIRD),
        climb(of_log, log_size, terms),
    )


def simulate_forward_kl(rng: np.random.Generator) -> Simulation:
    """T2: gradient of forward KL, and the change c_k under an exact step, for V up to 50,000.

    >>> simulate_forward_kl(np.random.default_rng(0)).ok
    True
    """
    batches = draw_batches(rng, FORWARD_KL_COUNTS)
    steps = [one_step(FORWARD_KL, EUCLIDEAN, b.pair, b.action).ladder for b in batches]
    lines = [_gradient_ladder(FORWARD_KL, b, rng.standard_normal(b.pair.log_pi.shape)) for b in batches]
    return Simulation(
        "T2 forward KL",
        (
            order(lines, "remainder of dD/dz = pi - mu along random lines", FORWARD_KL_COUNTS, 2.0),
            order(steps, "remainder of dD/ds = c_k", FORWARD_KL_COUNTS, 2.0),
            _threshold_form(batches),
        ),
    )


def _gradient_ladder(divergence: Divergence, batch: Batch, direction: Floats) -> Ladder:
    rate = np.sum(divergence.logit_grad(batch.pair.log_mu, batch.pair.log_pi) * direction, axis=-1)
    return first_order_ladder(divergence, batch.pair, direction, rate)


def _threshold_form(batches: list[Batch]) -> Check:
    """c_k = d_k - theta with one theta = |pi|^2 - <pi, mu> per state."""
    errors = []
    for batch in batches:
        mu, pi = np.exp(batch.pair.log_mu), np.exp(batch.pair.log_pi)
        theta = np.sum(pi * pi, axis=-1, keepdims=True) - np.sum(pi * mu, axis=-1, keepdims=True)
        expected = at_action(pi - mu - theta, batch.action)
        errors.append(np.abs(EUCLIDEAN.rate(FORWARD_KL, batch.pair, batch.action) - expected))
    sizes = [batch.pair.vocab for batch in batches]
    reason = "absolute: sums of at most 50,000 terms of total mass 1 round to a few times 1e-16"
    return check(np.concatenate(errors), "c_k = d_k - theta", sizes, tolerance=1e-14, reason=reason)


def simulate_f_divergences(rng: np.random.Generator) -> Simulation:
    """T4: the change of every divergence under an exact step; total variation away from its ties.

    >>> simulate_f_divergences(np.random.default_rng(0)).ok
    True
    """
    batches = draw_batches(rng, DIVERGENCE_COUNTS)
    checks = []
    for divergence in ALL_DIVERGENCES:
        ladders = [one_step(divergence, EUCLIDEAN, b.pair, b.action).ladder for b in batches]
        name = f"remainder of dD/ds = q_k - E_pi[q], {divergence.name}"
        checks.append(order(ladders, name, DIVERGENCE_COUNTS, 2.0))
    return Simulation("T4 divergences", tuple(checks))
