"""How far each tail estimator is from the full vocabulary, how often its sign flips, and what is certified.

For every top-K view of a sampled token: the error of each estimator against c_k, whether its sign is another,
whether the interval of `change_interval` excludes 0, and how much of the divergence the view misses.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL, TAILS, View, change, change_interval
from divsim.tabular.agreement import region_names, regions
from divsim.tabular.octaves import octaves, quantile
from divsim.tabular.policies import Bools, Floats, PolicyPair, sample_from

from .blocks import total
from .parts import Part, Seeds
from .rows import Key, Row, row
from .statistics import Estimate, mean, ratio, share
from .tails_config import Config, Pairs

ESTIMATORS = tuple(name for name in TAILS if name != "full")
LEVELS = (0.5, 0.95)


def sizes(config: Config, pairs: Pairs) -> tuple[int, ...]:
    """The K that hide something."""
    return tuple(k for k in config.sizes if k < pairs.vocab)


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Sums of one seed over blocks of tokens: (sizes, estimators, regions, ...)."""
    pairs = config.pairs_named(cell)

    def block(n: int) -> dict[str, NDArray[Any]]:
        pair = pairs.family(rng, (n,), pairs.vocab)
        return _block(config, sizes(config, pairs), pair, rng)

    return total(block, config.tokens(pairs), pairs.vocab)


def _block(
    config: Config, sizes: tuple[int, ...], pair: PolicyPair, rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    action = sample_from(rng, pair.log_mu)
    full = View.full(pair.log_mu, pair.log_pi, action, check=False)
    exact = np.asarray(change(full))
    differs = np.asarray((full.log_pi_k - full.log_mu_k) * exact < 0)
    distance = np.asarray(FORWARD_KL.measure(pair.log_mu, pair.log_pi))
    members = np.stack(list(regions(distance, differs, config.deltas).values()))
    views = [View.top_k(pair.log_mu, pair.log_pi, action, k, bracket=True, check=False) for k in sizes]
    by_size = [_view_sums(view, exact, distance, members) for view in views]
    return {
        "tokens": members.sum(axis=-1),
        "disagree": (members & differs).sum(axis=-1),
        "kl": members @ distance,
        **{name: np.stack([sums[name] for sums in by_size]) for name in by_size[0]},
    }


def _view_sums(view: View, exact: Floats, distance: Floats, members: Bools) -> dict[str, NDArray[Any]]:
    """What one top-K view says of its tokens: (regions,) or (estimators, regions, ...)."""
    low, high = change_interval(view)
    certified = (low > 0) | (high < 0)
    guesses = np.stack([change(view, FORWARD_KL, name) for name in ESTIMATORS])
    errors = guesses - exact
    missed = distance - FORWARD_KL.measure(*view.cells)
    return {
        "flips": (guesses * exact < 0) @ members.T.astype(np.int64),
        "errors": errors @ members.T,
        "magnitudes": np.stack([[octaves(np.abs(error[region])) for region in members] for error in errors]),
        "certified": (members & certified).sum(axis=-1),
        "outside": (members & ~((low <= exact) & (exact <= high))).sum(axis=-1),
        "missed": members @ missed,
    }


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """What is reported of one cell; regions without tokens are left out."""
    pairs = config.pairs_named(cell)
    names = region_names(config.deltas)
    found: list[Row] = []
    for r, region in enumerate(names):
        tokens = seeds["tokens"][:, r]
        if tokens.sum() == 0:
            continue
        key: Key = {"table": "estimators", "region": region, **pairs.key}
        flips = share(seeds["disagree"][:, r], tokens)
        found.append(row(flips, int(tokens.sum()), test="ratio", quantity="flip_rate", **key))
        for s, k in enumerate(sizes(config, pairs)):
            found += _view_rows(seeds, s, r, tokens, key | {"k": k})
    return found


def _view_rows(seeds: Seeds, s: int, r: int, tokens: NDArray[np.int64], key: Key) -> list[Row]:
    whole = int(tokens.sum())
    found = [
        row(share(seeds["certified"][:, s, r], tokens), whole, quantity="certified_share", **key),
        row(share(seeds["outside"][:, s, r], tokens), whole, quantity="outside_interval_share", **key),
        row(ratio(seeds["missed"][:, s, r], seeds["kl"][:, r]), whole, quantity="missed_kl_share", **key),
    ]
    for e, tail in enumerate(ESTIMATORS):
        with np.errstate(invalid="ignore"):  # a seed without such tokens has no mean, and says NaN
            means = seeds["errors"][:, s, e, r] / tokens
        found.append(
            row(share(seeds["flips"][:, s, e, r], tokens), whole, tail=tail, quantity="flip_rate", **key)
        )
        found.append(row(mean(means), whole, tail=tail, quantity="bias", **key))
        pooled = seeds["magnitudes"][:, s, e, r].sum(axis=0)
        for level in LEVELS:
            size = Estimate(quantile(pooled, level), np.nan, np.nan, int(np.sum(tokens > 0)))
            found.append(row(size, whole, tail=tail, quantity=f"error_q{100 * level:g}", **key))
    return found


ESTIMATOR = Part(
    "estimators",
    lambda config: tuple(pairs.name for pairs in config.pairs if sizes(config, pairs)),
    lambda config: config.seeds,
    compute,
    rows,
)
