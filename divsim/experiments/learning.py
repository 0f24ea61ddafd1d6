"""Learning under every rule and every exact algorithm: what each try leads to.

A tile is one try of one learner in one environment, all its seeds together; the streams of a seed are the
same for every learner, so that differences are paired. What is left out: who is compared with whom
(`matching.py`), and one rollout against the best step of the same KL (`frontier.py`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.tabular.exact_learner import STEPS
from divsim.tabular.learner import History

from .learners import Setting, run_learner, settings
from .learning_config import Condition, Config, conditions
from .matching import Tried, matched_rows
from .rows import Key, Row, mean_row, row
from .runs import Arrays, stream
from .statistics import log_or_nan, mean, share

PHASES: dict[str, Callable[[Config], int]] = {
    "tune": lambda config: config.tuning_seeds,
    "test": lambda config: config.seeds,
}
"""Which seeds: on the first a setting is chosen, on the others it is judged."""

COLLAPSE = 0.5
"""Of the best gain so far: a run that loses more, and does not come back, has collapsed."""
LEAST_GAIN = 0.1
"""Of what could be gained; a run that never gained so much cannot collapse."""


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
        found += matched_rows(config, condition, tried)
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
            yield from mean_row(arrays[name], table="tries", quantity=name, **key)
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
            yield from mean_row(
                log_or_nan(kl),
                table="along",
                minibatch=place + 1,
                quantity="log_kl",
                setting=steepest.name,
                **key,
            )
