"""What a step is: the logit displacement of one sampled policy-gradient step, in four geometries.

A step on token k with learning rate eta and advantage A moves the logits by `s * direction`, s = eta A r.
The Euclidean direction is `e_k - pi`; a sign optimiser, the natural gradient and a rank-d linear head turn
the same gradient into other displacements, and with it the sign of the change of a divergence. Each geometry
is one record: the direction, and the derivative of any divergence along it in closed form. What is left out:
momentum, and the mixing of tokens through shared weights.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from divsim.formulas import Divergence, View, change, policy_gradient_direction

from .policies import Bools, Floats, Ints, PolicyPair, at_action

DirectionOf = Callable[[Floats, Ints], Floats]
RateOf = Callable[[Divergence, PolicyPair, Ints], Floats]


@dataclass(frozen=True)
class Geometry:
    """One way of turning the gradient of a sampled token into a displacement of the logits.

    Attributes:
      name: its name in tables and flags.
      direction: (log_pi (..., V), action (...)) -> (..., V), the displacement per unit of s = eta A r.
      rate: (divergence, pair, action (...)) -> (...), dD/ds at s = 0 in closed form, with q the divergence's
        logit gradient; always equal to `directional_change` along `direction`.

    >>> log_pi, k = np.log(np.array([0.2, 0.3, 0.5])), np.array(0)
    >>> NATURAL.direction(log_pi, k).round(6).tolist()
    [5.0, 0.0, 0.0]
    """

    name: str
    direction: DirectionOf
    rate: RateOf


def linear_head(features: Floats) -> Geometry:
    r"""The geometry of logits `z = W theta` when theta takes the plain gradient step.

        direction = W W^T (e_k - pi),     rate = (W^T q) . (W^T (e_k - pi))

    The kernel W W^T is never formed, so V may be large.

    Args:
      features: (V, d) the head W: one feature vector per token.

    Returns:
      A `Geometry`; with W the identity it is `EUCLIDEAN`.

    Source: derivations, T11.

    >>> log_pi, k = np.log(np.array([0.2, 0.3, 0.5])), np.array(0)
    >>> tied = linear_head(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))  # tokens 1 and 2 share a logit
    >>> tied.direction(log_pi, k).round(6).tolist()
    [0.8, -0.8, -0.8]
    """

    def pushed(log_pi: Floats, action: Ints) -> Floats:
        return np.asarray(policy_gradient_direction(log_pi, action) @ features)

    def direction(log_pi: Floats, action: Ints) -> Floats:
        return pushed(log_pi, action) @ features.T

    def rate(divergence: Divergence, pair: PolicyPair, action: Ints) -> Floats:
        q = divergence.logit_grad(pair.log_mu, pair.log_pi)
        return np.asarray(np.sum((q @ features) * pushed(pair.log_pi, action), axis=-1))

    return Geometry("linear_head", direction, rate)


def natural_head(features: Floats) -> Geometry:
    r"""The natural gradient of logits `z = W theta`: what the head's own Fisher matrix makes of a step.

        direction = W F^+ W^T (e_k - pi),     F = W^T (diag(pi) - pi pi^T) W

    Args:
      features: (V, d) the head W.

    Returns:
      A `Geometry`; with d >= V - 1 generic features it is `NATURAL` up to a shift.

    Source: [Amari98] section 2; derivations, T11 for the kernel.

    >>> log_pi, k = np.log(np.array([0.2, 0.3, 0.5])), np.array(0)
    >>> step = natural_head(np.eye(3)[:, :2]).direction(log_pi, k)
    >>> (step - step[-1]).round(6).tolist()  # the same as (5, 0, 0)
    [5.0, 0.0, 0.0]
    """

    def direction(log_pi: Floats, action: Ints) -> Floats:
        root = np.exp(log_pi / 2)
        scores = root[..., None] * (features - (np.exp(log_pi) @ features)[..., None, :])
        whitened = policy_gradient_direction(log_pi, np.asarray(action)) / root
        # F = scores^T scores, so F^+ scores^T is the pseudo-inverse of scores: no condition number squared.
        rounding = max(scores.shape[-2:]) * np.finfo(np.float64).eps
        inverse = np.linalg.pinv(scores, rtol=rounding)
        theta = (whitened[..., None, :] @ np.swapaxes(inverse, -1, -2))[..., 0, :]
        return np.asarray(theta @ features.T)

    def rate(divergence: Divergence, pair: PolicyPair, action: Ints) -> Floats:
        q = divergence.logit_grad(pair.log_mu, pair.log_pi)
        return np.asarray(np.sum(q * direction(pair.log_pi, action), axis=-1))

    return Geometry("natural_head", direction, rate)


def geometries(features: Floats) -> dict[str, Geometry]:
    """All four geometries by name, the linear head with the given features (V, d).

    >>> sorted(geometries(np.eye(3)))
    ['euclidean', 'linear_head', 'natural', 'sign']
    """
    return {g.name: g for g in (EUCLIDEAN, SIGN, NATURAL, linear_head(features))}


def _natural_direction(log_pi: Floats, action: Ints) -> Floats:
    """`e_k / pi_k`: the Fisher matrix diag(pi) - pi pi^T maps it to e_k - pi (derivations, T5)."""
    return np.where(_is_action(log_pi, action), np.exp(-log_pi), 0.0)


def _sign_direction(log_pi: Floats, action: Ints) -> Floats:
    """`sign(e_k - pi)`, also where 1 - pi_k rounds to 0."""
    return np.where(_is_action(log_pi, action), 1.0, -1.0)


def _is_action(log_pi: Floats, action: Ints) -> Bools:
    return np.asarray(np.arange(log_pi.shape[-1]) == np.asarray(action)[..., None])


def _logit_grad_at(divergence: Divergence, pair: PolicyPair, action: Ints) -> Floats:
    return at_action(divergence.logit_grad(pair.log_mu, pair.log_pi), action)


def _euclidean_rate(divergence: Divergence, pair: PolicyPair, action: Ints) -> Floats:
    return np.asarray(change(View.full(pair.log_mu, pair.log_pi, np.asarray(action)), divergence))


def _natural_rate(divergence: Divergence, pair: PolicyPair, action: Ints) -> Floats:
    return _logit_grad_at(divergence, pair, action) * np.exp(-at_action(pair.log_pi, action))


EUCLIDEAN = Geometry("euclidean", policy_gradient_direction, _euclidean_rate)
"""Plain gradient on the logits: `e_k - pi`, rate c_k = q_k - E_pi[q]."""

SIGN = Geometry(
    "sign",
    _sign_direction,
    lambda divergence, pair, action: 2 * _logit_grad_at(divergence, pair, action),
)
"""Sign descent, or Adam's first step, on the logits: +1 for k, -1 elsewhere; rate 2 q_k."""

NATURAL = Geometry("natural", _natural_direction, _natural_rate)
"""Natural gradient of the saturated softmax, up to a shift: `e_k / pi_k`, rate q_k / pi_k.

For forward KL the rate is 1 - 1/r and for reverse KL log r - KL(pi || mu): times eta A r, they are the ratio
test and its reverse twin (derivations, T5)."""
