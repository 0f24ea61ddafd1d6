"""What a training run refuses, and why."""

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from divsim.formulas import View  # noqa: E402
from divsim.lm.config import PRESETS, Config, check, preset  # noqa: E402
from divsim.lm.task import FIRST  # noqa: E402

SMALL: dict[str, Any] = {
    "task": "bandit", "task_settings": {"prompts": 40, "arms": 40}, "warm_steps": 0, "prompts": 6, "group": 4,
    "minibatches": 4, "iterations": 3, "held_out": 8, "k": 4, "warmup": 0, "lr": 1e-2,
}  # fmt: skip


def small(**changes: Any) -> Config:
    return preset("smoke", **(SMALL | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "chess"}, "task 'chess' is unknown; it is one of sort"),
        ({"rule": "ppo"}, "rule 'ppo' is unknown"),
        ({"precision": "fp12"}, "precision 'fp12' is unknown"),
        ({"model": "huge"}, "model 'huge' is unknown"),
        ({"lr": -1.0}, "lr must be a finite number > 0, got -1.0"),
        ({"lr": math.nan}, "lr must be a finite number > 0, got nan"),
        ({"k": 10_000}, "k must be at most the 43 tokens of bandit, got 10000"),
        ({"k": 0}, "k must be a finite number > 0"),
        ({"group": 1}, "group must be >= 2, got 1"),
        ({"minibatches": 5}, "minibatches must divide the 24 responses of a rollout, got 5"),
        ({"task_settings": {"size": 3}}, "task_settings has no size; it has prompts, arms"),
        ({"task_settings": {"arms": 0}}, "task_settings: arms must be a count >= 1"),
        ({"rule_settings": {"radius": 1}}, "setting of predictive_uniform_kl must be one of delta"),
        ({"model": "table", "task": "sort", "task_settings": {}}, "model table is for task bandit"),
        ({"warm_noise": 1.0}, r"warm_noise must be in \[0, 1\)"),
        ({"colour": 1}, "setting 'colour' is unknown"),
        ({"task": "bandit", "task_settings": {"prompts": 2}}, "task has no held-out prompt"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        small(**changes)


def test_the_bandits_arms_are_what_its_prompts_say() -> None:
    task = small(task="bandit", task_settings={"prompts": 64, "arms": 8}).make_task()
    right = [arm for arm in range(8) if task.is_right([FIRST + 5, 2], [FIRST + arm])]
    assert right == [3, 7]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_run(name: str) -> None:
    config = preset(name)
    check(config)
    assert config.make_rule().name and config.objective.rule.name == config.make_rule().name


def test_the_cap_of_a_ratio_reaches_every_rule_that_has_one() -> None:
    view = View.sampled(torch.log(torch.tensor([0.001])), torch.log(torch.tensor([0.9])), vocab_size=50)
    for rule, capped in (("importance_sampling", 7.0), ("predictive_uniform_kl", 20.0), ("reinforce", 1.0)):
        decision = small(rule=rule, ratio_cap=7.0 if capped == 7.0 else 20.0).make_rule()(
            view, torch.tensor([-1.0])
        )
        assert float(decision.weight) == pytest.approx(capped if bool(decision.keep) else 0.0)
    assert small(rule_settings={"ratio_cap": 3.0}).make_rule().name == small().make_rule().name
