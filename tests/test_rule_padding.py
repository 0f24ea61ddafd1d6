"""Padding is never seen: whatever stands there, in whichever library, changes no bit of any decision."""

from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import assert_close, numpy_of
from rule_cases import FIELDS, NUMPY, RULES_AND_VIEWS, Batch, decide, draw, everywhere, sees, show, values

from divsim.formulas import (
    RULES,
    Decision,
    Direction,
    Rule,
    View,
    diagnostics,
    importance_sampling,
    make_rule,
    ppo_clip,
)

GARBAGE = (np.nan, 1.0, np.inf, -np.inf, 1e30, -200.0, 0.0)


def littered(batch: Batch, seed: int = 0, value: float | None = None) -> Batch:
    """The batch with random garbage, or one value, in its padded slots, and ids that no vocabulary has."""
    rng = np.random.default_rng(seed)
    is_padding = ~batch.is_response
    shape = is_padding.shape
    rubbish = rng.choice(GARBAGE, (3, *shape)) if value is None else np.full((3, *shape), value)
    return Batch(
        log_mu=np.where(is_padding[..., None], rubbish[0][..., None], batch.log_mu),
        log_pi=np.where(is_padding[..., None], rubbish[1][..., None], batch.log_pi),
        action=np.where(is_padding, rng.choice([-100, 10**6], shape), batch.action),
        advantage=np.where(is_padding, rubbish[2], batch.advantage),
        is_response=batch.is_response,
    )


def assert_identical(one: Decision, other: Decision) -> None:
    for field in fields(Decision):
        ours, theirs = values(one, field.name), values(other, field.name)
        assert (ours is None) == (theirs is None), field.name
        assert ours is None or np.array_equal(ours, theirs, equal_nan=False), field.name


def check_padding(rule: Rule, kind: str, xp: Library) -> None:
    batch = draw(51)
    clean = decide(rule, batch, kind, xp)
    for seed in (0, 1):
        assert_identical(decide(rule, littered(batch, seed), kind, xp), clean)


@pytest.mark.parametrize(("name", "kind"), RULES_AND_VIEWS)
def test_garbage_in_padding_changes_no_bit(xp: Library, name: str, kind: str) -> None:
    check_padding(make_rule(name), kind, xp)


def peeks_at_padding() -> Rule:
    """A rule whose direction looks at its neighbours, padded or not."""
    rule = ppo_clip()

    def outward(view: Any, advantage: Any) -> Direction:
        return Direction(view.log_pi_k > np.mean(view.log_pi_k))

    return replace(rule, clauses=(replace(rule.clauses[0], outward=outward),))


def test_the_padding_check_sees_a_leak() -> None:
    batch, leaky = draw(51), peeks_at_padding()
    blind_view = show(everywhere(batch), "sampled", NUMPY)  # built without is_response: padding stays in it
    littered_view = show(everywhere(littered(batch, value=-200.0)), "sampled", NUMPY)
    rules: list[tuple[Rule, bool]] = [(ppo_clip(), True), (leaky, False)]
    for rule, is_blind in rules:
        pair = [rule(v, batch.advantage, batch.is_response) for v in (blind_view, littered_view)]
        same = all(
            np.array_equal(
                values(pair[0], field)[batch.is_response], values(pair[1], field)[batch.is_response]
            )
            for field in ("keep", "weight", "pull", "surrogate")
        )
        assert same is is_blind


@pytest.mark.parametrize("name", RULES)
def test_padding_gets_nothing(name: str) -> None:
    batch = draw(52)
    padding = ~batch.is_response
    for kind in sees(name):
        decision = decide(make_rule(name), littered(batch, value=np.nan), kind, NUMPY)
        assert decision.keep[padding].all()
        for field in ("weight", "pull", "surrogate", "far", "outward", "ratio_outward", "advantage"):
            assert not np.any(values(decision, field)[padding]), field


