"""The environments: what they promise of rewards and transitions, and the token tree against the tree."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from divsim.formulas import log_softmax
from divsim.tabular import environments as e
from divsim.tabular.rollouts import by_time
from divsim.tabular.trees import TokenTree, expected_reward
from divsim.tabular.worlds import expected_return, optimal_return, values

names = pytest.mark.parametrize("name", e.ENVIRONMENTS)


@names
def test_a_world_is_one(name: str) -> None:
    world, logits = e.ENVIRONMENTS[name].draw(np.random.default_rng(0))
    assert logits.shape == (world.states, world.actions) == world.reward.shape
    np.testing.assert_allclose(world.initial.sum(), 1, atol=1e-12)  # sums of at most 96 probabilities
    np.testing.assert_allclose(world.transition.sum(axis=-1), 1, atol=1e-12)
    assert np.all(world.transition >= 0) and np.all(np.isfinite(log_softmax(logits)))


@names
def test_there_is_something_to_learn(name: str) -> None:
    world, logits = e.ENVIRONMENTS[name].draw(np.random.default_rng(1))
    assert optimal_return(world) > expected_return(world, by_time(world, log_softmax(logits))) + 0.1


@names
def test_no_policy_is_better_than_the_best(name: str) -> None:
    """And the greedy policy of its own values, step by step, is as good: policy iteration from anywhere."""
    world, logits = e.ENVIRONMENTS[name].draw(np.random.default_rng(2))
    policy = by_time(world, log_softmax(logits))
    for _ in range(world.horizon):
        best = values(world, policy).action_value
        policy = np.where(best == best.max(axis=-1, keepdims=True), 0.0, -np.inf)
        policy = policy - np.log(np.sum(np.exp(policy), axis=-1, keepdims=True))
    np.testing.assert_allclose(expected_return(world, policy), optimal_return(world), rtol=1e-12, atol=1e-12)


def test_the_token_tree_is_the_tree() -> None:
    rng = np.random.default_rng(0)
    reward = rng.random(3**4)
    world = e.token_tree(reward, vocab=3, horizon=4)
    policy = log_softmax(rng.standard_normal((world.states, 3)))
    first = np.cumsum([0, 1, 3, 9, 27])
    levels = tuple(policy[a:b] for a, b in pairwise(first))
    expected = expected_reward(TokenTree(reward, 3, 4), levels)
    assert expected_return(world, by_time(world, policy)) == pytest.approx(float(expected), abs=1e-14)


def test_the_chain_and_the_grid_pay_where_they_say() -> None:
    right = np.full((8, 3), -np.inf)
    right[:, 2] = 0.0
    world = e.chain(8, 12, slip=0.0)
    assert expected_return(world, by_time(world, right)) == 5.0  # seven steps to the end, five rewards of one
    assert optimal_return(world) == 5.0
    board = e.grid(3, 4, slip=0.0)
    assert board.reward[-1].tolist() == [1.0] * 4 and board.reward[-2].tolist() == [-1.0] * 4
    assert optimal_return(board) == 0.0 + 0.0  # the goal is four steps away, and the episode is over
    assert optimal_return(e.grid(3, 6, slip=0.0)) == 2.0


def test_noise_has_the_mean_it_says() -> None:
    expected, level = np.full(100_000, 0.3), np.random.default_rng(0).random(100_000)
    paid = e.paid_as_success(expected, level)
    assert set(np.unique(paid)) == {0.0, 1.0}
    assert stats.binomtest(int(paid.sum()), len(paid), 0.3).pvalue > 1e-4
    noisy = e.paid_with_gaussian_noise(expected, level)
    assert stats.kstest(noisy - 0.3, "norm").pvalue > 1e-4
    assert np.all(np.isfinite(e.paid_with_gaussian_noise(np.zeros(1), np.zeros(1))))
    assert np.array_equal(e.paid_exactly(expected, level), expected)
