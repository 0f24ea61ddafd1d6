"""What a training run is asked: one frozen record, its presets, and what is refused before any work."""

import dataclasses
import inspect
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from divsim.formulas import AGGREGATIONS, RULES, Rule, make_rule

from .loss import Objective
from .model import MODELS
from .precision import PRECISIONS
from .rollout import Sampling
from .task import Task, draw_prompts
from .tasks import TASKS


@dataclass(frozen=True)
class Config:
    """Everything that the numbers of a run follow from.

    Attributes:
      task: a name of `TASKS`.
      task_settings: of the task.
      model: a name of `MODELS`, or table.
      rule: a name of `RULES`.
      rule_settings: of the rule.
      ratio_cap: largest ratio that weighs a token, for rules that have one; a detached cap, no mask.
      precision: of training, a name of `PRECISIONS`.
      rollout_precision: of the behaviour policy; likewise.
      iterations: rollouts, each followed by updates.
      prompts: different ones in a rollout.
      group: responses to each.
      minibatches: into which a rollout is cut; an update each.
      rows: of a minibatch that are in the model at once; 0 for all.
      lag: rollouts by which the behaviour policy is behind.
      optimiser: adamw or sgd.
      lr: learning rate.
      betas: of adamw.
      weight_decay: of adamw.
      clip: largest norm of a gradient; 0 for none.
      warmup: rollouts over which the learning rate rises.
      decay: whether it then falls to zero as a cosine.
      divide_by_std: whether advantages are divided by the standard deviation of their group.
      aggregation: a name of `AGGREGATIONS`.
      entropy: weight of the entropy term.
      reference: weight of KL(pi || the warm start).
      temperature: of sampling.
      k: likeliest tokens that the engine records.
      warm_steps: supervised steps of the warm start; 0 for random weights.
      warm_noise: share of demonstrated tokens that are replaced.
      held_out: prompts on which the greedy pass is measured.
      eval_every: rollouts between measurements.
      seed: of prompts, samples and order.
      base_seed: of the warm start.
    """

    task: str = "sort"
    task_settings: dict[str, int] = field(default_factory=dict)
    model: str = "tiny"
    rule: str = "predictive_uniform_kl"
    rule_settings: dict[str, float] = field(default_factory=dict)
    ratio_cap: float = 20.0
    precision: str = "fp32"
    rollout_precision: str = "fp32"
    iterations: int = 60
    prompts: int = 32
    group: int = 16
    minibatches: int = 16
    rows: int = 0
    lag: int = 0
    optimiser: str = "adamw"
    lr: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    clip: float = 1.0
    warmup: int = 5
    decay: bool = False
    divide_by_std: bool = True
    aggregation: str = "token_mean"
    entropy: float = 0.0
    reference: float = 0.0
    temperature: float = 1.0
    k: int = 20
    warm_steps: int = 500
    warm_noise: float = 0.15
    held_out: int = 128
    eval_every: int = 10
    seed: int = 0
    base_seed: int = 0

    def make_task(self) -> Task:
        """The task with its settings."""
        return TASKS[self.task](**self.task_settings)

    def make_rule(self) -> Rule:
        """The rule with its settings."""
        capped = "ratio_cap" in inspect.signature(RULES[self.rule]).parameters
        return make_rule(self.rule, **({"ratio_cap": self.ratio_cap} if capped else {}) | self.rule_settings)

    @property
    def sampling(self) -> Sampling:
        """How the behaviour policy draws."""
        return Sampling(self.temperature, k=self.k, whole=self.sees_all)

    @property
    def sees_all(self) -> bool:
        """Whether the rule needs the whole of mu."""
        return "_full_" in self.rule

    @property
    def objective(self) -> Objective:
        """What is optimised."""
        return Objective(
            self.make_rule(), self.sees_all, self.rule == "certified", self.temperature, self.entropy,
            self.reference,
        )  # fmt: skip


PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {"task": "reverse", "lr": 1e-3, "minibatches": 4, "iterations": 30, "warm_steps": 600},
    "healthy": {"warm_steps": 1300, "minibatches": 4, "rollout_precision": "bf16", "iterations": 120},
    "aliases": {
        "task_settings": {"values": 16, "aliases": 32}, "lr": 3e-4, "warm_steps": 1300,
    },
    "harsh": {"lr": 6e-4, "minibatches": 32, "rollout_precision": "fp8", "iterations": 40},
    "stale": {"warm_steps": 1300, "rollout_precision": "fp8"},
    "narrow": {
        "task_settings": {"values": 16, "aliases": 32}, "lr": 3e-4, "warm_steps": 1300,
        "rule_settings": {"delta": 0.03},
    },
    "lagging": {
        "warm_steps": 1300, "lr": 3e-4, "minibatches": 8, "rollout_precision": "fp8", "lag": 6,
    },
    "table": {
        "task": "bandit", "model": "table", "optimiser": "sgd", "lr": 20.0, "clip": 0.0, "warmup": 0,
        "precision": "fp64", "rollout_precision": "fp64", "warm_steps": 0, "iterations": 20,
    },
}  # fmt: skip
"""What differs from the defaults. healthy, aliases, harsh, stale, narrow and lagging are the regimes H, A, C,
D, E and G of the prototype."""

