"""The same question for every divergence: does its own first-order change say what it does under a step?

The language world under some mismatches; steps in units of the flip step of forward KL, so that all
divergences see the same steps. An increase that was predicted and did not come is a *false block*:
impossible for a divergence that is convex in the logits, possible for the others. "lumped" is forward KL
on the top-K cells, the quantity that is thresholded when mu is known on its top K only.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import DIVERGENCES, FORWARD_KL, TAILS, View, change, exponential_path
from divsim.tabular.agreement import TESTS, count, disagree, region_names, regions, scores, see, verdicts
from divsim.tabular.geometry import EUCLIDEAN, NATURAL, linear_head
from divsim.tabular.language import WORLDS
from divsim.tabular.lines import flip_step, line
from divsim.tabular.mismatch import MISMATCHES, mismatched
from divsim.tabular.policies import Bools, Floats, Ints, PolicyPair, sample_from

from .agreement_rows import accuracy_rows, conditional_rows
from .blocks import total
from .direction_config import Config
from .parts import Part, Seeds
from .rows import Key, Row, row
from .statistics import share

CELLS = ("engine", "noise_0.5", "sharpen_1.5", "flatten_0.7", "stale_16")
STEPS = (0.1, 0.9, 3.0)
GEOMETRIES = ("euclidean", "natural", "linear_head")
LUMPED = "lumped"
NAMES = (*DIVERGENCES, LUMPED)
ULPS = 64
"""A realised change within so many roundings of D and 1 is not counted: its sign is not known."""


def cells(config: Config) -> tuple[str, ...]:
    """The mismatches of this part, as far as they were asked for."""
    return tuple(name for name in CELLS if name in config.mismatches)


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Counts of one seed, summed over blocks of tokens."""
    draw = mismatched(WORLDS[config.world], MISMATCHES[cell])
    head = linear_head(rng.standard_normal((config.vocab, config.rank)))

    def block(n: int) -> dict[str, NDArray[Any]]:
        pair = draw(rng, (n,), config.vocab)
        action = sample_from(rng, pair.log_mu)
        advantage = rng.choice([-1.0, 1.0], n)
        after = []
        for geometry in (EUCLIDEAN, NATURAL, head):
            unit = np.nan_to_num(np.abs(flip_step(line(geometry, pair, action))))
            direction = geometry.direction(pair.log_pi, action)
            after += [
                exponential_path(pair.log_pi, direction, (s * advantage * unit)[:, None]) for s in STEPS
            ]
        return {
            f"{name}.{what}": array
            for name in NAMES
            for what, array in _judge(config, name, pair, action, advantage, after).items()
        }

    return total(block, config.divergence_tokens, config.vocab)


def _judge(
    config: Config, name: str, pair: PolicyPair, action: Ints, advantage: Floats, after: list[Floats]
) -> dict[str, NDArray[Any]]:
    """The tables of one divergence over all steps; regions are those of forward KL and its disagreement."""
    k = min(config.k, config.vocab)
    divergence = DIVERGENCES.get(name, FORWARD_KL)
    sight = see(pair, action, k, divergence)
    score = scores(sight)
    if name == LUMPED:
        score |= {"full": np.asarray(change(sight.top_k, FORWARD_KL, "proportional"))}
    said = verdicts(score, advantage)
    distance = np.asarray(FORWARD_KL.measure(pair.log_mu, pair.log_pi))
    members = np.stack(list(regions(distance, disagree(score), config.deltas).values()))
    before = _measure(name, pair, sight.top_k)
    tables, known = [], []
    for log_pi in after:
        moved = PolicyPair(pair.log_mu, log_pi)
        change_of = _measure(name, moved, View.top_k(pair.log_mu, log_pi, action, k, check=False)) - before
        is_known = np.abs(change_of) > ULPS * np.finfo(np.float64).eps * (1 + before)
        tables.append(_table(said, change_of > 0, members & is_known))
        known.append(np.sum(~is_known))
    return {"counts": np.stack(tables, axis=1), "unknown": np.array(known)}


def _table(said: dict[str, Bools], rises: Bools, members: Bools) -> NDArray[np.int64]:
    return count(np.stack([said[test] for test in TESTS]), rises[None], members)[:, 0]


def _measure(name: str, pair: PolicyPair, top_k: View) -> Floats:
    if name == LUMPED:
        return np.asarray(FORWARD_KL.measure(*top_k.cells))
    return np.asarray(DIVERGENCES[name].measure(pair.log_mu, pair.log_pi))


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """Agreement and false blocks of every divergence under one mismatch."""
    found: list[Row] = []
    reported = ("all", f"far_{min(config.deltas):g}", "disagree")
    settings = [(geometry, step) for geometry in GEOMETRIES for step in STEPS]
    for name in NAMES:
        labels = [f"{name}/{test}" if test in TAILS else test for test in TESTS]
        for s, (geometry, step) in enumerate(settings):
            key: Key = {"world": config.world, "mismatch": cell, "geometry": geometry, "step": f"{step:g}",
                   "divergence": name}  # fmt: skip
            for r, region in enumerate(region_names(config.deltas)):
                told = seeds[f"{name}.counts"][:, :, s, r]
                if region in reported and step == STEPS[0]:
                    place: Key = {"table": "divergences", "estimand": "own", "region": region, **key}
                    found += accuracy_rows(told, labels, **place)
                    found += [] if region == "disagree" else conditional_rows(told, labels, **place)
            up = seeds[f"{name}.counts"][:, TESTS.index("full"), s, 0, 1]
            blocks = share(up[:, 0], up.sum(axis=-1))
            found.append(
                row(blocks, int(up.sum()), table="false_blocks", test=f"{name}/full", quantity="share", **key)
            )
    return found


DIVERGENCE = Part("divergence", cells, lambda config: config.seeds, compute, rows)
