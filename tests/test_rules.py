"""Every rule against its oracle, on every view that it can read, in every array library."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import assert_close, numpy_of
from rule_cases import (
    FIELDS,
    NUMPY,
    RULES_AND_VIEWS,
    Batch,
    decide,
    draw,
    everywhere,
    sees,
    show,
    tokens,
    values,
    with_gain,
)
from rule_oracles import ORACLES, Verdict

from divsim.formulas import (
    RULES,
    TV,
    Clause,
    Decision,
    Direction,
    Proximity,
    Rule,
    View,
    dppo,
    drpo,
    dual_clip,
    make_rule,
    ppo_clip,
    predictive,
    two_sided,
)

SEEDS = (11, 12, 13)
VERDICT = ("keep", "weight", "pull", "surrogate", "far")

OTHER_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("ppo_clip", {"eps_low": 0.1, "eps_high": 0.5}),
    ("clip_higher", {"eps_low": 0.5}),
    ("dual_clip", {"eps_high": 0.3, "upper": 1.5}),
    ("two_sided", {"delta": 0.02, "tau": 0.0}),
    ("two_sided", {"delta": 0.3, "tau": 0.5}),
    ("dppo_binary_tv", {"delta": 0.01}),
    ("dppo_top_k_kl", {"delta": 0.5}),
    ("predictive_uniform_tv", {"delta": 0.02}),
    ("predictive_full_kl", {"delta": 0.01}),
    ("certified", {"delta": 0.02, "otherwise": "ratio"}),
    ("certified", {"delta": 0.02, "otherwise": "uniform"}),
    ("spo", {"eps": 3.0}),
    ("drpo", {"delta": 12.5}),
    ("drpo_unweighted", {"delta": 0.02}),
    ("mask_drpo", {"delta": 0.3, "radius": 0.02}),
    ("band_kl", {"delta": 0.3}),
    ("band_chi2", {"delta": 0.002}),
    ("cispo", {"eps_low": 0.2, "eps_high": 0.28}),
]


def check_against_oracle(
    rule: Rule, oracle: Callable[..., Verdict], batch: Batch, kind: str, xp: Library
) -> None:
    """Each number of the decision equals the oracle's; 1e-11 is for float64 sums of a few terms after log and
    exp, 1e-13 for a KL that the oracle sums with cancellation."""
    decision = decide(rule, batch, kind, xp)
    verdicts = [oracle(token) for token in tokens(batch, kind)]

    def expected(name: str) -> Any:
        return np.reshape([getattr(verdict, name) for verdict in verdicts], batch.action.shape)

    for name in VERDICT:
        assert_close(getattr(decision, name), expected(name), rtol=1e-11, atol=1e-13)
    for name, value in (("distance", decision.divergence), ("change", decision.change)):
        assert (getattr(verdicts[0], name) is None) == (value is None), name
        if value is not None:
            assert_close(value, expected(name), rtol=1e-11, atol=1e-13)


def test_every_rule_has_an_oracle() -> None:
    assert set(ORACLES) == set(RULES)


@pytest.mark.parametrize(("name", "kind"), RULES_AND_VIEWS)
def test_rule_against_oracle(xp: Library, name: str, kind: str) -> None:
    for seed in SEEDS:
        check_against_oracle(make_rule(name), ORACLES[name], everywhere(draw(seed)), kind, xp)


@pytest.mark.parametrize(("name", "settings"), OTHER_SETTINGS, ids=str)
def test_settings_reach_the_rule(name: str, settings: dict[str, Any]) -> None:
    def oracle(token: Any) -> Verdict:
        return ORACLES[name](token, **settings)

    for kind in sees(name):
        check_against_oracle(make_rule(name, **settings), oracle, everywhere(draw(21)), kind, NUMPY)


@pytest.mark.parametrize("name", RULES)
def test_these_batches_put_every_rule_to_the_test(name: str) -> None:
    decisions = [decide(make_rule(name), everywhere(draw(seed)), "full", NUMPY) for seed in SEEDS]
    kept = np.concatenate([decision.keep for decision in decisions])
    weight = np.concatenate([decision.weight for decision in decisions])
    assert (kept.all() and not make_rule(name).clauses) or not make_rule(name).drops or 0.1 < kept.mean() < 1
    assert name == "reinforce" or len(np.unique(weight)) > 10


def far_flipped(clause: Clause) -> Clause:
    def far(view: View) -> Proximity:
        proximity = clause.far(view)
        return Proximity(proximity.distance, ~proximity.far)

    return replace(clause, far=far)


def outward_flipped(clause: Clause) -> Clause:
    def outward(view: View, advantage: Any) -> Direction:
        direction = clause.outward(view, advantage)
        return replace(direction, outward=~direction.outward)

    return replace(clause, outward=outward)


def with_clause(rule: Rule, change: Callable[[Clause], Clause]) -> Rule:
    return replace(rule, clauses=(change(rule.clauses[0]), *rule.clauses[1:]))


BROKEN: dict[str, tuple[str, Rule]] = {
    "near is dropped": ("dppo_binary_tv", with_clause(dppo(TV, "binary", 0.15), far_flipped)),
    "inward is dropped": ("predictive_full_kl", with_clause(predictive(), outward_flipped)),
    "the second clause is lost": (
        "dual_clip",
        replace(dual_clip(upper=1.5), clauses=dual_clip(upper=1.5).clauses[:1]),
    ),
    "a binary distance for a top-K one": ("dppo_top_k_tv", dppo(TV, "binary", 0.15)),
    "the ratio's direction": ("predictive_uniform_kl", dppo(delta=0.15)),
    "another tail": ("predictive_uniform_kl", predictive(tail="aggregated")),
    "a radius of a side for the other": ("clip_higher", ppo_clip(0.28, 0.2)),
    "the weight for the pull": (
        "two_sided",
        with_gain(two_sided(), lambda gain: replace(gain, pull=gain.weight)),
    ),
    "the weight without the ratio": (
        "drpo",
        with_gain(drpo(), lambda gain: replace(gain, weight=gain.weight * 0 + 1)),
    ),
    "a penalty of twice the size": ("drpo", drpo(delta=0.075)),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_the_oracle_sees_a_broken_rule(defect: str) -> None:
    name, rule = BROKEN[defect]
    oracle = (lambda token: ORACLES["dual_clip"](token, upper=1.5)) if name == "dual_clip" else ORACLES[name]
    kind = "full" if "_full_" in name else "top_k"
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            check_against_oracle(rule, oracle, everywhere(draw(seed)), kind, NUMPY)


@pytest.mark.parametrize(("name", "kind"), RULES_AND_VIEWS)
def test_libraries_agree(xp: Library, name: str, kind: str) -> None:
    ours, theirs = (decide(make_rule(name), draw(31), kind, library) for library in (xp, NUMPY))
    for field in FIELDS:
        if values(theirs, field) is None:
            assert values(ours, field) is None
        else:  # float64, the same operations in another order
            assert_close(values(ours, field), values(theirs, field), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "kind"), RULES_AND_VIEWS)
def test_float32_is_close_and_stays_float32(xp: Library, name: str, kind: str) -> None:
    batch = everywhere(draw(32))
    exact = decide(make_rule(name), batch, kind, NUMPY)
    view = show(batch, kind, xp, np.float32)
    rounded = make_rule(name)(view, xp.array(batch.advantage))
    assert (numpy_of(rounded.keep) == exact.keep).all()
    for field in ("weight", "pull", "surrogate"):
        value = getattr(rounded, field)
        assert value.dtype == view.log_pi.dtype
        # a float32 log-probability down to -10 nats is off by 1e-6, penalties divide it by radii of 0.1
        assert_close(value, getattr(exact, field), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_nothing_carries_a_graph(name: str) -> None:
    torch = pytest.importorskip("torch")
    batch = everywhere(draw(33))
    log_pi = torch.tensor(batch.log_pi, requires_grad=True)
    log_mu = torch.tensor(batch.log_mu, requires_grad=True)
    advantage = torch.tensor(batch.advantage, requires_grad=True)
    decision = make_rule(name)(View.full(log_mu, log_pi, torch.as_tensor(batch.action)), advantage)
    given = [getattr(decision, field.name) for field in fields(Decision)]
    assert [value.requires_grad for value in given if value is not None].count(True) == 0
