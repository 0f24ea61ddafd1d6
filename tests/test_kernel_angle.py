"""Angles and signs under a rank-d head: against loops, at the ends of the range of d, and as drawn."""

from pathlib import Path

import numpy as np
import pytest
from figure_checks import check_the_command_writes_the_same_bytes_everywhere
from numpy.typing import NDArray

from divsim.experiments.kernel_angle import (
    Config,
    angle,
    free_changes,
    head_changes,
    plot,
    run,
)
from divsim.formulas import FORWARD_KL, kernel_change
from divsim.tabular.policies import PAIR_FAMILIES

Floats = NDArray[np.float64]

SMALL = Config(vocab=12, ranks=(2, 5, 11), pairs=30)


def pair(seed: int, size: int = 8) -> tuple[Floats, Floats]:
    mu, pi = np.random.default_rng(seed).dirichlet(np.full(size, 2.0), 2)
    return np.log(mu), np.log(pi)


def head(seed: int, size: int, rank: int) -> Floats:
    return np.random.default_rng(100 + seed).standard_normal((size, rank))


def correlation(weights: Floats, x: Floats, y: Floats) -> float:
    """The oracle: Pearson's, each token counted by its weight."""
    x, y = x - np.average(x, weights=weights), y - np.average(y, weights=weights)
    covariance = [np.average(a * b, weights=weights) for a, b in ((x, y), (x, x), (y, y))]
    return float(covariance[0] / np.sqrt(covariance[1] * covariance[2]))


