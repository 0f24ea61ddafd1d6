"""Shares of a decision: counted by hand, in [0, 1], and never over padding or tokens without a push."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import numpy_of
from rule_cases import NUMPY, TOP, Batch, decide, draw, sees

from divsim.formulas import (
    RULES,
    Decision,
    View,
    certified,
    diagnostics,
    dppo,
    make_rule,
    ppo_clip,
    share,
    spo,
)

Rates = dict[str, Any]


def f16(xp: Library, advantage_of_padding: float = 1.0) -> Decision:
    """84 valid tokens of 120, of which 31 are dropped; the padding too would be, if it were looked at."""
    place = np.arange(120).reshape(6, 20)
    is_response, is_outside = place < 84, (place < 31) | (place >= 84)
    log_mu_k = np.full((6, 20), -2.0)
    log_pi_k = log_mu_k + np.where(is_outside, 0.5, 0.05)
    view = View.sampled(xp.array(log_mu_k), xp.array(log_pi_k), 10, is_response=xp.array(is_response))
    advantage = np.where(is_response, 1.0, advantage_of_padding)
    return ppo_clip()(view, xp.array(advantage), xp.array(is_response))


def test_f16_a_clip_fraction_counts_one_thing(xp: Library) -> None:
    for advantage_of_padding in (1.0, 0.0, np.nan):
        rates = diagnostics(f16(xp, advantage_of_padding))
        assert float(rates["drop"]) == 31 / 84
        assert round(float(rates["drop"]), 6) == 0.369048
        assert float(rates["far"]) == 31 / 84


def counted(decision: Decision) -> Iterator[dict[str, Any]]:
    """One record for each response token with a push."""
    for place in np.ndindex(decision.advantage.shape):
        if decision.is_response[place] and decision.advantage[place] != 0:
            yield {
                "a": float(decision.advantage[place]),
                "drop": not decision.keep[place],
                "far": bool(decision.far[place]),
                "by_ratio": bool(decision.ratio_outward[place]),
                "outward": bool(decision.outward[place]),
                "certified": None if decision.certified is None else bool(decision.certified[place]),
            }


def share_by_hand(part: list[bool]) -> float:
    return sum(part) / len(part) if part else float("nan")


def by_hand(decision: Decision) -> Rates:
    tokens = list(counted(decision))
    rates = {
        "far": share_by_hand([t["far"] for t in tokens]),
        "drop": share_by_hand([t["drop"] for t in tokens]),
        "drop_raised": share_by_hand([t["drop"] for t in tokens if t["a"] > 0]),
        "drop_lowered": share_by_hand([t["drop"] for t in tokens if t["a"] < 0]),
        "drop_above": share_by_hand([t["drop"] for t in tokens if t["a"] > 0 and t["by_ratio"]]),
        "drop_below": share_by_hand([t["drop"] for t in tokens if t["a"] < 0 and t["by_ratio"]]),
        "drop_inward": share_by_hand([t["drop"] for t in tokens if not t["by_ratio"]]),
        "disagree": share_by_hand([t["outward"] != t["by_ratio"] for t in tokens if t["far"]]),
    }
    if decision.certified is not None:
        rates["uncertified"] = share_by_hand([not t["certified"] for t in tokens if t["far"]])
    return rates


def check_rates(diagnose: Callable[[Decision], Rates], decision: Decision) -> None:
    rates, expected = diagnose(decision), by_hand(decision)
    assert set(rates) == set(expected)
    for name, right in expected.items():
        rate = float(rates[name])
        assert rate == right or (np.isnan(rate) and np.isnan(right)), name
        assert np.isnan(rate) or 0 <= rate <= 1, name


@pytest.mark.parametrize("name", RULES)
def test_rates_counted_by_hand(name: str) -> None:
    for kind in sees(name):
        check_rates(diagnostics, decide(make_rule(name), draw(81), kind, NUMPY))


def over_all_slots(decision: Decision) -> Rates:
    """Padding counts."""
    return diagnostics(replace(decision, is_response=np.ones_like(decision.is_response)))


def zeros_count(decision: Decision) -> Rates:
    """Tokens without a push count."""
    pushed = np.where(decision.advantage == 0, 1.0, decision.advantage)
    return diagnostics(replace(decision, advantage=np.where(decision.is_response, pushed, 0.0)))


def signs_swapped(decision: Decision) -> Rates:
    return diagnostics(replace(decision, advantage=-decision.advantage))


def unclipped_above_one(decision: Decision) -> Rates:
    """Dropped tokens over kept ones: F16's fraction that exceeds 1."""
    rates = diagnostics(decision)
    return {**rates, "drop": rates["drop"] / (1 - rates["drop"])}


