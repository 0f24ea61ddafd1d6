"""Four geometries: directions against plain loops, closed-form rates against the direction they belong to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax

from divsim.formulas import DIVERGENCES, FORWARD_KL, REVERSE_KL, directional_change
from divsim.tabular.geometry import EUCLIDEAN, NATURAL, SIGN, geometries, linear_head, natural_head
from divsim.tabular.policies import PAIR_FAMILIES, PolicyPair

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

W = np.array([[0.3, -1.2], [0.7, 0.1], [-0.5, 0.4], [1.1, 2.0]])
PI = np.array([0.1, 0.2, 0.3, 0.4])


def unit(k: int) -> Floats:
    return np.array([float(i == k) for i in range(4)])


ORACLES = {
    "euclidean": lambda k: unit(k) - PI,
    "sign": lambda k: np.sign(unit(k) - PI),
    "natural": lambda k: unit(k) / PI,
    "linear_head": lambda k: W @ W.T @ (unit(k) - PI),
}


@pytest.mark.parametrize("k", range(4))
@pytest.mark.parametrize("name", ORACLES)
def test_direction(name: str, k: int) -> None:
    direction = geometries(W)[name].direction(np.log(PI), np.array(k))
    np.testing.assert_allclose(direction, ORACLES[name](k), rtol=1e-14, atol=1e-15)  # a few roundings


def test_natural_direction_is_the_fisher_pseudo_inverse_of_the_gradient() -> None:
    fisher = np.diag(PI) - np.outer(PI, PI)
    for k in range(4):
        solved = np.linalg.pinv(fisher) @ (unit(k) - PI)
        direction = NATURAL.direction(np.log(PI), np.array(k))
        # The pseudo-inverse has mean zero; a shift of all logits is no move. Condition number below 10.
        np.testing.assert_allclose(direction - direction.mean(), solved, atol=1e-13)


def test_linear_head_is_one_gradient_step_of_its_weights() -> None:
    """z = W theta, theta += s W^T (e_k - pi)."""
    theta = np.array([0.4, -0.2])
    pi = np.exp(log_softmax(W @ theta))
    s, k = 0.7, 2
    stepped = W @ (theta + s * W.T @ (unit(k) - pi)) - W @ theta
    direction = linear_head(W).direction(np.log(pi), np.array(k))
    np.testing.assert_allclose(s * direction, stepped, rtol=1e-13)


def test_a_head_of_all_features_is_euclidean_and_a_large_one_needs_no_square_matrix() -> None:
    rng = np.random.default_rng(0)
    pair = PAIR_FAMILIES["zipf"](rng, (1,), 50_000)  # V x V would take 20 GB
    k = np.array([17])
    head = linear_head(rng.standard_normal((50_000, 8)))
    assert head.direction(pair.log_pi, k).shape == (1, 50_000)
    same = linear_head(np.eye(4))
    np.testing.assert_allclose(same.direction(np.log(PI), np.array(1)), unit(1) - PI, atol=1e-16)


@given(
    logits=st.lists(st.floats(-5, 5), min_size=8, max_size=8).map(np.array),
    k=st.integers(0, 3),
    name=st.sampled_from(sorted(DIVERGENCES)),
)
def test_closed_form_rate_is_the_derivative_along_the_direction(logits: Floats, k: int, name: str) -> None:
    pair = PolicyPair(log_softmax(logits[:4]), log_softmax(logits[4:]))
    divergence, action = DIVERGENCES[name], np.array(k)
    for geometry in (*geometries(W).values(), natural_head(W)):
        direction = geometry.direction(pair.log_pi, action)
        q = divergence.logit_grad(pair.log_mu, pair.log_pi)
        expected = directional_change(divergence, pair.log_mu, pair.log_pi, direction)
        # Both are sums over 4 tokens of terms |q_i v_i|, and q sums to zero within their rounding.
        size = (1 + np.sum(np.abs(q))) * np.max(np.abs(direction))
        assert abs(geometry.rate(divergence, pair, action) - expected) < 1e-14 * size


@pytest.mark.parametrize("seed", range(5))
def test_natural_rates_are_the_ratio_test_and_its_reverse_twin(seed: int) -> None:
    pair = PAIR_FAMILIES["uniform"](np.random.default_rng(seed), (), 6)
    eta, advantage = 0.3, -1.7
    for k in range(6):
        r = float(np.exp(pair.log_pi[k] - pair.log_mu[k]))
        step = eta * advantage * r
        reverse_kl = sum(np.exp(p) * (p - m) for p, m in zip(pair.log_pi, pair.log_mu, strict=True))
        forward = step * NATURAL.rate(FORWARD_KL, pair, np.array(k))
        reverse = step * NATURAL.rate(REVERSE_KL, pair, np.array(k))
        assert forward == pytest.approx(eta * advantage * (r - 1), rel=1e-12, abs=1e-14)
        assert reverse == pytest.approx(step * (np.log(r) - reverse_kl), rel=1e-12, abs=1e-14)


def test_sign_and_natural_have_the_ratio_sign_and_euclidean_has_not() -> None:
    """pi = (1,2,4)/7, mu = (5,1,1)/7: the second token rose, and raising it further lowers forward KL."""
    pair = PolicyPair(np.log(np.array([5, 1, 1]) / 7), np.log(np.array([1, 2, 4]) / 7))
    k = np.array(1)
    assert SIGN.rate(FORWARD_KL, pair, k) > 0
    assert NATURAL.rate(FORWARD_KL, pair, k) > 0
    assert EUCLIDEAN.rate(FORWARD_KL, pair, k) == pytest.approx(-3 / 49, rel=1e-14)


def test_sign_direction_survives_a_certain_token() -> None:
    """1 - pi_k rounds to zero; the sign of the gradient on k is still +1."""
    assert SIGN.direction(np.array([-40.0, 0.0]), np.array(1)).tolist() == [-1, 1]


def heads() -> tuple[Floats, Ints, Floats]:
    """Log-probabilities (5, 3, 12), from open to peaked, sampled tokens (5, 3), and features (12, 4)."""
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((5, 3, 12)) * np.array([0.1, 1, 2, 3, 4])[:, None, None]
    log_pi: Floats = log_softmax(logits, axis=-1)
    return log_pi, rng.integers(12, size=(5, 3)), rng.standard_normal((12, 4))


def centred(log_pi: Floats, direction: Floats) -> Floats:
    """A displacement without its shift of all logits."""
    return np.asarray(direction - np.sum(np.exp(log_pi) * direction, axis=-1, keepdims=True))


def test_natural_head_solves_the_fisher_system_of_its_weights() -> None:
    """theta solves F theta = W^T (e_k - pi), F the second moment of the score under pi."""
    log_pi, action, features = heads()
    found = natural_head(features).direction(log_pi, action)
    assert found.shape == log_pi.shape
    for place in np.ndindex(action.shape):
        pi, k = np.exp(log_pi[place]), action[place]
        scores = [features.T @ (np.eye(12)[i] - pi) for i in range(12)]
        fisher = sum(p * np.outer(score, score) for p, score in zip(pi, scores, strict=True))
        theta = np.linalg.lstsq(fisher, scores[k], rcond=None)[0]
        # Solving loses the condition number of F, a thousand at most, and a matrix of sums as much again.
        assert np.linalg.cond(fisher) < 2e3
        np.testing.assert_allclose(found[place], features @ theta, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("width", [11, 12, 30])
def test_natural_head_with_enough_features_is_natural_up_to_a_shift(width: int) -> None:
    log_pi, action, _ = heads()
    features = np.random.default_rng(4).standard_normal((12, width))
    found = centred(log_pi, natural_head(features).direction(log_pi, action))
    expected = centred(log_pi, NATURAL.direction(log_pi, action))
    size = np.max(np.abs(expected), axis=-1, keepdims=True)
    assert np.all(np.abs(found - expected) < 1e-11 * size)  # scores of condition 1e4 at most


def test_natural_head_is_of_the_space_of_logits_whatever_weights_describe_it() -> None:
    log_pi, action, features = heads()
    found = centred(log_pi, natural_head(features).direction(log_pi, action))
    mix = np.random.default_rng(5).standard_normal((4, 4))
    shifted = features @ mix + np.array([1.0, -2.0, 3.0, 0.5])  # the same shift of every token is no move
    repeated = np.concatenate([features, features @ mix], axis=-1)
    for same in (10.0 * features, shifted, repeated):
        direction = centred(log_pi, natural_head(same).direction(log_pi, action))
        np.testing.assert_allclose(direction, found, rtol=1e-9, atol=1e-9)  # mixes of condition 1e2


def test_dependent_features_are_no_directions_at_a_large_vocabulary() -> None:
    """Half of the 64 features repeat the others: their singular values are rounding, beyond 1e-15."""
    rng = np.random.default_rng(3)
    features = rng.standard_normal((2000, 32))
    repeated = np.concatenate([features, features @ rng.standard_normal((32, 32))], axis=1)
    log_pi = log_softmax(-2 * np.log1p(np.arange(2000)) + 0.7 * rng.standard_normal(2000))
    once, twice = (
        centred(log_pi, natural_head(x).direction(log_pi, np.array(666))) for x in (features, repeated)
    )
    assert np.max(np.abs(once - twice)) < 1e-11 * np.max(np.abs(once))


def test_natural_head_raises_the_token_most_for_the_kl_it_spends() -> None:
    """No direction of the head has a higher rate of log pi_k per root of its Fisher length."""
    log_pi, action, features = heads()
    found = centred(log_pi, natural_head(features).direction(log_pi, action))
    others = centred(log_pi, np.random.default_rng(6).standard_normal((200, 5, 3, 4)) @ features.T)

    def gain(direction: Floats) -> Floats:
        rise = np.take_along_axis(direction, np.broadcast_to(action, direction.shape[:-1])[..., None], -1)
        return np.asarray(rise[..., 0] / np.sqrt(np.sum(np.exp(log_pi) * direction**2, axis=-1)))

    assert np.all(np.abs(gain(others)) <= gain(found))
