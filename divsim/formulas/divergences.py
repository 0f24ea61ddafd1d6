r"""Divergences between the behaviour policy mu and the training policy pi, one frozen record each.

Every record has a `measure` D(mu, pi) and a `logit_grad`, the gradient of D in the logits of pi. Both read
log-probabilities of *cells*: the tokens of a vocabulary, or any coarser partition of it. A top-K or a binary
divergence is the same record on coarser cells (`view.py`), never another formula.

Each measure sums one non-negative term per cell, written so that nearly equal policies do not cancel. A cell
where both probabilities are 0 contributes 0, so padding with -inf is neutral. What is left out: sequences,
masks, and any choice of radius.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ._array import Array, namespace
from .softmax import exp_or_inf

PairFunction = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Divergence:
    """A divergence D(mu, pi) over cells, with its gradient in the logits of pi.

    Attributes:
      name: its name in tables and flags.
      measure: (log_mu, log_pi), each (..., C) nats -> (...), >= 0; +inf where it diverges, never NaN.
      logit_grad: (log_mu, log_pi), each (..., C) nats -> (..., C), sums to zero over C. Where `measure`
        is +inf only `forward_kl` still has a finite gradient.
      convex_in_logits: True if D is convex along every line of logits of pi, so that a predicted increase
        of one token's logit step is real at every step size (derivations, T3 and T4).

    >>> import numpy as np
    >>> mu, pi = np.log(np.array([0.5, 0.3, 0.2])), np.log(np.array([0.4, 0.4, 0.2]))
    >>> round(float(FORWARD_KL.measure(mu, pi)), 6)
    0.025267
    """

    name: str
    measure: PairFunction
    logit_grad: PairFunction
    convex_in_logits: bool


def log_ratio(log_mu: Array, log_pi: Array) -> Array:
    """`log pi - log mu` per cell, with 0 where both probabilities are 0: (..., C) -> (..., C), nats."""
    xp = namespace(log_mu, log_pi)
    both_zero = (log_mu == -xp.inf) & (log_pi == -xp.inf)
    zero = xp.zeros_like(log_pi)
    return xp.where(both_zero, zero, log_pi) - xp.where(both_zero, zero, log_mu)


def difference(log_mu: Array, log_pi: Array) -> Array:
    r"""`pi - mu` per cell to full relative accuracy, also where the two nearly agree.

        pi - mu = sign(d) max(mu, pi) (1 - e^-|d|)                               (divergences.difference)

    with d = log pi - log mu.

    Args: log_mu, log_pi: (..., C) log-probabilities, nats.
    Returns: (..., C) in [-1, 1].
    Source: derived here.

    >>> import numpy as np
    >>> round(float(difference(np.log(np.array(0.4)), np.log(np.array(0.45)))), 12)
    0.05
    """
    return _signed(*_sides(_finite(log_mu), log_pi))


def kl_and_difference(log_mu: Array, log_pi: Array) -> tuple[Array, Array]:
    """KL(mu || pi), and its logit gradient pi - mu, in one pass: (..., C) each -> (...) and (..., C)."""
    sides = _sides(_finite(log_mu), _finite(log_pi))
    return _kl_sum(log_mu, log_pi, _bregman(*sides)), _signed(*sides)


def _sides(log_p: Array, log_q: Array) -> tuple[Array, Array, Array]:
    """What `difference` and a KL cell share: log(p/q), max(p, q), and min(p, q) / max(p, q) - 1."""
    xp = namespace(log_p, log_q)
    fall = log_p - log_q
    return fall, xp.exp(xp.maximum(log_p, log_q)), xp.expm1(-xp.abs(fall))


def _signed(fall: Array, larger: Array, shrink: Array) -> Array:
    return namespace(fall).sign(fall) * larger * shrink


def log_power(order: float, log_mu: Array, log_pi: Array) -> Array:
    """`a log mu + (1 - a) log pi`: (..., C) -> (..., C), -inf where both are 0, the limit where one is."""
    xp = namespace(log_mu, log_pi)
    both_zero = (log_mu == -xp.inf) & (log_pi == -xp.inf)
    mixed = order * xp.where(both_zero, xp.zeros_like(log_mu), log_mu) + (1 - order) * log_pi
    return xp.where(both_zero, log_pi, mixed)


def power_gap(order: float, log_mu: Array, log_pi: Array) -> Array:
    """`pi (w^a - 1)` per cell, w = mu / pi, a not 0 or 1, accurate near w = 1: (..., C) -> (..., C)."""
    xp = namespace(log_mu, log_pi)
    x = -order * log_ratio(log_mu, log_pi)
    larger = exp_or_inf(xp.maximum(log_power(order, log_mu, log_pi), log_pi))
    return -xp.sign(x) * larger * xp.expm1(-xp.abs(x))


def _finite(log_prob: Array) -> Array:
    """log 0 as half the lowest finite: (..., C) -> (..., C), so that no sum or difference overflows."""
    xp = namespace(log_prob)
    return xp.maximum(log_prob, xp.full_like(log_prob, xp.finfo(log_prob.dtype).min / 2))


def _kl_cell(log_p: Array, log_q: Array) -> Array:
    """`p log(p/q) - p + q` of finite logs, the Bregman form of a KL cell: non-negative, and q where p = 0."""
    return _bregman(*_sides(log_p, log_q))


def _bregman(fall: Array, larger: Array, shrink: Array) -> Array:
    """max(p, q) |e^-|d| - 1 + |d| min(1, p/q)|, d = log(p/q): what cancels is not yet rounded at p and q.

    What the outer |.| turns around is rounding of a term that is d^2/2.
    """
    xp = namespace(fall)
    return larger * xp.abs(shrink + xp.abs(fall) * xp.exp(xp.minimum(fall, xp.zeros_like(fall))))


def _weighted(log_p: Array, value: Array) -> Array:
    """`p * value`; an infinite value counts where p > 0, even if p underflows, and never where p = 0."""
    xp = namespace(log_p, value)
    is_infinite = xp.isinf(value)
    finite = xp.exp(log_p) * xp.where(is_infinite, xp.zeros_like(value), value)
    return xp.where(is_infinite & (log_p > -xp.inf), value, finite)


def _centred(log_pi: Array, push: Array) -> Array:
    """The logit gradient of sum_i pi_i f(w_i) from `push_i = pi_i g_i`, g = f - w f' (derivations, T4)."""
    xp = namespace(log_pi, push)
    return push - xp.exp(log_pi) * xp.sum(push, axis=-1, keepdims=True)