def littered_padding(decision: Decision) -> Decision:
    """Padding that claims a push, so that counting it would show."""
    return replace(decision, advantage=np.where(decision.is_response, decision.advantage, 1.0))


@pytest.mark.parametrize("broken", [over_all_slots, zeros_count, signs_swapped, unclipped_above_one])
def test_the_count_sees_a_broken_share(broken: Callable[[Decision], Rates]) -> None:
    decision = littered_padding(decide(make_rule("dppo_binary_tv"), draw(81), "full", NUMPY))
    check_rates(diagnostics, decision)
    with pytest.raises(AssertionError):
        check_rates(broken, decision)


def test_a_share_along_an_axis_is_that_of_every_row(xp: Library) -> None:
    part, whole = np.random.default_rng(84).random((2, 5, 7)) < 0.6
    whole[2] = False
    found = numpy_of(share(xp.array(part), xp.array(whole), axis=-1))
    by_row = [
        share_by_hand([bool(p) for p, w in zip(*row, strict=True) if w])
        for row in zip(part, whole, strict=True)
    ]
    np.testing.assert_array_equal(found, by_row)
    assert np.isnan(found[2]) and len(set(found)) > 2


def test_libraries_agree(xp: Library) -> None:
    ours, theirs = (
        diagnostics(decide(certified(0.02), draw(83), "top_k", library)) for library in (xp, NUMPY)
    )
    for name, rate in theirs.items():
        assert float(numpy_of(ours[name])) == float(rate)
        assert numpy_of(ours[name]).shape == ()


def test_tokens_without_a_push_are_in_no_share() -> None:
    batch = draw(84)
    no_push = np.zeros_like(batch.advantage)
    silent = diagnostics(decide(ppo_clip(), replace(batch, advantage=no_push), "full", NUMPY))
    assert all(np.isnan(rate) for rate in silent.values())
    decision = decide(dppo(delta=0.01), batch, "full", NUMPY)
    pushed = batch.is_response & (batch.advantage != 0)
    fewer = Batch(batch.log_mu, batch.log_pi, batch.action, batch.advantage, pushed)
    again = diagnostics(decide(dppo(delta=0.01), fewer, "full", NUMPY))
    for name, rate in diagnostics(decision).items():
        assert float(again[name]) == float(rate)


def test_shares_of_what_they_name() -> None:
    batch = draw(85)
    soft = diagnostics(decide(spo(), batch, "full", NUMPY))
    assert float(soft["drop"]) == float(soft["far"]) == 0.0
    assert np.isnan(soft["disagree"])
    for rule in (ppo_clip(), dppo(delta=0.01)):
        rates = diagnostics(decide(rule, batch, "full", NUMPY))
        assert float(rates["disagree"]) == float(rates["drop_inward"]) == 0.0  # they ask the ratio themselves
        assert 0 < float(rates["drop"]) <= float(rates["far"])
    penalty = diagnostics(decide(make_rule("mask_drpo"), batch, "full", NUMPY))
    assert float(penalty["disagree"]) == float(penalty["drop"]) == 0.0 < float(penalty["far"])
    both_sides = diagnostics(decide(make_rule("two_sided"), batch, "full", NUMPY))
    assert float(both_sides["drop"]) == float(both_sides["far"]) and float(both_sides["drop_inward"]) > 0
    asked = diagnostics(decide(make_rule("predictive_full_kl", delta=0.01), batch, "full", NUMPY))
    assert float(asked["disagree"]) > 0 and "uncertified" not in asked


def test_more_in_sight_proves_more() -> None:
    batch, rates = draw(86, shape=(20, 40)), {}
    for k in (1, TOP, batch.log_mu.shape[-1]):
        view = View.top_k(batch.log_mu, batch.log_pi, batch.action, k=k, bracket=True)
        rates[k] = float(diagnostics(certified(0.02)(view, batch.advantage))["uncertified"])
    assert rates[1] > rates[TOP] > rates[7] == 0.0


def test_share_of_nothing_is_nan(xp: Library) -> None:
    part, nothing = xp.array(np.array([True, False])), xp.array(np.array([False, False]))
    assert np.isnan(float(share(part, nothing)))
    assert float(share(part, part)) == 1.0
    assert float(share(part, ~nothing)) == 0.5
    assert float(share(part, xp.array(np.array([False, True])))) == 0.0


def test_a_share_of_float32_tokens_is_float64(xp: Library) -> None:
    third = share(xp.array(np.arange(3) == 0), xp.array(np.ones(3, dtype=bool)))
    assert float(third) == 1 / 3
