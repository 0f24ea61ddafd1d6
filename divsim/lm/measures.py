"""What is said of an iteration's tokens: distances, drop rates by case, where rule and ratio differ."""

import math
from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from divsim.formulas import Decision, diagnostics, share

from .loss import Judged


def token_measures(passes: Sequence[Sequence[Judged]], ratio_cap: float) -> dict[str, float | None]:
    """Of all updates of a rollout; shares count tokens with A != 0. None where there is none.

    Args:
      passes: update by update, what was found of its tokens, piece by piece.
      ratio_cap: beyond which a ratio weighs no more.
    """
    every = [one for judged in passes for one in judged]
    if not every:
        return {}
    kl, log_ratio = joined(every, "kl"), joined(every, "log_ratio")
    last = torch.cat([one.kl for one in passes[-1]]) if passes[-1] else kl
    found = {
        "loss": torch.tensor(
            [sum(one.loss for one in judged) for judged in passes], dtype=torch.float64
        ).mean(),
        "kl": kl.double().mean(),
        "kl_last": last.double().mean(),
        "kl_max": kl.max(),
        "entropy": joined(every, "entropy").double().mean(),
        "ratio_capped": share(log_ratio > math.log(ratio_cap), torch.ones_like(log_ratio, dtype=torch.bool)),
        **diagnostics(side_by_side([one.decision for one in every])),
    }
    return {name: None if torch.isnan(value) else float(value) for name, value in found.items()}


def joined(judged: Sequence[Judged], name: str) -> Tensor:
    """A field of all pieces, side by side: (N,)."""
    return torch.cat([getattr(one, name) for one in judged])


def side_by_side(decisions: Sequence[Decision]) -> Decision:
    """The decisions of all pieces as one: (N,) each."""
    parts = [[getattr(one, field.name) for one in decisions] for field in fields(Decision)]
    return Decision(*(None if part[0] is None else torch.cat(part) for part in parts))
