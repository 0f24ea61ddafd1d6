"""The mismatches between mu and pi: what their descriptions state, with intervals."""

import re
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from language_samples import LANGUAGE, RARE, language_logits, variance_is
from numpy.typing import NDArray
from scipy import stats

from divsim.experiments.statistics import mean, share
from divsim.formulas import FORWARD_KL, log_softmax
from divsim.tabular.language import WORLDS
from divsim.tabular.mismatch import HEAD_RANK, MISMATCHES, _rounded_head, mismatched, stale
from divsim.tabular.policies import PolicyPair, at_action, sample_from
from divsim.tabular.precision import E4M3

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

names = pytest.mark.parametrize("name", MISMATCHES)
BY_ENGINE = ("bf16_logits", "fp8_logits", "bf16_head", "fp8_head", "engine")


def test_the_engine_is_as_far_as_engines_report() -> None:
    rng, kl, log_ratio = np.random.default_rng(1), np.empty((8, 2000)), np.empty((8, 2000))
    for part in range(8):  # in parts, for memory
        pair = mismatched(LANGUAGE, MISMATCHES["engine"])(rng, (2000,), 2000)
        kl[part] = FORWARD_KL.measure(pair.log_mu, pair.log_pi)
        log_ratio[part] = np.abs(at_action(pair.log_pi - pair.log_mu, sample_from(rng, pair.log_mu)))
    beyond = (kl > 0.15).ravel().astype(int)
    for found, low, high in (
        (mean(kl.ravel()), 0.003, 0.01),
        (mean(log_ratio.ravel()), 0.03, 0.06),
        (share(beyond, np.ones_like(beyond)), 0.0002, 0.003),
    ):
        assert low <= found.low <= found.high <= high, found


def test_the_engines_noise_differs_from_token_to_token_by_a_log_normal_factor() -> None:
    logits = language_logits(2, n=1000)
    engine, trainer = MISMATCHES["engine"].part(np.random.default_rng(3), logits)
    assert np.array_equal(trainer, logits)
    sizes = np.std(engine - logits, axis=-1)  # of 2000 values: known to 1.6 %
    assert stats.kstest(np.log(sizes / 0.17), stats.norm(0, 0.5).cdf).pvalue > RARE


@pytest.mark.parametrize("name", [name for name in MISMATCHES if name.startswith("noise_")])
def test_noise_has_the_size_in_its_name(name: str) -> None:
    logits, size = language_logits(2, n=20), float(name.split("_")[1])
    _, moved = MISMATCHES[name].part(np.random.default_rng(3), logits)
    assert variance_is(moved - logits, size)
    assert variance_is(np.mean(moved - logits, axis=0), size / np.sqrt(20))  # no row repeats another


@pytest.mark.parametrize("name", [name for name in MISMATCHES if name.startswith(("sharpen", "flatten"))])
def test_a_temperature_multiplies_by_the_number_in_its_name(name: str) -> None:
    logits = language_logits(2, n=5)
    _, moved = MISMATCHES[name].part(np.random.default_rng(3), logits)
    assert np.array_equal(moved, float(name.split("_")[1]) * logits)


@names
def test_a_mismatch_draws_policies_and_nothing_but_its_generator(name: str) -> None:
    draw = mismatched(LANGUAGE, MISMATCHES[name])
    first, again, other = (draw(np.random.default_rng(seed), (3,), 60) for seed in (0, 0, 1))
    assert np.array_equal(first.log_pi, again.log_pi) and np.array_equal(first.log_mu, again.log_mu)
    assert not np.array_equal(first.log_pi, other.log_pi)
    for log_p in (first.log_mu, first.log_pi):
        np.testing.assert_allclose(np.exp(log_p).sum(axis=-1), 1, atol=1e-14)
    assert np.all(FORWARD_KL.measure(first.log_mu, first.log_pi) > 0)


@names
def test_an_imprecise_engine_moves_mu_and_everything_else_moves_pi(name: str) -> None:
    pair: PolicyPair = mismatched(LANGUAGE, MISMATCHES[name])(np.random.default_rng(0), (3,), 60)
    exact = log_softmax(LANGUAGE.logits(np.random.default_rng(0), 3, 60))
    assert np.array_equal(pair.log_pi, exact) == (name in BY_ENGINE)
    assert np.array_equal(pair.log_mu, exact) == (name not in BY_ENGINE)


