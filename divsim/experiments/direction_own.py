"""A token's own step on its own divergence: which test of direction says what it really does?

The language world, one mismatch a cell. Steps in four geometries, in units of the flip step |s*| and at
absolute learning rates. What is left out: other tokens, shared weights and momentum
(`direction_batch.py`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL, TAILS, difference, mean_under
from divsim.tabular.agreement import TESTS, count, disagree, region_names, regions, scores, see, verdicts
from divsim.tabular.geometry import EUCLIDEAN, NATURAL, SIGN, Geometry, linear_head
from divsim.tabular.language import WORLDS
from divsim.tabular.lines import Line, flip_step, line
from divsim.tabular.mismatch import MISMATCHES, mismatched
from divsim.tabular.octaves import octaves, quantile
from divsim.tabular.policies import Bools, Floats, PolicyPair, at_action, sample_from

from .agreement_rows import accuracy_rows, conditional_rows
from .blocks import total
from .direction_config import RATES, STEPS, Config
from .parts import Part, Seeds
from .rows import Key, Row, row
from .statistics import mean, share

Arrays = dict[str, NDArray[Any]]
RELATIVE = ("euclidean", "natural", "sign", "linear_head")
ABSOLUTE = ("euclidean", "natural", "sign")
NAMED = (*TESTS, "own_rate")
"""The tests, and the exact first-order rate of the very step that is taken."""
LABELS = tuple(f"forward_kl/{name}" if name in TAILS else name for name in NAMED)
"""Their names in rows."""
MAIN = ("ratio", "forward_kl/full", "own_rate", "always")
"""What is reported at every step; the other tests at a small step, and in the tiles."""
SMALL = 0.1


def compute(config: Config, cell: str, rng: np.random.Generator) -> Arrays:
    """Counts of one seed, summed over blocks of tokens."""
    draw = mismatched(WORLDS[config.world], MISMATCHES[cell])
    features = rng.standard_normal((config.vocab, config.rank))

    def block(n: int) -> Arrays:
        pair = draw(rng, (n,), config.vocab)
        return _block(config, pair, linear_head(features), rng)

    return total(block, config.tokens, config.vocab)


def _block(config: Config, pair: PolicyPair, head: Geometry, rng: np.random.Generator) -> Arrays:
    action = sample_from(rng, pair.log_mu)
    advantage = rng.choice([-1.0, 1.0], len(action))
    score = scores(see(pair, action, min(config.k, config.vocab)))
    distance = np.asarray(FORWARD_KL.measure(pair.log_mu, pair.log_pi))
    differs = disagree(score)
    members = np.stack(list(regions(distance, differs, config.deltas).values()))
    found = _portrait(pair, distance, differs, members, at_action(pair.log_pi - pair.log_mu, action))
    for geometry in (EUCLIDEAN, NATURAL, SIGN, head):
        along = line(geometry, pair, action)
        said = verdicts(score, advantage) | {"own_rate": advantage * along.rate() > 0}
        outward = np.stack([said[name] for name in NAMED])
        unit = np.abs(flip_step(along))
        is_defined = ~np.isnan(unit)
        found[f"flip.{geometry.name}"] = octaves(unit[is_defined])
        steps = np.multiply.outer(STEPS, advantage * np.where(is_defined, unit, 0.0))
        found[f"relative.{geometry.name}"] = count(outward, _rises(along, steps), members & is_defined)
        if geometry.name in ABSOLUTE:
            # A sign optimiser takes steps of one size, whatever the ratio.
            size = np.ones(len(action)) if geometry is SIGN else np.exp(score["ratio"])
            steps = np.multiply.outer(RATES, advantage * size)
            found[f"absolute.{geometry.name}"] = count(outward, _rises(along, steps), members)
    return found


def _rises(along: Line, steps: Floats) -> Bools:
    return np.stack([along.realised(step) > 0 for step in steps])


def _portrait(
    pair: PolicyPair, distance: Floats, differs: Bools, members: Bools, log_ratio: Floats
) -> Arrays:
    """What kind of mismatch this is: sums over tokens, and over regions."""
    pull = mean_under(pair.log_pi, difference(pair.log_mu, pair.log_pi))
    return {
        "tokens": members.sum(axis=-1),
        "disagree": (members & differs).sum(axis=-1),
        "kl": np.array(np.sum(distance)),
        "log_ratio": np.array(np.sum(np.abs(log_ratio))),
        "sharper": np.array(np.sum(pull > 0)),
    }


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """What is reported of one mismatch."""
    key: Key = {"world": config.world, "mismatch": cell}
    names = region_names(config.deltas)
    found = _portrait_rows(config, seeds, names, key)
    for geometry in RELATIVE:
        flips = [quantile(counts, 0.5) for counts in seeds[f"flip.{geometry}"]]
        whole = int(seeds[f"flip.{geometry}"].sum())
        place: Key = {"table": "flip_step", "geometry": geometry, **key}
        found.append(row(mean(flips), whole, quantity="median", **place))
        hidden = seeds["tokens"][:, 0] - seeds[f"flip.{geometry}"].sum(axis=-1)
        found.append(row(share(hidden, seeds["tokens"][:, 0]), int(seeds["tokens"][:, 0].sum()),
                         quantity="undefined_share", **place))  # fmt: skip
    common: Key = {"table": "agreement", "estimand": "own", **key}
    for geometry in RELATIVE:
        counts = seeds[f"relative.{geometry}"]
        for s, step in enumerate(STEPS):
            for r, region in enumerate(names):
                place = {"geometry": geometry, "step": f"{step:g}", "region": region, **common}
                told = counts[:, :, s, r]
                if step == SMALL:
                    found += accuracy_rows(told, LABELS, **place)
                    found += [] if region.startswith("disagree") else conditional_rows(told, LABELS, **place)
                elif region == names[1]:
                    found += accuracy_rows(told, LABELS, MAIN, **place)
    for geometry in ABSOLUTE:
        for s, rate in enumerate(RATES):
            for r, region in enumerate(names):
                told = seeds[f"absolute.{geometry}"][:, :, s, r]
                place = {"geometry": geometry, "rate": f"{rate:g}", "region": region, **common}
                found += accuracy_rows(told, LABELS, MAIN, **place)
    return found


def _portrait_rows(config: Config, seeds: Seeds, names: tuple[str, ...], key: Key) -> list[Row]:
    tokens = seeds["tokens"]
    every = tokens[:, 0]
    whole = int(every.sum())
    found = [
        row(mean(seeds["kl"] / every), whole, table="mismatch", quantity="mean_kl", **key),
        row(mean(seeds["log_ratio"] / every), whole, table="mismatch", quantity="mean_log_ratio", **key),
        row(share(seeds["sharper"], every), whole, table="mismatch", quantity="sharper_share", **key),
    ]
    for place, region in enumerate(names):
        if region.startswith("far"):
            found.append(row(share(tokens[:, place], every), whole, table="mismatch", quantity=region, **key))
        if not region.startswith("disagree") and tokens[:, place].sum():
            estimate = share(seeds["disagree"][:, place], tokens[:, place])
            found.append(row(estimate, int(tokens[:, place].sum()), table="disagreement", region=region,
                             quantity="disagree_share", **key))  # fmt: skip
    return found


OWN = Part("own", lambda config: config.mismatches, lambda config: config.seeds, compute, rows)
