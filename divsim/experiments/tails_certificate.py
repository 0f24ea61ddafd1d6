"""The certificate when the engine's record is off: certified shares, and how many certified signs are wrong.

Each recorded log mu is off by a uniform error within a bound. Stated, the bound widens the interval and no
certified sign may be wrong; not stated, some are. The same tokens and errors serve both.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import View, change, change_interval
from divsim.tabular.policies import Floats, at_action, sample_from

from .blocks import total
from .parts import Part, Seeds
from .rows import Key, Row, row
from .statistics import share
from .tails_config import Config

CERTIFIED = ("noise_0.5", "engine", "fp8_head")


def cells(config: Config) -> tuple[str, ...]:
    """Pairs at which a certificate is worth asking for, where the top-K hides something."""
    return tuple(
        pairs.name
        for pairs in config.pairs
        if pairs.mismatch in CERTIFIED and config.certificate_size < pairs.vocab
    )


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """[tokens, certified, of them wrong] for every error, (errors, stated or not, 3)."""
    pairs = config.pairs_named(cell)

    def block(n: int) -> dict[str, NDArray[Any]]:
        pair = pairs.family(rng, (n,), pairs.vocab)
        action = sample_from(rng, pair.log_mu)
        exact = np.asarray(change(View.full(pair.log_mu, pair.log_pi, action, check=False)))
        ids = np.argsort(-pair.log_mu, axis=-1)[:, : config.certificate_size]
        top = np.take_along_axis(pair.log_mu, ids, axis=-1)
        found = []
        for bound in config.errors:
            noise = rng.uniform(-bound, bound, (n, top.shape[-1] + 1))
            # The sampled token is recorded once, also where it is one of the top K.
            own = np.where(ids == action[:, None], noise[:, :-1], 0.0).sum(axis=-1)
            own = np.where(np.any(ids == action[:, None], axis=-1), own, noise[:, -1])
            recorded = (at_action(pair.log_mu, action) + own, ids, top + noise[:, :-1])
            found.append([
                _tally(View.from_logits(pair.log_pi, action, *recorded, bracket=True, log_mu_error=stated,
                                        check=False), exact)
                for stated in (bound, 0.0)
            ])  # fmt: skip
        return {"tally": np.array(found, dtype=np.int64)}

    return total(block, config.tokens(pairs), pairs.vocab)


def _tally(view: View, exact: Floats) -> list[int]:
    low, high = change_interval(view)
    up, down = low > 0, high < 0
    wrong = (up & (exact < 0)) | (down & (exact > 0))
    return [len(exact), int(np.sum(up | down)), int(np.sum(wrong))]


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """What is reported of one cell."""
    pairs = config.pairs_named(cell)
    found: list[Row] = []
    for e, bound in enumerate(config.errors):
        for s, stated in enumerate(("stated", "not stated")):
            tokens, certified, wrong = seeds["tally"][:, e, s].T
            key: Key = {"table": "certificate", "k": config.certificate_size, "log_mu_error": f"{bound:g}",
                   "error_is": stated, **pairs.key}  # fmt: skip
            found.append(row(share(certified, tokens), int(tokens.sum()), quantity="certified_share", **key))
            found.append(row(share(wrong, certified), int(certified.sum()), quantity="wrong_share", **key))
    return found


CERTIFICATE = Part("certificate", cells, lambda config: config.seeds, compute, rows)
