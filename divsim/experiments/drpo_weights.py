"""What a soft rule makes of the importance weight: how far from it, how often reversed, and to what effect.

The factor is weight / r. With tokens from mu, an advantage of random sign and normal size, it is counted by
how far apart the policies are. It depends on the sign of the advantage alone; the size matters for the step.
Where it is negative the token is pushed back, and whether that lowers KL(mu || pi) is taken to first order
(A weight c_k) and from the step itself. The expected pull of the penalty is enumerated over the vocabulary.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL, View, change, difference, directional_change
from divsim.tabular.geometry import EUCLIDEAN
from divsim.tabular.lines import line
from divsim.tabular.policies import Bools, Floats, Ints, PolicyPair, sample_from

from .blocks import blocks
from .drpo_config import RADIUS, Config, soft_rules
from .parts import Part, Seeds
from .rows import Key, Row, row
from .statistics import Estimate, ratio, share

BINS = (-np.inf, -1.0, 0.0, 0.5, 0.9, 1.1, 1.5, 2.0, 3.0, np.inf)
"""Edges of the histogram of the factor; in the middle, all that is within a tenth of no penalty."""
BIN_NAMES = tuple(
    f"{low:g} to {high:g}".replace("-inf to", "below").replace("3 to inf", "above 3")
    for low, high in pairwise(BINS)
)
PULLS = ("drpo, |A| constant", "drpo, |A| normal", "spo, |A| constant", "spo, |A| normal")
"""Penalties whose expected pull is followed. Its sign does not depend on the radius."""


def region_names(config: Config) -> tuple[str, ...]:
    """Sets of tokens, in the order of the arrays: beyond are those that [DPPO]'s binary TV mask drops."""
    return ("all", *(f"far_{delta:g}" for delta in config.far), "outward", f"beyond_{RADIUS:g}")


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Counts and sums of one seed, (rules, regions) where not said otherwise."""
    pairs = config.pairs_named(cell)
    parts = [
        _tokens(config, pairs.family(rng, (n,), pairs.vocab), rng) for n in blocks(config.tokens, pairs.vocab)
    ]
    tokens = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    return _tally(config, tokens)


def _tokens(config: Config, pair: PolicyPair, rng: np.random.Generator) -> dict[str, Floats]:
    """What is known of every token, tokens last."""
    action = sample_from(rng, pair.log_mu)
    advantage = rng.standard_normal(len(action))
    view = View.full(pair.log_mu, pair.log_pi, action, check=False)
    weights = np.stack([
        np.asarray(rule(view, advantage, check=False).weight) for rule in soft_rules(config).values()
    ])  # fmt: skip
    factor = weights / np.asarray(view.ratio)
    realised = [_realised(pair, action, step * advantage * weights, factor < 0) for step in config.steps]
    return {
        "kl": np.asarray(FORWARD_KL.measure(pair.log_mu, pair.log_pi)),
        "gap": np.asarray(difference(view.log_mu_k, view.log_pi_k)),
        "advantage": advantage,
        "factor": factor,
        "first_order": advantage * weights * np.asarray(change(view)),
        "realised": np.stack(realised),
        "pull": expected_pulls(pair, np.abs(rng.standard_normal(pair.log_mu.shape))),
    }


def _realised(pair: PolicyPair, action: Ints, steps: Floats, back: Bools) -> Floats:
    """(rules, n) change of forward KL by a token's own step, where it is pushed back; NaN elsewhere."""
    found = np.full(steps.shape, np.nan)
    for m, here in enumerate(back):
        part = PolicyPair(pair.log_mu[here], pair.log_pi[here])
        found[m, here] = line(EUCLIDEAN, part, action[here]).realised(steps[m, here])
    return found


