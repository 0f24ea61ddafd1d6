"""What the trainer and the engine compute in: float64 to FP8, and where log-probabilities are made.

Log-probabilities are made here alone, from logits that were lifted to float32 first. FP8 is simulated:
weights are rounded to e4m3 per row and activations per token before a product in the training precision, and
gradients pass through the rounding. What is left out: FP8 products on hardware, FP8 gradients.
"""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Rounding = Callable[[Tensor], Tensor]
"""(..., d) -> (..., d), each row by itself."""


def unrounded(x: Tensor) -> Tensor:
    """As it is."""
    return x


E4M3_MAX = 448.0
"""The largest finite number of e4m3."""


def round_e4m3(x: Tensor) -> Tensor:
    """Each row rounded to e4m3, its largest entry scaled to 448; gradients pass: (..., d) -> (..., d).

    Source: OCP 8-bit floating point, e4m3. Saturated before the cast, whose overflow differs between devices.

    >>> round_e4m3(torch.tensor([[448.0, 1.06, 0.0]])).tolist()
    [[448.0, 1.0, 0.0]]
    """
    with torch.no_grad():
        wide = x.float()
        largest = wide.abs().amax(dim=-1, keepdim=True)
        scale = torch.where(largest > 0, largest / E4M3_MAX, 1.0)
        rounded = (wide / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float() * scale
        error = rounded.to(x.dtype) - x
    return x + error


class Linear(nn.Module):
    """A matrix (rows, d) without a bias, and how weights and features are rounded before they multiply."""

    def __init__(self, width: int, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        self.round_weight: Rounding = unrounded
        self.round_features: Rounding = unrounded

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., rows)."""
        return F.linear(self.round_features(x), self.round_weight(self.weight))


@dataclass(frozen=True)
class Precision:
    """What numbers are computed in.

    Attributes:
      name: as users say it.
      master: of the trained weights.
      compute: of products.
      rounding: of weights and features before each product.

    >>> PRECISIONS["bf16"].master
    torch.float32
    """

    name: str
    master: torch.dtype
    compute: torch.dtype
    rounding: Rounding = unrounded


PRECISIONS = {
    one.name: one
    for one in (
        Precision("fp64", torch.float64, torch.float64),
        Precision("fp32", torch.float32, torch.float32),
        Precision("bf16", torch.float32, torch.bfloat16),
        Precision("fp8", torch.float32, torch.bfloat16, round_e4m3),
    )
}
"""By name. Trained weights are float32 or better: an update would get lost in a bfloat16 weight."""

Model = TypeVar("Model", bound=nn.Module)


def prepared(model: Model, precision: Precision) -> Model:
    """The same model, set up to be trained in a precision."""
    model.to(precision.master)
    for module in model.modules():
        if isinstance(module, Linear):
            module.round_weight = module.round_features = precision.rounding
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
            # A parameter of its own: a tied head is rounded, the embedding it was tied to is not.
            module.weight = nn.Parameter(precision.rounding(module.weight), requires_grad=False)
            module.round_weight, module.round_features = unrounded, precision.rounding
    return held


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
