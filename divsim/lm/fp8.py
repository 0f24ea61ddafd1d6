"""Matrix products in FP8: e4m3, one scale per row of either matrix, accumulated in float32.

On hardware that has them the products are `torch._scaled_mm`; elsewhere both matrices are rounded to e4m3 and
multiplied in the precision around them, which is the same up to the order of the sum. Either way the backward
pass runs in the training precision, on the rounded values, and passes through the rounding. What is left out:
gradients in FP8, scales that are kept from step to step.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Product = Callable[[Tensor, Tensor], Tensor]
"""(..., d) features and (rows, d) weights -> (..., rows)."""

E4M3_MAX = 448.0
"""The largest finite number of e4m3."""
MULTIPLE = 16
"""What the sides of a matrix must be multiples of on hardware; zeros make up the rest."""


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row in e4m3, its largest entry at 448, and what to multiply it by: (..., d) -> (..., d), (..., 1).

    Source: OCP 8-bit floating point, e4m3. Saturated before the cast, whose overflow differs between devices.

    >>> values, scale = quantised(torch.tensor([[448.0, 1.06, 0.0]]))
    >>> values.float().tolist(), scale.tolist()
    ([[448.0, 1.0, 0.0]], [[1.0]])
    """
    wide = x.float()
    largest = wide.abs().amax(dim=-1, keepdim=True)
    scale = torch.where(largest > 0, largest / E4M3_MAX, 1.0)
    return (wide / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale


def round_e4m3(x: Tensor) -> Tensor:
    """Each row rounded to e4m3; gradients pass: (..., d) -> (..., d).

    >>> round_e4m3(torch.tensor([[448.0, 1.06, 0.0]])).tolist()
    [[448.0, 1.0, 0.0]]
    """
    with torch.no_grad():
        values, scale = quantised(x)
        error = (values.float() * scale).to(x.dtype) - x
    return x + error


def rounded_product(x: Tensor, weight: Tensor) -> Tensor:
    """The product of both, rounded: simulated FP8."""
    return F.linear(round_e4m3(x), round_e4m3(weight))


class _ScaledProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        held = (*quantised(x), *quantised(weight))
        ctx.save_for_backward(*held)
        ctx.dtypes = x.dtype, weight.dtype
        return scaled_matmul(*held)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        held, (x_dtype, weight_dtype) = ctx.saved_tensors, ctx.dtypes
        x, weight = ((held[i].float() * held[i + 1]).to(gradient.dtype) for i in (0, 2))
        to_weight = gradient.flatten(0, -2).T @ x.flatten(0, -2)
        return (gradient @ weight).to(x_dtype), to_weight.to(weight_dtype)


def scaled_product(x: Tensor, weight: Tensor) -> Tensor:
    """The product of both, rounded, in FP8 on hardware; in bfloat16."""
    product: Tensor = _ScaledProduct.apply(x, weight)  # type: ignore[no-untyped-call]
    return product


def scaled_matmul(x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
    """The product of quantised matrices, (..., d) and (rows, d) with their scales -> (..., rows) bfloat16."""
    flat, (rows, width) = x.flatten(0, -2), weight.shape
    wide, high = -width % MULTIPLE, -rows % MULTIPLE
    product = torch._scaled_mm(
        _padded(flat, wide, 0), _padded(weight, wide, high).T, x_scale.reshape(-1, 1),
        F.pad(weight_scale, (0, 0, 0, high), value=1.0).reshape(1, -1), out_dtype=torch.bfloat16,
    )  # fmt: skip
    return product[:, :rows].reshape(*x.shape[:-1], rows)


def _padded(values: Tensor, right: int, below: int) -> Tensor:
    """With zeros; as bytes, since e4m3 cannot be padded."""
    if not right and not below:
        return values
    return F.pad(values.view(torch.uint8), (0, right, 0, below)).view(torch.float8_e4m3fn)


def held_product(weight: Tensor) -> Product:
    """The product with one weight that never changes, which is quantised once: an engine's, on hardware."""
    held = quantised(weight)
    return lambda x, _: scaled_matmul(*quantised(x), *held)


@functools.cache
def has_products(device: str) -> bool:
    """Whether a device multiplies in FP8: an accelerator on which one product succeeds."""
    if torch.device(device).type == "cpu":  # emulated there, and slower than the simulation
        return False
    tried = torch.ones(MULTIPLE, MULTIPLE, device=device)
    try:
        return bool((scaled_product(tried, tried) == MULTIPLE).all())
    except RuntimeError:
        return False
