r"""T8, inequalities: how far two policies can be apart in total variation if their KL divergence is small.

Two facts about one variable are cited: a convex function lies above its tangents, and one that falls up to a
point and rises after it is smallest there. The rest are identities of sums.
Facts about total variation itself are in `positive_parts.py`.
"""

from fractions import Fraction
from typing import Any

from sympy import Derivative, Expr, IndexedBase, Subs, Symbol, exp, log, sqrt

from divsim.formulas import bounds

from .facts import TANGENTS
from .forward_kl import forward_kl
from .hypotheses import SIMPLEX, given, nonneg_all
from .intervals import enclose, is_negative, is_positive, iv
from .notation import k, m, p, total
from .positive_parts import (
    APART,
    BELOW,
    INDICATOR,
    PARTS,
    RISEN,
    below,
    down,
    draw_parts,
    total_variation,
    up,
)
from .symbolic import SymbolicArray
from .theorem import Mutant, Step, Theorem, Trace, Verdict, alias
from .trace import UNTIED, trace

smaller, larger = IndexedBase("a", positive=True), IndexedBase("b", positive=True)
c, y = Symbol("c", real=True), Symbol("y", real=True)
q, w, x = (Symbol(name, positive=True) for name in "qwx")
P, M = total(lambda i: below[i] * p[i]), total(lambda i: below[i] * m[i])


def bregman(i: Any) -> Expr:
    """e^d - 1 - d at d = log(pi_i / mu_i)."""
    return p[i] / m[i] - 1 - log(p[i] / m[i])


def within(i: Any, mass_mu: Any, mass_pi: Any) -> Expr:
    """y - 1 - log y at the ratio y of the distributions within a cell of these masses."""
    return p[i] * mass_mu / (m[i] * mass_pi) - 1 - (log(p[i]) - log(m[i]) + log(mass_mu) - log(mass_pi))


def tangent(i: Any) -> Expr:
    """e^y - 1 - y at y = log(pi_i / mu_i) / 2 - c."""
    lead = log(p[i] / m[i]) / 2 - c
    return exp(lead) - 1 - lead


def bound(name: str, form: Any) -> Trace:
    """A shipped bound of TV as a function of KL = x."""
    shipped = getattr(bounds, name)
    return trace(f"bounds.{name}", lambda c: shipped(SymbolicArray(c.number(x))), form, UNTIED[:1])


def kl_cells() -> Theorem:
    """T8b."""
    cells = total(lambda i: m[i] * bregman(i))
    return Theorem(
        id="T8b",
        title="Forward KL is a sum of terms that are not negative",
        statement=r"KL(\mu\|\pi) = \sum_i \mu_i (e^{d_i} - 1 - d_i) \ge 0, \quad d_i = "
        r"\log\frac{\pi_i}{\mu_i}",
        scope="Any vocabulary size, all probabilities positive, both policies normalised. This is the form "
        "that the code sums: its terms do not cancel when the policies nearly agree.",
        tier="G",
        steps=(
            Step(
                "Adding π − μ to the terms changes nothing, because both policies sum to one.",
                forward_kl(),
                cells,
            ),
            Step(
                "The function e^y − 1 − y has an increasing slope: its second derivative is e^y.",
                Derivative(exp(y) - 1 - y, (y, 2)),
                exp(y),
                kind="nonneg",
                hypotheses=(),
            ),
            Step("Its slope is zero at y = 0.", Subs(Derivative(exp(y) - 1 - y, y), y, 0), 0, "scalar", ()),
            Step(
                "So is the function, and its tangent at y = 0 is the line 0.",
                Subs(exp(y) - 1 - y, y, 0),
                0,
                "scalar",
                (),
            ),
            TANGENTS,
            Step(
                "So every term is at least zero, and with it forward KL.",
                forward_kl(),
                cells,
                kind="nonneg",
                hypotheses=(*SIMPLEX, nonneg_all(bregman)),
            ),
        ),
        mutants=(
            Mutant(
                "The correction with the wrong sign.",
                forward_kl(),
                cells - 2 * total(lambda i: m[i] * (p[i] / m[i] - 1) ** 2),
            ),
            Mutant("The terms weighted by π.", forward_kl(), total(lambda i: p[i] * bregman(i))),
        ),
        sample=draw_parts,
    )


