"""`divsim exact drpo` and `divsim exact bounds`: a penalty in place of a mask, and what theorems promise."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

from divsim.cli.common import output
from divsim.cli.exact_runs import Preset, close, configured, run_into


def drpo(
    preset: Preset = "quick",
    delta: tuple[float, ...] = (),
    world: tuple[str, ...] = (),
    seeds: int | None = None,
    tokens: int | None = None,
    out: Path | None = None,
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    seed: int = 0,
    processes: int | None = None,
) -> int:
    """DRPO's quadratic penalty: its weights, whether a negative one lowers KL, and what 12.5 can mean.

    Args:
      preset: quick takes under half a minute, full about two minutes on two cores.
      delta: radii of the penalty, probabilities; 12.5 and 1 / 12.5 are always among them.
      world: environments to learn in, such as bernoulli language.
      seeds: independent repetitions, of the weights and of learning.
      tokens: of one seed, whose weights are counted.
      out: the run directory; by default runs/drpo-PRESET.
      resume: go on with a run that was interrupted.
      seed: of every random stream.
      processes: worker processes; by default one per core. The result does not depend on it.

    Returns:
      0.
    """
    from divsim.cli.drpo_tables import print_drpo
    from divsim.experiments import drpo as module

    said: dict[str, Any] = {"deltas": delta, "environments": world, "tokens": tokens, "seed": seed}
    said |= {"seeds": seeds, "learning_seeds": seeds}
    config = configured(module.PRESETS[preset], said, module.check)
    rows, folder = run_into(module.EXPERIMENT, config, out, preset, resume, processes)
    print_drpo(output(), config, rows)
    return close("drpo", (), rows, folder)


def bounds(
    preset: Preset = "quick",
    gamma: tuple[float, ...] = (),
    horizons: tuple[int, ...] = (),
    seeds: int | None = None,
    out: Path | None = None,
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    seed: int = 0,
    processes: int | None = None,
) -> int:
    """What trust-region theorems promise about the return: never violated, often vacuous, how loose.

    Args:
      preset: quick takes ten seconds, full about two minutes on two cores.
      gamma: discounts of the discounted processes.
      horizons: numbers of steps of the long worlds.
      seeds: independent repetitions.
      out: the run directory; by default runs/bounds-PRESET.
      resume: go on with a run that was interrupted.
      seed: of every random stream.
      processes: worker processes; by default one per core. The result does not depend on it.

    Returns:
      0, or 1 if a bound is violated or an identity fails.
    """
    from divsim.cli.bounds_tables import print_bounds
    from divsim.experiments import bounds as module
    from divsim.experiments.bounds_rows import violations

    said = {"gammas": gamma, "horizons": horizons, "seeds": seeds, "seed": seed}
    config = configured(module.PRESETS[preset], said, module.check)
    rows, folder = run_into(module.EXPERIMENT, config, out, preset, resume, processes)
    print_bounds(output(), config, rows)
    close("bounds", (), rows, folder)
    return 1 if violations(rows)[0] else 0


STUDIES: dict[str, Callable[..., int]] = {"drpo": drpo, "bounds": bounds}
