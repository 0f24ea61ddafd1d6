"""Steps of the field against their own objectives, the yardstick, enumeration, and published rules."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pairs import logs

from divsim.formulas import FORWARD_KL, REVERSE_KL, Divergence, mean_under
from divsim.tabular.policies import dirichlet
from divsim.tabular.policy_steps import (
    adapt,
    conservative,
    conservative_rate,
    mdpo,
    mirror,
    natural_gradient,
    penalised,
    safe_mixing,
)
from divsim.tabular.trust_region import REGIONS, SCOPES, Problem, distance, optimum, surrogate
from divsim.tabular.worlds import (
    World,
    bandit,
    expected_return,
    occupancy,
    random_policy,
    random_world,
    values,
)

Floats = NDArray[np.float64]


def random_problem(seed: int, shape: tuple[int, ...] = (), states: int = 3, vocab: int = 4) -> Problem:
    rng = np.random.default_rng(seed)
    return Problem(
        dirichlet(rng, (*shape, states), vocab, 1.0),
        rng.standard_normal((*shape, states, vocab)),
        rng.dirichlet(np.ones(states), shape),
    )


def problem_of(world: World, log_mu: Floats) -> Problem:
    """Every (t, s) is a state with weight d_t(s) / T."""
    flat = (*log_mu.shape[:-3], world.horizon * world.states, world.actions)
    weight = occupancy(world, log_mu) / world.horizon
    return Problem(
        log_mu.reshape(flat), values(world, log_mu).advantage.reshape(flat), weight.reshape(flat[:-1])
    )


def largest_mean(problem: Problem) -> Floats:
    """max_s |E_greedy[A_s]|."""
    return np.asarray(np.max(np.abs(mean_under(problem.greedy, problem.advantage)), axis=-1))


@pytest.mark.parametrize("scope", SCOPES)
def test_natural_gradient_is_a_tilt_of_the_modelled_length(scope: str) -> None:
    problem = random_problem(0, (20,))
    mu, advantage = np.exp(problem.log_mu), problem.advantage
    mean = np.sum(mu * advantage, axis=-1, keepdims=True)
    variance = np.sum(mu * (advantage - mean) ** 2, axis=-1)
    model = variance if scope == "state" else np.sum(problem.weight * variance, axis=-1, keepdims=True)
    tilt = np.sqrt(2 * 0.05 / model)[..., None] * advantage
    expected = mu * np.exp(tilt)
    expected /= expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(np.exp(natural_gradient(problem, 0.05, scope)), expected, rtol=1e-12)


@pytest.mark.parametrize(("divergence", "scope"), product((FORWARD_KL, REVERSE_KL), SCOPES))
def test_natural_gradient_misses_by_the_root_of_delta(divergence: Divergence, scope: str) -> None:
    problem = random_problem(1, (200,))
    radii = np.array([1e-8, 1e-6, 1e-4])
    off = []
    for delta in radii:
        reached = distance(problem, natural_gradient(problem, delta, scope), divergence, scope)
        off.append(np.median(np.abs(reached / delta - 1)))
    # The third cumulant is the first thing that the model leaves out: relative error ~ eta ~ sqrt(delta).
    np.testing.assert_allclose(np.diff(np.log(off)) / np.diff(np.log(radii)), 0.5, atol=0.05)


@pytest.mark.parametrize(("scope", "scale"), product(SCOPES, (2.0**-900, 2.0**1000)))
def test_a_natural_gradient_does_not_depend_on_the_unit_of_reward(scope: str, scale: float) -> None:
    problem = random_problem(5)
    other = replace(problem, advantage=scale * problem.advantage)
    step, same = (natural_gradient(one, 0.05, scope) for one in (problem, other))
    assert np.array_equal(step, same) and not np.allclose(step, problem.log_mu)


def test_natural_gradient_can_leave_the_region_and_never_beats_the_optimum_at_its_own_distance() -> None:
    problem = random_problem(2, (200,))
    for name, scope in product(REGIONS, SCOPES):
        log_pi = natural_gradient(problem, 0.1, scope)
        reached = distance(problem, log_pi, REGIONS[name].divergence, scope)
        best = surrogate(problem, optimum(problem, REGIONS[name], reached, scope))
        assert np.all(surrogate(problem, log_pi) <= best + 1e-9)
        if name == "forward_kl" and scope == "state":
            assert np.max(reached) > 0.2


def test_nothing_to_gain_leaves_mu_where_it_is() -> None:
    problem = Problem(
        logs([[0.2, 0.3, 0.5], [0.0, 0.4, 0.6], [0.1, 0.1, 0.8]]),
        np.array([[1.0, 1.0, 1.0], [9.0, 2.0, 2.0], [3.0, 2.0, 1.0]]),
        np.array([0.5, 0.5, 0.0]),
    )
    mu = np.exp(problem.log_mu)
    steps = [natural_gradient(problem, 0.1, scope) for scope in SCOPES]
    steps += [mirror(problem, 2.0), mdpo(problem, 2.0, 3, 0.5), penalised(problem, 0.1)]
    steps += [conservative(problem, 0.5), conservative(problem, 1.0)]
    for log_pi in steps:
        np.testing.assert_allclose(np.exp(log_pi), mu, atol=1e-15)


@given(seed=st.integers(0, 10**6), rate=st.floats(0.01, 10))
def test_mirror_maximises_its_objective(seed: int, rate: float) -> None:
    problem = random_problem(seed)
    log_pi = mirror(problem, rate)

    def objective(which: Floats) -> Floats:
        pi = np.exp(which)
        pull = np.sum(pi * (which - problem.log_mu), axis=-1) / rate
        return np.asarray(np.sum(pi * problem.advantage, axis=-1) - pull)

    # At its maximum the objective is log E_mu[e^(rate A)] / rate (Gibbs).
    highest = np.log(np.sum(np.exp(problem.log_mu + rate * problem.advantage), axis=-1)) / rate
    np.testing.assert_allclose(objective(log_pi), highest, atol=1e-12 / rate)
    rivals = dirichlet(np.random.default_rng(seed), (100, 3), 4, 1.0)
    assert np.all(objective(rivals) <= highest + 1e-12 / rate)


@given(seed=st.integers(0, 10**6), rate=st.floats(0.01, 10))
def test_mirror_pays_its_gain_in_symmetric_kl(seed: int, rate: float) -> None:
    """KL(mu || pi) + KL(pi || mu) = rate (E_pi[A] - E_mu[A])."""
    problem = random_problem(seed)
    log_pi = mirror(problem, rate)
    both = FORWARD_KL.measure(problem.log_mu, log_pi) + REVERSE_KL.measure(problem.log_mu, log_pi)
    gain = mean_under(log_pi, problem.advantage) - mean_under(problem.log_mu, problem.advantage)
    np.testing.assert_allclose(both, rate * gain, rtol=1e-10, atol=1e-14)


def test_mdpo_converges_to_the_mirror_step() -> None:
    problem, rate = random_problem(3, (20,)), 0.8
    target = np.exp(mirror(problem, rate))
    errors = [
        np.max(np.abs(np.exp(mdpo(problem, rate, steps, 0.8)) - target)) for steps in (0, 10, 100, 3000)
    ]
    assert errors[0] > 0.05
    assert np.all(np.diff(errors) < 0)
    assert errors[-1] < 1e-6  # a rare action of probability 1e-3 learns at a rate of 1e-3 a step


def test_mdpo_takes_the_gradient_of_the_mirror_objective() -> None:
    problem, rate, h = random_problem(4), 0.7, 1e-6
    start = mdpo(problem, rate, 1, 0.5)

    def objective(logits: Floats) -> float:
        log_pi = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        pull = np.sum(np.exp(log_pi) * (log_pi - problem.log_mu)) / rate
        return float(np.sum(np.exp(log_pi) * problem.advantage) - pull)

    slope = np.zeros_like(start)
    for place in np.ndindex(*start.shape):
        bump = np.zeros_like(start)
        bump[place] = h
        slope[place] = (objective(start + bump) - objective(start - bump)) / (2 * h)
    moved = mdpo(problem, rate, 2, 0.5) - start - 0.5 * slope
    # Up to a shift of each row; a central difference is good to h^2 + 1e-16 / h = 1e-10.
    assert np.max(np.ptp(moved, axis=-1)) < 1e-8


@given(seed=st.integers(0, 10**6), log_beta=st.floats(-2, 2))
def test_penalised_maximises_its_objective(seed: int, log_beta: float) -> None:
    problem, beta = random_problem(seed), 10**log_beta
    log_pi = penalised(problem, beta)

    def objective(which: Floats) -> Floats:
        kl = np.sum(np.exp(problem.log_mu) * (problem.log_mu - which), axis=-1)
        return np.asarray(np.sum(np.exp(which) * problem.advantage, axis=-1) - beta * kl)

    highest = objective(log_pi)
    near = log_pi + 1e-3 * np.random.default_rng(seed).standard_normal((100, 3, 4))
    near -= np.log(np.sum(np.exp(near), axis=-1, keepdims=True))
    rivals = np.concatenate([near, dirichlet(np.random.default_rng(seed), (100, 3), 4, 1.0)])
    assert np.all(objective(rivals) <= highest + 1e-12 * (1 + beta))


def test_a_penalty_is_the_region_that_it_ends_in() -> None:
    """Both penalties, each at the mean distance it reached, are the yardstick's answer."""
    problem = random_problem(5, (20,))
    for name, log_pi in (("forward_kl", penalised(problem, 0.7)), ("reverse_kl", mirror(problem, 1.3))):
        reached = distance(problem, log_pi, REGIONS[name].divergence, "mean")
        best = optimum(problem, REGIONS[name], reached, "mean")
        np.testing.assert_allclose(np.exp(best), np.exp(log_pi), atol=1e-9)


