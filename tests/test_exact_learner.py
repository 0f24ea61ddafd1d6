"""Exact trust-region steps as learners: the one-step problem, and what each step promises."""

import numpy as np
import pytest

from divsim.formulas import FORWARD_KL, log_softmax
from divsim.tabular.environments import ENVIRONMENTS, stacked
from divsim.tabular.exact_learner import STEPS, exact_problem, improve, problem_of
from divsim.tabular.rollouts import by_time
from divsim.tabular.trust_region import REGIONS, distance, optimum, surrogate
from divsim.tabular.worlds import expected_return, occupancy, values

names = pytest.mark.parametrize("name", STEPS)


def generators(seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in range(seeds)]


def drawn(name: str, seeds: int = 3) -> tuple:  # type: ignore[type-arg]
    pairs = [ENVIRONMENTS[name].draw(rng) for rng in generators(seeds)]
    logits = np.stack([start for _, start in pairs]) + np.random.default_rng(7).standard_normal(
        pairs[0][1].shape
    )
    return stacked([world for world, _ in pairs]), log_softmax(logits)


@pytest.mark.parametrize("name", ["chain", "grid", "tree", "layered"])
def test_the_problem_is_the_surrogate_of_the_return(name: str) -> None:
    """T times its surrogate is sum_t E_{s ~ d_t} E_pi[A_t], the first order of J(pi) - J(mu)."""
    world, log_mu = drawn(name)
    log_pi = log_softmax(log_mu + 0.5 * np.random.default_rng(1).standard_normal(log_mu.shape))
    visits, advantage = (
        occupancy(world, by_time(world, log_mu)),
        values(world, by_time(world, log_mu)).advantage,
    )
    expected = np.einsum("nts,nsa,ntsa->n", visits, np.exp(log_pi), advantage)
    problem = exact_problem(world, log_mu)
    np.testing.assert_allclose(world.horizon * surrogate(problem, log_pi), expected, rtol=1e-11, atol=1e-13)
    tiny = log_softmax(log_mu + 1e-6 * np.random.default_rng(1).standard_normal(log_mu.shape))
    gain = expected_return(world, by_time(world, tiny)) - expected_return(world, by_time(world, log_mu))
    np.testing.assert_allclose(world.horizon * surrogate(problem, tiny), gain, rtol=1e-4)


def test_the_return_of_a_process_can_exceed_what_the_yardstick_promises_and_that_of_a_bandit_cannot() -> None:
    for name, exceeds in (("chain", True), ("bernoulli", False)):
        world, log_mu = drawn(name)
        problem = exact_problem(world, log_mu)
        best = optimum(problem, REGIONS["forward_kl"], 0.3, "mean")
        gain = expected_return(world, by_time(world, best)) - expected_return(world, by_time(world, log_mu))
        promised = world.horizon * surrogate(problem, best)
        if exceeds:
            assert np.all(gain > 1.01 * promised)
        else:
            np.testing.assert_allclose(gain, promised, rtol=1e-12)


@names
@pytest.mark.parametrize("advantage", ["exact", "gae"])
def test_every_step_learns(name: str, advantage: str) -> None:
    radius = STEPS[name].radius
    history = improve(ENVIRONMENTS["chain"], STEPS[name], radius, generators(3), 15, 32, advantage)
    assert history.ret.shape == (3, 16) and history.kl.shape == (3, 15, 1)
    assert np.all(np.isfinite(history.ret)) and np.all(history.ret <= history.best[:, None] + 1e-12)
    if advantage == "exact":  # with estimates a step can also lose everything, and the natural gradient does
        assert np.all(history.ret[:, -1] > history.ret[:, 0] + 0.01)


@pytest.mark.parametrize("name", ["trpo", "conservative"])
def test_a_bound_on_the_mean_kl_is_met_in_every_rollout(name: str) -> None:
    history = improve(ENVIRONMENTS["tree"], STEPS[name], 0.05, generators(3), 5, 0)
    assert np.all(history.kl <= 0.05 * (1 + 1e-8))
    np.testing.assert_allclose(history.kl[:, 0, 0], 0.05, rtol=1e-8)


def test_the_adaptive_penalty_comes_near_its_target() -> None:
    history = improve(ENVIRONMENTS["tree"], STEPS["adaptive_kl"], 0.02, generators(3), 12, 0)
    assert np.all(history.kl[:, 0] < 0.02)  # beta starts at 1
    assert np.all(np.max(history.kl, axis=(1, 2)) > 0.02 / 1.5) and np.all(history.kl < 6 * 0.02)


def test_estimated_advantages_are_means_over_episodes() -> None:
    world, log_mu = drawn("bernoulli")
    found = problem_of(ENVIRONMENTS["bernoulli"], world, log_mu, generators(3), 20_000, "group")
    exact = exact_problem(world, log_mu)
    error = np.abs(found.advantage - exact.advantage)
    seen = 20_000 * np.exp(log_mu)
    assert np.all(
        error < 5 * 0.5 / np.sqrt(seen) + 5 * 0.5 / np.sqrt(20_000)
    )  # five sigma of an arm, and of the mean
    once = problem_of(ENVIRONMENTS["bernoulli"], world, log_mu, generators(3), 4, "group")
    assert np.any(once.advantage == 0), "an arm that was never pulled has no advantage"
    np.testing.assert_array_equal(once.weight, np.ones((3, 1)))


def test_the_distance_it_reports_is_the_problems() -> None:
    seen = []
    improve(
        ENVIRONMENTS["grid"],
        STEPS["natural"],
        0.1,
        generators(2),
        1,
        0,
        watch=lambda *step: seen.append(step),
    )
    world, log_mu, log_pi = seen[0]
    history = improve(ENVIRONMENTS["grid"], STEPS["natural"], 0.1, generators(2), 1, 0)
    problem = exact_problem(world, log_mu)
    for scope, values_of in (("mean", history.kl), ("state", history.largest_kl)):
        np.testing.assert_allclose(
            distance(problem, log_pi, FORWARD_KL, scope), values_of[:, 0, 0], rtol=1e-12
        )
