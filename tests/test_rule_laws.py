"""Laws that hold for all rules: the weight is the surrogate's derivative, and on-policy all are REINFORCE."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import Floats, assert_close, logs, numpy_of
from rule_cases import NUMPY, Batch, decide, draw, everywhere, sees, show, update, with_gain

from divsim.formulas import RULES, Rule, View, make_rule, ppo_clip, spo, two_sided

torch = pytest.importorskip("torch")
objectives = pytest.importorskip("rule_objectives")

SEEDS = (41, 42, 43)

NOT_A_DERIVATIVE = {
    "cispo": "the weight is detached: the value sg(w) A log pi moves with w, its gradient does not",
}


def nudged(batch: Batch, step: float) -> Batch:
    """log pi_k moved by `step`, the other tokens rescaled to make room."""
    is_k = np.arange(batch.log_pi.shape[-1]) == batch.action[..., None]
    pi_k = np.exp(np.take_along_axis(batch.log_pi, batch.action[..., None], axis=-1))
    room = np.log1p(-pi_k * np.exp(step)) - np.log1p(-pi_k)
    return replace(batch, log_pi=batch.log_pi + np.where(is_k, step, room))


def slopes(rule: Rule, batch: Batch, step: float = 1e-6) -> tuple[Floats, np.ndarray[Any, Any]]:
    """The surrogate's central difference in log pi_k, and where no mask changes on the way."""
    ahead, here, behind = (decide(rule, nudged(batch, h), "full", NUMPY) for h in (step, 0.0, -step))
    is_smooth = (ahead.keep == here.keep) & (here.keep == behind.keep) & (ahead.far == behind.far)
    return (ahead.surrogate - behind.surrogate) / (2 * step), is_smooth


def check_derivative(rule: Rule) -> None:
    for seed in SEEDS:
        batch = everywhere(draw(seed))
        slope, is_smooth = slopes(rule, batch)
        assert is_smooth.mean() > 0.98
        expected = update(decide(rule, batch, "full", NUMPY))
        # a step of 1e-6: rounding of the surrogate / 2e-6 is 1e-9 of its size, which ratios of 50 enlarge
        assert_close(slope[is_smooth], expected[is_smooth], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", sorted(set(RULES) - set(NOT_A_DERIVATIVE)))
def test_weight_is_the_derivative_of_the_surrogate(name: str) -> None:
    check_derivative(make_rule(name))


@pytest.mark.parametrize("name", NOT_A_DERIVATIVE)
def test_the_exceptions_are_exceptions(name: str) -> None:
    with pytest.raises(AssertionError):
        check_derivative(make_rule(name))


NO_DERIVATIVE = {
    "half the penalty's weight": with_gain(spo(), lambda gain: replace(gain, weight=(gain.weight + 1) / 2)),
    "a pull without its factor 2": with_gain(
        two_sided(), lambda gain: replace(gain, pull=0.5 * np.asarray(gain.pull))
    ),
    "a masked surrogate": with_gain(ppo_clip(), lambda gain: replace(gain, surrogate=gain.surrogate * 0)),
}


@pytest.mark.parametrize("defect", NO_DERIVATIVE)
def test_the_law_sees_a_broken_gain(defect: str) -> None:
    with pytest.raises(AssertionError):
        check_derivative(NO_DERIVATIVE[defect])


@pytest.mark.parametrize("name", RULES)
def test_autograd_of_the_trainers_objective(name: str) -> None:
    library = Library("torch", torch.as_tensor)
    for seed in SEEDS:
        batch = everywhere(draw(seed))
        view, decision = show(batch, "full", library), decide(make_rule(name), batch, "full", library)
        log_pi_k = view.log_pi_k.clone().requires_grad_()
        sample = objectives.Sample(log_pi_k, view.log_mu_k, decision.advantage, decision.keep, decision.far)
        value = objectives.objective(name)(sample)
        value.sum().backward()
        assert_close(decision.surrogate, value, rtol=1e-10, atol=1e-12)  # float64, bands to 1e-13
        assert_close(update(decision), log_pi_k.grad, rtol=1e-10, atol=1e-12)


def on_policy(batch: Batch) -> Batch:
    return replace(batch, log_pi=batch.log_mu)


@pytest.mark.parametrize("name", RULES)
def test_on_policy_every_rule_is_reinforce(xp: Library, name: str) -> None:
    for kind in sees(name):
        batch = on_policy(everywhere(draw(44)))
        decision = decide(make_rule(name), batch, kind, xp)
        assert numpy_of(decision.keep).all()
        assert not numpy_of(decision.far).any()
        # `from_logits` normalises pi again, which costs a rounding; penalties divide it by a radius
        assert_close(update(decision), batch.advantage, rtol=1e-13, atol=1e-15)


def at_ratio_one(advantage: float) -> tuple[View, Any]:
    """pi_k = mu_k while others move towards the likeliest: c_k = -E_pi[d] < 0, out of the region."""
    log_mu, log_pi = logs([[0.25, 0.5, 0.25]]), logs([[0.25, 0.74, 0.01]])
    return View.full(log_mu, log_pi, np.array([0])), np.array([advantage])


@pytest.mark.parametrize("name", RULES)
def test_at_ratio_one_only_a_predicted_change_can_drop(name: str) -> None:
    raised, lowered = (make_rule(name)(*at_ratio_one(advantage)) for advantage in (1.0, -1.0))
    asks_change = name.startswith("predictive_") or name == "certified"
    assert raised.keep.all()
    assert bool(lowered.keep.all()) is not asks_change
    for decision in (raised, lowered):
        expected = np.where(decision.keep, decision.advantage, 0.0)
        assert_close(update(decision), expected, rtol=1e-15)


@pytest.mark.parametrize("name", RULES)
def test_no_advantage_is_no_push(name: str) -> None:
    for kind in sees(name):
        batch = replace(everywhere(draw(45)), advantage=np.zeros((5, 8)))
        decision = decide(make_rule(name), batch, kind, NUMPY)
        assert decision.keep.all()
        assert not decision.outward.any()
        assert not decision.ratio_outward.any()
        assert_close(update(decision), decision.pull, rtol=0)


@pytest.mark.parametrize("name", RULES)
def test_scaling_the_advantage_scales_the_update(name: str) -> None:
    batch = everywhere(draw(46))
    once = decide(make_rule(name), batch, "full", NUMPY)
    thrice = decide(make_rule(name), replace(batch, advantage=3 * batch.advantage), "full", NUMPY)
    assert (once.keep == thrice.keep).all()
    assert_close(thrice.weight, once.weight, rtol=1e-15)
