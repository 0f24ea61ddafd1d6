"""`exact drpo`: weights against the papers' formulas, what a reversed weight does, and paired learning."""

import io
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from divsim.cli.drpo_tables import print_drpo
from divsim.experiments.drpo import EXPERIMENT, FULL, QUICK, check
from divsim.experiments.drpo_config import READING, Config, contrasts, learning_rules, soft_rules
from divsim.experiments.drpo_learning import LEARNING, MEASURES
from divsim.experiments.drpo_weights import BIN_NAMES, BINS, WEIGHTS, expected_pulls, region_names
from divsim.experiments.rows import Row, find, select
from divsim.experiments.runs import stream
from divsim.experiments.tails_config import Pairs
from divsim.tabular.policies import PolicyPair, sample_from

SMALL = replace(
    QUICK, tokens=160, seeds=3, environments=("bernoulli", "chain"), rates=(0.5, 1.0), rollouts=2,
    episodes=16, minibatches=4, learning_seeds=4,
    pairs=tuple(Pairs(world, "stale_16", 200) for world in ("language", "flat")),
)  # fmt: skip
CELL = "language-stale_16-200"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return EXPERIMENT.rows(SMALL, {key: EXPERIMENT.compute(SMALL, key) for key in EXPERIMENT.tiles(SMALL)})


Found = Mapping[str, np.ndarray[Any, Any]]


