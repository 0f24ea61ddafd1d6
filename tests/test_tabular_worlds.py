"""Tabular worlds against linear algebra, against every trajectory, and against finite differences."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from divsim.tabular.policies import perturbed
from divsim.tabular.worlds import (
    World,
    bandit,
    expected_return,
    occupancy,
    policy_gradient,
    random_policy,
    random_world,
    values,
)

Floats = NDArray[np.float64]

ROUNDING = 1e-13  # sums of at most a few hundred products of numbers of size 1


def world_and_policy(seed: int, shape: tuple[int, ...] = (), horizon: int = 3) -> tuple[World, Floats]:
    world = random_world(np.random.default_rng(seed), shape, states=3, actions=2, horizon=horizon)
    return world, random_policy(np.random.default_rng(seed + 1), world)


def step_matrix(world: World, log_pi: Floats) -> tuple[Floats, Floats]:
    """Transition matrix and reward vector of the chain on (t, s), as one absorbing Markov chain."""
    horizon, states = world.horizon, world.states
    chain, reward = np.zeros((horizon * states, horizon * states)), np.zeros(horizon * states)
    for t, s, a in product(range(horizon), range(states), range(world.actions)):
        probability = float(np.exp(log_pi[t, s, a]))
        reward[t * states + s] += probability * world.reward[s, a]
        for after in range(states) if t + 1 < horizon else ():
            chain[t * states + s, (t + 1) * states + after] += probability * world.transition[s, a, after]
    return chain, reward


@pytest.mark.parametrize("seed", range(5))
def test_values_solve_the_linear_system(seed: int) -> None:
    world, log_pi = world_and_policy(seed)
    chain, reward = step_matrix(world, log_pi)
    solved = np.linalg.solve(np.eye(len(chain)) - chain, reward).reshape(world.horizon, world.states)
    np.testing.assert_allclose(values(world, log_pi).value, solved, atol=ROUNDING)


@pytest.mark.parametrize("seed", range(5))
def test_occupancy_solves_the_transposed_system(seed: int) -> None:
    world, log_pi = world_and_policy(seed)
    chain, _ = step_matrix(world, log_pi)
    start = np.concatenate([world.initial, np.zeros(len(chain) - world.states)])
    solved = np.linalg.solve(np.eye(len(chain)) - chain.T, start).reshape(world.horizon, world.states)
    np.testing.assert_allclose(occupancy(world, log_pi), solved, atol=ROUNDING)


def test_return_is_the_mean_over_every_trajectory() -> None:
    world, log_pi = world_and_policy(7)
    total, mass = 0.0, 0.0
    steps = list(product(range(world.states), range(world.actions)))
    for path in product(steps, repeat=world.horizon):
        probability, gained, before = 1.0, 0.0, None
        for t, (s, a) in enumerate(path):
            enter = world.initial[s] if before is None else world.transition[before[0], before[1], s]
            probability *= float(enter * np.exp(log_pi[t, s, a]))
            gained += float(world.reward[s, a])
            before = (s, a)
        total, mass = total + probability * gained, mass + probability
    assert mass == pytest.approx(1, abs=ROUNDING)
    assert float(expected_return(world, log_pi)) == pytest.approx(total, abs=ROUNDING)


def test_action_values_are_one_step_of_lookahead() -> None:
    world, log_pi = world_and_policy(8)
    solved = values(world, log_pi)
    for t, s, a in product(range(world.horizon), range(world.states), range(world.actions)):
        later = solved.value[t + 1] if t + 1 < world.horizon else np.zeros(world.states)
        expected = world.reward[s, a] + sum(p * v for p, v in zip(world.transition[s, a], later, strict=True))
        assert solved.action_value[t, s, a] == pytest.approx(expected, abs=ROUNDING)


def test_policy_gradient_is_the_derivative_of_the_return() -> None:
    world, log_pi = world_and_policy(9)
    gradient, h = policy_gradient(world, log_pi), 1e-5
    for place in np.ndindex(*log_pi.shape):
        ends = []
        for side in (h, -h):
            logits = log_pi.copy()
            logits[place] += side
            ends.append(float(expected_return(world, logits - np.log(np.exp(logits).sum(-1, keepdims=True)))))
        # Truncation h^2 = 1e-10 and rounding 1e-16 / h = 1e-11, of a return of size 3.
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-9)


@given(seed=st.integers(0, 10**6), horizon=st.integers(1, 4))
def test_laws_of_every_world(seed: int, horizon: int) -> None:
    world, log_pi = world_and_policy(seed, horizon=horizon)
    solved, visited = values(world, log_pi), occupancy(world, log_pi)
    pi = np.exp(log_pi)
    assert np.max(np.abs(np.sum(pi * solved.advantage, axis=-1))) < ROUNDING
    np.testing.assert_allclose(visited.sum(axis=-1), 1, atol=ROUNDING)
    assert np.max(np.abs(policy_gradient(world, log_pi).sum(axis=-1))) < ROUNDING
    # The return is also what each visited state pays.
    paid = np.sum(visited[..., None] * pi * world.reward)
    assert float(expected_return(world, log_pi)) == pytest.approx(paid, abs=ROUNDING)
    other = perturbed(np.random.default_rng(seed), log_pi, 1.0)
    gain = np.sum(occupancy(world, other)[..., None] * np.exp(other) * solved.advantage)
    difference = float(expected_return(world, other) - expected_return(world, log_pi))
    assert difference == pytest.approx(gain, abs=ROUNDING)


def test_a_batch_is_its_members() -> None:
    world, log_pi = world_and_policy(10, shape=(4, 2))
    for place in np.ndindex(4, 2):
        one = World(world.initial[place], world.transition[place], world.reward[place], world.horizon)
        np.testing.assert_allclose(
            policy_gradient(world, log_pi)[place], policy_gradient(one, log_pi[place]), atol=ROUNDING
        )
        np.testing.assert_allclose(
            expected_return(world, log_pi)[place], expected_return(one, log_pi[place]), atol=ROUNDING
        )


def test_a_bandit_by_hand() -> None:
    reward, pi = np.array([1.0, 0.0, 4.0]), np.array([0.5, 0.25, 0.25])
    world, log_pi = bandit(reward), np.log(pi)[None, None]
    assert float(expected_return(world, log_pi)) == 1.5
    np.testing.assert_allclose(
        policy_gradient(world, log_pi)[0, 0], [0.5 * -0.5, 0.25 * -1.5, 0.25 * 2.5], atol=1e-15
    )


def test_a_policy_of_the_wrong_shape_is_refused() -> None:
    world, log_pi = world_and_policy(11)
    with pytest.raises(
        ValueError, match=r"log_pi must end in shape \(T, S, V\) = \(3, 3, 2\), got \(2, 3, 2\)"
    ):
        values(world, log_pi[:2])
