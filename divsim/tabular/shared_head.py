r"""A linear head that all tokens share: what a minibatch update does to each token, and what one token adds.

Logits are `W h + b` with a hidden state h per position and a bias b by rank. The behaviour policy is W at the
start of an iteration, with engine noise if asked for; minibatches sampled from it move W; the last one is
looked at. "What the update does to D_t" then has four meanings, kept apart in `Effects`. What is left out: a
backbone below the head, sequences, and masks in the passes before the last.
"""

from dataclasses import dataclass, replace

import numpy as np

from divsim.formulas import (
    FORWARD_KL,
    directional_change,
    finite_change,
    log_softmax,
    policy_gradient_direction,
)

from .optimisers import Moments, Optimiser, adam, sgd
from .policies import Bools, Floats, Ints, PolicyPair, at_action, sample_from

VOCAB = 512
CLUSTERS = 16
SPREAD = 5.0
"""Standard deviation of the part of a logit that depends on the hidden state, nats."""
STEEPNESS = 1.5
"""Power of the rank by which the bias of a token falls."""


@dataclass(frozen=True)
class Setting:
    """One way of training the head.

    Attributes:
      name: its name in tables.
      optimiser: of the weights.
      width: of the hidden states.
      kinship: share of a hidden state's variance that its cluster explains; 0 is independent features.
      noise: standard deviation of the engine's error on every logit, nats.
      passes: minibatches before the one that is looked at.
    """

    name: str
    optimiser: Optimiser
    width: int = 32
    kinship: float = 0.8
    noise: float = 0.0
    passes: int = 7


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("sgd", sgd(0.5)),
        Setting("adam", adam(0.005)),
        Setting("sgd_independent", sgd(5.0), width=128, kinship=0.0),
        Setting("sgd_engine", sgd(0.2), noise=0.3),
        Setting("adam_engine", adam(0.003), noise=0.3),
    )
}
"""The settings by name; rates were set by the share of tokens that end up far, before any test was looked
at."""


@dataclass(frozen=True)
class Minibatch:
    """The minibatch that is looked at, before its update.

    Attributes:
      setting: how the head is trained.
      hidden: (N, d).
      pair: mu and pi of every position, (N, V).
      action: (N,) int, sampled from mu.
      advantage: (N,).
      moments: of the optimiser.
    """

    setting: Setting
    hidden: Floats
    pair: PolicyPair
    action: Ints
    advantage: Floats
    moments: Moments

    def push(self) -> Floats:
        """(N, V) gradient of each token's `r A` in its own logits: A r (e_k - pi)."""
        ratio = np.exp(at_action(self.pair.log_pi - self.pair.log_mu, self.action))
        direction = policy_gradient_direction(self.pair.log_pi, self.action)
        return np.asarray((self.advantage * ratio)[:, None] * direction)

    def update(self, keep: Bools | None = None) -> Floats:
        """(N, V) what one update does to every position's logits; the gradient is that of the kept tokens."""
        push = self.push() if keep is None else self.push() * keep[:, None]
        moved, _ = self.setting.optimiser.step(push.T @ self.hidden / len(self.action), self.moments)
        return np.asarray(self.hidden @ moved.T)

    def realised(self, displacement: Floats) -> Floats:
        """(N,) exact change of forward KL under a displacement (N, V) of the logits."""
        return np.asarray(finite_change(self.pair.log_mu, self.pair.log_pi, displacement))


