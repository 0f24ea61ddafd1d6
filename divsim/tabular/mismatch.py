"""How a training policy comes apart from the behaviour policy: staleness, temperature, precision, the engine.

A mismatch takes rows of logits and returns the pair (mu, pi) that an engine and a trainer make of them. Where
the engine is imprecise, mu is the rounded one; where the trainer has moved on, pi is the moved one. Every
mismatch is one row of `MISMATCHES`. What is left out: weights that tokens share (`shared_head.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from divsim.formulas import log_softmax

from .language import World
from .policies import Floats, PairFamily, PolicyPair, Shape, sample_from
from .precision import BFLOAT16, E4M3, rounded, scaled

LogitPair = tuple[Floats, Floats]
Part = Callable[[np.random.Generator, Floats], LogitPair]
"""(rng, logits (n, V)) -> the logits of mu and of pi, each (n, V)."""

HEAD_RANK = 64
"""Width of the hidden states behind a head that is rounded."""


@dataclass(frozen=True)
class Mismatch:
    """One way in which pi and mu come apart.

    Attributes:
      name: its name in tables and flags.
      meaning: what it stands for, in one line.
      part: what makes the two policies of a row of logits.
    """

    name: str
    meaning: str
    part: Part


def mismatched(world: World, mismatch: Mismatch) -> PairFamily:
    """The pairs of a world under a mismatch.

    Args:
      world: behaviour logits.
      mismatch: what comes between mu and pi.

    Returns:
      A `PairFamily`; only leading shapes (n,) are drawn. Errors: ValueError for another.

    >>> from divsim.tabular.language import WORLDS
    >>> draw = mismatched(WORLDS["language"], MISMATCHES["noise_0.5"])
    >>> draw(np.random.default_rng(0), (3,), 100).log_pi.shape
    (3, 100)
    """

    def draw(rng: np.random.Generator, shape: Shape, vocab: int) -> PolicyPair:
        if len(shape) != 1:
            raise ValueError(f"shape must be (n,), got {shape}; draw n rows and reshape them")
        (n,) = shape
        mu_logits, pi_logits = mismatch.part(rng, world.logits(rng, n, vocab))
        return PolicyPair(log_softmax(mu_logits), log_softmax(pi_logits))

    return draw


def stale(passes: int, rate: float, *, by_token: bool) -> Part:
    """The trainer took policy-gradient passes on tokens of mu since the engine was updated.

    Each pass samples a token of every row from mu and moves the row's logits by `rate * A r (e_k - pi)`, r
    uncapped.

    Args:
      passes: how many.
      rate: eta.
      by_token: A is a standard normal number that belongs to the row and the token, the same in every pass;
        otherwise A is a new random sign in every pass, whatever the token, as the outcome of a sequence is.

    Returns:
      A function for `Mismatch.part`.

    Source: derived here; [PDM] section 3 for the step.
    """

    def part(rng: np.random.Generator, logits: Floats) -> LogitPair:
        log_mu, rows = log_softmax(logits), np.arange(len(logits))
        worth = rng.standard_normal(logits.shape) if by_token else None
        moved = logits
        for _ in range(passes):
            log_pi = log_softmax(moved)
            action = sample_from(rng, log_mu)
            advantage = rng.choice([-1.0, 1.0], len(rows)) if worth is None else worth[rows, action]
            step = rate * advantage * np.exp(log_pi[rows, action] - log_mu[rows, action])
            moved = moved - step[:, None] * np.exp(log_pi)
            moved[rows, action] += step
        return logits, moved

    return part


Rounding = Callable[[Floats], Floats]


def _bf16(values: Floats) -> Floats:
    return rounded(values, BFLOAT16)


def _fp8(values: Floats) -> Floats:
    return scaled(values, E4M3)


def _rounded_head(rounding: Rounding) -> Part:
    """The engine rounds the weights and the activations of a head that yields these logits.

    The head is a Gaussian one, given that it yields the row: `W = N + (z - N h) h^T / |h|^2`. The rows of a
    call share N up to its size, and have an h each.
    """

    def part(rng: np.random.Generator, logits: Floats) -> LogitPair:
        random_head = rng.standard_normal((logits.shape[-1], HEAD_RANK)) / np.sqrt(HEAD_RANK)
        engine = np.empty_like(logits)
        for row, z in enumerate(logits):
            hidden = rng.standard_normal(HEAD_RANK)
            noise = np.std(z) * random_head
            head = noise + np.outer(z - noise @ hidden, hidden / np.sum(hidden**2))
            engine[row] = rounding(head) @ rounding(hidden[None])[0]
        return engine, logits

    return part


def _rounded_logits(rounding: Rounding) -> Part:
    return lambda rng, logits: (rounding(logits), logits)


def _noisy(size: float) -> Part:
    return lambda rng, logits: (logits, logits + size * rng.standard_normal(logits.shape))


def _tempered(factor: float) -> Part:
    return lambda rng, logits: (logits, factor * logits)


def _engine(typical: float, spread: float) -> Part:
    """Gaussian logit noise whose size differs from token to token by a log-normal factor."""

    def part(rng: np.random.Generator, logits: Floats) -> LogitPair:
        size = typical * np.exp(spread * rng.standard_normal((len(logits), 1)))
        return logits + size * rng.standard_normal(logits.shape), logits

    return part


MISMATCHES: dict[str, Mismatch] = {
    mismatch.name: mismatch
    for mismatch in (
        Mismatch("bf16_logits", "engine rounds logits to bfloat16", _rounded_logits(_bf16)),
        Mismatch("fp8_logits", "engine rounds logits to e4m3, one scale a row", _rounded_logits(_fp8)),
        Mismatch("bf16_head", "engine rounds head and activations to bfloat16", _rounded_head(_bf16)),
        Mismatch("fp8_head", "engine rounds both to e4m3, one scale a row", _rounded_head(_fp8)),
        Mismatch("engine", "heavy-tailed noise of the size that engines report", _engine(0.17, 0.5)),
        Mismatch("noise_0.1", "Gaussian noise of .1 nats on every logit", _noisy(0.1)),
        Mismatch("noise_0.5", "Gaussian noise of .5 nats on every logit", _noisy(0.5)),
        Mismatch("noise_0.7", "Gaussian noise of .7 nats on every logit", _noisy(0.7)),
        Mismatch("noise_1", "Gaussian noise of 1 nat on every logit", _noisy(1.0)),
        Mismatch("sharpen_1.1", "logits of pi times 1.1", _tempered(1.1)),
        Mismatch("sharpen_1.5", "logits of pi times 1.5", _tempered(1.5)),
        Mismatch("flatten_0.9", "logits of pi times .9", _tempered(0.9)),
        Mismatch("flatten_0.7", "logits of pi times .7", _tempered(0.7)),
        Mismatch("stale_4", "4 passes at rate .3, advantage by token", stale(4, 0.3, by_token=True)),
        Mismatch("stale_16", "16 passes at rate .5, advantage by token", stale(16, 0.5, by_token=True)),
        Mismatch("stale_16_sequence", "16 passes at rate .5, random A", stale(16, 0.5, by_token=False)),
        Mismatch("stale_64", "64 passes at rate .5, advantage by token", stale(64, 0.5, by_token=True)),
    )
}  # fmt: skip
"""The mismatches by name."""
