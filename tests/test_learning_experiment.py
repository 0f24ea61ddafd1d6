"""`exact bandit` and `exact mdp` on small settings: tries, matched comparisons, the yardstick, refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from divsim.experiments import bandit, frontier, learning, matching, mdp
from divsim.experiments.learners import LEARNERS, Setting, radii, scaled_rule, settings
from divsim.experiments.learning_config import Config, conditions
from divsim.experiments.learning_figures import FIGURES, figures
from divsim.experiments.learning_runs import DISTINCT, PRESETS, check, compute, rows, tiles
from divsim.experiments.rows import MEASURED, Row, find, select
from divsim.formulas import RULES

SMALL = Config(
    environments=("bernoulli", "tree"), learners=("importance_sampling", "ppo_clip", "drpo", "trpo", "tv"),
    rates=(1.0, 4.0), scales=(0.3, 1.0), rollouts=4, episodes=16, minibatches=(4,), seeds=5, tuning_seeds=3,
    step_minibatches=8, kl_targets=(0.01, 0.1), drop_targets=(0.2,),
)  # fmt: skip


@pytest.fixture(scope="module")
def computed() -> dict[str, Any]:
    return {key: compute(SMALL, key) for key in tiles(SMALL)}


@pytest.fixture(scope="module")
def found(computed: dict[str, Any]) -> list[Row]:
    return rows(SMALL, computed)


def test_every_learner_has_as_many_tries() -> None:
    for config in (SMALL, PRESETS["bandit"]["full"]):
        counts = {len(settings(config, learner)) for learner in LEARNERS}
        assert counts == {len(config.rates) * len(config.scales)}
        assert all(len(set(settings(config, learner))) == counts.copy().pop() for learner in LEARNERS)


@pytest.mark.parametrize("rule", RULES)
def test_a_scaled_rule_has_scaled_radii(rule: str) -> None:
    scaled = scaled_rule(rule, 2.0)
    assert (scaled.name == RULES[rule]().name) == (not radii(rule))
    if not rule.endswith(("_kl", "_tv", "certified")):
        assert scaled_rule(rule, 1.0).name == RULES[rule]().name


@pytest.mark.parametrize("divergence", ["kl", "tv"])
def test_rules_of_one_divergence_try_the_same_radii(divergence: str) -> None:
    assert len({radii(rule)["delta"] for rule in RULES if rule.endswith(divergence)}) == 1


def test_rows_have_distinct_keys(found: list[Row]) -> None:
    keys = [tuple(sorted((k, v) for k, v in row.items() if k not in MEASURED)) for row in found]
    assert len(set(keys)) == len(keys)


def test_a_try_is_the_mean_over_its_seeds(found: list[Row], computed: dict[str, Any]) -> None:
    arrays = computed["learn@tree-4-0@drpo@4-0.3@test"]
    one = find(
        found, table="tries", environment="tree", learner="drpo", setting="rate 4, radius 0.3", quantity="kl"
    )
    assert one["value"] == pytest.approx(np.mean(arrays["kl"]), rel=1e-12) and one["seeds"] == 5
    gain = arrays["gain"]
    assert gain.shape == (5, 5) and np.all(gain[:, 0] == 0) and np.all(gain <= 1 + 1e-12)


def test_learners_see_the_same_worlds_and_phases_do_not(computed: dict[str, Any]) -> None:
    starts = [
        computed[f"step@tree-8-0@{learner}@1"]["yardstick"].shape[0] for learner in ("ppo_clip", "drpo")
    ]
    assert starts == [5, 5]
    test, other, tune = (
        computed[f"learn@tree-4-0@{learner}@{settings(SMALL, learner)[1].key}@{phase}"]["along"][:3, 0]
        for learner, phase in (("importance_sampling", "test"), ("ppo_clip", "test"), ("ppo_clip", "tune"))
    )
    rate = [settings(SMALL, learner)[1].rate for learner in ("importance_sampling", "ppo_clip")]
    assert rate[0] != rate[1] and not np.any(test == tune) and not np.any(other == tune)


def tried(**arrays: list[list[float]]) -> matching.Tried:
    """Tries of two tuning seeds each, from (kl, drop, gain)."""
    return {
        Setting(float(place), 1.0): {
            "kl": np.array([kl, kl]), "drop": np.array([drop, drop]), "mean_gain": np.array([gain, gain])
        }
        for place, (kl, drop, gain) in enumerate(arrays["tries"])
    }  # fmt: skip


def test_what_is_chosen_matches_and_gains_most() -> None:
    tries = tried(tries=[[0.001, 0.5, 0.2], [0.02, 0.21, 0.5], [0.02, 0.05, 0.4], [0.5, 0.2, 0.9]])
    for kind, target, expected in (
        ("tuned", 0.0, {3: 1.0}),
        ("kl", 0.02, {1: 1.0}),
        ("kl", 0.0105, {0: 0.5, 1: 0.5}),
        ("kl", 0.26, {1: 0.5, 3: 0.5}),
        ("kl", 9.0, {3: 1.0}),
        ("drop", 0.2, {3: 1.0}),
        ("drop", 0.35, {0: 0.5, 3: 0.5}),
        ("drop", 0.05, {2: 1.0}),
    ):
        coin = matching.choose(tries, kind, target)
        assert coin is not None
        assert {setting.rate: chance for setting, chance in coin.items()} == pytest.approx(expected), kind
    for kind, target in (("kl", 0.0001), ("drop", 0.9), ("drop", 0.01)):
        assert matching.choose(tries, kind, target) is None


@pytest.mark.parametrize("kind", ["kl", "drop"])
def test_no_mixture_of_tries_that_fits_gains_more(kind: str) -> None:
    """Against every pair of tries that meets the target, and every single one: the ends of the program."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        kl, drop, gain = rng.random((3, 8))
        tries = tried(tries=np.stack([kl, drop, gain], axis=-1).tolist())
        limited, target = (kl, 0.4) if kind == "kl" else (drop, 0.4)
        coin = matching.choose(tries, kind, target)
        assert coin is not None and 1 <= len(coin) <= 2 and sum(coin.values()) == pytest.approx(1)
        chance = np.array([coin.get(setting, 0.0) for setting in tries])
        assert chance @ limited == pytest.approx(target) or (kind == "kl" and chance @ limited < target)
        pairs = [
            ((high - target) * below + (target - low) * above) / (high - low)
            for low, below in zip(limited, gain, strict=True)
            for high, above in zip(limited, gain, strict=True)
            if low <= target < high
        ]
        single = np.max(gain[limited <= target], initial=0.0) if kind == "kl" else 0.0
        assert chance @ gain == pytest.approx(max([*pairs, single]), rel=1e-9)