@pytest.mark.parametrize("seed", range(5))
def test_every_change_has_mean_zero_and_the_cosine_is_the_correlation(seed: int) -> None:
    log_mu, log_pi = pair(seed)
    pi = np.exp(log_pi)
    changes = [*free_changes(log_mu, log_pi), *head_changes(head(seed, 8, 3), log_mu, log_pi)]
    for x in changes:
        assert abs(pi @ x) < 1e-13 * np.max(np.abs(x))  # eight terms, each a few roundings
        for y in changes:
            cosine = np.cos(np.radians(angle(log_pi, x, y)))
            assert cosine == pytest.approx(correlation(pi, x, y), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_changes_with_a_head_token_by_token(seed: int) -> None:
    log_mu, log_pi = pair(seed)
    mu, pi, features = np.exp(log_mu), np.exp(log_pi), head(seed, 8, 3)
    plain, natural = head_changes(features, log_mu, log_pi)
    fisher = features.T @ (np.diag(pi) - np.outer(pi, pi)) @ features
    for k in range(8):
        push = features.T @ (np.eye(8)[k] - pi)
        # Condition number of a random 3 x 3 Fisher matrix below 1e3.
        np.testing.assert_allclose(
            natural[k], (pi - mu) @ features @ np.linalg.inv(fisher) @ push, atol=1e-11
        )
        np.testing.assert_allclose(plain[k], (pi - mu) @ features @ push, atol=1e-13)
        by_kernel = kernel_change(FORWARD_KL, log_mu, log_pi, np.array(k), features @ features.T)
        np.testing.assert_allclose(plain[k], by_kernel, atol=1e-13)


@pytest.mark.parametrize("seed", range(5))
def test_the_natural_change_is_a_projection(seed: int) -> None:
    """The best fit of q / pi by the features, and the residual is uncorrelated with each of them."""
    log_mu, log_pi = pair(seed)
    pi, features = np.exp(log_pi), head(seed, 8, 3)
    ratio_test, natural = free_changes(log_mu, log_pi)[1], head_changes(features, log_mu, log_pi)[1]
    assert np.max(np.abs(pi @ ((ratio_test - natural)[:, None] * features))) < 1e-12
    fit = np.sqrt((pi @ natural**2) / (pi @ ratio_test**2))
    assert np.cos(np.radians(angle(log_pi, ratio_test, natural))) == pytest.approx(fit, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_only_the_plain_step_depends_on_the_basis_of_the_features(seed: int) -> None:
    policies, features = pair(seed), head(seed, 8, 3)
    mixed = features @ np.random.default_rng(seed).standard_normal((3, 3)) + 5.0  # and a shift of all logits
    (plain, natural), (other_plain, other_natural) = (head_changes(w, *policies) for w in (features, mixed))
    np.testing.assert_allclose(natural, other_natural, atol=1e-9)  # a mixing of condition number 1e3 or less
    assert np.max(np.abs(plain - other_plain)) > 0.01


def test_free_features_change_nothing() -> None:
    log_mu, log_pi = pair(0)
    free, headed = free_changes(log_mu, log_pi), head_changes(np.eye(8), log_mu, log_pi)
    assert np.max(angle(log_pi, free, headed)) < 1e-10  # degrees; rounding of vectors of eight numbers
    np.testing.assert_allclose(headed, free, atol=1e-12)


def test_all_but_one_feature_give_back_the_ratio_test_but_not_c() -> None:
    result = run(SMALL)
    plain, natural = result.angle[0, 0, -1], result.angle[1, 1, -1]
    assert np.max(natural) < 1e-5  # degrees; a square Gaussian matrix may have a condition number of 1e4
    assert np.min(plain) > 1
    assert np.max(result.differ[1, 1, -1]) == 0


def test_the_plain_step_forgets_its_head_as_one_over_root_d() -> None:
    medians = []
    for rank in (300, 4800):
        angles = []
        for seed in range(60):
            log_mu, log_pi = pair(seed)
            q, features = np.exp(log_pi) - np.exp(log_mu), head(seed, 8, rank)
            c_head = features @ (features.T @ q)  # up to its mean under pi
            c_head -= np.exp(log_pi) @ c_head
            angles.append(angle(log_pi, free_changes(log_mu, log_pi)[0], c_head))
        medians.append(np.median(angles))
    # 16 times the features, a quarter of the angle; medians of 60 draws scatter by about 10 % each.
    assert medians[0] / medians[1] == pytest.approx(4, rel=0.3)


def test_the_share_is_the_frequency_among_tokens_sampled_from_mu() -> None:
    config = Config(vocab=12, ranks=(3,), pairs=1, seed=4)
    result = run(config)
    rng = np.random.default_rng(config.seed)
    drawn = PAIR_FAMILIES[config.family](rng, (1,), config.vocab)
    log_mu, log_pi = drawn.log_mu[0], drawn.log_pi[0]
    headed = head_changes(rng.standard_normal((12, 3)), log_mu, log_pi)
    free, n = free_changes(log_mu, log_pi), 100_000
    tokens = np.random.default_rng(0).choice(12, n, p=np.exp(log_mu))
    for i in (0, 1):
        for j in (0, 1):
            share = np.mean(np.sign(headed[i, tokens]) != np.sign(free[j, tokens]))
            assert result.differ[i, j, 0, 0] == pytest.approx(share, abs=4 * 0.5 / np.sqrt(n))
    share = np.mean(np.sign(free[0, tokens]) != np.sign(free[1, tokens]))
    assert result.free_differ[0] == pytest.approx(share, abs=4 * 0.5 / np.sqrt(n))


def test_more_features_bring_every_step_closer_to_its_test() -> None:
    result = run(SMALL)
    for measure in (result.angle, result.differ):
        for i in (0, 1):
            assert np.all(np.diff(np.mean(measure[i, i], axis=-1)) < 0)


@pytest.mark.parametrize("degrees", [0.0, 1e-7, 30.0, 90.0, 180.0])
def test_angle_between_known_vectors(degrees: float) -> None:
    log_pi, radians = np.log(np.array([0.2, 0.3, 0.5])), np.radians(degrees)
    first, second = np.array([1.0, 0, 0]) / np.sqrt(0.2), np.array([0, 1.0, 0]) / np.sqrt(0.3)
    turned = 7 * (np.cos(radians) * first + np.sin(radians) * second)
    assert angle(log_pi, 3 * first, turned) == pytest.approx(degrees, rel=1e-7, abs=1e-14)


def test_the_panels_hold_the_data() -> None:
    result = run(SMALL)
    axes = np.reshape(np.array(plot(result).axes, dtype=object), (2, 2))
    for row, headed, free in ((0, result.angle, result.free_angle), (1, result.differ, result.free_differ)):
        for i in (0, 1):
            median = axes[row, i].lines[1]
            np.testing.assert_array_equal(median.get_ydata(), np.median(headed[i, i], axis=-1))
            lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes[row, i].lines}
            other = lines["against the other test, median"]
            np.testing.assert_array_equal(other, np.median(headed[i, 1 - i], axis=-1))
            assert set(lines["the tests against each other, median"]) == {np.median(free)}
            at = median.get_xdata()
            np.testing.assert_array_equal(at, np.array(SMALL.ranks) / SMALL.vocab)


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    check_the_command_writes_the_same_bytes_everywhere("divsim.experiments.kernel_angle", tmp_path)
