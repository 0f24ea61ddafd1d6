"""Rules, seeds and precisions side by side: small language models that learn from stale samples.

A tile is one training run. Runs of a seed share prompts, base model and random numbers until their first
different update, so differences are taken seed by seed. What is left out: tuning; every rule has the preset's
learning rate, and its radius is its own, so a difference is one between settings as much as between rules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import RULES

from .checks import require_distinct, require_known, require_seed, require_seeds
from .compare_figures import figures
from .pool import THREADS
from .rows import Row, mean_row, row
from .runs import Arrays, Experiment
from .statistics import log_or_nan, mean, sign_flip_p

PRECISIONS = {
    "preset": None,
    "fp32": ("fp32", "fp32"),
    "bf16": ("bf16", "bf16"),
    "fp8-rollout": ("bf16", "fp8"),
    "fp8-e2e": ("fp8", "fp8"),
}
"""Of training and of the rollout, by the name of the setting; the preset has its own."""

CURVES = ("reward", "kl", "kl_max", "entropy", "drop", "disagree", "far", "same_reward")
"""Recorded of every iteration."""
FINAL = ("held_out_greedy", "held_out_sampled")
"""Measured at the end, on prompts that training never saw."""
MEANS = ("kl", "drop", "far", "disagree")
"""Of which the mean over iterations is reported."""
REFERENCES = ("importance_sampling", "dppo_top_k_kl")
"""What others are compared with: no mask, and DPPO."""
LAST = 10
"""Iterations over which the reward at the end is averaged."""


@dataclass(frozen=True)
class Config:
    """Settings of `lm compare`; every number of a result follows from them.

    Attributes:
      regime: a preset of the trainer.
      rules: names of `RULES`.
      precisions: keys of `PRECISIONS`.
      iterations: of each run; 0 for the preset's.
      warm_steps: of each base model; 0 for the preset's.
      seeds: runs of each rule and precision.
      bases: base models among which the seeds are spread.
      seed: added to all seeds.
    """

    regime: str = "stale"
    rules: tuple[str, ...] = (
        "importance_sampling", "dppo_top_k_kl", "predictive_aggregated_kl", "drpo",
    )  # fmt: skip
    precisions: tuple[str, ...] = ("preset",)
    iterations: int = 0
    warm_steps: int = 0
    seeds: int = 20
    bases: int = 4
    seed: int = 0


PRESETS = {
    "quick": Config(
        regime="harsh",
        rules=(
            "importance_sampling", "clip_higher", "dppo_top_k_kl", "predictive_aggregated_kl",
            "predictive_uniform_kl", "drpo",
        ),
        precisions=("bf16", "fp8-rollout", "fp8-e2e"), iterations=12, seeds=3, bases=1,
    ),
    "full": Config(),
}  # fmt: skip
"""Quick touches everything once; full is regime D of the prototype."""


def tiles(config: Config) -> tuple[str, ...]:
    """One run each; neighbours have other bases, so that workers do not wait for one warm start."""
    return tuple(
        f"{rule}@{precision}@{seed}"
        for rule in config.rules
        for precision in config.precisions
        for seed in range(config.seeds)
    )


def compute(config: Config, key: str) -> dict[str, NDArray[Any]]:
    """One training run: curves (iterations,) and what it can do at the end."""
    import torch

    from divsim.lm.evaluate import evaluate
    from divsim.lm.train import begin, iterate
    from divsim.lm.warm_start import warm_start

    torch.set_num_threads(THREADS)
    rule, precision, seed = key.split("@")
    asked = run_config(config, rule, precision, int(seed))
    state = begin(asked, warm_start(asked), "cpu")
    measured = [iterate(asked, state, "cpu") for _ in range(asked.iterations)]
    curves = {
        name: np.array([np.nan if one.get(name) is None else one[name] for one in measured], dtype=np.float64)
        for name in CURVES
    }
    final = evaluate(asked, state.model, "cpu")
    return curves | {name: np.array(final[name]) for name in FINAL}


def run_config(config: Config, rule: str, precision: str, seed: int) -> Any:
    """What one run is asked."""
    from divsim.lm.config import preset

    changes: dict[str, Any] = {
        "rule": rule,
        "rule_settings": {},
        "seed": config.seed + seed,
        "base_seed": config.seed + seed % config.bases,
    }
    pair = PRECISIONS[precision]
    changes |= {} if pair is None else {"precision": pair[0], "rollout_precision": pair[1]}
    changes |= {name: getattr(config, name) for name in ("iterations", "warm_steps") if getattr(config, name)}
    return preset(config.regime, **changes)


def rows(config: Config, tiles: Mapping[str, Arrays]) -> list[Row]:
    """Every rule's means over seeds, its differences from the first rule and from DPPO, and its curves."""
    found: list[Row] = []
    for precision in config.precisions:
        runs = {
            rule: [tiles[f"{rule}@{precision}@{seed}"] for seed in range(config.seeds)]
            for rule in config.rules
        }
        summaries = {rule: summary(each) for rule, each in runs.items()}
        for rule, measured in summaries.items():
            key = {"precision": precision, "rule": rule}
            for name, values in measured.items():
                found += mean_row(values, table="summary", quantity=name, **key)
            for against in references(config, rule):
                for name in ("reward_last", "reward_mean", *FINAL):
                    gap = measured[name] - summaries[against][name]
                    key_of_pair = {**key, "against": against, "quantity": name, "table": "difference"}
                    found.append(row(mean(gap), config.seeds, sign_flip_p(gap), **key_of_pair))
            for name in ("reward", "log_kl", "entropy", "drop"):
                curve = np.stack([_curve(arrays, name) for arrays in runs[rule]])
                for iteration, values in enumerate(curve.T, start=1):
                    found += mean_row(values, table="curve", quantity=name, iteration=iteration, **key)
    return found


