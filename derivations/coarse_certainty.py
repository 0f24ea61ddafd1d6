r"""T3h: the one-sided certainty of T3c is a property of the full vocabulary, and fails for the coarse KL.

The coarse KL keeps a support and treats all other tokens as one cell; it is what a top-K mask can measure.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

from sympy import Derivative, KroneckerDelta, Symbol, log

from . import intervals
from .forward_kl import token_step
from .notation import j, k, p, s, total, v
from .softmax import path
from .theorem import Mutant, Step, Theorem, Verdict, alias

MU, PI, TOKEN, STEP = (334, 1, 333, 332), (470, 1, 495, 34), 1, -15
RETAINED = (0, 1)  # the likeliest token under mu, and the sampled token


def outcome(mu: tuple[int, ...], pi: tuple[int, ...], step: int) -> tuple[Fraction, Any]:
    """The predicted (exact) and the realised (interval) change of the coarse KL under TOKEN's step."""
    behaviour, policy = intervals.policy(mu), intervals.policy(pi)
    direction = [int(i == TOKEN) - q for i, q in enumerate(policy)]
    flow = [q * u for q, u in zip(policy, direction, strict=True)]
    drift = sum(flow)
    cells = zip(intervals.coarsen(behaviour, RETAINED), intervals.coarsen(policy, RETAINED), strict=True)
    cell_flows = intervals.coarsen(flow, RETAINED)
    slope = sum((drift - f / q) * w for (w, q), f in zip(cells, cell_flows, strict=True))
    before, after = (
        intervals.kl(intervals.coarsen(behaviour, RETAINED), intervals.coarsen(state, RETAINED))
        for state in (policy, intervals.moved(policy, TOKEN, step))
    )
    return step * slope, after - before


def search(denominator: int = 1000, stride: int = 5) -> Iterator[tuple[int, ...]]:
    """The policies on a grid for which MU and STEP give a counterexample with four tokens."""
    top, leader = (
        range(denominator // 4, denominator // 2, stride),
        range(denominator // 4, denominator, stride),
    )
    for a, b in product(top, leader):
        rest = denominator - a - b - 1
        if 0 < rest < a <= b:
            predicted, realised = outcome(MU, (a, 1, b, rest), STEP)
            if predicted > 0 and intervals.is_negative(realised):
                yield (a, 1, b, rest)


def _counterexample() -> Verdict:
    predicted, realised = outcome(MU, PI, STEP)
    return Verdict(
        predicted > 0 and intervals.is_negative(realised),
        f"μ = {MU}/1000, π = {PI}/1000, second token, s = {STEP}: predicted "
        f"{intervals.shown(predicted)}, realised {intervals.shown(realised)}",
    )


def coarse_certainty_fails() -> Theorem:
    """T3h."""
    others = total(lambda i: (1 - KroneckerDelta(i, k)) * p[i])
    lead = token_step(k) - token_step(j)
    climb = Derivative(path(k, s), s)
    q, w = Symbol("q", positive=True), Symbol("w", positive=True)
    binary = w * log(w / q) + (1 - w) * log((1 - w) / (1 - q))
    return Theorem(
        id="T3h",
        title="The certainty fails for the coarse KL",
        statement=r"\text{there are } \mu, \pi, s \text{ with } s\, c_k > 0 \text{ and } "
        r"D_{\text{coarse}}(s) < D_{\text{coarse}}(0)",
        scope="One example with four tokens; the likeliest token under μ and the sampled one are retained. "
        "Four is the smallest size: with fewer the tail is one token, and the KL is the full one, or only "
        "the sampled token is retained, and the KL is the binary one, for which the certainty holds. How "
        "often it fails is not claimed.",
        tier="Q",
        steps=(
            Step("A predicted increase is followed by a decrease.", kind="exact", decide=_counterexample),
            Step(
                "Binary KL: the sampled token's logit leads every other logit.",
                lead,
                (1 - KroneckerDelta(j, k)) * (others + p[j]),
                "nonneg",
            ),
            Step(
                "So its probability climbs along the whole path.",
                climb,
                total(lambda i: path(k, s) * path(i, s) * (v[k] - v[i])),
            ),
            Step(
                "And binary KL falls until q meets w and rises after: once it rises it goes on rising.",
                Derivative(binary, q),
                (q - w) / (q * (1 - q)),
                "scalar",
                (),
            ),
        ),
        mutants=(
            Mutant(
                "The factor π_i(s) of the comparison lost.",
                climb,
                total(lambda i: path(k, s) * (v[k] - v[i])),
            ),
            Mutant("The lead without the token itself.", lead, others + p[j]),
            Mutant(
                "The binary KL with its arguments swapped.",
                Derivative(binary, q),
                (w - q) / (q * (1 - q)),
                (),
            ),
        ),
        aliases=(
            alias("kl(w, q)", "the KL of two coins, w log(w/q) + (1 − w) log((1 − w)/(1 − q))", binary),
            alias("π_{}(s)", "the policy after the step s along v", lambda i: path(i, s)),
        ),
    )