def collect(setting: Setting, tokens: int, rng: np.random.Generator) -> Minibatch:
    """Train the head on minibatches of one rollout, and stop before the last.

    Args:
      setting: how.
      tokens: N of every minibatch.
      rng: the only source of randomness.

    Returns:
      The last `Minibatch`.

    >>> collect(SETTINGS["sgd"], 8, np.random.default_rng(0)).pair.log_pi.shape
    (8, 512)
    """
    head = SPREAD / np.sqrt(setting.width) * rng.standard_normal((VOCAB, setting.width))
    bias = -STEEPNESS * np.log1p(np.arange(VOCAB))
    centres = rng.standard_normal((CLUSTERS, setting.width))
    worth = rng.standard_normal((CLUSTERS, VOCAB))
    moved, moments = head, Moments(np.zeros_like(head), np.zeros_like(head))
    for place in range(setting.passes + 1):
        cluster = rng.integers(CLUSTERS, size=tokens)
        own = rng.standard_normal((tokens, setting.width))
        hidden = np.sqrt(setting.kinship) * centres[cluster] + np.sqrt(1 - setting.kinship) * own
        engine = setting.noise * rng.standard_normal((tokens, VOCAB))
        pair = PolicyPair(log_softmax(hidden @ head.T + bias + engine), log_softmax(hidden @ moved.T + bias))
        action = sample_from(rng, pair.log_mu)
        advantage = worth[cluster, action]
        batch = Minibatch(setting, hidden, pair, action, advantage - advantage.mean(), moments)
        if place < setting.passes:
            step, moments = setting.optimiser.step(batch.push().T @ hidden / tokens, moments)
            moved = moved + step
    return batch


@dataclass(frozen=True)
class Effects:
    """What one update does, in four meanings and to first order; (N,) each, nats of forward KL.

    Attributes:
      own: this token's own step alone, on its own D; the optimiser's preconditioner held fixed.
      marginal: D of this token after the update, minus after the update without this token, whose mean is
        still over N tokens.
      marginal_total: the same for the sum of D over the far tokens.
      whole: D of this token after the update, minus before.
      own_rate: `own` to first order.
      whole_rate: `whole` to first order.
    """

    own: Floats
    marginal: Floats
    marginal_total: Floats
    whole: Floats
    own_rate: Floats
    whole_rate: Floats


def effects(batch: Minibatch, delta: float) -> Effects:
    """All meanings of "what the update does" for every token of a minibatch.

    Args:
      batch: the minibatch.
      delta: tokens beyond it are far, nats.

    >>> found = effects(collect(SETTINGS["sgd"], 8, np.random.default_rng(0)), delta=0.05)
    >>> found.whole.shape
    (8,)
    """
    push, tokens = batch.push(), len(batch.action)
    gradient = push.T @ batch.hidden / tokens
    scale = batch.setting.optimiser.scale(gradient, batch.moments)
    own = push * (batch.hidden**2 @ scale.T) / tokens
    update = batch.update()
    log_mu, log_pi = batch.pair.log_mu, batch.pair.log_pi
    marginal, marginal_total = _marginal(batch, push, gradient, delta)
    return Effects(
        own=batch.realised(own),
        marginal=marginal,
        marginal_total=marginal_total,
        whole=batch.realised(update),
        own_rate=np.asarray(directional_change(FORWARD_KL, log_mu, log_pi, own)),
        whole_rate=np.asarray(directional_change(FORWARD_KL, log_mu, log_pi, update)),
    )


def _marginal(batch: Minibatch, push: Floats, gradient: Floats, delta: float) -> tuple[Floats, Floats]:
    """With each token minus without it, on its own D and on the sum over far tokens; the optimiser steps
    anew."""
    far = np.flatnonzero(FORWARD_KL.measure(batch.pair.log_mu, batch.pair.log_pi) > delta)
    together = batch.realised(batch.update())
    own, total = np.empty(len(push)), np.empty(len(push))
    for token in range(len(push)):
        seen = np.append(far, token)
        share = np.outer(push[token], batch.hidden[token]) / len(push)
        without, _ = batch.setting.optimiser.step(gradient - share, batch.moments)
        part = replace(batch, pair=PolicyPair(batch.pair.log_mu[seen], batch.pair.log_pi[seen]))
        difference = together[seen] - part.realised(batch.hidden[seen] @ without.T)
        own[token], total[token] = difference[-1], np.sum(difference[:-1])
    return own, total
