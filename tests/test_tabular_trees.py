"""Token trees against plain loops over every sequence."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divsim.formulas import FORWARD_KL, TV
from divsim.tabular.tree_pairs import (
    prefix_divergences,
    sum_of_later,
    surrogate,
    surrogate_error,
    surrogate_error_weights,
)
from divsim.tabular.trees import (
    Levels,
    TokenTree,
    action_values,
    expected_reward,
    perturbed_levels,
    policy_gradient,
    prefix_probs,
    random_levels,
    random_tree,
    sequence_log_probs,
    token_log_probs,
)

ROUNDING = 1e-13  # sums of 27 products of numbers of size 1
V, T = 3, 3

Trees = tuple[TokenTree, Levels, Levels]


def tree_and_policies(seed: int, vocab: int = V, horizon: int = T) -> Trees:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, (), vocab, horizon)
    mu = random_levels(rng, tree)
    return tree, mu, perturbed_levels(rng, mu, 0.7)


def number(tokens: tuple[int, ...], vocab: int = V) -> int:
    """Base V, first token most significant."""
    n = 0
    for token in tokens:
        n = vocab * n + token
    return n


def token_prob(levels: Levels, tokens: tuple[int, ...], t: int) -> float:
    return float(np.exp(levels[t][number(tokens[:t]), tokens[t]]))


def sequences() -> list[tuple[int, ...]]:
    return list(product(range(V), repeat=T))


def prob(levels: Levels, tokens: tuple[int, ...]) -> float:
    return prod(token_prob(levels, tokens, t) for t in range(len(tokens)))


@pytest.fixture(params=range(3))
def case(request: pytest.FixtureRequest) -> Trees:
    return tree_and_policies(request.param)


def test_probabilities(case: Trees) -> None:
    tree, mu, _ = case
    assert tree.sequences == len(sequences())
    for tokens in sequences():
        assert np.exp(sequence_log_probs(mu)[number(tokens)]) == pytest.approx(prob(mu, tokens), abs=ROUNDING)
        for t in range(T):
            assert np.exp(token_log_probs(mu)[number(tokens), t]) == pytest.approx(token_prob(mu, tokens, t))
            reached = prefix_probs(mu)[t][number(tokens[:t])]
            assert reached == pytest.approx(prob(mu, tokens[:t]), abs=ROUNDING)


def test_expected_reward(case: Trees) -> None:
    tree, mu, _ = case
    expected = sum(prob(mu, tokens) * tree.reward[number(tokens)] for tokens in sequences())
    assert float(expected_reward(tree, mu)) == pytest.approx(expected, abs=ROUNDING)


def test_action_values_are_conditional_means(case: Trees) -> None:
    tree, mu, _ = case
    q = action_values(tree, mu)
    for t in range(T):
        for prefix in product(range(V), repeat=t + 1):
            inside = [tokens for tokens in sequences() if tokens[: t + 1] == prefix]
            mass = sum(prob(mu, tokens) for tokens in inside)
            mean = sum(prob(mu, tokens) * tree.reward[number(tokens)] for tokens in inside) / mass
            assert q[t][number(prefix[:-1]), prefix[-1]] == pytest.approx(mean, abs=ROUNDING)


def test_policy_gradient_is_the_derivative_of_the_expected_reward(case: Trees) -> None:
    tree, mu, _ = case
    gradient, h = policy_gradient(tree, mu), 1e-5
    for t in range(T):
        for place in np.ndindex(*mu[t].shape):
            ends = []
            for side in (h, -h):
                logits = mu[t].copy()
                logits[place] += side
                level = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
                ends.append(float(expected_reward(tree, (*mu[:t], level, *mu[t + 1 :]))))
            # Truncation h^2 = 1e-10 and rounding 1e-16 / h = 1e-11, of a reward of size 1.
            assert gradient[t][place] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-9)


def test_surrogate_and_its_error_by_their_definitions(case: Trees) -> None:
    """[DPPO] Theorem 3.1, term by term."""
    tree, mu, pi = case
    first, error = 0.0, 0.0
    for tokens in sequences():
        r = [token_prob(pi, tokens, t) / token_prob(mu, tokens, t) for t in range(T)]
        weight = prob(mu, tokens) * float(tree.reward[number(tokens)])
        first += weight * sum(r[t] - 1 for t in range(T))
        error += weight * sum((r[t] - 1) * (1 - prod(r[t + 1 :])) for t in range(T))
    assert float(surrogate(tree, mu, pi)) == pytest.approx(first, abs=ROUNDING)
    assert float(surrogate_error(tree, mu, pi)) == pytest.approx(error, abs=ROUNDING)
    gain = float(expected_reward(tree, pi) - expected_reward(tree, mu))
    assert gain == pytest.approx(first - error, abs=ROUNDING)
    assert abs(error) > 1e-4  # the identity is not trivial


def test_prefix_divergences(case: Trees) -> None:
    _, mu, pi = case
    for t in range(T):
        for prefix in range(V**t):
            p, q = np.exp(mu[t][prefix]), np.exp(pi[t][prefix])
            tv = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
            kl = sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))
            assert prefix_divergences(TV.measure, mu, pi)[t][prefix] == pytest.approx(tv, abs=ROUNDING)
            assert prefix_divergences(FORWARD_KL.measure, mu, pi)[t][prefix] == pytest.approx(
                kl, abs=ROUNDING
            )


def test_a_tree_by_hand() -> None:
    """V = T = 2, reward only after (1, 1): J = pi(1) pi(1 | 1)."""
    tree = TokenTree(np.array([0.0, 0.0, 0.0, 1.0]), vocab=2, horizon=2)
    mu = (np.log(np.array([[0.5, 0.5]])), np.log(np.array([[0.5, 0.5], [0.5, 0.5]])))
    pi = (np.log(np.array([[0.2, 0.8]])), np.log(np.array([[0.5, 0.5], [0.1, 0.9]])))
    assert float(expected_reward(tree, pi)) == pytest.approx(0.72, rel=1e-14)
    assert float(surrogate(tree, mu, pi)) == pytest.approx(0.25 * (0.6 + 0.8), rel=1e-14)
    assert float(surrogate_error(tree, mu, pi)) == pytest.approx(0.25 * 0.6 * (1 - 1.8), rel=1e-14)
    assert action_values(tree, pi)[0].tolist() == [[0.0, pytest.approx(0.9)]]


@given(seed=st.integers(0, 10**6), vocab=st.integers(1, 4), horizon=st.integers(1, 3))
def test_laws_of_every_tree(seed: int, vocab: int, horizon: int) -> None:
    tree, mu, pi = tree_and_policies(seed, vocab, horizon)
    assert np.exp(sequence_log_probs(mu)).sum() == pytest.approx(1, abs=ROUNDING)
    gain = float(expected_reward(tree, pi) - expected_reward(tree, mu))
    split = float(surrogate(tree, mu, pi) - surrogate_error(tree, mu, pi))
    assert gain == pytest.approx(split, abs=ROUNDING)
    assert float(surrogate(tree, mu, mu)) == 0
    for level in policy_gradient(tree, mu):
        assert np.max(np.abs(level.sum(axis=-1))) < ROUNDING
    constant = TokenTree(np.ones(vocab**horizon), vocab, horizon)
    assert np.max(np.abs(policy_gradient(constant, mu)[0])) < ROUNDING
    total = np.sum(tree.reward * surrogate_error_weights(mu, pi))
    assert total == pytest.approx(float(surrogate_error(tree, mu, pi)), abs=ROUNDING)


def test_later_ratio_is_a_product_of_what_follows() -> None:
    log_r = np.log(np.array([2.0, 3.0, 5.0]))
    np.testing.assert_allclose(np.exp(sum_of_later(log_r)), [15, 5, 1], rtol=1e-14)


def test_policies_that_share_no_token_have_a_finite_error() -> None:
    rng = np.random.default_rng(2)
    tree = random_tree(rng, (20,), 3, 4)
    mu = random_levels(rng, tree)
    pi = perturbed_levels(rng, mu, 900.0)
    promised, error = surrogate(tree, mu, pi), surrogate_error(tree, mu, pi)
    gain = expected_reward(tree, pi) - expected_reward(tree, mu)
    np.testing.assert_allclose(promised - error, gain, atol=ROUNDING)


def test_a_batch_is_its_members() -> None:
    rng = np.random.default_rng(1)
    tree = random_tree(rng, (3,), 2, 4)
    mu = random_levels(rng, tree)
    pi = perturbed_levels(rng, mu, 1.0)
    for n in range(3):
        one = TokenTree(tree.reward[n], 2, 4)
        mu_n, pi_n = (tuple(level[n] for level in levels) for levels in (mu, pi))
        assert surrogate_error(tree, mu, pi)[n] == pytest.approx(float(surrogate_error(one, mu_n, pi_n)))
        for batched, single in zip(policy_gradient(tree, mu), policy_gradient(one, mu_n), strict=True):
            np.testing.assert_allclose(batched[n], single, atol=ROUNDING)