def _forward_kl(log_mu: Array, log_pi: Array) -> Array:
    """sum_i mu_i log(mu_i / pi_i)                                               (forward_kl.measure)"""
    return _kl_sum(log_mu, log_pi, _kl_cell(_finite(log_mu), _finite(log_pi)))


def _kl_sum(log_mu: Array, log_pi: Array, cells: Array) -> Array:
    """The sum of finite cells, or +inf where pi misses a token of mu."""
    xp = namespace(cells)
    is_missed = xp.any((log_mu > -xp.inf) & (log_pi == -xp.inf), axis=-1)
    return xp.where(is_missed, xp.inf, xp.sum(cells, axis=-1))


def _reverse_kl(log_mu: Array, log_pi: Array) -> Array:
    """sum_i pi_i log(pi_i / mu_i)                                               (reverse_kl.measure)"""
    return _forward_kl(log_pi, log_mu)


def _reverse_kl_grad(log_mu: Array, log_pi: Array) -> Array:
    """pi_i (log(pi_i / mu_i) - KL(pi || mu))                                    (reverse_kl.logit_grad)"""
    return _centred(log_pi, _weighted(log_pi, log_ratio(log_mu, log_pi)))


def _tv(log_mu: Array, log_pi: Array) -> Array:
    """sum_i |pi_i - mu_i| / 2                                                   (tv.measure)"""
    xp = namespace(log_mu, log_pi)
    return xp.sum(xp.abs(difference(log_mu, log_pi)), axis=-1) / 2


def _tv_grad(log_mu: Array, log_pi: Array) -> Array:
    """pi_i (s_i - E_pi s) / 2, s = sign(pi - mu), 0 at a tie                     (tv.logit_grad)"""
    xp = namespace(log_mu, log_pi)
    return _centred(log_pi, xp.exp(log_pi) * xp.sign(log_ratio(log_mu, log_pi)) / 2)


