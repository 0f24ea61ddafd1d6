"""Rows of the real tokens: each kind of number against a plain count of the same arrays, and laws."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from divsim.experiments.real import direction_rows, regions, tails_rows
from divsim.experiments.rows import MEASURED, find, select
from divsim.tabular.real_tokens import RealTokens, load
from divsim.tabular.real_views import euclidean_change, euclidean_flip_step

Bools = NDArray[np.bool_]
ALL = load()
DIRECTION, TAILS = direction_rows(ALL), tails_rows(ALL)
EVERY = DIRECTION + TAILS
each_pair = pytest.mark.parametrize("tokens", ALL.values(), ids=list(ALL))


def signs(tokens: RealTokens) -> tuple[NDArray[np.float64], Bools]:
    """pi_k - mu_k, and whether both tests have a sign: the oracle."""
    gap = np.exp(tokens.log_pi_k) - np.exp(tokens.log_mu_k)
    return gap, (np.abs(gap) >= 1e-6) & (np.abs(tokens.c) >= 1e-6)


# ---- rows


def test_no_two_rows_have_the_same_key_and_json_holds_them() -> None:
    keys = [tuple(sorted((k, v) for k, v in row.items() if k not in MEASURED)) for row in EVERY]
    assert len(set(keys)) == len(keys) > 1000
    assert json.loads(json.dumps(EVERY, allow_nan=False)) == EVERY
    for row in EVERY:
        assert set(MEASURED) < set(row)
        assert row["world"] == "real" and row["vocab"] == 49_152
        assert all(type(row[name]) in (str, int) for name in set(row) - set(MEASURED))
        assert row["tokens"] > 0 and 1 <= row["seeds"] <= 12


def test_values_lie_in_their_intervals() -> None:
    for row in EVERY:
        if row["low"] is None:
            assert row["seeds"] < 2, row
        elif row["quantity"].startswith("error"):  # a quantile of a resample can jump over a gap
            assert row["low"] <= row["high"]
        else:
            assert row["low"] - 1e-12 <= row["value"] <= row["high"] + 1e-12, row


def test_the_same_data_give_the_same_rows() -> None:
    one = {"fp32_stale": ALL["fp32_stale"]}
    assert direction_rows(one) == select(DIRECTION, mismatch="fp32_stale")
    assert tails_rows(one) == select(TAILS, mismatch="fp32_stale")


@each_pair
def test_regions_are_what_their_names_say(tokens: RealTokens) -> None:
    found = regions(tokens)
    gap, decided = signs(tokens)
    mass = np.exp(tokens.top_log_mu[:, :20]).sum(axis=-1)
    assert found["all"].all()
    assert np.array_equal(found["far_0.15"], tokens.kl > 0.15)
    assert np.array_equal(found["disagree"], decided & (gap * tokens.c < 0))
    assert np.array_equal(found["disagree_far_0.05"], found["disagree"] & found["far_0.05"])
    assert np.array_equal(found["top20_0.5_0.9"], (mass > 0.5) & (mass <= 0.9))
    bins = [members for name, members in found.items() if name.startswith("top20")]
    assert np.all(np.sum(bins, axis=0) == 1) and all(members.any() for members in bins)


def test_regions_without_tokens_have_no_rows() -> None:
    assert not np.any(ALL["bf16_base"].kl > 0.05)
    assert {row["region"] for row in EVERY if row["mismatch"] == "bf16_base"} == {
        "all", "disagree", "top20_above_0.99", "top20_0.9_0.99", "top20_0.5_0.9", "top20_below_0.5",
    }  # fmt: skip


def test_too_few_columns_are_refused() -> None:
    tokens = ALL["fp8_base"]
    few = {"fp8_base": replace(tokens, top_ids=tokens.top_ids[:, :8], top_log_mu=tokens.top_log_mu[:, :8])}
    for rows in (direction_rows, tails_rows):
        with pytest.raises(ValueError, match="8 likeliest tokens; 20 are needed"):
            rows(few)


# ---- direction


@each_pair
def test_shares_are_plain_counts(tokens: RealTokens) -> None:
    gap, decided = signs(tokens)
    key = {"table": "disagreement", "mismatch": tokens.name}
    undecided = find(DIRECTION, **key, region="all", quantity="undecided_share")
    assert undecided["value"] == np.mean(~decided) and undecided["tokens"] == len(decided)
    row = find(DIRECTION, **key, region="top20_0.5_0.9", quantity="disagree_share")
    among = decided & regions(tokens)["top20_0.5_0.9"]
    assert row["value"] == pytest.approx(np.mean((gap * tokens.c < 0)[among]), abs=1e-15)
    assert row["tokens"] == among.sum() and row["seeds"] == len(np.unique(tokens.prompt[among]))


@each_pair
def test_short_steps_obey_the_test_of_their_geometry(tokens: RealTokens) -> None:
    """At a tenth of the flip step first order holds: c_k for the Euclidean step, the ratio for one logit."""
    key = {"mismatch": tokens.name, "step": "0.1", "region": "all"}
    disagree = find(DIRECTION, mismatch=tokens.name, region="all", quantity="disagree_share")["value"]
    for geometry, right, wrong in (
        ("euclidean", "forward_kl/full", "ratio"),
        ("sign", "ratio", "forward_kl/full"),
    ):
        accuracy = {
            test: find(DIRECTION, **key, geometry=geometry, test=test, quantity="accuracy")["value"]
            for test in (right, wrong, "always")
        }
        assert accuracy[right] > 0.999
        assert accuracy[wrong] == pytest.approx(1 - disagree, abs=0.001)
        assert accuracy["always"] == pytest.approx(0.5, abs=0.001)  # each token steps up and down


@each_pair
def test_long_steps_raise_the_divergence_whatever_a_test_says(tokens: RealTokens) -> None:
    key = {"mismatch": tokens.name, "step": "10", "region": "all"}
    for geometry in ("euclidean", "sign"):
        assert find(DIRECTION, **key, geometry=geometry, quantity="base_rate")["value"] > 0.99
        for test in ("ratio", "forward_kl/full"):
            row = find(DIRECTION, **key, geometry=geometry, test=test, quantity="accuracy")
            assert row["value"] == pytest.approx(0.5, abs=0.01)
            row = find(DIRECTION, **key, geometry=geometry, test=test, quantity="risk_difference")
            assert abs(row["value"]) < 0.02


@pytest.mark.parametrize("step", ["0.1", "0.5", "2", "10"])
def test_a_predicted_increase_is_always_real(step: str) -> None:
    """Convexity: of a test's two calls on a token only the predicted decrease can be wrong.

    So accuracy = (1 + share of decreases) / 2, and the steps that are not raised are all foretold by c_k.
    """
    for row in select(
        DIRECTION, geometry="euclidean", step=step, test="forward_kl/full", quantity="accuracy"
    ):
        base = find(DIRECTION, **{k: v for k, v in row.items() if k not in (*MEASURED, "test", "quantity")},
                    quantity="base_rate")["value"]  # fmt: skip
        assert row["value"] == pytest.approx(1 - (base - 0.5), abs=1e-12)


@each_pair
def test_the_gain_over_the_ratio_test_is_a_difference(tokens: RealTokens) -> None:
    for row in select(DIRECTION, mismatch=tokens.name, quantity="risk_difference_minus_ratio"):
        place = {k: v for k, v in row.items() if k not in (*MEASURED, "test", "quantity")}
        ours, theirs = (
            find(DIRECTION, **place, test=test, quantity="risk_difference")["value"]
            for test in ("forward_kl/full", "ratio")
        )
        assert row["value"] == pytest.approx(ours - theirs, abs=1e-12)
    key = {"mismatch": tokens.name, "region": "all", "step": "0.1", "quantity": "risk_difference_minus_ratio"}
    assert find(DIRECTION, **key, geometry="euclidean")["low"] > 0.1
    assert find(DIRECTION, **key, geometry="sign")["high"] < -0.1


def test_brackets_leave_next_to_nothing_open_and_that_counts_as_not_raised() -> None:
    rows = select(DIRECTION, quantity="unresolved_share")
    assert 0 < max(row["value"] for row in rows) < 0.02
    tokens = ALL["fp8_base"]
    step = 2 * euclidean_flip_step(tokens)
    low, high = np.hstack([euclidean_change(tokens, side * step) for side in (1, -1)])
    decided = np.tile(signs(tokens)[1], 2)
    key = {"mismatch": "fp8_base", "region": "all", "geometry": "euclidean", "step": "2"}
    for quantity, event in (("unresolved_share", (low <= 0) & (high >= 0)), ("base_rate", low > 0)):
        row = find(DIRECTION, **key, quantity=quantity)
        assert row["value"] == pytest.approx(np.mean(event[decided]), abs=1e-15)
    assert np.any(((low <= 0) & (high > 0))[decided])


# ---- tails


def tail_of(tokens: RealTokens, k: int) -> tuple[Bools, NDArray[np.float64], NDArray[np.float64]]:
    """Which columns are retained at k, and the hidden mass of mu and of pi: the oracle."""
    hidden = (np.arange(20) >= k) & (tokens.top_ids != tokens.action[:, None])
    return ~hidden, *(
        tail + np.where(hidden, np.exp(top), 0).sum(axis=-1)
        for tail, top in ((tokens.mu_tail, tokens.top_log_mu), (tokens.pi_tail, tokens.top_log_pi))
    )


def estimate(tokens: RealTokens, k: int, tail: str) -> NDArray[np.float64]:
    """c_k = d_k + sum over retained of pi (mu - pi) + P (M - P) h, h = 0 or 1: the oracle."""
    kept, mass_mu, mass_pi = tail_of(tokens, k)
    mu, pi = np.exp(tokens.top_log_mu), np.exp(tokens.top_log_pi)
    own_mu, own_pi = np.exp(tokens.log_mu_k), np.exp(tokens.log_pi_k)
    local = np.where(kept, pi * (mu - pi), 0).sum(axis=-1)
    local += np.where(tokens.rank_k >= 20, own_pi * (own_mu - own_pi), 0.0)
    share_of_one_token = {"aggregated": 1.0, "zero": 0.0}[tail]
    return np.asarray(own_pi - own_mu + local + share_of_one_token * mass_pi * (mass_mu - mass_pi))


@pytest.mark.parametrize("tail", ["aggregated", "zero"])
@pytest.mark.parametrize("k", [1, 5, 20])
@each_pair
def test_errors_are_those_of_the_textbook_estimator(tokens: RealTokens, k: int, tail: str) -> None:
    error = estimate(tokens, k, tail) - tokens.c
    _, decided = signs(tokens)
    inside = regions(tokens)["top20_0.5_0.9"]
    key = {"table": "estimators", "mismatch": tokens.name, "k": k, "tail": tail, "region": "top20_0.5_0.9"}
    flips = ((error + tokens.c > 0) != (tokens.c > 0))[inside & decided]
    assert find(TAILS, **key, quantity="flip_rate")["value"] == pytest.approx(np.mean(flips), abs=1e-15)
    # The cells of a token sum to 1 within 1.1e-7, and the shipped formula takes them to sum to 1.
    close = {"abs": 1.1e-7, "rel": 0}
    assert find(TAILS, **key, quantity="bias")["value"] == pytest.approx(np.mean(error[inside]), **close)
    assert np.mean(np.abs(error[inside])) > 10 * close["abs"]
    for level, name in ((0.5, "error_q50"), (0.95, "error_q95")):
        expected = np.quantile(np.abs(error[inside]), level, method="inverted_cdf")
        assert find(TAILS, **key, quantity=name)["value"] == pytest.approx(expected, **close)


@each_pair
def test_what_a_coarse_divergence_misses(tokens: RealTokens) -> None:
    kept, mass_mu, mass_pi = tail_of(tokens, 5)
    mu, pi = np.exp(tokens.top_log_mu), np.exp(tokens.top_log_pi)
    own_mu, own_pi = np.exp(tokens.log_mu_k), np.exp(tokens.log_pi_k)
    own = np.where(tokens.rank_k >= 20, 1.0, 0.0)
    coarse = np.where(kept, mu * np.log(mu / pi), 0).sum(axis=-1) + own * own_mu * np.log(own_mu / own_pi)
    coarse += mass_mu * np.log(mass_mu / mass_pi)
    half = np.where(kept, np.abs(mu - pi), 0).sum(axis=-1) + own * np.abs(own_mu - own_pi)
    half += np.abs(mass_mu - mass_pi)
    for name, seen, exact in (("kl", coarse, tokens.kl), ("tv", half / 2, tokens.tv)):
        row = find(TAILS, mismatch=tokens.name, k=5, region="all", quantity=f"missed_{name}_share")
        # The textbook KL cancels: 1e-7 a token beside a mean KL of 1e-3 at least.
        assert row["value"] == pytest.approx(1 - seen.sum() / exact.sum(), abs=2e-4)
        assert 0.1 < row["value"] < 0.7


def test_no_certified_sign_is_wrong() -> None:
    rows = select(TAILS, quantity="wrong_share")
    assert len(rows) > 300
    assert {row["value"] for row in rows} == {0.0}
    for row in rows:
        place = {name: value for name, value in row.items() if name not in (*MEASURED, "quantity")}
        certified = find(TAILS, **place, quantity="certified_share")
        assert row["tokens"] == round(certified["value"] * certified["tokens"])


@each_pair
def test_certified_shares_fall_with_the_error_and_the_width(tokens: RealTokens) -> None:
    def shares(**key: str | int) -> list[float]:
        found = select(TAILS, table="certificate", mismatch=tokens.name, region="all",
                       quantity="certified_share", **key)  # fmt: skip
        return [row["value"] for row in found]

    for bracket in ("tight", "free"):
        by_error = shares(k=20, bracket=bracket)
        assert by_error == sorted(by_error, reverse=True) and len(set(by_error)) > 2
    by_size = shares(bracket="free", log_mu_error="0")
    assert by_size == sorted(by_size) and len(by_size) == 4
    (tight,) = shares(bracket="tight", log_mu_error="0")
    assert tight > by_size[-1]
    row = find(
        TAILS, table="estimators", mismatch=tokens.name, k=20, region="all", quantity="certified_share"
    )
    assert row["value"] == tight
