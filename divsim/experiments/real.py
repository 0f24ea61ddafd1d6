"""What the tests and the estimators say about tokens of a real language model: rows, with 95 % intervals.

For each pair of policies and each region of tokens: how often ratio and exact change c_k disagree, which of
them foretells what a token's own step does, how far the top-K estimators are from c_k, and how often an
interval proves its sign. The 95 % intervals are made from prompts. Left out: the tokens with every logit,
other steps than a token's own, and advantages: each token is stepped up and down.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from divsim.formulas import FORWARD_KL, TV, View, change, change_interval, difference
from divsim.tabular.policies import Bools, Floats
from divsim.tabular.real_tokens import RealTokens
from divsim.tabular.real_views import (
    STORED_INTERVAL,
    euclidean_change,
    euclidean_flip_step,
    one_logit_change,
    one_logit_flip_step,
    view,
)

from .bootstrap import Clusters, draw_clusters, quantiles, ratio, risk_difference, share
from .rows import Row, row
from .statistics import Estimate

NOISE = 1e-6
"""Two float32 passes of one model differ by 2e-5 in log-probability: a sign of less than this is noise."""

STEPS = (0.1, 0.5, 2.0, 10.0)
"""Step sizes in units of the token's own flip step, to leading order."""

COUNTS = (1, 5, 8, 20, 50, 64)
"""K; those beyond the stored columns are left out."""

LEVELS = (0.5, 0.95)
ESTIMATORS = ("aggregated", "uniform", "proportional", "zero")
LOG_MU_ERRORS = (0.0, 2e-5, 1e-3, 1e-2)
"""Nats: exact; float32 passes of one model; two worse engines."""


def direction_rows(data: Mapping[str, RealTokens]) -> list[Row]:
    """Disagreement of ratio and c_k, and what each knows of a token's own step.

    Args:
      data: what `load` returns.

    Returns:
      Rows without a value are left out. Table "disagreement": "undecided_share" (c_k or pi_k - mu_k below
      `NOISE`), and "disagree_share" of the decided tokens. Table "agreement", estimand "own", of the decided
      tokens, each stepped up and down: "base_rate" (share of steps that raise forward KL), "unresolved_share"
      (its bracket contains 0, which counts as not raised), "accuracy" of each test, "risk_difference" and
      "risk_difference_minus_ratio". A step is in units of the flip step of its geometry; so measured, "sign"
      is the natural gradient too.

    Errors: ValueError if fewer than 20 columns are stored.
    """
    return [found for tokens in data.values() for found in _direction_rows(tokens)]


def tails_rows(data: Mapping[str, RealTokens]) -> list[Row]:
    """Errors of the top-K estimators, what coarse divergences miss, and the share of certified signs.

    Args:
      data: what `load` returns.

    Returns:
      Rows without a value are left out. Table "estimators", for each K: "flip_rate" (wrong sign, of the
      decided tokens), "bias" (mean error), "error_q50" and "error_q95" (of |error|) of each tail;
      "missed_kl_share" and "missed_tv_share" of the sum over the region; "certified_share" with the best
      bracket of `view`. Table "certificate": "certified_share" with each bracket and stated error of log mu,
      and "wrong_share" of the certified tokens.

    Errors: ValueError if fewer than 20 columns are stored.
    """
    return [found for tokens in data.values() for found in _tails_rows(tokens)]


def regions(tokens: RealTokens) -> dict[str, Bools]:
    """Which tokens lie in each region: name -> (N,) bool. Disagreement is among decided tokens only."""
    mass, kl = tokens.top_20_mass, tokens.kl
    gap, c = _gap(tokens), tokens.c
    disagree = _decided(tokens) & ((gap > 0) != (c > 0))
    return {
        "all": np.ones_like(disagree),
        "far_0.05": kl > 0.05,
        "far_0.15": kl > 0.15,
        "disagree": disagree,
        "disagree_far_0.05": disagree & (kl > 0.05),
        "disagree_far_0.15": disagree & (kl > 0.15),
        "top20_above_0.99": mass > 0.99,
        "top20_0.9_0.99": (mass > 0.9) & (mass <= 0.99),
        "top20_0.5_0.9": (mass > 0.5) & (mass <= 0.9),
        "top20_below_0.5": mass <= 0.5,
    }


def _gap(tokens: RealTokens) -> Floats:
    """pi_k - mu_k, whose sign is the ratio test's, (N,)."""
    return np.asarray(difference(tokens.log_mu_k, tokens.log_pi_k))


def _decided(tokens: RealTokens) -> Bools:
    return (np.abs(tokens.c) >= NOISE) & (np.abs(_gap(tokens)) >= NOISE)


def _key(tokens: RealTokens) -> dict[str, str | int]:
    return {"world": "real", "mismatch": tokens.name, "vocab": tokens.vocab}


def _row(estimate: Estimate, among: Bools, **key: str | int) -> list[Row]:
    """One row, or none where there was nothing to estimate from."""
    return [] if math.isnan(estimate.value) else [{**key, **row(estimate, int(among.sum()))}]


def _direction_rows(tokens: RealTokens) -> list[Row]:
    clusters, decided, places = draw_clusters(tokens.prompt), _decided(tokens), regions(tokens)
    key = _key(tokens)
    found: list[Row] = []
    for region, inside in places.items():
        if region.startswith("disagree"):
            continue
        place = {"table": "disagreement", **key, "region": region}
        found += _row(share(clusters, ~decided, inside), inside, **place, quantity="undecided_share")
        among = inside & decided
        found += _row(share(clusters, places["disagree"], among), among, **place, quantity="disagree_share")
    for geometry, step, low, high in _own_steps(tokens):
        for region, inside in places.items():
            place = {"table": "agreement", "estimand": "own", **key, "region": region}
            place |= {"geometry": geometry, "step": f"{step:g}"}
            found += _agreement_rows(tokens, clusters, inside & decided, (low, high), place)
    return found


