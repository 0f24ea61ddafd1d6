"""FP8 products against their simulation, and float16 with a scaled loss."""

import math
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lm_samples import PROMPTS, decoder, rollout  # noqa: E402

from divsim.formulas import loss_weights  # noqa: E402
from divsim.lm import fp8, precision  # noqa: E402
from divsim.lm.config import Config, check_device, preset  # noqa: E402
from divsim.lm.fp8 import (  # noqa: E402
    E4M3_MAX,
    has_products,
    held_product,
    quantised,
    rounded_product,
    scaled_product,
)
from divsim.lm.loss import Batch  # noqa: E402
from divsim.lm.precision import PRECISIONS, autocast, engine, prepared  # noqa: E402
from divsim.lm.train import State, begin, iterate, restore, snapshot, update  # noqa: E402

HALF = 2.0**-8
"""The relative rounding of a bfloat16."""


def multiplies_rows() -> bool:
    """Whether torch emulates the hardware's product on a CPU, as 2.13 does."""
    try:
        scaled_product(torch.ones(16, 16), torch.ones(16, 16))
    except RuntimeError:
        return False
    return True


emulated = pytest.mark.skipif(not multiplies_rows(), reason="this torch has no FP8 product on a CPU")


def matrices(rows: int, width: int, *lead: int) -> tuple[Any, Any]:
    rng = torch.Generator().manual_seed(rows)
    x = torch.randn(*lead, width, generator=rng) * torch.logspace(-3, 3, lead[-1])[:, None]
    return x.requires_grad_(), torch.randn(rows, width, generator=rng).requires_grad_()


@emulated
@pytest.mark.parametrize(("rows", "width", "lead"), [(16, 32, (5,)), (131, 64, (2, 3)), (7, 20, (4,))])
def test_a_product_on_hardware_is_the_simulated_one(rows: int, width: int, lead: tuple[int, ...]) -> None:
    x, weight = matrices(rows, width, *lead)
    product, expected = scaled_product(x, weight), rounded_product(x, weight)
    assert product.shape == (*lead, rows) and product.dtype == torch.bfloat16
    size = x.detach().abs() @ weight.detach().abs().T  # what the sum's terms add up to
    assert bool(((product - expected).abs() <= HALF * expected.abs() + 1e-5 * size).all())
    torch.testing.assert_close(held_product(weight.detach())(x.detach(), weight), product, rtol=0, atol=0)


@emulated
def test_its_gradients_pass_through_the_rounding() -> None:
    x, weight = matrices(131, 64, 2, 3)
    up = torch.randn(2, 3, 131, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = torch.autograd.grad(scaled_product(x, weight), (x, weight), up)
    expected = torch.autograd.grad(rounded_product(x, weight), (x, weight), up.float())
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=4 * HALF, atol=4 * HALF * float(other.abs().mean()))


@emulated
def test_a_model_on_hardware_is_the_simulated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = engine(decoder(torch.float32), PRECISIONS["fp8"])
    record = rollout(simulated)
    monkeypatch.setattr(precision, "has_products", lambda device: True)
    held = engine(decoder(torch.float32), PRECISIONS["fp8"])
    assert all(one.product is not torch.nn.functional.linear for one in held.modules()
               if isinstance(one, precision.Linear))  # fmt: skip
    features = held.features(record.tokens, record.is_token)
    torch.testing.assert_close(
        features, simulated.features(record.tokens, record.is_token), rtol=0.1, atol=0.2
    )
    trained = prepared(decoder(torch.float32), PRECISIONS["fp8"])
    with autocast(PRECISIONS["fp8"], "cpu"):
        trained.head(trained.features(record.tokens, record.is_token)).float().sum().backward()
    assert all(bool(torch.isfinite(one.grad).all()) for one in trained.parameters())


