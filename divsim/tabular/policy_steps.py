r"""What the field does in place of the exact trust-region step: each (problem, ...) -> log pi.

A natural gradient step of a length that a quadratic model allows, a mirror step in closed form and by
gradient steps, a KL penalty with the rule that adapts it, and a mixture with the greedy policy. All act on
tabular logits and take exact expectations; none leaves the support of mu or moves where mu never goes. What
is left out: the yardstick they are measured by (`trust_region.py`), and masks.
"""

import numpy as np
from numpy.typing import ArrayLike

from divsim.formulas import REVERSE_KL, curvature, exponential_path

from .policies import Bools, Floats
from .trust_region import (
    Problem,
    Region,
    as_radius,
    check_scope,
    distance,
    forward_tilt,
    last_inside,
    reverse_tilt,
    surrogate,
)

TINY = 1e-300
"""A variance below it, of a gap near 1, is none: the step that it would allow is longer than any float."""


def natural_gradient(problem: Problem, delta: ArrayLike, scope: str) -> Floats:
    r"""A natural policy gradient step whose length a quadratic model of the KL allows.

        log pi = log mu + eta A - log Z,   delta = eta^2 Var_mu(A) / 2

    or the weighted mean of the variances, with one eta for all states. Along this path both KL divergences
    have the second derivative Var_mu(A) at mu; what they reach is not delta. The overshoot is
    `distance(problem, log_pi, ...) / delta`.

    Args:
      problem: mu, advantages and weights, leading shape (...).
      delta: radius > 0, nats; a number or an array that broadcasts against (...).
      scope: "state" gives each state its own eta, "mean" one eta to all.

    Returns:
      (..., S, V) log-probabilities, nats; mu where A is constant: its variance under mu at most 1e-300 of its
      squared range.

    Errors: ValueError for delta <= 0 or an unknown scope.
    Source: the step of [TRPO] section 6 without its line search; for the softmax derivations, T5 and T10.

    >>> problem = Problem(np.log([[0.5, 0.5]]), np.array([[1.0, -1.0]]), np.array([1.0]))
    >>> np.exp(natural_gradient(problem, np.log(3) ** 2 / 8, "state")).round(6).tolist()  # eta = log(3) / 2
    [[0.75, 0.25]]
    """
    check_scope(scope)
    rising = -_near_one(problem.gap, (-1,) if scope == "state" else (-2, -1))
    variance = curvature(problem.log_mu, rising)
    if scope == "mean":
        variance = np.sum(problem.weight * variance, axis=-1, keepdims=True)
    can_move = variance > TINY
    squared = 2 * as_radius(delta)[..., None] / np.where(can_move, variance, 1)
    eta = np.where(can_move, np.sqrt(squared), 0)
    log_pi: Floats = exponential_path(problem.log_mu, rising, eta[..., None])
    return log_pi


def _near_one(gap: Floats, axes: tuple[int, ...]) -> Floats:
    """Scaled so that the largest is in [1/2, 1): by a power of two, which rounds nothing; 0 stays."""
    _, exponent = np.frexp(np.max(gap, axis=axes, keepdims=True))
    return np.asarray(np.ldexp(gap, -exponent))


def mirror(problem: Problem, rate: ArrayLike) -> Floats:
    """The mirror step in closed form, pi ~ mu e^{rate A}: the maximiser of E_pi[A] - KL(pi || mu) / rate.

    Args:
      problem: mu and advantages, leading shape (...).
      rate: > 0, nats per unit of reward; a number or an array that broadcasts against (...).

    Returns:
      (..., S, V) log-probabilities, nats.

    Errors: ValueError for rate <= 0.
    Source: Gibbs' variational principle; derivations, T10 (its symmetric KL is rate times what it gains).

    >>> problem = Problem(np.log([[0.5, 0.5]]), np.array([[1.0, 0.0]]), np.array([1.0]))
    >>> np.exp(mirror(problem, np.log(3.0))).round(6).tolist()
    [[0.75, 0.25]]
    """
    return reverse_tilt(problem.log_mu, problem.gap, -_log_positive("rate", rate)[..., None])