@names
def test_a_mismatch_leaves_the_logits_it_was_given(name: str) -> None:
    logits = LANGUAGE.logits(np.random.default_rng(0), 3, 40)
    before = logits.copy()
    MISMATCHES[name].part(np.random.default_rng(1), logits)
    assert np.array_equal(logits, before)


@pytest.mark.parametrize(
    ("coarse", "fine"),
    [("fp8_head", "bf16_head"), ("fp8_logits", "bf16_logits"), ("noise_0.5", "noise_0.1"),
     ("sharpen_1.5", "sharpen_1.1"), ("flatten_0.7", "flatten_0.9"), ("stale_64", "stale_16"),
     ("stale_16", "stale_4")],
)  # fmt: skip
def test_more_mismatch_is_more_divergence(coarse: str, fine: str) -> None:
    def kl(name: str) -> Floats:
        pair = mismatched(LANGUAGE, MISMATCHES[name])(np.random.default_rng(3), (300,), 200)
        return np.asarray(FORWARD_KL.measure(pair.log_mu, pair.log_pi))

    assert mean(kl(coarse) - kl(fine)).low > 0


def bf16_of_torch(values: Floats) -> Floats:
    found: Floats = torch.from_numpy(values).to(torch.bfloat16).double().numpy()
    return found


def fp8_of_torch(values: Floats) -> Floats:
    unit = np.abs(values).max(axis=-1, keepdims=True) / E4M3.largest
    found: Floats = torch.from_numpy(values / unit).to(torch.float8_e4m3fn).double().numpy() * unit
    return found


ROUNDINGS = pytest.mark.parametrize(
    ("form", "of_torch"), [("bf16", bf16_of_torch), ("fp8", fp8_of_torch)], ids=["bf16", "fp8"]
)


@ROUNDINGS
def test_rounded_logits_are_those_of_torch(form: str, of_torch: object) -> None:
    logits = language_logits(0, n=10)
    engine, _ = MISMATCHES[f"{form}_logits"].part(np.random.default_rng(1), logits)
    assert np.array_equal(engine, of_torch(logits))  # type: ignore[operator]


@ROUNDINGS
def test_a_rounded_head_rounds_weights_and_activations_as_torch_does(form: str, of_torch: object) -> None:
    logits = language_logits(0, n=3)[:, :80]
    engine, _ = MISMATCHES[f"{form}_head"].part(np.random.default_rng(1), logits)
    theirs, _ = _rounded_head(of_torch)(np.random.default_rng(1), logits)  # type: ignore[arg-type]
    assert np.array_equal(engine, theirs)
    assert not np.array_equal(engine, logits)


def test_a_head_yields_its_logits_and_is_gaussian_otherwise() -> None:
    rounded: list[Floats] = []

    def spy(values: Floats) -> Floats:
        rounded.append(values.copy())
        return values

    logits = LANGUAGE.logits(np.random.default_rng(0), 20, 50)
    engine, _ = _rounded_head(spy)(np.random.default_rng(1), logits)
    np.testing.assert_allclose(engine, logits, atol=1e-12)  # 64 products that add up to 22 at most
    hiddens = np.concatenate(rounded[1::2])
    assert variance_is(hiddens, 1.0)
    for head, hidden, z in zip(rounded[::2], hiddens, logits, strict=True):
        free = head - np.outer(z, hidden) / np.sum(hidden**2)  # what the logits do not fix
        np.testing.assert_allclose(free @ hidden, 0, atol=1e-12)
        assert variance_is(free, float(np.std(z)) / np.sqrt(HEAD_RANK), lost=len(z))


