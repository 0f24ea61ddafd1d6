r"""Numerical checks of T11: temperature, shared heads, forbidden tokens and logit noise.

What is left out: the natural and the sign geometry, which T5 needs (`verify_directions.py`).
"""

from itertools import product

import numpy as np

from divsim.formulas import (
    DIVERGENCES,
    FORWARD_KL,
    TV,
    View,
    change,
    curvature,
    difference,
    exponential_path,
    finite_change,
    kernel_change,
    log_softmax,
    mean_under,
    policy_gradient_direction,
)

from .check import Check, Simulation, check, truth
from .geometry import EUCLIDEAN, linear_head
from .ladder import RATIO_THIRD, TOP_SPREAD, Ladder, climb, order
from .one_step import one_step, rate_terms, value_terms
from .policies import Batch, Floats, PolicyPair, at_action, draw_batches, every_token

COUNTS = {2: 8, 3: 8, 30: 8, 500: 2}
NOISE_SIZES = (0.01, 0.3, 3.0)  # nats

ROUNDING = 1e-13
KERNEL_REASON = "relative to the sum of the sizes of the terms: at most 500, each of a few roundings"

FLIP_PI, FLIP_MU = np.array([5, 7, 7]) / 19, np.array([6, 7, 4]) / 17
FLIP_HEAD = np.array([[0.0, 1.0], [-1.0, 0.0], [1.0, 1.0]])
"""A head of rank 2 that flips the sign of the first token's change, from -609/6137 to 98/6137."""


def simulate_geometry(rng: np.random.Generator) -> Simulation:
    """T11: what temperature, a shared head, masked tokens and noise do to the change of forward KL.

    >>> simulate_geometry(np.random.default_rng(0)).ok
    True
    """
    batches = draw_batches(rng, COUNTS)
    heads = [_random_head(rng, batch.pair.vocab) for batch in batches]
    temperatures = [rng.uniform(0.3, 3.0, size=(len(batch.action), 1)) for batch in batches]
    slopes = [_log_prob_ladder(rng, b, t) for b, t in zip(batches, temperatures, strict=True)]
    pushes = [_temperature_ladder(b, t) for b, t in zip(batches, temperatures, strict=True)]
    noisy = [_noise_ladder(b, rng.standard_normal(b.pair.log_pi.shape)) for b in batches]
    return Simulation(
        "T11 geometry",
        (
            order(slopes, "remainder of d log pi_k / dz = (e_k - pi) / T at temperature T", COUNTS, 2.0),
            order(pushes, "remainder of dD/d eta = A r c_k / T^2 at temperature T", COUNTS, 2.0),
            *_head_checks(batches, heads),
            _flip_check(),
            _masked_check(batches),
            order(noisy, "remainder of sum d eps + Var_pi(eps) / 2", COUNTS, 3.0),
            *_noise_bounds(rng, batches),
            _mean_noise_check(batches),
        ),
    )


