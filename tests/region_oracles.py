"""The best policy within a trust region by general-purpose solvers. Imports nothing of divsim.

mu and advantage are (S, V) probabilities and rewards, weight (S); each solver returns the best surrogate.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from scipy.special import softmax

Floats = NDArray[np.float64]

PLAIN: dict[str, Callable[[Floats, Floats], Any]] = {
    "forward_kl": lambda mu, pi: np.sum(mu * np.log(mu / pi), axis=-1),
    "reverse_kl": lambda mu, pi: np.sum(pi * np.log(pi / mu), axis=-1),
    "tv": lambda mu, pi: np.sum(np.abs(mu - pi), axis=-1) / 2,
}


def by_linear_program(mu: Floats, advantage: Floats, weight: Floats, delta: float, scope: str) -> float:
    """The TV problem with |pi - mu| <= u as variables (pi, u)."""
    states, vocab = mu.shape
    eye, n = np.eye(states * vocab), states * vocab
    per_state = np.kron(np.eye(states), np.ones(vocab))
    spent = (per_state if scope == "state" else (weight @ per_state)[None]) / 2
    found = linprog(
        np.concatenate([-(weight[:, None] * advantage).ravel(), np.zeros(n)]),
        A_ub=np.block([[eye, -eye], [-eye, -eye], [np.zeros((len(spent), n)), spent]]),
        b_ub=np.concatenate([mu.ravel(), -mu.ravel(), np.full(len(spent), delta)]),
        A_eq=np.hstack([per_state, np.zeros_like(per_state)]),
        b_eq=np.ones(states),
    )
    assert found.success
    return -float(found.fun)


def by_nonlinear_program(
    name: str, mu: Floats, advantage: Floats, weight: Floats, delta: float, scope: str
) -> float:
    """SLSQP in logits, where no bound binds; its slopes are finite differences."""
    log_mu = np.log(mu)

    def policy(flat: Floats) -> Any:
        return softmax(log_mu + flat.reshape(log_mu.shape), axis=-1)

    def slack(flat: Floats) -> Any:
        in_state = PLAIN[name](mu, policy(flat))
        return delta - (in_state if scope == "state" else np.atleast_1d(weight @ in_state))

    found = minimize(
        lambda flat: -np.sum(weight[:, None] * advantage * policy(flat)),
        0.1 * advantage.ravel(),
        bounds=[(-10, 10)] * log_mu.size,
        constraints={"type": "ineq", "fun": slack},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.success
    assert np.min(slack(found.x)) > -1e-8
    return -float(found.fun)