def passes_of(rate: float, logits: Floats, count: int, *, by_token: bool) -> list[tuple[Ints, Floats]]:
    """The token and the advantage of every row in every stale pass, read back from the moves.

    Stopping after 1, 2, ... passes from one seed shows them one by one.
    """
    log_mu, before, found = log_softmax(logits), logits, []
    for passes in range(1, count + 1):
        _, after = stale(passes, rate, by_token=by_token)(np.random.default_rng(1), logits)
        move, log_pi = after - before, log_softmax(before)
        action = np.argmax(np.abs(move), axis=-1)  # the move of k is the sum of all others
        step = at_action(move, action) / -np.expm1(at_action(log_pi, action))
        unit = np.eye(logits.shape[-1])[action]
        np.testing.assert_allclose(move, step[:, None] * (unit - np.exp(log_pi)), atol=1e-13)  # logits of 22
        found.append((action, step / rate / np.exp(at_action(log_pi - log_mu, action))))
        before = after
    return found


def test_stale_passes_are_policy_gradient_steps_whose_advantage_belongs_to_the_token() -> None:
    logits = WORLDS["dirichlet_1"].logits(np.random.default_rng(0), 400, 6)
    worth: dict[tuple[int, int], float] = {}
    repeats = 0
    for action, advantage in passes_of(0.3, logits, 4, by_token=True):
        for place, seen in zip(enumerate(action.tolist()), advantage.tolist(), strict=True):
            repeats += place in worth
            assert worth.setdefault(place, seen) == pytest.approx(seen, abs=1e-9)  # moves of 1e-4, to 1e-15
    assert repeats > 100
    assert stats.kstest(list(worth.values()), stats.norm.cdf).pvalue > RARE


@pytest.mark.parametrize("by_token", [True, False], ids=["by token", "by sequence"])
def test_a_good_token_gains(by_token: bool) -> None:
    logits = WORLDS["dirichlet_1"].logits(np.random.default_rng(0), 50, 6)
    all_good = Mock(
        spec=np.random.Generator,
        random=np.random.default_rng(1).random,
        standard_normal=np.ones,
        choice=lambda signs, n: np.ones(n),
    )
    _, moved = stale(1, 0.3, by_token=by_token)(all_good, logits)
    assert np.all(np.sum(moved > logits, axis=-1) == 1)  # the sampled one; all others lose
    np.testing.assert_allclose(np.sum(moved - logits, axis=-1), 0, atol=1e-13)  # logits of 22


@pytest.mark.parametrize("name", [name for name in MISMATCHES if name.startswith("stale")])
def test_staleness_is_what_its_description_says(name: str) -> None:
    said = re.fullmatch(
        r"(\d+) passes at rate (\S+), (advantage by token|random A)", MISMATCHES[name].meaning
    )
    assert said and int(said[1]) == int(name.split("_")[1])
    logits = LANGUAGE.logits(np.random.default_rng(0), 5, 30)
    part = stale(int(said[1]), float(said[2]), by_token=said[3] == "advantage by token")
    _, expected = part(np.random.default_rng(1), logits)
    _, found = MISMATCHES[name].part(np.random.default_rng(1), logits)
    assert np.array_equal(found, expected)


def test_the_advantage_of_a_sequence_is_a_fresh_sign_in_every_pass() -> None:
    logits = WORLDS["dirichlet_1"].logits(np.random.default_rng(0), 400, 6)
    advantages = np.stack([a for _, a in passes_of(0.3, logits, 3, by_token=False)])
    np.testing.assert_allclose(np.abs(advantages), 1, atol=1e-9)
    patterns = (advantages > 0).T @ np.array([4, 2, 1])
    assert stats.chisquare(np.bincount(patterns, minlength=8)).pvalue > RARE


def test_stale_tokens_come_from_mu_in_every_pass() -> None:
    mu = np.array([0.4, 0.3, 0.2, 0.1])
    logits = np.broadcast_to(np.log(mu), (4000, 4))
    (first, advantage), *_, (last, _) = passes_of(1.0, logits, 3, by_token=False)
    for token in range(2):
        raised = last[(first == token) & (advantage > 0)]  # where pi differs most from mu
        assert stats.chisquare(np.bincount(raised, minlength=4), len(raised) * mu).pvalue > RARE


def test_a_shape_that_is_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape must be \(n,\), got \(2, 3\); draw n rows"):
        mismatched(LANGUAGE, MISMATCHES["noise_0.5"])(np.random.default_rng(0), (2, 3), 10)
