"""Discounted processes and long worlds with an outcome, against worlds that are solved one by one."""

from itertools import product

import numpy as np
import pytest
from bound_worlds import Process, Tree, tv

from divsim.tabular import discounted, outcome_worlds
from divsim.tabular.discounted import Discounted, doorway, mixture, random_discounted
from divsim.tabular.outcome_worlds import WORLD_PAIRS, counter, outcome_weights, outcome_world, towards
from divsim.tabular.policies import dirichlet
from divsim.tabular.worlds import expected_return

CLOSE = 1e-12
"""Of returns up to 100, from solves of condition 200: they lose less than 1e-14 of that."""


def drawn(gamma: float) -> tuple[Discounted, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(201)
    mdp = random_discounted(rng, (7,), states=5, actions=3, gamma=gamma)
    log_mu, log_pi = dirichlet(rng, (2, 7, 5), 3, 1.0)
    return mdp, log_mu, log_pi


def alone(mdp: Discounted, place: int) -> Process:
    return Process(mdp.transition[place], mdp.reward[place], mdp.initial[place], mdp.gamma)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
def test_a_batch_is_its_processes_one_by_one(gamma: float) -> None:
    mdp, log_mu, log_pi = drawn(gamma)
    values, visits = discounted.values(mdp, log_mu), discounted.occupancy(mdp, log_mu)
    returns = discounted.expected_return(mdp, log_mu)
    gains = discounted.surrogate(mdp, log_mu, log_pi)
    for place in range(7):
        process, mu, pi = alone(mdp, place), np.exp(log_mu[place]), np.exp(log_pi[place])
        np.testing.assert_allclose(values.value[place], process.value(mu), rtol=CLOSE)
        np.testing.assert_allclose(values.advantage[place], process.advantage(mu), atol=100 * CLOSE)
        np.testing.assert_allclose(visits[place], process.occupancy(mu), rtol=CLOSE)
        assert returns[place] == pytest.approx(process.objective(mu), rel=CLOSE)
        gained = process.occupancy(mu) @ np.sum(pi * process.advantage(mu), axis=-1)
        assert gains[place] == pytest.approx(gained / (1 - gamma), abs=100 * CLOSE)


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_the_performance_difference_is_an_identity(gamma: float) -> None:
    mdp, log_mu, log_pi = drawn(gamma)
    gain = discounted.expected_return(mdp, log_pi) - discounted.expected_return(mdp, log_mu)
    met = discounted.occupancy(mdp, log_pi) * discounted.mean_advantage(mdp, log_mu, log_pi)
    np.testing.assert_allclose(met.sum(axis=-1), (1 - gamma) * gain, atol=CLOSE)  # in units of the range
    same = discounted.surrogate(mdp, log_mu, log_mu)
    np.testing.assert_allclose(same, 0, atol=100 * CLOSE)


def test_occupancies_are_the_visits_of_an_episode() -> None:
    mdp, log_mu, _ = drawn(0.5)
    state, visits = mdp.initial, np.zeros_like(mdp.initial)
    for t in range(60):  # 2^-60 of the visits are later
        visits = visits + 0.5**t * state / 2
        state = np.einsum("ns,nsa,nsap->np", state, np.exp(log_mu), mdp.transition)
    np.testing.assert_allclose(discounted.occupancy(mdp, log_mu), visits, rtol=CLOSE)


def test_random_processes_are_processes() -> None:
    mdp = drawn(0.9)[0]
    np.testing.assert_allclose(mdp.initial.sum(axis=-1), 1, rtol=CLOSE)
    np.testing.assert_allclose(mdp.transition.sum(axis=-1), 1, rtol=CLOSE)
    assert mdp.reward.min() >= 0 and mdp.reward.max() <= 1 and np.ptp(mdp.reward) > 0.9


def test_mixtures_run_from_one_policy_to_the_other() -> None:
    _, log_mu, log_pi = drawn(0.9)
    mixed = np.exp(mixture(log_mu, log_pi, 0.3))
    np.testing.assert_allclose(mixed, 0.7 * np.exp(log_mu) + 0.3 * np.exp(log_pi), rtol=CLOSE)
    assert np.array_equal(mixture(log_mu, log_pi, 1), log_pi)


def test_the_door_is_passed_once() -> None:
    mdp = doorway(0.9)
    even = np.log(np.full((2, 3), 1 / 3))
    # leaving with probability 1/3 a step: d(door) = (1 - g) / (1 - 2 g / 3)
    assert discounted.occupancy(mdp, even)[0] == pytest.approx(0.1 / 0.4, rel=CLOSE)
    assert mdp.reward[0].tolist() == [0.5, 0.0, 1.0] and mdp.reward[1].tolist() == [0.5, 1.0, 0.0]


def as_tree(log_mu: np.ndarray, log_pi: np.ndarray, outcome: np.ndarray) -> Tree:
    """A counter of T steps with every sequence written out."""
    horizon = len(log_mu)
    prefixes = [[sum(path) for path in product((0, 1), repeat=t)] for t in range(horizon + 1)]
    mu, pi = ([np.exp(p[t, prefixes[t]]) for t in range(horizon)] for p in (log_mu, log_pi))
    return Tree(mu, pi, outcome[prefixes[-1]])


@pytest.mark.parametrize("name", ["rare", "fair"])
def test_a_world_that_counts_is_a_tree(name: str) -> None:
    """The surrogate by dynamic programming, the weights of the outcomes, and the enumeration of sequences."""
    rng = np.random.default_rng(202)
    for horizon in (1, 2, 5):
        walk, log_mu, log_pi = WORLD_PAIRS[name](rng, horizon, 0.2)
        outcome = rng.random(horizon + 1)
        tree = as_tree(log_mu, log_pi, outcome)
        world = outcome_world(walk, outcome, horizon)
        gain = expected_return(world, log_pi) - expected_return(world, log_mu)
        reached = [tree.prefixes(policy)[-1] @ tree.reward for policy in (tree.pi, tree.mu)]
        assert gain == pytest.approx(reached[0] - reached[1], abs=CLOSE)
        error = gain - outcome_worlds.surrogate(world, log_mu, log_pi)
        assert error == pytest.approx(tree.error(), abs=CLOSE)
        assert outcome_weights(walk, log_mu, log_pi) @ outcome == pytest.approx(tree.error(), abs=CLOSE)


@pytest.mark.parametrize("name", WORLD_PAIRS)
def test_the_worst_outcome_is_worse_than_any_other(name: str) -> None:
    rng = np.random.default_rng(203)
    walk, log_mu, log_pi = WORLD_PAIRS[name](rng, 6, 0.1)

    def error(outcome: np.ndarray) -> float:
        world = outcome_world(walk, outcome, 6)
        gain = expected_return(world, log_pi) - expected_return(world, log_mu)
        return abs(float(gain - outcome_worlds.surrogate(world, log_mu, log_pi)))

    states = len(walk[0])
    worst = error((outcome_weights(walk, log_mu, log_pi) > 0).astype(float))
    every = [error(np.array(bits)) for bits in product((0.0, 1.0), repeat=states)]
    assert worst == pytest.approx(max(every), rel=1e-9)  # differences of returns of 1 by 1e-5 at least


@pytest.mark.parametrize("name", WORLD_PAIRS)
@pytest.mark.parametrize("distance", [0.001, 0.3])
def test_policies_are_as_far_apart_as_was_asked(name: str, distance: float) -> None:
    walk, log_mu, log_pi = WORLD_PAIRS[name](np.random.default_rng(204), 9, distance)
    np.testing.assert_allclose(tv(np.exp(log_mu), np.exp(log_pi)), distance, rtol=1e-10)  # of sums near 1
    np.testing.assert_allclose(walk[1].sum(axis=-1), 1, rtol=CLOSE)


def test_a_counter_counts() -> None:
    initial, transition = counter(3)
    assert initial.tolist() == [1, 0, 0, 0]
    for state in range(4):
        assert transition[state, 0].argmax() == state
        assert transition[state, 1].argmax() == min(state + 1, 3)


def test_a_distance_beyond_the_room_is_refused() -> None:
    with pytest.raises(ValueError, match=r"distance must be below 1 - mu_a, got 0.3 where it is 0.25"):
        towards(np.log(np.array([0.25, 0.75])), np.array(1), 0.3)