def _curve(arrays: Arrays, name: str) -> NDArray[np.float64]:
    """A curve of a run; KL in logs, because it spans orders of magnitude."""
    if name != "log_kl":
        return np.asarray(arrays[name])
    return log_or_nan(arrays["kl"])


def references(config: Config, rule: str) -> list[str]:
    """What a rule is compared with, where the run has it."""
    return [name for name in REFERENCES if name in config.rules and name != rule]


def summary(runs: Sequence[Arrays]) -> dict[str, NDArray[np.float64]]:
    """One number a run: (seeds,) each."""
    return {
        "reward_last": np.array([arrays["reward"][-LAST:].mean() for arrays in runs]),
        "reward_mean": np.array([arrays["reward"].mean() for arrays in runs]),
        **{name: np.array([float(arrays[name]) for arrays in runs]) for name in FINAL},
        "collapsed": np.array([float(arrays["reward"][-LAST:].max() < 0.05) for arrays in runs]),
        **{name: np.array([_defined_mean(arrays[name]) for arrays in runs]) for name in MEANS},
        "entropy": np.array([arrays["entropy"][-LAST:].mean() for arrays in runs]),
    }


def _defined_mean(values: NDArray[np.float64]) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else np.nan


def check(config: Config) -> None:
    """Refuse what cannot work, before any work.

    Errors: ValueError that names the setting, its value and the remedy.
    """
    from divsim.lm.config import PRESETS as REGIMES

    require_known("regime", config.regime, REGIMES)
    for name, values, known in (
        ("rules", config.rules, tuple(RULES)), ("precisions", config.precisions, tuple(PRECISIONS)),
    ):  # fmt: skip
        for value in values:
            require_known(name, value, known)
        require_distinct(name, values, "names")
    require_seeds(config.seeds)
    if not 1 <= config.bases <= config.seeds:
        raise ValueError(f"bases must be from 1 to the {config.seeds} seeds, got {config.bases}")
    require_seed(config.seed)
    for precision in config.precisions:
        for rule in config.rules:
            run_config(config, rule, precision, 0)


EXPERIMENT = Experiment(
    "compare", __name__, tiles, compute, rows, figures,
    packages=("divsim", "numpy", "scipy", "torch", "safetensors"),
)  # fmt: skip
