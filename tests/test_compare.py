"""`lm compare` on small settings: pairing, references, processes and resume, tables and figures, refusals."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from divsim.experiments import compare
from divsim.experiments.compare import EXPERIMENT, PRESETS, Config, check, compute, rows, run_config, tiles
from divsim.experiments.compare_figures import figures
from divsim.experiments.rows import MEASURED, Row, find, select
from divsim.experiments.runs import run

RULES = ("importance_sampling", "dppo_top_k_kl", "spo")
SMALL = Config(
    regime="table", rules=RULES, precisions=("preset", "fp32"), iterations=3, seeds=3, bases=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def computed() -> dict[str, Any]:
    return {key: compute(SMALL, key) for key in tiles(SMALL)}


@pytest.fixture(scope="module")
def found(computed: dict[str, Any]) -> list[Row]:
    return rows(SMALL, computed)


def test_rows_have_distinct_keys(found: list[Row]) -> None:
    keys = [tuple(sorted((k, v) for k, v in row.items() if k not in MEASURED)) for row in found]
    assert len(set(keys)) == len(keys)


def test_rules_start_from_the_same_samples_and_seeds_do_not(computed: dict[str, Any]) -> None:
    first = {key: arrays["reward"][0] for key, arrays in computed.items()}
    for seed in range(3):
        assert len({first[f"{rule}@preset@{seed}"] for rule in RULES}) == 1
    assert len({first[f"spo@preset@{seed}"] for seed in range(3)}) > 1
    assert not np.array_equal(
        computed["spo@preset@0"]["reward"], computed["importance_sampling@preset@0"]["reward"]
    )


def test_a_difference_is_paired_by_seed(found: list[Row], computed: dict[str, Any]) -> None:
    gap = [
        computed[f"spo@fp32@{seed}"]["reward"].mean()
        - computed[f"dppo_top_k_kl@fp32@{seed}"]["reward"].mean()
        for seed in range(3)
    ]
    key = {"table": "difference", "precision": "fp32", "rule": "spo", "against": "dppo_top_k_kl"}
    one = find(found, quantity="reward_mean", **key)
    half = 4.302652729911275 * np.std(gap, ddof=1) / 3**0.5  # Student, two degrees of freedom
    assert one["value"] == pytest.approx(np.mean(gap), abs=1e-12)
    assert one["high"] - one["low"] == pytest.approx(2 * half, rel=1e-9)
    assert not select(found, rule="dppo_top_k_kl", against="dppo_top_k_kl")


def test_a_dead_run_is_told() -> None:
    dead, alive = ({name: np.full(12, level) for name in compare.CURVES} for level in (0.0, 0.5))
    runs = [one | {name: np.array(0.0) for name in compare.FINAL} for one in (dead, alive)]
    assert compare.summary(runs)["collapsed"].tolist() == [1.0, 0.0]


def test_processes_and_a_resume_change_nothing(tmp_path: Path) -> None:
    config = replace(SMALL, precisions=("preset",), iterations=2, seeds=2)
    run(EXPERIMENT, config, tmp_path / "a", processes=2)
    run(EXPERIMENT, config, tmp_path / "b", processes=1)
    lost = next((tmp_path / "b" / "tiles").iterdir())
    before = (tmp_path / "b" / "results.json").read_bytes()
    lost.unlink()
    run(EXPERIMENT, config, tmp_path / "b", processes=1, resume=True)
    for folder in ("a", "b"):
        assert (tmp_path / folder / "results.json").read_bytes() == before
        assert "torch" in (tmp_path / folder / "environment.json").read_text()


def test_seeds_are_spread_over_the_bases() -> None:
    config = replace(PRESETS["full"], bases=4, seed=100)
    bases = [run_config(config, "spo", "preset", seed).base_seed for seed in range(8)]
    assert bases == [100, 101, 102, 103] * 2
    assert run_config(config, "spo", "fp8-e2e", 0).precision == "fp8"


def test_presets_are_sound() -> None:
    for config in PRESETS.values():
        check(config)
    assert PRESETS["full"].seeds >= 20 and len(PRESETS["quick"].rules) == 6


def test_a_figure_has_a_panel_a_precision(found: list[Row]) -> None:
    (figure,) = figures(SMALL, found).values()
    assert [axis.get_title(loc="left") for axis in figure.axes[:2]] == ["preset", "fp32"]
    assert len(figure.axes) == 6 and all(len(axis.lines) == len(RULES) for axis in figure.axes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"regime": "mild"}, "regime 'mild' is unknown"),
        ({"rules": ("ppo",)}, "rules 'ppo' is unknown"),
        ({"rules": ("spo", "spo")}, "rules must be one or more distinct names"),
        ({"precisions": ("fp4",)}, "precisions 'fp4' is unknown"),
        ({"seeds": 1}, "seeds must be from 2 to 10,000, got 1"),
        ({"bases": 9}, "bases must be from 1 to the 3 seeds, got 9"),
        ({"seed": -1}, "seed must be >= 0"),
        ({"iterations": -3}, "iterations must be a finite number > 0"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(replace(SMALL, **change))


def test_the_command(tmp_path: Path) -> None:
    words = ["--regime", "table", "--rules", *RULES, "--precisions", "preset", "--iterations", "2"]
    words += ["--seeds", "2", "--bases", "1", "--out", str(tmp_path / "a")]
    call = [sys.executable, "-m", "divsim", "lm", "compare", *words]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "regime table" in done.stdout and "- no mask" in done.stdout and done.stderr == ""
    assert (tmp_path / "a" / "figures" / "learning.png").exists()
