"""Learning with soft rules from stale samples: how far pi goes from mu, and what is learned on the way.

All seeds of an environment and a learning rate are one tile, under every rule in turn with the same streams:
the same worlds, the same noise, and in the first rollout the same samples. So differences are paired. What is
left out: a choice of each rule's best rate (`exact bandit` and `exact mdp` do that).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import Rule, drpo, drpo_unweighted
from divsim.tabular.environments import ENVIRONMENTS
from divsim.tabular.learner import Recipe, learn
from divsim.tabular.optimisers import sgd
from divsim.tabular.policies import Floats
from divsim.tabular.worlds import World

from .drpo_config import Config, contrasts, learning_rules
from .learning import summary
from .learning_config import HABITS
from .parts import Part, Seeds
from .rows import Key, Row, row
from .runs import stream
from .statistics import Estimate, mean, share, sign_flip_p

GAINS = ("final_gain", "mean_gain")
"""Shares of what the best policy would gain: after the last rollout, and on average over all."""
DISTANCES = ("first_kl", "kl")
"""KL(mu || pi) at the end of the first rollout, and of all on average, nats."""
TRUSTED = 0.5
"""Of the KL at the end of the first rollout without a penalty; who goes further is no trust region."""
MEASURES = (*GAINS, *DISTANCES, "first_gap", "entropy")
"""All that is averaged over seeds; first_gap is the largest |pi - mu| at the end of the first rollout."""


def cells(config: Config) -> tuple[str, ...]:
    """An environment and a factor of its learning rate each."""
    return tuple(f"{name}-{rate:g}" for name in config.environments for rate in config.rates)


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Measures of all seeds under all rules, (rules, seeds). Streams are those of seeds, not of the tile."""
    environment, rate = cell.split("-")
    found = [_learned(config, environment, float(rate), rule) for rule in learning_rules(config).values()]
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


def _learned(config: Config, environment: str, rate: float, rule: Rule) -> dict[str, Floats]:
    """(seeds,) each."""
    habit, seeds = HABITS[environment], range(config.learning_seeds)
    steps = config.minibatches * config.passes
    gaps: list[Floats] = []

    def watch(world: World, log_mu: Floats, log_pi: Floats) -> None:
        if len(gaps) < steps:
            gaps.append(np.max(np.abs(np.exp(log_pi) - np.exp(log_mu)), axis=(-2, -1)))

    recipe = Recipe(rule, sgd(rate * habit.rate), config.rollouts, config.episodes, config.minibatches,
                    config.passes, habit.advantage)  # fmt: skip
    rngs = [stream(config.seed, f"{environment}@{seed}") for seed in seeds]
    history = learn(ENVIRONMENTS[environment], recipe, rngs, watch)
    found = summary(history) | {"first_kl": history.kl[:, 0, -1], "first_gap": gaps[-1]}
    return {name: found[name] for name in MEASURES} | {"collapsed": ~np.isnan(found["collapse"])}


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """What is reported of one cell: every rule's measures, then the paired differences."""
    environment, rate = cell.split("-")
    key: Key = {"environment": environment, "rate": rate}
    names, tile = list(learning_rules(config)), {name: array[0] for name, array in seeds.items()}
    n, found = config.learning_seeds, []
    for rule, collapsed, place in zip(names, tile["collapsed"], range(len(names)), strict=True):
        here = key | {"table": "learning", "rule": rule}
        found += [row(mean(tile[name][place]), n, quantity=name, **here) for name in MEASURES]
        found.append(row(share(collapsed, np.ones(n)), n, quantity="collapsed", **here))
    for rule, baseline in contrasts(config):
        pair = names.index(rule), names.index(baseline)
        found += _difference_rows(tile, pair, key | {"rule": rule, "baseline": baseline})
    return found + _tuned_rows(config, names, tile, key)


def _difference_rows(tile: Seeds, pair: tuple[int, int], key: Key) -> list[Row]:
    """Gains by their difference, distances by their ratio, seed by seed."""
    found, here = [], {"table": "learning_difference", **key}
    for name in GAINS:
        difference = tile[name][pair[0]] - tile[name][pair[1]]
        p = sign_flip_p(difference)
        found.append(row(mean(difference), len(difference), p, quantity=name, **here))
    for name in DISTANCES:
        with np.errstate(invalid="ignore"):
            logs = _logs(tile[name][pair[0]]) - _logs(tile[name][pair[1]])
        logs = np.where(np.isfinite(logs), logs, np.nan)  # a policy that stays has no ratio
        factor = _geometric(mean(logs))
        found.append(row(factor, len(logs), sign_flip_p(logs), quantity=f"{name}_ratio", **here))
    return found


def _tuned_rows(config: Config, names: list[str], tile: Seeds, key: Key) -> list[Row]:
    """DRPO without |A| minus DRPO, each at the radius of the best mean gain that is a trust region at all.

    Both have as many radii to choose from. The first half of the seeds chooses, the second half judges; there
    is nothing to report where no radius of one of them takes the KL below `TRUSTED`.
    """
    half = config.learning_seeds // 2
    gain, kl = tile["mean_gain"][:, :half].mean(axis=-1), _logs(tile["first_kl"][:, :half]).mean(axis=-1)
    allowed = kl <= kl[0] + np.log(TRUSTED)
    best = []
    for build in (drpo_unweighted, drpo):
        places = [names.index(build(delta).name) for delta in config.radii]
        best.append(max((place for place in places if allowed[place]), key=lambda k: gain[k], default=0))
    if 0 in best:
        return []
    rule, baseline = (names[place] for place in best)
    here = {"table": "learning_tuned", "rule": rule, "baseline": baseline, **key}
    found = []
    for name in GAINS:
        difference = tile[name][best[0], half:] - tile[name][best[1], half:]
        found.append(row(mean(difference), len(difference), sign_flip_p(difference), quantity=name, **here))
    return found


def _logs(values: NDArray[np.float64]) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def _geometric(logs: Estimate) -> Estimate:
    """The estimate of a mean log as a ratio."""
    value, low, high = (float(np.exp(x)) for x in (logs.value, logs.low, logs.high))
    return Estimate(value, low, high, logs.clusters)


LEARNING = Part("learning", cells, lambda config: 1, compute, rows)
