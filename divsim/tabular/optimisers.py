"""Optimisers of a head's weights: what a gradient becomes, and what one token's share of it becomes.

A step ascends. What is left out: weight decay, clipping, and schedules.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .policies import Floats


@dataclass(frozen=True)
class Moments:
    """What an optimiser remembers: running means of the gradient and of its square, and the steps taken."""

    first: Floats
    second: Floats
    steps: int = 0


@dataclass(frozen=True)
class Optimiser:
    """A rule that turns gradients into displacements of the weights.

    Attributes:
      name: its name in tables.
      step: (gradient, moments) -> (displacement, moments after).
      scale: (gradient, moments) -> what multiplies one token's own share of the gradient, entry by entry,
        while the preconditioner stays that of the whole step.

    >>> move, _ = sgd(0.5).step(np.array([2.0]), Moments(np.zeros(1), np.zeros(1)))
    >>> move.tolist()
    [1.0]
    """

    name: str
    step: Callable[[Floats, Moments], tuple[Floats, Moments]]
    scale: Callable[[Floats, Moments], Floats]


def sgd(rate: float) -> Optimiser:
    """Plain gradient ascent: no memory."""
    return Optimiser(
        "sgd",
        lambda gradient, moments: (rate * gradient, moments),
        lambda gradient, moments: np.full_like(gradient, rate),
    )


def adam(rate: float, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8) -> Optimiser:
    """Adam with bias correction.

    Source: [Adam] algorithm 1.

    >>> zero = Moments(np.zeros(2), np.zeros(2))
    >>> adam(0.1).step(np.array([3.0, -1e-3]), zero)[0].round(4).tolist()  # its first step is a sign step
    [0.1, -0.1]
    """

    def after(gradient: Floats, moments: Moments) -> Moments:
        first = betas[0] * moments.first + (1 - betas[0]) * gradient
        second = betas[1] * moments.second + (1 - betas[1]) * gradient**2
        return Moments(first, second, moments.steps + 1)

    def preconditioner(moments: Moments) -> Floats:
        unbiased = moments.second / (1 - betas[1] ** moments.steps)
        return np.asarray(rate / (np.sqrt(unbiased) + epsilon) / (1 - betas[0] ** moments.steps))

    def step(gradient: Floats, moments: Moments) -> tuple[Floats, Moments]:
        moved = after(gradient, moments)
        return preconditioner(moved) * moved.first, moved

    def scale(gradient: Floats, moments: Moments) -> Floats:
        return (1 - betas[0]) * preconditioner(after(gradient, moments))

    return Optimiser("adam", step, scale)
