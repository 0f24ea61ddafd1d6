"""`divsim lm train`, `eval` and `sample`: small language models, reinforced from stale samples."""

import ast
import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from divsim.cli.common import BadCall, output, progress
from divsim.cli.exact_runs import Preset, close, configured, run_into


def train(
    preset: str = "smoke",
    set_: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE")] = (),
    out: Path | None = None,
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    device: str = "auto",
    threads: int = 1,
    save_every: int = 10,
) -> int:
    """Reinforce a small language model on a verifiable task.

    Args:
      preset: smoke, healthy, aliases, harsh, stale, narrow, lagging or table.
      set_: settings that differ from the preset, such as rule=drpo lr=3e-4 seed=1.
      out: the run directory; by default runs/lm-PRESET.
      resume: go on with a run that was interrupted.
      device: cpu, cuda, or auto for cuda where there is one.
      threads: of the CPU; with one the numbers do not depend on the machine's load.
      save_every: iterations between checkpoints.

    Returns:
      0.
    """
    _require_torch()
    import torch

    from divsim.cli.lm_tables import print_training
    from divsim.lm.checkpoint import CheckpointError
    from divsim.lm.config import preset as configured
    from divsim.lm.run import train as run
    from divsim.run_folder import RunError

    folder = out if out is not None else Path("runs") / f"lm-{preset}"
    try:
        config = configured(preset, **settings(set_))
    except (ValueError, TypeError) as error:
        raise BadCall(str(error)) from error
    if threads < 1:
        raise BadCall(f"--threads must be >= 1, got {threads}")
    torch.set_num_threads(threads)
    with progress() as bar:
        tasks: dict[str, Any] = {}

        def advance(what: str, done: int, total: int, measured: Mapping[str, Any]) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            shown = "".join(
                f"  {name} {measured[name]:.3g}"
                for name in ("reward", "kl", "drop")
                if measured.get(name) is not None
            )
            bar.update(tasks[what], completed=done, description=what + shown)

        try:
            metrics = run(config, folder, chosen(device), resume, save_every, advance)
        except (RunError, CheckpointError, ValueError) as error:
            raise BadCall(str(error)) from error
    print_training(output(), metrics)
    output().print(f"written to {folder}: metrics.jsonl ({len(metrics)} iterations), config, checkpoints")
    return 0


def _require_torch() -> None:
    missing = [name for name in ("torch", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise BadCall(f"divsim lm needs {' and '.join(missing)}; install it with pip install 'divsim[lm]'")


def evaluate(run: tyro.conf.Positional[Path], prompts: int | None = None, device: str = "auto") -> int:
    """Shares of right answers to held-out prompts, of a run's last checkpoint.

    Args:
      run: its directory.
      prompts: how many; by default as many as in training.
      device: cpu, cuda, or auto for cuda where there is one.

    Returns:
      0.
    """
    config, model = _trained(run, chosen(device), prompts)
    from divsim.lm.evaluate import evaluate as measured

    for name, value in measured(config, model, chosen(device)).items():
        output().print(f"{name}  {value:.4f}  of {config.held_out} prompts")
    return 0


def sample(
    run: tyro.conf.Positional[Path], prompts: int = 8, temperature: float = 1.0, top_p: float = 1.0,
    seed: int = 0, device: str = "auto",
) -> int:  # fmt: skip
    """Print held-out prompts, an answer to each, and what it is worth.

    Args:
      run: the directory of a run.
      prompts: how many.
      temperature: of sampling; 0 for the likeliest tokens.
      top_p: the likeliest tokens whose mass reaches it.
      seed: of the samples.
      device: cpu, cuda, or auto for cuda where there is one.

    Returns:
      0.
    """
    config, model = _trained(run, chosen(device), prompts)
    from divsim.cli.exact_tables import table
    from divsim.lm.evaluate import answers, held_out_prompts
    from divsim.lm.rollout import Sampling
    from divsim.lm.task import reward

    try:
        sampling = Sampling(temperature, top_p, k=1)
    except ValueError as error:
        raise BadCall(str(error)) from error
    shown = held_out_prompts(config, prompts)
    rollout = answers(config, model, shown, sampling, seed, chosen(device))
    made = table("", ("prompt", "response"), ("log mu", "reward"))
    for row, prompt in enumerate(shown):
        response = rollout.response[row][rollout.is_response[row]].tolist()
        worth = reward(config.make_task(), prompt, response)
        cells = " ".join(map(str, prompt)), " ".join(map(str, response))
        made.add_row(*cells, f"{float(rollout.log_mu_k[row].sum()):.2f}", f"{worth:.0f}")
    output().print(made)
    return 0


def compare(
    preset: Preset = "quick",
    regime: str | None = None,
    rules: tuple[str, ...] = (),
    precisions: tuple[str, ...] = (),
    iterations: int | None = None,
    seeds: int | None = None,
    bases: int | None = None,
    out: Path | None = None,
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    seed: int = 0,
    processes: int | None = None,
) -> int:
    """Train under several rules, precisions and seeds, and compare them seed by seed.

    Args:
      preset: quick touches everything in minutes; full takes four rules and twenty seeds of regime stale.
      regime: a preset of the trainer, such as stale or harsh.
      rules: names of update rules, such as importance_sampling dppo_top_k_kl drpo.
      precisions: fp32, bf16, fp8-rollout, fp8-e2e, or preset for the regime's own.
      iterations: of each run.
      seeds: runs of each rule and precision.
      bases: warm starts among which the seeds are spread.
      out: the run directory; by default runs/compare-PRESET.
      resume: go on with a run that was interrupted.
      seed: added to all seeds.
      processes: worker processes; by default one per core. The result does not depend on it.

    Returns:
      0.
    """
    _require_torch()
    from divsim.cli.lm_tables import print_compare
    from divsim.experiments import compare as module

    said = {"regime": regime, "rules": rules, "precisions": precisions, "iterations": iterations}
    said |= {"seeds": seeds, "bases": bases, "seed": seed}
    config = configured(module.PRESETS[preset], said, module.check)
    rows, folder = run_into(module.EXPERIMENT, config, out, preset, resume, processes)
    print_compare(output(), config, rows)
    return close(module.EXPERIMENT.name, (), rows, folder)


def _trained(run: Path, device: str, prompts: int | None) -> tuple[Any, Any]:
    """The config and the policy of a run."""
    _require_torch()
    from divsim.lm.config import check
    from divsim.lm.evaluate import trained
    from divsim.lm.run import config_of

    try:
        config = config_of(run)
        config = config if prompts is None else dataclasses.replace(config, held_out=prompts)
        check(config)
        return config, trained(config, run, device)
    except ValueError as error:
        raise BadCall(str(error)) from error


def settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE pairs as Python values; what is no literal is a string.

    >>> settings(("rule=drpo", "lr=3e-4", "task_settings={'values': 16}"))
    {'rule': 'drpo', 'lr': 0.0003, 'task_settings': {'values': 16}}
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE, got {pair!r}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def chosen(device: str) -> str:
    """The device that is meant, if it is there."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise BadCall(f"--device must be auto, cpu or cuda, got {device}")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadCall("--device cuda: torch sees no such device; take cpu, or auto")
    return device


LM: dict[str, Callable[..., int]] = {"train": train, "eval": evaluate, "sample": sample, "compare": compare}
