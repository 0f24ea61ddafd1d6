"""The learner against plain loops over seeds, and what must hold of every rule."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from divsim.formulas import RULES, importance_sampling, log_softmax, make_rule, ppo_clip, reinforce
from divsim.tabular.environments import ENVIRONMENTS
from divsim.tabular.learner import Recipe, learn, logit_gradient, sample_size
from divsim.tabular.optimisers import adam, sgd
from divsim.tabular.rollouts import by_time
from divsim.tabular.worlds import expected_return, policy_gradient

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "learner.py"
SHORT = Recipe(ppo_clip(), sgd(4.0), rollouts=3, episodes=16, minibatches=4, passes=2, advantage="group")


def plain_learner() -> object:
    spec = importlib.util.spec_from_file_location("plain_learner", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generators(seeds: int, first: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng(seed + first) for seed in range(seeds)]


@pytest.mark.parametrize("name", ["ppo_clip", "dppo_full_kl"])
def test_it_is_a_plain_loop_over_seeds(name: str) -> None:
    plain = plain_learner()
    rule, keep_of = plain.RULES[name]  # type: ignore[attr-defined]
    recipe = Recipe(
        rule, sgd(plain.RATE), plain.ROLLOUTS, plain.EPISODES, plain.MINIBATCHES, advantage="group"
    )  # type: ignore[attr-defined]
    history = learn(ENVIRONMENTS["bernoulli"], recipe, generators(3))
    for seed in range(3):
        policy, trace = plain.plain_seed(np.random.default_rng(seed), keep_of)  # type: ignore[attr-defined]
        ours = np.stack([history.kl[seed], history.drop[seed], history.sample_size[seed]], axis=-1)
        theirs = np.array(trace).reshape(plain.ROLLOUTS, plain.MINIBATCHES + 1, 3)  # type: ignore[attr-defined]
        # Both round each of 320 steps; a policy that far from uniform amplifies it by its largest ratio.
        np.testing.assert_allclose(np.exp(history.policy[seed, 0]), policy, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ours, theirs[:, :-1], rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(history.ret[seed, 1:], theirs[:, -1, 0], rtol=1e-9)
        np.testing.assert_allclose(history.entropy[seed, 1:], theirs[:, -1, 1], rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("environment", ["chain", "tree"])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_learns_without_numbers_that_are_none(rule: str, environment: str) -> None:
    advantage = "gae" if environment == "chain" else "group"
    recipe = replace(SHORT, rule=make_rule(rule), advantage=advantage)
    history = learn(ENVIRONMENTS[environment], recipe, generators(2))
    assert history.kl.shape == (2, 3, 8)
    for values in (history.ret, history.entropy, history.kl, history.largest_kl, history.policy):
        assert np.all(np.isfinite(values))
    assert np.all(history.largest_kl >= history.kl * (1 - 1e-12))
    assert np.all(history.ret <= history.best[:, None] + 1e-12)


def test_a_seed_does_not_depend_on_the_others() -> None:
    together = learn(ENVIRONMENTS["tree"], SHORT, generators(4))
    alone = learn(ENVIRONMENTS["tree"], SHORT, generators(1, first=3))
    for name, values in vars(alone).items():
        assert np.array_equal(getattr(together, name)[3:], values, equal_nan=True), name


def test_the_gradient_of_all_tokens_is_the_policy_gradient() -> None:
    """One minibatch of many episodes with exact advantages: a Monte Carlo estimate of T^-1 dJ / dz."""
    once = replace(SHORT, rollouts=1, episodes=40_000, minibatches=1, passes=1)
    recipe = replace(once, rule=reinforce(), optimiser=sgd(1.0), advantage="exact")
    place = ENVIRONMENTS["grid"]
    world, start = place.draw(np.random.default_rng(0))
    history = learn(place, recipe, generators(1))
    moved = history.policy[0] - log_softmax(start)
    moved = moved - np.mean(moved, axis=-1, keepdims=True)
    exact = policy_gradient(world, by_time(world, log_softmax(start))).sum(axis=0) / world.horizon
    size = 5 * np.max(np.abs(exact)) / np.sqrt(40_000 * 0.01)  # five sigma where a state is visited in 1 %
    assert np.max(np.abs(moved - exact)) < size
    assert np.corrcoef(moved.ravel(), exact.ravel())[0, 1] > 0.99


def test_the_gradient_is_a_sum_over_tokens() -> None:
    rng = np.random.default_rng(0)
    policy = log_softmax(rng.standard_normal((2, 3, 4)))
    state, action, push = (
        rng.integers(3, size=(2, 5)),
        rng.integers(4, size=(2, 5)),
        rng.standard_normal((2, 5)),
    )
    found = logit_gradient(policy, state, action, push)
    expected = np.zeros((2, 3, 4))
    for n, b in np.ndindex(2, 5):
        expected[n, state[n, b]] += (
            push[n, b] * (np.eye(4)[action[n, b]] - np.exp(policy[n, state[n, b]])) / 5
        )
    np.testing.assert_allclose(found, expected, atol=1e-15)


def test_on_policy_every_minibatch_is_reinforce() -> None:
    """With one minibatch a rollout, r = 1: no mask acts, and the ratio is 1."""
    single = replace(SHORT, minibatches=1, passes=1)
    first = learn(ENVIRONMENTS["tree"], replace(single, rule=reinforce()), generators(2))
    for rule in (importance_sampling(), ppo_clip(), make_rule("drpo"), make_rule("predictive_full_kl")):
        other = learn(ENVIRONMENTS["tree"], replace(single, rule=rule), generators(2))
        np.testing.assert_allclose(other.policy, first.policy, rtol=1e-12)
        assert np.nanmax(other.drop) == 0 and np.all(other.sample_size == 1)


def test_an_imprecise_engine_is_where_kl_starts() -> None:
    noisy = learn(ENVIRONMENTS["tree"], replace(SHORT, optimiser=sgd(1e-9), engine_noise=0.3), generators(2))
    assert np.all(noisy.kl > 1e-3)
    exact = learn(ENVIRONMENTS["tree"], replace(SHORT, optimiser=sgd(1e-9)), generators(2))
    assert np.all(exact.kl < 1e-12)


def test_the_record_is_that_of_the_world() -> None:
    seen = []
    history = learn(
        ENVIRONMENTS["chain"], replace(SHORT, advantage="gae", optimiser=adam(0.1)), generators(2),
        watch=lambda world, log_mu, log_pi: seen.append((world, log_mu, log_pi)),
    )  # fmt: skip
    assert len(seen) == 24
    world, _, last = seen[-1]
    np.testing.assert_allclose(history.ret[:, -1], expected_return(world, by_time(world, last)), rtol=1e-12)
    mu = np.exp(seen[-1][1])
    kl = np.sum(mu * (np.log(mu) - last), axis=-1)
    np.testing.assert_allclose(history.largest_kl[:, -1, -1], kl.max(axis=-1), rtol=1e-6)


def test_the_sample_size_is_one_over_the_variance() -> None:
    log_ratio = np.random.default_rng(0).standard_normal((3, 50))
    r = np.exp(log_ratio)
    np.testing.assert_allclose(sample_size(log_ratio), r.sum(-1) ** 2 / (r**2).sum(-1) / 50, rtol=1e-12)
    shifted = sample_size(log_ratio - 900)  # ratios that underflow; the shift is rounded at 900
    np.testing.assert_allclose(shifted, sample_size(log_ratio), rtol=1e-11)
