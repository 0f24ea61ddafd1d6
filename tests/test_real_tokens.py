"""Real tokens: the archive says what it claims, the formulas agree with it, and errors are clear."""

import json
import zipfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divsim.formulas import (
    FORWARD_KL,
    REVERSE_KL,
    TV,
    View,
    change,
    entropy,
)
from divsim.tabular.policies import at_action
from divsim.tabular.real_tokens import PAIRS, RealTokens, load, whole_policies

DATA = Path(__file__).resolve().parents[1] / "divsim" / "data" / "real_tokens.npz"
LARGEST_FILE = 1_000_000  # bytes: it is in every wheel
FLOAT32 = 2.0**-24  # relative rounding of a stored number
ALL = load()
each_pair = pytest.mark.parametrize("tokens", ALL.values(), ids=list(ALL))


# ---- the archive


def test_the_copy_is_small_and_covers_every_kind_of_prompt() -> None:
    assert DATA.stat().st_size <= LARGEST_FILE
    assert set(ALL) == set(PAIRS)
    for tokens in ALL.values():
        kinds = np.unique(np.digitize(np.unique(tokens.prompt), [12, 24, 32]), return_counts=True)
        assert [part.tolist() for part in kinds] == [[0, 1, 2, 3], [3, 3, 3, 3]]
        assert tokens.columns == 20 and tokens.vocab == 49_152
        assert len(tokens.full_row) >= 2
        assert np.all(np.diff(tokens.prompt) >= 0)


@each_pair
def test_every_number_is_finite(tokens: RealTokens) -> None:
    for field in fields(tokens):
        if field.name not in ("name", "vocab"):
            assert np.all(np.isfinite(getattr(tokens, field.name))), field.name


@each_pair
def test_the_sampled_token_stands_at_its_rank(tokens: RealTokens) -> None:
    is_action = tokens.top_ids == tokens.action[:, None]
    seen = tokens.rank_k < tokens.columns
    assert np.array_equal(is_action.any(axis=-1), seen)
    assert np.array_equal(is_action.argmax(axis=-1)[seen], tokens.rank_k[seen])
    for top, own in ((tokens.top_log_mu, tokens.log_mu_k), (tokens.top_log_pi, tokens.log_pi_k)):
        assert np.array_equal(top[is_action], own[seen])


@each_pair
def test_tokens_with_every_logit_have_the_stated_values(tokens: RealTokens) -> None:
    """The formulas against numbers that other code has stored, and the textbook sums against both."""
    pair, k = whole_policies(tokens), tokens.full_action
    mu, pi = np.exp(pair.log_mu), np.exp(pair.log_pi)
    values = {
        "kl": FORWARD_KL.measure(pair.log_mu, pair.log_pi),
        "reverse_kl": REVERSE_KL.measure(pair.log_mu, pair.log_pi),
        "tv": TV.measure(pair.log_mu, pair.log_pi),
        "c": change(View.full(pair.log_mu, pair.log_pi, k)),
        "pi_sq": np.sum(pi * pi, axis=-1),
        "pi_mu": np.sum(pi * mu, axis=-1),
        "log_mu_k": at_action(pair.log_mu, k),
        "log_pi_k": at_action(pair.log_pi, k),
        "entropy_mu": entropy(pair.log_mu),
        "entropy_pi": entropy(pair.log_pi),
    }
    for name, value in values.items():
        stated = getattr(tokens, f"full_{name}")
        assert np.max(np.abs(value - stated)) < 1e-12, name  # sums of 49,152 float64 terms
    assert np.max(np.abs(values["kl"] - np.sum(mu * np.log(mu / pi), axis=-1))) < 1e-12
    textbook = at_action(pi - mu, k) + np.sum(pi * (mu - pi), axis=-1)
    assert np.max(np.abs(values["c"] - textbook)) < 1e-12
    assert np.all(np.diff(pair.log_mu, axis=-1) <= 0)


@each_pair
def test_rounded_logits_are_nearly_the_stored_tokens(tokens: RealTokens) -> None:
    """`full_row` points at the right tokens: rounding to 1 / 64 moves a log-probability by 1 / 64 at most."""
    row = tokens.full_row
    for full, stored in ((tokens.full_log_mu_k, tokens.log_mu_k), (tokens.full_log_pi_k, tokens.log_pi_k)):
        assert np.max(np.abs(full - stored[row])) < 1 / 64
    assert np.max(np.abs(tokens.full_kl / tokens.kl[row] - 1)) < 0.2


def test_each_pair_has_a_whole_token_on_which_the_tests_disagree() -> None:
    for tokens in ALL.values():
        gap = tokens.full_log_pi_k - tokens.full_log_mu_k
        assert (np.sign(gap) != np.sign(tokens.full_c)).tolist()[0]


@each_pair
def test_change_is_the_sum_of_its_parts(tokens: RealTokens) -> None:
    parts = np.exp(tokens.log_pi_k) - np.exp(tokens.log_mu_k) - tokens.pi_sq + tokens.pi_mu
    assert np.max(np.abs(parts - tokens.c)) < 3 * FLOAT32  # two logs, at p |log p| <= 1/e, and two sums
    assert np.median(np.abs(tokens.c)) > 1e-3  # so the line above says something


# ---- errors


def test_an_archive_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("not an archive")
    (tmp_path / "short.npz").write_bytes(DATA.read_bytes()[:5000])
    spoilt = bytearray(DATA.read_bytes())
    spoilt[20_000:20_400] = bytes(400)
    (tmp_path / "spoilt.npz").write_bytes(bytes(spoilt))
    for name in ("none.npz", "text.npz", "short.npz", "spoilt.npz"):
        with pytest.raises(
            ValueError, match=f"{name} is not a readable .npz archive.*name an archive of real tokens"
        ):
            load(tmp_path / name)
    np.save(tmp_path / "bare.npy", np.arange(3))
    with pytest.raises(ValueError, match=r"bare.npy lacks meta and \d+ more fields"):
        load(tmp_path / "bare.npy")


def changed(path: Path, **changes: Any) -> Path:
    with np.load(DATA) as archive:
        stored = dict(archive) | {name.replace("__", "/"): value for name, value in changes.items()}
    np.savez(path, **{name: value for name, value in stored.items() if value is not None})
    return path


def test_an_archive_without_a_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a.npz lacks fp8_base/tv; name an archive"):
        load(changed(tmp_path / "a.npz", fp8_base__tv=None))
    with pytest.raises(ValueError, match=r"lacks fp8/k and 1 more fields"):
        load(changed(tmp_path / "b.npz", fp8__k=None, fp32_stale__full_gaps_pi=None))
    with pytest.raises(ValueError, match=r"has 3 rows of bf16_base/c for 863 tokens"):
        load(changed(tmp_path / "c.npz", bf16_base__c=np.zeros(3)))
    for number, meta in enumerate(("no json", json.dumps({"K": 20}), json.dumps([1]))):
        with pytest.raises(ValueError, match="no size of the vocabulary, V"):
            load(changed(tmp_path / f"{number}.npz", meta=np.array(meta)))


def test_members_have_no_date() -> None:
    assert {entry.date_time for entry in zipfile.ZipFile(DATA).infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_mass_of_20_tokens_needs_20_columns() -> None:
    tokens = ALL["bf16_base"]
    narrow = replace(tokens, top_ids=tokens.top_ids[:, :8])
    with pytest.raises(ValueError, match="bf16_base stores the 8 likeliest tokens; 20 are needed"):
        _ = narrow.top_20_mass
