r"""T7, fifth part: an interval for the change, what it certifies, and the two ways to break it.

The hidden overlap is bracketed in `tail_interval.py`. Here it becomes an interval for the forward-KL change
c_k, also when the engine's log-probabilities are only known to within an error: r is what the engine
recorded, and the true mu lies between r / F and F r, F = e^error.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from sympy import Expr, IndexedBase, KroneckerDelta, Max, Symbol, sign

from divsim.formulas.tail import change_interval

from .cells import S2, SPLIT, TAIL, draw_tail, hidden
from .forward_kl import change
from .hypotheses import nonneg_all
from .intervals import policy
from .notation import h, k, m, p, total
from .tail_interval import above, fill, filled
from .theorem import Mutant, Step, Theorem, Verdict, alias
from .trace import FOUR, Case, trace

r = IndexedBase("r", positive=True)
F, b = Symbol("F", positive=True), Symbol("b", positive=True)
spare = Symbol("x", nonnegative=True)
OVERLAP = hidden(lambda i: p[i] * m[i])
REST = total(lambda i: (1 - KroneckerDelta(i, k)) ** 2 * p[i])
RECORDED = (nonneg_all(lambda i: r[i] - m[i] / F), nonneg_all(lambda i: m[i] - r[i] / F))


def others(weight: Any) -> Expr:
    """Sum of pi_i weight(i) over the retained tokens other than the sampled one."""
    return total(lambda i: (1 - h[i]) ** 2 * (1 - KroneckerDelta(i, k)) ** 2 * p[i] * weight(i))


def draw_record(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """A tail, a recorded mu off by at most 0.1 nats, and a bracket of the hidden overlap."""
    tail, (pi, mu) = draw_tail(rng, size), rng.uniform(0.05, 1, (2, size))
    pi, mu = pi / pi.sum(), mu / mu.sum()
    recorded = mu * np.exp(rng.uniform(-0.1, 0.1, size))
    return {**tail, "p": pi, "m": mu, "r": recorded, "F": np.exp(0.1)}


def interval() -> Theorem:
    """T7l."""
    known = p[k] - S2

    def ends(case: Case) -> list[Any]:
        seen = case.explicit(known - REST * m[k] + others(lambda i: m[i]), h=case.hidden())
        return [seen + overlap for overlap in filled(case)]

    return Theorem(
        id="T7l",
        title="An interval for the change",
        statement=r"c_k = \pi_k - S_2 - (1-\pi_k)\mu_k + \sum_{kept \ne k} \pi_i \mu_i + \sum_{hidden} \pi_i "
        r"\mu_i",
        scope="Forward KL, any vocabulary size, one token, an infinitesimal plain-gradient step in the "
        "logits. If the interval excludes 0, the sign of the Euclidean c_k is proven, as far as π is exact "
        "and every log μ within the stated error; it is not a statement about a network's step. The cap must "
        "be the K-th largest recorded μ (T7n). Code: tail.change_interval.",
        tier="G",
        steps=(
            Step(
                "The change is linear in μ: everything but the hidden overlap is known.",
                change(),
                known - REST * m[k] + others(lambda i: m[i]) + OVERLAP,
                hypotheses=TAIL,
            ),
            Step(
                "An upper end: the sampled token's μ as small, the other retained ones as large as the error "
                "allows, and the overlap at the upper end of its bracket, x above the truth.",
                known - REST * r[k] / F + others(lambda i: F * r[i]) + (OVERLAP + spare) - change(),
                REST * (m[k] - r[k] / F) + F * others(lambda i: r[i] - m[i] / F) + spare,
                kind="nonneg",
                hypotheses=TAIL + RECORDED,
            ),
            Step(
                "A lower end, with everything the other way round.",
                change() - (known - REST * F * r[k] + others(lambda i: r[i] / F) + OVERLAP - spare),
                REST * F * (r[k] - m[k] / F) + others(lambda i: m[i] - r[i] / F) + spare,
                kind="nonneg",
                hypotheses=TAIL + RECORDED,
            ),
        ),
        mutants=(
            Mutant(
                "The sampled token's error counted twice, once in each of its terms.",
                known - r[k] / F + F * p[k] * r[k] + others(lambda i: F * r[i]) + OVERLAP,
                known - REST * r[k] / F + others(lambda i: F * r[i]) + OVERLAP,
                TAIL,
            ),
            Mutant("The overlap left out.", change(), known - REST * m[k] + others(lambda i: m[i]), TAIL),
            Mutant("S₂ left out.", change(), p[k] - REST * m[k] + others(lambda i: m[i]) + OVERLAP, TAIL),
        ),
        traces=(trace("tail.change_interval", lambda c: change_interval(c.coarse_view()), ends, FOUR),),
        assumptions=(*SPLIT, "r_i / F ≤ μ_i ≤ F r_i, r the recorded μ and log F the largest error"),
        aliases=(
            alias("O", "the hidden overlap Σ_tail π μ", OVERLAP),
            alias("c_k", "π_k − μ_k + Σ π_i (μ_i − π_i)", change()),
            alias("S₂", "Σ π²", S2),
            alias("R", "Σ_i≠k π_i, which is 1 − π_k", REST),
        ),
        sample=draw_record,
    )


def exact_change(mu: Sequence[Fraction], pi: Sequence[Fraction], token: int) -> Fraction:
    """c_k of forward KL."""
    gaps = (q * (w - q) for q, w in zip(pi, mu, strict=True))
    return pi[token] - mu[token] + sum(gaps, Fraction(0))


def exact_interval(
    record: Sequence[Fraction],
    pi: Sequence[Fraction],
    token: int,
    top: int,
    growth: Fraction = Fraction(1),
    cap_of_support: bool = False,
) -> tuple[Fraction, Fraction]:
    """The interval of T7l, from the first `top` recorded entries (the largest) and the sampled token's."""
    retained = sorted({*range(top), token})
    tail = sorted(q for i, q in enumerate(pi) if i not in retained)
    seen, own = sum((record[i] for i in retained), Fraction(0)), 1 - pi[token]
    mass, slack = 1 - seen, (growth - 1) * seen
    cap = growth * min(record[i] for i in (retained if cap_of_support else range(top)))
    rest = sum((pi[i] * record[i] for i in retained if i != token), Fraction(0))
    known = pi[token] - sum((q**2 for q in pi), Fraction(0))
    low = (
        known - growth * own * record[token] + rest / growth + fill(tail, max(mass - slack, Fraction(0)), cap)
    )
    high = known - own * record[token] / growth + growth * rest + fill(tail[::-1], mass + slack, cap)
    return low, high