def pinsker() -> Theorem:
    """T8c."""
    binary = w * log(w / q) + (1 - w) * log((1 - w) / (1 - q))
    excess = binary - 2 * (w - q) ** 2
    cells = M * (log(M) - log(P)) + (1 - M) * (log(1 - M) - log(1 - P))

    def inside(i: Any) -> Expr:
        return within(i, M, P)

    def outside(i: Any) -> Expr:
        return within(i, 1 - M, 1 - P)

    split = (*SIMPLEX, INDICATOR, nonneg_all(inside), nonneg_all(outside))
    missed = total(lambda i: below[i] * m[i] * inside(i)) + total(
        lambda i: (1 - below[i]) ** 2 * m[i] * outside(i)
    )
    return Theorem(
        id="T8c",
        title="Pinsker's inequality",
        statement=r"2\, TV(\mu, \pi)^2 \le KL(\mu\|\pi)",
        scope="Any V ≥ 2, all probabilities positive; KL in nats; TV is symmetric, so the other KL "
        "obeys it too. It bounds TV by KL and never KL by TV: KL is unbounded at any TV. Code: "
        "bounds.pinsker.",
        tier="G",
        steps=(
            Step(
                "For two outcomes with probabilities w under μ and q under π, the excess kl − 2 (w − q)² "
                "changes with q like (q − w) times something that is not negative.",
                Derivative(excess, q),
                (q - w) * (1 - 2 * q) ** 2 / (q * (1 - q)),
                kind="scalar",
                hypotheses=(),
            ),
            Step("At q = w the excess is zero.", Subs(excess, q, w), 0, kind="scalar", hypotheses=()),
            Step(
                "A function that falls up to a point and rises after it is smallest at that point.",
                kind="cited",
            ),
            Step(
                "Put the tokens with μ > π into one cell and the others into a second: forward KL loses a "
                "sum of terms y − 1 − log y, which are not negative (T8b with y = e^d).",
                forward_kl() - cells,
                missed,
                kind="nonneg",
                hypotheses=split,
            ),
            Step(
                "On these two cells the gap M − P is TV itself, so KL ≥ kl(M, P) ≥ 2 (M − P)² = 2 TV².",
                M - P,
                RISEN,
                hypotheses=(*PARTS, *BELOW),
            ),
        ),
        mutants=(
            Mutant(
                "A constant of 4, twice too good.",
                Derivative(excess - 2 * (w - q) ** 2, q),
                (q - w) * (1 - 2 * q) ** 2 / (q * (1 - q)),
                (),
            ),
            Mutant("The coarse cells lose nothing.", forward_kl(), cells, (*SIMPLEX, INDICATOR)),
            Mutant("The gap taken for half of TV.", M - P, RISEN / 2, (*PARTS, *BELOW)),
        ),
        aliases=(
            alias("KL(μ‖π)", "Σ μ log(μ/π)", forward_kl()),
            alias("kl(M, P)", "the KL of the two cells", cells),
            alias("y_{}", "y − 1 − log y at y = π_i M / (μ_i P), in the first cell", inside),
            alias("x_{}", "the same at y = π_i (1 − M) / (μ_i (1 − P)), in the second cell", outside),
            alias("P", "Σ g π, the first cell's mass under π (g = 1 on it, else 0)", P),
            alias("M", "Σ g μ, its mass under μ", M),
            alias("TV", "Σ d, total variation", RISEN),
        ),
        traces=(bound("pinsker", sqrt(x / 2)),),
        assumptions=APART,
        sample=draw_parts,
    )