def test_adapting_beta_brings_the_distance_to_the_target() -> None:
    problem, target = random_problem(6, (50,)), 0.02
    beta = np.ones(50)
    reached = []
    for _ in range(30):
        kl = distance(problem, penalised(problem, beta), FORWARD_KL, "mean")
        reached.append(kl)
        beta = adapt(beta, kl, target)
    # A factor 2 in beta moves the KL by up to 4, so the rule may hop over its dead zone, but not further.
    assert np.max(np.abs(np.log(reached[0] / target))) > np.log(4)
    assert np.all(np.abs(np.log(np.array(reached[-5:]) / target)) < np.log(1.5 * 4))


def test_adapt_is_the_published_rule() -> None:
    target = 0.03
    cases = {0.0199: 0.5, 0.0201: 1.0, 0.0449: 1.0, 0.0451: 2.0}
    for kl, factor in cases.items():
        assert float(adapt(3.0, kl, target)) == 3 * factor


@given(seed=st.integers(0, 10**6), alpha=st.floats(0, 1))
def test_conservative_is_a_mixture_with_the_best_action(seed: int, alpha: float) -> None:
    problem = random_problem(seed)
    greedy = np.eye(4)[np.argmax(problem.advantage, axis=-1)]
    expected = (1 - alpha) * np.exp(problem.log_mu) + alpha * greedy
    np.testing.assert_allclose(np.exp(conservative(problem, alpha)), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("name", "scope"), product(REGIONS, SCOPES))
