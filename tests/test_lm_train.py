"""The trainer: gradients by other routes, accumulation, silence before any update, exact worlds, faults."""

import copy
import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lm_samples import PROMPTS, VOCAB, decoder, rollout

torch = pytest.importorskip("torch")

from divsim.formulas import RULES, View, aggregate, group_advantage, log_softmax, loss_weights, make_rule  # noqa: E402
from divsim.lm.config import Config, preset  # noqa: E402
from divsim.lm.loss import Batch, Objective, backward  # noqa: E402
from divsim.lm.model import Table  # noqa: E402
from divsim.lm.rollout import Sampling  # noqa: E402
from divsim.lm.train import begin, collect, gradient, iterate, schedule, update  # noqa: E402
from divsim.lm.warm_start import fresh  # noqa: E402
from divsim.tabular.learner import logit_gradient  # noqa: E402

WHOLE = Sampling(k=4, whole=True)
SMALL: dict[str, Any] = {
    "task": "bandit", "task_settings": {"prompts": 40, "arms": 40}, "warm_steps": 0, "prompts": 6, "group": 4,
    "minibatches": 4, "iterations": 3, "held_out": 8, "k": 4, "warmup": 0, "lr": 1e-2,
}  # fmt: skip


def small(**changes: Any) -> Config:
    return preset("smoke", **(SMALL | changes))


def gradients(model: Any) -> dict[str, Any]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def stale_batch(seed: int = 0, **extra: Any) -> tuple[Any, Batch]:
    """A model, and a batch that another one drew: stale tokens, advantages of both signs and 0."""
    drawn = rollout(decoder(seed=1), prompts=PROMPTS * 3, sampling=WHOLE, seed=seed)
    advantage = torch.tensor(np.random.default_rng(seed).standard_normal(12))
    advantage[3] = 0.0
    return decoder(seed=2), Batch(drawn, advantage, loss_weights(drawn.is_response), **extra)


def whole(name: str) -> Objective:
    return Objective(make_rule(name), whole="_full_" in name, bracket=name == "certified")


