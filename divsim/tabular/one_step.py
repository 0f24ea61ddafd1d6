r"""One step, taken exactly: the realised change of a divergence against its prediction.

The step moves the logits by `s * direction` and normalises again; nothing is linearised. On a geometric
ladder of step sizes the remainder `realised - predicted` shrinks as s^2 if and only if the first-order
prediction is right, which is what is measured.

What is left out: the ladder itself and its ends (`ladder.py`).
"""

from dataclasses import dataclass

import numpy as np

from divsim.formulas import TV, Divergence, exponential_path, log_ratio

from .geometry import Geometry
from .ladder import TOP_SPREAD, Ladder, climb
from .policies import Floats, Ints, PolicyPair

KINKED = (TV,)
"""Divergences without a derivative where mu_i = pi_i."""


@dataclass(frozen=True)
class OneStep:
    """The realised and the predicted change of one divergence, one step per case, at several step sizes.

    Attributes:
      step: (N, n) step sizes s = eta A r.
      realised: (N, n) D after the step minus D before, in the unit of the divergence.
      predicted: (N, n) `s * rate`, the first-order prediction.
      ladder: the remainders and their rounding, for `ladder.order`.
    """

    step: Floats
    realised: Floats
    predicted: Floats
    ladder: Ladder


def realised_change(
    divergence: Divergence, pair: PolicyPair, direction: Floats, step: Floats | float
) -> Floats:
    """D after the logits moved by `step * direction`, minus D before.

    Args:
      divergence: which divergence.
      pair: mu and pi before the step, (..., V).
      direction: (..., V) logit displacement per unit of step.
      step: (...) or a number, signed.

    Returns:
      (...) in the unit of the divergence.

    Source: definition.

    >>> from divsim.formulas import FORWARD_KL
    >>> pair = PolicyPair(np.log(np.array([0.5, 0.5])), np.log(np.array([0.25, 0.75])))
    >>> round(float(realised_change(FORWARD_KL, pair, np.array([np.log(3.0), 0.0]), 1.0)), 6)  # lands on mu
    -0.143841
    """
    after = exponential_path(pair.log_pi, direction, np.asarray(step)[..., None])
    change: Floats = divergence.measure(pair.log_mu, after) - divergence.measure(pair.log_mu, pair.log_pi)
    return change


def top_step(divergence: Divergence, pair: PolicyPair, direction: Floats) -> Floats:
    """The largest step of the ladder.

    The spread of the logits moves by at most `TOP_SPREAD`. Along the path `log pi_i - log mu_i` moves by at
    most the spread, so half the smallest distance to a tie keeps a kinked divergence on one smooth piece.

    Args:
      divergence: D.
      pair: mu and pi, (..., V).
      direction: (..., V) logit displacement per unit of step.

    Returns:
      (...) > 0.

    Source: derived here.

    >>> pair = PolicyPair(np.log(np.array([0.5, 0.5])), np.log(np.array([0.25, 0.75])))
    >>> round(float(top_step(TV, pair, np.array([1.0, -1.0]))), 12)
    0.05
    """
    spread = np.max(direction, axis=-1) - np.min(direction, axis=-1)
    allowed = np.full_like(spread, TOP_SPREAD)
    if divergence in KINKED:
        distance = np.abs(log_ratio(pair.log_mu, pair.log_pi))
        to_tie = np.min(np.where(distance > 0, distance, np.inf), axis=-1)
        allowed = np.minimum(allowed, to_tie / 2)
    return np.asarray(allowed / spread)


def rate_terms(divergence: Divergence, pair: PolicyPair, direction: Floats) -> Floats:
    """The size of what a first-order rate sums, and thereby of its rounding.

    A direction is a difference of numbers of size 1 at least, so that is the size its entries are rounded at.

    Args:
      divergence: D.
      pair: mu and pi, (..., V).
      direction: (..., V) logit displacement per unit of step.

    Returns:
      (...) in the unit of the divergence per unit of step.

    Source: derived here.

    >>> pair = PolicyPair(np.log(np.array([0.5, 0.5])), np.log(np.array([0.25, 0.75])))
    >>> float(rate_terms(TV, pair, np.array([1e-9, -1e-9])).round(6))
    0.375
    """
    q = divergence.logit_grad(pair.log_mu, pair.log_pi)
    size = np.maximum(np.max(np.abs(direction), axis=-1), 1.0)
    return np.asarray(np.sum(np.abs(q), axis=-1) * size)


def one_step(divergence: Divergence, geometry: Geometry, pair: PolicyPair, action: Ints) -> OneStep:
    """The ladder of exact steps on a sampled token, against the first-order prediction.

    Args:
      divergence: D.
      geometry: what a step is.
      pair: mu and pi, (n, V).
      action: (n,) int, the sampled tokens.

    Returns:
      A `OneStep`.

    Source: derived here; [PDM] section 3 for the prediction.

    >>> from divsim.formulas import FORWARD_KL
    >>> from divsim.tabular.geometry import EUCLIDEAN
    >>> from divsim.tabular.ladder import convergence_slope
    >>> pair = PolicyPair(np.log(np.array([[0.5, 0.3, 0.2]])), np.log(np.array([[0.2, 0.3, 0.5]])))
    >>> step = one_step(FORWARD_KL, EUCLIDEAN, pair, np.array([0]))
    >>> round(convergence_slope([step.ladder]), 2)
    2.0
    """
    direction = geometry.direction(pair.log_pi, action)
    rate = geometry.rate(divergence, pair, action)
    top = top_step(divergence, pair, direction)

    def remainder(fraction: float) -> Floats:
        step = fraction * top
        return realised_change(divergence, pair, direction, step) - step * rate

    scale = divergence.measure(pair.log_mu, pair.log_pi)
    ladder = climb(remainder, scale, terms=top * rate_terms(divergence, pair, direction))
    step = np.multiply.outer(ladder.fractions, top)
    return OneStep(step, ladder.remainder + step * rate, step * rate, ladder)
