r"""Divergence families with an order: alpha (Cressie-Read) and Renyi, each order one `Divergence` record.

Both contain the KL divergences as limits, and those limits are returned as the records of `divergences.py`.
"""

from ._array import Array, namespace
from .divergences import FORWARD_KL, REVERSE_KL, Divergence, difference, log_power, power_gap
from .softmax import log_softmax, logsumexp


def alpha(order: float) -> Divergence:
    r"""The alpha divergence of an order a; a = 1 is `forward_kl`, a = 0 is `reverse_kl`.

        D_a(mu, pi) = (sum_i mu_i^a pi_i^{1-a} - 1) / (a (a - 1))                (alpha.measure)
        grad_i = pi_i (E_pi[w^a] - w_i^a) / a,   w = mu / pi                     (alpha.logit_grad)

    a = 2 is half of chi2(mu || pi), a = -1 half of chi2(pi || mu), a = 1/2 four times Hellinger^2.

    Args: order: a finite number.
    Errors: ValueError if the order is not finite.
    Source: derived here; derivations, T4.

    >>> import numpy as np
    >>> mu, pi = np.log(np.array([0.5, 0.3, 0.2])), np.log(np.array([0.4, 0.4, 0.2]))
    >>> round(float(alpha(2.0).measure(mu, pi)), 6)  # ((.1)^2/.4 + (.1)^2/.4) / 2
    0.025
    """
    _check_order(order)
    if order in (0, 1):
        return FORWARD_KL if order == 1 else REVERSE_KL

    def measure(log_mu: Array, log_pi: Array) -> Array:
        xp = namespace(log_mu, log_pi)
        return xp.sum(_alpha_cell(order, log_mu, log_pi), axis=-1)

    def logit_grad(log_mu: Array, log_pi: Array) -> Array:
        xp = namespace(log_mu, log_pi)
        push = power_gap(order, log_mu, log_pi)
        return (xp.exp(log_pi) * xp.sum(push, axis=-1, keepdims=True) - push) / order

    return Divergence(f"alpha({order:g})", measure, logit_grad, convex_in_logits=order >= 1)


def renyi(order: float) -> Divergence:
    r"""The Renyi divergence of mu from pi of an order a > 0, in nats; a = 1 is `forward_kl`.

        R_a(mu, pi) = log(sum_i mu_i^a pi_i^{1-a}) / (a - 1)                     (renyi.measure)
        grad_i = pi_i - tau_i,   tau_i = mu_i^a pi_i^{1-a} / sum                 (renyi.logit_grad)

    The gradient is forward KL's with mu replaced by the point tau on the geodesic through mu and pi.

    Args: order: a finite number > 0.
    Errors: ValueError if the order is not finite and positive.
    Source: derived here; derivations, T4.

    >>> import numpy as np
    >>> mu, pi = np.log(np.array([0.5, 0.3, 0.2])), np.log(np.array([0.4, 0.4, 0.2]))
    >>> round(float(renyi(2.0).measure(mu, pi)), 6)  # log 1.05
    0.04879
    """
    _check_order(order)
    if order <= 0:
        raise ValueError(f"order must be > 0 for a Renyi divergence, got {order}; alpha() takes any order")
    if order == 1:
        return FORWARD_KL

    def measure(log_mu: Array, log_pi: Array) -> Array:
        xp = namespace(log_mu, log_pi)
        scale = order * (order - 1)
        excess = scale * xp.sum(_alpha_cell(order, log_mu, log_pi), axis=-1)
        is_near = xp.abs(excess) < 0.5  # log1p keeps small values, logsumexp large ones
        near = xp.log1p(xp.where(is_near, excess, xp.zeros_like(excess)))
        return xp.where(is_near, near, logsumexp(log_power(order, log_mu, log_pi))) / (order - 1)

    def logit_grad(log_mu: Array, log_pi: Array) -> Array:
        xp = namespace(log_mu, log_pi)
        return xp.exp(log_pi) - xp.exp(log_softmax(log_power(order, log_mu, log_pi)))

    return Divergence(f"renyi({order:g})", measure, logit_grad, convex_in_logits=order >= 1)


def _check_order(order: float) -> None:
    if not hasattr(order, "__abs__"):  # a number of any kind: the derivations pass a symbolic one
        raise TypeError(f"order must be a number, got {order!r}")
    if not abs(order) < float("inf"):
        raise ValueError(f"order must be a finite number, got {order}")


def _alpha_cell(order: float, log_mu: Array, log_pi: Array) -> Array:
    """`pi f(w)`, f(w) = (w^a - a w - 1 + a) / (a (a - 1)) >= 0, f(1) = f'(1) = 0."""
    xp = namespace(log_mu, log_pi)
    gap = power_gap(order, log_mu, log_pi) + order * difference(log_mu, log_pi)
    return xp.clip(gap / (order * (order - 1)), min=0.0)
