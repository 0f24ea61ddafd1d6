r"""The view: what an engine lets a trainer see of the pair (mu, pi) at each sampled token.

Retained tokens are cells of their own, all hidden tokens share one tail cell. Every estimator and every rule
reads a `View` and nothing else, so whatever works here works for a full vocabulary, a top-K record and a
single log-probability alike. Constructors lift to float32 or better, detach from autograd, replace padding by
neutral values and validate. Left out by design: the exact finite change and kernel-aware directions (they
need whole policies), and sequence statistics.
"""

import math
from dataclasses import dataclass, replace

from . import _checks as checks
from ._array import Array, append, fill_at, largest, namespace, take, take_cells
from ._door import admit_policies, admit_record, admit_sampled
from .overlap import overlap_bracket
from .softmax import exp_or_inf, logsumexp
from .support import Record, hidden_mass, log_complement, union_support


@dataclass(frozen=True)
class View:
    """What is seen of (mu, pi) at each token; leading shape (...) is free, L retained cells.

    Attributes:
      log_mu: (..., L) behaviour log-probabilities of retained cells, nats; -inf outside the support.
      log_pi: (..., L) training log-probabilities of retained cells, nats; -inf outside the support.
      in_support: (..., L) bool, False at the padding of ragged supports.
      cell_k: (...) int, the sampled token's cell.
      log_mu_tail: (...) log of mu's tail mass, -inf when empty.
      log_pi_tail: (...) log of pi's tail mass, -inf when empty.
      tail_size: (...) int, the number of hidden tokens.
      is_full: True if every token is a cell of its own, whatever the values; also for a top-K with K >= V.
      log_mu_cap: (...) or None, log of the K-th largest mu: it bounds every hidden mu_i.
      pi_tail_sq: (...) or None, sum of pi_i^2 over the tail.
      overlap_low: (...) or None, lower end of sum_tail pi_i mu_i (derivations, T7).
      overlap_high: (...) or None, upper end of the same.
      log_mu_error: stated error of every recorded log mu, nats; the bracket above already allows for it.
      is_response: (...) bool or None for all; False marks padding, whose cells hold neutral values.
    """

    log_mu: Array
    log_pi: Array
    in_support: Array
    cell_k: Array
    log_mu_tail: Array
    log_pi_tail: Array
    tail_size: Array
    is_full: bool = False
    log_mu_cap: Array | None = None
    pi_tail_sq: Array | None = None
    overlap_low: Array | None = None
    overlap_high: Array | None = None
    log_mu_error: float = 0.0
    is_response: Array | None = None

    @property
    def log_mu_k(self) -> Array:
        """(...) behaviour log-probability of the sampled token, nats."""
        return take(self.log_mu, self.cell_k)

    @property
    def log_pi_k(self) -> Array:
        """(...) training log-probability of the sampled token, nats."""
        return take(self.log_pi, self.cell_k)

    @property
    def ratio(self) -> Array:
        """(...) importance ratio r = pi_k / mu_k; +inf on overflow."""
        return exp_or_inf(self.log_pi_k - self.log_mu_k)

    @property
    def cells(self) -> tuple[Array, Array]:
        """(log_mu, log_pi), each (..., L + 1): the retained cells, then the tail cell."""
        return append(self.log_mu, self.log_mu_tail), append(self.log_pi, self.log_pi_tail)

    def field(self, name: str) -> Array:
        """A field that may be absent, or an error that says which constructor supplies it."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"this view has no {name}; {_SUPPLIER[name]} supplies it")
        return value

    def binary(self) -> "View":
        """The same pair at the coarsest resolution: the sampled token, and everything else.

        >>> import numpy as np
        >>> log_mu, log_pi = np.log([[0.4, 0.3, 0.3]]), np.log([[0.45, 0.5, 0.05]])
        >>> np.exp(View.full(log_mu, log_pi, np.array([0])).binary().log_pi_tail).round(2).tolist()
        [0.55]
        """
        xp = namespace(self.log_pi)
        seen = xp.astype(self.in_support, self.tail_size.dtype)
        others_sq = None
        if self.pi_tail_sq is not None:
            others = fill_at(self.log_pi, self.cell_k[..., None], -xp.inf)
            others_sq = xp.sum(xp.exp(2 * others), axis=-1) + self.pi_tail_sq
        return View(
            log_mu=self.log_mu_k[..., None],
            log_pi=self.log_pi_k[..., None],
            in_support=xp.ones_like(self.in_support[..., :1]),
            cell_k=xp.zeros_like(self.cell_k),
            log_mu_tail=_others(self.log_mu, self.cell_k, self.log_mu_tail),
            log_pi_tail=_others(self.log_pi, self.cell_k, self.log_pi_tail),
            tail_size=self.tail_size + xp.sum(seen, axis=-1) - 1,
            pi_tail_sq=others_sq,
            log_mu_error=self.log_mu_error,
            is_response=self.is_response,
        )

    @staticmethod
    def full(
        log_mu: Array, log_pi: Array, action: Array, *, is_response: Array | None = None, check: bool = True
    ) -> "View":
        """Nothing is hidden: every token is a cell of its own.

        Args:
          log_mu, log_pi: (..., V) normalised log-probabilities, nats, one dtype; halves are lifted.
          action: (...) int, the sampled tokens.
          is_response: (...) bool or None; False marks padding, whose values are ignored.
          check: validate at response positions.

        Errors: TypeError or ValueError that names the argument, the value and the remedy.

        >>> import numpy as np
        >>> view = View.full(np.log([[0.4, 0.3, 0.3]]), np.log([[0.45, 0.5, 0.05]]), np.array([0]))
        >>> view.ratio.round(3).tolist()
        [1.125]
        """
        log_mu, log_pi, action = admit_policies(log_mu, log_pi, action, is_response, check)
        xp = namespace(log_pi)
        zero = xp.zeros_like(log_pi[..., 0])
        empty = xp.full_like(zero, -xp.inf)
        return View(
            log_mu, log_pi, xp.ones_like(log_pi, dtype=xp.bool), action, empty, empty,
            tail_size=xp.zeros_like(action),
            is_full=True, pi_tail_sq=zero, overlap_low=zero, overlap_high=zero, is_response=is_response,
        )  # fmt: skip

    @staticmethod
    def top_k(
        log_mu: Array, log_pi: Array, action: Array, k: int, *, is_response: Array | None = None,
        bracket: bool = False, log_mu_error: float = 0.0, replace_last: bool = False, check: bool = True,
    ) -> "View":  # fmt: skip
        """The K likeliest tokens under mu and the sampled one are cells of their own; the rest is the tail.

        Args:
          log_mu, log_pi, action, is_response, check: as in `View.full`.
          k: K >= 1, at most V is used; at a tie any valid top-K.
          bracket: also bracket the hidden overlap sum_tail pi mu (one sort of the vocabulary).
          log_mu_error: stated error of every recorded log mu, nats, >= 0.
          replace_last: keep K cells: a sampled token outside the top-K takes the K-th place, as in some
            other software, instead of joining as cell K + 1.

        >>> import numpy as np
        >>> log_mu, log_pi = np.log([[0.9, 0.09, 0.01]]), np.log([[0.9, 0.01, 0.09]])
        >>> view = View.top_k(log_mu, log_pi, np.array([0]), k=1)
        >>> np.exp(view.log_mu_tail).round(3).tolist(), view.tail_size.tolist()
        ([0.1], [2])
        """
        checks.require_count("k", k, "tokens", "View.sampled is the view without a top-K")
        checks.require_error("log_mu_error", log_mu_error)
        log_mu, log_pi, action = admit_policies(log_mu, log_pi, action, is_response, check, log_mu_error)
        ids = largest(log_mu, min(int(k), log_mu.shape[-1]))
        top_log_mu = take_cells(log_mu, ids)
        record = Record(action, take(log_mu, action), ids, top_log_mu)
        view = _hide(log_pi, record, replace_last, bracket, log_mu_error, log_mu)
        return replace(view, is_response=is_response)

    @staticmethod
    def sampled(
        log_mu_k: Array,
        log_pi_k: Array,
        vocab_size: int,
        *,
        is_response: Array | None = None,
        check: bool = True,
    ) -> "View":
        """Only the sampled token is seen: the binary view of engines that return one log-probability.

        Args:
          log_mu_k, log_pi_k: (...) log-probabilities of the sampled token, nats.
          vocab_size: V >= 1.
          is_response, check: as in `View.full`.

        >>> import numpy as np
        >>> view = View.sampled(np.log([0.5]), np.log([0.75]), vocab_size=10)
        >>> np.exp(view.log_pi_tail).round(3).tolist()
        [0.25]
        """
        checks.require_count("vocab_size", vocab_size, "tokens", "pass the size of the vocabulary")
        log_mu_k, log_pi_k = admit_sampled(log_mu_k, log_pi_k, vocab_size, is_response, check)
        xp = namespace(log_pi_k)
        retained = log_pi_k[..., None]
        cell = xp.zeros_like(log_pi_k, dtype=xp.int64)
        hidden = cell + (vocab_size - 1)
        return View(
            log_mu_k[..., None], retained, xp.ones_like(retained, dtype=xp.bool), cell,
            log_complement(log_mu_k[..., None], hidden), log_complement(retained, hidden), tail_size=hidden,
            is_response=is_response,
        )  # fmt: skip

    @staticmethod
    def from_logits(
        pi_logits: Array, action: Array, log_mu_k: Array, top_ids: Array, top_log_mu: Array, *,
        is_response: Array | None = None, bracket: bool = False, log_mu_error: float = 0.0,
        replace_last: bool = False, check: bool = True,
    ) -> "View":  # fmt: skip
        """A trainer's view: it holds every logit of pi, and the engine's record of mu.

        Args:
          pi_logits: (..., V) logits of pi, any floating dtype; normalised here in float32 or better.
          action: (...) int, the sampled tokens.
          log_mu_k: (...) the engine's log-probability of the sampled token, nats.
          top_ids, top_log_mu: (..., K) the engine's K likeliest tokens, and their log-probabilities, nats.
          is_response, bracket, log_mu_error, replace_last, check: as in `View.top_k`.

        >>> import numpy as np
        >>> z = np.log([[0.45, 0.5, 0.05]])
        >>> view = View.from_logits(z, np.array([0]), np.log([0.4]), np.array([[0]]), np.log([[0.4]]))
        >>> np.exp(view.log_mu_tail).round(3).tolist()
        [0.6]
        """
        checks.require_error("log_mu_error", log_mu_error)
        record = Record(action, log_mu_k, top_ids, top_log_mu)
        pi_logits, record = admit_record(pi_logits, record, is_response, check, log_mu_error)
        view = _hide(pi_logits, record, replace_last, bracket, log_mu_error)
        return replace(view, is_response=is_response)


_SUPPLIER = {
    "log_mu_cap": "View.top_k or View.from_logits",
    "pi_tail_sq": "View.full, View.top_k or View.from_logits",
    "overlap_low": "View.full, or View.top_k or View.from_logits with bracket=True",
    "overlap_high": "View.full, or View.top_k or View.from_logits with bracket=True",
}


def _others(log_prob: Array, cell: Array, log_tail: Array) -> Array:
    """Log mass of every cell but one: (..., L) and the tail (...) -> (...)."""
    xp = namespace(log_prob)
    return logsumexp(append(fill_at(log_prob, cell[..., None], -xp.inf), log_tail))


def _hide(
    pi_logits: Array, record: Record, replace_last: bool, bracket: bool, log_mu_error: float,
    log_mu: Array | None = None,
) -> View:  # fmt: skip
    """The top-K view of a pi and an engine's record of mu; or, both normalised, of a whole mu."""
    xp = namespace(pi_logits)
    ids, in_support, log_mu_kept, cell_k = union_support(record, replace_last)
    kept = xp.where(in_support, take_cells(pi_logits, ids), -xp.inf)
    log_hidden, log_squares = hidden_mass(pi_logits, ids)
    tail_size = pi_logits.shape[-1] - xp.sum(xp.astype(in_support, xp.int64), axis=-1)
    # The tail mass is as uncertain as what it was computed from: the retained cells, or the tail itself.
    if log_mu is None:
        log_total = logsumexp(append(kept, log_hidden))
        log_mu_tail = log_complement(log_mu_kept, tail_size)
        source = xp.sum(xp.exp(log_mu_kept), axis=-1)
    else:
        log_total = xp.zeros_like(log_hidden)
        log_mu_tail, _ = hidden_mass(log_mu, ids)
        source = xp.exp(log_mu_tail)
    view = View(
        log_mu_kept, kept - log_total[..., None], in_support, cell_k, log_mu_tail, log_hidden - log_total,
        tail_size,
        log_mu_cap=xp.min(record.top_log_mu, axis=-1),
        pi_tail_sq=xp.exp(log_squares - 2 * log_total),
        log_mu_error=log_mu_error,
    )  # fmt: skip
    if record.top_ids.shape[-1] >= pi_logits.shape[-1]:
        nothing = xp.zeros_like(view.log_pi_tail)
        return replace(view, is_full=True, overlap_low=nothing, overlap_high=nothing)
    if not bracket:
        return view
    low, high = overlap_bracket(
        fill_at(xp.exp(pi_logits - log_total[..., None]), ids, -xp.inf),
        mass=xp.exp(log_mu_tail),
        cap=xp.exp(view.field("log_mu_cap") + log_mu_error),
        slack=source * math.expm1(log_mu_error),
    )
    return replace(view, overlap_low=low, overlap_high=high)
