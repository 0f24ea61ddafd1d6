r"""T12, finite horizons: what a token-level surrogate leaves out of the return of a whole sequence.

A sequence of T tokens ends in one reward R. The surrogate L' adds up what each token's ratio says by itself,
the return has the product of the ratios, and Delta is what lies between. How large Delta can be is in
`horizon_bounds.py`. Policies are known on every prefix; nothing is estimated, and nothing is discounted.
"""

from typing import Any

import numpy as np
from sympy import Expr, IndexedBase, prod, symbols

import divsim.formulas as shipped

from .horizon_bounds import linear_bound, quadratic_bound
from .hypotheses import SIMPLEX, given_all
from .notation import m, mean, p, total, v
from .symbolic import xp
from .theorem import Alias, Mutant, Step, Theorem, alias
from .trace import UNTIED, trace

q, w = IndexedBase("q", positive=True), IndexedBase("w", positive=True)  # second token, under pi and under mu
u, x = IndexedBase("u", positive=True), IndexedBase("x", positive=True)  # third token, under pi and under mu
R = IndexedBase("R", real=True)  # reward of the sequence
ROWS = (
    *SIMPLEX,
    *(given_all(lambda i, base=base: (total(lambda h: base[i, h]), 1)) for base in (q, w)),
    *(given_all(lambda i, h, base=base: (total(lambda c: base[i, h, c]), 1)) for base in (u, x)),
)
PI, MU = (p, q, u), (m, w, x)
Tokens = tuple[Any, ...]


