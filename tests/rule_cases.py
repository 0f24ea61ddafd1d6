"""Batches of tokens to try rules on, the views that show them, and which rule can read which view."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from conftest import Library
from numpy.typing import NDArray
from pairs import Floats, numpy_of
from rule_oracles import Token, see
from scipy.special import log_softmax

from divsim.formulas import RULES, Decision, Gain, Rule, View

NUMPY = Library("numpy", np.asarray)

TOP = 3
"""K of the top-K views of this suite."""

FIELDS = ("keep", "weight", "pull", "surrogate", "divergence", "change", "far", "outward", "ratio_outward",
          "certified")  # fmt: skip
"""What a `Decision` says, but for what it was told."""


@dataclass(frozen=True)
class Batch:
    """Whole policies (B, T, V) float64, nats; sampled tokens, advantages and is_response (B, T)."""

    log_mu: Floats
    log_pi: Floats
    action: NDArray[np.int64]
    advantage: Floats
    is_response: NDArray[np.bool_]


def draw(seed: int, shape: tuple[int, int] = (5, 8), vocab: int = 7) -> Batch:
    """Pairs from close to far apart, tokens from likely to rare, advantages of both signs and zero.

    Never quite equal: TV has no derivative there, and rounding decides its sign.
    """
    rng = np.random.default_rng(seed)
    apart = rng.choice([0.01, 0.1, 0.5, 2.0], (*shape, 1), p=[0.1, 0.2, 0.4, 0.3])
    log_mu = log_softmax(1.5 * rng.standard_normal((*shape, vocab)), axis=-1)
    log_pi = log_softmax(log_mu + apart * rng.standard_normal((*shape, vocab)), axis=-1)
    by_mu = np.argmax(log_mu + rng.gumbel(size=log_mu.shape), axis=-1)
    action = np.where(rng.random(shape) < 0.5, by_mu, rng.integers(vocab, size=shape))
    advantage = rng.standard_normal(shape) * rng.choice([0.0, 1.0], shape, p=[0.1, 0.9])
    return Batch(log_mu, log_pi, action, advantage, rng.random(shape) < 0.7)


def everywhere(batch: Batch) -> Batch:
    """The same tokens, none of them padding."""
    return replace(batch, is_response=np.ones_like(batch.is_response))


VIEWS = ("full", "top_k", "from_logits", "sampled")


def show(batch: Batch, kind: str, xp: Library, dtype: type[np.floating[Any]] = np.float64) -> View:
    """A view of the batch by one of the four constructors."""
    log_mu, log_pi = (xp.array(x.astype(dtype)) for x in (batch.log_mu, batch.log_pi))
    action, is_response = xp.array(batch.action), xp.array(batch.is_response)
    if kind == "full":
        return View.full(log_mu, log_pi, action, is_response=is_response)
    if kind == "top_k":
        return View.top_k(log_mu, log_pi, action, k=TOP, is_response=is_response, bracket=True)
    index = np.clip(batch.action, 0, batch.log_mu.shape[-1] - 1)[..., None]  # padding may hold any id

    def of_k(log_policy: Floats) -> Any:
        return xp.array(np.take_along_axis(log_policy, index, axis=-1)[..., 0].astype(dtype))

    if kind == "sampled":
        vocab = batch.log_mu.shape[-1]
        return View.sampled(of_k(batch.log_mu), of_k(batch.log_pi), vocab, is_response=is_response)
    ids = np.argsort(-batch.log_mu, axis=-1, kind="stable")[..., :TOP]
    top_log_mu = xp.array(np.take_along_axis(batch.log_mu, ids, axis=-1).astype(dtype))
    return View.from_logits(
        log_pi, action, of_k(batch.log_mu), xp.array(ids), top_log_mu, is_response=is_response, bracket=True
    )


def decide(rule: Rule, batch: Batch, kind: str, xp: Library) -> Decision:
    """The rule's decision on a float64 view of the batch."""
    return rule(show(batch, kind, xp), xp.array(batch.advantage), xp.array(batch.is_response))


def sees(name: str) -> tuple[str, ...]:
    """The views that hold enough for a named rule."""
    if "_full_" in name:
        return VIEWS[:1]
    if name == "certified" or "proportional" in name:
        return VIEWS[:3]
    return VIEWS


RULES_AND_VIEWS = [(name, kind) for name in RULES for kind in sees(name)]


def tokens(batch: Batch, kind: str) -> Iterator[Token]:
    """The same tokens for an oracle, row by row."""
    top = {"full": batch.log_mu.shape[-1], "sampled": 0}.get(kind, TOP)
    for place in np.ndindex(batch.action.shape):
        mu, pi = (np.exp(log_policy[place]).tolist() for log_policy in (batch.log_mu, batch.log_pi))
        yield see(mu, pi, int(batch.action[place]), float(batch.advantage[place]), top)


def values(decision: Decision, name: str) -> Any:
    """One field as NumPy, or None where the rule has none."""
    field = getattr(decision, name)
    return None if field is None else numpy_of(field)


def update(decision: Decision) -> Any:
    """What multiplies grad log pi_k."""
    return numpy_of(decision.weight * decision.advantage + decision.pull)


def with_gain(rule: Rule, change: Callable[[Gain], Gain]) -> Rule:
    """The rule with its gain tampered with, to test a test."""
    return replace(rule, gain=lambda *given: change(rule.gain(*given)))
