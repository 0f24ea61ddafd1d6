r"""Inequalities between divergences, and what a trust region guarantees about the return.

Two settings: discounted MDPs (returns unnormalised, occupancies normalised) and a finite horizon of T steps
with one outcome reward R, |R| <= xi, as for a language model. Each function is one side of a theorem; where a
bound exceeds the range of the return it says nothing, and whoever prints it says that first.
"""

import math

from ._array import Array, namespace
from ._checks import require_count


def pinsker(kl: Array) -> Array:
    """Pinsker: TV <= sqrt(KL / 2). (...) nats -> (...), not capped at 1.

    Source: [Pinsker]; derivations, T8.

    >>> import numpy as np
    >>> float(pinsker(np.array(0.08)))
    0.2
    """
    return namespace(kl).sqrt(kl / 2)


def bretagnolle_huber(kl: Array) -> Array:
    """Bretagnolle-Huber: TV <= sqrt(1 - e^-KL), the sharper one above KL = 1.5936.

    Source: [Pinsker]; derivations, T8.

    >>> import numpy as np
    >>> round(float(bretagnolle_huber(np.array(2.0))), 4)
    0.9299
    """
    xp = namespace(kl)
    return xp.sqrt(-xp.expm1(-kl))


def expected_advantage(pi: Array, advantage: Array) -> Array:
    """The mean advantage of pi under another policy's A: (..., S, A), (..., S, A) -> (..., S).

    The performance-difference identity is J(pi') - J(pi) = E_{s ~ d^pi'}[this] / (1 - gamma).
    Source: [KL02] Lemma 6.1.

    >>> import numpy as np
    >>> float(expected_advantage(np.array([[0.25, 0.75]]), np.array([[2.0, -1.0]]))[0])
    -0.25
    """
    return namespace(pi, advantage).sum(pi * advantage, axis=-1)


def kakade_langford(mixing: Array, epsilon: Array, gamma: float) -> Array:
    """The loss 2 epsilon gamma a^2 / (1 - gamma)^2 of a mixture (1 - a) pi + a pi', epsilon = max_s |A-bar|.

    Gain >= a L - this. Source: [KL02] Theorem 4.1 (weaker constant).

    >>> round(float(kakade_langford(0.1, 1.0, 0.5)), 6)
    0.04
    """
    _check_discount(gamma)
    return 2 * epsilon * gamma * mixing**2 / (1 - gamma) ** 2


def trpo_penalty(max_tv: Array, epsilon: Array, gamma: float) -> Array:
    """The penalty 4 epsilon gamma TV_max^2 / (1 - gamma)^2, epsilon = max |A|. Gain >= L - this.

    Source: [TRPO] Theorem 1; with KL use TV_max^2 <= KL_max / 2.

    >>> round(float(trpo_penalty(0.1, 1.0, 0.5)), 6)
    0.08
    """
    _check_discount(gamma)
    return 4 * epsilon * gamma * max_tv**2 / (1 - gamma) ** 2


def cpo_penalty(mean_tv: Array, epsilon: Array, gamma: float) -> Array:
    """The penalty 2 gamma epsilon E_{d^pi}[TV] / (1 - gamma)^2, epsilon = max_s |E_pi' A|. Gain >= L - this.

    Source: [CPO] Corollary 1.

    >>> round(float(cpo_penalty(0.1, 1.0, 0.5)), 6)
    0.4
    """
    _check_discount(gamma)
    return 2 * gamma * epsilon * mean_tv / (1 - gamma) ** 2


def occupancy_shift(mean_tv: Array, gamma: float) -> Array:
    """How far occupancies part: |d^pi' - d^pi|_1 <= 2 gamma E_{d^pi}[TV] / (1 - gamma).

    Source: [CPO] Lemma 3.

    >>> round(float(occupancy_shift(0.1, 0.5)), 6)
    0.2
    """
    _check_discount(gamma)
    return 2 * gamma * mean_tv / (1 - gamma)


def simulation_gap(reward_error: Array, transition_error: Array, value_span: Array, gamma: float) -> Array:
    """Simulation lemma: |V - V-hat|_max <= (e_R + gamma e_P span(V-hat) / 2) / (1 - gamma), e_P in L1.

    Source: [KS02], in this form derived here.

    >>> round(float(simulation_gap(0.1, 0.2, 1.0, 0.5)), 6)
    0.3
    """
    _check_discount(gamma)
    return (reward_error + gamma * transition_error * value_span / 2) / (1 - gamma)