def expected_pulls(pair: PolicyPair, size: Floats) -> Floats:
    """First-order change of forward KL along the penalty's part of the expected step, every token enumerated.

    Args:
      pair: mu and pi, (n, V).
      size: (n, V) |A| of every token, for the rows that are not constant.

    Returns: (4, n), in the order of `PULLS`; only the sign counts, the radius being left out.
    Source: derivations, T9d and T9e (DRPO); derived here (SPO).

    >>> pair = PolicyPair(np.log(np.array([[0.4, 0.3, 0.3]])), np.log(np.array([[0.45, 0.5, 0.05]])))
    >>> (expected_pulls(pair, np.ones((1, 3))) < 0).ravel().tolist()
    [True, True, True, True]
    """
    gap, pi = np.asarray(difference(pair.log_mu, pair.log_pi)), np.exp(pair.log_pi)
    excess = np.expm1(pair.log_pi - pair.log_mu)
    found = []
    for penalised in (gap, size * gap, excess, size * excess):
        push = -pi * penalised
        direction = push - pi * np.sum(push, axis=-1, keepdims=True)
        found.append(directional_change(FORWARD_KL, pair.log_mu, pair.log_pi, direction))
    return np.stack(found)


def _members(config: Config, tokens: dict[str, Floats]) -> Bools:
    """(regions, n)."""
    outward = tokens["advantage"] * tokens["gap"] > 0
    far = [tokens["kl"] > delta for delta in config.far]
    beyond = outward & (np.abs(tokens["gap"]) > RADIUS)
    return np.stack([np.ones_like(outward), *far, outward, beyond])


def _tally(config: Config, tokens: dict[str, Floats]) -> dict[str, NDArray[Any]]:
    members = _members(config, tokens)
    factor, first, realised = tokens["factor"], tokens["first_order"], tokens["realised"]
    away, back = np.abs(factor - 1), factor < 0

    def counted(which: Bools) -> NDArray[np.int64]:
        return np.asarray(which.astype(np.int64) @ members.T.astype(np.int64))

    inner = np.digitize(factor, BINS[1:-1])
    return {
        "tokens": members.sum(axis=-1),
        "negative": counted(back),
        "deviation": away @ members.T,
        "largest": np.max(np.where(members, away[:, None], 0.0), axis=-1),
        "bins": np.stack([counted(inner == b) for b in range(len(BIN_NAMES))]),
        "lowers": counted(back & (first < 0)),
        "lowers_step": counted(back & (realised < 0)),
        "foretold": counted(back & (np.sign(realised) == np.sign(first))),
        "pull_raises": np.sum(tokens["pull"] > 0, axis=-1),
    }


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """What is reported of one cell; regions without tokens are left out."""
    key: Key = {"table": "weights", **config.pairs_named(cell).key}
    found = [
        row(share(count, np.full(len(count), config.tokens)), config.tokens * len(count),
            quantity="expected_pull_raises", penalty=name, **key)
        for name, count in zip(PULLS, seeds["pull_raises"].T, strict=True)
    ]  # fmt: skip
    for r, region in enumerate(region_names(config)):
        if seeds["tokens"][:, r].sum() > 0:
            for m, rule in enumerate(soft_rules(config)):
                found += _rule_rows(config, seeds, m, r, key | {"region": region, "rule": rule})
    return found


def _rule_rows(config: Config, seeds: Seeds, m: int, r: int, key: Key) -> list[Row]:
    tokens, negative = seeds["tokens"][:, r], seeds["negative"][:, m, r]
    whole, back = int(tokens.sum()), int(negative.sum())
    largest = Estimate(float(seeds["largest"][:, m, r].max()), np.nan, np.nan, len(tokens))
    found = [
        row(ratio(seeds["deviation"][:, m, r], tokens), whole, quantity="mean_deviation", **key),
        row(largest, whole, quantity="largest_deviation", **key),
        row(share(negative, tokens), whole, quantity="negative_share", **key),
    ]
    for b, name in enumerate(BIN_NAMES):
        count = seeds["bins"][:, b, m, r]
        found.append(row(share(count, tokens), whole, quantity="histogram", factor=name, **key))
    if back > 0:
        lowers = share(seeds["lowers"][:, m, r], negative)
        found.append(row(lowers, back, quantity="negative_lowers", step="first order", **key))
        for s, step in enumerate(config.steps):
            at = key | {"step": f"{step:g}"}
            lowers, right = (share(seeds[name][:, s, m, r], negative) for name in ("lowers_step", "foretold"))
            found.append(row(lowers, back, quantity="negative_lowers", **at))
            found.append(row(right, back, quantity="negative_foretold", **at))
    return found


WEIGHTS = Part(
    "weights",
    lambda config: tuple(pairs.name for pairs in config.pairs),
    lambda config: config.seeds,
    compute,
    rows,
)
