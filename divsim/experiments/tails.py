"""What does a top-K view forget? Bias, error and sign flips of the tail estimators, and what can be
certified.

Two parts. `estimators`: every estimator at every K against the full vocabulary. `certificate`: the proven
interval when the engine's record is off.
"""

from dataclasses import replace

from divsim.tabular.language import WORLDS
from divsim.tabular.mismatch import MISMATCHES
from divsim.tabular.policies import PAIR_FAMILIES

from .checks import (
    require_deltas,
    require_known,
    require_seed,
    require_seeds,
    require_top_k,
    require_vocab,
)
from .parts import assemble
from .tails_certificate import CERTIFICATE
from .tails_config import INDEPENDENT, VOCABS, Config, Pairs
from .tails_estimators import ESTIMATOR, sizes
from .tails_figures import figures

PARTS = (ESTIMATOR, CERTIFICATE)
EXPERIMENT = assemble("tails", __name__, PARTS, figures)
FULL = Config()
QUICK = replace(FULL, seeds=4, entries=2**16)
PRESETS = {"quick": QUICK, "full": FULL}


def chosen(world: str, mismatch: str, vocabs: tuple[int, ...]) -> tuple[Pairs, ...]:
    """The cells of one world and mismatch, at the preset's vocabularies if none are named.

    >>> [pairs.name for pairs in chosen("flat", "noise_0.5", (1000,))]
    ['flat-noise_0.5-1000']
    """
    return tuple(Pairs(world, mismatch, vocab) for vocab in (vocabs or VOCABS))


def check(config: Config) -> None:
    """Refuse settings that cannot work, before any work.

    Errors: ValueError that names the setting, its value and the remedy.
    """
    for pairs in config.pairs:
        require_known("mismatch", pairs.mismatch, (*MISMATCHES, INDEPENDENT))
        require_known("world", pairs.world, PAIR_FAMILIES if pairs.mismatch == INDEPENDENT else WORLDS)
        require_vocab(pairs.vocab)
    if len({pairs.name for pairs in config.pairs}) < len(config.pairs):
        raise ValueError("vocab must not repeat; name each size once")
    if len(set(config.sizes)) < len(config.sizes):
        raise ValueError(f"k must not repeat, got {config.sizes}; name each size once")
    if config.sizes != FULL.sizes:
        # Somebody named them; of the preset's, a cell leaves out those that it is too small for.
        for k in config.sizes:
            require_top_k(k, max(pairs.vocab for pairs in config.pairs))
    if not any(sizes(config, pairs) for pairs in config.pairs):
        raise ValueError(f"k must be below a vocabulary, got {config.sizes}; such as --k 20")
    require_deltas(config.deltas)
    require_seeds(config.seeds)
    require_seed(config.seed)
