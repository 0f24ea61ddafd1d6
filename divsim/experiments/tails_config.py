"""What `exact tails` is asked: pairs of policies, vocabularies, sizes of the top-K, and the two presets."""

from dataclasses import dataclass

from divsim.tabular.language import WORLDS
from divsim.tabular.mismatch import MISMATCHES, mismatched
from divsim.tabular.policies import PAIR_FAMILIES, PairFamily

from .rows import Key


@dataclass(frozen=True)
class Pairs:
    """A source of pairs: a world under a mismatch, or a family of `PAIR_FAMILIES` under none.

    Attributes:
      world: a key of `WORLDS` or of `PAIR_FAMILIES`.
      mismatch: a key of `MISMATCHES`; "independent" for the families of unrelated policies.
      vocab: V.
    """

    world: str
    mismatch: str
    vocab: int

    @property
    def name(self) -> str:
        """Of the cell, such as "language-noise_0.5-2000"."""
        return f"{self.world}-{self.mismatch}-{self.vocab}"

    @property
    def family(self) -> PairFamily:
        """What draws the pairs."""
        if self.mismatch == INDEPENDENT:
            return PAIR_FAMILIES[self.world]
        return mismatched(WORLDS[self.world], MISMATCHES[self.mismatch])

    @property
    def key(self) -> Key:
        """The key fields of a row."""
        return {"world": self.world, "mismatch": self.mismatch, "vocab": self.vocab}


INDEPENDENT = "independent"
VOCABS = (100, 1000, 10_000, 50_000, 151_936)
PAIRS = (
    Pairs("dirichlet_1", "noise_0.7", 3),
    Pairs("dirichlet_0.3", "noise_0.7", 100),
    Pairs("peaked", INDEPENDENT, 100),
    *(
        Pairs("language", name, 2000)
        for name in ("noise_0.5", "stale_16", "fp8_head", "sharpen_1.5", "engine")
    ),
    *(Pairs(world, "noise_0.5", vocab) for world in ("language", "flat") for vocab in VOCABS),
)


@dataclass(frozen=True)
class Config:
    """Settings of `exact tails`; every number of a result follows from them.

    Attributes:
      pairs: cells.
      sizes: K of the top-K views; a cell uses those below its V.
      certificate_size: K of the certificates under an error of the record.
      errors: largest errors of a recorded log mu, nats.
      deltas: trust-region radii of the regions, nats of forward KL.
      entries: of a seed's policies, tokens times V, at most.
      most_tokens: a seed, however small V is.
      seeds: independent repetitions.
      seed: of all random streams.
    """

    pairs: tuple[Pairs, ...] = PAIRS
    sizes: tuple[int, ...] = (1, 5, 8, 20, 50, 64, 100)
    certificate_size: int = 20
    errors: tuple[float, ...] = (0.001, 0.01, 0.05)
    deltas: tuple[float, ...] = (0.05, 0.15)
    entries: int = 2**20
    most_tokens: int = 256
    seeds: int = 61
    seed: int = 0

    def tokens(self, pairs: Pairs) -> int:
        """Tokens of one seed of a cell."""
        return max(1, min(self.most_tokens, self.entries // pairs.vocab))

    def pairs_named(self, name: str) -> Pairs:
        """The cell of that name."""
        return next(pairs for pairs in self.pairs if pairs.name == name)
