"""The parts of `exact direction` on small settings: what must come out whatever the seed."""

from collections import Counter
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest

from divsim.experiments import direction_certain, direction_divergences, direction_own
from divsim.experiments.agreement_rows import risk_difference_by_seed
from divsim.experiments.direction import EXPERIMENT, FULL, PARTS, QUICK, check
from divsim.experiments.direction_batch import MASKED
from divsim.experiments.direction_config import RATES, STEPS, Config
from divsim.experiments.parts import Part
from divsim.experiments.prototype import compare
from divsim.experiments.rows import MEASURED, Row, find, select
from divsim.experiments.runs import stream
from divsim.formulas import DIVERGENCES, exponential_path, log_softmax, policy_gradient_direction
from divsim.tabular import lines
from divsim.tabular.agreement import TESTS, region_names
from divsim.tabular.policies import PolicyPair, sample_from

SMALL = replace(
    QUICK, vocab=200, tokens=40, seeds=3, divergence_tokens=24, certain_tokens=30, batch_tokens=48,
    mismatches=("noise_0.5", "stale_16"), batch=("sgd", "adam"),
)  # fmt: skip
BY_NAME = {part.name: part for part in PARTS}


def measured(part: Part[Config], config: Config = SMALL) -> list[Row]:
    tiles = {
        f"{part.name}@{cell}@{seed}": part.compute(config, cell, stream(0, f"{part.name}@{cell}@{seed}"))
        for cell in part.cells(config)
        for seed in range(part.seeds(config))
    }
    return [
        row
        for cell in part.cells(config)
        for row in part.rows(config, cell, {
            name: np.stack([tiles[f"{part.name}@{cell}@{seed}"][name] for seed in range(part.seeds(config))])
            for name in tiles[f"{part.name}@{cell}@0"]
        })
    ]  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Row]]:
    return {part.name: measured(part) for part in PARTS}


def test_no_two_rows_have_the_same_key(rows: dict[str, list[Row]]) -> None:
    keys = Counter(
        tuple(sorted((name, value) for name, value in row.items() if name not in MEASURED))
        for part in rows.values()
        for row in part
    )
    assert max(keys.values()) == 1


def test_every_value_lies_in_its_interval(rows: dict[str, list[Row]]) -> None:
    for row in (row for part in rows.values() for row in part if row["low"] is not None):
        assert row["low"] <= row["value"] <= row["high"], row


@pytest.mark.parametrize("mismatch", SMALL.mismatches)
@pytest.mark.parametrize(
    ("geometry", "test"),
    [("euclidean", "forward_kl/full"), ("natural", "ratio"), ("sign", "ratio"), *((g, "own_rate") for g in
     ("euclidean", "natural", "sign", "linear_head"))],
)  # fmt: skip
def test_the_right_test_is_always_right_below_the_flip(
    rows: dict[str, list[Row]], mismatch: str, geometry: str, test: str
) -> None:
    key = {
        "mismatch": mismatch,
        "geometry": geometry,
        "test": test,
        "quantity": "accuracy",
        "region": "far_0.05",
    }
    for step in (step for step in STEPS if step < 1):
        assert find(rows["own"], step=f"{step:g}", **key)["value"] == 1.0


def test_beyond_the_flip_everything_rises(rows: dict[str, list[Row]]) -> None:
    found = select(rows["own"], step="1.5", quantity="base_rate")
    assert found and all(row["value"] == 1.0 for row in found)


def test_on_the_disagreement_set_each_test_is_the_others_opposite(rows: dict[str, list[Row]]) -> None:
    for row in select(rows["own"], region="disagree", test="ratio", quantity="accuracy"):
        place = {name: value for name, value in row.items() if name not in (*MEASURED, "test")}
        other = select(rows["own"], test="forward_kl/full", **place)
        assert other and other[0]["value"] == pytest.approx(1 - row["value"], abs=1e-12)


def test_counts_of_the_tables_are_the_tokens() -> None:
    part = BY_NAME["own"]
    arrays = part.compute(SMALL, "stale_16", stream(0, "x"))
    assert arrays["tokens"][0] == SMALL.tokens
    places = len(region_names(SMALL.deltas))
    for geometry in ("euclidean", "natural", "sign"):
        table = arrays[f"absolute.{geometry}"]
        assert table.shape[1:] == (len(RATES), places, 2, 2)
        assert np.all(table.sum(axis=(-2, -1)) == arrays["tokens"])


def test_expectations_are_zero_to_rounding_and_covered(rows: dict[str, list[Row]]) -> None:
    enumerated = select(rows["certain"], quantity="enumerated_error")
    assert len(enumerated) == 4 * 20 and max(row["value"] for row in enumerated) < 1e-14
    sampled = select(rows["certain"], quantity="sampled")
    covered = sum(row["low"] <= 0 <= row["high"] for row in sampled)
    assert covered >= 0.85 * len(sampled)  # 95 % are expected; of 80, fewer than 68 has probability 1e-4


