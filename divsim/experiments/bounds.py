"""What do the theorems promise, and how loose are they? Bounds on the return against exact values.

Three parts. `discounted`: the trust-region theorems on random processes, and where they are attained. `tree`:
the finite-horizon bounds of language models by enumeration. `growth`: the same over long episodes.
"""

from dataclasses import replace

from .bounds_config import Config
from .bounds_discounted import DISCOUNTED
from .bounds_figures import figures
from .bounds_growth import GROWTH
from .bounds_horizon import TREE
from .checks import require_distinct, require_positive, require_seed, require_seeds
from .parts import assemble

PARTS = (DISCOUNTED, TREE, GROWTH)
EXPERIMENT = assemble("bounds", __name__, PARTS, figures)
FULL = Config()
QUICK = replace(FULL, seeds=5, mdps=20, trees=10, horizons=FULL.horizons[:-1])
PRESETS = {"quick": QUICK, "full": FULL}

LARGEST_TREE = 2**16
LONGEST = 512
"""A world that counts to T has tables of 2 T^2 entries."""
LARGEST_GAMMA = 0.9999
"""The doorway's steps are small against 1 - gamma: at .999999 it is lost in rounding."""
FURTHEST = 0.35
"""Total variation that every world has room for: mu takes no action that pi moves to more often than .6."""


def check(config: Config) -> None:
    """Refuse settings that cannot work, before any work.

    Errors: ValueError that names the setting, its value and the remedy.
    """
    for setting in ("gammas", "noises", "mixings", "shapes", "horizons", "distances"):
        require_distinct(setting, getattr(config, setting), "settings")
    for gamma in config.gammas:
        if not 0 < gamma < 1:
            raise ValueError(f"gammas must be in (0, 1), got {gamma}; finite horizons have other parts")
        if gamma > LARGEST_GAMMA:
            raise ValueError(f"gammas must be at most {LARGEST_GAMMA}, got {gamma}; beyond, rounding decides")
    for noise in config.noises:
        require_positive("noises", noise, "it is a standard deviation, in nats")
    for mixing in config.mixings:
        if not 0 < mixing <= 1:
            raise ValueError(f"mixings must be in (0, 1], got {mixing}; it is the share of the new policy")
    for setting in ("states", "actions"):
        if not getattr(config, setting) >= 2:
            raise ValueError(f"{setting} must be >= 2, got {getattr(config, setting)}; one leaves no choice")
    for vocab, horizon in config.shapes:
        if not (vocab >= 2 and horizon >= 2 and vocab**horizon <= LARGEST_TREE):
            raise ValueError(
                f"shapes must be (V, T) of at least 2 each with V^T <= {LARGEST_TREE:,}, got "
                f"({vocab}, {horizon}); such as (2, 10)"
            )
    _check_growth(config)
    for setting in ("mdps", "trees"):
        require_positive(setting, getattr(config, setting), "it counts repetitions")
    require_seeds(config.seeds)
    require_seed(config.seed)


def _check_growth(config: Config) -> None:
    if len(config.horizons) < 3 or list(config.horizons) != sorted(config.horizons):
        raise ValueError(f"horizons must be three or more, growing, got {config.horizons}; such as 4 8 16")
    for horizon in (*config.horizons, config.horizon):
        if not 2 <= horizon <= LONGEST:
            raise ValueError(f"horizons must be from 2 to {LONGEST:,} steps, got {horizon}; such as 64")
    for distance in (*config.distances, config.distance):
        if not 0 < distance <= FURTHEST:
            raise ValueError(
                f"distances must be in (0, {FURTHEST}], got {distance}; it is a total variation a step"
            )
