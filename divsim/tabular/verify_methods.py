r"""Numerical checks of T9 and T13: the soft penalties of DRPO and SPO, and Gaussian policies.

The shipped rules against losses written out as in the papers, and the closed form for Gaussian policies
against a divergence found by quadrature. What is left out: training with them.
"""

from collections.abc import Callable

import numpy as np

from divsim.formulas import CHI2_PI_MU, FORWARD_KL, Rule, View, difference, drpo, log_ratio, mean_under, spo

from .check import Check, Simulation, check
from .geometry import EUCLIDEAN
from .ladder import Ladder, climb, order
from .policies import Batch, Floats, at_action, draw_batches, every_token

COUNTS = {2: 10, 5: 10, 60: 5}
RADIUS = 0.2
NO_CAP = 1e300  # expectations enumerate every token, rare ones with huge ratios too
TOP_LOG_MOVE = 0.01  # nats of log pi_k: the loss is a cubic in r, so each order is about a hundredth

Objective = Callable[[Floats, Floats, Floats], Floats]
"""(log_mu_k, log_pi_k, advantage) -> surrogate, each (n,)."""


def drpo_objective(log_mu_k: Floats, log_pi_k: Floats, advantage: Floats) -> Floats:
    """r A - |A| mu_k (r - 1)^2 / (2 delta) at delta = `RADIUS`: [DRPO] eq. 8.

    >>> float(drpo_objective(np.log([0.5]), np.log([0.5]), np.array([2.0]))[0])
    2.0
    """
    r = np.exp(log_pi_k - log_mu_k)
    return np.asarray(r * advantage - np.abs(advantage) * np.exp(log_mu_k) * (r - 1) ** 2 / (2 * RADIUS))


def spo_objective(log_mu_k: Floats, log_pi_k: Floats, advantage: Floats) -> Floats:
    """r A - |A| (r - 1)^2 / (2 eps) at eps = `RADIUS`: [SPO].

    >>> float(spo_objective(np.log([0.5]), np.log([0.5]), np.array([2.0]))[0])
    2.0
    """
    r = np.exp(log_pi_k - log_mu_k)
    return np.asarray(r * advantage - np.abs(advantage) * (r - 1) ** 2 / (2 * RADIUS))


SOFT_RULES: dict[str, tuple[Rule, Objective]] = {
    "DRPO": (drpo(RADIUS, NO_CAP), drpo_objective),
    "SPO": (spo(RADIUS, NO_CAP), spo_objective),
}
"""The shipped rule and the objective of its paper."""


def simulate_penalties(rng: np.random.Generator) -> Simulation:
    """T9: weights of DRPO and SPO are derivatives of their losses; where they vanish; what they penalise.

    >>> simulate_penalties(np.random.default_rng(0)).ok
    True
    """
    batches = draw_batches(rng, COUNTS)
    advantages = [rng.standard_normal(len(batch.action)) for batch in batches]
    derivatives = [
        order(
            [_weight_ladder(*SOFT_RULES[name], b, a) for b, a in zip(batches, advantages, strict=True)],
            f"remainder of d objective / d log pi_k = weight A, {name}",
            COUNTS,
            2.0,
        )
        for name in SOFT_RULES
    ]
    return Simulation("T9 soft penalties", (*derivatives, *_zero_checks(rng), *_expectation_checks(batches)))


def _weight_ladder(rule: Rule, objective: Objective, batch: Batch, advantage: Floats) -> Ladder:
    log_mu_k, log_pi_k = (
        at_action(batch.pair.log_mu, batch.action),
        at_action(batch.pair.log_pi, batch.action),
    )
    view = View.sampled(log_mu_k, log_pi_k, batch.pair.vocab)
    slope = rule(view, advantage).weight * advantage
    before = objective(log_mu_k, log_pi_k, advantage)

    def remainder(fraction: float) -> Floats:
        move = fraction * TOP_LOG_MOVE
        after = objective(log_mu_k, log_pi_k + move, advantage)
        return np.asarray(after - before - move * slope)

    reinforced = np.exp(log_pi_k - log_mu_k) * np.abs(advantage)
    terms = TOP_LOG_MOVE * (reinforced + np.abs(slope))
    return climb(remainder, scale=reinforced + np.abs(before), terms=terms)


def _zero_checks(rng: np.random.Generator) -> tuple[Check, ...]:
    """The weight is zero at sgn(A) d_k = delta, and at sgn(A) (r - 1) = eps."""
    advantage = rng.standard_normal(200)
    mu = rng.uniform(RADIUS, 1 - RADIUS, size=200)
    side = np.sign(advantage)
    edges = {"DRPO": mu + side * RADIUS, "SPO": mu * (1 + side * RADIUS)}
    errors = {
        name: np.abs(SOFT_RULES[name][0](View.sampled(np.log(mu), np.log(pi), 2), advantage).weight)
        for name, pi in edges.items()
    }
    reason = "absolute: 1 minus a gap over a radius of 0.2, times a ratio below 2"
    return tuple(
        check(error, f"{name}: weight zero at the radius", [2], tolerance=1e-14, reason=reason)
        for name, error in errors.items()
    )


