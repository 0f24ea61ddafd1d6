r"""What is seen of real tokens, and what a step on one of them does to forward KL.

A token is stored as its likeliest tokens under mu and sums over the tail, so what a step does is known
exactly where it moves one logit, and within a bracket where it moves them all. Left out: tokens with every
logit, which are ordinary policy pairs (`real_tokens.whole_policies`).
"""

import math

import numpy as np

from divsim.formulas import View, curvature, difference, finite_change, log_mass, policy_gradient_direction
from divsim.formulas.support import Record, union_support

from .policies import Floats
from .real_tokens import RealTokens

FLOAT32_SLACK = 4 * 2.0**-24
"""By how much float32 storage can move an end of c_k's interval: each stored x is off by |x| 2^-24 at most.
That is 2 units of 2^-24 for an end of the stored interval (|c_k| < 2), 1 for `pi_sq`, and p |log p| < 0.37
for each p that is computed from its log: twice for the sum of squares. The free bracket needs less."""

STORED_INTERVAL = 20
"""The K whose tight interval of c_k is stored."""


def tail_sums(tokens: RealTokens, k: int) -> tuple[Floats, Floats, Floats]:
    """Sums of mu, of pi and of pi^2 outside the k likeliest tokens of mu and the sampled one, (N,) each.

    The stored tail and the columns beyond k; never 1 minus the rest.
    """
    is_hidden = tokens.top_ids[:, k:] != tokens.action[:, None]
    mu = np.where(is_hidden, np.exp(tokens.top_log_mu[:, k:]), 0.0)
    pi = np.where(is_hidden, np.exp(tokens.top_log_pi[:, k:]), 0.0)
    return (
        tokens.mu_tail + np.sum(mu, axis=-1),
        tokens.pi_tail + np.sum(pi, axis=-1),
        tokens.pi_sq_tail + np.sum(pi * pi, axis=-1),
    )


def view(tokens: RealTokens, k: int, *, log_mu_error: float = 0.0, use_interval: bool = True) -> View:
    """The top-k view of every token, as an engine would return it and a trainer complete it.

    At k = 20 the overlap bracket is the tight one, from the stored interval; at any other k it is the free
    one, [0, `free_overlap`], because the tight one needs all of pi.

    Args:
      tokens: N tokens.
      k: 1 <= k <= `tokens.columns`.
      log_mu_error: stated error of every recorded log mu, nats, >= 0; the tail mass of mu is then as
        uncertain as the retained mass, which an engine's record leaves it to be computed from.
      use_interval: False takes the free bracket at k = 20 too.

    Returns: a `View` with leading shape (N,) and k + 1 cells.
    Errors: ValueError if k or the error is out of range.

    >>> from divsim.formulas import change
    >>> from divsim.tabular.real_tokens import load
    >>> tokens = load()["fp8_base"]
    >>> bool(np.median(np.abs(change(view(tokens, 20), tail="uniform") - tokens.c)) < 1e-3)
    True
    """
    if not 1 <= k <= tokens.columns:
        raise ValueError(f"k must be from 1 to the {tokens.columns} stored columns, got {k}; choose fewer")
    if not (math.isfinite(log_mu_error) and log_mu_error >= 0):
        raise ValueError(f"log_mu_error must be finite and >= 0 (nats), got {log_mu_error}")
    record = Record(tokens.action, tokens.log_mu_k, tokens.top_ids[:, :k], tokens.top_log_mu[:, :k])
    _, in_support, log_mu, cell_k = union_support(record, replace_last=False)
    log_pi = np.column_stack([tokens.top_log_pi[:, :k], tokens.log_pi_k])
    log_pi = np.where(in_support, log_pi, -np.inf)
    tails = mu_tail, pi_tail, pi_sq_tail = tail_sums(tokens, k)
    cap = tokens.top_log_mu[:, k - 1]
    low, high = np.zeros_like(mu_tail), free_overlap(*tails, np.exp(cap))
    if use_interval and k == STORED_INTERVAL:
        low, tight_high = _stored_overlap(tokens, np.sum(np.exp(log_mu + log_pi), axis=-1))
        high = np.minimum(high, tight_high)
    low, high = _widened(low, high, mu_tail, np.sqrt(pi_sq_tail), log_mu_error)
    return View(
        log_mu, log_pi, in_support, cell_k, log_mass(mu_tail), log_mass(pi_tail),
        tail_size=tokens.vocab - k - (tokens.rank_k >= k), log_mu_cap=cap, pi_tail_sq=pi_sq_tail,
        overlap_low=low - FLOAT32_SLACK, overlap_high=high + FLOAT32_SLACK, log_mu_error=log_mu_error,
    )  # fmt: skip


def free_overlap(mu_tail: Floats, pi_tail: Floats, pi_sq_tail: Floats, cap: Floats) -> Floats:
    r"""An upper end of sum_tail pi mu from sums alone: (N,) each.

        sum pi mu <= min(b P, sqrt(Q2 M min(b, M)))

    The second is Cauchy-Schwarz with sum mu^2 <= M min(b, M); it is never above M sqrt(Q2).

    Args: mass M of mu, mass P and squares Q2 of pi in the tail, and the cap b of every mu_i there.
    Source: derived here; derivations, T7 (free version), and Cauchy-Schwarz.

    >>> float(free_overlap(*np.array([0.2, 0.1, 0.0004, 0.01])).round(6))
    0.000894
    """
    return np.minimum(cap * pi_tail, np.sqrt(pi_sq_tail * mu_tail * np.minimum(cap, mu_tail)))


