"""Episodes and advantages: frequencies, unbiasedness with intervals, and formulas against plain loops."""

import numpy as np
import pytest
from scipy import stats

from divsim.formulas import log_softmax
from divsim.tabular import rollouts as r
from divsim.tabular.environments import ENVIRONMENTS, paid_as_success, stacked
from divsim.tabular.policies import Floats
from divsim.tabular.worlds import World, expected_return, occupancy, values

# A right sampler is refused once in 10,000 seeds; these seeds are fixed.
RARE = 1e-4


def setting(name: str, seeds: int = 2) -> tuple[World, Floats]:
    drawn = [ENVIRONMENTS[name].draw(np.random.default_rng(seed)) for seed in range(seeds)]
    logits = np.stack([start + np.random.default_rng(9).standard_normal(start.shape) for _, start in drawn])
    return stacked([world for world, _ in drawn]), log_softmax(logits)


def generators(seeds: int = 2, first: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng(seed + first) for seed in range(seeds)]


@pytest.mark.parametrize("name", ["chain", "grid", "tree"])
def test_states_and_actions_come_as_often_as_their_probabilities_say(name: str) -> None:
    world, log_mu = setting(name)
    found = r.sample(generators(), world, log_mu, 20_000)
    visits = occupancy(world, r.by_time(world, log_mu))
    for seed in range(2):
        for t in (0, world.horizon // 2, world.horizon - 1):
            pairs = found.state[seed, :, t] * world.actions + found.action[seed, :, t]
            expected = (visits[seed, t][:, None] * np.exp(log_mu[seed])).ravel()
            seen = np.bincount(pairs, minlength=len(expected))
            common = expected * 20_000 > 10  # where the chi-square distribution holds
            counts = np.append(seen[common], seen[~common].sum())
            theirs = np.append(expected[common], expected[~common].sum()) * 20_000
            if theirs[-1] < 10:
                counts, theirs = counts[:-1], theirs[:-1]
            assert stats.chisquare(counts, theirs * counts.sum() / theirs.sum()).pvalue > RARE


def test_a_seed_does_not_depend_on_the_others() -> None:
    world, log_mu = setting("tree", 3)
    together = r.sample(generators(3), world, log_mu, 16)
    alone_world = stacked([ENVIRONMENTS["tree"].draw(np.random.default_rng(2))[0]])
    alone = r.sample(generators(1, first=2), alone_world, log_mu[2:], 16)
    for ours, theirs in zip(vars(together).values(), vars(alone).values(), strict=True):
        assert np.array_equal(ours[2], theirs[0])


def test_rewards_are_paid_for_the_state_and_action_that_were_taken() -> None:
    world, log_mu = setting("chain")
    found = r.sample(generators(), world, log_mu, 50)
    for seed, episode, t in np.ndindex(found.reward.shape):
        state, action = found.state[seed, episode, t], found.action[seed, episode, t]
        assert found.reward[seed, episode, t] == world.reward[seed, state, action]


@pytest.mark.parametrize("name", ["chain", "tree", "bernoulli"])
def test_the_mean_return_is_the_expected_one(name: str) -> None:
    world, log_mu = setting(name)
    found = r.sample(
        generators(), world, log_mu, 20_000, paid_as_success if name == "bernoulli" else r.paid_exactly
    )
    exact = expected_return(world, r.by_time(world, log_mu))
    for seed in range(2):
        assert stats.ttest_1samp(found.reward[seed].sum(axis=-1), exact[seed]).pvalue > RARE


@pytest.mark.parametrize("estimator", ["exact", "monte_carlo", "group"])
def test_estimates_have_the_mean_that_the_policy_gradient_needs(estimator: str) -> None:
    """The mean at a state and an action is the exact advantage, plus what depends on the state alone."""
    world, log_mu = setting("tree", 1)
    found = r.sample(generators(1), world, log_mu, 40_000)
    estimate = r.ESTIMATORS[estimator](world, log_mu, found)[0]
    exact = values(world, r.by_time(world, log_mu)).advantage[0]
    at_root = [estimate[found.action[0, :, 0] == a, 0] for a in range(world.actions)]
    for a in range(1, world.actions):
        gap = exact[0, 0, a] - exact[0, 0, 0]
        if estimator == "exact":
            assert np.ptp(at_root[a]) == 0 and at_root[a][0] - at_root[0][0] == pytest.approx(gap, abs=1e-14)
        else:
            assert stats.ttest_ind(at_root[a] - gap, at_root[0], equal_var=False).pvalue > RARE


def test_estimates_are_those_of_plain_loops() -> None:
    world, log_mu = setting("chain")
    found = r.sample(generators(), world, log_mu, 6)
    returns = found.reward.sum(axis=-1)
    n, episodes, horizon = found.reward.shape
    for s, e, t in np.ndindex(n, episodes, horizon):
        to_go = found.reward[:, :, t:].sum(axis=-1)
        others = [to_go[s, other] for other in range(episodes) if other != e]
        assert r.monte_carlo(world, log_mu, found)[s, e, t] == pytest.approx(
            to_go[s, e] - np.mean(others), abs=1e-12
        )
        assert r.group(world, log_mu, found)[s, e, t] == pytest.approx(
            returns[s, e] - returns[s].mean(), abs=1e-12
        )
    critic = {}
    for s, t in np.ndindex(n, horizon):
        for state in set(found.state[s, :, t].tolist()):
            here = found.state[s, :, t] == state
            critic[s, t, state] = found.reward[s, here, t:].sum(axis=-1).mean()
    gae = r.gae(world, log_mu, found)
    for s, e in np.ndindex(n, episodes):
        later = 0.0
        for t in reversed(range(horizon)):
            after = critic[s, t + 1, found.state[s, e, t + 1]] if t + 1 < horizon else 0.0
            error = found.reward[s, e, t] + after - critic[s, t, found.state[s, e, t]]
            later = error + r.LAMBDA * later
            assert gae[s, e, t] == pytest.approx(later, abs=1e-10)  # ours divides by .95^t


def test_one_episode_has_no_others() -> None:
    world, log_mu = setting("chain")
    found = r.sample(generators(), world, log_mu, 1)
    assert np.array_equal(
        r.monte_carlo(world, log_mu, found)[:, 0], np.cumsum(found.reward[:, 0, ::-1], -1)[:, ::-1]
    )
    assert np.all(r.group(world, log_mu, found) == 0)
