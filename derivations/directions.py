r"""T5, ratio against divergence direction: when do sign(d_k) and sign(c_k) differ, and what each of them is.

c_k = d_k - E_pi[d]: the ratio test compares d_k = pi_k - mu_k with zero, the divergence test with the
average of d. The bounds are in `direction_bounds.py`, exact examples in `direction_examples.py`, and the
geometry in which the ratio test is the divergence test in `natural_gradient.py`.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from sympy import Derivative, Dummy, KroneckerDelta, Subs, log, symbols

from .direction_bounds import agreement, average, range_of_the_change, size_of_the_global_term
from .direction_examples import change_at, smallest_and_worst
from .f_divergences import f, g, sample_f
from .forward_kl import change, token_step
from .hypotheses import SIMPLEX, nonneg
from .intervals import policy
from .natural_gradient import natural_gradient
from .notation import j, k, m, mean, p, specialise, t, total, v
from .softmax import path
from .theorem import Mutant, Step, Theorem, Verdict, alias

x, y = symbols("x y", positive=True)
DEFINITIONS = (alias("c_k", "the change", change()), alias("E d", "the average of d under π", average()))


def _sharper_pi(rng: np.random.Generator, size: int) -> dict[str, Any]:
    mu, pi = sorted(rng.dirichlet(np.ones(size), 2), key=lambda q: float(q @ q))
    return {"p": pi, "m": mu}


def _tied_token_moves() -> Verdict:
    mu, pi = policy((1, 1, 2)), policy((1, 2, 1))
    value = change_at(mu, pi, 0)
    return Verdict(
        value == Fraction(-1, 16), f"μ = (1, 1, 2)/4, π = (1, 2, 1)/4, first token: r = 1, c = {value}"
    )


def decomposition() -> Theorem:
    """T5a."""
    d_k, norms = p[k] - m[k], total(lambda i: p[i] ** 2 - m[i] ** 2)
    distance = total(lambda i: (p[i] - m[i]) ** 2)
    halfway = average() / 2
    return Theorem(
        id="T5a",
        title="Local and global term, and when the two tests disagree",
        statement=r"c_k = d_k - E_\pi[d], \quad E_\pi[d] = \tfrac12 (|\pi|^2 - |\mu|^2 + |\pi - \mu|^2), "
        r"\quad d_k c_k < 0 \iff d_k \text{ strictly between } 0 \text{ and } E_\pi[d]",
        scope="Any vocabulary size, forward KL, one token, an infinitesimal Euclidean logit step. "
        "Disagreement does not say which test is right for a network.",
        tier="G",
        steps=(
            Step(
                "The change is the token's d minus the average of d under π.",
                change(),
                d_k - average(),
                polynomial=True,
            ),
            Step(
                "It is the scalar product of e_k − π and π − μ: the angle at π between μ and the corner e_k.",
                change(),
                total(lambda i: (KroneckerDelta(i, k) - p[i]) * (p[i] - m[i])),
                polynomial=True,
            ),
            Step(
                "So (Thales) it is 0 on the sphere whose diameter runs from μ to e_k, positive inside and "
                "negative outside.",
                change(),
                total(lambda i: (KroneckerDelta(i, k) - m[i]) ** 2) / 4
                - total(lambda i: (p[i] - (m[i] + KroneckerDelta(i, k)) / 2) ** 2),
                polynomial=True,
            ),
            Step(
                "The average compares the squared norms of π and μ.",
                average(),
                (norms + distance) / 2,
                polynomial=True,
            ),
            Step(
                "So if π is at least as peaked as μ, |π| ≥ |μ|, the global term −E_π[d] is not positive.",
                average(),
                norms / 2 + distance / 2,
                "nonneg",
                (*SIMPLEX, nonneg(norms)),
                polynomial=True,
            ),
            Step(
                "d_k c_k < 0 says that d_k is closer to E_π[d]/2 than 0 is, which is: strictly between 0 "
                "and E_π[d].",
                d_k * change(),
                (d_k - halfway) ** 2 - halfway**2,
                polynomial=True,
            ),
            Step(
                "A token with r = 1 is not neutral: its change is the global term.",
                kind="exact",
                decide=_tied_token_moves,
            ),
        ),
        mutants=(
            Mutant("The average of d under μ.", average(), (norms - distance) / 2),
            Mutant("The distance forgotten.", average(), norms / 2),
            Mutant(
                "The angle at μ in place of that at π.",
                change(),
                total(lambda i: (KroneckerDelta(i, k) - m[i]) * (p[i] - m[i])),
            ),
            Mutant("The squared norms swapped.", average(), (distance - norms) / 2),
            Mutant(
                "The centre of the interval at E_π[d].",
                d_k * change(),
                (d_k - average()) ** 2 - average() ** 2,
            ),
        ),
        aliases=DEFINITIONS,
        sample=_sharper_pi,
    )


def two_tokens() -> Theorem:
    """T5d."""
    mu, pi = (y, 1 - y), (x, 1 - x)
    c = change_at(mu, pi, 0)
    return Theorem(
        id="T5d",
        title="Two tokens: the tests always agree",
        statement=r"n = 2: \quad c_k = 2 (1 - \pi_k)\, d_k",
        scope="Two tokens only. With three tokens it fails (T5e).",
        tier="F",
        steps=(
            Step(
                "Write the second probability as one minus the first.", c, 2 * (1 - x) * (x - y), "scalar", ()
            ),
            Step("The other token moves against it.", change_at(mu, pi, 1), 2 * x * (y - x), "scalar", ()),
        ),
        mutants=(
            Mutant("The 2 lost.", c, (1 - x) * (x - y), ()),
            Mutant("π_k in place of 1 − π_k.", c, 2 * x * (x - y), ()),
            Mutant("The local term alone.", c, x - y, ()),
        ),
    )


def _bystander_rises() -> Verdict:
    pi = policy((1, 1, 6))
    step = [1 - pi[0], -pi[1], -pi[2]]
    rate = pi[1] * (step[1] - sum(q * move for q, move in zip(pi, step, strict=True)))
    return Verdict(
        rate > 0, f"π = (1, 1, 6)/8: reinforcing the first token moves the second at the rate {rate}"
    )


def binary_divergences() -> Theorem:
    """T5f."""
    moved = specialise(path(j), v, token_step)
    rate = Subs(Derivative(moved, t), t, 0)
    own = p[k] * (token_step(k) - mean(p, token_step))
    square = total(lambda i: p[i] ** 2)
    others = total(lambda i: ((1 - KroneckerDelta(i, k)) * p[i]) ** 2)
    binary = x * f(y / x) + (1 - x) * f((1 - y) / (1 - x))
    binary_kl = y * log(y / x) + (1 - y) * log((1 - y) / (1 - x))
    ratio = Dummy("ratio", positive=True)

    def g_at(value: Any) -> Any:
        return g(ratio).subs(ratio, value)

    return Theorem(
        id="T5f",
        title="Binary divergences move with the ratio test",
        statement=r"\frac{d\pi_k}{ds} = \pi_k (1 - 2 \pi_k + S_2) > 0, \quad \frac{d\pi_j}{ds} = \pi_j "
        r"(S_2 - \pi_j - \pi_k), \quad \frac{d}{d\pi_k} D_f^{bin} = g(w_k) - g(w_{rest})",
        scope="Any V ≥ 2; every f-divergence with smooth convex f on the two cells {k} and the "
        "rest rises exactly when the ratio test says so (binary TV is |d_k| itself). The token's own "
        "probability always moves with its advantage; the others need not fall.",
        tier="G",
        steps=(
            Step(
                "Reinforcing k moves token j by this much.",
                rate,
                p[j] * (KroneckerDelta(j, k) + square - p[j] - p[k]),
            ),
            Step(
                "For the token itself the rate is π_k (1 − 2 π_k + S₂),",
                own,
                p[k] * (1 - 2 * p[k] + square),
                polynomial=True,
            ),
            Step(
                "which is positive: the bracket is at least (1 − π_k)².",
                1 - 2 * p[k] + square,
                (1 - p[k]) ** 2 + others,
                "nonneg",
            ),
            Step("Other tokens with π_j + π_k < S₂ rise too.", kind="exact", decide=_bystander_rises),
            Step(
                "The binary divergence of (x, 1 − x) from (y, 1 − y) changes by the difference of g at "
                "the two ratios.",
                Derivative(binary, x),
                g_at(y / x) - g_at((1 - y) / (1 - x)),
                hypotheses=(),
            ),
            Step(
                "Where f″ > 0 the function g = f − w f′ falls strictly, so g(y/x) > g((1 − y)/(1 − x)) if x "
                "> y, and less if x < y.",
                kind="cited",
            ),
            Step(
                "For KL it is (x − y)/(x (1 − x)).",
                Derivative(binary_kl, x),
                (x - y) / (x * (1 - x)),
                "scalar",
                (),
            ),
        ),
        mutants=(
            Mutant(
                "The others fall in proportion to their probability.",
                rate,
                p[j] * (KroneckerDelta(j, k) - p[j]),
            ),
            Mutant("The softmax Jacobian, for a step on one logit.", own, p[k] * (1 - p[k])),
            Mutant("S₂ with the other sign.", own, p[k] * (1 - 2 * p[k] - square)),
            Mutant("The rest of the vocabulary forgotten.", Derivative(binary, x), g_at(y / x), ()),
        ),
        aliases=(
            alias(
                "π_{}(t)",
                "the policy after the step t along e_k − π",
                lambda i: specialise(path(i), v, token_step),
            ),
            alias("S", "Σ π²", square),
        ),
        sample=sample_f,
    )


THEOREMS = (
    decomposition,
    size_of_the_global_term,
    agreement,
    two_tokens,
    smallest_and_worst,
    binary_divergences,
    natural_gradient,
    range_of_the_change,
)
