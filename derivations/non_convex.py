r"""T4o, the limit of one-sided certainty: divergences whose predicted increase can be a fall.

A counterexample is a pair of rational policies over three tokens, one token, and one step.
`first_failure` looks for the one with the smallest common denominator: floats propose, outward-rounded
intervals decide. The same f and g serve both, so that what is searched is what T4d to T4j proved.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sympy import Abs, lambdify, log

from divsim.formulas import DIVERGENCES

from .divergence_table import ROWS, curvature, here, moved, reverse_kl, w
from .intervals import enclose, is_negative, is_positive, iv, policy, shown
from .notation import m, mean, p, v
from .theorem import Mutant, Step, Theorem, Verdict, alias

GENERATORS = {row.name: (row.f, row.g) for row in ROWS}
GENERATORS["tv"] = (Abs(w - 1) / 2, (1 - w) / Abs(1 - w) / 2)  # T4j, with sign(x) written as x / |x|
CERTAIN = ("forward_kl", "chi2_mu_pi")  # T3c and T4n
UNCERTAIN = {
    "reverse_kl": 11,
    "tv": 8,
    "js": 13,
    "chi2_pi_mu": 8,
    "hellinger2": 16,
}  # denominators that suffice
STEPS = (-6, -3, -1, 1, 3, 6)
CLEAR = 1e-3  # a failure worth showing: both numbers are at least this large


@dataclass(frozen=True)
class Arithmetic:
    """A divergence over one kind of number, floats or intervals."""

    f: Callable[[Any], Any]
    g: Callable[[Any], Any]
    exp: Callable[[Any], Any]

    def predicted(self, mu: Sequence[Any], pi: Sequence[Any], k: int) -> Any:
        """c_k, by T4b."""
        pushes = [self.g(a / b) for a, b in zip(mu, pi, strict=True)]
        average = sum(b * push for b, push in zip(pi, pushes, strict=True))
        q = [b * (push - average) for b, push in zip(pi, pushes, strict=True)]
        return q[k] - sum(b * each for b, each in zip(pi, q, strict=True))

    def realised(self, mu: Sequence[Any], pi: Sequence[Any], k: int, s: int) -> Any:
        """The change of D under the logit step s (e_k - pi)."""
        weights = [b * self.exp(s * (int(i == k) - b)) for i, b in enumerate(pi)]
        mass = sum(weights)
        return self._divergence(mu, [weight / mass for weight in weights]) - self._divergence(mu, pi)

    def _divergence(self, mu: Sequence[Any], pi: Sequence[Any]) -> Any:
        return sum(b * self.f(a / b) for a, b in zip(mu, pi, strict=True))


def _arithmetic(name: str, functions: dict[str, Any]) -> Arithmetic:
    f, g = (lambdify(w, body, modules=[{"Abs": abs, **functions}]) for body in GENERATORS[name])
    return Arithmetic(f, g, functions["exp"])


FLOATS = {"exp": math.exp, "log": math.log, "sqrt": math.sqrt}
INTERVALS = {"exp": iv.exp, "log": iv.log, "sqrt": iv.sqrt}


def triples(size: int) -> Iterator[tuple[int, int, int]]:
    """Three positive whole numbers with the sum `size`, in every way."""
    for first in range(1, size - 1):
        for second in range(1, size - first):
            yield first, second, size - first - second


def _proposals(name: str, size: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Weights of mu and pi and a step on the last token that fail in floats; no ties, up to symmetry."""
    quick = _arithmetic(name, FLOATS)
    for a in triples(size):
        for b in triples(size):
            if b[0] <= b[1] and all(x != y for x, y in zip(a, b, strict=True)):
                mu, pi = [x / size for x in a], [x / size for x in b]
                change = quick.predicted(mu, pi, 2)
                for s in STEPS:
                    if s * change > CLEAR and quick.realised(mu, pi, 2, s) < -CLEAR:
                        yield a, b, s


def first_failure(name: str, sizes: Sequence[int]) -> str | None:
    """A step that is proven to lower D although its slope is proven to raise it; None if no size has one."""
    sure = _arithmetic(name, INTERVALS)
    for size in sizes:
        for a, b, s in _proposals(name, size):
            mu, pi = ([enclose(x) for x in policy(weights)] for weights in (a, b))
            slope, fall = s * sure.predicted(mu, pi, 2), sure.realised(mu, pi, 2, s)
            if is_positive(slope) and is_negative(fall):
                case = f"μ = {a}/{size}, π = {b}/{size}, step {s} on the last token"
                return f"{case}: predicted {shown(slope)}, realised {shown(fall)}"
    return None


