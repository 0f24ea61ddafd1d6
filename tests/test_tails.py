"""The parts of `exact tails` on small settings, against the textbook sums."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from divsim.experiments.rows import Row, find, select
from divsim.experiments.runs import stream
from divsim.experiments.tails import EXPERIMENT, FULL, QUICK, check, chosen
from divsim.experiments.tails_certificate import CERTIFICATE
from divsim.experiments.tails_config import Config, Pairs
from divsim.experiments.tails_estimators import ESTIMATOR, ESTIMATORS
from divsim.tabular.agreement import region_names
from divsim.tabular.policies import sample_from

SMALL = replace(
    QUICK, seeds=3, most_tokens=60,
    pairs=(
        *(Pairs(world, "noise_0.5", 200) for world in ("language", "flat")),
        Pairs("peaked", "independent", 100),
    ),
)  # fmt: skip


def measured(config: Config = SMALL) -> list[Row]:
    found = []
    for part in (ESTIMATOR, CERTIFICATE):
        for cell in part.cells(config):
            seeds = [part.compute(config, cell, stream(0, f"{cell}@{seed}")) for seed in range(config.seeds)]
            found += part.rows(config, cell, {n: np.stack([seed[n] for seed in seeds]) for n in seeds[0]})
    return found


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return measured()


def textbook(mu: np.ndarray, pi: np.ndarray, k: int, top: int) -> dict[str, float]:
    """c_k and its estimates from the sums of the papers, for one token."""
    support = {*np.argsort(-mu)[:top].tolist(), k}
    tail = [i for i in range(len(mu)) if i not in support]
    base = pi[k] - mu[k] + sum(pi[i] * (mu[i] - pi[i]) for i in support)
    mass_mu, mass_pi = sum(mu[i] for i in tail), sum(pi[i] for i in tail)
    gap, squares = mass_mu - mass_pi, sum(pi[i] ** 2 for i in tail)
    return {
        "exact": base + sum(pi[i] * (mu[i] - pi[i]) for i in tail),
        "aggregated": base + mass_pi * gap,
        "uniform": base + mass_pi * gap / len(tail),
        "proportional": base + squares * gap / mass_pi,
        "zero": base,
    }


@pytest.mark.parametrize("cell", [pairs.name for pairs in SMALL.pairs])
def test_errors_and_flips_are_those_of_the_textbook(cell: str) -> None:
    config = replace(SMALL, most_tokens=25, sizes=(5, 20))
    pairs = config.pairs_named(cell)
    found = ESTIMATOR.compute(config, cell, stream(0, "x"))
    rng = stream(0, "x")  # the same tokens again: one block
    pair = pairs.family(rng, (25,), pairs.vocab)
    action = sample_from(rng, pair.log_mu)
    mu, pi = np.exp(pair.log_mu), np.exp(pair.log_pi)
    for s, top in enumerate(config.sizes):
        sums = [textbook(mu[t], pi[t], int(action[t]), top) for t in range(25)]
        for e, name in enumerate(ESTIMATORS):
            errors = [one[name] - one["exact"] for one in sums]
            np.testing.assert_allclose(
                found["errors"][s, e, 0], sum(errors), atol=1e-13
            )  # 25 sums of terms < 1
            assert found["flips"][s, e, 0] == sum(one[name] * one["exact"] < 0 for one in sums)


def test_no_exact_value_lies_outside_its_interval(rows: list[Row]) -> None:
    found = select(rows, quantity="outside_interval_share")
    assert found and all(row["value"] == 0 for row in found)


def test_a_stated_error_certifies_nothing_wrong_and_an_unstated_one_does(rows: list[Row]) -> None:
    stated = select(rows, quantity="wrong_share", error_is="stated")
    assert stated and all(row["value"] in (0, None) for row in stated)
    unstated = select(
        rows, quantity="wrong_share", error_is="not stated", log_mu_error="0.05", world="language"
    )
    assert unstated[0]["value"] > 0


def test_more_tokens_in_sight_miss_less(rows: list[Row]) -> None:
    for pairs in SMALL.pairs:
        missed = [
            find(rows, region="all", k=k, quantity="missed_kl_share", **pairs.key)["value"]
            for k in SMALL.sizes
            if k < pairs.vocab
        ]
        assert missed == sorted(missed, reverse=True) and 0 <= missed[-1] < missed[0] <= 1


def test_in_the_flat_world_the_aggregated_tail_is_the_worst(rows: list[Row]) -> None:
    key = {"world": "flat", "region": "all", "k": 20, "quantity": "flip_rate"}
    flips = {name: find(rows, tail=name, **key) for name in ESTIMATORS}
    assert flips["aggregated"]["low"] > flips["uniform"]["high"]


def test_a_top_k_that_hides_nothing_is_left_out(rows: list[Row]) -> None:
    assert not select(rows, world="peaked", k=100) and select(rows, world="peaked", k=64)


def test_a_cell_of_which_no_top_k_hides_anything_is_left_out() -> None:
    config = replace(QUICK, sizes=(5,))
    cells = ESTIMATOR.cells(config)
    assert "dirichlet_1-noise_0.7-3" not in cells and "peaked-independent-100" in cells
    check(config)


def test_rows_are_those_of_the_regions_that_have_tokens(rows: list[Row]) -> None:
    regions = {row["region"] for row in rows if row["table"] == "estimators"}
    assert regions <= set(region_names(SMALL.deltas)) and "all" in regions
    assert all(row["tokens"] > 0 for row in rows if row["table"] == "estimators")


def test_certificates_are_those_of_a_view_of_the_same_record() -> None:
    config = replace(SMALL, errors=(0.0, 0.01), most_tokens=30)
    tally = CERTIFICATE.compute(config, "flat-noise_0.5-200", stream(0, "x"))["tally"]
    assert np.array_equal(tally[0, 0], tally[0, 1]), "an error of nothing, stated or not, is nothing"
    assert tally[1, 0, 1] <= tally[1, 1, 1], "a stated error cannot certify more"


def test_presets_are_sound() -> None:
    for config in (QUICK, FULL):
        check(config)
        assert len(set(EXPERIMENT.tiles(config))) == len(EXPERIMENT.tiles(config))
    assert max(pairs.vocab for pairs in FULL.pairs) == 151_936
    assert FULL.tokens(Pairs("flat", "noise_0.5", 10**9)) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": (300,)}, "k must be at most the vocabulary, got k = 300 and vocab = 200"),
        ({"sizes": (5, 5)}, "k must not repeat"),
        ({"sizes": (0,)}, "k must be a finite number > 0, got 0"),
        ({"deltas": (-0.05,)}, "delta must be from 1e-12 to 10000, got -0.05"),
        ({"pairs": chosen("flt", "noise_0.5", ())}, "world 'flt' is unknown"),
        ({"pairs": chosen("flat", "noise", ())}, "mismatch 'noise' is unknown"),
        ({"pairs": chosen("flat", "noise_0.5", (1,))}, "vocab must be from 2 to 16,777,216 tokens, got 1"),
        ({"pairs": chosen("flat", "noise_0.5", (500, 500))}, "vocab must not repeat"),
        ({"seeds": 1}, "seeds must be from 2 to 10,000, got 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(replace(SMALL, **change))


def test_the_divergence_that_a_view_misses_is_that_of_its_cells() -> None:
    config = replace(SMALL, most_tokens=25, sizes=(5, 20))
    pairs = config.pairs_named("language-noise_0.5-200")
    found = ESTIMATOR.compute(config, pairs.name, stream(0, "x"))
    rng = stream(0, "x")
    pair = pairs.family(rng, (25,), pairs.vocab)
    action = sample_from(rng, pair.log_mu)
    mu, pi = np.exp(pair.log_mu), np.exp(pair.log_pi)
    whole = np.sum(mu * np.log(mu / pi), axis=-1)
    assert found["kl"][0] == pytest.approx(whole.sum(), rel=1e-12)  # 25 sums of 200 terms
    assert found["tokens"][0] == 25
    for s, top in enumerate(config.sizes):
        seen = []
        for m, p, k in zip(mu, pi, action, strict=True):
            shown = np.isin(np.arange(pairs.vocab), [*np.argsort(-m)[:top], k])
            cells = [np.append(x[shown], x[~shown].sum()) for x in (m, p)]
            seen.append(np.sum(cells[0] * np.log(cells[0] / cells[1])))
        assert found["missed"][s, 0] == pytest.approx(np.sum(whole - seen), abs=1e-12)


def test_rows_are_the_sums_of_their_seeds() -> None:
    config = replace(SMALL, sizes=(5,), seeds=4)
    cell = "flat-noise_0.5-200"
    seeds = [ESTIMATOR.compute(config, cell, stream(0, f"{n}")) for n in range(4)]
    found = ESTIMATOR.rows(
        config, cell, {name: np.stack([seed[name] for seed in seeds]) for name in seeds[0]}
    )
    here: dict[str, Any] = {"region": "all", "k": 5, "tail": "uniform"}
    flips, tokens = (sum(int(x) for x in xs) for xs in zip(*(
        (seed["flips"][0, ESTIMATORS.index("uniform"), 0], seed["tokens"][0]) for seed in seeds
    ), strict=True))  # fmt: skip
    assert find(found, quantity="flip_rate", **here)["value"] == flips / tokens
    biases = [seed["errors"][0, ESTIMATORS.index("uniform"), 0] / seed["tokens"][0] for seed in seeds]
    bias = find(found, quantity="bias", **here)
    assert bias["value"] == pytest.approx(np.mean(biases), abs=1e-15) and bias["seeds"] == 4
    assert (
        find(found, quantity="error_q50", **here)["value"]
        <= find(found, quantity="error_q95", **here)["value"]
    )