def test_a_try_of_infinite_kl_or_without_a_mask_is_no_match() -> None:
    tries = tried(tries=[[np.inf, np.nan, 0.9], [0.5, np.nan, 0.2]])
    assert matching.choose(tries, "kl", 1.0) == {Setting(1.0, 1.0): 1.0}
    assert matching.choose(tries, "drop", 0.2) is None
    assert matching.choose(tries, "tuned", 0.0) == {Setting(0.0, 1.0): 1.0}


def test_a_choice_is_made_on_the_tuning_seeds_and_judged_on_others(
    found: list[Row], computed: dict[str, Any]
) -> None:
    def tuned(learner: str) -> np.ndarray:
        tries = [setting.key for setting in settings(SMALL, learner)]
        means = [computed[f"learn@tree-4-0@{learner}@{key}@tune"]["mean_gain"].mean() for key in tries]
        return np.asarray(
            computed[f"learn@tree-4-0@{learner}@{tries[int(np.argmax(means))]}@test"]["mean_gain"]
        )

    judged, theirs = tuned("ppo_clip"), tuned("importance_sampling")
    key = {"table": "matched", "environment": "tree", "learner": "ppo_clip", "match": "tuned"}
    assert find(found, quantity="mean_gain", **key)["value"] == pytest.approx(judged.mean(), rel=1e-12)
    gap = find(found, quantity="mean_gain_difference", against="importance_sampling", **key)
    assert gap["value"] == pytest.approx(np.mean(judged - theirs), abs=1e-12) and 0 < gap["p"] <= 1
    assert not select(found, learner="importance_sampling", against="importance_sampling")


def test_a_match_keeps_its_budget_on_the_tuning_seeds(computed: dict[str, Any]) -> None:
    for learner in SMALL.learners:
        tries = {
            setting: computed[f"learn@tree-4-0@{learner}@{setting.key}@tune"]
            for setting in settings(SMALL, learner)
        }
        coin = matching.choose(tries, "kl", 0.1)
        assert coin is None or matching.tossed(coin, tries, "kl").mean() <= 0.1 + 1e-12


def test_nobody_beats_the_yardstick_and_the_exact_step_is_it(found: list[Row]) -> None:
    steps = select(found, table="step")
    assert select(steps, quantity="beaten") and all(
        row["value"] == 0 for row in select(steps, quantity="beaten")
    )
    for environment in SMALL.environments:
        regret = find(steps, environment=environment, learner="trpo", radius=1.0, quantity="regret")
        assert abs(regret["value"]) < 1e-6  # the radius is met to 1e-8, and the surrogate grows as its root
        clip = find(steps, environment=environment, learner="ppo_clip", radius=1.0, quantity="regret")
        assert 0 < clip["value"] < 1
    assert all(row["value"] == 0 for row in select(steps, environment="bernoulli", quantity="return_above"))
    assert find(steps, environment="tree", learner="trpo", radius=1.0, quantity="return_above")["value"] > 0.5


def test_a_planted_gain_is_found_to_beat_the_yardstick(computed: dict[str, Any]) -> None:
    better = {key: dict(arrays) for key, arrays in computed.items() if key.startswith("step@")}
    key = "step@tree-8-0@ppo_clip@1"
    better[key]["promised"] = better[key]["yardstick"] + 1e-6
    judged = find(
        frontier.rows(SMALL, better), environment="tree", learner="ppo_clip", radius=1.0, quantity="beaten"
    )
    assert judged["value"] == 1


