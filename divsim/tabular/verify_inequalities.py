"""Numerical checks of T8: the classical inequalities between divergences, on random pairs.

What is left out: bounds on returns (`verify_horizon.py`).
"""

from collections.abc import Callable

import numpy as np

from divsim.formulas import (
    FORWARD_KL,
    TV,
    View,
    bretagnolle_huber,
    difference,
    mean_under,
    pinsker,
)

from .check import Simulation, check
from .policies import Batch, Floats, at_action, draw_batches

ROUNDING = 1e-14
ROUNDING_REASON = "absolute: sums of at most 1000 terms of total mass 2 round to a few times 1e-16"


def simulate_inequalities(rng: np.random.Generator) -> Simulation:
    """T8: Pinsker, Bretagnolle-Huber, and what one token says about total variation.

    >>> simulate_inequalities(np.random.default_rng(0)).ok
    True
    """
    counts = {2: 100, 3: 100, 50: 40, 1000: 10}
    batches = draw_batches(rng, counts)
    return Simulation(
        "T8 inequalities",
        tuple(
            check(np.concatenate([claim(b) for b in batches]), name, counts, ROUNDING, ROUNDING_REASON)
            for name, claim in INEQUALITIES.items()
        ),
    )


def _excess(small: Floats, large: Floats) -> Floats:
    return np.maximum(small - large, 0)


def _tv(batch: Batch) -> Floats:
    return np.asarray(TV.measure(batch.pair.log_mu, batch.pair.log_pi))


def _kl(batch: Batch) -> Floats:
    return np.asarray(FORWARD_KL.measure(batch.pair.log_mu, batch.pair.log_pi))


def _one_token(batch: Batch) -> Floats:
    gap = difference(at_action(batch.pair.log_mu, batch.action), at_action(batch.pair.log_pi, batch.action))
    return _excess(np.abs(gap), _tv(batch))


def _binary_pinsker(batch: Batch) -> Floats:
    view = View.full(batch.pair.log_mu, batch.pair.log_pi, batch.action).binary()
    return _excess(
        2 * difference(view.log_mu_k, view.log_pi_k) ** 2, np.asarray(FORWARD_KL.measure(*view.cells))
    )


def _affinity(batch: Batch) -> Floats:
    """sum_i sqrt(mu_i pi_i)."""
    return np.asarray(np.sum(np.exp((batch.pair.log_mu + batch.pair.log_pi) / 2), axis=-1))


def _mean_ratio_gap(batch: Batch) -> Floats:
    ratio_gap = np.abs(np.expm1(batch.pair.log_pi - batch.pair.log_mu))
    return np.asarray(np.abs(_tv(batch) - mean_under(batch.pair.log_mu, ratio_gap) / 2))


INEQUALITIES: dict[str, Callable[[Batch], Floats]] = {
    "|d_k| <= TV": _one_token,
    "TV = E_mu|r - 1| / 2": _mean_ratio_gap,
    "TV <= sqrt(KL(mu || pi) / 2)": lambda b: _excess(_tv(b), pinsker(_kl(b))),
    "TV <= sqrt(1 - e^-KL(mu || pi))": lambda b: _excess(_tv(b), bretagnolle_huber(_kl(b))),
    "binary Pinsker: 2 d_k^2 <= binary KL": _binary_pinsker,
    "BC^2 <= 1 - TV^2": lambda b: _excess(_affinity(b) ** 2, 1 - _tv(b) ** 2),
    "e^(-KL/2) <= BC": lambda b: _excess(np.exp(-_kl(b) / 2), _affinity(b)),
}
"""Claims of T8 by name: a batch -> (n,) errors."""
