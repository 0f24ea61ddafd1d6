"""Is the ratio test the test of the natural gradient? For a saturated softmax, exactly; for a rank-d head,
measured.

The first-order change of forward KL along the natural gradient of a head of rank d, against the sign of the
ratio: V = 50, random Gaussian heads, tokens sampled from mu.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL
from divsim.tabular.geometry import NATURAL, natural_head
from divsim.tabular.policies import PAIR_FAMILIES, at_action, sample_from

from .direction_config import Config
from .parts import Part, Seeds
from .rows import Row, row
from .statistics import share

VOCAB = 50
RANKS = (49, 32, 16, 8, 4, 2)
TOKENS = 200
"""A seed; every row of a seed shares the head."""


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Agreements of one seed: at every rank, and for the saturated softmax."""
    pair = PAIR_FAMILIES[cell](rng, (TOKENS,), VOCAB)
    action = sample_from(rng, pair.log_mu)
    side = np.sign(at_action(pair.log_pi - pair.log_mu, action))
    spaces = [NATURAL, *(natural_head(rng.standard_normal((VOCAB, rank))) for rank in RANKS)]
    agrees = [np.sum(np.sign(space.rate(FORWARD_KL, pair, action)) == side) for space in spaces]
    return {"agrees": np.array(agrees, dtype=np.int64)}


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """Share of tokens on which the natural gradient and the ratio agree, by rank."""
    total = np.full(len(seeds["agrees"]), TOKENS)
    return [
        row(share(agrees, total), int(total.sum()), table="natural_gradient", world=cell, rank=rank,
            quantity="agrees_with_ratio")
        for rank, agrees in zip(("saturated", *map(str, RANKS)), seeds["agrees"].T, strict=True)
    ]  # fmt: skip


RANK = Part("rank", lambda config: tuple(PAIR_FAMILIES), lambda config: config.seeds, compute, rows)
