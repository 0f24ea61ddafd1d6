"""Seeded random pairs of a behaviour policy mu and a training policy pi, as log-probabilities.

Five families, from almost uniform to as peaked as a language model's next-token distribution, for any
vocabulary size. Every draw takes a `numpy.random.Generator`, is float64, normalised, and has no zero
probability. What is left out: where a real pair comes from (staleness, low precision, another engine).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import log_softmax

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class PolicyPair:
    """A batch of pairs of policies over one vocabulary.

    Attributes:
      log_mu: (..., V) behaviour log-probabilities, nats, normalised.
      log_pi: (..., V) training log-probabilities, nats, normalised.

    >>> pair = PAIR_FAMILIES["language"](np.random.default_rng(0), (4,), 1000)
    >>> pair.log_mu.shape, pair.vocab
    ((4, 1000), 1000)
    """

    log_mu: Floats
    log_pi: Floats

    @property
    def vocab(self) -> int:
        """V, the number of tokens."""
        return int(self.log_mu.shape[-1])


PairFamily = Callable[[np.random.Generator, Shape, int], PolicyPair]
"""(rng, leading shape, V) -> a `PolicyPair` of that leading shape."""


def dirichlet(rng: np.random.Generator, shape: Shape, vocab: int, concentration: float) -> Floats:
    """Log-probabilities of symmetric Dirichlet draws, drawn in logs so that no probability underflows.

    A Gamma(c) variable is a Gamma(c + 1) variable times U^(1/c); adding the logs keeps the small ones.

    Args:
      rng: the only source of randomness.
      shape: leading shape of the batch.
      vocab: V >= 1.
      concentration: c > 0; small is peaked, 1 uniform on the simplex, large flat.

    Returns:
      (*shape, V) log-probabilities, nats.

    Errors: ValueError if the concentration is not positive.
    Source: derived here; the density of a product of a Gamma(c + 1) variable and U^(1/c).

    >>> log_p = dirichlet(np.random.default_rng(0), (), 3, concentration=1.0)
    >>> round(float(np.exp(log_p).sum()), 12)
    1.0
    """
    if not concentration > 0:
        raise ValueError(f"concentration must be > 0, got {concentration}")
    log_gamma = np.log(rng.standard_gamma(concentration + 1, (*shape, vocab)))
    log_uniform = -rng.standard_exponential((*shape, vocab))
    return _normalised(log_gamma + log_uniform / concentration)


def zipf(rng: np.random.Generator, shape: Shape, vocab: int, exponents: tuple[float, float]) -> Floats:
    """Log-probabilities that fall as a power of the rank, the ranks in random order.

    Args:
      rng: the only source of randomness.
      shape: leading shape of the batch.
      vocab: V >= 1.
      exponents: the lowest and the highest exponent; each row draws its own, uniformly between them.

    Returns:
      (*shape, V) log-probabilities, nats.

    Source: derived here; the shape of next-token distributions.

    >>> log_p = zipf(np.random.default_rng(0), (), 4, exponents=(1.0, 1.0))
    >>> sorted(np.exp(log_p).round(2).tolist())  # 1, 1/2, 1/3, 1/4 over their sum
    [0.12, 0.16, 0.24, 0.48]
    """
    exponent = rng.uniform(*exponents, size=(*shape, 1))
    by_rank = np.broadcast_to(np.log1p(np.arange(vocab)), (*shape, vocab))
    return _normalised(-exponent * rng.permuted(by_rank, axis=-1))


def perturbed(rng: np.random.Generator, log_p: Floats, noise: float) -> Floats:
    """The same policies with independent Gaussian noise on every logit.

    Args:
      rng: the only source of randomness.
      log_p: (..., V) log-probabilities, nats.
      noise: standard deviation of the noise, nats.

    Returns:
      (..., V) log-probabilities, nats.

    Source: derived here; a model of numerical mismatch.

    >>> log_p = np.log(np.array([0.5, 0.5]))
    >>> bool(np.all(perturbed(np.random.default_rng(0), log_p, noise=0.0) == log_p))
    True
    """
    return _normalised(log_p + noise * rng.standard_normal(log_p.shape))


def sample_action(rng: np.random.Generator, log_p: Floats) -> Ints:
    """One token from each row, by the Gumbel-max trick.

    Args:
      rng: the only source of randomness.
      log_p: (..., V) log-probabilities, nats; -inf is never drawn.

    Returns:
      (...) int, the sampled tokens.

    Source: derived here; the largest of `log p + Gumbel` noise is token i with probability p_i.

    >>> int(sample_action(np.random.default_rng(0), np.log(np.array([1e-300, 1.0]))))
    1
    """
    return np.asarray(np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=-1), dtype=np.int64)


def sample_from(rng: np.random.Generator, log_p: Floats) -> Ints:
    """One token from each row, by inverting the cumulative sum: one uniform number a row.

    Args:
      rng: the only source of randomness.
      log_p: (..., V) log-probabilities, nats; -inf is never drawn.

    Returns:
      (...) int, the sampled tokens.

    Source: inverse transform sampling.

    >>> int(sample_from(np.random.default_rng(0), np.log(np.array([1e-300, 1.0]))))
    1
    """
    return invert(np.cumsum(np.exp(log_p), axis=-1), rng.random(log_p.shape[:-1]))


def invert(cumulative: Floats, level: Floats) -> Ints:
    """Where each row's cumulative weights pass a level.

    Args:
      cumulative: (..., V) running sums of weights >= 0, of any total.
      level: (...) in [0, 1), a share of the total.

    Returns:
      (...) int, the first entry whose running sum is above the level.

    Source: inverse transform sampling.

    >>> invert(np.array([[0.25, 1.0], [0.0, 2.0]]), np.array([0.25, 0.0])).tolist()
    [1, 1]
    """
    # Scaled by the last sum, so that rounding of the total draws no token beyond the last possible one.
    reached = cumulative <= level[..., None] * cumulative[..., -1:]
    return np.asarray(np.sum(reached, axis=-1), dtype=np.int64)


def at_action(values: Floats, action: Ints) -> Floats:
    """The entry of each row that belongs to its token: (..., V) and (...) int -> (...).

    >>> at_action(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0])).tolist()
    [2.0, 3.0]
    """
    return np.asarray(np.take_along_axis(values, np.asarray(action)[..., None], axis=-1)[..., 0])


def every_token(pair: PolicyPair) -> tuple[PolicyPair, Ints]:
    """The pair with each of its tokens sampled in turn, to enumerate expectations exactly.

    Args:
      pair: mu and pi, (n, V).

    Returns:
      The pair as (n, V, V), whose row k is the pair itself, and the tokens (n, V), whose entry k is k.

    >>> pair, action = every_token(PolicyPair(np.log(np.full((1, 2), 0.5)), np.log(np.full((1, 2), 0.5))))
    >>> pair.log_mu.shape, action.tolist()
    ((1, 2, 2), [[0, 1]])
    """
    n, vocab = pair.log_mu.shape
    shape = (n, vocab, vocab)
    repeated = PolicyPair(
        np.broadcast_to(pair.log_mu[:, None], shape), np.broadcast_to(pair.log_pi[:, None], shape)
    )
    return repeated, np.broadcast_to(np.arange(vocab), (n, vocab))


def _normalised(logits: Floats) -> Floats:
    log_p: Floats = log_softmax(logits)
    return log_p


def _independent(concentration: float) -> PairFamily:
    def draw(rng: np.random.Generator, shape: Shape, vocab: int) -> PolicyPair:
        log_mu = dirichlet(rng, shape, vocab, concentration)
        return PolicyPair(log_mu, dirichlet(rng, shape, vocab, concentration))

    return draw


def _mismatched(exponents: tuple[float, float], noise: float) -> PairFamily:
    def draw(rng: np.random.Generator, shape: Shape, vocab: int) -> PolicyPair:
        shared = zipf(rng, shape, vocab, exponents)
        return PolicyPair(perturbed(rng, shared, noise), perturbed(rng, shared, noise))

    return draw


PAIR_FAMILIES: dict[str, PairFamily] = {
    "peaked": _independent(0.3),  # two unrelated policies, each on a few tokens
    "uniform": _independent(1.0),  # two unrelated points of the simplex
    "flat": _mismatched((0.0, 0.0), noise=0.2),  # every token about 1 / V
    "zipf": _mismatched((1.0, 1.0), noise=0.4),  # a heavy tail
    "language": _mismatched((1.5, 5.0), noise=0.4),  # most positions almost decided, a few open
}
"""The families of pairs, by name; all take (rng, leading shape, V)."""


@dataclass(frozen=True)
class Batch:
    """Random pairs of one family and one vocabulary size, with a token sampled from each mu.

    Attributes:
      family: a key of `PAIR_FAMILIES`.
      pair: mu and pi, (n, V).
      action: (n,) int, sampled from mu.
    """

    family: str
    pair: PolicyPair
    action: Ints


def draw_batches(rng: np.random.Generator, counts: Mapping[int, int]) -> list[Batch]:
    """One batch of every family for every vocabulary size.

    Args:
      rng: the only source of randomness.
      counts: V -> n, the number of pairs of that size in each family.

    Returns:
      `len(PAIR_FAMILIES) * len(counts)` batches.

    Source: derived here.

    >>> batches = draw_batches(np.random.default_rng(0), {2: 10, 100: 3})
    >>> len(batches), batches[1].pair.log_mu.shape, batches[1].action.shape
    (10, (3, 100), (3,))
    """
    batches = []
    for family, draw in PAIR_FAMILIES.items():
        for vocab, n in counts.items():
            pair = draw(rng, (n,), vocab)
            batches.append(Batch(family, pair, sample_action(rng, pair.log_mu)))
    return batches
