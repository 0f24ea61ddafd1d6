"""Group advantages and loss weights: counted by hand, and the faults that others met (F7 to F15)."""

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import assert_close, numpy_of

from divsim.formulas import AGGREGATIONS, aggregate, group_advantage, loss_weights

NUMPY = Library("numpy", np.asarray)
HORIZON = 16
SETTINGS: list[tuple[str, int | None]] = [
    (name, HORIZON if name == "constant_length" else None) for name in AGGREGATIONS
]

AdvantageOf = Callable[..., Any]
WeightsOf = Callable[..., Any]


def advantage_by_hand(rewards: list[float], is_scored: list[bool], divide_by_std: bool) -> list[float]:
    """One group: centred on the scored ones, over the n - 1 standard deviation plus 1e-6."""
    scored = [r for r, ok in zip(rewards, is_scored, strict=True) if ok]
    centred = [r - statistics.fmean(scored) if ok else 0.0 for r, ok in zip(rewards, is_scored, strict=True)]
    spread = statistics.stdev(scored) if len(scored) > 1 else 0.0
    return [a / (spread + 1e-6) if divide_by_std else a for a in centred]


def rewards_of(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    reward = rng.choice([0.0, 1.0, 0.1, -3.7, 1e4], (7, 5)) + rng.choice([0.0, 0.3], (7, 1))
    return reward, rng.random((7, 5)) < 0.7


def check_advantage(advantage_of: AdvantageOf, xp: Library) -> None:
    for seed in range(3):
        reward, is_scored = rewards_of(seed)
        littered = np.where(
            is_scored, reward, np.random.default_rng(seed).choice([np.nan, np.inf, 1e9], (7, 5))
        )
        for divide_by_std in (False, True):
            got = advantage_of(xp.array(littered), xp.array(is_scored), divide_by_std=divide_by_std)
            groups = zip(reward.tolist(), is_scored.tolist(), strict=True)
            expected = [advantage_by_hand(r, ok, divide_by_std) for r, ok in groups]
            # rewards up to 1e4 and a mean of them: 1e-12 of rounding, which a spread of 1e-6 enlarges
            assert_close(got, expected, rtol=1e-10, atol=1e-11)


def test_advantage_by_hand(xp: Library) -> None:
    check_advantage(group_advantage, xp)


def over_the_batch(reward: Any, is_scored: Any, divide_by_std: bool = False) -> Any:
    """F10: one mean for all prompts."""
    flat = group_advantage(reward.reshape(-1), is_scored.reshape(-1), divide_by_std=divide_by_std)
    return flat.reshape(reward.shape)


def with_zeros_for_unscored(reward: Any, is_scored: Any, divide_by_std: bool = False) -> Any:
    """F8: an unscored sample counts as a reward of 0."""
    return group_advantage(np.where(is_scored, reward, 0.0), divide_by_std=divide_by_std)


@pytest.mark.parametrize("broken", [over_the_batch, with_zeros_for_unscored])
def test_the_advantage_check_sees_a_wrong_mean(broken: AdvantageOf) -> None:
    with pytest.raises(AssertionError):
        check_advantage(broken, NUMPY)


@pytest.mark.parametrize("divide_by_std", [False, True])
@pytest.mark.parametrize("value", [1.0, 0.0, 0.1, 1 / 3, -0.7, 1e-300, 1e30, 16_777_217.0])
def test_f7_equal_rewards_push_nothing(xp: Library, value: float, divide_by_std: bool) -> None:
    for size in (1, 2, 3, 4, 6, 7, 16):
        for dtype in (np.float32, np.float64):
            advantage = group_advantage(xp.array(np.full(size, value, dtype)), divide_by_std=divide_by_std)
            assert (numpy_of(advantage) == 0).all()
            reward, is_scored = np.full(size + 1, value, dtype), np.arange(size + 1) > 0
            reward[0] = np.nan
            advantage = group_advantage(xp.array(reward), xp.array(is_scored), divide_by_std=divide_by_std)
            assert (numpy_of(advantage) == 0).all()


def test_f8_an_unscorable_reward_is_loud_or_left_out(xp: Library) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        reward = np.array([bad, 1.0, 0.0, 1.0])
        with pytest.raises(ValueError, match=rf"reward must be finite, got {bad} at \[0\]; mark it unscored"):
            group_advantage(xp.array(reward))
        left_out = group_advantage(xp.array(reward), xp.array(np.isfinite(reward)))
        assert_close(left_out, [0.0, 1 / 3, -2 / 3, 1 / 3], rtol=1e-15)  # mean 2/3


@pytest.mark.parametrize("divide_by_std", [False, True])
def test_f8_one_scored_sample_is_a_group_of_one(xp: Library, divide_by_std: bool) -> None:
    for bad in (np.nan, np.inf, -np.inf, 5.0):
        for scored in ([False, False, False, True], [False] * 4):
            reward = xp.array(np.array([bad, bad, bad, 1.0]))
            advantage = group_advantage(reward, xp.array(np.array(scored)), divide_by_std=divide_by_std)
            assert (numpy_of(advantage) == 0).all()


@pytest.mark.parametrize("divide_by_std", [False, True])
def test_f9_a_group_of_one_is_centred_on_itself(xp: Library, divide_by_std: bool) -> None:
    assert numpy_of(group_advantage(xp.array(np.array([1.0])), divide_by_std=divide_by_std)).tolist() == [0.0]


def test_f10_each_prompt_has_its_own_mean(xp: Library) -> None:
    reward = xp.array(np.array([[1.0, 0.0], [5.0, 5.0]]))
    assert numpy_of(group_advantage(reward)).tolist() == [[0.5, -0.5], [0.0, 0.0]]
    scaled = group_advantage(reward, divide_by_std=True)
    assert numpy_of(scaled).round(4).tolist() == [[0.7071, -0.7071], [0.0, 0.0]]


def test_f11_padding_is_in_no_z_score(xp: Library) -> None:
    is_response = np.array([[1, 1, 0], [1, 0, 0]], bool)
    for litter in (99.0, 0.0, np.nan, -1e30):
        values = np.array([[1.0, 3.0, litter], [5.0, litter, litter]]).reshape(-1)
        z = group_advantage(xp.array(values), xp.array(is_response.reshape(-1)), divide_by_std=True)
        assert_close(z, [-1, 0, 0, 1, 0, 0], rtol=1e-6)  # std 2, and 1e-6 beside it


def test_rewards_are_floating_numbers(xp: Library) -> None:
    for reward in (np.array([1, 0, 0, 1]), np.array([True, False])):
        with pytest.raises(TypeError, match=r"reward must hold floating numbers .*, got \S+; convert it"):
            group_advantage(xp.array(reward))


def test_advantage_errors_name_the_argument() -> None:
    with pytest.raises(TypeError, match=r"is_scored must be boolean, got float64"):
        group_advantage(np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match=r"is_scored must have shape \(2,\)"):
        group_advantage(np.ones(2), np.ones(3, bool))
    with pytest.raises(TypeError, match=r"one library, got reward: list"):
        group_advantage([1.0, 0.0])
    for eps in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"eps must be a finite number > 0"):
            group_advantage(np.ones(2), divide_by_std=True, eps=eps)


