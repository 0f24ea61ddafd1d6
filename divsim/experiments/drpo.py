"""DRPO, a penalty in place of a mask: what its radius does, and what 12.5 can mean.

Two parts. `weights`: what soft rules make of the importance weight of a token. `learning`: what comes of it
under stale minibatches, against no penalty.
"""

from dataclasses import replace

from divsim.tabular.environments import ENVIRONMENTS
from divsim.tabular.language import WORLDS
from divsim.tabular.mismatch import MISMATCHES

from .checks import (
    require_deltas,
    require_known,
    require_positive,
    require_seed,
    require_seeds,
    require_tokens,
    require_vocab,
)
from .drpo_config import Config
from .drpo_figures import figures
from .drpo_learning import LEARNING
from .drpo_weights import WEIGHTS
from .parts import assemble

PARTS = (WEIGHTS, LEARNING)
EXPERIMENT = assemble("drpo", __name__, PARTS, figures)
FULL = Config()
QUICK = replace(FULL, tokens=128, seeds=6, rates=(1.0,), rollouts=6, learning_seeds=8)
PRESETS = {"quick": QUICK, "full": FULL}


def check(config: Config) -> None:
    """Refuse settings that cannot work, before any work.

    Errors: ValueError that names the setting, its value and the remedy.
    """
    for pairs in config.pairs:
        require_known("world", pairs.world, WORLDS)
        require_known("mismatch", pairs.mismatch, MISMATCHES)
        require_vocab(pairs.vocab)
    for environment in config.environments:
        require_known("world", environment, ENVIRONMENTS)
    _require_distinct("mismatch", [pairs.name for pairs in config.pairs])
    _require_distinct("world", config.environments)
    for flag, (setting, remedy) in REMEDIES.items():
        values = getattr(config, setting)
        for value in values:
            require_positive(flag, value, remedy)
        _require_distinct(flag, [f"{value:g}" for value in values])
    require_deltas(config.far)
    require_tokens(config.tokens)
    for setting in ("rollouts", "episodes", "minibatches", "passes"):
        require_positive(setting, getattr(config, setting), "it is a count")
    require_seeds(config.seeds)
    require_seeds(config.learning_seeds, FEWEST, "half choose a radius, the others judge")
    if config.episodes % config.minibatches:
        raise ValueError(
            f"minibatches must divide episodes, got {config.minibatches} and {config.episodes}; "
            "such as --episodes 64 --minibatches 16"
        )
    require_seed(config.seed)


FEWEST = 4
"""Seeds to learn with: two in each half make an interval."""
REMEDIES = {
    "delta": ("deltas", "it is the radius of a penalty, a probability"),
    "width": ("widths", "it is the width of SPO, a ratio"),
    "step": ("steps", "it is a learning rate"),
    "rate": ("rates", "it multiplies a learning rate"),
}
"""Name -> the setting, and what every entry of it is."""


def _require_distinct(setting: str, names: "list[str] | tuple[str, ...]") -> None:
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{setting} must be one or more, each once, got {', '.join(names) or 'none'}")
