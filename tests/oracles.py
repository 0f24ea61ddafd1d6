"""Independent oracles: the textbook definitions, in plain loops at 60 digits. Nothing here imports divsim.

Probabilities come in as sequences of mpf, exact numbers or floats. Derivatives are central differences of
these definitions with a step of 1e-20: truncation and rounding are then far below what float64 can show.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

from mpmath import MPContext
from numpy.typing import NDArray

mp = MPContext()  # its own precision: nobody else's is touched
mp.dps = 60
mpf = mp.mpf
STEP = mpf(10) ** -20

Row = Sequence[Any] | NDArray[Any]
Measure = Callable[[Row, Row], Any]


def normalised(log_probs: Row) -> list[Any]:
    """Probabilities that sum to 1 at 60 digits, of float log-probabilities that do so at 16."""
    weights = [mp.exp(mpf(float(x))) for x in log_probs]
    return [w / mp.fsum(weights) for w in weights]


def forward_kl(mu: Row, pi: Row) -> Any:
    return mp.fsum(mp.inf if p == 0 else m * mp.log(m / p) for m, p in zip(mu, pi, strict=True) if m > 0)


def reverse_kl(mu: Row, pi: Row) -> Any:
    return forward_kl(pi, mu)


def tv(mu: Row, pi: Row) -> Any:
    return mp.fsum(abs(m - p) for m, p in zip(mu, pi, strict=True)) / 2


def js(mu: Row, pi: Row) -> Any:
    mean = [(m + p) / 2 for m, p in zip(mu, pi, strict=True)]
    return (forward_kl(mu, mean) + forward_kl(pi, mean)) / 2


def chi2_mu_pi(mu: Row, pi: Row) -> Any:
    seen = [(m, p) for m, p in zip(mu, pi, strict=True) if m != p]
    return mp.fsum(mp.inf if p == 0 else (m - p) ** 2 / p for m, p in seen)


def chi2_pi_mu(mu: Row, pi: Row) -> Any:
    return chi2_mu_pi(pi, mu)


def hellinger2(mu: Row, pi: Row) -> Any:
    return 1 - mp.fsum(mp.sqrt(m * p) for m, p in zip(mu, pi, strict=True))


def power_sum(order: float, mu: Row, pi: Row) -> Any:
    """sum_i mu_i^a pi_i^(1-a), each term's limit where a probability is 0."""

    def term(m: Any, p: Any) -> Any:
        if m == 0 and p == 0:
            return mpf(0)
        if m == 0:
            return mp.inf if order < 0 else mpf(0)
        if p == 0:
            return mp.inf if order > 1 else mpf(0)
        return m ** mpf(order) * p ** (1 - mpf(order))

    return mp.fsum(term(m, p) for m, p in zip(mu, pi, strict=True))


def alpha(order: float) -> Measure:
    scale = mpf(order) * (mpf(order) - 1)
    return lambda mu, pi: (power_sum(order, mu, pi) - 1) / scale


def renyi(order: float) -> Measure:
    def measure(mu: Row, pi: Row) -> Any:
        total = power_sum(order, mu, pi)
        return mp.inf if total == 0 else mp.log(total) / (mpf(order) - 1)

    return measure


MEASURES: dict[str, Measure] = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "tv": tv,
    "js": js,
    "chi2_mu_pi": chi2_mu_pi,
    "chi2_pi_mu": chi2_pi_mu,
    "hellinger2": hellinger2,
}


def moved(pi: Row, direction: Row, t: Any) -> list[Any]:
    """The policy after its logits moved by t * direction."""
    weights = [p * mp.exp(t * v) for p, v in zip(pi, direction, strict=True)]
    return [w / mp.fsum(weights) for w in weights]


def slope(value: Callable[[Any], Any]) -> Any:
    """The derivative of value(t) at t = 0."""
    return (value(STEP) - value(-STEP)) / (2 * STEP)


def logit_gradient(measure: Measure, mu: Row, pi: Row) -> list[Any]:
    """d measure / d z_i for pi = softmax(z), token by token."""

    def along(i: int) -> Any:
        unit = [mpf(i == j) for j in range(len(pi))]
        return slope(lambda t: measure(mu, moved(pi, unit, t)))

    return [along(i) for i in range(len(pi))]


def own_step(pi: Row, k: int) -> list[Any]:
    """e_k - pi."""
    return [mpf(i == k) - p for i, p in enumerate(pi)]


def change(measure: Measure, mu: Row, pi: Row, k: int) -> Any:
    """The derivative of the measure along token k's own logit step."""
    return slope(lambda t: measure(mu, moved(pi, own_step(pi, k), t)))


def coarse(row: Row, kept: Sequence[int]) -> list[Any]:
    """The kept entries, then the sum of all others."""
    return [row[i] for i in kept] + [mp.fsum(row[i] for i in range(len(row)) if i not in kept)]


def proportional_change(measure: Measure, mu: Row, pi: Row, k: int, kept: Sequence[int]) -> Any:
    """The derivative of the coarse measure along token k's own step in every logit."""
    step = own_step(pi, k)
    return slope(lambda t: measure(coarse(mu, kept), coarse(moved(pi, step, t), kept)))


def aggregated_change(measure: Measure, mu: Row, pi: Row, k: int, kept: Sequence[int]) -> Any:
    """The change in a world whose tail really is one token."""
    return change(measure, coarse(mu, kept), coarse(pi, kept), list(kept).index(k))


def uniform_change(measure: Measure, mu: Row, pi: Row, k: int, kept: Sequence[int]) -> Any:
    """The derivative of the coarse measure if the tail of pi were flat."""
    hidden = len(pi) - len(kept)
    flat = coarse(pi, kept)[-1] / max(hidden, 1)
    level = [p if i in kept else flat for i, p in enumerate(pi)]
    return proportional_change(measure, mu, level, k, kept)


def zero_change(measure: Measure, mu: Row, pi: Row, k: int, kept: Sequence[int]) -> Any:
    """The derivative of the coarse measure if no hidden logit moved."""
    step = [mpf(i == k) - p if i in kept else mpf(0) for i, p in enumerate(pi)]
    return slope(lambda t: measure(coarse(mu, kept), coarse(moved(pi, step, t), kept)))


TAIL_CHANGES = {
    "aggregated": aggregated_change,
    "uniform": uniform_change,
    "proportional": proportional_change,
    "zero": zero_change,
}


def forward_kl_change(mu: Row, pi: Row, k: int) -> Any:
    """(pi_k - mu_k) + sum_i pi_i (mu_i - pi_i), term by term, in whatever numbers come in."""
    return pi[k] - mu[k] + sum(p * (m - p) for m, p in zip(mu, pi, strict=True))


def hidden_vertices(size: int, mass: Fraction, cap: Fraction) -> list[tuple[Fraction, ...]]:
    """Every vertex of {0 <= mu_i <= cap, sum mu = mass}: as many full entries as fit, one with the rest."""
    full = int(mass / cap) if cap else 0
    fill = [cap] * min(full, size) + ([mass - full * cap] if full < size else [])
    fill += [Fraction(0)] * (size - len(fill))
    return sorted(set(permutations(fill)))


def overlap_extremes(pi_tail: Sequence[Fraction], mass: Fraction, cap: Fraction) -> tuple[Fraction, Fraction]:
    """Least and greatest sum_i pi_i mu_i: a linear function is extreme at a vertex."""
    vertices = hidden_vertices(len(pi_tail), mass, cap)
    values = [sum((p * m for p, m in zip(pi_tail, v, strict=True)), Fraction(0)) for v in vertices]
    return min(values), max(values)
