"""The ladder measures orders it is told, and refuses wrong predictions; a step is what a plain loop says."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from divsim.formulas import DIVERGENCES, FORWARD_KL, REVERSE_KL, TV, Divergence, difference
from divsim.tabular.check import Simulation, check, truth
from divsim.tabular.geometry import EUCLIDEAN, Geometry, geometries
from divsim.tabular.ladder import RATIO, RATIO_THIRD, Ladder, climb, convergence_slope, order
from divsim.tabular.one_step import one_step, realised_change, top_step
from divsim.tabular.policies import PAIR_FAMILIES, Ints, PolicyPair, at_action, draw_batches, sample_action

Floats = NDArray[np.float64]


def ladder_of(function: Callable[[float], float], ratio: float = RATIO) -> Ladder:
    ones = np.ones(1)
    return climb(lambda s: np.array([function(s)]), scale=1e-3 * ones, terms=1e-3 * ones, ratio=ratio)


@pytest.mark.parametrize(
    ("power", "ratio"), [(2, RATIO), (3, RATIO_THIRD)], ids=["second order", "third order"]
)  # the two that theorems claim
def test_the_slope_is_the_power(power: int, ratio: float) -> None:
    slope = convergence_slope([ladder_of(lambda s: 1e-2 * s**power * (1 + 0.1 * s), ratio)])
    assert slope == pytest.approx(power, abs=0.02)  # the tenth that the next order adds at the top, far below


@pytest.mark.parametrize("wrong_by", [1e-1, 1e-3, 1e-6])
def test_one_wrong_case_among_many_is_seen(wrong_by: float) -> None:
    right = [ladder_of(lambda s: s * s) for _ in range(50)]
    wrong = ladder_of(lambda s: s * s + wrong_by * s)
    assert order(right, "right", [2], claimed=2.0).ok
    assert not order([*right, wrong], "one wrong", [2], claimed=2.0).ok


def test_a_case_of_higher_order_does_not_spoil_the_slope() -> None:
    """A second derivative may happen to vanish."""
    ladders = [
        *(ladder_of(lambda s: s * s) for _ in range(5)),
        ladder_of(lambda s: 1e-2 * s**3 - 1e-4 * s**2),
    ]
    assert convergence_slope(ladders) == pytest.approx(2, abs=0.02)


def test_nothing_measurable_is_not_ok() -> None:
    nothing = ladder_of(lambda s: 0.0)
    assert not nothing.is_measurable.any()
    tried = order([nothing], "nothing", [2], claimed=2.0)
    assert tried.cases == 0
    assert not tried.ok


def test_no_rung_below_the_rounding_is_used() -> None:
    """1 + s^2 - 1 in floats is a staircase of height 2e-16, although it is exactly 0 on the tiniest steps."""
    one = np.ones(1)
    ladder = climb(staircase, scale=one, terms=one)
    assert convergence_slope([ladder]) == pytest.approx(2, abs=0.02)
    blind = climb(staircase, scale=1e-9 * one, terms=1e-9 * one)
    assert convergence_slope([blind]) != pytest.approx(2, abs=0.02)


def staircase(s: float) -> Floats:
    return np.array([(1 + s * s) - 1])


@pytest.mark.parametrize("name", DIVERGENCES)
def test_realised_change_is_two_evaluations_in_a_loop(name: str) -> None:
    mu, pi, v = [0.5, 0.2, 0.3], [0.1, 0.6, 0.3], [0.4, -1.0, 0.2]
    s = 0.8
    weights = [p * math.exp(s * x) for p, x in zip(pi, v, strict=True)]
    after = [w / sum(weights) for w in weights]
    divergence = DIVERGENCES[name]
    expected = float(
        divergence.measure(np.log(mu), np.log(after)) - divergence.measure(np.log(mu), np.log(pi))
    )
    found = realised_change(divergence, PolicyPair(np.log(mu), np.log(pi)), np.array(v), s)
    assert float(found) == pytest.approx(expected, rel=1e-13)  # of numbers of size 1


def test_forward_kl_by_hand() -> None:
    """D falls from KL(mu || pi) to 0 where the step lands on mu: log 2 in the first logit, here."""
    pair = PolicyPair(np.log(np.array([0.5, 0.5])), np.log(np.array([1 / 3, 2 / 3])))
    found = float(realised_change(FORWARD_KL, pair, np.array([math.log(2), 0.0]), 1.0))
    assert found == pytest.approx(-(0.5 * math.log(1.5) + 0.5 * math.log(0.75)), rel=1e-14)


def test_no_token_of_a_kinked_divergence_crosses_a_tie() -> None:
    pair = PAIR_FAMILIES["uniform"](np.random.default_rng(0), (50,), 6)
    direction = np.random.default_rng(1).standard_normal((50, 6))
    top = top_step(TV, pair, direction)
    assert np.min(top) < np.min(top_step(FORWARD_KL, pair, direction))
    for n in range(50):
        weights = np.exp(pair.log_pi[n] + top[n] * direction[n])
        moved = np.log(weights / weights.sum())
        assert np.array_equal(np.sign(moved - pair.log_mu[n]), np.sign(pair.log_pi[n] - pair.log_mu[n]))


@pytest.mark.parametrize("geometry", ["euclidean", "sign", "natural", "linear_head"])
@pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=lambda d: d.name)
def test_every_rate_has_second_order_remainders(divergence: Divergence, geometry: str) -> None:
    rng = np.random.default_rng(2)
    ladders = []
    for batch in draw_batches(rng, {3: 6, 20: 4}):
        head = rng.standard_normal((batch.pair.vocab, 2))
        step = one_step(divergence, geometries(head)[geometry], batch.pair, batch.action)
        np.testing.assert_allclose(step.realised - step.predicted, step.ladder.remainder, atol=1e-12)
        ladders.append(step.ladder)
    tried = order(ladders, "remainder", [3, 20], claimed=2.0)
    assert tried.ok
    assert tried.cases > 20


def local_term_only(divergence: Divergence, pair: PolicyPair, action: Ints) -> Floats:
    return at_action(divergence.logit_grad(pair.log_mu, pair.log_pi), action)


def other_direction_of_kl(divergence: Divergence, pair: PolicyPair, action: Ints) -> Floats:
    return EUCLIDEAN.rate(REVERSE_KL, pair, action)


def off_by_a_millionth(divergence: Divergence, pair: PolicyPair, action: Ints) -> Floats:
    return EUCLIDEAN.rate(divergence, pair, action) * (1 + 1e-6)


@pytest.mark.parametrize("rate", [local_term_only, other_direction_of_kl, off_by_a_millionth])
def test_a_wrong_rate_is_refused(rate: Callable[[Divergence, PolicyPair, Ints], Floats]) -> None:
    mutant = replace(EUCLIDEAN, rate=rate)
    batches = draw_batches(np.random.default_rng(3), {3: 10, 40: 5})
    for geometry, is_right in ((EUCLIDEAN, True), (mutant, False)):
        ladders = [one_step(FORWARD_KL, geometry, b.pair, b.action).ladder for b in batches]
        assert order(ladders, "remainder", [3, 40], claimed=2.0).ok is is_right


def test_a_large_vocabulary_is_measured_too() -> None:
    rng = np.random.default_rng(4)
    pair = PAIR_FAMILIES["uniform"](rng, (2,), 50_000)
    step = one_step(FORWARD_KL, EUCLIDEAN, pair, sample_action(rng, pair.log_pi))
    assert step.ladder.is_measurable.all()
    assert convergence_slope([step.ladder]) == pytest.approx(2, abs=0.02)


def test_a_step_of_a_flat_geometry_moves_nothing() -> None:
    """A geometry is only a record: one that shifts all logits alike changes no policy."""
    shift = Geometry("shift", lambda log_pi, action: np.ones_like(log_pi), local_term_only)
    pair = PAIR_FAMILIES["uniform"](np.random.default_rng(5), (3,), 4)
    change = realised_change(FORWARD_KL, pair, shift.direction(pair.log_pi, np.zeros(3, dtype=np.int64)), 0.5)
    assert np.max(np.abs(change)) < 1e-15
    assert np.max(np.abs(difference(pair.log_mu, pair.log_pi))) > 0.01


def test_checks_count_what_exceeds_the_tolerance() -> None:
    tried = check([0.0, 2e-3, np.nan], "a = b", sizes=[5, 3, 5], tolerance=1e-3, reason="a reason")
    assert (tried.cases, tried.violations, tried.sizes, tried.ok) == (3, 2, (3, 5), False)
    assert tried.max_error == np.inf
    assert check([0.5e-3], "a = b", [2], tolerance=1e-3, reason="a reason").ok
    assert not check([], "a = b", [2], tolerance=1e-3, reason="nothing was tried").ok


def test_a_simulation_reports_its_worst_check() -> None:
    good = check([1e-4], "good", [2], tolerance=1e-3, reason="a reason")
    near = check([9e-4], "near", [3], tolerance=1e-3, reason="a reason")
    both = Simulation("T0", (good, near, truth([True], "true", [4])))
    assert (both.worst.name, both.cases, both.violations, both.sizes, both.slope) == (
        "near",
        3,
        0,
        (2, 3, 4),
        None,
    )
    assert (both.max_error, both.tolerance, both.reason) == (9e-4, 1e-3, "a reason")
    wrong = Simulation("T0", (good, truth([True, False], "false", [4])))
    assert wrong.worst.name == "false"
    assert not wrong.ok
    assert not Simulation("T0", ()).ok
