r"""The yardstick: the exact optimum of one trust-region step, which masks imitate.

Given the behaviour policy mu, its advantages and how often it is in each state, find the policy pi that
maximises the surrogate sum_s w_s E_pi[A_s] among those within delta of mu. Three divergences, each bounded in
every state or in the mean. Both KL problems are one search for a Lagrange multiplier lam; the TV problem is a
knapsack. pi never leaves the support of mu, since nothing is known of what mu never does. Nothing is sampled
and no step is approximate; the steps the field takes instead are in `policy_steps.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from divsim.formulas import FORWARD_KL, REVERSE_KL, TV, Divergence, log_mass, log_softmax, mean_under

from .policies import Bools, Floats

SCOPES = ("state", "mean")
"""Where a distance is bounded: in every state that mu visits, or in the mean over them."""

LOG_TINY = -690.0  # 1e-300: a likelihood below it stays as it is, so that no quotient of two overflows
LOG_HUGE = 700.0  # e^700 is just finite
LARGEST_ADVANTAGE = 8e307  # so that the difference of two is a float


@dataclass(frozen=True)
class Problem:
    """A batch of one-step problems: improve on mu, given its advantages.

    Attributes:
      log_mu: (..., S, V) behaviour log-probabilities, nats; -inf is allowed.
      advantage: (..., S, V) in units of reward, at most 8e307 in size; a constant for each state changes no
        optimum.
      weight: (..., S) how often mu is in each state, sums to 1 over S. A bandit is S = 1. A policy of T steps
        is T S states with the weight d_t(s) / T.

    Errors: ValueError for shapes that disagree, a mu or weights that are no distribution, or an advantage
      that is not finite or whose differences are not.

    >>> Problem(np.log([[0.5, 0.5]]), np.array([[1.0, 0.0]]), np.array([1.0])).weight.shape
    (1,)
    """

    log_mu: Floats
    advantage: Floats
    weight: Floats

    def __post_init__(self) -> None:
        shapes = (self.advantage.shape, self.weight.shape)
        expected = (self.log_mu.shape, self.log_mu.shape[:-1])
        if shapes != expected:
            raise ValueError(f"advantage and weight must have shapes {expected} as log_mu has, got {shapes}")
        if not np.all(np.isfinite(self.advantage)):
            raise ValueError("advantage must be finite, got inf or NaN; where mu is 0 pass any number")
        largest = np.max(np.abs(self.advantage), initial=0)
        if largest > LARGEST_ADVANTAGE:
            raise ValueError(
                f"advantage must be at most {LARGEST_ADVANTAGE:.0e} in size, got {largest:g}; divide by it"
            )
        mass = np.sum(np.exp(self.log_mu), axis=-1)
        if not np.allclose(mass, 1, rtol=0, atol=1e-9):
            raise ValueError(f"log_mu must be log-probabilities, mu sums to {mass}; take log_softmax")
        total = np.sum(self.weight, axis=-1)
        if not (np.all(self.weight >= 0) and np.allclose(total, 1, rtol=0, atol=1e-9)):
            raise ValueError(f"weight must be >= 0 and sum to 1 over S, got sums {total}; divide by them")

    @property
    def gap(self) -> Floats:
        """(..., S, V) what an action falls short of its state's best, >= 0.

        0 where there is nothing to learn: for an action that mu never takes, in a state that mu never visits.
        """
        is_known = (self.log_mu > LOG_TINY) & (self.weight > 0)[..., None]
        best = np.max(self.advantage, axis=-1, keepdims=True, where=is_known, initial=-np.inf)
        gap: Floats = np.where(is_known, best, self.advantage) - self.advantage
        return gap

    @property
    def greedy(self) -> Floats:
        """(..., S, V) log-probabilities of mu restricted to the best actions, where every optimum ends."""
        log_pi: Floats = log_softmax(np.where(self.gap == 0, self.log_mu, -np.inf))
        return log_pi


def surrogate(problem: Problem, log_pi: Floats) -> Floats:
    """What the step promises, sum_s w_s E_pi[A_s]: (..., S, V) -> (...), in units of reward.

    In a bandit the return itself; in a decision process the gain to first order, for each step.
    Source: [TRPO] eq. 3, as a mean over states.

    >>> problem = Problem(np.log([[0.5, 0.5]]), np.array([[1.0, -1.0]]), np.array([1.0]))
    >>> float(surrogate(problem, np.log([[0.75, 0.25]])))
    0.5
    """
    return np.asarray(np.sum(problem.weight * mean_under(log_pi, problem.advantage), axis=-1))


def distance(problem: Problem, log_pi: Floats, divergence: Divergence, scope: str) -> Floats:
    """How far pi is from mu, over the states that mu visits: (..., S, V) -> (...), unit of the divergence.

    Scope "state" is the largest D(mu, pi) of a state, "mean" the weighted mean. Leading shapes broadcast.

    Errors: ValueError for an unknown scope.
    Source: [TRPO] section 3 (the largest) and eq. 12 (the mean).

    >>> problem = Problem(np.log([[0.5, 0.5]] * 2), np.zeros((2, 2)), np.array([0.75, 0.25]))
    >>> log_pi = np.log([[0.5, 0.5], [0.75, 0.25]])
    >>> [round(float(distance(problem, log_pi, TV, scope)), 6) for scope in SCOPES]
    [0.25, 0.0625]
    """
    check_scope(scope)
    return over_states(np.asarray(divergence.measure(problem.log_mu, log_pi)), problem.weight, scope)


def over_states(in_state: Floats, weight: Floats, scope: str) -> Floats:
    """The largest, or the weighted mean, of what each visited state has: (..., S) and (..., S) -> (...).

    What is in a state that is never visited does not count, not even infinity.

    >>> [float(over_states(np.array([1.0, 3.0, np.inf]), np.array([0.5, 0.5, 0.0]), s)) for s in SCOPES]
    [3.0, 2.0]
    """
    visited = np.where(weight > 0, in_state, 0)
    if scope == "state":
        return np.asarray(np.max(visited, axis=-1))
    return np.asarray(np.sum(weight * visited, axis=-1))


Tilt = Callable[[Floats, Floats, Floats], Floats]
"""(log_mu (..., S, V), gap (..., S, V), log lam (..., S)) -> argmax of E_pi[A] - lam D, (..., S, V)."""

Solve = Callable[[Problem, Floats], Floats]
"""(problem, delta (...)) -> the optimum (..., S, V) within a mean distance that binds."""


@dataclass(frozen=True)
class Region:
    """A trust region: the divergence that is bounded, and how its optimum is found.

    Attributes:
      name: its name in tables and flags.
      divergence: D(mu, pi) in one state.
      solve: the optimum under a bound on the mean distance.

    >>> REGIONS["tv"].divergence.name
    'tv'
    """

    name: str
    divergence: Divergence
    solve: Solve


def optimum(problem: Problem, region: Region, delta: ArrayLike, scope: str) -> Floats:
    """The best policy within delta of mu; the greedy one if it is within delta; mu where mu never goes.

    Args:
      problem: mu, advantages and weights, leading shape (...).
      region: an entry of `REGIONS`.
      delta: radius > 0 in the unit of the divergence; a number or an array that broadcasts against (...).
      scope: "state" bounds every state by delta, "mean" the weighted mean.

    Returns: (..., S, V) log-probabilities, nats.
    Errors: ValueError for delta <= 0 or an unknown scope.
    Source: derived here, from the optimality conditions of the two tilts, and by exchange of mass for TV.

    >>> problem = Problem(np.log([[0.2, 0.3, 0.5]]), np.array([[2.0, 1.0, 0.0]]), np.array([1.0]))
    >>> np.exp(optimum(problem, REGIONS["tv"], 0.25, "state")).round(6).tolist()
    [[0.45, 0.3, 0.25]]
    """
    check_scope(scope)
    radius = as_radius(delta)
    if scope == "mean":
        return _optimum(problem, region, radius)
    # A bound in every state is a bound on the mean of each of S problems with one state.
    rows = problem.log_mu[..., None, :], problem.advantage[..., None, :]
    apart = Problem(*rows, np.ones((*problem.weight.shape, 1)))
    log_pi = _optimum(apart, region, radius[..., None])[..., 0, :]
    return np.where((problem.weight > 0)[..., None], log_pi, problem.log_mu)


def forward_tilt(log_mu: Floats, gap: Floats, log_lam: Floats) -> Floats:
    r"""The maximiser of E_pi[A] - lam KL(mu || pi), the penalty with TRPO's and PPO's direction.

        pi_i = lam mu_i / (nu - A_i),   nu > max A such that sum_i pi_i = 1

    because the derivative in pi_i, A_i + lam mu_i / pi_i, is the same nu for every action. It is not the
    exponential tilt of `reverse_tilt`. With nu = max A + lam v the sum is 1 where h(v) = 1,
    h(v) = sum_i mu_i / (v + gap_i / lam): Newton's steps on the concave 1/h climb to v without overshooting
    from max(mu(best), 1 - E_mu[gap] / lam), a lower bound by Jensen's inequality.

    Args: log_mu (..., S, V) nats; gap (..., S, V) max A - A, 0 for an action that mu takes; log_lam (..., S).
    Returns: (..., S, V) log-probabilities, nats; leading shapes broadcast.
    Source: derived here. Constraint and penalty: [TRPO] eq. 12, [PPO] section 4.

    >>> log_pi = forward_tilt(np.log([0.5, 0.5]), np.array([0.0, 4 / 3]), np.log(1.0))
    >>> np.exp(log_pi).round(6).tolist()  # v = 2/3
    [0.75, 0.25]
    """
    log_scaled = log_mass(gap) - np.asarray(log_lam)[..., None]
    mu, scaled = np.exp(log_mu), np.exp(np.minimum(log_scaled, LOG_HUGE))
    v = np.maximum(np.sum(np.where(gap == 0, mu, 0), axis=-1), 1 - np.sum(mu * scaled, axis=-1))
    for _ in range(60):  # 19 were the most in a million problems of all scales
        share = mu / (v[..., None] + scaled)
        h = np.sum(share, axis=-1)
        climb = np.maximum(h / np.sum(share / (v[..., None] + scaled), axis=-1) * (h - 1), 0)
        v = v + climb
        if np.all(climb <= np.finfo(np.float64).eps * v):
            break
    log_pi: Floats = log_softmax(log_mu - np.logaddexp(np.log(v)[..., None], log_scaled))
    return log_pi


def reverse_tilt(log_mu: Floats, gap: Floats, log_lam: Floats) -> Floats:
    r"""The maximiser of E_pi[A] - lam KL(pi || mu), the exponential tilt.

        pi_i = mu_i e^{A_i / lam} / sum_j mu_j e^{A_j / lam}

    Args: log_mu (..., S, V) nats; gap (..., S, V) max A - A >= 0; log_lam (..., S).
    Returns: (..., S, V) log-probabilities, nats; leading shapes broadcast.
    Source: Gibbs' variational principle; a step of mirror descent.

    >>> np.exp(reverse_tilt(np.log([0.5, 0.5]), np.log([1.0, 3.0]), np.log(1.0))).round(6).tolist()
    [0.75, 0.25]
    """
    log_scaled = log_mass(gap) - np.asarray(log_lam)[..., None]
    log_pi: Floats = log_softmax(log_mu - np.exp(np.minimum(log_scaled, LOG_HUGE)))
    return log_pi


def last_inside(is_inside: Callable[[Floats], Bools], inside: Floats, outside: Floats) -> Floats:
    """Where a monotone condition still holds, by bisection to float64; the answer itself satisfies it.

    `is_inside` is elementwise and changes once between the two ends (...); at `inside` it holds.

    >>> root = last_inside(lambda x: x * x <= 2, np.array(0.0), np.array(2.0))
    >>> round(float(root), 12), bool(root * root <= 2)
    (1.414213562373, True)
    """
    for _ in range(64):  # the widest interval here is 1400, and 1400 / 2^64 < 1e-16
        middle = (inside + outside) / 2
        holds = is_inside(middle)
        inside, outside = np.where(holds, middle, inside), np.where(holds, outside, middle)
    return inside


def _optimum(problem: Problem, region: Region, delta: Floats) -> Floats:
    farthest = distance(problem, problem.greedy, region.divergence, "mean")
    is_slack = (farthest <= delta)[..., None, None]
    return np.where(is_slack, problem.greedy, region.solve(problem, delta))


def _by_multiplier(divergence: Divergence, tilt: Tilt) -> Solve:
    """The smallest lam whose tilt stays within delta.

    log lam = sinh x takes any size for |x| < 700: near -1 for an open state, -1e10 where the best action has
    all but 1e-10 of the mass.
    """

    def solve(problem: Problem, delta: Floats) -> Floats:
        largest = np.max(problem.gap, axis=(-2, -1), keepdims=True)
        gap = problem.gap / np.where(largest > 0, largest, 1)

        def tilted(x: Floats) -> Floats:
            return tilt(problem.log_mu, gap, np.sinh(x)[..., None])

        def is_inside(x: Floats) -> Bools:
            return np.asarray(distance(problem, tilted(x), divergence, "mean") <= delta)

        shape = np.broadcast_shapes(delta.shape, problem.weight.shape[:-1])
        return tilted(last_inside(is_inside, np.full(shape, LOG_HUGE), np.full(shape, -LOG_HUGE)))

    return solve


def _by_exchange(problem: Problem, delta: Floats) -> Floats:
    """Mass moves from the worst actions to the best of their state until delta is spent.

    Moving w mu costs as much of the mean TV and gains gap times as much: a knapsack of divisible goods.
    """
    mu, gap, weight = np.exp(problem.log_mu), problem.gap, problem.weight[..., None]
    mass = np.where(gap > 0, weight * mu, 0)
    flat = mass.reshape(*mass.shape[:-2], -1)
    order = np.argsort(-gap.reshape(flat.shape), axis=-1)
    queue = np.take_along_axis(flat, order, axis=-1)
    spent = np.clip(delta[..., None] - (np.cumsum(queue, axis=-1) - queue), 0, queue)
    places = np.broadcast_to(np.argsort(order, axis=-1), spent.shape)
    moved = np.take_along_axis(spent, places, axis=-1).reshape(*spent.shape[:-1], *mass.shape[-2:])
    left = 1 - moved / np.where(mass > 0, mass, 1)
    best = np.sum(np.where(gap == 0, weight * mu, 0), axis=-1, keepdims=True)
    gained = np.sum(moved, axis=-1, keepdims=True) / np.where(best > 0, best, 1)
    return np.asarray(problem.log_mu + np.where(gap == 0, np.log1p(gained), log_mass(left)))


def check_scope(scope: str) -> None:
    """Refuse a scope that is not in `SCOPES`."""
    if scope not in SCOPES:
        raise ValueError(f"scope must be one of {', '.join(SCOPES)}, got {scope!r}")


def as_radius(delta: ArrayLike) -> Floats:
    """`delta` as an array, refused unless it is positive."""
    radius = np.asarray(delta, dtype=np.float64)
    if not np.all(radius > 0):
        raise ValueError(f"delta must be > 0 (a radius), got {delta!r}; at 0 the answer is mu")
    return radius


REGIONS: dict[str, Region] = {
    region.name: region
    for region in (
        Region("forward_kl", FORWARD_KL, _by_multiplier(FORWARD_KL, forward_tilt)),
        Region("reverse_kl", REVERSE_KL, _by_multiplier(REVERSE_KL, reverse_tilt)),
        Region("tv", TV, _by_exchange),
    )
}
"""The trust regions by name: TRPO's KL(mu || pi), mirror descent's KL(pi || mu), and TV."""
