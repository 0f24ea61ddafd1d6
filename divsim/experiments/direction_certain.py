"""What must hold for every pair of policies: the expectations of the change, and that no false block exists.

Full forward KL is convex along every logit line, so an increase that c_k predicts is real at every step size.
Millions of sampled tokens are asked; where floating point seems to say otherwise, 50-digit arithmetic
decides. The expectations are checked twice: by enumeration to rounding, and by sampling with an interval.
"""

from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from divsim.formulas import (
    View,
    change,
    difference,
    finite_change,
    mean_under,
    policy_gradient_direction,
)
from divsim.tabular.policies import PAIR_FAMILIES, Floats, PolicyPair, at_action, sample_from

from .blocks import blocks
from .direction_config import Config
from .parts import Part, Seeds
from .rows import Key, Row, row
from .statistics import Estimate, mean, share

VOCABS = (3, 10, 100, 1000)
STEPS = (1e-3, 0.1, 1.0, 10.0, 1e3)
DIGITS = 50
EXPECTATIONS = ("E_pi[c]", "E_mu[r c]", "E_mu[c] + |pi - mu|^2", "E_mu[A r c] - Cov_pi(A, pi - mu)")


def cells(config: Config) -> tuple[str, ...]:
    """Every family of pairs at every vocabulary size."""
    return tuple(f"{family}-{vocab}" for family in PAIR_FAMILIES for vocab in VOCABS)


def compute(config: Config, cell: str, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Blocks and expectations of one seed."""
    family, vocab = cell.rsplit("-", 1)
    blocked, sampled, enumerated = [], [], []
    for n in blocks(config.certain_tokens, int(vocab)):
        pair = PAIR_FAMILIES[family](rng, (n,), int(vocab))
        blocked.append(_false_blocks(pair, rng))
        both = _expectations(pair, rng)
        sampled.append(both[0])
        enumerated.append(both[1])
    return {
        "blocked": np.sum(blocked, axis=0),
        "sampled": np.mean(np.concatenate(sampled, axis=1), axis=1),
        "enumerated": np.max(np.concatenate(enumerated, axis=1), axis=1),
    }


def _false_blocks(pair: PolicyPair, rng: np.random.Generator) -> NDArray[np.int64]:
    """[predicted increases, of them not seen in float64, of these confirmed] over tokens and step sizes."""
    action = sample_from(rng, pair.log_mu)
    advantage = rng.choice([-1.0, 1.0], len(action))
    outward = advantage * change(View.full(pair.log_mu, pair.log_pi, action, check=False)) > 0
    direction = policy_gradient_direction(pair.log_pi, action)
    suspects = confirmed = 0
    for step in STEPS:
        realised = finite_change(pair.log_mu, pair.log_pi, (step * advantage)[:, None] * direction)
        for token in np.flatnonzero(outward & ~(realised > 0)):
            suspects += 1
            confirmed += _is_false_block(
                pair.log_mu[token], pair.log_pi[token], int(action[token]), step * advantage[token]
            )
    return np.array([len(STEPS) * np.sum(outward), suspects, confirmed], dtype=np.int64)


def _is_false_block(log_mu: Floats, log_pi: Floats, action: int, step: float) -> bool:
    """Whether these very numbers, normalised exactly, predict an increase that does not come."""
    with mpmath.workdps(DIGITS):
        mu, pi = (_normalised(row) for row in (log_mu, log_pi))
        move = [(i == action) - p for i, p in enumerate(pi)]
        rate = mpmath.fsum((p - m) * v for m, p, v in zip(mu, pi, move, strict=True))
        lift = mpmath.fsum(p * mpmath.expm1(step * v) for p, v in zip(pi, move, strict=True))
        realised = mpmath.log1p(lift) - step * mpmath.fsum(m * v for m, v in zip(mu, move, strict=True))
        return bool(step * rate > 0 and realised < 0)


def _normalised(log_p: Floats) -> list[Any]:
    weights = [mpmath.exp(mpmath.mpf(float(x))) for x in log_p]
    total = mpmath.fsum(weights)
    return [weight / total for weight in weights]


def _expectations(pair: PolicyPair, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Each identity by a sampled token, (4, n); and its rounding when enumerated, (4, n)."""
    q = difference(pair.log_mu, pair.log_pi)
    change_of = q - mean_under(pair.log_pi, q)[:, None]
    ratio = np.exp(pair.log_pi - pair.log_mu)
    worth = rng.standard_normal(q.shape)
    square = np.sum(q**2, axis=-1)
    covariance = mean_under(pair.log_pi, worth * change_of)
    from_pi, from_mu = sample_from(rng, pair.log_pi), sample_from(rng, pair.log_mu)
    weighted = at_action(ratio * change_of, from_mu)
    sampled = np.stack([
        at_action(change_of, from_pi),
        weighted,
        at_action(change_of, from_mu) + square,
        at_action(worth, from_mu) * weighted - covariance,
    ])  # fmt: skip
    enumerated = np.abs(np.stack([
        mean_under(pair.log_pi, change_of),
        mean_under(pair.log_mu, ratio * change_of),
        mean_under(pair.log_mu, change_of) + square,
        mean_under(pair.log_mu, worth * ratio * change_of)
        - (mean_under(pair.log_pi, worth * q) - mean_under(pair.log_pi, worth) * mean_under(pair.log_pi, q)),
    ]))  # fmt: skip
    return sampled, enumerated


def rows(config: Config, cell: str, seeds: Seeds) -> list[Row]:
    """False blocks and expectations of one family and vocabulary."""
    family, vocab = cell.rsplit("-", 1)
    key: Key = {"world": family, "vocab": int(vocab)}
    tokens = config.certain_tokens * config.seeds
    tried, suspects, confirmed = seeds["blocked"].T
    found = [
        row(
            share(confirmed, tried), int(tried.sum()), table="certainty", quantity="false_block_share", **key
        ),
        row(
            share(suspects, tried),
            int(tried.sum()),
            table="certainty",
            quantity="undecided_in_float64",
            **key,
        ),
    ]
    for place, name in enumerate(EXPECTATIONS):
        found.append(row(mean(seeds["sampled"][:, place]), tokens, table="expectations", expectation=name,
                         quantity="sampled", **key))  # fmt: skip
        worst = Estimate(float(seeds["enumerated"][:, place].max()), np.nan, np.nan, config.seeds)
        found.append(
            row(worst, tokens, table="expectations", expectation=name, quantity="enumerated_error", **key)
        )
    return found


CERTAIN = Part("certain", cells, lambda config: config.seeds, compute, rows)
"""One million sampled tokens in the full preset, each at five step sizes."""
