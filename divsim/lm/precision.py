"""What the trainer and the engine compute in: float64 to FP8, and where log-probabilities are made.

Log-probabilities are made here alone, from logits that were lifted to float32 first. FP8 itself is in
`fp8.py`. What is left out: weights that are trained in less than float32.
"""

import copy
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .fp8 import Product, has_products, held_product, round_e4m3, rounded_product, scaled_product


class Linear(nn.Module):
    """A matrix (rows, d) without a bias, and how it multiplies features."""

    def __init__(self, width: int, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        self.product: Product = F.linear

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., rows)."""
        return self.product(x, self.weight)


@dataclass(frozen=True)
class Precision:
    """What numbers are computed in.

    Attributes:
      name: as users say it.
      master: of the trained weights.
      compute: of products.
      is_fp8: whether products are of e4m3, with results and gradients in `compute`.
      is_scaled: whether gradients would underflow, so that the loss is scaled up.

    >>> PRECISIONS["bf16"].master
    torch.float32
    """

    name: str
    master: torch.dtype
    compute: torch.dtype
    is_fp8: bool = False
    is_scaled: bool = False


PRECISIONS = {
    one.name: one
    for one in (
        Precision("fp64", torch.float64, torch.float64),
        Precision("fp32", torch.float32, torch.float32),
        Precision("bf16", torch.float32, torch.bfloat16),
        Precision("fp16", torch.float32, torch.float16, is_scaled=True),
        Precision("fp8", torch.float32, torch.bfloat16, is_fp8=True),
    )
}
"""By name. Trained weights are float32 or better: an update would get lost in a bfloat16 weight."""

Model = TypeVar("Model", bound=nn.Module)


def prepared(model: Model, precision: Precision, device: str = "cpu") -> Model:
    """The same model on a device, set up to be trained in a precision."""
    model.to(device, precision.master)
    trained = scaled_product if has_products(device) else rounded_product
    for module in model.modules():
        if isinstance(module, Linear):
            module.product = trained if precision.is_fp8 else F.linear
    return model


def autocast(precision: Precision, device: str) -> AbstractContextManager[object]:
    """In which a training pass runs."""
    if precision.master == precision.compute:
        return nullcontext()
    return cast(
        AbstractContextManager[object], torch.autocast(torch.device(device).type, dtype=precision.compute)
    )


@torch.no_grad()
def engine(model: Model, precision: Precision) -> Model:
    """A copy of the model as a rollout engine holds it: frozen, its weights cast and rounded once.

    A copy and no view: the trained weights go on, the engine's stay.
    """
    held = copy.deepcopy(model).to(precision.compute).requires_grad_(False).eval()
    for module in held.modules():
        if isinstance(module, Linear):
            _hold(module, precision)
    return held


def _hold(module: Linear, precision: Precision) -> None:
    module.product = F.linear
    if precision.is_fp8:
        # A parameter of its own: a tied head is rounded, the embedding it was tied to is not.
        module.weight = nn.Parameter(round_e4m3(module.weight), requires_grad=False)
        on_hardware = has_products(str(module.weight.device))
        module.product = held_product(module.weight) if on_hardware else _with_rounded_features


def _with_rounded_features(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(round_e4m3(x), weight)


def log_probs(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probabilities in float32 or better at a temperature > 0: (..., V) -> (..., V).

    >>> log_probs(torch.tensor([10.0, 9.0], dtype=torch.float16), 1e-4).tolist()
    [0.0, -10000.0]
    """
    lifted = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    return torch.log_softmax(lifted / temperature, dim=-1)


def of_token(log_prob: Tensor, token: Tensor) -> Tensor:
    """The entry of each token: (..., V) and (...) int64 -> (...)."""
    return log_prob.gather(-1, token[..., None])[..., 0]
