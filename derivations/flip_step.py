r"""T3g: the step at which a predicted decrease of D turns into an increase, in closed form.

The curvature term of D lies between two exponentials (T3f); two elementary inequalities for e^y then bracket
the step s* where D is back at its old value.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from sympy import Abs, Derivative, Expr, Limit, Max, Subs, Symbol, exp, oo

from divsim.formulas.change import flip_step_bracket as shipped_bracket

from . import intervals
from .curvature_bounds import GROWING, SHRINKING, V0, R, x
from .forward_kl import change, token_step
from .hypotheses import nonneg
from .notation import k, mean, p
from .theorem import Mutant, Step, Theorem, Verdict, alias
from .trace import UNTIED, Case, trace

c = Symbol("c", positive=True)  # |c_k|
X = Symbol("X", positive=True)  # a step beyond the upper end
y = Symbol("y", positive=True)

LOW = 6 * c / (3 * V0 + 2 * R * c)
HIGH = 2 * c / (V0 - R * c)
G = y**2 / 2 - (1 - y / 3) * (exp(y) - 1 - y)
H = (1 + y / 2) * (exp(-y) - 1 + y) - y**2 / 2
BELOW_LOW = (nonneg(G.subs(y, R * x)), nonneg(LOW - x))
ABOVE_HIGH = (nonneg(H.subs(y, R * X)), nonneg(X - HIGH), nonneg(V0 - R * c))
ALIASES = (
    alias("g(y)", "y²/2 − (1 − y/3)(e^y − 1 − y)", G),
    alias("h(y)", "(1 + y/2)(e^{−y} − 1 + y) − y²/2", H),
    alias("g(Rx)", "the same at y = R x, x = |s|", G.subs(y, R * x)),
    alias("h(RX)", "the same at y = R X", H.subs(y, R * X)),
    alias("low", "6 |c| / (3 V₀ + 2 R |c|)", LOW),
    alias("high", "2 |c| / (V₀ − R |c|)", HIGH),
)


def _sample(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """A decrease small enough for a finite bracket, and one step on either side of it."""
    rate, spread = rng.uniform(0.01, 0.05), rng.uniform(0.5, 1)
    variance = spread**2 / 4
    low = 6 * rate / (3 * variance + 2 * spread * rate)
    high = 2 * rate / (variance - spread * rate)
    return {"c": rate, "R": spread, "V0": variance, "x": rng.uniform(0.1, 0.9) * low, "X": 1.5 * high}


def _starts_flat(gap: Expr, orders: int) -> tuple[Step, ...]:
    names = ("It", "Its first derivative", "Its second derivative")
    return tuple(
        Step(
            f"{names[order]} is 0 at y = 0.",
            Subs(Derivative(gap, (y, order)) if order else gap, y, 0),
            0,
            "scalar",
            (),
        )
        for order in range(orders)
    )


def _lower_end() -> tuple[Step, ...]:
    return (
        Step(
            "The third derivative of g is not negative.", Derivative(G, (y, 3)), y * exp(y) / 3, "nonneg", ()
        ),
        *_starts_flat(G, 3),
        Step(
            "A function is ≥ 0 for y ≥ 0 if some derivative is, and it and all its lower derivatives are 0 "
            "at y = 0.",
            kind="cited",
        ),
        Step("At the lower end R |s| is below 3.", 3 - R * LOW, 9 * V0 / (3 * V0 + 2 * R * c), "nonneg", ()),
        Step(
            "Below the lower end the first-order fall exceeds the largest possible curvature term.",
            (1 - R * x / 3) * (c * x - GROWING),
            x * (V0 / 2 + R * c / 3) * (LOW - x) + V0 / R**2 * G.subs(y, R * x),
            "nonneg",
            BELOW_LOW,
        ),
    )


def _upper_end() -> tuple[Step, ...]:
    return (
        Step(
            "The second derivative of h is not negative.",
            Derivative(H, (y, 2)),
            y * exp(-y) / 2,
            "nonneg",
            (),
        ),
        *_starts_flat(H, 2),
        Step(
            "Beyond the upper end, if V₀ > R |c|, the smallest possible curvature term exceeds the fall.",
            (1 + R * X / 2) * (SHRINKING.subs(x, X) - c * X),
            X * (V0 - R * c) * (X - HIGH) / 2 + V0 / R**2 * H.subs(y, R * X),
            "nonneg",
            ABOVE_HIGH,
        ),
    )


def _example() -> Verdict:
    mu, pi, token = intervals.policy((40, 30, 30)), intervals.policy((45, 50, 5)), 0
    direction = [int(i == token) - q for i, q in enumerate(pi)]
    slope = sum(((q - w) * u for q, w, u in zip(pi, mu, direction, strict=True)), Fraction(0))
    drift = sum((q * u for q, u in zip(pi, direction, strict=True)), Fraction(0))
    variance = sum((q * (u - drift) * (u - drift) for q, u in zip(pi, direction, strict=True)), Fraction(0))
    fall, spread = abs(slope), max(direction) - min(direction)
    low = Fraction(6 * fall, 3 * variance + 2 * spread * fall)
    high = Fraction(2 * fall, variance - spread * fall)
    before = intervals.kl(mu, pi)
    at_low, at_high = (intervals.kl(mu, intervals.moved(pi, token, end)) - before for end in (low, high))
    shown = intervals.shown
    return Verdict(
        slope < 0 < high and intervals.is_negative(at_low) and intervals.is_positive(at_high),
        f"μ = (40, 30, 30)/100, π = (45, 50, 5)/100, first token: c = {shown(slope)}; D changes by "
        f"{shown(at_low)} at the lower end s = {shown(low)} and by {shown(at_high)} at the upper end s = "
        f"{shown(high)}",
    )


def _ends(case: Case) -> tuple[Any, Any]:
    """Both ends for a case of explicit policies, in the theorem's letters."""
    others = (mass for i, mass in enumerate(case.pi) if i != case.action)
    variance = mean(p, lambda i: token_step(i) ** 2) - mean(p, token_step) ** 2
    letters = {c: Abs(change()), V0: variance, R: 1 - p[k] + Max(*others)}
    slack = case.number(case.explicit((V0 - R * c).xreplace(letters)))
    high = case.explicit(HIGH.xreplace(letters)) if slack.value > 0 else oo
    return case.explicit(LOW.xreplace(letters)), high


