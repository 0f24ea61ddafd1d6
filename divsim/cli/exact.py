"""`divsim exact`: experiments where everything can be enumerated, each into a run directory of its own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from divsim.cli.common import BadCall, output
from divsim.cli.exact_learning import LEARNING
from divsim.cli.exact_runs import Preset, close, configured, run_into
from divsim.cli.exact_studies import STUDIES


def direction(
    preset: Preset = "quick",
    world: str = "language",
    vocab: int | None = None,
    mismatch: tuple[str, ...] = (),
    k: int | None = None,
    delta: tuple[float, ...] = (),
    seeds: int | None = None,
    tokens: int | None = None,
    rules: tuple[str, ...] = (),
    data: Path | None = None,
    out: Path | None = None,
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    seed: int = 0,
    processes: int | None = None,
) -> int:
    """Which direction test is right: ratio, predicted change, or "always", against what a step really does.

    Args:
      preset: quick takes under half a minute, full about ten minutes on two cores.
      world: language, flat, ...; or "real": recorded tokens of a small language model.
      vocab: size of the vocabulary of a token's own step.
      mismatch: what comes between mu and pi, such as noise_0.5 stale_16.
      k: tokens of mu that the top-K view shows.
      delta: trust-region radii, nats of forward KL.
      seeds: independent repetitions.
      tokens: tokens a seed, of a token's own step.
      rules: direction tests to print, such as ratio full uniform; all are in results.json.
      data: with "real": an archive of recorded tokens in place of the one that ships.
      out: the run directory; by default runs/direction-PRESET.
      resume: go on with a run that was interrupted.
      seed: of every random stream.
      processes: worker processes; by default one per core. The result does not depend on it.

    Returns:
      0.
    """
    from divsim.cli.direction_tables import print_direction
    from divsim.experiments import direction as module

    changes = {"world": world, "vocab": vocab, "mismatches": mismatch, "k": k, "deltas": delta}
    changes |= {"seeds": seeds, "tokens": tokens, "seed": seed}
    shown = _known_rules(rules)
    if world == "real":
        _refuse(preset=preset, vocab=vocab, mismatch=mismatch, k=k, delta=delta, seeds=seeds)
        _refuse(tokens=tokens, rules=rules)
        return _real("direction", seed, data, out, resume, processes)
    _refuse_data(data)
    config = configured(module.PRESETS[preset], changes, module.check)
    rows, folder = run_into(module.EXPERIMENT, config, out, preset, resume, processes)
    print_direction(output(), config, rows, shown)
    return close(module.EXPERIMENT.name, rows if module.is_like_the_preset(config) else (), rows, folder)


def tails(
    preset: Preset = "quick",
    world: str | None = None,
    mismatch: str | None = None,
    vocab: tuple[int, ...] = (),
    k: tuple[int, ...] = (),
    delta: tuple[float, ...] = (),
    seeds: int | None = None,
    data: Path | None = None,
    out: Path | None = None,
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    seed: int = 0,
    processes: int | None = None,
) -> int:
    """What a top-K view of mu forgets: bias, error and sign flips of the tail estimators, and certificates.

    Args:
      preset: quick takes under half a minute, full about ten minutes on two cores.
      world: one world such as language or flat in place of the preset's cells; or "real": recorded tokens.
      mismatch: with a world: what comes between mu and pi; noise_0.5 if none is named.
      vocab: with a world: sizes of the vocabulary.
      k: sizes of the top-K view.
      delta: trust-region radii, nats of forward KL.
      seeds: independent repetitions.
      data: with "real": an archive of recorded tokens in place of the one that ships.
      out: the run directory; by default runs/tails-PRESET.
      resume: go on with a run that was interrupted.
      seed: of every random stream.
      processes: worker processes; by default one per core. The result does not depend on it.

    Returns:
      0.
    """
    from divsim.cli.exact_tables import print_tails
    from divsim.experiments import tails as module

    changes: dict[str, Any] = {"sizes": k, "deltas": delta, "seeds": seeds, "seed": seed}
    if world == "real":
        _refuse(preset=preset, mismatch=mismatch, vocab=vocab, k=k, delta=delta, seeds=seeds)
        return _real("tails", seed, data, out, resume, processes)
    _refuse_data(data)
    if world is not None:
        changes["pairs"] = module.chosen(world, "noise_0.5" if mismatch is None else mismatch, vocab)
    elif vocab or mismatch is not None:
        flag, what = ("vocab", "sizes") if vocab else ("mismatch", "mismatches")
        raise BadCall(
            f"--{flag} needs a --world, such as --world flat; the preset's cells have {what} of their own"
        )
    config = configured(module.PRESETS[preset], changes, module.check)
    rows, folder = run_into(module.EXPERIMENT, config, out, preset, resume, processes)
    print_tails(output(), config, rows)
    return close(module.EXPERIMENT.name, rows, rows, folder)


EXACT: dict[str, Callable[..., int]] = {"direction": direction, "tails": tails, **LEARNING, **STUDIES}


def _refuse_data(data: Path | None) -> None:
    if data is not None:
        raise BadCall("--data goes with --world real; synthetic worlds read no file")


def _refuse(**settings: Any) -> None:
    """Recorded tokens have these settings of their own."""
    for flag, value in settings.items():
        if value not in (None, (), "quick"):
            raise BadCall(f"--world real has its own tokens and sizes; leave --{flag} out")


def _known_rules(rules: Sequence[str]) -> tuple[str, ...]:
    from divsim.tabular.agreement import TESTS

    known = (*TESTS, "own_rate")
    for rule in rules:
        if rule not in known:
            raise BadCall(f"--rules: unknown rule {rule!r}; the rules are {', '.join(known)}")
    return tuple(rules)


def _real(
    name: str,
    seed: int,
    data: Path | None,
    out: Path | None,
    resume: bool,
    processes: int | None,
) -> int:
    from divsim.cli.exact_tables import print_real
    from divsim.experiments import real_run

    try:
        config = real_run.Config(name, "" if data is None else str(data), seed)
        real_run.check(config)
    except ValueError as error:
        raise BadCall(str(error)) from error
    rows, folder = run_into(real_run.EXPERIMENT, config, out, name, resume, processes)
    print_real(output(), name, rows)
    output().print(f"\nwritten to {folder}: results.json ({len(rows):,} rows), config.json, environment.json")
    return 0
