"""The floor of divsim: every formula, once, as pure functions of arrays (NumPy, torch, symbolic).

Start here: build a `View` (`View.full`, `top_k`, `sampled`, `from_logits`), call a rule of `RULES` on it and
on the advantages, read the `Decision` and its `diagnostics`. Behind the rules stand `DIVERGENCES`, `change`
with its `TAILS`, and `change_interval`, which proves the sign of the change. `finite_change` and
`flip_step_bracket` need whole policies; `group_advantage`, `loss_weights` and `aggregate` make a loss; the
rest are bounds.
"""

from ._array import Array
from .bands import band
from .batch import AGGREGATIONS, aggregate, group_advantage, loss_weights
from .bounds import (
    bretagnolle_huber,
    cpo_penalty,
    expected_advantage,
    horizon_adaptive,
    horizon_coupling,
    horizon_linear,
    horizon_mixed,
    horizon_pinsker_marginal,
    horizon_quadratic,
    kakade_langford,
    occupancy_shift,
    pinsker,
    simulation_gap,
    trpo_penalty,
)
from .catalogue import (
    RESOLUTIONS,
    RULES,
    banded,
    certified,
    cispo,
    clip_higher,
    dppo,
    drpo,
    dual_clip,
    importance_sampling,
    make_rule,
    mask_drpo,
    ppo_clip,
    predictive,
    reinforce,
    spo,
    two_sided,
)
from .change import (
    change,
    curvature,
    directional_change,
    finite_change,
    flip_step_bracket,
    kernel_change,
    mean_under,
)
from .clauses import FALLBACKS, Clause, Direction, Proximity
from .diagnostics import diagnostics, share
from .divergences import (
    CHI2_MU_PI,
    CHI2_PI_MU,
    DIVERGENCES,
    FORWARD_KL,
    HELLINGER2,
    JS,
    REVERSE_KL,
    TV,
    Divergence,
    difference,
    log_ratio,
)
from .families import alpha, renyi
from .gains import RATIO_CAP, Gain
from .overlap import overlap_bounds_at, overlap_bracket
from .rules import Decision, Rule
from .sampled_kl import LOG_RATIO_CAP, SAMPLED_KL, k1, k2, k3, k3_pull
from .softmax import (
    entropy,
    exponential_path,
    log_mass,
    log_softmax,
    logsumexp,
    policy_gradient_direction,
)
from .tail import TAILS, Tail, change_interval
from .view import View

__all__ = [
    "AGGREGATIONS",
    "CHI2_MU_PI",
    "CHI2_PI_MU",
    "DIVERGENCES",
    "FALLBACKS",
    "FORWARD_KL",
    "HELLINGER2",
    "JS",
    "LOG_RATIO_CAP",
    "RATIO_CAP",
    "RESOLUTIONS",
    "REVERSE_KL",
    "RULES",
    "SAMPLED_KL",
    "TAILS",
    "TV",
    "Array",
    "Clause",
    "Decision",
    "Direction",
    "Divergence",
    "Gain",
    "Proximity",
    "Rule",
    "Tail",
    "View",
    "aggregate",
    "alpha",
    "band",
    "banded",
    "bretagnolle_huber",
    "certified",
    "change",
    "change_interval",
    "cispo",
    "clip_higher",
    "cpo_penalty",
    "curvature",
    "diagnostics",
    "difference",
    "directional_change",
    "dppo",
    "drpo",
    "dual_clip",
    "entropy",
    "expected_advantage",
    "exponential_path",
    "finite_change",
    "flip_step_bracket",
    "group_advantage",
    "horizon_adaptive",
    "horizon_coupling",
    "horizon_linear",
    "horizon_mixed",
    "horizon_pinsker_marginal",
    "horizon_quadratic",
    "importance_sampling",
    "k1",
    "k2",
    "k3",
    "k3_pull",
    "kakade_langford",
    "kernel_change",
    "log_mass",
    "log_ratio",
    "log_softmax",
    "logsumexp",
    "loss_weights",
    "make_rule",
    "mask_drpo",
    "mean_under",
    "occupancy_shift",
    "overlap_bounds_at",
    "overlap_bracket",
    "pinsker",
    "policy_gradient_direction",
    "ppo_clip",
    "predictive",
    "reinforce",
    "renyi",
    "share",
    "simulation_gap",
    "spo",
    "trpo_penalty",
    "two_sided",
]