def _random_head(rng: np.random.Generator, vocab: int) -> Floats:
    rank = max(1, vocab // 4)
    return np.asarray(rng.standard_normal((vocab, rank)) / np.sqrt(rank))


def _log_prob_ladder(rng: np.random.Generator, batch: Batch, temperature: Floats) -> Ladder:
    log_pi, action = batch.pair.log_pi, batch.action
    logits, direction = temperature * log_pi, rng.standard_normal(log_pi.shape)
    rate = np.sum(policy_gradient_direction(log_pi, action) / temperature * direction, axis=-1)
    top = TOP_SPREAD / np.ptp(direction / temperature, axis=-1)

    def remainder(fraction: float) -> Floats:
        step = fraction * top
        after = at_action(log_softmax((logits + step[:, None] * direction) / temperature), action)
        return np.asarray(after - at_action(log_pi, action) - step * rate)

    terms = top * np.max(np.abs(direction) / temperature, axis=-1)
    return climb(remainder, 1 + np.max(np.abs(log_pi), axis=-1), terms)


def _temperature_ladder(batch: Batch, temperature: Floats) -> Ladder:
    """Logits z with pi = softmax(z / T) move by the gradient of log pi_k in z, which is (e_k - pi) / T."""
    pair = batch.pair
    logits = temperature * pair.log_pi
    gradient = policy_gradient_direction(pair.log_pi, batch.action) / temperature
    rate = EUCLIDEAN.rate(FORWARD_KL, pair, batch.action) / temperature[:, 0] ** 2
    top = TOP_SPREAD / np.ptp(gradient / temperature, axis=-1)
    before = FORWARD_KL.measure(pair.log_mu, pair.log_pi)

    def remainder(fraction: float) -> Floats:
        step = fraction * top
        after = log_softmax((logits + step[:, None] * gradient) / temperature)
        return np.asarray(FORWARD_KL.measure(pair.log_mu, after) - before - step * rate)

    terms = (
        top * rate_terms(FORWARD_KL, pair, gradient / temperature) * np.maximum(1, temperature[:, 0] ** -2)
    )
    return climb(remainder, value_terms(FORWARD_KL, pair), terms)


def _head_checks(batches: list[Batch], heads: list[Floats]) -> tuple[Check, ...]:
    """A linear head of rank V/4: its rate against exact steps, the kernel formula, and its mean."""
    geometries = [linear_head(head) for head in heads]
    steps = [
        one_step(FORWARD_KL, g, b.pair, b.action).ladder for g, b in zip(geometries, batches, strict=True)
    ]
    gaps, means, signs = [], [], []
    for batch, head, geometry in zip(batches, heads, geometries, strict=True):
        if batch.pair.vocab > 30:
            continue
        pair, action = every_token(batch.pair)
        rate = geometry.rate(FORWARD_KL, pair, action)
        size = _head_size(batch.pair, head)
        by_kernel = kernel_change(FORWARD_KL, pair.log_mu, pair.log_pi, action, head @ head.T)
        gaps.append((np.abs(rate - by_kernel) / size).ravel())
        means.append(np.abs(mean_under(batch.pair.log_pi, rate)) / size[:, 0])
        if batch.pair.vocab == 2:
            d = difference(batch.pair.log_mu, batch.pair.log_pi)
            signs.append(((np.sign(rate) == np.sign(d)) | (np.abs(rate) < ROUNDING * size)).ravel())
    small = [vocab for vocab in COUNTS if vocab <= 30]
    return (
        order(steps, "remainder of the change with a linear head", COUNTS, 2.0),
        check(
            np.concatenate(gaps), "q . W W^T (e_k - pi), factored = by kernel", small, ROUNDING, KERNEL_REASON
        ),
        check(np.concatenate(means), "E_pi of the change with a head = 0", small, ROUNDING, KERNEL_REASON),
        truth(np.concatenate(signs), "V = 2: any head agrees with the ratio test", [2]),
    )


def _head_size(pair: PolicyPair, head: Floats) -> Floats:
    """(n, 1) size of the terms that the change with a head sums."""
    q = np.abs(FORWARD_KL.logit_grad(pair.log_mu, pair.log_pi))
    return np.asarray(np.sum(q, axis=-1, keepdims=True) * np.max(np.sum(head**2, axis=-1)))


def _flip_check() -> Check:
    pair, token = PolicyPair(np.log(FLIP_MU), np.log(FLIP_PI)), np.array(0)
    errors = [
        abs(float(geometry.rate(FORWARD_KL, pair, token)) - expected / 6137)
        for geometry, expected in ((EUCLIDEAN, -609), (linear_head(FLIP_HEAD), 98))
    ]
    name = "V = 3: a head of rank 2 turns -609/6137 into 98/6137"
    return check(errors, name, [3], 1e-15, "absolute: three terms below 1")


def _masked_check(batches: list[Batch]) -> Check:
    """Two tokens that both policies forbid change no divergence and no rate."""
    errors = []
    for batch in batches:
        pair, action = batch.pair, batch.action
        forbidden = np.full((len(action), 2), -np.inf)
        wider = PolicyPair(
            np.concatenate([pair.log_mu, forbidden], axis=-1),
            np.concatenate([pair.log_pi, forbidden], axis=-1),
        )
        for divergence in DIVERGENCES.values():
            measure = divergence.measure(pair.log_mu, pair.log_pi)
            widened = divergence.measure(wider.log_mu, wider.log_pi)
            errors.append(np.abs(widened - measure) / (1 + measure))
            rate = change(View.full(pair.log_mu, pair.log_pi, action), divergence)
            masked = change(View.full(wider.log_mu, wider.log_pi, action), divergence)
            size = 1 + np.sum(np.abs(divergence.logit_grad(pair.log_mu, pair.log_pi)), axis=-1)
            errors.append(np.abs(masked - rate) / size)
    reason = "relative to 1 + the terms: the same sums, added in another order"
    return check(np.concatenate(errors), "forbidden tokens change nothing", COUNTS, 1e-14, reason)


def _noise_ladder(batch: Batch, noise: Floats) -> Ladder:
    pair = batch.pair
    first = np.sum(difference(pair.log_mu, pair.log_pi) * noise, axis=-1)
    second = curvature(pair.log_pi, noise)
    top = TOP_SPREAD / np.ptp(noise, axis=-1)

    def remainder(fraction: float) -> Floats:
        step = fraction * top
        rise = finite_change(pair.log_mu, pair.log_pi, step[:, None] * noise)
        return np.asarray(rise - step * first - step**2 / 2 * second)

    return climb(remainder, np.zeros_like(top), top * rate_terms(FORWARD_KL, pair, noise), ratio=RATIO_THIRD)


def _noise_bounds(rng: np.random.Generator, batches: list[Batch]) -> tuple[Check, ...]:
    """Noise of at most e nats on every logit, at the corners of the cube, where the bounds are tightest."""
    drift, engine = [], []
    for batch in batches:
        pair = batch.pair
        tv = TV.measure(pair.log_mu, pair.log_pi)
        for e in NOISE_SIZES:
            corner = e * rng.choice([-1.0, 1.0], size=pair.log_pi.shape)
            rise = finite_change(pair.log_mu, pair.log_pi, corner)
            drift.append(np.maximum(rise - (2 * e * tv + e**2 / 2), 0) / e)
            after = exponential_path(pair.log_mu, corner, 1.0)
            engine.append(np.maximum(FORWARD_KL.measure(pair.log_mu, after) - e**2 / 2, 0) / e)
    reason = "relative to e, the size of the noise"
    return (
        check(
            np.concatenate(drift), "|eps| <= e raises D by at most 2 e TV + e^2 / 2", COUNTS, ROUNDING, reason
        ),
        check(
            np.concatenate(engine),
            "|eps| <= e between equal policies: D <= e^2 / 2",
            COUNTS,
            ROUNDING,
            reason,
        ),
    )


def _mean_noise_check(batches: list[Batch]) -> Check:
    """E[Var_pi(eps) / 2] = sigma^2 (1 - sum pi^2) / 2, over all signs of independent +-sigma noise."""
    errors = []
    sigma = 0.5
    for batch in (batch for batch in batches if batch.pair.vocab <= 3):
        signs = sigma * np.array(list(product((-1.0, 1.0), repeat=batch.pair.vocab)))
        rises = [curvature(batch.pair.log_pi, corner) / 2 for corner in signs]
        pi = np.exp(batch.pair.log_pi)
        expected = sigma**2 * (1 - np.sum(pi**2, axis=-1)) / 2
        errors.append(np.abs(np.mean(rises, axis=0) - expected))
    name = "independent noise: E[rise] = sigma^2 (1 - sum pi^2) / 2 to second order"
    return check(np.concatenate(errors), name, [2, 3], 1e-15, "absolute: eight terms below 1/4")
