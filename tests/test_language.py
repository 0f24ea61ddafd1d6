"""The worlds: the facts that their descriptions state, with intervals from the sample."""

import numpy as np
import pytest
from language_samples import RARE, language_logits, variance_is
from numpy.typing import NDArray
from scipy import stats

from divsim.experiments.statistics import mean
from divsim.formulas import entropy, log_softmax
from divsim.tabular.language import TOP, WORLDS, World

Floats = NDArray[np.float64]


def slopes_of(logits: Floats) -> Floats:
    """(n,) least-squares slope of each row in the log of the rank."""
    found: Floats = np.polyfit(np.log1p(np.arange(logits.shape[-1])), logits.T, 1)[0]
    return found


def test_language_is_as_peaked_as_it_says() -> None:
    log_mu = log_softmax(language_logits(0))
    mass = np.sort(np.exp(log_mu), axis=-1)[:, -20:].sum(axis=-1)
    for values, said, digits in ((entropy(log_mu), 0.54, 0.005), (mass, 0.9955, 0.00005)):
        found = mean(values)
        assert found.low - digits <= said <= found.high + digits, (found, said)


def test_language_falls_by_a_power_that_is_a_shifted_gamma_variable() -> None:
    slopes = -slopes_of(language_logits(4, n=2000))
    # Roughness blurs a slope by .7 / sqrt(2000), too little to be seen against a spread of 2.1.
    assert stats.kstest(slopes, stats.gamma(2.0, loc=1.5, scale=1.5).cdf).pvalue > RARE


def test_flat_falls_as_one_over_the_rank_and_is_rough() -> None:
    logits = WORLDS["flat"].logits(np.random.default_rng(0), 2000, 500)
    slopes = slopes_of(logits)
    assert stats.ttest_1samp(slopes, -1.0).pvalue > RARE
    residual = logits + np.log1p(np.arange(500))
    residual = residual - residual.mean(axis=-1, keepdims=True)
    assert variance_is(residual, 0.7, lost=2000)


@pytest.mark.parametrize(("name", "concentration"), [("dirichlet_1", 1.0), ("dirichlet_0.3", 0.3)])
def test_dirichlet_worlds_have_the_beta_marginal(name: str, concentration: float) -> None:
    logits = WORLDS[name].logits(np.random.default_rng(0), 5000, 6)
    marginal = stats.beta(concentration, 5 * concentration)
    assert stats.kstest(np.exp(log_softmax(logits))[:, 2], marginal.cdf).pvalue > RARE


@pytest.mark.parametrize("world", WORLDS.values(), ids=list(WORLDS))
def test_every_row_has_its_largest_logit_at_the_top(world: World) -> None:
    logits = world.logits(np.random.default_rng(0), 7, 11)
    assert logits.shape == (7, 11)
    assert np.all(logits.max(axis=-1) == TOP)
    assert np.array_equal(logits, world.logits(np.random.default_rng(0), 7, 11))
    assert not np.array_equal(logits, world.logits(np.random.default_rng(1), 7, 11))
