"""Refusals that experiments share: a setting that cannot work is named, with its value and a remedy."""

from collections.abc import Collection

LARGEST_VOCAB = 2**24
"""A hundred times that of today's language models; one row of float64 is 128 MiB."""


def require_known(setting: str, value: str, known: Collection[str]) -> None:
    """A name out of a table.

    >>> require_known("world", "flt", ["language", "flat"])
    Traceback (most recent call last):
    ValueError: world 'flt' is unknown; it must be one of language, flat
    """
    if value not in known:
        raise ValueError(f"{setting} {value!r} is unknown; it must be one of {', '.join(known)}")


def require_positive(setting: str, value: float, remedy: str) -> None:
    """A finite number above 0; NaN is none.

    >>> require_positive("delta", -0.1, "it is a radius in nats")
    Traceback (most recent call last):
    ValueError: delta must be a finite number > 0, got -0.1; it is a radius in nats
    """
    if not 0 < value < float("inf"):
        raise ValueError(f"{setting} must be a finite number > 0, got {value}; {remedy}")


def require_distinct(setting: str, values: Collection[object], what: str) -> None:
    """One or more, none twice.

    >>> require_distinct("rules", ("spo", "spo"), "names")
    Traceback (most recent call last):
    ValueError: rules must be one or more distinct names, got ('spo', 'spo'); name each once
    """
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{setting} must be one or more distinct {what}, got {values}; name each once")


SMALLEST_DELTA, LARGEST_DELTA = 1e-12, 1e4
"""Nats. Below, a divergence of float64 probabilities is rounding; beyond, no token of them is far."""


def require_deltas(deltas: tuple[float, ...]) -> None:
    """Distinct radii of the regions."""
    for delta in deltas:
        if not SMALLEST_DELTA <= delta <= LARGEST_DELTA:
            raise ValueError(
                f"delta must be from {SMALLEST_DELTA:g} to {LARGEST_DELTA:g}, got {delta}; it is the radius "
                "of a trust region, in nats"
            )
    if not deltas or len({f"{delta:g}" for delta in deltas}) < len(deltas):
        raise ValueError(f"delta must be one or more distinct radii, got {deltas}; such as --delta 0.05 0.15")


MOST_SEEDS = 10_000
"""All of a condition are in memory at once."""


def require_seeds(seeds: int, fewest: int = 2, why: str = "an interval needs two") -> None:
    """Enough independent repetitions for an interval, and no more than a machine holds.

    >>> require_seeds(1)
    Traceback (most recent call last):
    ValueError: seeds must be from 2 to 10,000, got 1; an interval needs two
    """
    if not fewest <= seeds <= MOST_SEEDS:
        raise ValueError(f"seeds must be from {fewest} to {MOST_SEEDS:,}, got {seeds}; {why}")


MOST_TOKENS = 1_000_000
"""Of one seed; what every rule makes of them is in memory at once."""


def require_tokens(tokens: int) -> None:
    """A count of tokens that a machine holds.

    >>> require_tokens(0)
    Traceback (most recent call last):
    ValueError: tokens must be from 1 to 1,000,000, got 0; they are those of one seed
    """
    if not 1 <= tokens <= MOST_TOKENS:
        raise ValueError(
            f"tokens must be from 1 to {MOST_TOKENS:,}, got {tokens}; they are those of one seed"
        )


def require_vocab(vocab: int) -> None:
    """A vocabulary that a policy can change over, and that a machine can hold a row of."""
    if not 2 <= vocab <= LARGEST_VOCAB:
        raise ValueError(
            f"vocab must be from 2 to {LARGEST_VOCAB:,} tokens, got {vocab}; such as --vocab 2000"
        )


def require_top_k(k: int, vocab: int) -> None:
    """A top-K view of a vocabulary."""
    require_positive("k", k, "it counts tokens")
    if k > vocab:
        raise ValueError(
            f"k must be at most the vocabulary, got k = {k} and vocab = {vocab}; choose a smaller k"
        )


def require_seed(seed: int) -> None:
    """A seed that NumPy takes."""
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