def test_the_frontier_is_a_share_that_grows(found: list[Row]) -> None:
    for environment in SMALL.environments:
        values = [
            row["value"]
            for row in select(found, table="frontier", environment=environment, quantity="promised")
        ]
        assert np.all(np.diff(values) > 0) and 0 < values[0] < 0.1 < 0.9 < values[-1] <= 1


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        ([0, 0.4, 0.8, 0.3, 0.1], 3),
        ([0, 0.4, 0.1, 0.5, 0.6], None),
        ([0, 0.05, 0, 0, 0], None),
        ([0, 1, 0.5, 0.4, 0.6], None),
    ],
)
def test_collapse_is_a_loss_for_good(gain: list[float], expected: int | None) -> None:
    (when,) = learning.collapse(np.array([gain], dtype=float))
    assert np.isnan(when) if expected is None else when == expected


def test_all_rules_try_the_same_range_of_rates() -> None:
    for config in (PRESETS["bandit"]["full"], PRESETS["mdp"]["full"]):
        for rule in RULES:
            rates = [setting.rate for setting in settings(config, rule)]
            assert (min(rates), max(rates)) == (min(config.rates), max(config.rates)), rule


def test_a_run_that_ends_below_its_start_has_failed() -> None:
    arrays = {"collapse": np.array([np.nan, 3.0, np.nan]), "final_gain": np.array([-0.2, 0.3, 0.9])}
    assert matching.failed(arrays).value == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("setting", "at_an_edge"),
    [
        (Setting(1.0, 0.3), True),
        (Setting(4.0, 0.3), False),
        (Setting(4.0, 1.0), True),
        (Setting(16.0, 0.3), True),
    ],
)
def test_a_choice_at_the_edge_is_told(setting: Setting, at_an_edge: bool) -> None:
    config = replace(SMALL, rates=(1.0, 4.0, 16.0))
    assert matching.is_at_an_edge(config, "ppo_clip", setting) == at_an_edge


def test_kl_along_a_rollout_is_shown_at_one_rate_for_all(found: list[Row]) -> None:
    shown = {row["setting"].split(",")[0] for row in select(found, table="along") if row["learner"] in RULES}
    assert shown == {"rate 4"}


def test_conditions_sweep_minibatches_and_k() -> None:
    config = replace(SMALL, minibatches=(1, 4), ks=(2, 3))
    assert len(conditions(config)) == 2 * 2 * 2
    assert {condition.key["k"] for condition in conditions(config)} == {2, 3}


def test_presets_are_sound() -> None:
    for presets in PRESETS.values():
        for config in presets.values():
            check(config)
            assert config.seeds >= 8 and set(config.learners) <= set(LEARNERS)
        assert presets["full"].seeds >= 20
    assert set(PRESETS["bandit"]["full"].learners) == set(LEARNERS) and len(DISTINCT) == len(set(DISTINCT))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"environments": ("moon",)}, "world 'moon' is unknown"),
        ({"environments": ()}, "world must be one or more distinct values"),
        ({"learners": ("ppo",)}, "rules 'ppo' is unknown"),
        ({"learners": ("drpo", "drpo")}, "rules must be one or more distinct"),
        ({"advantage": "best"}, "advantage 'best' is unknown"),
        ({"minibatches": (3,)}, "minibatches must divide the 16 episodes of a rollout, got 3"),
        ({"minibatches": (0,)}, "minibatches must be a finite number > 0"),
        ({"scales": (-1.0,)}, "delta must be a finite number > 0, got -1.0"),
        ({"ks": (0,)}, "k must be a finite number > 0, got 0"),
        ({"engine_noise": 1000.0}, "noise must be at most 100 nats, got 1000.0"),
        ({"passes": 10**12}, "passes must be at most 1,000,000"),
        ({"engine_noise": float("nan")}, "noise must be a finite number >= 0"),
        ({"seeds": 1}, "seeds must be from 2 to 10,000, got 1"),
        ({"seeds": 10**8}, "seeds must be from 2 to 10,000"),
        ({"ks": (2, 2)}, "k must be one or more distinct values"),
        ({"seed": -1}, "seed must be >= 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(replace(SMALL, **change))


def test_each_command_has_worlds_of_its_own() -> None:
    for module, other in ((bandit, "chain"), (mdp, "bernoulli")):
        for config in module.PRESETS.values():
            module.check(config)
        with pytest.raises(ValueError, match=f"world '{other}' is unknown"):
            module.check(replace(SMALL, environments=(other,)))


def test_figures_show_every_condition(found: list[Row]) -> None:
    drawn = figures(SMALL, found)
    assert set(drawn) == set(FIGURES)
    for figure in drawn.values():
        titles = [axis.get_title(loc="left") for axis in figure.axes]
        assert titles == list(SMALL.environments)