def flip_step() -> Theorem:
    """T3g."""
    simple = 8 * c / R**2
    first_order = (1 - R * x / 3) * (c * x - GROWING)
    return Theorem(
        id="T3g",
        title="The step at which a predicted decrease ends",
        statement=r"s\, c_k < 0: \quad D(s) < D(0) \iff 0 < |s| < s^*, \qquad "
        r"\frac{6 |c_k|}{3 V_0 + 2 R |c_k|} \le s^* \le \frac{2 |c_k|}{V_0 - R |c_k|}",
        scope="Full forward KL, one logit line, any vocabulary size, all probabilities positive; the upper "
        "end is infinite if V₀ ≤ R |c_k|. One token at a time: many tokens can overshoot jointly (T10).",
        tier="F",
        steps=(
            *_lower_end(),
            *_upper_end(),
            Step(
                "A convex function that falls at first and rises in the end regains its first value exactly "
                "once; along a logit line D rises in the end, because D′(s) tends to max v − E_μ[v] > 0.",
                kind="cited",
            ),
            Step("For small |c| the lower end is 2 |c| / V₀.", Limit(LOW / c, c, 0), 2 / V0, "scalar", ()),
            Step("And so is the upper end.", Limit(HIGH / c, c, 0), 2 / V0, "scalar", ()),
            Step(
                "Hoeffding's bound (T3e) gives a simpler lower end, 8 |c| / R²: much too small where the "
                "variance is far below R²/4, and the better of the two where it is close to R²/4.",
                c * x - x**2 * R**2 / 8,
                x * R**2 / 8 * (simple - x),
                "nonneg",
                (nonneg(simple - x),),
            ),
            Step(
                "An example with both ends certified by interval arithmetic.", kind="exact", decide=_example
            ),
        ),
        mutants=(
            Mutant(
                "The lower end without its correction, 2|c|/V₀.",
                first_order,
                x * V0 / 2 * (2 * c / V0 - x),
                (),
            ),
            Mutant(
                "The correction halved.", 3 - R * 6 * c / (3 * V0 + R * c), 9 * V0 / (3 * V0 + 2 * R * c), ()
            ),
            Mutant("The upper end with a plus sign.", HIGH, 2 * c / (V0 + R * c), ()),
        ),
        traces=(
            trace(
                "change.flip_step_bracket",
                lambda case: shipped_bracket(case.log_mu, case.log_pi, case.k),
                _ends,
                cases=(UNTIED[0], UNTIED[8]),  # the upper end is finite, infinite
            ),
        ),
        sample=_sample,
        aliases=ALIASES,
    )
