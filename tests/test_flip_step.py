"""The picture of one token's step: exact changes, their predictions, and the step at which the sign flips."""

from pathlib import Path

import numpy as np
import pytest
from figure_checks import check_the_command_writes_the_same_bytes_everywhere
from numpy.typing import NDArray

from divsim.experiments.flip_step import Config, Result, Side, plot, run
from divsim.tabular.policies import PAIR_FAMILIES

Floats = NDArray[np.float64]

SHOWN = run(Config())
OTHERS = [
    run(Config(family=family, vocab=30, seed=seed, rank=1 + seed))
    for family in PAIR_FAMILIES
    for seed in (0, 1)
]
each_result = pytest.mark.parametrize(
    "result", [SHOWN, *OTHERS], ids=lambda r: f"{r.config.family}-{r.config.seed}"
)


def policies(result: Result) -> tuple[Floats, Floats]:
    c = result.config
    pair = PAIR_FAMILIES[c.family](np.random.default_rng(c.seed), (1,), c.vocab)
    return np.exp(pair.log_mu[0]), np.exp(pair.log_pi[0])


def realised(result: Result, s: float) -> float:
    """The oracle: D after the step, minus D before, by the textbook sums."""
    mu, pi = policies(result)
    moved = np.log(pi) + s * (np.eye(len(pi))[result.action] - pi)
    after = moved - np.log(np.sum(np.exp(moved)))
    return float(np.sum(mu * (np.log(pi) - after)))


def sides(result: Result) -> tuple[Side, Side]:
    return result.decrease, result.increase


@each_result
def test_the_curve_is_the_step_taken(result: Result) -> None:
    for side in sides(result):
        for i in range(0, len(side.size), 20):
            expected = realised(result, side.sign * side.size[i])
            # Sums of a thousand terms mu log p with |log p| < 30 and a total of about one.
            assert side.realised[i] == pytest.approx(expected, rel=1e-9, abs=1e-13)


@each_result
def test_predictions_match_value_slope_and_curvature_at_zero(result: Result) -> None:
    h = 1e-3
    up, down = realised(result, h), realised(result, -h)
    # Third and fourth derivatives are moments of a variable of span below 2: errors h^2 and 1e-13 / h^2.
    assert result.rate == pytest.approx((up - down) / (2 * h), abs=2e-6)
    for side in sides(result):
        np.testing.assert_allclose(side.first, side.sign * side.size * result.rate, rtol=1e-14)
        bend = 2 * (side.second - side.first)[1:] / side.size[1:] ** 2
        np.testing.assert_allclose(bend, (up + down) / h**2, rtol=1e-6, atol=2e-6)


@each_result
def test_the_root_lies_in_its_bracket_and_ends_the_decrease(result: Result) -> None:
    low, high = result.bracket
    assert low <= result.root <= high
    sign = result.decrease.sign
    assert realised(result, 0.999 * sign * result.root) < 0 < realised(result, 1.001 * sign * result.root)
    inner = (result.decrease.size > 0) & (result.decrease.size < result.root * (1 - 1e-9))
    assert np.array_equal(result.decrease.realised < 0, inner)
    assert np.sum(inner) > 100


@each_result
def test_a_predicted_decrease_is_on_one_side_and_a_predicted_increase_is_real(result: Result) -> None:
    assert np.all(result.decrease.first[1:] < 0) and np.all(result.increase.first > 0)
    assert result.decrease.sign == -result.increase.sign
    for side in sides(result):
        assert np.all(side.realised >= side.first - 1e-15)  # on or above the tangent, but for one rounding
    assert np.all(result.increase.realised > 0)


@each_result
def test_the_facts_about_the_token(result: Result) -> None:
    mu, pi = policies(result)
    assert np.sum(mu > result.mu_k) == result.config.rank - 1
    assert (result.mu_k, result.pi_k) == (mu[result.action], pi[result.action])
    assert result.kl == pytest.approx(np.sum(mu * np.log(mu / pi)), rel=1e-10)  # a sum that cancels by 1e4


def test_what_is_shown_is_worth_showing() -> None:
    assert SHOWN.config.vocab == 1000 and SHOWN.kl > 0.05
    assert SHOWN.pi_k > SHOWN.mu_k and SHOWN.rate < 0  # the ratio test and c_k differ
    assert SHOWN.bracket[1] < SHOWN.decrease.size[-1]  # the whole bracket is in the picture


def test_the_panels_hold_the_data() -> None:
    left, right = plot(SHOWN).axes
    assert "A > 0" in left.get_title() and "A < 0" in right.get_title()
    for axes, side in ((left, SHOWN.decrease), (right, SHOWN.increase)):
        drawn = {str(line.get_label()): line.get_xydata() for line in axes.lines}
        for label, curve in (
            ("realised", side.realised),
            ("first-order", side.first),
            ("second-order", side.second),
        ):
            (name,) = (name for name in drawn if name.startswith(label))
            np.testing.assert_array_equal(drawn[name], np.column_stack([side.size, curve]))
    (root,) = (line for line in left.lines if "true flip step" in str(line.get_label()))
    np.testing.assert_array_equal(root.get_xydata(), [[SHOWN.root, 0.0]])
    (band,) = left.patches
    box = band.get_extents().transformed(left.transData.inverted())
    np.testing.assert_allclose([box.x0, box.x1], SHOWN.bracket, rtol=1e-9)  # to pixels and back


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    check_the_command_writes_the_same_bytes_everywhere("divsim.experiments.flip_step", tmp_path)