def _fails(name: str) -> Verdict:
    found = first_failure(name, range(3, UNCERTAIN[name] + 1))
    return Verdict(found is not None, found or "nothing found")


def _never_fails(name: str) -> Verdict:
    found = first_failure(name, range(3, 10))
    return Verdict(found is None, found or "no failure up to the common denominator 9")


def _flags_agree() -> Verdict:
    flags = {name: each.convex_in_logits for name, each in DIVERGENCES.items()}
    return Verdict(flags == {name: name in CERTAIN for name in GENERATORS}, str(flags))


def _over_thousandths() -> Verdict:
    """Two worked examples, step -6 on the last token: slope and realised change, to three decimals."""
    cases = {
        "reverse_kl": ((357, 12, 631), (594, 295, 111), 0.270, -0.035),
        "tv": ((781, 105, 114), (482, 443, 75), 0.037, -0.022),
    }
    holds, lines = True, []
    for name, (a, b, slope, realised) in cases.items():
        sure = _arithmetic(name, INTERVALS)
        mu, pi = ([enclose(x) for x in policy(weights)] for weights in (a, b))
        found = -sure.predicted(mu, pi, 2), sure.realised(mu, pi, 2, -6)
        holds &= all(abs(x - value) < 0.0005 for x, value in zip(found, (slope, realised), strict=True))
        lines.append(
            f"{name}: μ = {a}/1000, π = {b}/1000, slope {shown(found[0])}, realised {shown(found[1])}"
        )
    return Verdict(holds, "; ".join(lines))


TITLES = {
    "reverse_kl": "Reverse KL",
    "tv": "TV",
    "js": "Jensen–Shannon",
    "chi2_pi_mu": "χ²(π‖μ)",
    "hellinger2": "Squared Hellinger distance",
}


def no_certainty() -> Theorem:
    """T4o."""

    def squared_lead(i: Any) -> Any:
        return (v[i] - mean(p, lambda h: v[h])) ** 2

    bend = curvature(reverse_kl)

    def excess(i: Any) -> Any:
        return log(p[i] / m[i]) - reverse_kl(here)

    found = {name: partial(_fails, name) for name in UNCERTAIN}
    return Theorem(
        id="T4o",
        title="Where a predicted increase can be a fall",
        statement=r"\exists\, \mu, \pi, k, s: \quad s\, c_k > 0 \ \text{ and }\ D(s) < D(0)",
        scope="Existence, over three tokens; each example is certified with outward-rounded intervals, "
        "away from ties. Says nothing about how often this happens, nor about alpha orders below 1 other "
        "than 1/2, 0 and −1. The certainty of T3c and T4n must never be printed next to these five.",
        tier="Q",
        steps=(
            Step(
                "Reverse KL bends by E_π[(1 + log r − KL)(v − E v)²], which is negative where r is far "
                "below its level.",
                bend,
                mean(p, lambda i: (1 + excess(i)) * squared_lead(i)),
            ),
            *(
                Step(f"{TITLES[name]}: the slope promises a rise, and D falls.", kind="exact", decide=decide)
                for name, decide in found.items()
            ),
            Step(
                "Reverse KL and TV, once more with policies in thousandths.",
                kind="exact",
                decide=_over_thousandths,
            ),
            *(
                Step(
                    f"Control: the same search finds no failure of {name}.",
                    kind="exact",
                    decide=partial(_never_fails, name),
                )
                for name in CERTAIN
            ),
            Step(
                "The shipped records carry the flag convex_in_logits accordingly.",
                kind="exact",
                decide=_flags_agree,
            ),
        ),
        mutants=(
            Mutant("Reverse KL bends by the variance, as forward KL does.", bend, mean(p, squared_lead)),
            Mutant("The 1 lost.", bend, mean(p, lambda i: excess(i) * squared_lead(i))),
            Mutant("Not centred.", bend, mean(p, lambda i: (1 + log(p[i] / m[i])) * squared_lead(i))),
        ),
        aliases=(
            alias("D(t)", "KL(π(t)‖μ) after the step t along v", moved(reverse_kl)),
            alias("KL", "KL(π‖μ)", reverse_kl(here)),
        ),
    )


THEOREMS = (no_certainty,)