def _own_steps(tokens: RealTokens) -> Iterator[tuple[str, float, Floats, Floats]]:
    """(geometry, step, low, high): the bracket (2 N,) of the realised change, stepped up and stepped down."""
    euclidean, one_logit = euclidean_flip_step(tokens), one_logit_flip_step(tokens)
    for step in STEPS:
        ends = [euclidean_change(tokens, side * step * euclidean) for side in (1, -1)]
        low, high = (np.concatenate(end) for end in zip(*ends, strict=True))
        yield "euclidean", step, low, high
        exact = np.concatenate([one_logit_change(tokens, side * step * one_logit) for side in (1, -1)])
        yield "sign", step, exact, exact


def _agreement_rows(
    tokens: RealTokens,
    clusters: Clusters,
    among: Bools,
    bracket: tuple[Floats, Floats],
    place: Mapping[str, str | int],
) -> list[Row]:
    """How well each test foretells the realised changes of one region, geometry and step."""
    both, inside = Clusters(np.tile(clusters.label, 2), clusters.counts), np.tile(among, 2)
    low, high = bracket
    rises, is_open = low > 0, (low <= 0) & (high >= 0)
    said = {
        name: np.concatenate([score > 0, score < 0])
        for name, score in (("ratio", _gap(tokens)), ("forward_kl/full", tokens.c))
    }
    found = _row(share(both, rises, inside), among, **place, quantity="base_rate")
    found += _row(share(both, is_open, inside), among, **place, quantity="unresolved_share")
    for test, outward in (*said.items(), ("always", np.ones_like(rises))):
        right = share(both, outward == rises, inside)
        found += _row(right, among, **place, test=test, quantity="accuracy")
    for test, outward in said.items():
        known = risk_difference(both, outward, rises, inside)
        found += _row(known, among, **place, test=test, quantity="risk_difference")
    name = "forward_kl/full"
    gain = risk_difference(both, said[name], rises, inside, instead_of=said["ratio"])
    return found + _row(gain, among, **place, test=name, quantity="risk_difference_minus_ratio")


def _tails_rows(tokens: RealTokens) -> list[Row]:
    clusters, places = draw_clusters(tokens.prompt), regions(tokens)
    found: list[Row] = []
    for k in (k for k in COUNTS if k <= tokens.columns):
        seen, key = view(tokens, k), {**_key(tokens), "k": k}
        missed = {
            name: (exact, exact - divergence.measure(*seen.cells))
            for name, divergence, exact in (("kl", FORWARD_KL, tokens.kl), ("tv", TV, tokens.tv))
        }
        certified, _ = _certified(tokens, seen)
        estimates = {tail: change(seen, FORWARD_KL, tail) for tail in ESTIMATORS}
        for region, inside in places.items():
            place = {"table": "estimators", **key, "region": region}
            for name, (exact, gap) in missed.items():
                part = ratio(clusters, gap, exact, inside)
                found += _row(part, inside, **place, quantity=f"missed_{name}_share")
            found += _row(share(clusters, certified, inside), inside, **place, quantity="certified_share")
            for tail, estimate in estimates.items():
                found += _error_rows(tokens, clusters, inside, estimate, place | {"tail": tail})
        found += _certificate_rows(tokens, k, clusters, places)
    return found


def _error_rows(
    tokens: RealTokens, clusters: Clusters, inside: Bools, estimate: Floats, place: Mapping[str, str | int]
) -> list[Row]:
    """How far one estimator is from c_k in one region."""
    error, flips = estimate - tokens.c, (estimate > 0) != (tokens.c > 0)
    among = inside & _decided(tokens)
    found = _row(share(clusters, flips, among), among, **place, quantity="flip_rate")
    bias = ratio(clusters, error, np.ones_like(error), inside)
    found += _row(bias, inside, **place, quantity="bias")
    for level, size in zip(LEVELS, quantiles(clusters, np.abs(error), LEVELS, inside), strict=True):
        found += _row(size, inside, **place, quantity=f"error_q{100 * level:g}")
    return found


def _certificate_rows(
    tokens: RealTokens, k: int, clusters: Clusters, places: Mapping[str, Bools]
) -> list[Row]:
    found: list[Row] = []
    for bracket in ("tight", "free") if k == STORED_INTERVAL else ("free",):
        for error in LOG_MU_ERRORS:
            seen = view(tokens, k, log_mu_error=error, use_interval=bracket == "tight")
            certified, wrong = _certified(tokens, seen)
            place = {"table": "certificate", **_key(tokens), "k": k, "bracket": bracket}
            place |= {"log_mu_error": f"{error:g}", "error_is": "stated"}
            for region, inside in places.items():
                here, proven = place | {"region": region}, inside & certified
                found += _row(share(clusters, certified, inside), inside, **here, quantity="certified_share")
                found += _row(share(clusters, wrong, proven), proven, **here, quantity="wrong_share")
    return found


def _certified(tokens: RealTokens, seen: View) -> tuple[Bools, Bools]:
    """Whether the interval excludes 0, and whether it then has the wrong sign, (N,) each."""
    low, high = change_interval(seen)
    return (low > 0) | (high < 0), ((low > 0) & (tokens.c < 0)) | ((high < 0) & (tokens.c > 0))