def _stored_overlap(tokens: RealTokens, kept: Floats) -> tuple[Floats, Floats]:
    """The tight bracket of the overlap at K = 20: the stored interval of c_k less its known part."""
    known = np.exp(tokens.log_pi_k) - np.exp(tokens.log_mu_k) - tokens.pi_sq + kept
    return tokens.c_low_20 - known, tokens.c_high_20 - known


def _widened(
    low: Floats, high: Floats, mu_tail: Floats, largest: Floats, log_mu_error: float
) -> tuple[Floats, Floats]:
    """The bracket when the cap and the retained mass are known within a factor e^{+-error}.

    The ends are homogeneous in (M, b) and move by at most `largest`, a bound of the tail's pi, per unit of M:
    both are scaled with b, and what is left of the change of M is paid at that price.
    """
    grow = math.exp(log_mu_error)
    slack = (1 - mu_tail) * math.expm1(log_mu_error)
    lost = grow * mu_tail - np.maximum(mu_tail - slack, 0.0)
    gained = np.maximum(mu_tail + slack - grow * mu_tail, 0.0)
    return np.maximum(grow * low - largest * lost, 0.0), grow * high + largest * gained


def euclidean_change(tokens: RealTokens, step: Floats) -> tuple[Floats, Floats]:
    r"""A bracket of the realised change of forward KL when the logits of every token move by s (e_k - pi).

        D(pi_s) - D(pi) = s c_k + KL(pi || pi_s)

    The first term is exact, and mu is nowhere else. In the second each hidden token adds a convex function of
    its pi_i: it is least where the tail's pi is flat (Jensen), and at most what its chord from 0 to
    sqrt(Q2) >= max pi_i says. Both replace the tail by one or two cells that keep P and Q2.

    Args:
      tokens: N tokens.
      step: (N,) step sizes s = eta A r.

    Returns: (low, high), each (N,), nats; rigorous up to the float32 rounding of what is stored.
    Source: derived here; derivations, T3 (finite steps), and Jensen.

    >>> from divsim.tabular.real_tokens import load
    >>> low, high = euclidean_change(tokens := load()["fp8_base"], np.full(len(tokens.action), 0.1))
    >>> bool(np.all(low <= high)), bool(np.median(high - low) < 1e-5)
    (True, True)
    """
    low, high = (
        step * tokens.c + finite_change(log_pi, log_pi, step[:, None] * direction)
        for log_pi, direction in _tail_extremes(tokens)
    )
    return low, high


def euclidean_flip_step(tokens: RealTokens) -> Floats:
    """To leading order, the step |s| at which a predicted decrease becomes an increase: 2 |c| / Var_pi, (N,).

    The variance is of e_k - pi with a flat tail, which is its lower end. Source: derivations, T3 (flip step).
    """
    (log_pi, direction), _ = _tail_extremes(tokens)
    return 2 * np.abs(tokens.c) / np.asarray(curvature(log_pi, direction), dtype=np.float64)


def one_logit_change(tokens: RealTokens, step: Floats) -> Floats:
    """The exact change of forward KL when logit k alone moves by t: what a sign or a natural step does.

    Such a step leaves the other tokens' shares of their mass as they are, so the binary view knows all of it.
    The natural gradient moves logit k by s / pi_k, the sign step by 2 s, each up to a shift of all logits.

    Args: tokens: N tokens. step: (N,) displacement t of logit k.
    Returns: (N,), nats.
    Source: derived here; derivations, T5 (natural gradient) and T7 (the tail is one cell).

    >>> from divsim.tabular.real_tokens import load
    >>> tokens = load()["fp8_base"]
    >>> bool(np.all(one_logit_change(tokens, np.zeros(len(tokens.action))) == 0))
    True
    """
    log_mu, log_pi = view(tokens, tokens.columns).binary().cells
    return np.asarray(finite_change(log_mu, log_pi, np.column_stack([step, np.zeros_like(step)])))


def one_logit_flip_step(tokens: RealTokens) -> Floats:
    """The same for the displacement |t| of logit k alone, (N,)."""
    _, log_pi = view(tokens, tokens.columns).binary().cells
    only_k = np.broadcast_to([1.0, 0.0], log_pi.shape)
    slope: Floats = difference(tokens.log_mu_k, tokens.log_pi_k)
    return 2 * np.abs(slope) / np.asarray(curvature(log_pi, only_k), dtype=np.float64)


def _tail_extremes(tokens: RealTokens) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """(log_pi, e_k - pi) on the retained cells and two for the tail: for a flat tail, then for the chord.

    Both keep the tail's P and Q2. Flat: one cell whose members all have pi_i = Q2 / P. Chord: mass Q2 / a
    with pi_i = a = sqrt(Q2), all other mass with pi_i = 0.
    """
    seen = view(tokens, tokens.columns)
    _, mass, squares = tail_sums(tokens, tokens.columns)
    largest = np.sqrt(squares)
    none = np.zeros_like(mass)
    flat = np.divide(squares, mass, out=np.zeros_like(mass), where=mass > 0)
    # sqrt(Q2) <= P, up to the rounding of a tail that is a single token.
    chord = (np.minimum(largest, mass), np.maximum(mass - largest, 0.0))
    return _extended(seen, (mass, none), (flat, none)), _extended(seen, chord, (largest, none))


def _extended(
    seen: View, masses: tuple[Floats, Floats], members: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """A view's cells of pi and two tail cells of given masses; e_k - pi there, given their members' pi."""
    log_pi = np.column_stack([seen.log_pi, *map(log_mass, masses)])
    direction = policy_gradient_direction(log_pi, seen.cell_k)
    return log_pi, np.column_stack([direction[:, :-2], *(-pi for pi in members)])
