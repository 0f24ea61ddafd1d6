"""Tests of direction and their two by two tables, against loops."""

import itertools

import numpy as np

from divsim.formulas import DIVERGENCES, FORWARD_KL, View, change
from divsim.tabular.agreement import (
    SCORES,
    TESTS,
    count,
    disagree,
    region_names,
    regions,
    scores,
    see,
    verdicts,
)
from divsim.tabular.policies import PAIR_FAMILIES, at_action, sample_from


def test_a_table_counts_every_token_once() -> None:
    rng = np.random.default_rng(0)
    outward, rises, members = rng.random((3, 40)) < 0.4, rng.random((4, 40)) < 0.6, rng.random((2, 40)) < 0.5
    table = count(outward, rises, members)
    assert table.shape == (3, 4, 2, 2, 2) and table.dtype == np.int64
    for t, s, r, a, b in itertools.product(range(3), range(4), range(2), range(2), range(2)):
        expected = sum(
            1 for i in range(40) if outward[t, i] == bool(a) and rises[s, i] == bool(b) and members[r, i]
        )
        assert table[t, s, r, a, b] == expected


def test_regions_are_the_sets_they_are_named_after() -> None:
    distance, differs = np.array([0.01, 0.05, 0.1, 0.3]), np.array([True, True, True, False])
    found = {name: members.tolist() for name, members in regions(distance, differs, (0.05, 0.15)).items()}
    assert found == {
        "all": [True] * 4,
        "far_0.05": [False, False, True, True],  # equality is not far
        "far_0.15": [False, False, False, True],
        "disagree": [True, True, True, False],
        "disagree_far_0.05": [False, False, True, False],
        "disagree_far_0.15": [False] * 4,
    }
    assert tuple(found) == region_names((0.05, 0.15))


def test_the_scores_are_the_formulas() -> None:
    rng = np.random.default_rng(1)
    pair = PAIR_FAMILIES["zipf"](rng, (50,), 30)
    action = sample_from(rng, pair.log_mu)
    for divergence in DIVERGENCES.values():
        found = scores(see(pair, action, 5, divergence))
        full, top = (
            View.full(pair.log_mu, pair.log_pi, action),
            View.top_k(pair.log_mu, pair.log_pi, action, 5),
        )
        assert set(found) == set(SCORES) and set(TESTS) == {*SCORES, "always"}
        assert np.array_equal(found["ratio"], at_action(pair.log_pi, action) - at_action(pair.log_mu, action))
        assert np.array_equal(found["full"], change(full, divergence))
        for tail in ("aggregated", "uniform", "proportional", "zero"):
            assert np.array_equal(found[tail], change(top, divergence, tail))


def test_a_verdict_has_the_sign_of_advantage_times_score_and_zero_is_never_outward() -> None:
    score, advantage = {"ratio": np.array([1.0, 1.0, 0.0, -2.0])}, np.array([1.0, -1.0, 1.0, -1.0])
    said = verdicts(score, advantage)
    assert said["ratio"].tolist() == [True, False, False, True]
    assert said["always"].all()


def test_disagreement_is_the_set_between_zero_and_the_mean_difference() -> None:
    rng = np.random.default_rng(2)
    pair = PAIR_FAMILIES["uniform"](rng, (4000,), 6)
    action = sample_from(rng, pair.log_mu)
    d = np.exp(pair.log_pi) - np.exp(pair.log_mu)
    d_k, centre = at_action(d, action), np.sum(np.exp(pair.log_pi) * d, axis=-1)
    found = disagree(scores(see(pair, action, 3, FORWARD_KL)))
    assert np.array_equal(found, (d_k / centre > 0) & (d_k / centre < 1))
    assert 0 < found.mean() < 1


def test_a_test_that_says_nothing_disagrees_with_none() -> None:
    ratio, full = np.array([0.0, 1.0, -1.0, 1.0, -1.0]), np.array([1.0, 0.0, 1.0, 1.0, -1.0])
    assert disagree({"ratio": ratio, "full": full}).tolist() == [False, False, True, False, False]
