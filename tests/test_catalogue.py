"""Every named rule at its defaults: what it is called, where it comes from, and the units its errors name."""

import re
from typing import Any

import numpy as np
import pytest
from pairs import assert_close

from divsim.formulas import RULES, View, banded, dppo, make_rule, predictive

DEFAULTS = {
    "reinforce": ("reinforce", "definition"),
    "importance_sampling": ("importance_sampling", "[DPPO] section 2"),
    "ppo_clip": ("ppo_clip(0.2, 0.2)", "[PPO] eq. 7"),
    "clip_higher": ("clip_higher(0.2, 0.28)", "[DAPO] section 3.1"),
    "dual_clip": ("dual_clip(0.2, 0.2, 3)", "[DualClip] eq. 5"),
    "two_sided": ("two_sided(0.1)", "[IPO]"),
    "dppo_binary_kl": ("dppo(forward_kl, binary, 0.05)", "[DPPO] section 4"),
    "dppo_binary_tv": ("dppo(tv, binary, 0.15)", "[DPPO] section 4"),
    "dppo_top_k_kl": ("dppo(forward_kl, top_k, 0.05)", "[DPPO] section 4"),
    "dppo_top_k_tv": ("dppo(tv, top_k, 0.15)", "[DPPO] section 4"),
    "dppo_full_kl": ("dppo(forward_kl, full, 0.05)", "[DPPO] section 4"),
    "dppo_full_tv": ("dppo(tv, full, 0.15)", "[DPPO] section 4"),
    "predictive_full_kl": ("predictive(forward_kl, full, 0.15)", "[PDM] section 3"),
    "predictive_full_tv": ("predictive(tv, full, 0.15)", "[PDM] section 3"),
    "predictive_aggregated_kl": ("predictive(forward_kl, aggregated, 0.15)", "[PDM] section 3"),
    "predictive_aggregated_tv": ("predictive(tv, aggregated, 0.15)", "[PDM] section 3"),
    "predictive_uniform_kl": ("predictive(forward_kl, uniform, 0.15)", "[PDM] section 3"),
    "predictive_uniform_tv": ("predictive(tv, uniform, 0.15)", "[PDM] section 3"),
    "predictive_proportional_kl": ("predictive(forward_kl, proportional, 0.15)", "[PDM] section 3"),
    "predictive_proportional_tv": ("predictive(tv, proportional, 0.15)", "[PDM] section 3"),
    "predictive_zero_kl": ("predictive(forward_kl, zero, 0.15)", "[PDM] section 3"),
    "predictive_zero_tv": ("predictive(tv, zero, 0.15)", "[PDM] section 3"),
    "certified": ("certified(0.15, else keep)", "derivations, T7"),
    "spo": ("spo(0.2)", "[SPO]"),
    "drpo": ("drpo(0.15)", "[DRPO] eq. 8"),
    "drpo_unweighted": ("drpo_unweighted(0.15)", "[DRPO] without |A|"),
    "mask_drpo": ("mask_drpo(0.15, 0.15)", "[DRPO] Mask-DRPO"),
    "band_tv": ("banded(tv, 0.05)", "[BandPO] section 3"),
    "band_kl": ("banded(forward_kl, 0.05)", "[BandPO] section 3"),
    "band_chi2": ("banded(chi2_pi_mu, 0.05)", "[BandPO] section 3"),
    "cispo": ("cispo(1, 4)", "[CISPO] eq. 4"),
}


def test_names_and_sources() -> None:
    assert {name: (make_rule(name).name, make_rule(name).source) for name in RULES} == DEFAULTS


def test_defaults_of_the_makers() -> None:
    assert predictive().name == "predictive(forward_kl, full, 0.15)"
    assert dppo().name == "dppo(forward_kl, top_k, 0.05)"
    assert banded().name == "banded(tv, 0.05)"


TEXT: Any = "1"
UNITS = [
    ("ppo_clip", "eps_low", "a ratio"),
    ("ppo_clip", "eps_high", "a ratio"),
    ("dual_clip", "upper", "a ratio"),
    ("two_sided", "delta", "a probability"),
    ("two_sided", "tau", "weight of the squared log ratio"),
    ("certified", "delta", "nats"),
    ("spo", "eps", "a ratio"),
    ("drpo", "delta", "a probability"),
    ("drpo_unweighted", "delta", "a probability"),
    ("mask_drpo", "delta", "a probability"),
    ("mask_drpo", "radius", "a probability"),
    ("band_tv", "delta", "unit of tv"),
    ("cispo", "eps_low", "a ratio"),
    ("cispo", "eps_high", "a ratio"),
]


@pytest.mark.parametrize(("name", "setting", "unit"), UNITS)
def test_errors_name_the_unit(name: str, setting: str, unit: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"{setting} must be a number ({unit}), got '1'")):
        make_rule(name, **{setting: TEXT})


def seen_at(ratios: list[float]) -> View:
    log_mu_k = np.full(len(ratios), np.log(0.2))
    return View.sampled(log_mu_k, log_mu_k + np.log(ratios), vocab_size=5)


def test_dual_clip_drops_a_lowered_token_beyond_three_and_no_other() -> None:
    decision = make_rule("dual_clip")(seen_at([0.9, 1.5, 2.9, 3.1]), -np.ones(4))
    assert decision.keep.tolist() == [True, True, True, False]


def test_the_pull_of_two_sided_is_a_thousandth() -> None:
    assert_close(make_rule("two_sided")(seen_at([0.9]), np.ones(1)).pull, [-2e-3 * np.log(0.9)], rtol=1e-13)