def bretagnolle_huber() -> Theorem:
    """T8d."""
    spread = total(lambda i, o: (sqrt(smaller[i] * larger[o]) - sqrt(smaller[o] * larger[i])) ** 2)
    sums = total(lambda i: smaller[i]) * total(lambda i: larger[i])
    lead = sums - total(lambda i: sqrt(smaller[i] * larger[i])) ** 2
    affinity = total(lambda i: sqrt(p[i] * m[i]))
    mean_log = given(total(lambda i: m[i] * log(p[i])), total(lambda i: m[i] * log(m[i])) + 2 * c)
    gap = x / 2 - (1 - exp(-x))
    return Theorem(
        id="T8d",
        title="The Bretagnolle-Huber inequality",
        statement=r"TV(\mu, \pi)^2 \le 1 - e^{-KL(\mu\|\pi)}",
        scope="Any vocabulary size, all probabilities positive; KL in nats. It never exceeds 1, and is "
        "sharper than Pinsker exactly where KL > 1.5936; below that Pinsker is. Code: "
        "bounds.bretagnolle_huber.",
        tier="G",
        steps=(
            Step(
                "The minimum of the two policies sums to 1 − TV.",
                total(lambda i: m[i] - down[i]),
                1 - RISEN,
                hypotheses=PARTS,
            ),
            Step("Their maximum sums to 1 + TV.", total(lambda i: m[i] + up[i]), 1 + RISEN, hypotheses=PARTS),
            Step(
                "At every token the minimum times the maximum is π μ.",
                (m[k] - down[k]) * (m[k] + up[k]),
                p[k] * m[k],
                hypotheses=PARTS,
            ),
            Step(
                "With a the minimum and b the maximum, Lagrange's identity: the product of the two sums "
                "exceeds the square of Σ √(a b) by half a double sum of squares.",
                lead,
                spread / 2,
                kind="nonneg",
                hypotheses=(),
            ),
            Step(
                "The affinity Σ √(π μ) is at least e^c, c = −KL/2: the difference is a sum of terms e^y − 1 "
                "− y (T8b).",
                affinity - exp(c),
                exp(c) * total(lambda i: m[i] * tangent(i)),
                kind="nonneg",
                hypotheses=(*SIMPLEX, mean_log, nonneg_all(tangent)),
            ),
            Step(
                "So 1 − TV² = (1 − TV)(1 + TV) ≥ e^{2c} = e^{−KL}, and the bound is below Pinsker's √(KL/2) "
                "from one crossing on, since the difference of their squares is convex and zero at KL = 0.",
                Derivative(gap, (x, 2)),
                exp(-x),
                kind="nonneg",
                hypotheses=(),
            ),
            Step("The crossing lies between KL = 1.5936 and 1.5937.", kind="exact", decide=_crossing),
        ),
        mutants=(
            Mutant("The minimum sums to 1 − 2 TV.", total(lambda i: m[i] - down[i]), 1 - 2 * RISEN, PARTS),
            Mutant("The half of the double sum lost.", lead, spread, ()),
            Mutant("The affinity equal to e^c.", affinity, exp(c), (*SIMPLEX, mean_log)),
        ),
        aliases=(alias("TV", "Σ d, total variation", RISEN),),
        traces=(bound("bretagnolle_huber", sqrt(1 - exp(-x))),),
        assumptions=APART,
        sample=draw_parts,
    )


def _crossing() -> Verdict:
    def gap(kl: Fraction) -> Any:
        return enclose(kl) / 2 - 1 + iv.exp(-enclose(kl))

    below_it, above_it = gap(Fraction(15936, 10000)), gap(Fraction(15937, 10000))
    return Verdict(
        is_negative(below_it) and is_positive(above_it),
        f"KL/2 − (1 − e^−KL) is {float(below_it.mid):.1e} at 1.5936 and {float(above_it.mid):.1e} at 1.5937",
    )


THEOREMS = (total_variation, kl_cells, pinsker, bretagnolle_huber)
