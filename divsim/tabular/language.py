"""Behaviour logits as a language model has them: a power of the rank, from almost decided to open.

A world is a distribution over rows of logits, for a vocabulary of any size. Its likeliest token has the logit
`TOP`, the size at which the rounding of a low-precision engine acts. What is left out: where tokens come from
(positions are independent), and how a training policy comes apart from these rows (`mismatch.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .policies import Floats, dirichlet

TOP = 22.0
"""The largest logit of every row. Policies do not depend on it; the spacing of floating-point numbers does.
"""

ROUGHNESS = 0.7
"""Standard deviation of a logit around the power of its rank, nats."""


@dataclass(frozen=True)
class World:
    """A distribution over rows of behaviour logits.

    Attributes:
      name: its name in tables and flags.
      meaning: what it stands for, in one line.
      draw: (rng, n, V) -> (n, V) logits up to a shift, nats.

    >>> WORLDS["language"].logits(np.random.default_rng(0), 3, vocab=100).max(axis=-1).tolist()
    [22.0, 22.0, 22.0]
    """

    name: str
    meaning: str
    draw: Callable[[np.random.Generator, int, int], Floats]

    def logits(self, rng: np.random.Generator, n: int, vocab: int) -> Floats:
        """Rows of logits, (n, V) nats, shifted so that the largest of each row is `TOP`."""
        rows = self.draw(rng, n, vocab)
        return np.asarray(rows - np.max(rows, axis=-1, keepdims=True) + TOP)


def by_rank(rng: np.random.Generator, exponents: Floats, vocab: int) -> Floats:
    """Logits `-a log j + .7 N(0, 1)` at rank j: exponents a (n, 1) -> (n, V), nats.

    >>> by_rank(np.random.default_rng(0), np.ones((2, 1)), 5).shape
    (2, 5)
    """
    rough = ROUGHNESS * rng.standard_normal((len(exponents), vocab))
    return np.asarray(rough - exponents * np.log1p(np.arange(vocab)))


WORLDS: dict[str, World] = {
    world.name: world
    for world in (
        World(
            "language",
            "peaked, as a trained model: at V = 2000 entropy .54 nats and top-20 mass .9955 on average",
            lambda rng, n, vocab: by_rank(rng, 1.5 + rng.gamma(2.0, 1.5, (n, 1)), vocab),
        ),
        World(
            "flat",
            "open everywhere: probability falls as 1 / rank",
            lambda rng, n, vocab: by_rank(rng, np.ones((n, 1)), vocab),
        ),
        World(
            "dirichlet_1",
            "uniform on the simplex",
            lambda rng, n, vocab: dirichlet(rng, (n,), vocab, concentration=1.0),
        ),
        World(
            "dirichlet_0.3",
            "a Dirichlet distribution of concentration .3: some tokens likely, many very unlikely",
            lambda rng, n, vocab: dirichlet(rng, (n,), vocab, concentration=0.3),
        ),
    )
}
"""The worlds by name."""
