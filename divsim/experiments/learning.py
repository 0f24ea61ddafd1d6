"""Learning under every rule and every exact algorithm: what each try leads to, and tries that match.

A tile is one try of one learner in one environment, all its seeds together; the streams of a seed are the
same for every learner, so that differences are paired. Settings are chosen on tuning seeds and judged on
others: the try that learns most among those whose KL stays below a target, or whose drop rate is close
to it. What is left out: one rollout against the best step of the same KL (`frontier.py`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.tabular.exact_learner import STEPS
from divsim.tabular.learner import History

from .learners import Setting, run_learner, settings
from .learning_config import Condition, Config, conditions
from .rows import Key, Row, row
from .runs import Arrays, stream
from .statistics import Estimate, mean, share, sign_flip_p

PHASES: dict[str, Callable[[Config], int]] = {
    "tune": lambda config: config.tuning_seeds,
    "test": lambda config: config.seeds,
}
"""Which seeds: on the first a setting is chosen, on the others it is judged."""

REFERENCES = {
    "tuned": ("importance_sampling", "dppo_full_kl"),
    "kl": ("importance_sampling", "dppo_full_kl"),
    "drop": ("ppo_clip", "dppo_full_kl"),
}
"""What others are compared with under each kind of match: no mask or the field's first one, and DPPO."""

COLLAPSE = 0.5
"""Of the best gain so far: a run that loses more, and does not come back, has collapsed."""
LEAST_GAIN = 0.1
"""Of what could be gained; a run that never gained so much cannot collapse."""

Tried = Mapping[Setting, Arrays]


def tiles(config: Config) -> tuple[str, ...]:
    """One try each."""
    return tuple(
        _tile(condition, learner, setting, phase)
        for condition in conditions(config)
        for learner in config.learners
        for setting in settings(config, learner)
        for phase in PHASES
    )


def _tile(condition: Condition, learner: str, setting: Setting, phase: str) -> str:
    return f"learn@{condition.name}@{learner}@{setting.key}@{phase}"


def compute(config: Config, key: str) -> dict[str, NDArray[Any]]:
    """What became of the seeds of one try, (n,) or (n, ...) each."""
    _, name, learner, tried, phase = key.split("@")
    condition = condition_named(conditions(config), name)
    rngs = streams(config, condition, phase, PHASES[phase](config))
    setting = next(setting for setting in settings(config, learner) if setting.key == tried)
    history = run_learner(config, condition, learner, setting, rngs)
    if learner in STEPS and STEPS[learner].aims:
        return summary(history) | {"overshoot": _overshoot(history, STEPS[learner].radius * setting.scale)}
    return summary(history)


def _overshoot(history: History, radius: float) -> NDArray[np.float64]:
    """(n,) the largest KL of a step, in units of what it aimed at."""
    return np.asarray(history.kl.max(axis=(1, 2)) / radius)


def streams(config: Config, condition: Condition, phase: str, seeds: int) -> list[np.random.Generator]:
    """A generator a seed, the same for all learners and conditions of an environment."""
    return [stream(config.seed, f"{condition.environment}@{phase}@{seed}") for seed in range(seeds)]


def condition_named(among: Iterable[Condition], name: str) -> Condition:
    """The condition of that name."""
    return next(condition for condition in among if condition.name == name)


def summary(history: History) -> dict[str, NDArray[Any]]:
    """Gains are shares of what the best policy of the world would gain."""
    start = history.ret[:, :1]
    gain = (history.ret - start) / (history.best[:, None] - start)
    return {
        "gain": gain,
        "final_gain": gain[:, -1],
        "mean_gain": gain[:, 1:].mean(axis=-1),
        "entropy": history.entropy[:, -1],
        "kl": history.kl[..., -1].mean(axis=-1),
        "largest_kl": history.largest_kl.max(axis=(1, 2)),
        "drop": _mean_defined(history.drop),
        "disagree": _mean_defined(history.disagree),
        "sample_size": _mean_defined(history.sample_size[..., -1:]),
        "collapse": collapse(gain),
        "along": history.kl.mean(axis=1),
    }