CAP_CASE = (policy((4, 3, 2, 1)), policy((1, 1, 2, 3)), 2, 1)
RATIO_CASE = (policy((2, 1, 1, 1)), policy((1, 1, 2, 5)), 2, 1)
TRUE_MU, ERROR_CASE = policy((23, 122, 155)), (policy((23, 123, 154)), policy((1, 4, 5)), 1, 3)
GROWTH = Fraction(101, 100)


def _wrong_cap() -> Verdict:
    truth = exact_change(*CAP_CASE[:3])
    false, right = exact_interval(*CAP_CASE, cap_of_support=True), exact_interval(*CAP_CASE)
    holds = truth < 0 < false[0] and right[0] <= truth <= right[1]
    return Verdict(holds, f"c = {truth}, wrong interval {_ends(false)}, true interval {_ends(right)}")


def _ignored_error() -> Verdict:
    record, pi, token, _ = ERROR_CASE
    truth, ignored, allowed = (
        exact_change(TRUE_MU, pi, token),
        exact_interval(*ERROR_CASE),
        exact_interval(*ERROR_CASE, GROWTH),
    )
    within = all(1 / GROWTH <= seen / real <= GROWTH for seen, real in zip(record, TRUE_MU, strict=True))
    holds = within and ignored[1] < 0 < truth and allowed[0] <= truth <= allowed[1]
    return Verdict(holds, f"c = {truth}, error ignored {_ends(ignored)}, error allowed for {_ends(allowed)}")


def _contradicts_ratio() -> Verdict:
    mu, pi, token, _ = RATIO_CASE
    ends, truth, gap = exact_interval(*RATIO_CASE), exact_change(mu, pi, token), pi[token] - mu[token]
    return Verdict(
        ends[1] < 0 < gap and ends[0] <= truth, f"π_k − μ_k = {gap}, interval {_ends(ends)}, c = {truth}"
    )


def _ends(interval: tuple[Fraction, Fraction]) -> str:
    return f"[{interval[0]}, {interval[1]}]"