def test_full_forward_kl_has_no_false_block(rows: dict[str, list[Row]]) -> None:
    assert all(row["value"] == 0 for row in select(rows["certain"], quantity="false_block_share"))
    for convex in ("forward_kl", "chi2_mu_pi"):
        found = select(rows["divergence"], table="false_blocks", divergence=convex, geometry="euclidean")
        assert found and all(row["value"] == 0 for row in found)


def test_exact_arithmetic_finds_a_planted_false_block() -> None:
    pi, mu = np.log(np.array([0.2, 0.3, 0.5])), np.log(np.array([0.5, 0.3, 0.2]))
    truth = direction_certain._is_false_block(mu, pi, 0, -0.1)
    assert truth is False, "lowering a token that is already too rare raises KL, as predicted"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mpmath, "log1p", lambda x: -1)  # a realised change that is far too low
        assert direction_certain._is_false_block(mu, pi, 0, -0.1) is True


def test_the_ratio_is_the_natural_gradient_of_free_logits_and_not_of_a_narrow_head(
    rows: dict[str, list[Row]],
) -> None:
    for row in select(rows["rank"], rank="saturated") + select(rows["rank"], rank="49"):
        assert row["value"] == 1.0, row
    assert find(rows["rank"], world="zipf", rank="2")["high"] < 1


def test_the_minibatch_keeps_four_questions_apart(rows: dict[str, list[Row]]) -> None:
    found = select(rows["batch"], setting="sgd", region="all", quantity="accuracy")
    assert {row["estimand"] for row in found} == {"own", "marginal", "marginal_total", "whole"}
    right = {row["test"]: row["value"] for row in found if row["estimand"] == "own"}
    assert right["own_rate"] == pytest.approx(right["forward_kl/full"], abs=1e-12), "SGD is the plain step"
    whole = {row["test"]: row["value"] for row in found if row["estimand"] == "whole"}
    assert whole["whole_rate"] > whole["ratio"]


def test_a_risk_difference_by_hand() -> None:
    counts = np.array([[[6, 2], [1, 3]]])  # kept: 2 of 8 rise; dropped: 3 of 4 rise
    assert risk_difference_by_seed(counts).tolist() == [0.75 - 0.25]


def test_every_number_of_the_prototype_has_a_row_of_ours(rows: dict[str, list[Row]]) -> None:
    whole = replace(SMALL, mismatches=FULL.mismatches, seeds=2, tokens=30)
    found = compare("direction", measured(BY_NAME["own"], whole) + rows["rank"])
    missing = [comparison.key for comparison in found if comparison.ours is None]
    # with so few tokens some regions are empty; none of the whole vocabulary may be
    assert all("far" in str(key.get("region")) or "disagree" in str(key.get("region")) for key in missing), (
        missing
    )


