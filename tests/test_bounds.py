"""Bounds against the truth: never violated on random worlds, attained where they can be, right in numbers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bound_worlds import doorway, kl, nearby, random_policy, random_process, tv, worst_tree
from conftest import Library
from pairs import batch

from divsim.formulas import (
    bretagnolle_huber,
    cpo_penalty,
    expected_advantage,
    horizon_adaptive,
    horizon_coupling,
    horizon_pinsker_marginal,
    horizon_quadratic,
    kakade_langford,
    occupancy_shift,
    pinsker,
    simulation_gap,
    trpo_penalty,
)

WORLDS = 300
ROUNDING = 1e-9
"""Solves of well-conditioned 5 x 5 systems lose far less than this."""


def gain_and_surrogate(process: Any, before: Any, after: Any) -> tuple[float, float, Any]:
    """J' - J, the surrogate L under the old occupancy, and the expected advantage (S)."""
    mean_advantage = expected_advantage(after, process.advantage(before))
    surrogate = process.occupancy(before) @ mean_advantage / (1 - process.gamma)
    return process.objective(after) - process.objective(before), float(surrogate), mean_advantage


def worlds() -> Any:
    rng = np.random.default_rng(101)
    for gamma in np.linspace(0.0, 0.95, WORLDS):
        process = random_process(rng, float(gamma))
        before = random_policy(rng, process)
        yield process, before, nearby(rng, before, rng.choice([0.01, 0.1, 0.5, 1.0])), rng


def test_discounted_bounds_in_numbers() -> None:
    """By hand at gamma = 3/4, 1 / (1 - gamma)^2 = 16: an inequality lets a larger constant pass."""
    assert kakade_langford(0.1, 3.0, 0.75) == pytest.approx(2 * 3 * 0.75 * 0.01 * 16, rel=1e-14)
    assert trpo_penalty(0.1, 3.0, 0.75) == pytest.approx(4 * 3 * 0.75 * 0.01 * 16, rel=1e-14)
    assert cpo_penalty(0.1, 3.0, 0.75) == pytest.approx(2 * 0.75 * 3 * 0.1 * 16, rel=1e-14)
    assert occupancy_shift(0.1, 0.75) == pytest.approx(2 * 0.75 * 0.1 * 4, rel=1e-14)
    assert simulation_gap(0.1, 0.2, 3.0, 0.75) == pytest.approx((0.1 + 0.75 * 0.2 * 3 / 2) * 4, rel=1e-14)


def test_performance_difference_is_an_identity() -> None:
    for process, before, after, _ in worlds():
        gain, _, mean_advantage = gain_and_surrogate(process, before, after)
        assert process.occupancy(after) @ mean_advantage / (1 - process.gamma) == pytest.approx(
            gain, abs=ROUNDING
        )


def test_expected_advantage_takes_many_processes_at_once(xp: Library) -> None:
    pi, advantage = np.random.default_rng(107).random((2, 4, 5, 3))
    together = np.asarray(expected_advantage(xp.array(pi), xp.array(advantage)))
    for place in np.ndindex(4, 5):
        assert together[place] == pytest.approx(pi[place] @ advantage[place], rel=1e-14)


def check_improvement(trpo: Callable[..., Any], cpo: Callable[..., Any]) -> None:
    for process, before, after, _ in worlds():
        gain, surrogate, mean_advantage = gain_and_surrogate(process, before, after)
        largest = np.abs(process.advantage(before)).max()
        distances, occupied = tv(before, after), process.occupancy(before)
        assert gain >= surrogate - trpo(distances.max(), largest, process.gamma) - ROUNDING
        average = cpo(occupied @ distances, np.abs(mean_advantage).max(), process.gamma)
        assert gain >= surrogate - average - ROUNDING


def test_trust_region_penalties_hold() -> None:
    check_improvement(trpo_penalty, cpo_penalty)


def test_kakade_langford_holds_for_mixtures() -> None:
    for process, before, other, rng in worlds():
        share = rng.uniform()
        mixture = (1 - share) * before + share * other
        gain, _, _ = gain_and_surrogate(process, before, mixture)
        _, surrogate, mean_advantage = gain_and_surrogate(process, before, other)
        penalty = kakade_langford(share, np.abs(mean_advantage).max(), process.gamma)
        assert gain >= share * surrogate - penalty - ROUNDING


def test_occupancies_part_no_further() -> None:
    for process, before, after, _ in worlds():
        occupied = process.occupancy(before)
        apart = np.abs(process.occupancy(after) - occupied).sum()
        assert apart <= occupancy_shift(occupied @ tv(before, after), process.gamma) + ROUNDING


def test_simulation_lemma_holds() -> None:
    for process, policy, _, rng in worlds():
        guess = random_process(rng, process.gamma)
        reach = rng.choice([0.01, 0.3, 1.0])
        model = type(process)(
            (1 - reach) * process.transition + reach * guess.transition,
            (1 - reach) * process.reward + reach * guess.reward,
            process.start,
            process.gamma,
        )
        value = model.value(policy)
        gap = simulation_gap(
            np.abs(model.reward - process.reward).max(),
            np.abs(model.transition - process.transition).sum(-1).max(),
            value.max() - value.min(),
            process.gamma,
        )
        assert np.abs(process.value(policy) - value).max() <= gap + ROUNDING


STEP = 1e-4


