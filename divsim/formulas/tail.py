r"""What the change is taken to be in the hidden tail: point estimators, and an interval that is proven.

The first-order change of any divergence is `c = q_k - sum_C q_C nu_C` with q its logit gradient on the cells
and nu_C = pi_C on retained tokens (`change.py`). An estimator is the one number nu on the tail cell, so the
table below holds nothing else. For forward KL the hidden overlap can be bracketed instead of guessed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ._array import Array, namespace
from .view import View


@dataclass(frozen=True)
class Tail:
    """A tail model of the first-order change.

    Attributes:
      name: its name in tables and flags.
      meaning: what it assumes of the hidden tokens, in one line.
      nu: View -> (...), the weight of the tail cell.
    """

    name: str
    meaning: str
    nu: Callable[[View], Array]


def _no_tail(view: View) -> Array:
    if not view.is_full:
        hidden = "tail 'full' needs every token in sight, but this view hides some"
        raise ValueError(f"{hidden}; use View.full, or choose a tail such as 'uniform'")
    return namespace(view.log_pi).zeros_like(view.log_pi_tail)


def _aggregated(view: View) -> Array:
    return namespace(view.log_pi).exp(view.log_pi_tail)


def _uniform(view: View) -> Array:
    xp = namespace(view.log_pi)
    mass = xp.exp(view.log_pi_tail)
    return mass / xp.astype(xp.clip(view.tail_size, min=1), mass.dtype)


def _proportional(view: View) -> Array:
    xp = namespace(view.log_pi)
    mass = xp.exp(view.log_pi_tail)
    has_mass = mass > 0
    return xp.where(
        has_mass, view.field("pi_tail_sq") / xp.where(has_mass, mass, xp.ones_like(mass)), 0 * mass
    )


def _zero(view: View) -> Array:
    return namespace(view.log_pi).zeros_like(view.log_pi_tail)


TAILS: dict[str, Tail] = {
    tail.name: tail
    for tail in (
        Tail("full", "nothing is hidden: the exact change", _no_tail),
        Tail("aggregated", "nu = P: the tail is one token", _aggregated),
        Tail("uniform", "nu = P / m: pi is flat on the tail", _uniform),
        Tail("proportional", "nu = Q2 / P: the exact derivative of the coarse divergence", _proportional),
        Tail("zero", "nu = 0: the tail does not answer", _zero),
    )
}
"""The tail models: P tail mass of pi, m hidden tokens, Q2 their sum of pi^2. Sources: [PDM] section 3
(aggregated, uniform); derived here, derivations T7 (proportional, zero, and what each one is)."""

ROUNDING_ULPS = 64
"""Outward rounding of the certificate, in units of the last place of its terms' magnitudes: a pairwise sum
of V terms is off by log2(V) ulps at most (17 at V = 131,072), an exp or log by a few; there are five sums."""


def change_interval(view: View) -> tuple[Array, Array]:
    r"""An interval that contains the forward-KL change c_k for every mu that fits the view.

        c_k = d_k - S2 + sum_i pi_i mu_i,   S2 = sum_i pi_i^2                    (tail.change_interval)

    is linear in mu. Retained terms are known within `log_mu_error`, the hidden overlap within the view's
    bracket; the result is rounded outward. The sign is *certified* where the interval excludes 0. It speaks
    of the Euclidean logit step only, and holds as far as the stated error does.

    Args: view: a view with a bracket (`bracket=True`), or a full view.
    Returns: (low, high), each (...), nats per unit logit step.
    Errors: ValueError if the view has no bracket.
    Source: derived here; derivations, T7 (interval).

    >>> import numpy as np
    >>> log_mu = np.log([[0.35, 0.325, 0.15, 0.125, 0.05]])
    >>> log_pi = np.log([[0.125, 0.4, 0.025, 0.35, 0.1]])
    >>> view = View.top_k(log_mu, log_pi, np.array([1]), k=2, bracket=True)
    >>> [round(float(end[0]), 4) for end in change_interval(view)]
    [-0.0519, 0.0538]
    """
    xp = namespace(view.log_pi)
    overlap_low, overlap_high = view.field("overlap_low"), view.field("overlap_high")
    shrink, grow = math.exp(-view.log_mu_error), math.exp(view.log_mu_error)
    pi = xp.exp(view.log_pi)
    is_k = xp.arange(pi.shape[-1], device=pi.device) == view.cell_k[..., None]
    # The sampled token's own terms join in -mu_k (1 - pi_k), so that its error enters once.
    own_mu, own_pi = xp.exp(view.log_mu_k), xp.exp(view.log_pi_k)
    kept = xp.sum(xp.where(is_k, 0 * pi, pi * xp.exp(view.log_mu)), axis=-1)
    squares = xp.sum(pi * pi, axis=-1) + view.field("pi_tail_sq")
    middle = own_pi - squares
    low = middle - grow * own_mu * (1 - own_pi) + shrink * kept + overlap_low
    high = middle - shrink * own_mu * (1 - own_pi) + grow * kept + overlap_high
    ulps = ROUNDING_ULPS * float(xp.finfo(pi.dtype).eps)
    slack = ulps * (own_pi + squares + own_mu + kept + overlap_high)
    return low - slack, high + slack
