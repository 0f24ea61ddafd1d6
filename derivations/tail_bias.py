r"""T7, third part: how wrong the point estimates of the tail are, and in which direction.

Here the n tokens are the tail itself, with masses P = sum pi and M = sum mu below one. The true tail term of
the forward-KL change is T = sum pi (mu - pi); an estimator replaces it by nu (M - P).
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from sympy import Expr, KroneckerDelta, Subs, Symbol

from .notation import l, m, n, p, total
from .theorem import Mutant, Step, Theorem, Verdict, alias

P, M, Q2 = total(lambda i: p[i]), total(lambda i: m[i]), total(lambda i: p[i] ** 2)
x, y = Symbol("x", positive=True), Symbol("y", positive=True)
step, mutant = partial(Step, hypotheses=()), partial(Mutant, hypotheses=())

NAMES = (
    alias("T", "the true tail term, Σ π (μ − π)", total(lambda i: p[i] * (m[i] - p[i]))),
    alias("P", "Σ π, the tail's mass under π", P),
    alias("M", "Σ μ, its mass under μ", M),
    alias("Q₂", "Σ π²", Q2),
    alias("N", "the number of hidden tokens; all sums run over them", n),
)

PI = tuple(Fraction(a, 40) for a in (5, 16, 1, 14, 4))
MU = tuple(Fraction(a, 40) for a in (14, 13, 6, 5, 2))


def bias(nu: Any, pi: Any = lambda i: p[i], mu: Any = lambda i: m[i]) -> Expr:
    """Estimated minus true tail term, nu given as a function of the tail mass, squares and size."""
    mass, squares = total(pi), total(lambda i: pi(i) ** 2)
    return nu(mass, squares) * (total(mu) - mass) - total(lambda i: pi(i) * (mu(i) - pi(i)))


def uniform(mass: Any, squares: Any) -> Any:
    """nu = P / N."""
    return mass / n


def aggregated(mass: Any, squares: Any) -> Any:
    """nu = P."""
    return mass


def proportional(mass: Any, squares: Any) -> Any:
    """nu = Q2 / P."""
    return squares / mass


def apart(i: Any, j: Any) -> Expr:
    """1 if the tokens differ, else 0, as a square."""
    return (1 - KroneckerDelta(i, j)) ** 2


def draw_masses(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """Tails that hold less than all probability, of different mass under pi and mu."""
    pi, mu = rng.uniform(0.05, 1, (2, size))
    return {"p": 0.4 * pi / pi.sum(), "m": 0.3 * mu / mu.sum()}


def uniform_bias() -> Theorem:
    """T7g."""
    error = bias(uniform)
    return Theorem(
        id="T7g",
        title="Bias of the uniform tail",
        statement=r"P\frac{M-P}{N} - T = \sum_i \left(\pi_i - \tfrac{P}{N}\right)(\pi_i - \mu_i) = N\, "
        r"\mathrm{Cov}_{tail}(\pi, \pi - \mu)",
        scope="Any tail size, forward KL; the covariance gives every hidden token the same weight. Exact if "
        "and only if that covariance is zero: a flat π is enough, whatever μ is, and so is a constant π − μ. "
        "That both are flat is sufficient, not necessary.",
        tier="G",
        steps=(
            step(
                "The bias is the sum of π's deviation from its average times π − μ.",
                error,
                total(lambda i: (p[i] - P / n) * (p[i] - m[i])),
            ),
            step(
                "That is N times the covariance of π and π − μ over the tail, each token counted once.",
                error,
                n * (total(lambda i: p[i] * (p[i] - m[i])) / n - P / n * (P - M) / n),
            ),
            step(
                "If π is flat on the tail the bias vanishes, whatever μ is.", bias(uniform, pi=lambda i: x), 0
            ),
            step(
                "If π − μ is constant on the tail the bias vanishes, whatever π is.",
                bias(uniform, mu=lambda i: p[i] - x),
                0,
            ),
        ),
        mutants=(
            mutant("Taken to be exact where μ is flat.", bias(uniform, mu=lambda i: y), 0),
            mutant("The covariance of π and μ alone.", error, total(lambda i: (p[i] - P / n) * m[i])),
            mutant("The sign of the bias lost.", error, total(lambda i: (p[i] - P / n) * (m[i] - p[i]))),
        ),
        aliases=NAMES,
        sample=draw_masses,
    )


def aggregated_bias() -> Theorem:
    """T7h."""
    error = bias(aggregated)
    own, others = total(lambda i: p[i] * m[i]), total(lambda i, o: apart(i, o) * p[i] * p[o])
    one = {"pi": lambda i: KroneckerDelta(i, l) * x, "mu": lambda i: KroneckerDelta(i, l) * y}
    return Theorem(
        id="T7h",
        title="Bias of the aggregated tail",
        statement=r"P(M-P) - T = \sum_{i \ne l} \pi_i (\mu_l - \pi_l), \qquad |P(M-P) - T| \le P \max(M, P)",
        scope="Any tail size, forward KL. One hidden token is exact; so are some larger tails, for example μ "
        "= π on the tail. On flat tails the estimate is the true tail term times the number of hidden "
        "tokens.",
        tier="G",
        steps=(
            step(
                "The bias pairs every hidden token with all the others.",
                error,
                total(lambda i, o: apart(i, o) * p[i] * (m[o] - p[o])),
            ),
            step(
                "It is at most P M: what is missing to P M is a sum of products of probabilities.",
                P * M - error,
                own + others,
                kind="nonneg",
            ),
            step(
                "It is at least −P².",
                P**2 + error,
                Q2 + total(lambda i, o: apart(i, o) * p[i] * m[o]),
                kind="nonneg",
            ),
            step("A tail of one token leaves no pair, so the bias vanishes.", bias(aggregated, **one), 0),
            step(
                "If μ = x π on the tail the bias vanishes at x = 1.",
                Subs(bias(aggregated, mu=lambda i: x * p[i]), x, 1),
                0,
            ),
            step(
                "If both are flat, the estimate is N times the true term.",
                n * x * (n * y - n * x),
                n * total(lambda i: x * (y - x)),
            ),
        ),
        mutants=(
            mutant("Exact on flat tails.", bias(aggregated, lambda i: x, lambda i: y), 0),
            mutant("The pairs with themselves counted.", error, total(lambda i, o: p[i] * (m[o] - p[o]))),
            mutant(
                "The true term with the wrong sign.",
                P * (M - P) + total(lambda i: p[i] * (m[i] - p[i])),
                error,
            ),
        ),
        aliases=NAMES,
        sample=draw_masses,
    )


def proportional_bias() -> Theorem:
    """T7i."""
    error = bias(proportional)
    matched = {"mu": lambda i: x * p[i]}
    true = total(lambda i: p[i] * (x * p[i] - p[i]))
    return Theorem(
        id="T7i",
        title="Bias of the proportional tail",
        statement=r"\frac{Q_2}{P}(M-P) - T = P M \left(\|\hat\pi\|^2 - \langle\hat\pi, "
        r"\hat\mu\rangle\right), \qquad \frac{P}{N} \le \frac{Q_2}{P} \le P",
        scope="Any tail size, forward KL; hats are the distributions within the tail. Exact if they agree. "
        "It is the consistent estimate (T7b), not always the most accurate one: which is nearer depends on "
        "the tails.",
        tier="G",
        steps=(
            step(
                "The bias compares π's overlap with itself and with μ, inside the tail.",
                error,
                P * M * (total(lambda i: (p[i] / P) ** 2) - total(lambda i: p[i] / P * m[i] / M)),
            ),
            step("If μ has π's shape on the tail, the bias vanishes.", bias(proportional, **matched), 0),
            step(
                "Its ν is at least the uniform one: the spread of π is not negative.",
                n * Q2 - P**2,
                total(lambda i, o: (p[i] - p[o]) ** 2) / 2,
                kind="nonneg",
            ),
            step(
                "Its ν is at most the aggregated one.",
                P**2 - Q2,
                total(lambda i, o: apart(i, o) * p[i] * p[o]),
                kind="nonneg",
            ),
            step(
                "So where the shapes agree the true term lies between the uniform and the aggregated "
                "estimate, and all three have the sign of M − P.",
                true,
                Q2 / P * (total(lambda i: x * p[i]) - P),
            ),
        ),
        mutants=(
            mutant("Exact for every tail.", error, 0),
            mutant("The overlap of μ with itself.", error, M / P * Q2 - P / M * total(lambda i: m[i] ** 2)),
            mutant("The masses forgotten.", error, total(lambda i: (p[i] / P) ** 2 - p[i] / P * m[i] / M)),
        ),
        aliases=NAMES,
        sample=draw_masses,
    )


def estimates(pi: Sequence[Fraction], mu: Sequence[Fraction], kept: int, token: int) -> dict[str, Fraction]:
    """The full forward-KL change of `token`, and every estimate that retains the first `kept` tokens."""
    retained, tail = range(kept), range(kept, len(pi))
    mass = sum((pi[i] for i in tail), Fraction(0))
    gap = sum((mu[i] - pi[i] for i in tail), Fraction(0))
    base = pi[token] - mu[token] + sum((pi[i] * (mu[i] - pi[i]) for i in retained), Fraction(0))
    weights = {
        "aggregated": mass,
        "uniform": mass / len(tail),
        "proportional": sum((pi[i] ** 2 for i in tail), Fraction(0)) / mass,
        "zero": Fraction(0),
    }
    full = base + sum((pi[i] * (mu[i] - pi[i]) for i in tail), Fraction(0))
    return {"full": full, **{name: base + weight * gap for name, weight in weights.items()}}


def _sign_failure() -> Verdict:
    found = estimates(PI, MU, kept=2, token=1)
    holds = found.pop("full") == Fraction(-3, 400) and all(value > 0 for value in found.values())
    shown = ", ".join(f"{name} {value}" for name, value in found.items())
    return Verdict(holds and sum(PI) == sum(MU) == 1, shown)


def sign_failure() -> Theorem:
    """T7j."""
    return Theorem(
        id="T7j",
        title="Point estimates can have the wrong sign",
        statement=r"\pi = (5, 16, 1, 14, 4)/40,\ \mu = (14, 13, 6, 5, 2)/40,\ K = 2,\ \text{second "
        r"token:}\quad c_k = -\tfrac{3}{400} < 0, \text{ every estimate} > 0",
        scope="One exact example, in which the two retained tokens are the two likeliest under μ. It shows "
        "that such cases exist, not how common they are.",
        tier="Q",
        steps=(
            Step(
                "Reinforcing the second token lowers forward KL, and the aggregated and the uniform tail "
                "both say that it rises.",
                kind="exact",
                decide=_sign_failure,
            ),
        ),
        mutants=(
            Mutant(
                "The aggregated estimate taken for c_k.",
                estimates(PI, MU, 2, 1)["aggregated"],
                Fraction(-3, 400),
            ),
            Mutant(
                "The uniform estimate taken for c_k.", estimates(PI, MU, 2, 1)["uniform"], Fraction(-3, 400)
            ),
        ),
    )


THEOREMS = (uniform_bias, aggregated_bias, proportional_bias, sign_failure)