def _mean_defined(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over rollouts (and minibatches) without NaN; NaN where there is nothing else."""
    count = np.sum(~np.isnan(values), axis=(1, 2))
    return np.asarray(np.where(count > 0, np.nansum(values, axis=(1, 2)) / np.maximum(count, 1), np.nan))


def collapse(gain: NDArray[np.float64]) -> NDArray[np.float64]:
    """After how many rollouts more than half of the best gain so far was lost for good: (n, N + 1) -> (n,).

    NaN where that did not happen.

    >>> collapse(np.array([[0.0, 0.4, 0.8, 0.3, 0.1], [0.0, 0.4, 0.1, 0.5, 0.6]]))
    array([ 3., nan])
    """
    best = np.maximum.accumulate(gain, axis=-1)
    is_low = (best >= LEAST_GAIN) & (gain < (1 - COLLAPSE) * best)
    stays = np.flip(np.logical_and.accumulate(np.flip(is_low, axis=-1), axis=-1), axis=-1)
    return np.where(stays[:, -1], np.argmax(stays, axis=-1), np.nan)


MEANS = (
    "final_gain", "mean_gain", "entropy", "kl", "largest_kl", "drop", "disagree", "sample_size", "overshoot",
)  # fmt: skip
"""Reported of every try, the mean over its seeds."""


def rows(config: Config, tiles: Mapping[str, Arrays]) -> list[Row]:
    """Every try on the test seeds, then the matched comparisons."""
    found: list[Row] = []
    for condition in conditions(config):
        tried = {
            learner: {phase: _tried(config, tiles, condition, learner, phase) for phase in PHASES}
            for learner in config.learners
        }
        for learner, by_phase in tried.items():
            for setting, arrays in by_phase["test"].items():
                key = {**condition.key, "learner": learner, "setting": setting.name}
                found += _try_rows(arrays, key)
            found += _along_rows(by_phase["test"], {**condition.key, "learner": learner})
        found += _matched_rows(config, condition, tried)
    return found


def _tried(
    config: Config, tiles: Mapping[str, Arrays], condition: Condition, learner: str, phase: str
) -> Tried:
    return {
        setting: tiles[_tile(condition, learner, setting, phase)] for setting in settings(config, learner)
    }


def _try_rows(arrays: Arrays, key: Key) -> Iterable[Row]:
    seeds = len(arrays["kl"])
    for name in MEANS:
        if name in arrays:
            yield from _mean_row(arrays[name], table="tries", quantity=name, **key)
    fell = ~np.isnan(arrays["collapse"])
    yield row(share(fell, np.ones(seeds)), seeds, table="tries", quantity="collapsed", **key)
    if np.any(fell):
        when = mean(arrays["collapse"])
        yield row(when, int(fell.sum()), table="tries", quantity="collapse_time", **key)


def _along_rows(tried: Tried, key: Key) -> Iterable[Row]:
    """Log KL after each minibatch at radius 1 and the highest rate, which asks most of a mask."""
    steepest = max((setting for setting in tried if setting.scale == 1), key=lambda s: s.rate, default=None)
    if steepest is not None:
        for place, kl in enumerate(tried[steepest]["along"].T):
            log_kl = np.log(kl, where=kl > 0, out=np.full_like(kl, np.nan))
            yield from _mean_row(
                log_kl, table="along", minibatch=place + 1, quantity="log_kl", setting=steepest.name, **key
            )


def _mean_row(values: NDArray[np.float64], **key: Any) -> Iterable[Row]:
    """The mean over seeds; none where there is nothing to count, or a KL is infinite."""
    if not np.all(np.isnan(values)) and not np.any(np.isinf(values)):
        yield row(mean(values), len(values), **key)


def matches(config: Config) -> list[tuple[str, float]]:
    """The kinds of match and their targets."""
    drops = [("drop", target) for target in config.drop_targets]
    return [("tuned", 0.0), *(("kl", target) for target in config.kl_targets), *drops]


def choose(tuned: Tried, kind: str, target: float) -> Setting | None:
    """The try that a learner would enter with, from its tuning seeds; None if it has none that fits.

    Args:
      tuned: every try of the learner on the tuning seeds.
      kind: "tuned" for the most gain, "kl" for the most gain with a mean KL of at most the target, "drop" for
        the most gain with a drop rate within a factor of 1.5 of the target.
      target: nats, or a share.
    """
    kl, drop = ({s: float(np.mean(arrays[name])) for s, arrays in tuned.items()} for name in ("kl", "drop"))
    fits: dict[str, Callable[[Setting], bool]] = {
        "tuned": lambda setting: True,
        "kl": lambda setting: kl[setting] <= target,
        "drop": lambda setting: target / 1.5 <= drop[setting] <= 1.5 * target,
    }
    fitting = [setting for setting in tuned if fits[kind](setting)]
    return max(fitting, key=lambda setting: float(np.mean(tuned[setting]["mean_gain"])), default=None)


def _matched_rows(
    config: Config, condition: Condition, tried: Mapping[str, Mapping[str, Tried]]
) -> Iterable[Row]:
    for kind, target in matches(config):
        chosen = {learner: choose(by_phase["tune"], kind, target) for learner, by_phase in tried.items()}
        entered = {learner: setting for learner, setting in chosen.items() if setting is not None}
        key: Key = {"table": "matched", **condition.key, "match": kind, "target": target}
        for learner, setting in entered.items():
            arrays = tried[learner]["test"][setting]
            for name in ("mean_gain", "final_gain", "kl", "largest_kl", "drop"):
                yield from _mean_row(arrays[name], learner=learner, quantity=name, **key)
            yield row(failed(arrays), len(arrays["kl"]), learner=learner, quantity="failed", **key)
            edge = float(is_at_an_edge(config, learner, setting))
            yield row(Estimate(edge, np.nan, np.nan, 1), 1, learner=learner, quantity="at_an_edge", **key)
            for reference in REFERENCES[kind]:
                if reference in entered and learner != reference:
                    other = tried[reference]["test"][entered[reference]]
                    yield _difference(arrays["mean_gain"] - other["mean_gain"], learner, reference, key)


def failed(arrays: Arrays) -> Estimate:
    """The share of seeds that ended below the start, or lost half of their best gain for good."""
    fell = ~np.isnan(arrays["collapse"]) | (arrays["final_gain"] < 0)
    return share(fell, np.ones_like(fell))


def is_at_an_edge(config: Config, learner: str, setting: Setting) -> bool:
    """Whether a choice has the lowest or highest rate, or the highest radius, that were tried."""
    tried = settings(config, learner)
    rates, scales = {one.rate for one in tried}, {one.scale for one in tried}
    at_rate = len(rates) > 1 and setting.rate in (min(rates), max(rates))
    return at_rate or (len(scales) > 1 and setting.scale == max(scales))


def _difference(gap: NDArray[np.float64], learner: str, reference: str, key: Key) -> Row:
    paired: Estimate = mean(gap)
    return row(
        paired, len(gap), sign_flip_p(gap), learner=learner, against=reference,
        quantity="mean_gain_difference", **key,
    )  # fmt: skip