def _log_mixture(log_mu: Array, log_pi: Array) -> Array:
    """log((mu + pi) / 2) per cell, -inf where both are 0."""
    xp = namespace(log_mu, log_pi)
    gap = -xp.abs(log_ratio(log_mu, log_pi))
    return xp.maximum(log_mu, log_pi) + xp.log1p(xp.expm1(gap) / 2)


def _js(log_mu: Array, log_pi: Array) -> Array:
    """(KL(mu || m) + KL(pi || m)) / 2, m = (mu + pi) / 2                          (js.measure)"""
    log_m = _log_mixture(log_mu, log_pi)
    return (_forward_kl(log_mu, log_m) + _forward_kl(log_pi, log_m)) / 2


def _js_grad(log_mu: Array, log_pi: Array) -> Array:
    """pi_i (log(pi_i / m_i) - KL(pi || m)) / 2                                   (js.logit_grad)"""
    return _reverse_kl_grad(_log_mixture(log_mu, log_pi), log_pi) / 2


def _chi2_mu_pi(log_mu: Array, log_pi: Array) -> Array:
    """sum_i (mu_i - pi_i)^2 / pi_i                                              (chi2_mu_pi.measure)"""
    xp = namespace(log_mu, log_pi)
    d = log_ratio(log_mu, log_pi)
    scale = exp_or_inf(xp.maximum(log_mu - d, log_pi))
    return xp.sum(scale * xp.expm1(-xp.abs(d)) ** 2, axis=-1)


def _chi2_mu_pi_grad(log_mu: Array, log_pi: Array) -> Array:
    """pi_i (1 + chi2(mu || pi)) - mu_i^2 / pi_i                                 (chi2_mu_pi.logit_grad)"""
    return _centred(log_pi, -power_gap(2.0, log_mu, log_pi))


def _chi2_pi_mu(log_mu: Array, log_pi: Array) -> Array:
    """sum_i (pi_i - mu_i)^2 / mu_i                                              (chi2_pi_mu.measure)"""
    return _chi2_mu_pi(log_pi, log_mu)


def _chi2_pi_mu_grad(log_mu: Array, log_pi: Array) -> Array:
    """2 pi_i (pi_i / mu_i - 1 - chi2(pi || mu))                                 (chi2_pi_mu.logit_grad)"""
    return _centred(log_pi, 2 * power_gap(-1.0, log_mu, log_pi))


def _hellinger2(log_mu: Array, log_pi: Array) -> Array:
    """sum_i (sqrt(pi_i) - sqrt(mu_i))^2 / 2 = 1 - sum_i sqrt(mu_i pi_i)          (hellinger2.measure)"""
    xp = namespace(log_mu, log_pi)
    return xp.sum(difference(log_mu / 2, log_pi / 2) ** 2, axis=-1) / 2


def _hellinger2_grad(log_mu: Array, log_pi: Array) -> Array:
    """(pi_i BC - sqrt(mu_i pi_i)) / 2, BC = sum_i sqrt(mu_i pi_i)                (hellinger2.logit_grad)"""
    return _centred(log_pi, -power_gap(0.5, log_mu, log_pi) / 2)


FORWARD_KL = Divergence("forward_kl", _forward_kl, difference, convex_in_logits=True)
REVERSE_KL = Divergence("reverse_kl", _reverse_kl, _reverse_kl_grad, convex_in_logits=False)
TV = Divergence("tv", _tv, _tv_grad, convex_in_logits=False)
JS = Divergence("js", _js, _js_grad, convex_in_logits=False)
CHI2_MU_PI = Divergence("chi2_mu_pi", _chi2_mu_pi, _chi2_mu_pi_grad, convex_in_logits=True)
CHI2_PI_MU = Divergence("chi2_pi_mu", _chi2_pi_mu, _chi2_pi_mu_grad, convex_in_logits=False)
HELLINGER2 = Divergence("hellinger2", _hellinger2, _hellinger2_grad, convex_in_logits=False)

DIVERGENCES: dict[str, Divergence] = {
    d.name: d for d in (FORWARD_KL, REVERSE_KL, TV, JS, CHI2_MU_PI, CHI2_PI_MU, HELLINGER2)
}
"""The named divergences. Families with an order: `alpha` and `renyi` in `families.py`."""
