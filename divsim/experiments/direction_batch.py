"""A minibatch on a shared head: three meanings of "what the update does", under one common update.

One setting of the head a cell. A token's own step, its marginal effect (on its own D, and on the sum over far
tokens), and the change after the whole update, which is what [PDM] reports. Beside them unsafe-keep, where
each test masks its own update. What is left out: a backbone, and more than one update.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL, TAILS
from divsim.tabular.agreement import TESTS, count, disagree, region_names, regions, scores, see, verdicts
from divsim.tabular.policies import Bools
from divsim.tabular.shared_head import SETTINGS, VOCAB, Minibatch, collect, effects

from .agreement_rows import accuracy_rows, conditional_rows
from .direction_config import Config
from .parts import Part, Seeds
from .rows import Key, Row, row
from .statistics import share, share_difference

ESTIMANDS = ("own", "marginal", "marginal_total", "whole")
NAMED = (*TESTS, "own_rate", "whole_rate")
LABELS = tuple(f"forward_kl/{name}" if name in TAILS else name for name in NAMED)
MASKED = tuple(name for name in TESTS if name != "always")
"""The tests that mask an update of their own."""


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Counts of one seed: one trained head, one update."""
    batch = collect(SETTINGS[cell], config.batch_tokens, rng)
    score = scores(see(batch.pair, batch.action, min(config.k, VOCAB)))
    distance = np.asarray(FORWARD_KL.measure(batch.pair.log_mu, batch.pair.log_pi))
    differs = disagree(score)
    members = np.stack(list(regions(distance, differs, config.deltas).values()))
    effect = effects(batch, min(config.deltas))
    said = verdicts(score, batch.advantage)
    said |= {"own_rate": effect.own_rate > 0, "whole_rate": effect.whole_rate > 0}
    rises = np.stack([getattr(effect, name) > 0 for name in ESTIMANDS])
    far = distance > max(config.deltas)
    return {
        "counts": count(np.stack([said[name] for name in NAMED]), rises, members),
        "tokens": members.sum(axis=-1),
        "disagree": (members & differs).sum(axis=-1),
        "unsafe": np.stack([_unsafe_keep(batch, said[name], far, far & differs) for name in MASKED]),
    }


def _unsafe_keep(batch: Minibatch, outward: Bools, far: Bools, judged: Bools) -> NDArray[np.int64]:
    """[tokens that rose, tokens] among the judged tokens that a mask keeps, after its own masked update."""
    keep = ~(far & outward)
    rises = batch.realised(batch.update(keep)) > 0
    kept = judged & keep
    return np.array([np.sum(kept & rises), np.sum(kept)], dtype=np.int64)


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """What is reported of one setting."""
    key: Key = {"world": "shared_head", "setting": cell}
    found: list[Row] = []
    for place, region in enumerate(region_names(config.deltas)):
        tokens, every = seeds["tokens"][:, place], seeds["tokens"][:, 0]
        if region.startswith("far"):
            found.append(
                row(share(tokens, every), int(every.sum()), table="mismatch", quantity=region, **key)
            )
        if tokens.sum() and not region.startswith("disagree"):
            estimate = share(seeds["disagree"][:, place], tokens)
            found.append(row(estimate, int(tokens.sum()), table="disagreement", region=region,
                             quantity="disagree_share", **key))  # fmt: skip
        for e, estimand in enumerate(ESTIMANDS):
            counts = seeds["counts"][:, :, e, place]
            place_of: Key = {"table": "agreement", "estimand": estimand, "region": region, **key}
            found += accuracy_rows(counts, LABELS, **place_of)
            found += [] if region.startswith("disagree") else conditional_rows(counts, LABELS, **place_of)
    return found + _unsafe_rows(seeds["unsafe"], key)


def _unsafe_rows(unsafe: NDArray[np.int64], key: Key) -> list[Row]:
    """Unsafe-keep on the tokens on which the ratio test and the change disagree, as [PDM] counts it."""
    found = []
    ratio = unsafe[:, MASKED.index("ratio")]
    for place, name in enumerate(MASKED):
        rose, kept = unsafe[:, place].T
        test = f"forward_kl/{name}" if name in TAILS else name
        place_of: Key = {"table": "unsafe_keep", "estimand": "whole", "test": test, **key}
        found.append(row(share(rose, kept), int(kept.sum()), quantity="unsafe_keep", **place_of))
        if name != "ratio":
            difference = share_difference((rose, ratio[:, 0]), (kept, ratio[:, 1]))
            found.append(row(difference, int(kept.sum()), quantity="unsafe_keep_minus_ratio", **place_of))
    return found


BATCH = Part("batch", lambda config: config.batch, lambda config: config.seeds, compute, rows)
