"""`divsim exact bandit` and `divsim exact mdp`: learning from stale minibatches, and the yardstick."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import tyro

from divsim.cli.common import output
from divsim.cli.exact_runs import Preset, close, configured, run_into


def _command(kind: str, doc: str) -> Callable[..., int]:
    """A command: both kinds of environments take the same flags."""

    def command(
        preset: Preset = "quick",
        world: tuple[str, ...] = (),
        rules: tuple[str, ...] = (),
        delta: tuple[float, ...] = (),
        k: tuple[int, ...] = (),
        minibatches: tuple[int, ...] = (),
        passes: int | None = None,
        advantage: str | None = None,
        noise: float | None = None,
        rollouts: int | None = None,
        episodes: int | None = None,
        seeds: int | None = None,
        out: Path | None = None,
        resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
        seed: int = 0,
        processes: int | None = None,
    ) -> int:
        module = importlib.import_module(f"divsim.experiments.{kind}")
        said = _said(world, rules, delta, k, minibatches, seeds)
        said |= {"passes": passes, "advantage": advantage, "engine_noise": noise}
        said |= {"rollouts": rollouts, "episodes": episodes, "seed": seed}
        return _learn(module, preset, said, out, resume, processes)

    command.__name__, command.__doc__ = kind, doc + FLAGS.format(kind=kind)
    return command


FLAGS = """

    Args:
      preset: quick takes half a minute, full about twenty minutes on two cores.
      world: environments; for bandit gaussian bernoulli language, for mdp chain grid tree layered.
      rules: learners, rules and exact algorithms, such as importance_sampling ppo_clip drpo trpo.
      delta: factors to try of the rules' radii (0.1 nats of KL, 0.15 of TV, else their defaults).
      k: actions of mu that the engine shows; several are compared one by one.
      minibatches: of each pass over a rollout; several are compared one by one.
      passes: over a rollout.
      advantage: exact, monte_carlo, gae or group; by default what is usual in the environment.
      noise: standard deviation of the engine's error on every logit, nats; exact algorithms have none.
      rollouts: how often mu is renewed.
      episodes: of a rollout.
      seeds: on which learners are compared; half as many others tune them.
      out: the run directory; by default runs/{kind}-PRESET.
      resume: go on with a run that was interrupted.
      seed: of every random stream.
      processes: worker processes; by default one per core. The result does not depend on it.

    Returns:
      0.
    """

LEARNING: dict[str, Callable[..., int]] = {
    kind: _command(kind, doc)
    for kind, doc in (
        (
            "bandit",
            "What each rule costs and buys in bandits, with stale minibatches; the best step.",
        ),
        ("mdp", "The same in decision processes: a chain, a grid, token trees and layers."),
    )
}


def _said(
    world: tuple[str, ...], rules: tuple[str, ...], delta: tuple[float, ...], k: tuple[int, ...],
    minibatches: tuple[int, ...], seeds: int | None,
) -> dict[str, Any]:  # fmt: skip
    """The settings of a config by the flags that are named otherwise."""
    named = {"environments": world, "learners": rules, "scales": delta, "ks": k, "minibatches": minibatches}
    return named | {"seeds": seeds, "tuning_seeds": None if seeds is None else max(1, seeds // 2)}


def _learn(
    module: ModuleType, preset: Preset, said: dict[str, Any], out: Path | None, resume: bool,
    processes: int | None,
) -> int:  # fmt: skip
    from divsim.cli.learning_tables import print_learning

    config = configured(module.PRESETS[preset], said, module.check)
    rows, folder = run_into(module.EXPERIMENT, config, out, preset, resume, processes)
    print_learning(output(), config, rows)
    return close(module.EXPERIMENT.name, (), rows, folder)