@pytest.mark.parametrize("name", RULES)
def test_responses_do_not_depend_on_each_other(name: str) -> None:
    batch = draw(53)
    for kind in sees(name):
        whole, masked = (decide(make_rule(name), b, kind, NUMPY) for b in (everywhere(batch), batch))
        for field in FIELDS:
            if values(whole, field) is not None:
                seen = [values(decision, field)[batch.is_response] for decision in (whole, masked)]
                assert np.array_equal(*seen), field


@pytest.mark.parametrize("name", RULES)
def test_rows_of_padding_alone(xp: Library, name: str) -> None:
    batch = draw(54)
    batch = replace(batch, is_response=batch.is_response & (np.arange(5) > 1)[:, None])
    for kind in sees(name):
        decision = decide(make_rule(name), littered(batch, value=np.nan), kind, xp)
        assert not numpy_of(decision.weight)[:2].any()
        nothing = decide(make_rule(name), replace(batch, is_response=np.zeros((5, 8), bool)), kind, xp)
        assert numpy_of(nothing.keep).all()
        assert not numpy_of(nothing.weight).any()
        assert all(np.isnan(numpy_of(rate)) for rate in diagnostics(nothing).values())


def permuted(batch: Batch, order: Any) -> Batch:
    return Batch(*(getattr(batch, field.name)[order] for field in fields(Batch)))


@pytest.mark.parametrize("name", RULES)
def test_order_and_slices_of_a_batch_do_not_matter(name: str) -> None:
    batch = draw(55)
    for kind, rows in product(sees(name), ([3, 0, 4, 1, 2], [2], [4, 0])):
        whole = decide(make_rule(name), batch, kind, NUMPY)
        part = decide(make_rule(name), permuted(batch, rows), kind, NUMPY)
        for field in FIELDS:
            if values(whole, field) is not None:  # vectorised exp may differ by an ulp between places
                assert_close(values(part, field), values(whole, field)[rows], rtol=1e-14, atol=1e-16)


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x.reshape((*shape, *x.shape[2:]))


@pytest.mark.parametrize("name", RULES)
def test_leading_shape_is_free(name: str) -> None:
    shapes: list[tuple[int, ...]] = [(), (4,), (2, 3, 4)]
    for shape in shapes:
        flat = everywhere(draw(56, shape=(1, int(np.prod(shape)))))
        shaped = Batch(*(reshaped(getattr(flat, field.name), shape) for field in fields(Batch)))
        expected, got = (decide(make_rule(name), batch, "full", NUMPY) for batch in (flat, shaped))
        assert got.weight.shape == shape
        assert_close(got.weight, reshaped(expected.weight, shape), rtol=1e-14, atol=1e-16)


def test_a_view_remembers_its_padding() -> None:
    """A rule called without `is_response` still leaves out what the view was told is padding."""
    is_response = np.array([True, False])
    log_mu, log_pi = np.log([[0.4, 0.6], [0.5, 0.5]]), np.log([[0.6, 0.4], [0.1, 0.9]])
    logs = (log_mu, log_pi, np.array([0, 1]))
    views = [
        View.full(*logs, is_response=is_response),
        View.full(*logs, is_response=is_response).binary(),
        View.top_k(*logs, 1, is_response=is_response),
        View.sampled(log_mu[:, 0], log_pi[:, 0], 2, is_response=is_response),
        View.from_logits(
            log_pi,
            logs[2],
            log_mu[[0, 1], [0, 1]],
            np.array([[1], [1]]),
            log_mu[:, 1:],
            is_response=is_response,
        ),
    ]
    for view in views:
        decision = importance_sampling()(view, np.array([1.0, 1.0]))
        assert decision.is_response.tolist() == [True, False]
        assert decision.weight[1] == 0 and decision.weight[0] > 0
        both = importance_sampling()(view, np.array([1.0, 1.0]), np.array([False, True]))
        assert not both.is_response.any()
