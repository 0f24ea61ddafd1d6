"""The numerical checks of all theorems, by chapter.

`divsim verify` runs them beside the proofs: a proof says that a formula is right, a simulation takes the step
that it speaks of. What is left out: the proofs.
"""

from collections.abc import Callable

import numpy as np

from .check import Simulation
from .verify_directions import simulate_directions, simulate_expectations
from .verify_finite_step import simulate_finite_step
from .verify_geometry import simulate_geometry
from .verify_gradients import simulate_exact_gradients
from .verify_horizon import simulate_horizon
from .verify_inequalities import simulate_inequalities
from .verify_methods import simulate_gaussian, simulate_penalties
from .verify_softmax import simulate_f_divergences, simulate_forward_kl, simulate_softmax
from .verify_tails import simulate_top_k

SIMULATIONS: dict[str, Callable[[np.random.Generator], Simulation]] = {
    "T1": simulate_softmax,
    "T2": simulate_forward_kl,
    "T3": simulate_finite_step,
    "T4": simulate_f_divergences,
    "T5": simulate_directions,
    "T6": simulate_expectations,
    "T7": simulate_top_k,
    "T8": simulate_inequalities,
    "T9": simulate_penalties,
    "T10": simulate_exact_gradients,
    "T11": simulate_geometry,
    "T12": simulate_horizon,
    "T13": simulate_gaussian,
}
"""Chapter id -> simulation; each takes a `numpy.random.Generator`, and together they take about ten seconds.

>>> SIMULATIONS["T8"](np.random.default_rng(0)).ok
True
"""
