"""Which direction is right? The ratio, the divergence, or always: against what a step really does.

Five parts. `own`: a token's own step in four geometries. `divergence`: the same for every divergence.
`certain`: what holds for all pairs. `rank`: the ratio test and the natural gradient. `batch`: a minibatch
on a shared head.
"""

from dataclasses import replace

from divsim.tabular.language import WORLDS
from divsim.tabular.mismatch import MISMATCHES

from .checks import (
    require_deltas,
    require_known,
    require_seed,
    require_seeds,
    require_tokens,
    require_top_k,
    require_vocab,
)
from .direction_batch import BATCH
from .direction_certain import CERTAIN
from .direction_config import Config
from .direction_divergences import DIVERGENCE
from .direction_figures import figures
from .direction_own import OWN
from .direction_rank import RANK
from .parts import assemble

PARTS = (OWN, DIVERGENCE, CERTAIN, RANK, BATCH)
EXPERIMENT = assemble("direction", __name__, PARTS, figures)
FULL = Config()
QUICK = replace(FULL, seeds=8, tokens=32, divergence_tokens=16, certain_tokens=40, batch_tokens=128)
PRESETS = {"quick": QUICK, "full": FULL}


def is_like_the_preset(config: Config) -> bool:
    """Whether the numbers of this run mean what those of the presets mean, however many there are."""
    settings = ("world", "vocab", "k", "deltas", "rank")
    return all(getattr(config, name) == getattr(FULL, name) for name in settings)


def check(config: Config) -> None:
    """Refuse settings that cannot work, before any work.

    Errors: ValueError that names the setting, its value and the remedy.
    """
    require_known("world", config.world, WORLDS)
    for mismatch in config.mismatches:
        require_known("mismatch", mismatch, MISMATCHES)
    if len(set(config.mismatches)) < len(config.mismatches):
        raise ValueError(f"mismatch must not repeat, got {', '.join(config.mismatches)}; name each once")
    require_vocab(config.vocab)
    require_top_k(config.k, config.vocab)
    require_deltas(config.deltas)
    require_seeds(config.seeds)
    require_tokens(config.tokens)
    require_seed(config.seed)
