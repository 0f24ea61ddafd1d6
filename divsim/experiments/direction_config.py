"""What `exact direction` is asked: its settings, and the two presets."""

from dataclasses import dataclass

from divsim.tabular.mismatch import MISMATCHES
from divsim.tabular.shared_head import SETTINGS

STEPS = (0.01, 0.03, 0.1, 0.3, 0.7, 0.9, 1.1, 1.5, 3.0)
"""Sizes of a token's own step in units of its flip step |s*|."""

RATES = (0.001, 0.01, 0.1, 1.0, 3.0)
"""Learning rates eta of steps in absolute units, A = +1 or -1."""


@dataclass(frozen=True)
class Config:
    """Settings of `exact direction`; every number of a result follows from them.

    Attributes:
      world: behaviour logits of a token's own step.
      vocab: V there.
      mismatches: what comes between mu and pi there.
      tokens: tokens a seed there.
      k: K of the top-K view.
      deltas: trust-region radii of the regions, nats of forward KL.
      rank: of the linear head.
      seeds: independent repetitions.
      divergence_tokens: tokens a seed where every divergence is tried.
      certain_tokens: tokens a seed, family and vocabulary where false blocks are sought.
      batch: settings of the shared head.
      batch_tokens: tokens of a minibatch there.
      seed: of all random streams.
    """

    world: str = "language"
    vocab: int = 2000
    mismatches: tuple[str, ...] = tuple(name for name in MISMATCHES if name != "noise_0.7")
    tokens: int = 384
    k: int = 20
    deltas: tuple[float, ...] = (0.05, 0.15)
    rank: int = 32
    seeds: int = 61
    divergence_tokens: int = 64
    certain_tokens: int = 820
    batch: tuple[str, ...] = tuple(SETTINGS)
    batch_tokens: int = 512
    seed: int = 0