def test_a_row_is_scaled_to_the_largest_number() -> None:
    values, scale = quantised(torch.tensor([[1e-6, -3e-6], [0.0, 0.0], [7.0, 1e30]]))
    assert values.float().abs().amax(dim=-1).tolist() == [E4M3_MAX, 0.0, E4M3_MAX]
    assert scale[1].tolist() == [1.0]


def test_a_cpu_simulates() -> None:
    assert not has_products("cpu") and precision.has_products is fp8.has_products


def halves(**changes: Any) -> tuple[Config, State]:
    config = preset("table", precision="fp16", rollout_precision="fp32", clip=1.0, lr=1.0, **changes)
    return config, begin(config, decoder(torch.float32), "cpu")


def batch(config: Config, advantage: float = 1.0) -> Batch:
    record = rollout(decoder(torch.float32), sampling=replace(config.sampling, k=4))
    weights = loss_weights(record.is_response, "token_mean")
    return Batch(record, torch.tensor([advantage, -advantage] * (len(PROMPTS) // 2)), weights)


def weights_of(state: State) -> list[Any]:
    return [one.detach().clone() for one in state.model.parameters()]


def taken(config: Config, state: State, advantage: float) -> tuple[list[Any], float]:
    """How the weights move in one update, and the norm that was clipped."""
    before = weights_of(state)
    _, norm = update(
        config, state, batch(config, advantage), lambda: autocast(PRECISIONS[config.precision], "cpu")
    )
    return [after - start for after, start in zip(weights_of(state), before, strict=True)], norm


@pytest.mark.parametrize("advantage", [1e-2, 3.0])
def test_f29_what_is_clipped_is_the_gradient_and_not_its_scaled_form(advantage: float) -> None:
    config, state = halves()
    assert state.scaler.get_scale() == 65536
    step, norm = taken(config, state, advantage)
    plain = replace(config, precision="fp32")
    expected, norm_32 = taken(plain, begin(plain, decoder(torch.float32), "cpu"), advantage)
    assert norm == pytest.approx(norm_32, rel=0.02) and (norm < 1) == (advantage < 1)
    moved = math.sqrt(sum(float(one.square().sum()) for one in step))
    assert moved == pytest.approx(min(norm, config.clip) * config.lr, rel=0.02)
    for one, other in zip(step, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0.02 * moved)


def test_f29_an_overflow_changes_nothing_but_the_scale() -> None:
    config, state = halves(optimiser="adamw")
    state.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    overflows = 0
    while True:
        scale, updates = state.scaler.get_scale(), state.updates
        step, norm = taken(config, state, 1.0)
        if math.isfinite(norm):
            break
        overflows += 1
        assert all(not bool(one.any()) for one in step)
        assert state.scaler.get_scale() == scale / 2 and state.updates == updates == 0
        assert not state.optimiser.state
    assert overflows > 3 and state.updates == 1 and any(bool(one.any()) for one in step)
    assert all(one["step"] == 1 for one in state.optimiser.state.values())


def test_f28_the_scale_is_restored() -> None:
    config, state = halves()
    state.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    taken(config, state, 1.0)
    weights, saved = snapshot(state)
    _, other = halves()
    restore(other, weights, {**saved, "iteration": 0})
    assert other.scaler.get_scale() == state.scaler.get_scale() == 2.0**39


def test_float16_trains_and_says_how_often_it_overflowed() -> None:
    config = preset("smoke", precision="fp16", iterations=1, prompts=4, group=4, minibatches=2, warm_steps=0)
    from divsim.lm.warm_start import fresh

    measured = iterate(config, begin(config, fresh(config), "cpu"), "cpu")
    assert measured["overflowed"] in (0, 1, 2)


def test_float16_on_a_cpu_is_refused_where_it_counts() -> None:
    with pytest.raises(
        ValueError, match="precision fp16 trains on an accelerator only, got device cpu; take bf16"
    ):
        check_device(preset("smoke", precision="fp16"), "cpu")
    check_device(preset("smoke", precision="fp16"), "cuda")