@pytest.mark.parametrize("delta", [1e-6, 0.01, 0.2, 3.0])
def test_conservative_rate_is_the_largest(name: str, scope: str, delta: float) -> None:
    problem, divergence = random_problem(7, (50,)), REGIONS[name].divergence
    alpha = conservative_rate(problem, delta, REGIONS[name], scope)
    reached = distance(problem, conservative(problem, alpha), divergence, scope)
    is_whole = distance(problem, problem.greedy, divergence, scope) <= delta
    np.testing.assert_array_equal(alpha == 1, is_whole)
    np.testing.assert_allclose(reached[~is_whole], delta, rtol=1e-8)
    assert np.all(reached <= delta)


@pytest.mark.parametrize("horizon", [1, 2, 5, 20])
def test_safe_mixing_keeps_its_promise_in_every_world(horizon: int) -> None:
    rng = np.random.default_rng(horizon)
    world = random_world(rng, (300,), 4, 3, horizon)
    log_mu = random_policy(rng, world)
    problem = problem_of(world, log_mu)
    epsilon = largest_mean(problem)
    promised_gain = horizon * surrogate(problem, problem.greedy)
    best = safe_mixing(problem, horizon, epsilon)
    for alpha in (best, np.full(300, 0.1), np.full(300, 1.0)):
        log_pi = conservative(problem, alpha).reshape(log_mu.shape)
        gain = expected_return(world, log_pi) - expected_return(world, log_mu)
        bound = alpha * promised_gain - alpha**2 * epsilon * horizon * (horizon - 1)
        half = alpha * promised_gain - alpha**2 * epsilon * horizon * (horizon - 1) / 2
        assert np.all(gain >= half - 1e-12)
        assert np.all(gain >= bound - 1e-12)
    assert np.all(best * promised_gain - best**2 * epsilon * horizon * (horizon - 1) >= 0)


