r"""The triangle of all policies over three tokens: its cells, two kinds of curve in it, its place on paper.

A policy is a row of three probabilities; the corner of token k is the policy that always says k. The map to
the plane keeps shapes, so a circle among policies is a circle on paper. What is left out: any drawing.
"""

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL, log_mass

Floats = NDArray[np.float64]

ANGLES = np.linspace(0.0, 2 * np.pi, 181)
HALVINGS = 50  # of a segment shorter than sqrt 2: its point is then known to 1e-15


def cells(resolution: int) -> Floats:
    """Centres of the resolution^2 equal cells of the triangle: (resolution^2, 3), positive."""
    i, j = np.indices((resolution, resolution)).reshape(2, -1)
    upright = np.stack([i, j], axis=-1)[i + j < resolution] + 1 / 3
    inverted = np.stack([i, j], axis=-1)[i + j < resolution - 1] + 2 / 3
    two = np.concatenate([upright, inverted]) / resolution
    return np.column_stack([two, 1 - two.sum(axis=-1)])


def rays() -> Floats:
    """(N, 3) unit vectors around the plane of the triangle; their entries sum to 0."""
    basis = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    return np.column_stack([np.cos(ANGLES), np.sin(ANGLES)]) @ basis


def zero_change(mu: Floats, action: int) -> Floats:
    """The circle over the segment from mu to the corner of k, where c_k = 0: (3,) -> (N, 3).

    Source: derived here; c_k = (e_k - pi) . (pi - mu), and Thales.
    """
    corner = np.eye(3)[action]
    return np.asarray((mu + corner) / 2 + np.linalg.norm(corner - mu) / 2 * rays())


def level_set(mu: Floats, kl: float) -> Floats:
    """The closed curve KL(mu || pi) = kl around mu: (3,) positive and nats > 0 -> (N, 3).

    Along each ray from mu forward KL rises from 0 to +inf at the side of the triangle, so halving finds it.

    >>> mu = np.array([0.5, 0.3, 0.2])
    >>> bool(np.allclose(FORWARD_KL.measure(np.log(mu), np.log(level_set(mu, 0.05))), 0.05))
    True
    """
    outward = rays()
    falling = outward < 0
    reach = np.min(np.where(falling, mu / np.where(falling, -outward, 1.0), np.inf), axis=-1)[:, None]
    near, far = np.zeros_like(reach), reach
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        inside = FORWARD_KL.measure(np.log(mu), log_mass(mu + middle * outward))[:, None] < kl
        near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    return np.asarray(mu + near * outward)


def to_plane(policies: Floats, top: int) -> Floats:
    """(..., 3) -> (..., 2): a triangle of side 1 with the corner of token `top` above the other two."""
    places = np.insert(np.array([[0.0, 0.0], [1.0, 0.0]]), top, [0.5, np.sqrt(0.75)], axis=0)
    return np.asarray(policies @ places)
