"""The loss of a minibatch: log-probabilities, a view, a rule, and a backward pass in pieces.

Every method here is a detached weight on grad log pi_k, so tokens need nothing of one another beyond the body
of the model: it runs once, each piece of tokens goes through the head and back and leaves its gradient at the
features, and the body goes back once. The logits of a batch never stand in memory at once. What is left out:
formulas, which are in `divsim.formulas`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from divsim.formulas import (
    FORWARD_KL,
    Decision,
    Rule,
    View,
    aggregate,
    entropy,
    k3,
    k3_pull,
)

from .model import Policy
from .precision import log_probs, of_token
from .rollout import Rollout


@dataclass(frozen=True)
class Objective:
    """What is optimised.

    Attributes:
      rule: what a token's update weighs.
      whole: whether the rule sees every token of the vocabulary; the rollout must have recorded them.
      bracket: whether its view brackets what is hidden, for rules that certify.
      temperature: at which the tokens were drawn; pi is taken at the same.
      entropy: weight of the entropy of pi.
      reference: weight of KL(pi || reference), by k3 at the sampled tokens.
      piece: tokens whose logits stand in memory at once.
    """

    rule: Rule
    whole: bool = False
    bracket: bool = False
    temperature: float = 1.0
    entropy: float = 0.0
    reference: float = 0.0
    piece: int = 4096

    @property
    def regularised(self) -> bool:
        """Whether tokens without an advantage are moved too."""
        return self.entropy != 0 or self.reference != 0


@dataclass(frozen=True)
class Batch:
    """Rows of a rollout, and what their tokens count for.

    Attributes:
      rollout: B rows.
      advantage: (B,) of each response.
      weights: (B, T) of each token in the loss, of the whole minibatch; 0 at padding.
      log_ref_k: (B, T) the reference's log-probability of each sampled token, or None.
    """

    rollout: Rollout
    advantage: Tensor
    weights: Tensor
    log_ref_k: Tensor | None = None


@dataclass(frozen=True)
class Judged:
    """What a pass found of N response tokens.

    Attributes:
      loss: minus the objective: the method's own surrogate, and the other terms.
      decision: the rule's, (N,) each.
      log_ratio: (N,) log pi_k - log mu_k, nats.
      kl: (N,) KL(mu || pi) at the view's resolution, nats.
      entropy: (N,) of pi, nats.
    """

    loss: float
    decision: Decision
    log_ratio: Tensor
    kl: Tensor
    entropy: Tensor


Context = Callable[[], AbstractContextManager[object]]
Scale = Callable[[Tensor], Tensor]
"""What a loss is multiplied by before the backward pass, so that small gradients do not underflow."""


def unscaled(loss: Tensor) -> Tensor:
    """As it is."""
    return loss


def response_features(model: Policy, rollout: Rollout) -> Tensor:
    """The features from which each response token is predicted, (B, T, d): those one place before it."""
    features = model.features(rollout.tokens[:, :-1], rollout.is_token[:, :-1])
    return features[:, -rollout.response.shape[1] :]


@torch.no_grad()
def response_log_probs(
    model: Policy, rollout: Rollout, temperature: float = 1.0, context: Context = nullcontext
) -> Tensor:
    """Teacher-forced log-probabilities of the sampled tokens, nats: (B, T); 0 at padding."""
    with context():
        logits = model.head(response_features(model, rollout))
    log_pi_k = of_token(log_probs(logits, temperature), rollout.response)
    return torch.where(rollout.is_response, log_pi_k, 0.0)


def backward(
    model: Policy, batch: Batch, objective: Objective, context: Context = nullcontext, scale: Scale = unscaled
) -> list[Judged]:
    """Add the gradient of the loss to the parameters; what was found, piece by piece.

    Args:
      model: pi.
      batch: what is learned from; its rollout is taken for sound (`Rollout.check`).
      objective: what is optimised.
      context: in which the model runs, such as autocast.
      scale: of the loss.

    Errors: ValueError if the model's log-probabilities are not numbers.
    """
    with context():
        features = response_features(model, batch.rollout)
    hidden = features[batch.rollout.is_response]
    leaf = hidden.detach().requires_grad_()
    places = batch.rollout.is_response.nonzero()
    judged = []
    for start in range(0, len(places), objective.piece):
        rows, columns = places[start : start + objective.piece].T
        with context():
            logits = model.head(leaf[start : start + objective.piece])
        loss, found = _piece(logits, batch, objective, rows, columns)
        scale(loss).backward()  # type: ignore[no-untyped-call]
        judged.append(found)
    if hidden.requires_grad and leaf.grad is not None:
        hidden.backward(leaf.grad)  # type: ignore[no-untyped-call]
    return judged


def _piece(
    logits: Tensor, batch: Batch, objective: Objective, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Judged]:
    """What to differentiate for some tokens, and what was found of them."""
    record = batch.rollout
    log_pi = log_probs(logits, objective.temperature)
    action = record.response[rows, columns]
    log_pi_k = of_token(log_pi, action)
    if bool(torch.isnan(log_pi_k).any()):
        raise ValueError("log pi is not a number: the weights have diverged; lower lr, or clip gradients")
    view = _view(log_pi.detach(), action, record, rows, columns, objective)
    advantage = batch.advantage[rows].to(log_pi.dtype)
    weights = batch.weights[rows, columns].to(log_pi.dtype)
    decision = objective.rule(view, advantage)
    push, surrogate = decision.weight * decision.advantage + decision.pull, decision.surrogate
    if batch.log_ref_k is not None:
        drift = batch.log_ref_k[rows, columns] - log_pi_k.detach()
        push = push + objective.reference * k3_pull(drift)
        surrogate = surrogate - objective.reference * k3(drift)
    # A token without a push has no gradient, not even 0 times infinity.
    pushed = torch.where(push != 0, push * torch.where(push != 0, log_pi_k, 0.0), 0.0)
    spread = entropy(log_pi) if objective.entropy else entropy(log_pi.detach())
    loss = -aggregate(pushed, weights) - objective.entropy * aggregate(spread, weights)
    value = -aggregate(surrogate + objective.entropy * spread.detach(), weights)
    kl = FORWARD_KL.measure(*view.cells)
    return loss, Judged(float(value), decision, view.log_pi_k - view.log_mu_k, kl, spread.detach())


def _view(
    log_pi: Tensor, action: Tensor, record: Rollout, rows: Tensor, columns: Tensor, objective: Objective
) -> View:
    if objective.whole:
        if record.log_mu is None:
            raise ValueError("the rule sees every token, but the rollout recorded only some; set whole=True")
        return View.full(record.log_mu[rows, columns].to(log_pi.dtype), log_pi, action, check=False)
    log_mu_k, top = record.log_mu_k[rows, columns], record.top_log_mu[rows, columns]
    return View.from_logits(
        log_pi, action, log_mu_k, record.top_ids[rows, columns], top, bracket=objective.bracket, check=False
    )
