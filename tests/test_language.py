"""The worlds and mismatches: the facts that their descriptions state, with intervals from the sample."""

import numpy as np
import pytest

from divsim.experiments.statistics import mean, share
from divsim.formulas import FORWARD_KL, entropy, log_softmax
from divsim.tabular.language import TOP, WORLDS
from divsim.tabular.mismatch import MISMATCHES, Mismatch, mismatched, stale
from divsim.tabular.policies import at_action, sample_from

names = pytest.mark.parametrize("name", MISMATCHES)
LANGUAGE = WORLDS["language"]


def language_logits(seed: int, n: int = 4000) -> np.ndarray:
    return LANGUAGE.logits(np.random.default_rng(seed), n, 2000)


def test_language_is_as_peaked_as_it_says() -> None:
    log_mu = log_softmax(language_logits(0))
    mass = np.sort(np.exp(log_mu), axis=-1)[:, -20:].sum(axis=-1)
    for values, said, digits in ((entropy(log_mu), 0.54, 0.005), (mass, 0.9955, 0.00005)):
        found = mean(values)
        assert found.low - digits <= said <= found.high + digits, (found, said)


def test_flat_falls_as_one_over_the_rank() -> None:
    logits = WORLDS["flat"].logits(np.random.default_rng(0), 2000, 500)
    slope = np.polyfit(np.log1p(np.arange(500)), logits.mean(axis=0), 1)[0]
    assert abs(slope + 1) < 0.01  # of 2000 rows with roughness .7: the slope's error is .7 / sqrt(2000 * 500)


@pytest.mark.parametrize("world", WORLDS.values(), ids=list(WORLDS))
def test_every_row_has_its_largest_logit_at_the_top(world: object) -> None:
    logits = world.logits(np.random.default_rng(0), 7, 11)  # type: ignore[attr-defined]
    assert logits.shape == (7, 11)
    assert np.all(logits.max(axis=-1) == TOP)


def test_the_engine_is_as_far_as_engines_report() -> None:
    rng = np.random.default_rng(1)
    pair = mismatched(LANGUAGE, MISMATCHES["engine"])(rng, (100_000,), 150)
    kl = FORWARD_KL.measure(pair.log_mu, pair.log_pi)
    log_ratio = np.abs(at_action(pair.log_pi - pair.log_mu, sample_from(rng, pair.log_mu)))
    for found, low, high in (
        (mean(kl), 0.003, 0.01),
        (mean(log_ratio), 0.03, 0.06),
        (share((kl > 0.15).astype(int), np.ones(len(kl))), 0.0002, 0.003),
    ):
        assert low <= found.low <= found.high <= high, found


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
def test_a_mismatch_leaves_the_logits_it_was_given(name: str) -> None:
    logits = LANGUAGE.logits(np.random.default_rng(0), 3, 40)
    before = logits.copy()
    MISMATCHES[name].part(np.random.default_rng(1), logits)
    assert np.array_equal(logits, before)


@pytest.mark.parametrize(
    ("coarse", "fine"),
    [("fp8_head", "bf16_head"), ("fp8_logits", "bf16_logits"), ("noise_0.5", "noise_0.1"),
     ("sharpen_1.5", "sharpen_1.1"), ("flatten_0.7", "flatten_0.9"), ("stale_64", "stale_16")],
)  # fmt: skip
def test_more_mismatch_is_more_divergence(coarse: str, fine: str) -> None:
    def kl(name: str) -> np.ndarray:
        pair = mismatched(LANGUAGE, MISMATCHES[name])(np.random.default_rng(3), (300,), 200)
        return FORWARD_KL.measure(pair.log_mu, pair.log_pi)

    assert mean(kl(coarse) - kl(fine)).low > 0


def test_one_stale_pass_is_one_policy_gradient_step() -> None:
    logits = LANGUAGE.logits(np.random.default_rng(0), 200, 30)
    _, moved = stale(1, 0.3, by_token=False)(np.random.default_rng(1), logits)
    pi = np.exp(log_softmax(logits))
    for z, y, p in zip(logits, moved, pi, strict=True):
        found = [
            k for k in range(30) for sign in (-0.3, 0.3)  # r = 1 at the start
            if np.allclose(y - z, sign * (np.eye(30)[k] - p), atol=1e-13)
        ]  # fmt: skip
        assert len(found) == 1


def test_a_rounded_head_yields_the_logits_before_it_is_rounded() -> None:
    exact = Mismatch("exact", "", MISMATCHES["bf16_head"].part)
    logits = LANGUAGE.logits(np.random.default_rng(0), 20, 50)
    engine, trainer = exact.part(np.random.default_rng(1), logits)
    assert np.array_equal(trainer, logits)
    # 64 products of numbers of size 22 at most, each rounded by 2^-9 twice, added at random
    assert np.max(np.abs(engine - logits)) < 22 * 2.0**-8 * 8