def _expectation_checks(batches: list[Batch]) -> tuple[Check, ...]:
    """What the penalties are in expectation, from the rules' own weights."""
    euclid, chi2, pull = [], [], []
    for batch in batches:
        pair, action = every_token(batch.pair)
        gap = difference(batch.pair.log_mu, batch.pair.log_pi)
        view = View.full(pair.log_mu, pair.log_pi, action)
        ones = np.ones_like(gap)
        r = np.exp(log_ratio(batch.pair.log_mu, batch.pair.log_pi))
        drpo_penalty = 2 * RADIUS * (r - SOFT_RULES["DRPO"][0](view, ones).surrogate)
        spo_penalty = 2 * RADIUS * (r - SOFT_RULES["SPO"][0](view, ones).surrogate)
        expected = CHI2_PI_MU.measure(batch.pair.log_mu, batch.pair.log_pi)
        euclid.append(np.abs(mean_under(batch.pair.log_mu, drpo_penalty) - np.sum(gap**2, axis=-1)))
        chi2.append(np.abs(mean_under(batch.pair.log_mu, spo_penalty) - expected) / (1 + expected))
        extra = SOFT_RULES["DRPO"][0](view, ones).weight - r
        rate = mean_under(batch.pair.log_mu, extra * EUCLIDEAN.rate(FORWARD_KL, pair, action))
        variance = mean_under(batch.pair.log_pi, (gap - mean_under(batch.pair.log_pi, gap)[:, None]) ** 2)
        pull.append(np.abs(rate + variance / RADIUS))
    reason = "absolute (chi2: relative to 1 + chi2): 60 terms, each a difference of numbers of size 1"
    claims = (
        ("E_mu[DRPO penalty] = |pi - mu|^2", euclid),
        ("E_mu[SPO penalty] = chi2(pi || mu)", chi2),
        ("|A| = 1: DRPO's penalty moves forward KL at the rate -Var_pi(d) / delta", pull),
    )
    return tuple(check(np.concatenate(e), name, COUNTS, 1e-13, reason) for name, e in claims)


def simulate_gaussian(rng: np.random.Generator) -> Simulation:
    """T13: one policy-gradient step of a Gaussian policy changes its KL by an exact quadratic in eta.

    >>> simulate_gaussian(np.random.default_rng(0)).ok
    True
    """
    dimensions = (1, 2, 16, 1000)
    errors = np.concatenate([_gaussian_errors(rng, dimension) for dimension in dimensions])
    name = "KL(eta) - KL = s (log r - KL) / sigma^2 + s^2 |x - theta|^2 / (2 sigma^6), by dimension"
    reason = "relative to 1 + KL before + KL after: 1000 squares per quadrature"
    return Simulation("T13 Gaussian policies", (check(errors, name, dimensions, 1e-12, reason),))


def _gaussian_errors(rng: np.random.Generator, dimension: int, cases: int = 50) -> Floats:
    """Closed form against quadrature: s = eta A r, x drawn from the behaviour policy N(theta0, sigma^2 I)."""
    shape = (cases, dimension)
    sigma = rng.uniform(0.3, 3.0, size=(cases, 1))
    theta0 = rng.standard_normal(shape)
    theta = theta0 + sigma * rng.standard_normal(shape) / np.sqrt(dimension)
    x = theta0 + sigma * rng.standard_normal(shape)
    log_r = (np.sum((x - theta0) ** 2, axis=-1) - np.sum((x - theta) ** 2, axis=-1)) / (2 * sigma[:, 0] ** 2)
    eta_advantage = rng.normal(scale=0.1, size=cases)
    s = eta_advantage * np.exp(log_r)
    after = theta + s[:, None] * (x - theta) / sigma**2
    kl, kl_after = _gaussian_kl(theta, theta0, sigma), _gaussian_kl(after, theta0, sigma)
    far = np.sum((x - theta) ** 2, axis=-1)
    predicted = s * (log_r - kl) / sigma[:, 0] ** 2 + s**2 * far / (2 * sigma[:, 0] ** 6)
    return np.asarray(np.abs(kl_after - kl - predicted) / (1 + kl + kl_after))


def _gaussian_kl(theta: Floats, theta0: Floats, sigma: Floats) -> Floats:
    """KL(N(theta0) || N(theta)) by Gauss-Hermite quadrature in each coordinate; exact for quadratics."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(2)
    points = theta0[..., None] + sigma[..., None] * nodes
    log_gap = ((points - theta[..., None]) ** 2 - (points - theta0[..., None]) ** 2) / (
        2 * sigma[..., None] ** 2
    )
    return np.asarray(np.sum(log_gap @ (weights / np.sum(weights)), axis=-1))
