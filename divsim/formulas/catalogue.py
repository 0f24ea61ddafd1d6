r"""The named update rules: each function builds one `Rule` record, `RULES` lists them with their defaults.

Radii carry the unit of their divergence and are not commensurable across rules: compare rules at a matched
drop rate or a matched KL, never at an equal number. `ratio_cap` caps the detached ratio of every rule that
has one; its default only guards against overflow.
"""

import inspect
from collections.abc import Callable
from functools import partial

from . import _checks as checks
from .clauses import (
    FALLBACKS,
    Clause,
    always_outward,
    binary_gap_beyond,
    certified_outward,
    divergence_beyond,
    lowering_outward,
    predicted_outward,
    ratio_beyond,
    ratio_outward,
)
from .divergences import CHI2_PI_MU, DIVERGENCES, FORWARD_KL, TV, Divergence
from .gains import (
    RATIO_CAP,
    anchored_gain,
    band_gain,
    clipped_gain,
    clipped_weight_gain,
    gap_penalty_gain,
    gap_pull_gain,
    masked_ratio_gain,
    ratio_penalty_gain,
    score_gain,
)
from .rules import Rule
from .tail import TAILS

RESOLUTIONS = ("binary", "top_k", "full")
"""Resolutions of a divergence: {k} and the rest; the view's own cells; every token (full views only)."""


def reinforce() -> Rule:
    """Weight 1: no correction for stale samples. Source: score function; no mask.

    >>> reinforce().name
    'reinforce'
    """
    return Rule("reinforce", "definition", score_gain)


def importance_sampling(ratio_cap: float = RATIO_CAP) -> Rule:
    """Weight min(r, ratio_cap), never dropped. Source: [DPPO] section 2 (the unmasked surrogate).

    >>> importance_sampling().drops
    True
    """
    return Rule("importance_sampling", "[DPPO] section 2", masked_ratio_gain(ratio_cap))


def ppo_clip(eps_low: float = 0.2, eps_high: float = 0.2, ratio_cap: float = RATIO_CAP) -> Rule:
    """PPO: drops outward tokens whose ratio leaves [1 - eps_low, 1 + eps_high]. Source: [PPO] eq. 7.

    >>> ppo_clip().name
    'ppo_clip(0.2, 0.2)'
    """
    return _clip("ppo_clip", "[PPO] eq. 7", eps_low, eps_high, None, ratio_cap)


def clip_higher(eps_low: float = 0.2, eps_high: float = 0.28, ratio_cap: float = RATIO_CAP) -> Rule:
    """PPO with a wider upper side. Source: [DAPO] section 3.1.

    >>> clip_higher().name
    'clip_higher(0.2, 0.28)'
    """
    return _clip("clip_higher", "[DAPO] section 3.1", eps_low, eps_high, None, ratio_cap)


def dual_clip(
    eps_low: float = 0.2, eps_high: float = 0.2, upper: float = 3.0, ratio_cap: float = RATIO_CAP
) -> Rule:
    """PPO that also drops A < 0 above a ratio `upper`. Source: [DualClip] eq. 5.

    >>> len(dual_clip().clauses)
    2
    """
    checks.require_number("upper", upper, "a ratio")
    if not upper > 1 + eps_high:
        raise ValueError(f"upper must be > 1 + eps_high = {1 + eps_high:g} (a ratio), got {upper}")
    return _clip("dual_clip", "[DualClip] eq. 5", eps_low, eps_high, upper, ratio_cap)


def two_sided(delta: float = 0.1, tau: float = 1e-3, ratio_cap: float = RATIO_CAP) -> Rule:
    """Drops every token with |pi_k - mu_k| > delta, whichever way it moves, and pulls all by -2 tau log r.

    Source: [IPO]. tau = 0 switches the pull off.

    >>> two_sided().name
    'two_sided(0.1)'
    """
    checks.require_positive("delta", delta, "a probability")
    checks.require_number("tau", tau, "weight of the squared log ratio")
    if not 0 <= tau < float("inf"):
        raise ValueError(f"tau must be a finite number >= 0 (weight of the squared log ratio), got {tau}")
    clause = Clause(binary_gap_beyond(delta), always_outward)
    gain = anchored_gain(tau, ratio_cap) if tau else masked_ratio_gain(ratio_cap)
    return Rule(f"two_sided({delta:g})", "[IPO]", gain, (clause,))