def test_presets_are_sound_and_cut_into_tiles() -> None:
    for config in (QUICK, FULL):
        check(config)
        tiles = EXPERIMENT.tiles(config)
        assert len(set(tiles)) == len(tiles)
    assert FULL.seeds == 61
    # one million tokens are asked for false blocks
    assert FULL.certain_tokens * FULL.seeds * len(BY_NAME["certain"].cells(FULL)) >= 10**6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": 201}, "k must be at most the vocabulary, got k = 201 and vocab = 200"),
        ({"k": 0}, "k must be a finite number > 0, got 0"),
        ({"deltas": (0.0,)}, "delta must be from 1e-12 to 10000, got 0.0"),
        ({"deltas": (float("nan"),)}, "delta must be from 1e-12 to 10000, got nan"),
        ({"deltas": (0.05, 0.05)}, "delta must be one or more distinct radii"),
        ({"world": "flt"}, "world 'flt' is unknown; it must be one of language, flat"),
        ({"mismatches": ("noise",)}, "mismatch 'noise' is unknown; it must be one of"),
        ({"mismatches": ("engine", "engine")}, "mismatch must not repeat"),
        ({"vocab": 1, "k": 1}, "vocab must be from 2 to 16,777,216 tokens, got 1"),
        ({"seeds": 1}, "seeds must be from 2 to 10,000, got 1"),
        ({"tokens": -1}, "tokens must be from 1 to 1,000,000, got -1"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(replace(SMALL, **change))


def test_relative_steps_leave_out_tokens_without_a_flip_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flip that rounding hides is too rare for a small run, so every third one is hidden here."""
    seen = lines.flip_step

    def hidden(along: lines.Line) -> Any:
        return np.where(np.arange(len(seen(along))) % 3 == 0, np.nan, seen(along))

    monkeypatch.setattr(direction_own, "flip_step", hidden)
    arrays = BY_NAME["own"].compute(SMALL, "stale_16", stream(0, "x"))
    for geometry in ("euclidean", "natural", "sign", "linear_head"):
        table = arrays[f"relative.{geometry}"]
        judged = table.sum(axis=(-2, -1))
        assert table.shape[1:] == (len(STEPS), len(region_names(SMALL.deltas)), 2, 2)
        assert np.all(judged[:, :, 0] == arrays[f"flip.{geometry}"].sum())
        assert np.all(judged <= arrays["tokens"])
        assert SMALL.tokens / 2 < judged[0, 0, 0] < SMALL.tokens


def false_blocks(name: str, pair: PolicyPair, action: Any, advantage: Any, k: int, step: float) -> int:
    """Predicted increases that did not come, as the part counts them."""
    direction = policy_gradient_direction(pair.log_pi, action)
    after = [exponential_path(pair.log_pi, direction, (step * advantage)[:, None] * np.ones((1, 1)))]
    config = replace(SMALL, k=k)
    counts = direction_divergences._judge(config, name, pair, action, advantage, after)["counts"]
    return int(counts[TESTS.index("full"), 0, 0, 1, 0])


@pytest.mark.parametrize("name", DIVERGENCES)
def test_only_divergences_that_are_not_convex_have_false_blocks(name: str) -> None:
    """Four tokens, plain steps of 3 and 15: 20,000 pairs show dozens for each divergence that has any."""
    rng = np.random.default_rng(0)
    pair = PolicyPair(*(np.log(rng.dirichlet(np.full(4, 0.5), 20_000)) for _ in range(2)))
    action, advantage = sample_from(rng, pair.log_mu), rng.choice([-1.0, 1.0], 20_000)
    found = sum(false_blocks(name, pair, action, advantage, 1, step) for step in (3.0, 15.0))
    assert (found == 0) is (name in ("forward_kl", "chi2_mu_pi")), found


def test_the_lumped_divergence_has_the_false_block_of_the_smallest_vocabulary() -> None:
    """Too rare for random pairs: four tokens, a step of -15 on the second; forward KL itself rises."""
    mu, pi = (np.log(np.array([p]) / 1000) for p in ([334, 1, 333, 332], [470, 1, 495, 34]))
    pair, action, advantage = PolicyPair(mu, pi), np.array([1]), np.array([-1.0])
    assert false_blocks("lumped", pair, action, advantage, 1, 15.0) == 1
    assert false_blocks("forward_kl", pair, action, advantage, 1, 15.0) == 0


def certain_tokens(count: int = 6) -> tuple[PolicyPair, np.random.Generator]:
    rng = np.random.default_rng(2)
    return PolicyPair(*(log_softmax(rng.standard_normal((count, 5))) for _ in range(2))), rng


def test_what_floating_point_suspects_exact_arithmetic_acquits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direction_certain, "finite_change", lambda log_mu, log_pi, v: -np.ones(len(log_pi)))
    tried, suspects, confirmed = direction_certain._false_blocks(*certain_tokens())
    assert tried == suspects > 0 == confirmed


def test_a_confirmed_false_block_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direction_certain, "finite_change", lambda log_mu, log_pi, v: -np.ones(len(log_pi)))
    monkeypatch.setattr(direction_certain, "_is_false_block", lambda *token: True)
    blocked = direction_certain._false_blocks(*certain_tokens())
    assert blocked[2] == blocked[0] > 0
    nothing = {"sampled": np.zeros((2, 4)), "enumerated": np.zeros((2, 4))}
    found = direction_certain.rows(SMALL, "zipf-10", {"blocked": np.stack([blocked] * 2), **nothing})
    assert find(found, quantity="false_block_share")["value"] == 1.0


def test_every_test_masks_an_update_of_its_own_and_is_judged_on_it(rows: dict[str, list[Row]]) -> None:
    for setting in SMALL.batch:
        found = select(rows["batch"], table="unsafe_keep", setting=setting)
        judged = {row["test"] for row in select(found, quantity="unsafe_keep")}
        compared = {row["test"] for row in select(found, quantity="unsafe_keep_minus_ratio")}
        assert len(judged) == len(MASKED) and compared == judged - {"ratio"} and "always" not in judged
    counts = BY_NAME["batch"].compute(SMALL, "sgd", stream(0, "batch@sgd@0"))
    rose, kept = counts["unsafe"].T
    assert np.all((rose >= 0) & (rose <= kept)) and kept.max() <= counts["disagree"][0]
    sums = counts["counts"].sum(axis=(-2, -1))
    assert np.all(sums == counts["tokens"]), "every estimand of every test judges every token once"
