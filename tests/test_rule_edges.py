"""Rules at their edges: equality keeps, caps cap the weight alone, and nothing breaks where numbers do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import assert_close, logs, numpy_of
from rule_cases import NUMPY, decide, draw, everywhere, sees, show

from divsim.formulas import RULES, View, drpo, make_rule, spo


def raised_beyond(xp: Library) -> tuple[View, Any]:
    """r = 2 and |pi_k - mu_k| = TV = 1/2 exactly, with A > 0: outward for every rule."""
    view = View.full(xp.array(logs([[0.5, 0.5]])), xp.array(logs([[1.0, 0.0]])), xp.array([0]))
    return view, xp.array([1.0])


def lowered_beyond(xp: Library) -> tuple[View, Any]:
    """r = 1/2 exactly, |pi_k - mu_k| = TV = 1/4, with A < 0: outward for every rule."""
    view = View.full(xp.array(logs([[0.5, 0.5]])), xp.array(logs([[0.25, 0.75]])), xp.array([0]))
    return view, xp.array([-1.0])


EXACT_EDGES: list[tuple[str, str, float, Callable[[Library], tuple[View, Any]]]] = [
    ("ppo_clip", "eps_high", 1.0, raised_beyond),
    ("ppo_clip", "eps_low", 0.5, lowered_beyond),
    ("clip_higher", "eps_high", 1.0, raised_beyond),
    ("two_sided", "delta", 0.5, raised_beyond),
    ("dppo_binary_tv", "delta", 0.5, raised_beyond),
    ("dppo_top_k_tv", "delta", 0.5, raised_beyond),
    ("dppo_full_tv", "delta", 0.5, raised_beyond),
    ("band_tv", "delta", 0.5, raised_beyond),
    ("band_chi2", "delta", 1.0, raised_beyond),
]


@pytest.mark.parametrize(("name", "setting", "edge", "case"), EXACT_EDGES)
def test_equality_keeps(
    xp: Library, name: str, setting: str, edge: float, case: Callable[[Library], tuple[View, Any]]
) -> None:
    hair = 1e-15 * edge  # a few ulps: 1 + eps of a radius itself rounds
    for radius, kept in ((edge, True), (edge - hair, False), (edge + hair, True)):
        decision = make_rule(name, **{setting: radius})(*case(xp))
        assert bool(decision.keep[0]) is kept
        assert bool(decision.far[0]) is not kept


def test_dual_clip_keeps_at_its_upper_edge(xp: Library) -> None:
    view, _ = raised_beyond(xp)
    for upper, kept in ((2.0, True), (np.nextafter(2.0, 0), False)):
        assert bool(make_rule("dual_clip", upper=float(upper))(view, xp.array([-1.0])).keep[0]) is kept


RADIUS = ("two_sided", "dppo_", "predictive_", "certified", "band_")


@pytest.mark.parametrize("name", [name for name in RULES if name.startswith(RADIUS)])
def test_the_rules_own_distance_is_the_edge(xp: Library, name: str) -> None:
    view, advantage = lowered_beyond(xp)
    distance = make_rule(name)(view, advantage).divergence
    assert distance is not None
    edge = float(distance[0])
    assert bool(make_rule(name, delta=edge)(view, advantage).keep[0])
    assert not bool(make_rule(name, delta=float(np.nextafter(edge, 0)))(view, advantage).keep[0])


def test_soft_weights_vanish_exactly_at_the_radius(xp: Library) -> None:
    assert float(drpo(0.5)(*raised_beyond(xp)).weight[0]) == 0.0
    assert float(spo(1.0)(*raised_beyond(xp)).weight[0]) == 0.0
    assert float(drpo(0.25)(*lowered_beyond(xp)).weight[0]) == pytest.approx(0.0, abs=1e-16)
    assert float(spo(0.5)(*lowered_beyond(xp)).weight[0]) == 0.0


SOFT = ("spo", "drpo", "mask_drpo")
UNCAPPED = ("reinforce", "cispo")


@pytest.mark.parametrize("name", [name for name in RULES if name not in UNCAPPED])
def test_a_cap_stops_the_weight_and_not_the_mask(name: str) -> None:
    batch = everywhere(draw(47))
    free, capped = (
        decide(make_rule(name, **settings), batch, "full", NUMPY) for settings in ({}, {"ratio_cap": 1.1})
    )
    assert (free.keep == capped.keep).all()
    below = show(batch, "full", NUMPY).ratio <= 1.1
    assert_close(capped.weight[below], free.weight[below], rtol=0)
    beyond = ~below & free.keep
    assert beyond.any()
    if name not in SOFT:  # penalties scale the ratio further
        assert_close(capped.weight[beyond], np.full(beyond.sum(), 1.1), rtol=1e-15)


def impossible(advantage: float) -> tuple[View, Any]:
    """pi_k = 0: a logit mask took the sampled token away."""
    view = View.full(logs([[0.4, 0.3, 0.3]]), logs([[0.0, 0.5, 0.5]]), np.array([0]))
    return view, np.array([advantage])


@pytest.mark.parametrize("name", RULES)
def test_an_impossible_token_has_no_weight(name: str) -> None:
    rule = make_rule(name, tau=0.0) if name == "two_sided" else make_rule(name)
    for advantage in (1.0, -1.0, 0.0):
        decision = rule(*impossible(advantage))
        assert float(decision.weight[0]) == (1.0 if name == "reinforce" else 0.0)
        assert float(decision.pull[0]) == 0.0
        # REINFORCE's objective A log pi_k is truly infinite there, unless A = 0
        assert np.isfinite(decision.surrogate[0]) or (name == "reinforce" and advantage != 0)


def test_an_infinite_pull_is_an_error() -> None:
    for advantage in (1.0, -1.0, 0.0):
        with pytest.raises(ValueError, match="pull must be finite"):
            make_rule("two_sided")(*impossible(advantage))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [name for name in RULES if "sampled" in sees(name)])
def test_an_overflowing_ratio_stays_finite(xp: Library, name: str, dtype: Any) -> None:
    beyond = np.array([89.0, 100.0, 710.0, 1e4], dtype)[:, None]  # the first overflows float32, 710 float64
    advantage = np.broadcast_to(np.array([1.0, -1.0, 0.0], dtype), (4, 3))
    log_mu_k, log_pi_k = (-1 - beyond) * np.ones_like(advantage), -np.ones_like(advantage)
    view = View.sampled(xp.array(log_mu_k), xp.array(log_pi_k), vocab_size=10)
    decision = make_rule(name)(view, xp.array(advantage.copy()))
    for field in (decision.weight, decision.pull, decision.surrogate):
        assert np.isfinite(numpy_of(field)).all()
    if make_rule(name).clauses and make_rule(name).drops:
        assert (numpy_of(decision.weight)[:, 0] == 0).all()