def weights_by_hand(is_response: Any, name: str, horizon: int | None) -> Any:
    rows = [[bool(slot) for slot in row] for row in is_response]
    tokens, sequences = sum(map(sum, rows)), sum(any(row) for row in rows)
    sizes = {
        "token_mean": [tokens for _ in rows],
        "sequence_mean": [sum(row) * sequences for row in rows],
        "constant_length": [sequences * (horizon or 0) for _ in rows],
    }[name]
    return [[1 / size if slot else 0.0 for slot in row] for row, size in zip(rows, sizes, strict=True)]


def masks() -> list[Any]:
    rng = np.random.default_rng(5)
    ragged = np.arange(8) < np.array([1, 3, 8, 2, 0, 5])[:, None]
    return [ragged, ragged[:1], ragged[4:5], np.ones((3, 4), bool), rng.random((5, 9)) < 0.5]


def check_weights(weights_of: WeightsOf, xp: Library) -> None:
    for is_response in masks():
        for name, horizon in SETTINGS:
            weights = numpy_of(weights_of(xp.array(is_response), name, horizon))
            assert weights.dtype == np.float64
            assert_close(weights, weights_by_hand(is_response, name, horizon), rtol=1e-15)


def test_weights_by_hand(xp: Library) -> None:
    check_weights(loss_weights, xp)


def test_the_names_are_these() -> None:
    assert set(AGGREGATIONS) == {"token_mean", "sequence_mean", "constant_length"}


def divides_by_padding(is_response: Any, name: str, horizon: int | None) -> Any:
    """F14: a masked product, then `.mean()`."""
    return is_response / is_response.size


def forgets_the_sequences(is_response: Any, name: str, horizon: int | None) -> Any:
    """F13: the sum over sequences of a per-sequence mean."""
    return loss_weights(is_response, name, horizon) * max(int(is_response.any(-1).sum()), 1)


@pytest.mark.parametrize("broken", [divides_by_padding, forgets_the_sequences])
def test_the_weight_check_sees_a_wrong_denominator(broken: WeightsOf) -> None:
    with pytest.raises(AssertionError):
        check_weights(broken, NUMPY)


def mean_loss(values: Any, is_response: Any, name: str, horizon: int | None, xp: Library = NUMPY) -> float:
    mask = xp.array(np.asarray(is_response, bool))
    return float(aggregate(xp.array(np.asarray(values, np.float64)), loss_weights(mask, name, horizon)))


def test_f12_the_mean_of_a_batch_is_not_a_mean_of_means(xp: Library) -> None:
    mask = np.array([[1, 0, 0], [1, 1, 1]])
    values = np.array([[4.0, np.nan, np.nan], [0.0, 0.0, 0.0]])
    assert mean_loss(values, mask, "token_mean", None, xp) == 1.0
    weights = loss_weights(xp.array(mask.astype(bool)))
    parts = [float(aggregate(xp.array(values[i : i + 1]), weights[i : i + 1])) for i in (0, 1)]
    assert sum(parts) == 1.0
    assert np.mean([mean_loss(values[i : i + 1], mask[i : i + 1], "token_mean", None) for i in (0, 1)]) == 2.0


