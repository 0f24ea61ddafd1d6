"""`exact bandit` and `exact mdp`: the same experiment in two kinds of environments, and what it refuses."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.tabular.environments import BANDITS, PROCESSES
from divsim.tabular.rollouts import ESTIMATORS

from . import frontier, learning
from .checks import require_distinct, require_known, require_positive, require_seed, require_seeds
from .learners import LEARNERS, SEEING_TOP_K
from .learning_config import Config
from .rows import Row
from .runs import Arrays

SAME_WHEN_NOTHING_IS_HIDDEN = tuple(rule for rule in SEEING_TOP_K if rule != "certified")
"""Rules that equal their full version where the engine shows every action, as in the small processes."""
SAME_MASK = ("band_kl", "band_tv")
"""Rules whose mask is that of a binary divergence at the same radius; only the surrogate's value differs."""
DISTINCT = tuple(name for name in LEARNERS if name not in (*SAME_WHEN_NOTHING_IS_HIDDEN, *SAME_MASK))
BRIEF = (
    "importance_sampling", "ppo_clip", "dppo_binary_tv", "dppo_full_kl", "predictive_full_kl", "spo", "drpo",
    "trpo", "natural",
)  # fmt: skip

BANDIT = Config(environments=BANDITS, learners=LEARNERS)
PROCESS = Config(environments=PROCESSES, learners=DISTINCT, rates=(0.5, 2.0, 8.0))
_QUICK = {"learners": BRIEF, "rates": (1.0, 4.0), "scales": (0.3, 1.0), "seeds": 8, "tuning_seeds": 4,
          "rollouts": 10, "step_minibatches": 32}  # fmt: skip
LARGEST_NOISE = 100
"""Nats. Beyond, mu and pi share no token, and distances are infinite."""
MOST_REPETITIONS = 1_000_000
"""Episodes, passes or rollouts."""

PRESETS = {
    "bandit": {"quick": replace(BANDIT, environments=("bernoulli", "language"), **_QUICK), "full": BANDIT},  # type: ignore[arg-type]
    "mdp": {"quick": replace(PROCESS, environments=("chain", "tree"), **_QUICK), "full": PROCESS},  # type: ignore[arg-type]
}
"""By command."""


def tiles(config: Config) -> tuple[str, ...]:
    """Learning, then one rollout against the yardstick."""
    return learning.tiles(config) + frontier.tiles(config)


def compute(config: Config, key: str) -> dict[str, NDArray[Any]]:
    """One tile of either."""
    return learning.compute(config, key) if key.startswith("learn@") else frontier.compute(config, key)


def rows(config: Config, tiles: Mapping[str, Arrays]) -> list[Row]:
    """All that is reported."""
    return learning.rows(config, tiles) + frontier.rows(config, tiles)


def check(config: Config, worlds: Collection[str] = (*BANDITS, *PROCESSES)) -> None:
    """Refuse settings that cannot work, before any work.

    Args:
      config: what was asked.
      worlds: environments of the command.

    Errors: ValueError that names the setting, its value and the remedy.
    """
    for environment in config.environments:
        require_known("world", environment, worlds)
    for learner in config.learners:
        require_known("rules", learner, LEARNERS)
    _require_distinct(config)
    if config.advantage:
        require_known("advantage", config.advantage, ESTIMATORS)
    for setting in ("rollouts", "episodes", "passes", "tuning_seeds"):
        require_positive(setting, getattr(config, setting), "it counts repetitions")
    require_seeds(config.seeds)
    for minibatches in config.minibatches:
        require_positive("minibatches", minibatches, "it counts repetitions")
        if config.episodes % minibatches:
            raise ValueError(
                f"minibatches must divide the {config.episodes} episodes of a rollout, got {minibatches}; "
                f"such as --minibatches {np.gcd(config.episodes, minibatches)}"
            )
    for k in config.ks:
        require_positive("k", k, "it counts the actions that the engine shows")
    for delta in (*config.scales, *config.rates):
        require_positive("delta", delta, "it multiplies the radii of the rules")
    if not 0 <= config.engine_noise < float("inf"):
        raise ValueError(f"noise must be a finite number >= 0, got {config.engine_noise}; it is in nats")
    if config.engine_noise > LARGEST_NOISE:
        raise ValueError(
            f"noise must be at most {LARGEST_NOISE} nats, got {config.engine_noise}; such as 0.5"
        )
    for setting in ("episodes", "passes", "rollouts"):
        if getattr(config, setting) > MOST_REPETITIONS:
            raise ValueError(
                f"{setting} must be at most {MOST_REPETITIONS:,}, got {getattr(config, setting)}; "
                "all of a seed is in memory at once"
            )
    require_seed(config.seed)


def _require_distinct(config: Config) -> None:
    lists: dict[str, tuple[object, ...]] = {
        "world": config.environments,
        "rules": config.learners,
        "delta": config.scales,
    }
    lists |= {"minibatches": config.minibatches, "k": config.ks or (0,)}
    for flag, names in lists.items():
        require_distinct(flag, names, "values")