def mdpo(problem: Problem, rate: float, steps: int, lr: float) -> Floats:
    r"""The mirror step as mirror descent policy optimisation takes it: a few exact gradient steps from mu.

        dz = lr grad_z (E_pi[A] - KL(pi || mu) / rate)

    Args:
      problem: mu and advantages.
      rate: > 0, nats per unit of reward.
      steps: number of gradient steps >= 0; `mirror` is the limit of many.
      lr: size of a step in the logits, well below 4 rate: near mu the pull bends by at most 1 / (2 rate).

    Returns:
      (..., S, V) log-probabilities, nats.

    Source: derived here, the exact form of [MDPO] (on policy), whose expectations are sampled.

    >>> problem = Problem(np.log([[0.5, 0.5]]), np.array([[1.0, 0.0]]), np.array([1.0]))
    >>> [np.exp(mdpo(problem, np.log(3.0), steps, 1.0)).round(3).tolist() for steps in (0, 1, 30)]
    [[[0.5, 0.5]], [[0.622, 0.378]], [[0.75, 0.25]]]
    """
    log_pi = problem.log_mu
    for _ in range(steps):
        pi = np.exp(log_pi)
        reward = pi * (np.sum(pi * problem.gap, axis=-1, keepdims=True) - problem.gap)
        pull = REVERSE_KL.logit_grad(problem.log_mu, log_pi) / rate
        log_pi = exponential_path(log_pi, reward - pull, lr)
    return log_pi


def penalised(problem: Problem, beta: ArrayLike) -> Floats:
    """The exact inner problem of PPO's KL penalty: the maximiser of E_pi[A] - beta KL(mu || pi).

    Args:
      problem: mu and advantages, leading shape (...).
      beta: penalty > 0 in units of reward per nat; a number or an array that broadcasts against (...).

    Returns:
      (..., S, V) log-probabilities, nats.

    Errors: ValueError for beta <= 0.
    Source: [PPO] eq. 8; solved by `forward_tilt`.

    >>> problem = Problem(np.log([[0.5, 0.5]]), np.array([[4 / 3, 0.0]]), np.array([1.0]))
    >>> np.exp(penalised(problem, 1.0)).round(6).tolist()
    [[0.75, 0.25]]
    """
    return forward_tilt(problem.log_mu, problem.gap, _log_positive("beta", beta)[..., None])


def adapt(beta: ArrayLike, distance: ArrayLike, target: float) -> Floats:
    """The next KL penalty: half where the distance fell short of target / 1.5, double beyond 1.5 target.

    Args: beta, distance: (...), broadcast; target: > 0, nats.
    Returns: (...), as beta.
    Source: [PPO] section 4.

    >>> adapt(1.0, [0.005, 0.01, 0.02], target=0.01).tolist()
    [0.5, 1.0, 2.0]
    """
    kl = np.asarray(distance)
    factor = np.where(kl < target / 1.5, 0.5, np.where(kl > 1.5 * target, 2.0, 1.0))
    return np.asarray(beta * factor)


def conservative(problem: Problem, alpha: ArrayLike) -> Floats:
    """A mixture with the greedy policy, (1 - alpha) mu + alpha greedy.

    Args:
      problem: mu and advantages, leading shape (...).
      alpha: in [0, 1]; a number or an array that broadcasts against (...).

    Returns:
      (..., S, V) log-probabilities, nats.

    Errors: ValueError for an alpha outside [0, 1].
    Source: [KL02] section 4.

    >>> problem = Problem(np.log([[0.2, 0.3, 0.5]]), np.array([[2.0, 1.0, 0.0]]), np.array([1.0]))
    >>> np.exp(conservative(problem, 0.5)).round(6).tolist()
    [[0.6, 0.15, 0.25]]
    """
    mixing = np.asarray(alpha, dtype=np.float64)[..., None, None]
    if not np.all((mixing >= 0) & (mixing <= 1)):
        raise ValueError(f"alpha must be in [0, 1], got {alpha!r}; it is the share of the greedy policy")
    is_best = problem.gap == 0
    mu = np.exp(problem.log_mu)
    best = np.sum(np.where(is_best, mu, 0), axis=-1, keepdims=True)
    rest = np.sum(np.where(is_best, 0, mu), axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):  # log 0 at alpha = 1
        fall = np.log1p(-mixing)
    return np.asarray(problem.log_mu + np.where(is_best, np.log1p(mixing * rest / best), fall))