def dppo(
    divergence: Divergence = FORWARD_KL, resolution: str = "top_k", delta: float = 0.05,
    ratio_cap: float = RATIO_CAP,
) -> Rule:  # fmt: skip
    """Far by a divergence, outward by the ratio. Source: [DPPO] section 4.

    Args:
      divergence: any record; the paper uses forward KL and TV.
      resolution: "binary", "top_k" (the view's own cells) or "full".
      delta: radius in the divergence's unit.

    >>> dppo(TV, "binary", 0.15).name
    'dppo(tv, binary, 0.15)'
    """
    _check_radius(divergence, delta)
    checks.require_known("resolution", resolution, RESOLUTIONS)
    clause = Clause(divergence_beyond(divergence, delta, resolution), ratio_outward)
    name = f"dppo({divergence.name}, {resolution}, {delta:g})"
    return Rule(name, "[DPPO] section 4", masked_ratio_gain(ratio_cap), (clause,))


def predictive(
    divergence: Divergence = FORWARD_KL, tail: str = "full", delta: float = 0.15, ratio_cap: float = RATIO_CAP
) -> Rule:
    """Far by a divergence, outward by the first-order change of the same divergence.

    Args:
      divergence: any record; the paper runs forward KL and derives TV.
      tail: a name of `TAILS`; "full" demands a full view.
      delta: radius in the divergence's unit, at the view's resolution.

    Source: [PDM] section 3.

    >>> predictive(tail="uniform").name
    'predictive(forward_kl, uniform, 0.15)'
    """
    _check_radius(divergence, delta)
    checks.require_known("tail", tail, TAILS)
    clause = Clause(divergence_beyond(divergence, delta, "top_k"), predicted_outward(divergence, tail))
    name = f"predictive({divergence.name}, {tail}, {delta:g})"
    return Rule(name, "[PDM] section 3", masked_ratio_gain(ratio_cap), (clause,))


def certified(delta: float = 0.15, otherwise: str = "keep", ratio_cap: float = RATIO_CAP) -> Rule:
    """Far by forward KL, outward only where A c_k > 0 is proven for every hidden tail that fits the view.

    Args:
      delta: radius, nats, at the view's resolution.
      otherwise: what an unproven token gets: "keep", "ratio" or "uniform" (`FALLBACKS`).

    Source: derived here; derivations, T7 (interval).

    >>> certified(otherwise="ratio").name
    'certified(0.15, else ratio)'
    """
    checks.require_positive("delta", delta, "nats")
    checks.require_known("otherwise", otherwise, FALLBACKS)
    clause = Clause(divergence_beyond(FORWARD_KL, delta, "top_k"), certified_outward(otherwise))
    name = f"certified({delta:g}, else {otherwise})"
    return Rule(name, "derivations, T7", masked_ratio_gain(ratio_cap), (clause,))


def spo(eps: float = 0.2, ratio_cap: float = RATIO_CAP) -> Rule:
    """Soft: a quadratic penalty of the ratio; weight zero at r = 1 + sgn(A) eps. Source: [SPO].

    >>> spo().name
    'spo(0.2)'
    """
    checks.require_positive("eps", eps, "a ratio")
    return Rule(f"spo({eps:g})", "[SPO]", ratio_penalty_gain(eps, ratio_cap))


def drpo(delta: float = 0.15, ratio_cap: float = RATIO_CAP) -> Rule:
    """Soft: a quadratic penalty of the probability gap; weight zero at sgn(A) (pi_k - mu_k) = delta.

    Source: [DRPO] eq. 8. |pi_k - mu_k| <= 1, so delta > 1 never reaches zero weight.

    >>> drpo().name
    'drpo(0.15)'
    """
    checks.require_positive("delta", delta, "a probability")
    return Rule(f"drpo({delta:g})", "[DRPO] eq. 8", gap_penalty_gain(delta, ratio_cap, only_far=False))


def drpo_unweighted(delta: float = 0.15, ratio_cap: float = RATIO_CAP) -> Rule:
    """DRPO's penalty without |A|, a pull towards mu whatever the advantage. Source: [DRPO], ablation.

    >>> drpo_unweighted().name
    'drpo_unweighted(0.15)'
    """
    checks.require_positive("delta", delta, "a probability")
    return Rule(f"drpo_unweighted({delta:g})", "[DRPO] without |A|", gap_pull_gain(delta, ratio_cap))


def mask_drpo(delta: float = 0.15, radius: float = 0.15, ratio_cap: float = RATIO_CAP) -> Rule:
    """DRPO's penalty only outside the DPPO region |pi_k - mu_k| <= radius, which has its own radius.

    Source: [DRPO], ablation Mask-DRPO.

    >>> mask_drpo().drops
    False
    """
    checks.require_positive("delta", delta, "a probability")
    checks.require_positive("radius", radius, "a probability")
    clause = Clause(binary_gap_beyond(radius), ratio_outward)
    gain = gap_penalty_gain(delta, ratio_cap, only_far=True)
    return Rule(f"mask_drpo({delta:g}, {radius:g})", "[DRPO] Mask-DRPO", gain, (clause,), drops=False)