@pytest.mark.parametrize(("name", "horizon"), SETTINGS)
@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_f12_slices_of_the_weights_accumulate_to_the_gradient_of_the_batch(
    name: str, horizon: int | None, accumulate: int
) -> None:
    torch = pytest.importorskip("torch")
    lengths = torch.tensor([3, 1, 8, 2, 5, 0, 7])  # seven sequences: the last window is partial
    mask = torch.arange(8) < lengths[:, None]
    features = torch.tensor(np.random.default_rng(6).standard_normal((7, 8, 4)))
    weights = loss_weights(mask, name, horizon)

    def gradient(rows: list[Any]) -> Any:
        theta = torch.tensor([0.3, -0.2, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
        for part in rows:
            aggregate(torch.tanh(features[part] @ theta) ** 2, weights[part]).backward()
        return theta.grad

    windows = [torch.arange(start, min(start + accumulate, 7)) for start in range(0, 7, accumulate)]
    assert_close(gradient(windows), gradient([torch.arange(7)]), rtol=1e-12)  # float64 sums in another order


@pytest.mark.parametrize(("name", "horizon"), SETTINGS)
def test_f13_duplicating_the_batch_changes_nothing(name: str, horizon: int | None) -> None:
    rng = np.random.default_rng(7)
    for mask in masks():
        values = rng.standard_normal(mask.shape)
        once = mean_loss(values, mask, name, horizon)
        thrice = mean_loss(np.tile(values, (3, 1)), np.tile(mask, (3, 1)), name, horizon)
        assert thrice == pytest.approx(once, rel=1e-13, abs=1e-16)


def test_f13_and_f14_a_loss_of_one_everywhere_is_one(xp: Library) -> None:
    whole, padded = np.ones((2, 4)), np.array([[1, 1, 0, 0]])
    assert mean_loss(whole, whole, "constant_length", 4, xp) == 1.0
    for name, horizon in (("token_mean", None), ("sequence_mean", None), ("constant_length", 2)):
        assert mean_loss(np.ones((1, 4)), padded, name, horizon, xp) == 1.0


@pytest.mark.parametrize(("name", "horizon"), SETTINGS)
def test_f15_garbage_and_order_change_nothing(xp: Library, name: str, horizon: int | None) -> None:
    rng = np.random.default_rng(8)
    mask = masks()[0]
    values = rng.standard_normal(mask.shape)
    clean = mean_loss(values, mask, name, horizon, xp)
    for litter in (np.nan, np.inf, -np.inf, 1e308, 1.0):
        assert mean_loss(np.where(mask, values, litter), mask, name, horizon, xp) == clean
    order = rng.permutation(len(mask))
    assert mean_loss(values[order], mask[order], name, horizon, xp) == pytest.approx(clean, rel=1e-14)


@pytest.mark.parametrize("shape", [(2, 1), (3,), (1, 3), (3, 2), ()], ids=str)
def test_f15_a_shape_that_would_broadcast_is_an_error(xp: Library, shape: tuple[int, ...]) -> None:
    weights = loss_weights(xp.array(np.ones((2, 3), bool)))
    with pytest.raises(ValueError, match=r"values must have shape \(2, 3\) .+, got"):
        aggregate(xp.array(np.ones(shape)), weights)


def test_f15_garbage_reaches_no_gradient() -> None:
    torch = pytest.importorskip("torch")
    mask = torch.tensor([[True, False, False]])
    for litter in (math.nan, math.inf, -math.inf):
        values = torch.tensor([[2.0, litter, litter]], dtype=torch.float64, requires_grad=True)
        aggregate(values, loss_weights(mask)).backward()
        assert numpy_of(values.grad).tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize(("name", "horizon"), SETTINGS)
def test_a_batch_of_padding_alone_costs_nothing(xp: Library, name: str, horizon: int | None) -> None:
    assert mean_loss(np.full((2, 3), np.nan), np.zeros((2, 3)), name, horizon, xp) == 0.0


def test_weight_errors_name_the_argument() -> None:
    mask = np.ones((2, 3), bool)
    for horizon in (None, 0, -1, 2.5, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"horizon.+ got {horizon}"):
            loss_weights(mask, "constant_length", horizon)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="horizon"):
        loss_weights(mask, "token_mean", 4)
    with pytest.raises(ValueError, match=r"aggregation must be one of token_mean, .+, got 'mean'"):
        loss_weights(mask, "mean")
    with pytest.raises(TypeError, match="is_response must be boolean, got float64"):
        loss_weights(np.ones((2, 3)))
    with pytest.raises(TypeError, match="one library, got is_response: list"):
        loss_weights([[True]])


def test_a_group_of_equal_rewards_is_zero_whatever_the_other_groups_got(xp: Library) -> None:
    rewards = xp.array(np.array([[0.1] * 3, [7.0] * 3]))
    assert group_advantage(rewards).tolist() == [[0.0] * 3] * 2
