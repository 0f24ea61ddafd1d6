r"""The line of logits along which a token's own step leads, and the step at which forward KL is back.

Forward KL is convex along every line of logits, so besides s = 0 there is at most one step with
`D(s) = D(0)`: the flip step s*. Steps are compared across tokens and geometries in units of |s*|. A line is
kept on the cells that suffice: where only the sampled logit moves, two cells, whatever the vocabulary.
"""

from dataclasses import dataclass

import numpy as np

from divsim.formulas import (
    FORWARD_KL,
    View,
    curvature,
    difference,
    directional_change,
    exponential_path,
    finite_change,
)

from .geometry import NATURAL, SIGN, Geometry
from .policies import Floats, Ints, PolicyPair, at_action

FLIP_TOLERANCE = 1e-5  # relative, of the last Newton step: the error is its square, or the rounding of D
FLIP_ROUNDS = 40  # Newton needs about ten
ONE_LOGIT = (SIGN, NATURAL)
"""Geometries in which, up to a shift of all logits, only the sampled token's logit moves."""


@dataclass(frozen=True)
class Line:
    """A line of logits through pi for each token, on C cells.

    Attributes:
      log_mu, log_pi: (n, C) nats.
      direction: (n, C) logit displacement per unit of step.
    """

    log_mu: Floats
    log_pi: Floats
    direction: Floats

    def rate(self) -> Floats:
        """(n,) dD/ds at s = 0, nats per unit of step."""
        return np.asarray(directional_change(FORWARD_KL, self.log_mu, self.log_pi, self.direction))

    def realised(self, step: Floats) -> Floats:
        """(n,) exact change of forward KL at steps (n,), nats."""
        return np.asarray(finite_change(self.log_mu, self.log_pi, step[..., None] * self.direction))


def line(geometry: Geometry, pair: PolicyPair, action: Ints) -> Line:
    """The line of every token's own step.

    Args:
      geometry: what a step is.
      pair: mu and pi, (n, V).
      action: (n,) int, the sampled tokens.

    Returns:
      A `Line` on V cells, or on 2 (the token, and all others) where only one logit moves.

    >>> from divsim.tabular.geometry import EUCLIDEAN
    >>> pair = PolicyPair(np.log(np.array([[0.4, 0.3, 0.3]])), np.log(np.array([[0.45, 0.5, 0.05]])))
    >>> [line(g, pair, np.array([0])).rate().round(6).tolist() for g in (EUCLIDEAN, NATURAL)]
    [[-0.06], [0.111111]]
    """
    if geometry not in ONE_LOGIT:
        return Line(pair.log_mu, pair.log_pi, geometry.direction(pair.log_pi, action))
    log_mu, log_pi = View.full(pair.log_mu, pair.log_pi, action, check=False).binary().cells
    lift = np.exp(-at_action(pair.log_pi, action)) if geometry is NATURAL else np.full(len(action), 2.0)
    return Line(log_mu, log_pi, np.stack([lift, np.zeros_like(lift)], axis=-1))


def flip_step(along: Line) -> Floats:
    """The step other than 0 at which forward KL is what it was, by Newton's method on a convex function.

    Args:
      along: lines of n tokens.

    Returns:
      (n,) signed against the rate; NaN where the rate is 0 and every step raises KL, and where rounding
      leaves no root to find. It is as right as the policies are normalised: its relative error is about
      10 eps / TV after a plain log-softmax, so one per cent needs TV(mu, pi) above 2e-13.

    Source: derived here; derivations, T3 (convexity, flip bracket).

    >>> from divsim.tabular.geometry import EUCLIDEAN
    >>> pair = PolicyPair(np.log(np.array([[0.4, 0.3, 0.3]])), np.log(np.array([[0.45, 0.5, 0.05]])))
    >>> flip_step(line(EUCLIDEAN, pair, np.array([0]))).round(3).tolist()  # the bracket was [.396, .605]
    [0.459]
    """
    rate = along.rate()
    bend = curvature(along.log_pi, along.direction)
    is_bent = bend > 0  # a token so certain that pi (1 - pi) underflows has no curve left
    step = -2 * rate / np.where(is_bent, bend, 1.0)  # exact for a parabola
    for _ in range(FLIP_ROUNDS):
        value, slope = along.realised(step), _slope(along, step)
        climbs = slope * step > 0
        # Before the bottom of the valley Newton would run backwards; twice the step gets past it.
        moved = np.where(climbs, step - value / np.where(climbs, slope, 1.0), 2 * step)
        is_found = (np.abs(moved - step) <= FLIP_TOLERANCE * np.abs(moved)) & (rate != 0) & is_bent
        step = moved
        if np.all(is_found | (rate == 0) | ~is_bent):
            break
    return np.where(is_found, step, np.nan)


def _slope(along: Line, step: Floats) -> Floats:
    """(n,) dD/ds at the given steps: E_pi(s)[v] - E_mu[v]."""
    moved = exponential_path(along.log_pi, along.direction, step[..., None])
    return np.asarray(np.sum(difference(along.log_mu, moved) * along.direction, axis=-1))
