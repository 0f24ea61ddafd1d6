"""Every chapter's simulation is green, and turns red when a formula that it checks is broken."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from divsim import formulas
from divsim.tabular import (
    horizon,
    verify_directions,
    verify_finite_step,
    verify_geometry,
    verify_gradients,
    verify_horizon,
    verify_inequalities,
    verify_methods,
    verify_softmax,
    verify_tails,
)
from divsim.tabular.geometry import EUCLIDEAN, NATURAL, SIGN
from divsim.tabular.simulations import SIMULATIONS
from divsim.tabular.tree_pairs import surrogate_error
from divsim.tabular.worlds import expected_return, values

LARGE = {"T2": 50_000, "T3": 50_000}


@pytest.mark.parametrize("chapter", SIMULATIONS)
def test_simulation_is_green(chapter: str) -> None:
    found = SIMULATIONS[chapter](np.random.default_rng(20))
    failed = [check for check in found.checks if not check.ok]
    assert found.ok, failed
    assert found.name.startswith(f"{chapter} ")
    assert all(check.reason and check.cases > 0 for check in found.checks)
    assert LARGE.get(chapter, 2) in (*found.sizes, 2)


def test_there_is_one_simulation_per_chapter() -> None:
    assert list(SIMULATIONS) == [f"T{i}" for i in range(1, 14)]


@pytest.mark.parametrize("chapter", ["T1", "T8", "T12"])
def test_a_seed_fixes_the_simulation(chapter: str) -> None:
    first, again = (SIMULATIONS[chapter](np.random.default_rng(3)) for _ in range(2))
    assert first == again
    assert first != SIMULATIONS[chapter](np.random.default_rng(4))


def scaled(function: Callable[..., Any], factor: float) -> Callable[..., Any]:
    return lambda *args, **kwargs: factor * function(*args, **kwargs)


def narrowed_interval(view: formulas.View) -> tuple[Any, Any]:
    low, high = formulas.change_interval(view)
    return low + 0.01 * (high - low), high


def widened_interval(view: formulas.View) -> tuple[Any, Any]:
    low, high = formulas.change_interval(view)
    return low - 0.01 * (high - low), high


def lower_bracket_only(*args: Any) -> tuple[Any, Any]:
    low, _ = formulas.flip_step_bracket(*args)
    return low, 1.01 * low


def change_with_other_tail(view: formulas.View, divergence: formulas.Divergence, tail: str) -> Any:
    other = {"proportional": "uniform", "aggregated": "proportional"}
    return formulas.change(view, divergence, other.get(tail, tail))


def change_without_mu(log_mu: Any, log_pi: Any, displacement: Any) -> Any:
    return formulas.finite_change(log_mu, log_pi, displacement) + 1e-9 * np.max(displacement, axis=-1)


def gradient_without_baseline(world: Any, log_pi: Any) -> Any:
    return np.exp(log_pi) * values(world, log_pi).action_value


def path_not_normalised(log_pi: Any, direction: Any, t: Any) -> Any:
    return log_pi + t * direction


def step_of_one_hot(log_pi: Any, action: Any) -> Any:
    return formulas.policy_gradient_direction(log_pi, action) + np.exp(log_pi)


@dataclass(frozen=True)
class Mutant:
    """A broken stand-in for one name in one module, which must turn one chapter red.

    Attributes:
      chapter: key of `SIMULATIONS`.
      module: where the name is looked up.
      name: what is replaced.
      value: by what.
      refused_by: a part of the name of a check that must fail.
    """

    chapter: str
    module: Any
    name: str
    value: Any
    refused_by: str


RKL = formulas.REVERSE_KL
WRONG_GRAD = replace(formulas.JS, logit_grad=formulas.HELLINGER2.logit_grad)
NOT_A_DIVERGENCE = {"mixed": replace(formulas.JS, measure=lambda mu, pi: -formulas.JS.measure(mu, pi))}
SWAPPED_RULES = {
    "DRPO": (verify_methods.SOFT_RULES["SPO"][0], verify_methods.SOFT_RULES["DRPO"][1]),
    "SPO": (verify_methods.SOFT_RULES["DRPO"][0], verify_methods.SOFT_RULES["SPO"][1]),
}

MUTANTS = (
    Mutant("T1", verify_softmax, "exponential_path", path_not_normalised, "pi' = pi (v - E v)"),
    Mutant("T1", verify_softmax, "policy_gradient_direction", step_of_one_hot, "gradient of log pi_k"),
    Mutant("T2", verify_softmax, "EUCLIDEAN", replace(EUCLIDEAN, rate=NATURAL.rate), "dD/ds = c_k"),
    Mutant("T2", verify_softmax, "FORWARD_KL", replace(formulas.FORWARD_KL, measure=RKL.measure), "dD/dz"),
    Mutant("T3", verify_finite_step, "finite_change", change_without_mu, "finite change = "),
    Mutant("T3", verify_finite_step, "flip_step_bracket", lower_bracket_only, "flip step"),
    Mutant("T3", verify_finite_step, "curvature", scaled(formulas.curvature, 1.01), "V0 / 2"),
    Mutant("T3", verify_finite_step, "curvature", scaled(formulas.curvature, 1.01), ">= V0 / R^2"),
    Mutant("T3", verify_finite_step, "curvature", scaled(formulas.curvature, 0.99), "<= V0 / R^2"),
    Mutant("T4", verify_softmax, "ALL_DIVERGENCES", (WRONG_GRAD,), "js"),
    Mutant("T5", verify_directions, "EUCLIDEAN", replace(EUCLIDEAN, rate=SIGN.rate), "disagree iff"),
    Mutant("T5", verify_directions, "NATURAL", EUCLIDEAN, "natural gradient, forward KL"),
    Mutant("T5", verify_directions, "NATURAL", EUCLIDEAN, "natural gradient, reverse KL"),
    Mutant("T5", verify_directions, "SIGN", replace(SIGN, direction=EUCLIDEAN.direction), "sign step"),
    Mutant("T6", verify_directions, "EUCLIDEAN", replace(EUCLIDEAN, rate=SIGN.rate), "E_mu[r c] = 0"),
    Mutant("T6", verify_directions, "policy_gradient_direction", step_of_one_hot, "E_mu[A r (e_k - pi)]"),
    Mutant("T7", verify_tails, "change", change_with_other_tail, "proportional change, coarse tv"),
    Mutant("T7", verify_tails, "change", change_with_other_tail, "aggregated ="),
    Mutant("T7", verify_tails, "change_interval", narrowed_interval, "contains c_k"),
    Mutant("T7", verify_tails, "change_interval", widened_interval, "attained"),
    Mutant("T8", verify_inequalities, "pinsker", scaled(formulas.pinsker, 0.9), "sqrt(KL"),
    Mutant(
        "T8", verify_inequalities, "bretagnolle_huber", scaled(formulas.bretagnolle_huber, 0.7), "1 - e^-KL"
    ),
    Mutant("T8", verify_inequalities, "FORWARD_KL", formulas.HELLINGER2, "binary Pinsker"),
    Mutant("T9", verify_methods, "SOFT_RULES", SWAPPED_RULES, "weight A, DRPO"),
    Mutant("T9", verify_methods, "SOFT_RULES", SWAPPED_RULES, "DRPO: weight zero"),
    Mutant("T9", verify_methods, "SOFT_RULES", SWAPPED_RULES, "E_mu[SPO penalty]"),
    Mutant("T10", verify_gradients, "policy_gradient", gradient_without_baseline, "exact policy gradient"),
    Mutant("T10", verify_gradients, "expected_return", scaled(expected_return, 1.01), "natural"),
    Mutant("T10", verify_gradients, "REVERSE_KL", formulas.FORWARD_KL, "mirror step"),
    Mutant("T10", verify_gradients, "curvature", scaled(formulas.curvature, 1.01), "cross term"),
    Mutant("T10", verify_gradients, "finite_change", scaled(formulas.finite_change, 0.99), "minibatch"),
    Mutant("T11", verify_geometry, "kernel_change", scaled(formulas.kernel_change, 1.01), "by kernel"),
    Mutant("T11", verify_geometry, "EUCLIDEAN", replace(EUCLIDEAN, rate=NATURAL.rate), "A r c_k / T^2"),
    Mutant("T11", verify_geometry, "curvature", scaled(formulas.curvature, 1.01), "Var_pi(eps) / 2"),
    Mutant("T11", verify_geometry, "curvature", scaled(formulas.curvature, 1.01), "independent noise"),
    Mutant("T11", verify_geometry, "finite_change", scaled(formulas.finite_change, 2.0), "2 e TV"),
    Mutant("T12", verify_horizon, "surrogate_error", scaled(surrogate_error, 0.99), "L' - Delta"),
    Mutant("T12", verify_horizon, "expected_advantage", scaled(formulas.expected_advantage, 0.99), "worlds"),
    Mutant("T12", horizon, "expected_advantage", scaled(formulas.expected_advantage, 0.99), "sum_t A^mu"),
    Mutant("T12", horizon, "horizon_quadratic", scaled(formulas.horizon_quadratic, 0.9), "TV_max^2"),
    Mutant("T12", horizon, "horizon_coupling", scaled(formulas.horizon_coupling, 0.9), "coupling"),
    Mutant("T12", horizon, "horizon_adaptive", scaled(formulas.horizon_adaptive, 0.9), "adaptive"),
    Mutant("T13", verify_methods, "_gaussian_kl", scaled(verify_methods._gaussian_kl, 2.0), "KL(eta)"),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.chapter}-{m.name}-{m.refused_by}")
def test_a_broken_formula_turns_its_check_red(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {2: 4, 3: 6, 12: 4}  # a mutant needs no V = 50,000
    monkeypatch.setattr(verify_softmax, "FORWARD_KL_COUNTS", few)
    for module in (verify_finite_step, verify_directions, verify_tails):
        monkeypatch.setattr(module, "COUNTS", few)
    monkeypatch.setattr(mutant.module, mutant.name, mutant.value)
    found = SIMULATIONS[mutant.chapter](np.random.default_rng(21))
    failed = [check.name for check in found.checks if not check.ok]
    assert any(mutant.refused_by in name for name in failed), failed


def test_a_violated_data_processing_inequality_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minus a divergence goes up when cells are merged."""
    monkeypatch.setattr(verify_tails, "COUNTS", {3: 6, 12: 4})
    monkeypatch.setattr(verify_tails, "DIVERGENCES", NOT_A_DIVERGENCE)
    found = SIMULATIONS["T7"](np.random.default_rng(22))
    assert "coarse D <= D, every divergence" in [check.name for check in found.checks if not check.ok]


def test_the_wing_loads_neither_torch_nor_sympy() -> None:
    heavy = "{'torch', 'sympy', 'matplotlib', 'scipy.stats'}"
    code = f"import sys, divsim.tabular.simulations; print(sorted({heavy} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