def record_errors() -> Theorem:
    """T7m."""
    seen = total(lambda i: (1 - h[i]) ** 2 * r[i])
    left, truth, slack = 1 - seen, hidden(lambda i: m[i]), (F - 1) * seen
    excess, price = total(lambda i: above[i]), Symbol("y", nonnegative=True)
    return Theorem(
        id="T7m",
        title="What an error of the record does to the tail's mass and cap",
        statement=r"|M - M'| \le (F - 1) \sum_{kept} r_i, \qquad \mu_i \le F\, b \text{ on hidden tokens}",
        scope="Every recorded log μ is within log F of the truth, and the cap b is the K-th largest recorded "
        "μ. If the error is larger than stated, or the record is no top-K, nothing is certified.",
        tier="G",
        steps=(
            Step(
                "The recorded tail mass M' = 1 − Σ_kept r, raised by the slack (F − 1) Σ_kept r, is at least "
                "the true one.",
                left + slack - truth,
                total(lambda i: (1 - h[i]) ** 2 * (m[i] - r[i] / F)) + (F - 1) ** 2 / F * seen,
                kind="nonneg",
                hypotheses=TAIL + RECORDED,
            ),
            Step(
                "Lowered by the slack, it is at most the true one.",
                truth - (left - slack),
                F * total(lambda i: (1 - h[i]) ** 2 * (r[i] - m[i] / F)),
                kind="nonneg",
                hypotheses=TAIL + RECORDED,
            ),
            Step(
                "A hidden token's recorded μ is at most b, so its true μ is at most F b.",
                F * b - m[k],
                F * (b - r[k]) + F * (r[k] - m[k] / F),
                kind="nonneg",
                hypotheses=(*RECORDED, nonneg_all(lambda i: b - r[i])),
            ),
            Step(
                "More mass and a larger cap only raise the upper bound, because its price is not negative.",
                price * (truth + spare) + (b + spare) * excess - (price * truth + b * excess),
                price * spare + spare * excess,
                kind="nonneg",
                hypotheses=(),
            ),
            Step(
                "An error of 0.01 nats that is ignored can certify a wrong sign; allowed for, it does not.",
                kind="exact",
                decide=_ignored_error,
            ),
        ),
        mutants=(
            Mutant("No slack in the tail mass.", left, truth, TAIL),
            Mutant("The slack taken from the hidden part.", left + (F - 1) * left - truth, slack, TAIL),
            Mutant("The error of the cap forgotten.", F * b - m[k], b - r[k] + (F * r[k] - m[k]), ()),
        ),
        assumptions=(*SPLIT, "r_i / F ≤ μ_i ≤ F r_i, r the recorded μ and log F the largest error"),
        aliases=(
            alias("M", "Σ_tail μ, the tail's mass under μ", truth),
            alias("R", "Σ_kept r, the recorded mass of the retained tokens", seen),
        ),
        sample=_draw_capped,
    )


def _draw_capped(rng: np.random.Generator, size: int) -> dict[str, Any]:
    record = draw_record(rng, size)
    return {**record, "b": float(record["r"].max())}


def cap() -> Theorem:
    """T7n."""
    mu, pi, token, top = CAP_CASE
    truth = exact_change(mu, pi, token)
    return Theorem(
        id="T7n",
        title="The cap is the K-th largest μ, not the smallest retained one",
        statement=r"b = \mu_{(K)}; \qquad b = \min_{i \in \text{support}} \mu_i \text{ is false}",
        scope="Exact examples: one of a certificate that lies because of its cap, one of a certificate that "
        "rightly contradicts the ratio test. How often either happens is not claimed.",
        tier="Q",
        steps=(
            Step(
                "The sampled token joins the support and may be less likely than a hidden one; the smallest "
                "retained μ then certifies a wrong sign, and the K-th largest does not.",
                kind="exact",
                decide=_wrong_cap,
            ),
            Step(
                "With the right cap there are tokens whose certified sign contradicts the ratio test.",
                kind="exact",
                decide=_contradicts_ratio,
            ),
        ),
        mutants=(
            Mutant(
                "The smallest retained μ as the cap: c_k said to be at least the lower end.",
                Max(exact_interval(mu, pi, token, top, cap_of_support=True)[0] - truth, 0),
                0,
                (),
            ),
            Mutant(
                "The ratio test's sign taken for the sign of c_k.",
                sign(truth),
                sign(pi[token] - mu[token]),
                (),
            ),
        ),
    )


THEOREMS = (interval, record_errors, cap)