def tightness() -> dict[str, float]:
    """Truth over bound in the worlds built to attain them, to first order in a small step."""
    process, before, after = doorway(0.02, STEP)  # a small discount, so that the occupancy moves at once
    gain, surrogate, mean_advantage = gain_and_surrogate(process, before, after)
    loss, occupied = surrogate - gain, process.occupancy(before)
    distances = tv(before, after)
    largest = np.abs(process.advantage(before)).max()
    shift = np.abs(process.occupancy(after) - occupied).sum()
    _, whole, whole_advantage = gain_and_surrogate(process, before, np.tile([0.0, 0.0, 1.0], (2, 1)))
    mixture = (1 - STEP) * before + STEP * np.tile([0.0, 0.0, 1.0], (2, 1))
    mixed_loss = STEP * whole - gain_and_surrogate(process, before, mixture)[0]
    mixed_bound = kakade_langford(STEP, np.abs(whole_advantage).max(), process.gamma)
    tree = worst_tree(STEP)
    error = abs(tree.error())
    return {
        "trpo": loss / trpo_penalty(distances.max(), largest, process.gamma),
        "cpo": loss / cpo_penalty(occupied @ distances, np.abs(mean_advantage).max(), process.gamma),
        "occupancy": shift / occupancy_shift(occupied @ distances, process.gamma),
        "mixture": mixed_loss / mixed_bound,
        "quadratic": error / horizon_quadratic(tree.max_of(tv), 2),
        "coupling": error / float(horizon_coupling(tree.max_of(tv), 2)),
        "marginal": error / float(horizon_pinsker_marginal(tree.max_of(kl), 2)),
        "adaptive": error / float(horizon_adaptive(tree.mean_tv(), tree.max_of(tv), tree.max_of(kl))),
        "pinsker": float(tree.max_of(tv) / pinsker(tree.max_of(kl))),
    }


@pytest.mark.parametrize("bound", tightness())
def test_a_bound_that_can_be_attained_is(bound: str) -> None:
    """Within 5 %: a constant off by a factor of 2, or a penalty without its discount, is seen."""
    assert 0.95 < tightness()[bound] <= 1 + 1e-6


def test_the_simulation_lemma_is_attained() -> None:
    gamma, reward_error, leak = 0.5, 0.25, 1e-5
    still = doorway(gamma, 0.1)[0]
    policy = np.tile([1.0, 0.0, 0.0], (2, 1))
    richer = type(still)(still.transition, still.reward + reward_error, still.start, gamma)
    assert np.abs(richer.value(policy) - still.value(policy)).max() == pytest.approx(
        simulation_gap(reward_error, 0.0, 0.0, gamma), rel=1e-12
    )
    paying = type(still)(still.transition, np.array([[0.0] * 3, [1.0] * 3]), still.start, gamma)
    leaky = paying.transition.copy()
    leaky[0, 0] = [1 - leak, leak]
    moved = type(still)(leaky, paying.reward, still.start, gamma).value(policy) - paying.value(policy)
    bound = simulation_gap(0.0, 2 * leak, np.ptp(paying.value(policy)), gamma)
    assert np.abs(moved).max() == pytest.approx(float(bound), rel=1e-4)


def test_pinsker_and_bretagnolle_huber_hold(xp: Library) -> None:
    for apart in (0.01, 1.0, 5.0):
        log_p, log_q = batch(105, (500, 6), apart=apart)
        p, q = np.exp(log_p), np.exp(log_q)
        distance, divergence = tv(p, q), xp.array(kl(p, q))
        for bound in (pinsker(divergence), bretagnolle_huber(divergence)):
            assert (distance <= np.asarray(bound) + 1e-12).all()
    # a coin that is certain against one that is nearly so: TV = 1 - e^-KL, half the room of the root
    assert float(bretagnolle_huber(xp.array(np.array(50.0)))) == 1.0
    assert float(bretagnolle_huber(xp.array(np.array(1e-16)))) == pytest.approx(1e-8, rel=1e-12)


def test_where_bretagnolle_huber_takes_over() -> None:
    """mp.dps = 50; mp.findroot(lambda k: k / 2 - 1 + mp.exp(-k), 1.6)"""
    crossing = 1.5936242600400400
    for kl_value, sharper in ((crossing * (1 - 1e-6), pinsker), (crossing * (1 + 1e-6), bretagnolle_huber)):
        ends = {bound: float(bound(np.array(kl_value))) for bound in (pinsker, bretagnolle_huber)}
        assert min(ends, key=lambda bound: ends[bound]) is sharper


DISCOUNTED: list[Callable[[float], Any]] = [
    lambda gamma: kakade_langford(0.1, 1.0, gamma),
    lambda gamma: trpo_penalty(0.1, 1.0, gamma),
    lambda gamma: cpo_penalty(0.1, 1.0, gamma),
    lambda gamma: occupancy_shift(0.1, gamma),
    lambda gamma: simulation_gap(0.1, 0.1, 1.0, gamma),
]


@pytest.mark.parametrize("bound", DISCOUNTED)
def test_a_discount_outside_0_1_is_an_error(bound: Callable[[float], Any]) -> None:
    for gamma in (1.0, -0.1, math.nan, math.inf):
        with pytest.raises(
            ValueError, match=rf"gamma must be in \[0, 1\) \(discount\), got {gamma}; .+horizon_"
        ):
            bound(gamma)
