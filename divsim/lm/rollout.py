"""Sampling as a production engine does it, and the record that such an engine returns.

A token is drawn by the inverse of its distribution from one uniform number that belongs to its row and
place, so that neither batching nor the number of processes changes a sample. What is recorded is the
distribution the token was drawn from, temperature and truncation and all. What is left out: beams, penalties,
stop strings.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from divsim.formulas import View, check_record

from .model import Cache, Policy
from .precision import log_probs, of_token
from .task import EOS, PAD


@dataclass(frozen=True)
class Rollout:
    """Prompts, responses, and what the engine said of them: B rows, P prompt columns, T response columns.

    Attributes:
      tokens: (B, P + T) int64, prompts padded on the left, responses on the right.
      is_token: (B, P + T) bool, False at padding.
      log_mu_k: (B, T) log-probability of each sampled token, nats; 0 at padding.
      top_ids: (B, T, K) int64, the likeliest tokens.
      top_log_mu: (B, T, K) their log-probabilities, nats.
      log_mu: (B, T, V) the whole distribution, or None if it was not asked for.
    """

    tokens: Tensor
    is_token: Tensor
    log_mu_k: Tensor
    top_ids: Tensor
    top_log_mu: Tensor
    log_mu: Tensor | None = None

    @property
    def response(self) -> Tensor:
        """(B, T) int64."""
        return self.tokens[:, -self.log_mu_k.shape[1] :]

    @property
    def is_response(self) -> Tensor:
        """(B, T) bool: up to the first end, which belongs to it."""
        return self.is_token[:, -self.log_mu_k.shape[1] :]

    def check(self, vocab_size: int) -> None:
        """Refuse what no engine can have said, once for all updates that learn from it.

        Errors: ValueError that names what is wrong, where, and the remedy.
        """
        said = (self.response, self.log_mu_k, self.top_ids, self.top_log_mu)
        check_record(*said, vocab_size, is_response=self.is_response)
        if self.log_mu is not None:
            View.full(self.log_mu, self.log_mu, self.response, is_response=self.is_response)

    def rows(self, index: Tensor) -> "Rollout":
        """Some of the rows: (n,) int64."""
        parts = (getattr(self, one.name) for one in fields(self))
        return Rollout(*(None if part is None else part[index] for part in parts))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
      temperature: > 0, or 0 for the likeliest token.
      top_p: the likeliest tokens whose mass reaches it; 1 for all.
      k: likeliest tokens that are recorded.
      whole: whether the whole distribution is recorded.

    Errors: ValueError that names the setting.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    k: int = 20
    whole: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number >= 0, got {self.temperature}; 0 is greedy")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}; 1 keeps all tokens")
        if self.k < 1:
            raise ValueError(f"k must be >= 1, got {self.k}; it counts recorded tokens")


def truncated(log_prob: Tensor, top_p: float) -> Tensor:
    """The likeliest tokens whose mass reaches `top_p`, normalised: (..., V) -> (..., V), -inf elsewhere.

    >>> truncated(torch.log(torch.tensor([0.5, 0.3, 0.2])), 0.8).exp().tolist()
    [0.625, 0.375, 0.0]
    """
    ordered, order = log_prob.sort(dim=-1, descending=True)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    # A rounding of the running sum must not let one more token in.
    kept = before < top_p - 4 * torch.finfo(log_prob.dtype).eps
    kept[..., 0] = True
    dropped = torch.empty_like(kept).scatter(-1, order, ~kept)
    return torch.log_softmax(log_prob.masked_fill(dropped, -torch.inf), dim=-1)


def draw(log_mu: Tensor, uniform: Tensor) -> Tensor:
    """The token at which the running sum of probabilities passes a uniform number: (B, V), (B,) -> (B,).

    A token of probability zero is never drawn.

    >>> draw(torch.log(torch.tensor([[0.5, 0.0, 0.5]])), torch.tensor([0.5])).tolist()
    [2]
    """
    total = log_mu.double().exp().cumsum(dim=-1)
    passed = torch.searchsorted(total, (uniform.to(total) * total[:, -1])[:, None], right=True)[:, 0]
    last = log_mu.shape[-1] - 1 - torch.isfinite(log_mu).flip(-1).int().argmax(dim=-1)
    return torch.minimum(passed, last)


@torch.no_grad()
def generate(
    model: Policy, prompts: Tensor, is_prompt: Tensor, uniforms: Tensor, sampling: Sampling
) -> Rollout:
    """Continue every prompt until it ends, or for T tokens.

    Args:
      model: the behaviour policy.
      prompts: (B, P) int64, padded on the left.
      is_prompt: (B, P) bool, False at padding.
      uniforms: (B, T) in [0, 1), one for each token that may be drawn.
      sampling: how.

    Errors: ValueError where a log-probability is not a number: the model's weights have diverged.
    """
    batch, longest = uniforms.shape
    cache = Cache(prompts.shape[1] + longest)
    tokens, is_token, new = prompts, is_prompt, prompts
    running = torch.ones(batch, dtype=torch.bool, device=prompts.device)
    steps: list[tuple[Tensor, ...]] = []
    for place in range(longest):
        logits = model.head(model.features(new, is_token, cache)[:, -1])
        log_mu = distribution(logits, sampling)
        token = log_mu.argmax(dim=-1) if sampling.temperature == 0 else draw(log_mu, uniforms[:, place])
        token = torch.where(running, token, PAD)
        top = log_mu.topk(min(sampling.k, log_mu.shape[-1]), dim=-1)
        log_mu_k = torch.where(running, of_token(log_mu, token), 0.0)
        steps.append((log_mu_k, top.indices, top.values, *([log_mu] if sampling.whole else [])))
        new = token[:, None]
        tokens = torch.cat([tokens, new], dim=1)
        is_token = torch.cat([is_token, running[:, None]], dim=1)
        running = running & (token != EOS)
    columns = [torch.stack(column, dim=1) for column in zip(*steps, strict=True)]
    return Rollout(tokens, is_token, *columns)


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """What tokens are drawn from: (B, V) log-probabilities in float32 or better, nats."""
    log_mu = log_probs(logits, sampling.temperature or 1.0)
    if not bool(torch.isfinite(log_mu.amax(dim=-1)).all()):
        raise ValueError("log mu is not a number: the weights have diverged; lower lr, or clip gradients")
    return log_mu if sampling.top_p == 1 else truncated(log_mu, sampling.top_p)