class Textbook:
    """The tokens of a tile again, in plain probabilities."""

    def __init__(self, config: Config) -> None:
        rng, pairs = stream(0, "x"), config.pairs_named(CELL)
        pair = pairs.family(rng, (config.tokens,), pairs.vocab)  # one block: its rows fit
        self.action = sample_from(rng, pair.log_mu)
        self.advantage = rng.standard_normal(config.tokens)
        self.mu, self.pi = np.exp(pair.log_mu), np.exp(pair.log_pi)
        at = np.arange(config.tokens), self.action
        self.mu_k, self.pi_k = self.mu[at], self.pi[at]
        self.kl = self.distance(self.pi)

    def distance(self, pi: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.sum(self.mu * np.log(self.mu / pi), axis=-1)

    def factor(self, rule: str) -> np.ndarray[Any, Any]:
        gap, side = self.pi_k - self.mu_k, np.sign(self.advantage)
        name, setting = rule.rstrip(")").split("(")
        radius = float(setting.split(",")[0])
        if name == "spo":
            return 1 - side * (self.pi_k / self.mu_k - 1) / radius
        active = np.abs(gap) > float(setting.split(",")[1]) if name == "mask_drpo" else True
        return 1 - active * side * gap / radius

    def moved(self, step: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """KL after the logit of the token moved by `step (1 - pi_k)`, and the others by `-step pi_i`."""
        logits = np.log(self.pi) - step[:, None] * self.pi
        logits[np.arange(len(step)), self.action] += step
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return self.distance(weights / weights.sum(axis=-1, keepdims=True))

    def regions(self) -> list[np.ndarray[Any, Any]]:
        outward = self.advantage * (self.pi_k - self.mu_k) > 0
        beyond = outward & (np.abs(self.pi_k - self.mu_k) > 0.15)
        return [np.full(len(outward), True), self.kl > 0.05, self.kl > 0.15, outward, beyond]


def check_weights(config: Config, found: Found, book: Textbook) -> None:
    for r, region in enumerate(book.regions()):
        assert found["tokens"][r] == region.sum() > 0
        for m, rule in enumerate(soft_rules(config)):
            factor = book.factor(rule)[region]
            away = np.abs(factor - 1)
            # sums of up to 160 factors up to 100; float64 with a cancellation of pi_k - mu_k
            np.testing.assert_allclose(found["deviation"][m, r], away.sum(), rtol=1e-9)
            np.testing.assert_allclose(found["largest"][m, r], away.max(), rtol=1e-9)
            assert found["negative"][m, r] == np.sum(factor < 0)
            counts = [np.sum((low <= factor) & (factor < high)) for low, high in pairwise(BINS)]
            assert found["bins"][:, m, r].tolist() == counts


def check_effects(config: Config, found: Found, book: Textbook) -> None:
    sides = book.pi_k - book.mu_k + np.sum(book.pi * (book.mu - book.pi), axis=-1)
    reversed_ever = 0
    for m, rule in enumerate(soft_rules(config)):
        factor = book.factor(rule)
        push = factor * book.pi_k / book.mu_k * book.advantage
        back, first = factor < 0, push * sides
        assert found["lowers"][m, 0] == np.sum(back & (first < 0))
        for s, step in enumerate(config.steps):
            real = book.moved(step * push) - book.kl
            sure = np.abs(real) > 1e-12  # rounding of a KL from logs
            assert np.all(sure[back])
            assert found["lowers_step"][s, m, 0] == np.sum(back & (real < 0))
            assert found["foretold"][s, m, 0] == np.sum(back & (real * first > 0))
        reversed_ever += int(back.sum())
    assert reversed_ever > 50


@pytest.fixture(scope="module")
def measured() -> tuple[Found, Textbook]:
    return WEIGHTS.compute(SMALL, CELL, stream(0, "x")), Textbook(SMALL)


def test_factors_are_those_of_the_papers(measured: tuple[Found, Textbook]) -> None:
    check_weights(SMALL, *measured)


def test_what_a_reversed_weight_does_is_what_kl_does(measured: tuple[Found, Textbook]) -> None:
    check_effects(SMALL, *measured)


@pytest.mark.parametrize("name", ["negative", "deviation", "bins", "largest", "tokens"])
def test_a_planted_error_in_the_weights_is_found(measured: tuple[Found, Textbook], name: str) -> None:
    found, book = measured
    with pytest.raises(AssertionError):
        check_weights(SMALL, {**found, name: np.roll(found[name], 1, axis=-1)}, book)


@pytest.mark.parametrize("name", ["lowers", "lowers_step", "foretold"])
def test_a_planted_error_in_the_effects_is_found(measured: tuple[Found, Textbook], name: str) -> None:
    found, book = measured
    with pytest.raises(AssertionError):
        check_effects(SMALL, {**found, name: found["negative"] - found[name]}, book)


def test_a_penalty_of_another_radius_is_found(measured: tuple[Found, Textbook]) -> None:
    other = replace(SMALL, deltas=(0.1, 0.15, 0.25, 1.0, 2.5, 12.5))
    with pytest.raises(AssertionError):
        check_weights(other, *measured)


def test_beyond_one_nothing_is_reversed_and_12_5_is_within_eight_per_cent(rows: list[Row]) -> None:
    for delta in (1.0, 2.5, READING):
        for row in select(rows, rule=f"drpo({delta:g})", quantity="negative_share"):
            assert row["value"] == 0
    widest = [row["value"] for row in select(rows, rule="drpo(12.5)", quantity="largest_deviation")]
    assert 0 < max(widest) <= 1 / READING
    inverse = select(rows, rule="drpo(0.08)", quantity="negative_share", region="beyond_0.15")
    assert inverse and all(row["value"] == 1 for row in inverse)


def test_the_factors_of_a_region_are_all_in_the_histogram(rows: list[Row]) -> None:
    for region in region_names(SMALL):
        for rule in soft_rules(SMALL):
            key = {"rule": rule, "region": region, "world": "language", "quantity": "histogram"}
            shares = [find(rows, factor=name, **key)["value"] for name in BIN_NAMES]
            assert sum(shares) == pytest.approx(1, abs=1e-12)


UNEVEN = PolicyPair(np.log(np.array([[5, 1, 1]]) / 7), np.log(np.array([[1, 2, 4]]) / 7))


def test_an_expected_pull_lowers_kl_if_advantages_are_alike_and_may_not_if_they_differ() -> None:
    """The counterexample of derivations, T9e: |A| = 60 just where c_k and pi_k - mu_k disagree."""
    found = expected_pulls(UNEVEN, np.array([[1.0, 60.0, 1.0]]))
    pi, mu = np.exp(UNEVEN.log_pi[0]), np.exp(UNEVEN.log_mu[0])
    variance = np.sum(pi * (pi - mu) ** 2) - np.sum(pi * (pi - mu)) ** 2
    assert found[0, 0] == pytest.approx(-variance, rel=1e-12)
    assert found[1, 0] > 0


def test_no_position_contradicts_the_theorem(rows: list[Row]) -> None:
    found = select(rows, quantity="expected_pull_raises", penalty="drpo, |A| constant")
    assert found and all(row["value"] == 0 and row["tokens"] == 480 for row in found)


def learned(config: Config, cell: str = "bernoulli-1") -> Found:
    return LEARNING.compute(config, cell, stream(0, "unused"))


def test_a_penalty_of_no_size_learns_as_none_at_all() -> None:
    found = learned(replace(SMALL, deltas=(1e12,)))
    names = list(learning_rules(replace(SMALL, deltas=(1e12,))))
    none, tiny = names.index("importance_sampling"), names.index("drpo(1e+12)")
    for name in MEASURES:  # factors differ from 1 by 1e-12, over 64 steps
        np.testing.assert_allclose(found[name][tiny], found[name][none], rtol=1e-8, atol=1e-10)
        assert not np.allclose(found[name][names.index("drpo(0.08)")], found[name][none], rtol=1e-3)


def test_a_seed_does_not_depend_on_how_many_there_are() -> None:
    few, more = (learned(replace(SMALL, learning_seeds=n)) for n in (2, 3))
    for name in MEASURES:
        np.testing.assert_allclose(few[name], more[name][:, :2], rtol=1e-12)


def test_one_rollout_is_its_own_mean() -> None:
    found = learned(replace(SMALL, rollouts=1))
    assert np.array_equal(found["first_kl"], found["kl"])
    assert np.array_equal(found["final_gain"], found["mean_gain"])
    assert np.all((found["first_gap"] > 0) & (found["first_gap"] < 1))
    two = learned(SMALL)
    assert np.array_equal(found["first_kl"], two["first_kl"]), "the first rollout knows no second"
    assert np.array_equal(found["first_gap"], two["first_gap"])
    # Pinsker in one state: |pi_k - mu_k| <= TV <= sqrt(KL / 2)
    assert np.all(found["first_gap"] <= np.sqrt(found["first_kl"] / 2))


def planted(config: Config) -> dict[str, np.ndarray[Any, Any]]:
    """A tile of known numbers: rule by rule one more, seed by seed one more."""
    rules = len(learning_rules(config))
    table = 1.0 + np.arange(rules)[:, None] + 100.0 * np.arange(config.learning_seeds)
    tile = dict.fromkeys(MEASURES, table) | {"collapsed": table % 2 == 0}
    return {name: array[None] for name, array in tile.items()}


def test_rows_of_learning_are_means_differences_and_geometric_ratios() -> None:
    tile = planted(SMALL)
    found = LEARNING.rows(SMALL, "chain-0.5", tile)
    names, table = list(learning_rules(SMALL)), tile["kl"][0]
    key = {"environment": "chain", "rate": "0.5"}
    assert find(found, table="learning", rule=names[3], quantity="kl", **key)["value"] == table[3].mean()
    assert find(found, table="learning", rule=names[1], quantity="collapsed", **key)["value"] == 1
    against = {"table": "learning_difference", "baseline": names[0], "rule": names[5], **key}
    assert find(found, quantity="final_gain", **against)["value"] == pytest.approx(5, abs=1e-12)
    ratio = np.exp(np.mean(np.log(table[5] / table[0])))
    assert find(found, quantity="kl_ratio", **against)["value"] == pytest.approx(ratio, rel=1e-12)
    assert len(select(found, quantity="mean_gain", table="learning_difference")) == len(contrasts(SMALL))


def test_radii_are_chosen_on_the_first_half_and_judged_on_the_second() -> None:
    tile = planted(SMALL)
    names = list(learning_rules(SMALL))
    gain, kl = np.zeros_like(tile["mean_gain"]), np.ones_like(tile["first_kl"])
    by_half = {
        "drpo(0.1)": (2, 5), "drpo(0.2)": (3, 7), "drpo(1)": (9, 9),
        "drpo_unweighted(0.08)": (4, 1), "drpo_unweighted(0.1)": (1, 8),
    }  # fmt: skip
    for rule, halves in by_half.items():
        gain[0, names.index(rule)] = np.repeat(halves, 2)
        kl[0, names.index(rule)] = 2.0 if rule == "drpo(1)" else 0.4
    found = LEARNING.rows(SMALL, "chain-0.5", {**tile, "mean_gain": gain, "first_kl": kl})
    chosen = find(found, table="learning_tuned", quantity="mean_gain")
    assert (chosen["rule"], chosen["baseline"], chosen["value"]) == ("drpo_unweighted(0.08)", "drpo(0.2)", -6)
    nobody = LEARNING.rows(SMALL, "chain-0.5", {**tile, "mean_gain": gain, "first_kl": np.ones_like(kl)})
    assert not select(nobody, table="learning_tuned")


def test_rows_tell_themselves_apart_and_tables_fit(rows: list[Row]) -> None:
    keys = [tuple(sorted((k, v) for k, v in row.items() if k not in
                         ("value", "low", "high", "tokens", "seeds", "p"))) for row in rows]  # fmt: skip
    assert len(set(keys)) == len(keys)
    text = io.StringIO()
    print_drpo(Console(file=text, width=80, color_system=None), SMALL, rows)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in text.getvalue()
    for words in ("12.5 read as a radius", "No penalty, 12.5 and 1/12.5", "Weights: flat", "Mask-DRPO"):
        assert any(words in line for line in lines)


def test_figures_show_every_rule_and_every_environment(rows: list[Row]) -> None:
    pytest.importorskip("matplotlib")
    figures = EXPERIMENT.figures(SMALL, rows)
    assert set(figures) == {"factors", "histogram", "learning"}
    labels = [label.get_text() for label in figures["histogram"].axes[0].get_yticklabels()]
    assert labels == list(soft_rules(SMALL))
    for panel in figures["histogram"].axes:
        assert sum(bar.get_width() for bar in panel.patches) == pytest.approx(100 * len(labels))
        ends: dict[float, float] = {}
        for bar in panel.patches:
            ends[bar.get_y()] = max(ends.get(bar.get_y(), 0.0), bar.get_x() + bar.get_width())
        assert list(ends.values()) == pytest.approx([100] * len(labels))
    assert len(figures["learning"].axes) == len(SMALL.environments) * len(SMALL.rates)
    drpo = figures["factors"].axes[2].lines[4]  # against the gap, delta = .15
    assert np.interp(0.15, *drpo.get_data()) == pytest.approx(0, abs=1e-9)


def test_presets_are_sound() -> None:
    for config in (QUICK, FULL):
        check(config)
        assert len(set(EXPERIMENT.tiles(config))) == len(EXPERIMENT.tiles(config))
    assert FULL.radii == (0.08, 0.1, 0.15, 0.2, 1.0, 2.5, 12.5) and FULL.learning_seeds >= 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"deltas": (0.1, -0.1)}, "delta must be a finite number > 0, got -0.1"),
        ({"deltas": (0.1, 0.1)}, "delta must be one or more, each once, got 0.1, 0.1"),
        ({"deltas": ()}, "delta must be one or more, each once, got none"),
        ({"widths": (0.0,)}, "width must be a finite number > 0, got 0"),
        ({"rates": (float("nan"),)}, "rate must be a finite number > 0, got nan"),
        ({"steps": (float("inf"),)}, "step must be a finite number > 0, got inf"),
        ({"far": (-1.0,)}, "delta must be from 1e-12 to 10000, got -1.0"),
        ({"environments": ("moon",)}, "world 'moon' is unknown"),
        (
            {"environments": ("chain", "chain")},
            "world must be one or more, each once, got chain, chain",
        ),
        ({"pairs": (Pairs("flt", "engine", 9),)}, "world 'flt' is unknown"),
        ({"pairs": (Pairs("flat", "motor", 9),)}, "mismatch 'motor' is unknown"),
        ({"pairs": (Pairs("flat", "engine", 1),)}, "vocab must be from 2 to 16,777,216 tokens, got 1"),
        ({"pairs": ()}, "mismatch must be one or more"),
        ({"tokens": 0}, "tokens must be from 1 to 1,000,000, got 0"),
        ({"tokens": 10**9}, "tokens must be from 1 to 1,000,000, got 1000000000"),
        ({"seeds": 1}, "seeds must be from 2 to 10,000, got 1; an interval needs two"),
        ({"learning_seeds": 1}, "seeds must be from 4 to 10,000, got 1; half choose"),
        ({"minibatches": 5}, "minibatches must divide episodes, got 5 and 16"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(replace(SMALL, **change))
