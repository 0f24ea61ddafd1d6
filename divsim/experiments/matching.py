"""What each learner enters with at the same budget of KL or the same drop rate, and who then learns more.

Tries stand on a grid, so hardly any has the very KL that is asked for. A learner may therefore toss a coin
between two of its tries: on the tuning seeds the mean KL of the coin meets the budget, and nobody is ahead
because a try happened to come closer. Coins are chosen on tuning seeds and judged on others.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from .learners import Setting, settings
from .learning_config import Condition, Config
from .rows import Key, Row, mean_row, row
from .runs import Arrays
from .statistics import Estimate, mean, share, sign_flip_p

REFERENCES = {
    "tuned": ("importance_sampling", "dppo_full_kl"),
    "kl": ("importance_sampling", "dppo_full_kl"),
    "drop": ("ppo_clip", "dppo_full_kl"),
}
"""What others are compared with under each kind of match: no mask or the field's first one, and DPPO."""

Tried = Mapping[Setting, Arrays]
Coin = Mapping[Setting, float]
"""Chances of one or two tries; they sum to 1."""
NEGLIGIBLE = 1e-9
"""A chance below it is the rounding of the linear program."""

SOLVED, INFEASIBLE = 0, 2
"""Answers of the linear program."""

JUDGED = ("mean_gain", "final_gain", "kl", "largest_kl", "drop")


def matches(config: Config) -> list[tuple[str, float]]:
    """The kinds of match and their targets."""
    drops = [("drop", target) for target in config.drop_targets]
    return [("tuned", 0.0), *(("kl", target) for target in config.kl_targets), *drops]


def choose(tuned: Tried, kind: str, target: float) -> Coin | None:
    """The coin that a learner would enter with, from its tuning seeds; None if none fits.

    Args:
      tuned: every try of the learner on the tuning seeds.
      kind: "tuned" for the most gain, "kl" for the most gain at a mean KL of at most the target, "drop" for
        the most gain at a drop rate of exactly the target.
      target: nats, or a share.

    Source: derived here; the best coin is a linear program with one constraint, so two tries are enough.

    >>> slow, fast = Setting(1.0, 1.0), Setting(4.0, 1.0)
    >>> tuned = {
    ...     slow: {"mean_gain": np.array([0.2]), "kl": np.array([0.1])},
    ...     fast: {"mean_gain": np.array([0.6]), "kl": np.array([0.5])},
    ... }
    >>> coin = choose(tuned, "kl", 0.2)
    >>> round(coin[slow], 6), round(coin[fast], 6)
    (0.75, 0.25)
    """
    gain = {setting: float(np.mean(arrays["mean_gain"])) for setting, arrays in tuned.items()}
    if kind == "tuned":
        return {max(gain, key=gain.__getitem__): 1.0}
    limited = {setting: float(np.mean(arrays[kind])) for setting, arrays in tuned.items()}
    usable = [setting for setting, value in limited.items() if np.isfinite(value)]
    values = np.array([[limited[setting] for setting in usable]])
    one = np.ones_like(values)
    limits: dict[str, dict[str, Any]] = {
        "kl": {"A_eq": one, "b_eq": [1.0], "A_ub": values, "b_ub": [target]},
        "drop": {"A_eq": np.concatenate([one, values]), "b_eq": [1.0, target]},
    }
    if not usable:
        return None
    found = linprog([-gain[setting] for setting in usable], **limits[kind], bounds=(0, 1))
    if found.status not in (SOLVED, INFEASIBLE):
        raise ArithmeticError(f"the coin of match {kind} = {target:g} was not found: {found.message}")
    if found.status == INFEASIBLE:
        return None
    return {s: float(chance) for s, chance in zip(usable, found.x, strict=True) if chance > NEGLIGIBLE}


def tossed(coin: Coin, tried: Tried, name: str) -> NDArray[np.float64]:
    """(n,) a quantity of every seed, in the mean over tosses of the coin."""
    return np.asarray(sum(chance * tried[setting][name] for setting, chance in coin.items()))


def matched_rows(
    config: Config, condition: Condition, tried: Mapping[str, Mapping[str, Tried]]
) -> Iterable[Row]:
    """Every learner's entry at every match, and how it compares: {learner: {"tune" or "test": tries}}."""
    for kind, target in matches(config):
        chosen = {learner: choose(by_phase["tune"], kind, target) for learner, by_phase in tried.items()}
        entered = {learner: coin for learner, coin in chosen.items() if coin is not None}
        key: Key = {"table": "matched", **condition.key, "match": kind, "target": target}
        for learner, coin in entered.items():
            tests = tried[learner]["test"]
            for name in JUDGED:
                yield from mean_row(tossed(coin, tests, name), learner=learner, quantity=name, **key)
            edge = float(any(is_at_an_edge(config, learner, setting) for setting in coin))
            yield row(Estimate(edge, np.nan, np.nan, 1), 1, learner=learner, quantity="at_an_edge", **key)
            if kind == "tuned":
                (setting,) = coin
                fell = failed(tests[setting])
                yield row(fell, len(tests[setting]["kl"]), learner=learner, quantity="failed", **key)
            for reference in REFERENCES[kind]:
                if reference in entered and learner != reference:
                    theirs = tossed(entered[reference], tried[reference]["test"], "mean_gain")
                    yield _difference(tossed(coin, tests, "mean_gain") - theirs, learner, reference, key)


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