@pytest.mark.parametrize("name", RULES)
def test_the_gradient_is_that_of_the_weighted_log_probabilities(name: str) -> None:
    """Against one graph over all logits, and the same decision made on the whole batch at once."""
    model, batch = stale_batch()
    objective = replace(whole(name), entropy=0.1, reference=0.2, piece=7)
    record = batch.rollout
    batch = replace(batch, log_ref_k=record.log_mu_k - 0.3)
    judged = backward(model, batch, objective)
    found = gradients(model)
    model.zero_grad()
    features = model.features(record.tokens[:, :-1], record.is_token[:, :-1])[:, -6:]
    log_pi = log_softmax(model.head(features))
    real = record.is_response
    log_mu = torch.where(real[..., None], record.log_mu, math.nan)
    if objective.whole:
        view = View.full(log_mu, log_pi, record.response, is_response=real)
    else:
        view = View.from_logits(
            log_pi, record.response, record.log_mu_k, record.top_ids, record.top_log_mu,
            is_response=real, bracket=objective.bracket,
        )  # fmt: skip
    decision = objective.rule(view, torch.broadcast_to(batch.advantage[:, None], real.shape))
    log_pi_k = log_pi.gather(-1, record.response[..., None])[..., 0]
    drift = (record.log_mu_k - 0.3 - log_pi_k).detach()
    push = decision.weight * decision.advantage + decision.pull + 0.2 * torch.expm1(drift)
    spread = -(log_pi.exp() * log_pi).sum(dim=-1)
    (-aggregate(push * log_pi_k + 0.1 * spread, batch.weights)).backward()
    for parameter, right in gradients(model).items():
        torch.testing.assert_close(found[parameter], right, rtol=1e-9, atol=1e-12)
    surrogate = decision.surrogate - 0.2 * (torch.expm1(drift) - drift) + 0.1 * spread.detach()
    assert sum(one.loss for one in judged) == pytest.approx(
        -float(aggregate(surrogate, batch.weights)), rel=1e-9
    )
    assert torch.equal(torch.cat([one.decision.keep for one in judged]), decision.keep[real])


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_f12_accumulation_gives_one_gradient(aggregation: str) -> None:
    model, batch = stale_batch()
    batch = replace(batch, weights=loss_weights(batch.rollout.is_response, aggregation))
    found = []
    for rows in (0, 1, 2, 4, 5, 12, 100):
        gradient(
            model,
            batch,
            whole("predictive_uniform_kl"),
            rows,
            nullcontext,
        )
        found.append(gradients(model))
        model.zero_grad()
    for one in found[1:]:
        for name, right in found[0].items():
            torch.testing.assert_close(one[name], right, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", RULES)
def test_before_any_update_nothing_is_far_and_nothing_dropped(name: str) -> None:
    for precision, tolerance in (("fp64", 1e-10), ("fp32", 1e-4)):
        config = small(rule=name, precision=precision, rollout_precision=precision)
        state = begin(config, fresh(config), "cpu")
        record, _ = collect(config, state, "cpu")
        advantage = torch.linspace(-1, 1, len(record.tokens))
        batch = Batch(record, advantage, loss_weights(record.is_response))
        judged = backward(state.model, batch, config.objective)
        ratios = torch.cat([one.log_ratio for one in judged])
        assert float(ratios.abs().max()) <= tolerance
        assert all(bool(one.decision.keep.all()) and not bool(one.decision.far.any()) for one in judged)


def test_a_dropped_token_has_no_gradient_at_all() -> None:
    """Every token dropped: all gradients are zero to the last bit."""
    model, batch = stale_batch()
    rule = make_rule("two_sided", delta=1e-12, tau=0.0)
    (judged,) = backward(model, batch, Objective(rule))
    assert not bool(judged.decision.keep[judged.decision.advantage != 0].any())
    assert all(not bool(grad.any()) for grad in gradients(model).values())


def test_f15_padding_and_order_change_nothing() -> None:
    model, batch = stale_batch()
    backward(model, batch, whole("predictive_uniform_kl"))
    right = gradients(model)
    rng = np.random.default_rng(0)
    for litter in (math.nan, math.inf, -200.0, 200.0):
        real = batch.rollout.is_response
        littered = replace(
            batch.rollout,
            log_mu_k=torch.where(real, batch.rollout.log_mu_k, litter),
            top_log_mu=torch.where(real[..., None], batch.rollout.top_log_mu, litter),
            tokens=torch.where(batch.rollout.is_token, batch.rollout.tokens, int(rng.integers(VOCAB))),
        )
        model.zero_grad()
        backward(model, replace(batch, rollout=littered), whole("predictive_uniform_kl"))
        assert all(torch.equal(found, right[name]) for name, found in gradients(model).items())
    order = torch.from_numpy(rng.permutation(12))
    model.zero_grad()
    turned = Batch(batch.rollout.rows(order), batch.advantage[order], batch.weights[order])
    backward(model, turned, whole("predictive_uniform_kl"))
    for name, found in gradients(model).items():
        torch.testing.assert_close(found, right[name], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", RULES)
def test_a_table_learns_as_the_exact_worlds_do(name: str) -> None:
    """Three iterations of plain gradient steps on free logits, against the tabular gradient, step by step."""
    config = preset(
        "table", rule=name, ratio_cap=math.exp(20), iterations=3, prompts=8, group=4, minibatches=4,
        lr=30.0, k=5, task_settings={"prompts": 40, "arms": 12},
    )  # fmt: skip
    state = begin(config, fresh(config), "cpu")
    assert isinstance(state.model, Table)
    logits = np.random.default_rng(7).standard_normal((1, 43, 43))  # without ties, where any top-K is valid
    state.model.head.weight.data = torch.from_numpy(logits[0].T.copy())
    moved = 0
    for _ in range(config.iterations):
        before = copy.deepcopy(state)
        record, rewards = collect(config, before, "cpu")
        advantage = group_advantage(rewards, divide_by_std=True).flatten().numpy()
        order = np.random.default_rng(
            np.random.SeedSequence(config.seed, spawn_key=(2, state.iteration))
        ).permutation(32)
        log_mu = np.asarray(log_softmax(logits))
        for rows in order.reshape(4, 8):
            policy = np.asarray(log_softmax(logits))
            symbol = record.tokens[rows, 0].numpy()
            action, real = record.response[rows].numpy(), record.is_response[rows].numpy()
            row, column = np.nonzero(real)
            state_of, taken = symbol[row], action[row, column]
            mu, pi = log_mu[0, state_of], policy[0, state_of]
            if config.sees_all:
                view = View.full(mu, pi, taken)
            else:
                view = View.top_k(mu, pi, taken, 5, bracket=name == "certified")
            decision = make_rule(name)(view, advantage[rows][row])
            push = decision.weight * decision.advantage + decision.pull
            logits = logits + config.lr * logit_gradient(policy, state_of[None], taken[None], push[None])
        iterate(config, state, "cpu")
        trained = state.model.head.weight.detach().numpy().T
        np.testing.assert_allclose(trained, logits[0], rtol=0, atol=1e-10)
        moved += int(np.abs(logits).max() > 1)
    assert moved


def test_f7_equal_rewards_change_no_parameter() -> None:
    config = small(optimiser="adamw", weight_decay=0.0)
    state = begin(config, fresh(config), "cpu")
    iterate(config, state, "cpu")  # so that the optimiser has something to remember
    record, _ = collect(config, state, "cpu")
    before = copy.deepcopy(state.model.state_dict())
    advantage = group_advantage(torch.ones(6, 4, dtype=torch.float64), divide_by_std=True).flatten()
    batch = Batch(record, advantage, loss_weights(record.is_response))
    _, norm = update(config, state, batch, nullcontext)
    assert math.isnan(norm)
    assert all(torch.equal(weight, before[name]) for name, weight in state.model.state_dict().items())


def test_f26_a_record_is_not_refreshed_and_rules_act() -> None:
    config = small(rule="ppo_clip", lr=0.1, rule_settings={"eps_low": 1e-3, "eps_high": 1e-3}, iterations=6)
    state = begin(config, fresh(config), "cpu")
    measured = [iterate(config, state, "cpu") for _ in range(6)]
    acted = [one for one in measured if one["skipped"] < config.minibatches]
    assert acted and max(one["kl_max"] for one in acted) > 0.01
    assert max(one["drop"] or 0 for one in acted) > 0.1
    assert all(0 <= (one["drop"] or 0) <= 1 for one in measured)


@pytest.mark.parametrize("decay", [True, False])
def test_f28_the_schedule_depends_on_the_update_alone(decay: bool) -> None:
    config = small(warmup=1, iterations=10, decay=decay)
    rates = [schedule(config, update) for update in range(1, 41)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == ([1.0] * 36 if not decay else sorted(rates[4:], reverse=True))
    assert rates[-1] == (pytest.approx(0.0, abs=1e-12) if decay else 1.0)


def test_f29_small_updates_are_not_lost_in_bf16() -> None:
    config = small(precision="bf16", lr=6e-4, iterations=1)
    state = begin(config, fresh(config), "cpu")
    assert {weight.dtype for weight in state.model.parameters()} == {torch.float32}
    weight = state.model.norm.weight
    for _ in range(100):
        weight.grad = torch.ones_like(weight)
        for group in state.optimiser.param_groups:
            group["lr"] = 6e-4
        state.optimiser.step()
    assert float((1 - weight.detach()).abs().max()) > 0.01


@pytest.mark.parametrize(
    ("training", "rollout_in"), [("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "fp8"), ("fp64", "fp64")]
)
def test_every_precision_trains(training: str, rollout_in: str) -> None:
    config = small(precision=training, rollout_precision=rollout_in)
    state = begin(config, fresh(config), "cpu")
    for _ in range(2):
        measured = iterate(config, state, "cpu")
        assert math.isfinite(measured["kl"]) and math.isfinite(measured["loss"])
    noise = measured["kl"]
    assert noise > (1e-9 if training != "fp64" else 0)


def test_lag_samples_from_the_policy_that_many_rollouts_ago() -> None:
    config = small(lag=2, precision="fp64", rollout_precision="fp64", iterations=5)
    state = begin(config, fresh(config), "cpu")
    weights = [copy.deepcopy(state.model.state_dict())]
    for _ in range(4):
        iterate(config, state, "cpu")
        weights.append(copy.deepcopy(state.model.state_dict()))
    record, _ = collect(config, state, "cpu")
    from divsim.lm.loss import response_log_probs

    old = fresh(config).double()
    for behind, agrees in ((2, True), (0, False), (1, False)):
        old.load_state_dict(weights[4 - behind])
        gap = float((response_log_probs(old, record) - record.log_mu_k).abs().max())
        assert (gap < 1e-10) is agrees


def test_a_reference_term_pulls_where_nothing_else_does() -> None:
    config = small(reference=0.5)
    state = begin(config, fresh(config), "cpu")
    with torch.no_grad():
        for weight in state.model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    record, _ = collect(config, state, "cpu")
    assert state.start is not None
    from divsim.lm.loss import response_log_probs

    def distance() -> float:
        assert state.start is not None
        gap = response_log_probs(state.model, record) - response_log_probs(state.start, record)
        return float((gap**2).mean())

    start = distance()
    log_ref_k = response_log_probs(state.start, record)
    for _ in range(20):
        batch = Batch(
            record, torch.zeros(24, dtype=torch.float64), loss_weights(record.is_response), log_ref_k
        )
        assert not math.isnan(update(config, state, batch, nullcontext)[1])
    assert distance() < start / 2