def banded(divergence: Divergence = TV, delta: float = 0.05, ratio_cap: float = RATIO_CAP) -> Rule:
    """PPO whose ratio band is what a binary divergence allows at each token.

    With TV and KL its mask is DPPO's binary mask at the same delta; only the surrogate's value differs.
    Source: [BandPO] section 3.

    >>> banded().name
    'banded(tv, 0.05)'
    """
    _check_radius(divergence, delta)
    clause = Clause(divergence_beyond(divergence, delta, "binary"), ratio_outward)
    gain = band_gain(divergence, delta, ratio_cap)
    return Rule(f"banded({divergence.name}, {delta:g})", "[BandPO] section 3", gain, (clause,))


def cispo(eps_low: float = 1.0, eps_high: float = 4.0) -> Rule:
    """Clips the weight, drops nothing: weight clip(r, 1 - eps_low, 1 + eps_high). Source: [CISPO] eq. 4.

    >>> cispo().name
    'cispo(1, 4)'
    """
    checks.require_positive("eps_low", eps_low, "a ratio")
    checks.require_positive("eps_high", eps_high, "a ratio")
    return Rule(f"cispo({eps_low:g}, {eps_high:g})", "[CISPO] eq. 4", clipped_weight_gain(eps_low, eps_high))


def _clip(
    name: str, source: str, eps_low: float, eps_high: float, upper: float | None, ratio_cap: float
) -> Rule:
    checks.require_positive("eps_low", eps_low, "a ratio")
    checks.require_positive("eps_high", eps_high, "a ratio")
    clauses = [Clause(ratio_beyond(eps_low, eps_high), ratio_outward)]
    settings = f"{eps_low:g}, {eps_high:g}"
    if upper is not None:
        clauses.append(Clause(ratio_beyond(1.0, upper - 1), lowering_outward))
        settings += f", {upper:g}"
    gain = clipped_gain(eps_low, eps_high, upper, ratio_cap)
    return Rule(f"{name}({settings})", source, gain, tuple(clauses))


def _check_radius(divergence: Divergence, delta: float) -> None:
    known = f"an entry of DIVERGENCES ({', '.join(DIVERGENCES)})"
    checks.require_record("divergence", divergence, Divergence, known)
    checks.require_positive("delta", delta, f"unit of {divergence.name}")


_SHORT = {"kl": FORWARD_KL, "tv": TV}
_DPPO_RADIUS = {"kl": 0.05, "tv": 0.15}
_PREDICTIVE_RADIUS = {"kl": 0.15, "tv": 0.15}

RULES: dict[str, Callable[..., Rule]] = {
    "reinforce": reinforce,
    "importance_sampling": importance_sampling,
    "ppo_clip": ppo_clip,
    "clip_higher": clip_higher,
    "dual_clip": dual_clip,
    "two_sided": two_sided,
    **{
        f"dppo_{resolution}_{short}": partial(dppo, _SHORT[short], resolution, delta=_DPPO_RADIUS[short])
        for resolution in RESOLUTIONS
        for short in _SHORT
    },
    **{
        f"predictive_{tail}_{short}": partial(
            predictive, _SHORT[short], tail, delta=_PREDICTIVE_RADIUS[short]
        )
        for tail in TAILS
        for short in _SHORT
    },
    "certified": certified,
    "spo": spo,
    "drpo": drpo,
    "drpo_unweighted": drpo_unweighted,
    "mask_drpo": mask_drpo,
    "band_tv": partial(banded, TV),
    "band_kl": partial(banded, FORWARD_KL),
    "band_chi2": partial(banded, CHI2_PI_MU),
    "cispo": cispo,
}
"""Every named rule; call an entry for the rule, with settings as keywords."""


def make_rule(name: str, **settings: float | str) -> Rule:
    """The rule of a name, with settings other than its defaults.

    Args:
      name: a name of `RULES`.
      settings: keywords of the rule's function, such as delta.

    Errors: ValueError for an unknown name, or a setting that the rule does not have.

    >>> make_rule("dppo_binary_tv", delta=0.2).name
    'dppo(tv, binary, 0.2)'
    """
    checks.require_known("rule", name, RULES)
    known = inspect.signature(RULES[name]).parameters
    for setting in settings:
        checks.require_known(f"setting of {name}", setting, known)
    return RULES[name](**settings)
