"""Tests of direction, and how often they agree with what a step really does.

A test of direction says of each token whether its update leads outward. Against the realised change this is a
two by two table of counts; accuracy, base rate, risk difference and unsafe-keep are all read from it, so that
no one of them is ever shown without the others. What is left out: the statistics over seeds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL, TAILS, Divergence, View, change

from .policies import Bools, Floats, Ints, PolicyPair

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Sight:
    """What the tests of direction may look at, for n tokens.

    Attributes:
      full: nothing hidden.
      top_k: the K likeliest tokens of mu and the sampled one.
      divergence: D.
    """

    full: View
    top_k: View
    divergence: Divergence = FORWARD_KL


Score = Callable[[Sight], Floats]
"""Sight -> (n,); the update leads outward where advantage times score is positive."""


def _tail_score(tail: str) -> Score:
    return lambda sight: np.asarray(change(sight.top_k, sight.divergence, tail))


SCORES: dict[str, Score] = {
    "ratio": lambda sight: np.asarray(sight.full.log_pi_k - sight.full.log_mu_k),
    "full": lambda sight: np.asarray(change(sight.full, sight.divergence)),
    **{tail: _tail_score(tail) for tail in TAILS if tail != "full"},
}
"""The tests of direction by name: the ratio, and the predicted change with each tail model.

"always", which calls every update outward, has no score: it does not look at the advantage either."""

TESTS = (*SCORES, "always")


def see(pair: PolicyPair, action: Ints, k: int, divergence: Divergence = FORWARD_KL) -> Sight:
    """What the tests may look at.

    Args:
      pair: mu and pi, (n, V).
      action: (n,) int, the sampled tokens.
      k: K of the top-K view, at most V.
      divergence: D.
    """
    full = View.full(pair.log_mu, pair.log_pi, action, check=False)
    return Sight(full, View.top_k(pair.log_mu, pair.log_pi, action, k, check=False), divergence)


def scores(sight: Sight) -> dict[str, Floats]:
    """The score of every test but "always", (n,) each.

    >>> pair = PolicyPair(np.log(np.array([[0.4, 0.3, 0.3]])), np.log(np.array([[0.45, 0.5, 0.05]])))
    >>> found = scores(see(pair, np.array([0]), k=1))
    >>> bool(found["ratio"][0] > 0), bool(found["full"][0] > 0)
    (True, False)
    """
    return {name: score(sight) for name, score in SCORES.items()}


def verdicts(scores: Mapping[str, Floats], advantage: Floats) -> dict[str, Bools]:
    """Where each test calls the update outward, (n,) each, "always" among them.

    >>> verdicts({"ratio": np.array([0.1, 0.1])}, np.array([1.0, -1.0]))["ratio"].tolist()
    [True, False]
    """
    said = {name: np.asarray(advantage * score > 0) for name, score in scores.items()}
    return said | {"always": np.ones(len(advantage), dtype=np.bool_)}


def disagree(scores: Mapping[str, Floats]) -> Bools:
    """(n,) where the ratio test and the exact change point to opposite sides."""
    return np.asarray(scores["ratio"] * scores["full"] < 0)


def regions(distance: Floats, disagrees: Bools, deltas: tuple[float, ...]) -> dict[str, Bools]:
    """The sets of tokens on which agreement is counted, (n,) each.

    Args:
      distance: (n,) D of each token.
      disagrees: (n,) see `disagree`.
      deltas: radii, in the unit of D.

    >>> found = regions(np.array([0.01, 0.2]), np.array([True, True]), (0.05,))
    >>> {name: members.tolist() for name, members in found.items() if "far" in name}
    {'far_0.05': [False, True], 'disagree_far_0.05': [False, True]}
    """
    far = {f"far_{delta:g}": distance > delta for delta in deltas}
    both = {f"disagree_{name}": disagrees & members for name, members in far.items()}
    return {"all": np.ones_like(disagrees), **far, "disagree": disagrees, **both}


def region_names(deltas: tuple[float, ...]) -> tuple[str, ...]:
    """The names of `regions`, in order."""
    return tuple(regions(np.zeros(0), np.zeros(0, dtype=np.bool_), deltas))


def count(outward: Bools, rises: Bools, members: Bools) -> Counts:
    """Two by two tables of counts, `[outward, rises]` as 0 or 1.

    Args:
      outward: (tests, n).
      rises: (settings, n) whether D rose.
      members: (regions, n).

    Returns:
      (tests, settings, regions, 2, 2) int64.

    >>> yes = np.array([[True, True, False]])
    >>> count(yes, np.array([[True, False, False]]), np.ones((1, 3), dtype=bool))[0, 0, 0].tolist()
    [[1, 0], [1, 1]]
    """
    said, did = (np.stack([~x, x], axis=1).astype(np.float64) for x in (outward, rises))
    # Sums of zeros and ones are exact in float64, where a product of matrices is fast.
    within = said[:, None] * members[None, :, None]  # (tests, regions, 2, n)
    table = np.tensordot(within, did, axes=([-1], [-1]))  # (tests, regions, 2, settings, 2)
    return np.moveaxis(table, 3, 1).astype(np.int64)
