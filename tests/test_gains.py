"""Gains at their edges: a cap that is no cap, and float32 that stays float32."""

import numpy as np
import pytest
from conftest import Library

from divsim.formulas import View, gains


@pytest.mark.parametrize("cap", [0.0, -1.0, float("inf"), float("nan")])
def test_a_cap_is_a_positive_ratio(cap: float) -> None:
    with pytest.raises(ValueError, match=rf"ratio_cap must be a finite number > 0 \(a ratio\), got {cap}"):
        gains.capped_ratio(cap)


@pytest.mark.parametrize("only_far", [True, False])
def test_a_penalty_keeps_float32(only_far: bool, xp: Library) -> None:
    log_mu_k, log_pi_k = (xp.array(np.log(p).astype(np.float32)) for p in ([0.5, 0.5], [0.6, 0.4]))
    view = View.sampled(log_mu_k, log_pi_k, vocab_size=3)
    far = xp.array([True, False])
    gain = gains.gap_penalty_gain(0.1, 10.0, only_far)(view, xp.array(np.ones(2, np.float32)), far, far)
    assert gain.weight.dtype == gain.surrogate.dtype == view.log_pi.dtype