def conservative_rate(problem: Problem, delta: ArrayLike, region: Region, scope: str) -> Floats:
    """The largest mixing that stays within delta of mu, which every state shares.

    A divergence is convex in pi and 0 at mu, so it grows along the mixture.

    Args:
      problem: mu, advantages and weights, leading shape (...).
      delta: radius > 0 in the unit of the divergence; broadcasts against (...).
      region: an entry of `REGIONS`.
      scope: "state" or "mean".

    Returns:
      (...) alpha in [0, 1]; 1 where the greedy policy is within delta.

    Errors: ValueError for delta <= 0 or an unknown scope.
    Source: derived here.

    >>> from divsim.tabular.trust_region import REGIONS
    >>> problem = Problem(np.log([[0.2, 0.3, 0.5]]), np.array([[2.0, 1.0, 0.0]]), np.array([1.0]))
    >>> round(float(conservative_rate(problem, 0.2, REGIONS["tv"], "state")), 6)
    0.25
    """
    radius = as_radius(delta)

    def is_inside(alpha: Floats) -> Bools:
        log_pi = conservative(problem, alpha)
        return np.asarray(distance(problem, log_pi, region.divergence, scope) <= radius)

    all_the_way = np.ones(np.broadcast_shapes(radius.shape, problem.weight.shape[:-1]))
    return last_inside(is_inside, np.zeros_like(all_the_way), all_the_way)


def safe_mixing(problem: Problem, horizon: int, epsilon: ArrayLike) -> Floats:
    r"""The mixing with the largest guaranteed gain over an episode of T steps.

        J(pi) - J(mu) >= alpha L - alpha^2 epsilon T (T - 1),   epsilon = max_s |E_greedy[A_s]|

    with L the surrogate of the greedy policy summed over steps. Proof. Abar = E_greedy[A] under mu's own
    advantage, so E_pi[A] = alpha Abar and the gain is alpha sum_t E_{d_t^pi}[Abar] (performance difference).
    Let pi toss a coin at each step, greedy with probability alpha. Before step t = 1..T it never came up with
    probability (1 - alpha)^(t-1), and then the state is distributed as d_t^mu. So the mean of Abar under
    d_t^pi is off by at most 2 epsilon (1 - (1 - alpha)^(t-1)) <= 2 epsilon alpha (t - 1), which sums to
    epsilon alpha T (T - 1). A greedy Abar lies in [0, epsilon], so half of that would do.

    Args:
      problem: mu, mu's own advantages (mean 0 under mu), and the weights d_t(s) / T of all (t, s).
      horizon: T >= 1.
      epsilon: (...) or a number, max_s |E_greedy[A_s]| or a bound on it.

    Returns:
      (...) alpha in [0, 1]: L / (2 epsilon T (T - 1)), at most 1; 0 where nothing is to be gained.

    Source: derived here, the finite-horizon form of [KL02] Theorem 4.1; T = 1 has no penalty.

    >>> problem = Problem(np.log([[0.5, 0.5]]), np.array([[1.0, -1.0]]), np.array([1.0]))
    >>> [float(safe_mixing(problem, horizon, 1.0)) for horizon in (1, 2, 5)]
    [1.0, 0.5, 0.125]
    """
    gain = horizon * surrogate(problem, problem.greedy)
    penalty = np.asarray(epsilon, dtype=np.float64) * horizon * (horizon - 1)
    is_free = penalty <= gain / 2
    return np.where(gain <= 0, 0.0, np.where(is_free, 1.0, gain / (2 * np.where(is_free, 1.0, penalty))))


def _log_positive(name: str, value: ArrayLike) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array > 0):
        raise ValueError(f"{name} must be > 0, got {value!r}; pass a positive number")
    return np.asarray(np.log(array))