POSITIVE = (
    "iterations",
    "prompts",
    "group",
    "minibatches",
    "lr",
    "k",
    "temperature",
    "eval_every",
    "held_out",
    "ratio_cap",
)
NOT_NEGATIVE = ("rows", "lag", "weight_decay", "clip", "warmup", "entropy", "reference", "warm_steps")
CHOICES = {
    "task": TASKS,
    "model": ("table", *MODELS),
    "rule": RULES,
    "precision": PRECISIONS,
    "rollout_precision": PRECISIONS,
    "optimiser": ("adamw", "sgd"),
    "aggregation": tuple(name for name in AGGREGATIONS if name != "constant_length"),
}


def check(config: Config) -> None:
    """Refuse what cannot work.

    Errors: ValueError that names the setting, its value and the remedy.

    >>> check(Config())
    """
    _require_types(config)
    for name, known in CHOICES.items():
        value = getattr(config, name)
        if value not in known:
            raise ValueError(f"{name} {value!r} is unknown; it is one of {', '.join(known)}")
    for name in (*POSITIVE, *NOT_NEGATIVE):
        value, least = getattr(config, name), "> 0" if name in POSITIVE else ">= 0"
        if not (0 < value < float("inf") or (value == 0 and name in NOT_NEGATIVE)):
            raise ValueError(f"{name} must be a finite number {least}, got {value}")
    _require_keywords("task_settings", config.task_settings, TASKS[config.task])
    config.make_rule()
    task = config.make_task()
    for held_out in (True, False):
        draw_prompts(task, np.random.default_rng(0), 1, held_out)
    if config.k > task.vocab_size:
        raise ValueError(f"k must be at most the {task.vocab_size} tokens of {config.task}, got {config.k}")
    if config.group < 2:
        raise ValueError(f"group must be >= 2, got {config.group}; one is compared with nothing")
    if config.prompts * config.group % config.minibatches:
        raise ValueError(
            f"minibatches must divide the {config.prompts * config.group} responses of a rollout, "
            f"got {config.minibatches}"
        )
    if config.model == "table" and (config.task != "bandit" or config.warm_steps):
        raise ValueError("model table is for task bandit without a warm start; set task=bandit, warm_steps=0")
    if not 0 <= config.warm_noise < 1:
        raise ValueError(f"warm_noise must be in [0, 1), got {config.warm_noise}; it is a share of tokens")


def check_device(config: Config, device: str) -> None:
    """Refuse what the device cannot do.

    Errors: ValueError for training in float16 on a CPU: there it is slow, and bfloat16 needs no scaling.

    >>> check_device(Config(), "cpu")
    """
    if PRECISIONS[config.precision].is_scaled and device == "cpu":
        raise ValueError(
            f"precision {config.precision} trains on an accelerator only, got device cpu; take bf16 or fp32"
        )


def _require_types(config: Config) -> None:
    """Each setting is of the kind of its default; a whole number may stand for any number."""
    usual = Config()
    for one in dataclasses.fields(Config):
        value, kind = getattr(config, one.name), type(getattr(usual, one.name))
        fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{one.name} must be {KINDS[kind]}, got {value!r}")


KINDS = {
    str: "a word", int: "a whole number", float: "a number", bool: "True or False",
    tuple: "a tuple of numbers", dict: "a dict of settings",
}  # fmt: skip


def _require_keywords(name: str, settings: dict[str, int], target: Any) -> None:
    known = inspect.signature(target).parameters
    for key, value in settings.items():
        if key not in known:
            raise ValueError(f"{name} has no {key}; it has {', '.join(known)}")
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}: {key} must be a count >= 1, got {value!r}")


def preset(name: str, **changes: Any) -> Config:
    """A preset with what is said otherwise, checked.

    Errors: ValueError as `check`, and for an unknown preset or setting.

    >>> preset("stale", seed=3).rollout_precision
    'fp8'
    """
    if name not in PRESETS:
        raise ValueError(f"preset {name!r} is unknown; it is one of {', '.join(PRESETS)}")
    known = {one.name for one in dataclasses.fields(Config)}
    for setting in changes:
        if setting not in known:
            raise ValueError(f"setting {setting!r} is unknown; it is one of {', '.join(sorted(known))}")
    config = Config(**(PRESETS[name] | changes))
    check(config)
    return config
