"""What learns in `exact bandit` and `exact mdp`: every update rule, and every exact algorithm, by name.

Every learner has as many tries, and every rule the same range of learning rates: a rule with a radius varies
rate and radius, a rule without one its rate alone, more finely; an exact algorithm varies its radius. Radii
of different rules are not commensurable; they are compared by what they lead to.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divsim.formulas import RULES, Rule, make_rule
from divsim.tabular.environments import ENVIRONMENTS
from divsim.tabular.exact_learner import STEPS, improve
from divsim.tabular.learner import History, Recipe, Watch, learn
from divsim.tabular.optimisers import sgd

from .learning_config import HABITS, Condition, Config

RADII = ("delta", "radius", "eps", "eps_low", "eps_high")
"""Settings of a rule that say how far is far."""


@dataclass(frozen=True)
class Setting:
    """One try.

    Attributes:
      rate: multiplies the learning rate of the environment.
      scale: multiplies the radii of a rule, or of an exact algorithm.

    >>> Setting(0.25, 3.0).name
    'rate 0.25, radius 3'
    """

    rate: float
    scale: float

    @property
    def name(self) -> str:
        """As it stands in rows."""
        return f"rate {self.rate:g}, radius {self.scale:g}"

    @property
    def key(self) -> str:
        """As it stands in the keys of tiles."""
        return f"{self.rate:g}-{self.scale:g}"


SEEING_TOP_K = tuple(
    rule
    for rule in RULES
    if rule.startswith(("dppo_top_k", "predictive_", "certified")) and "_full_" not in rule
)
"""Rules to which it matters how much the engine shows; all others are given a full view, which is cheaper."""


COMMON = {"_kl": 0.1, "_tv": 0.15, "certified": 0.1}
"""Radii that rules of one divergence share, whatever their defaults, so that none is tried wider."""


def radii(rule: str) -> dict[str, float]:
    """The radii of a rule that are multiplied, by their names.

    >>> radii("clip_higher"), radii("dppo_full_kl") == radii("predictive_full_kl")
    ({'eps_low': 0.2, 'eps_high': 0.28}, True)
    """
    known = inspect.signature(RULES[rule]).parameters
    found = {name: float(known[name].default) for name in RADII if name in known}
    shared = [radius for ending, radius in COMMON.items() if rule.endswith(ending)]
    return found | {"delta": shared[0]} if shared else found


def scaled_rule(rule: str, scale: float) -> Rule:
    """The rule with all its radii multiplied.

    >>> scaled_rule("drpo", 2.0).name, scaled_rule("dppo_full_kl", 3.0).name
    ('drpo(0.3)', 'dppo(forward_kl, full, 0.3)')
    """
    return make_rule(rule, **{name: scale * radius for name, radius in radii(rule).items()})


STEP_REACH = 10
"""How many times wider than those of rules the radii of exact algorithms may be: they meet them."""


def _spread(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` factors from low to high, evenly in logs."""
    return tuple(float(f"{factor:.3g}") for factor in np.geomspace(low, high, count))


def settings(config: Config, learner: str) -> tuple[Setting, ...]:
    """The tries of a learner: as many for each.

    >>> [len(settings(Config(), learner)) for learner in ("drpo", "reinforce", "trpo")]
    [16, 16, 16]
    """
    tries = len(config.rates) * len(config.scales)
    if learner in STEPS:
        most = STEP_REACH * max(config.scales)
        return tuple(Setting(1.0, scale) for scale in _spread(min(config.scales), most, tries))
    if not radii(learner):
        return tuple(Setting(rate, 1.0) for rate in _spread(min(config.rates), max(config.rates), tries))
    return tuple(Setting(rate, scale) for rate in config.rates for scale in config.scales)


def run_learner(
    config: Config, condition: Condition, learner: str, setting: Setting, rngs: Sequence[np.random.Generator],
    watch: Watch = lambda world, log_mu, log_pi: None,
) -> History:  # fmt: skip
    """Learn under one condition and one setting; each generator is a seed."""
    habit, place = HABITS[condition.environment], ENVIRONMENTS[condition.environment]
    advantage = config.advantage or habit.advantage
    if learner in STEPS:
        step = STEPS[learner]
        radius = step.radius * setting.scale
        return improve(place, step, radius, rngs, config.rollouts, config.episodes, advantage, watch)
    recipe = Recipe(
        rule=scaled_rule(learner, setting.scale),
        optimiser=sgd(habit.rate * setting.rate),
        rollouts=config.rollouts,
        episodes=config.episodes,
        minibatches=condition.minibatches,
        passes=config.passes,
        advantage=advantage,
        k=(condition.k or None) if learner in SEEING_TOP_K else None,
        bracket=learner == "certified",
        engine_noise=config.engine_noise,
    )
    return learn(place, recipe, rngs, watch)


LEARNERS = (*RULES, *STEPS)
"""Everything that learns."""
