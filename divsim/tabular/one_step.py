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
    >>> from divsim.formulas import FORWARD_KL
    >>> [round(float(top_step(d, pair, np.array([1.0, -1.0]))), 3) for d in (FORWARD_KL, TV)]
    [0.15, 0.101]
    """
    spread = np.max(direction, axis=-1) - np.min(direction, axis=-1)
    allowed = np.full_like(spread, TOP_SPREAD)
    if divergence in KINKED:
        distance = np.abs(log_ratio(pair.log_mu, pair.log_pi))
        to_tie = np.min(np.where(distance > 0, distance, np.inf), axis=-1)
        allowed = np.minimum(allowed, to_tie / 2)
    return np.asarray(allowed / spread)


def value_terms(divergence: Divergence, pair: PolicyPair) -> Floats:
    """The size of what a divergence sums, and thereby of its rounding.

    A rounding of every log-probability, which is a difference of numbers of size 1 at least, moves D by at
    most the sum of |q|; total variation, which is linear in probabilities, also by their own size, 1.

    Args:
      divergence: D.
      pair: mu and pi, (..., V).

    Returns:
      (...) in the unit of the divergence.

    Source: derived here.

    >>> pair = PolicyPair(np.log(np.array([0.5, 0.5])), np.log(np.array([0.25, 0.75])))
    >>> float(value_terms(TV, pair).round(6))  # TV = 0.25, q = (-0.1875, 0.1875)
    1.625
    """
    q = divergence.logit_grad(pair.log_mu, pair.log_pi)
    linear = 1.0 if divergence in KINKED else 0.0
    return np.asarray(divergence.measure(pair.log_mu, pair.log_pi) + np.sum(np.abs(q), axis=-1) + linear)


def rate_terms(divergence: Divergence, pair: PolicyPair, direction: Floats) -> Floats:
    """The size of what a first-order rate sums, and thereby of its rounding.

    Besides the terms of q there is 1, the sum of a policy: q sums to zero only as far as policies sum to 1.

    Args:
      divergence: D.
      pair: mu and pi, (..., V).
      direction: (..., V) logit displacement per unit of step, rounded as numbers of size 1 at least.

    Returns:
      (...) in the unit of the divergence per unit of step.

    Source: derived here.

    >>> pair = PolicyPair(np.log(np.array([0.5, 0.5])), np.log(np.array([0.25, 0.75])))
    >>> float(rate_terms(TV, pair, np.array([1e-9, -1e-9])).round(6))
    1.375
    """
    q = divergence.logit_grad(pair.log_mu, pair.log_pi)
    size = np.maximum(np.max(np.abs(direction), axis=-1), 1.0)
    return np.asarray((1 + np.sum(np.abs(q), axis=-1)) * size)


def first_order_ladder(divergence: Divergence, pair: PolicyPair, direction: Floats, rate: Floats) -> Ladder:
    """Remainders of `step * rate` as a prediction of the realised change.

    Args:
      divergence: D.
      pair: mu and pi, (n, V).
      direction: (n, V) logit displacement per unit of step.
      rate: (n,) the claimed dD/ds.

    Returns:
      A `Ladder`, from `top_step` downwards.

    Source: derived here.

    >>> from divsim.tabular.ladder import convergence_slope
    >>> pair = PolicyPair(np.log(np.array([[0.5, 0.5]])), np.log(np.array([[0.25, 0.75]])))
    >>> ladder = first_order_ladder(TV, pair, np.array([[1.0, 0.0]]), rate=np.array([-0.1875]))
    >>> round(convergence_slope([ladder]), 2)
    2.0
    """
    top = top_step(divergence, pair, direction)

    def remainder(fraction: float) -> Floats:
        step = fraction * top
        return np.asarray(realised_change(divergence, pair, direction, step) - step * rate)

    return climb(remainder, value_terms(divergence, pair), top * rate_terms(divergence, pair, direction))


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
    >>> pair = PolicyPair(np.log(np.array([[0.5, 0.3, 0.2]])), np.log(np.array([[0.2, 0.3, 0.5]])))
    >>> step = one_step(FORWARD_KL, EUCLIDEAN, pair, np.array([0]))
    >>> bool(np.all(np.sign(step.realised) == np.sign(step.predicted)))
    True
    """
    direction = geometry.direction(pair.log_pi, action)
    rate = geometry.rate(divergence, pair, action)
    ladder = first_order_ladder(divergence, pair, direction, rate)
    step = np.multiply.outer(ladder.fractions, top_step(divergence, pair, direction))
    return OneStep(step, ladder.remainder + step * rate, step * rate, ladder)