def _draw(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """Two policies on every prefix."""
    shape = {"q": (size,), "w": (size,), "u": (size, size), "x": (size, size)}
    return {name: rng.dirichlet(np.ones(size), size=prefixes) for name, prefixes in shape.items()}


def ratios(tokens: Tokens) -> list[Any]:
    """The importance ratio of each token, given those before it."""
    return [PI[t][tokens[: t + 1]] / MU[t][tokens[: t + 1]] for t in range(len(tokens))]


def value(policy: tuple[Any, ...], tokens: Tokens, length: int) -> Any:
    """The expected reward after `tokens` when a policy writes the rest; without tokens, its return J."""
    if len(tokens) == length:
        return R[tokens]
    return total(lambda c: policy[len(tokens)][(*tokens, c)] * value(policy, (*tokens, c), length))


def average(policy: tuple[Any, ...], length: int, body: Any) -> Any:
    """Expectation of `body(tokens)` when a policy writes the whole sequence."""

    def weighted(*tokens: Any) -> Any:
        return prod(policy[t][tokens[: t + 1]] for t in range(length)) * body(tokens)

    return total(lambda i, h: weighted(i, h)) if length == 2 else total(lambda i, h, c: weighted(i, h, c))


def advantages(policy: tuple[Any, ...], length: int) -> Any:
    """Sum of E[A_t]: by how much each token of a policy raises the expected reward under mu."""

    def raised(t: int) -> Any:
        return average(policy, length, lambda s: value(MU, s[: t + 1], length) - value(MU, s[:t], length))

    return sum(raised(t) for t in range(length))


def surrogate(length: int) -> Any:
    """L', every token's ratio by itself."""
    return average(MU, length, lambda tokens: R[tokens] * sum(r - 1 for r in ratios(tokens)))


def gap(length: int) -> Any:
    """Delta, what the ratios of later tokens would add."""

    def missing(tokens: Tokens) -> Any:
        r = ratios(tokens)
        return R[tokens] * sum((r[t] - 1) * (1 - prod(r[t + 1 :])) for t in range(length))

    return average(MU, length, missing)


def gain(length: int) -> Expr:
    """J(pi) - J(mu)."""
    return value(PI, (), length) - value(MU, (), length)


def _short(length: int, mark: str = "") -> tuple[Alias, ...]:
    return (
        alias(f"J{mark}(π)", f"the return of π, T = {length}", value(PI, (), length)),
        alias(f"J{mark}(μ)", f"the return of μ, T = {length}", value(MU, (), length)),
        alias(f"L{mark}'", f"E_μ[R Σ (r_t − 1)], T = {length}", surrogate(length)),
        alias(f"Δ{mark}", f"E_μ[R Σ (r_t − 1)(1 − Π r_j)], T = {length}", gap(length)),
    )


def performance_difference() -> Theorem:
    """T12a."""
    own = advantages(MU, 2)
    return Theorem(
        id="T12a",
        title="The performance difference of a finite horizon",
        statement=r"J(\pi) - J(\mu) = E_\pi \Big[ \sum_t A_t \Big], \qquad A_t = Q_\mu - V_\mu",
        scope="Any vocabulary size at T = 2 and T = 3, one reward at the end; longer sequences telescope in "
        "the same way. The average is over sequences of π, which a trainer does not have.",
        tier="G",
        steps=(
            Step(
                "For two tokens the advantages of μ, averaged over π, add up to the gain.",
                advantages(PI, 2),
                gain(2),
                hypotheses=ROWS,
            ),
            Step("For three tokens too.", advantages(PI, 3), gain(3), hypotheses=ROWS),
            Step(
                "Along a sequence of any length the values under μ telescope from V(start) to R, as they do "
                "for two and three tokens.",
                kind="cited",
            ),
            Step("Averaged over μ itself the advantages vanish.", own, 0, hypotheses=ROWS),
        ),
        mutants=(
            Mutant("Averaged over sequences of μ.", own, gain(2), ROWS),
            Mutant(
                "The first token's advantage alone.",
                average(PI, 2, lambda s: value(MU, s[:1], 2) - value(MU, (), 2)),
                gain(2),
                ROWS,
            ),
        ),
        aliases=(
            *_short(2)[:2],
            *_short(3, "₃")[:2],
            alias("V_{}", "the value under μ after a first token i, T = 2", lambda i: value(MU, (i,), 2)),
            alias("W_{}", "the same, T = 3", lambda i: value(MU, (i,), 3)),
        ),
        traces=(
            trace(
                "bounds.expected_advantage",
                lambda case: shipped.expected_advantage(xp.exp(case.log_pi), case.vector(v)),
                mean(p, lambda i: v[i]),
                UNTIED[:1],
            ),
        ),
        sample=_draw,
    )


def surrogate_gap() -> Theorem:
    """T12b."""
    first, later = symbols("r P", real=True)
    eight = symbols("r1:9", real=True)
    apart = [(r - 1) * prod(eight[t + 1 :]) for t, r in enumerate(eight)]
    return Theorem(
        id="T12b",
        title="What the token-level surrogate leaves out",
        statement=r"J(\pi) - J(\mu) = L' - \Delta, \quad L' = E_\mu\Big[R \sum_t (r_t - 1)\Big], \quad "
        r"\Delta = E_\mu\Big[R \sum_t (r_t - 1)\Big(1 - \prod_{j > t} r_j\Big)\Big]",
        scope="Every horizon by induction, written out for T = 2 and T = 3 with any vocabulary size; one "
        "reward at the end of the sequence. An identity: how small Δ is, T12c says.",
        tier="G",
        steps=(
            Step(
                "One token more: the first ratio's share, and the product of the later ones.",
                first * later - 1,
                (first - 1) * later + (later - 1),
                hypotheses=(),
            ),
            Step(
                "Repeated, the product of the ratios less one is a sum over tokens; here for eight.",
                prod(eight) - 1,
                sum(apart),
                hypotheses=(),
            ),
            Step(
                "The return of π is an average over μ with the product of the ratios.",
                average(MU, 3, lambda s: R[s] * prod(ratios(s))),
                value(PI, (), 3),
                hypotheses=(),
            ),
            Step("So at T = 2 the gain is L' − Δ,", surrogate(2) - gap(2), gain(2), hypotheses=()),
            Step("and at T = 3.", surrogate(3) - gap(3), gain(3), hypotheses=()),
        ),
        mutants=(
            Mutant("Δ added.", surrogate(2) + gap(2), gain(2), ()),
            Mutant("Δ forgotten.", surrogate(3), gain(3), ()),
            Mutant("Each ratio times itself.", prod(eight) - 1, sum((r - 1) * r for r in eight), ()),
        ),
        aliases=(*_short(2), *_short(3, "₃")),
    )


THEOREMS = (performance_difference, surrogate_gap, quadratic_bound, linear_bound)