def test_half_of_the_penalty_of_mixing_is_needed() -> None:
    """The better door leads past the room where something was to be gained, so that gain counts twice."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = transition[1, :, 1] = transition[2, :, 2] = 1.0
    reward = np.array([[0.0, 0.0], [0.0, 1.0], [0.51, 0.51]])
    world = World(np.array([1.0, 0.0, 0.0]), transition, reward, horizon=2)
    log_mu = np.log(np.array([[[0.99, 0.01], [0.5, 0.5], [0.5, 0.5]]] * 2))
    problem = problem_of(world, log_mu)
    log_pi = conservative(problem, 1.0).reshape(log_mu.shape)
    gain = float(expected_return(world, log_pi) - expected_return(world, log_mu))
    hoped = 2 * float(surrogate(problem, problem.greedy))
    penalty = float(largest_mean(problem)) * 2
    assert hoped > 0.5
    assert gain < 0.01
    assert hoped - penalty / 2 <= gain < hoped - 0.49 * penalty


@given(seed=st.integers(0, 10**6), horizon=st.integers(2, 50), epsilon=st.floats(1e-3, 10))
def test_safe_mixing_maximises_the_bound(seed: int, horizon: int, epsilon: float) -> None:
    problem = random_problem(seed)
    gain = float(horizon * surrogate(problem, problem.greedy))
    alpha = float(safe_mixing(problem, horizon, epsilon))
    grid = np.append(np.linspace(0, 1, 1001), alpha)
    bound = grid * gain - grid**2 * epsilon * horizon * (horizon - 1)
    assert 0 <= alpha <= 1
    assert bound[-1] >= np.max(bound) - 1e-12 * (1 + abs(np.max(bound)))


def test_a_bandit_needs_no_caution() -> None:
    reward = np.array([0.1, 0.7, 0.3])
    log_mu = np.log(np.array([[[0.5, 0.2, 0.3]]]))
    problem = problem_of(bandit(reward), log_mu)
    assert float(safe_mixing(problem, 1, largest_mean(problem))) == 1
    flat = Problem(problem.log_mu, np.zeros((1, 3)), np.array([1.0]))
    assert float(safe_mixing(flat, 3, 0.0)) == 0


def test_refusals_name_the_remedy() -> None:
    problem = random_problem(10)
    with pytest.raises(ValueError, match=r"rate must be > 0, got -1\.0; pass"):
        mirror(problem, -1.0)
    with pytest.raises(ValueError, match=r"beta must be > 0, got 0\.0; pass"):
        penalised(problem, 0.0)
    with pytest.raises(ValueError, match="delta must be > 0"):
        natural_gradient(problem, 0.0, "mean")
    with pytest.raises(ValueError, match="scope must be one of state, mean"):
        natural_gradient(problem, 0.1, "worst")
    for alpha in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]"):
            conservative(problem, alpha)


@pytest.mark.parametrize("log_rare", [-300.0, -690.0, -720.0])
def test_a_natural_gradient_of_a_policy_that_is_almost_decided_is_finite(log_rare: float) -> None:
    """The variance of A under mu is as small as the rare action, the step as long as one over its root."""
    log_mu = np.array([[0.0, log_rare]])
    problem = Problem(log_mu, np.array([[0.0, 1.0]]), np.array([1.0]))
    for scope in SCOPES:
        step = natural_gradient(problem, 3.0, scope)
        assert np.all(np.isfinite(step)) and np.isclose(np.exp(step).sum(), 1)