def horizon_quadratic(max_tv: Array, horizon: int, xi: Array | float = 1.0) -> Array:
    """|J(pi) - J(mu) - L'| <= 2 xi T (T - 1) TV_max^2.

    Source: [DPPO] Theorem 3.2, eq. 7; derivations, T12.

    >>> round(float(horizon_quadratic(0.1, 4)), 6)
    0.24
    """
    require_count("horizon", horizon, "steps", "pass the length of an episode")
    return 2 * xi * horizon * (horizon - 1) * max_tv**2


def horizon_linear(mean_tv: Array, xi: Array | float = 1.0) -> Array:
    """The same error <= 4 xi sum_t E_mu TV_t, mean_tv of shape (..., T).

    Source: [DPPO] Theorem 3.2, eq. 8.

    >>> import numpy as np
    >>> round(float(horizon_linear(np.array([0.1, 0.2]))), 6)
    1.2
    """
    return 4 * xi * namespace(mean_tv).sum(mean_tv, axis=-1)


def horizon_coupling(max_tv: Array, horizon: int, xi: Array | float = 1.0) -> Array:
    """The same error <= 4 xi sum_t min(1, e) min(1, (t - 1) e), e = TV_max.

    Source: [TRM], coupling bound.

    >>> import numpy as np
    >>> round(float(horizon_coupling(np.array(0.1), 4)), 6)
    0.24
    """
    xp = namespace(max_tv)
    earlier = _steps(max_tv, horizon) * max_tv[..., None]
    return 4 * xi * xp.clip(max_tv, max=1.0) * xp.sum(xp.clip(earlier, max=1.0), axis=-1)


def horizon_pinsker_marginal(max_kl: Array, horizon: int, xi: Array | float = 1.0) -> Array:
    """The same error <= 4 xi sum_t min(1, sqrt(k/2)) min(1, sqrt((t-1) k/2)), k = KL_max: order T^1.5.

    Source: [TRM], Pinsker-marginal bound.

    >>> import numpy as np
    >>> round(float(horizon_pinsker_marginal(np.array(1e-4), 4096)), 2)
    34.95
    """
    xp = namespace(max_kl)
    now = xp.clip(pinsker(max_kl), max=1.0)
    earlier = xp.clip(pinsker(_steps(max_kl, horizon) * max_kl[..., None]), max=1.0)
    return 4 * xi * now * xp.sum(earlier, axis=-1)


def horizon_mixed(max_kl: Array, sequence_kl: Array, horizon: int, xi: Array | float = 1.0) -> Array:
    """The same error <= 4 xi T min(1, sqrt(k/2)) min(1, sqrt(K/2)), K = sequence KL.

    Source: [TRM], mixed bound.

    >>> import numpy as np
    >>> round(float(horizon_mixed(np.array(1e-4), np.array(0.01), 4096)), 2)
    8.19
    """
    require_count("horizon", horizon, "steps", "pass the length of an episode")
    xp = namespace(max_kl)
    return 4 * xi * horizon * xp.clip(pinsker(max_kl), max=1.0) * xp.clip(pinsker(sequence_kl), max=1.0)


def horizon_adaptive(mean_tv: Array, max_tv: Array, max_kl: Array, xi: Array | float = 1.0) -> Array:
    """The same error <= 4 xi sum_t TV_t min(1, (T-t) e, sqrt((T-t) k/2)), mean_tv (..., T), e and k maxima.

    Source: [TRM], adaptive bound.

    >>> import numpy as np
    >>> round(float(horizon_adaptive(np.array([0.1, 0.1]), np.array(0.1), np.array(0.02))), 6)
    0.04
    """
    xp = namespace(mean_tv)
    later = xp.flip(_steps(max_tv, mean_tv.shape[-1]), axis=-1)
    reach = xp.minimum(later * max_tv[..., None], pinsker(later * max_kl[..., None]))
    return 4 * xi * xp.sum(mean_tv * xp.clip(reach, max=1.0), axis=-1)


def _steps(like: Array, horizon: int) -> Array:
    """0, 1, ..., T - 1 in the dtype of `like`: (T)."""
    require_count("horizon", horizon, "steps", "pass the length of an episode")
    xp = namespace(like)
    return xp.arange(horizon, dtype=like.dtype, device=like.device)


def _check_discount(gamma: float) -> None:
    if not (0 <= gamma < 1 and math.isfinite(gamma)):
        raise ValueError(f"gamma must be in [0, 1) (discount), got {gamma}; finite horizons have horizon_*")
