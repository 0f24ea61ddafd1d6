"""Oracles of every update rule, one token at a time in plain numbers, straight from the papers.

They work in probabilities, not in logs, and import nothing of divsim. A rule answers with a `Verdict`.
Left out: padding, batches, caps of the ratio, and inputs at which plain arithmetic would overflow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from scipy.optimize import brentq, linprog


@dataclass(frozen=True)
class Token:
    """Two whole policies, the sampled token k, its advantage, and the tokens that a view retains."""

    mu: Sequence[float]
    pi: Sequence[float]
    k: int
    advantage: float
    retained: tuple[int, ...]
    cap: float = 1.0  # the K-th largest mu bounds every hidden one

    @property
    def ratio(self) -> float:
        return self.pi[self.k] / self.mu[self.k]

    @property
    def gap(self) -> float:
        return self.pi[self.k] - self.mu[self.k]

    @property
    def hidden(self) -> list[int]:
        return [i for i in range(len(self.mu)) if i not in self.retained]

    def mass(self, policy: Sequence[float]) -> float:
        return math.fsum(policy[i] for i in self.hidden)


@dataclass(frozen=True)
class Verdict:
    """What a rule does with a token; `far`, `distance` and `change` where the rule has them."""

    keep: bool
    weight: float
    surrogate: float
    pull: float = 0.0
    far: bool = False
    distance: float | None = None
    change: float | None = None


def see(mu: Sequence[float], pi: Sequence[float], k: int, advantage: float, top: int) -> Token:
    """The token as a view with a top-`top` of mu sees it; 0 sees only the sampled token."""
    likeliest = sorted(range(len(mu)), key=lambda i: -mu[i])[:top]
    cap = mu[likeliest[-1]] if likeliest else 1.0
    return Token(mu, pi, k, advantage, tuple({*likeliest, k}), cap)


def sign(x: float) -> int:
    return (x > 0) - (x < 0)


def kl(p: Sequence[float], q: Sequence[float]) -> float:
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def tv(p: Sequence[float], q: Sequence[float]) -> float:
    return math.fsum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2


def chi2(p: Sequence[float], q: Sequence[float]) -> float:
    """sum (q - p)^2 / p: Pearson's chi2(q || p), as BandPO has it for p = mu."""
    return math.fsum((a - b) ** 2 / a for a, b in zip(p, q, strict=True))


MEASURES: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {"kl": kl, "tv": tv, "chi2": chi2}


def distance(token: Token, divergence: str, resolution: str) -> float:
    """D of (mu, pi) with each token, the retained tokens, or only k kept apart."""
    apart = {"full": range(len(token.mu)), "top_k": token.retained, "binary": (token.k,)}[resolution]

    def cells(policy: Sequence[float]) -> list[float]:
        rest = math.fsum(policy[i] for i in range(len(policy)) if i not in apart)
        return [policy[i] for i in apart] + ([rest] if len(apart) < len(policy) else [])

    return MEASURES[divergence](cells(token.mu), cells(token.pi))


def tail_weight(token: Token, tail: str) -> float:
    """What the hidden cell is taken to lose: P, P / m, Q2 / P or nothing."""
    mass, size = token.mass(token.pi), len(token.hidden)
    if size == 0 or tail in ("full", "zero"):
        return 0.0
    squares = math.fsum(token.pi[i] ** 2 for i in token.hidden)
    return {"aggregated": mass, "uniform": mass / size, "proportional": squares / mass}[tail]


def change(token: Token, divergence: str, tail: str) -> float:
    """How D moves along v = e_k - nu: the sums of the predictive paper, section 3 and its appendix."""
    nu = tail_weight(token, tail)
    p_hidden, m_hidden = token.mass(token.pi), token.mass(token.mu)
    if divergence == "kl":
        kept = math.fsum(token.pi[i] * (token.mu[i] - token.pi[i]) for i in token.retained)
        return token.gap + kept + nu * (m_hidden - p_hidden)
    steps = [(i == token.k) - token.pi[i] for i in token.retained]
    pulls = [token.pi[i] for i in token.retained]
    sides = [sign(token.mu[i] - token.pi[i]) for i in token.retained]
    if token.hidden:
        steps, pulls = [*steps, -nu], [*pulls, p_hidden]
        sides = [*sides, sign(m_hidden - p_hidden)]
    mean_step = math.fsum(p * v for p, v in zip(pulls, steps, strict=True))
    return -math.fsum(s * p * (v - mean_step) for s, p, v in zip(sides, pulls, steps, strict=True)) / 2


def change_range(token: Token) -> tuple[float, float]:
    """The least and the largest c_k over every hidden mu that fits: two linear programmes."""
    known = token.gap + math.fsum(token.pi[i] * token.mu[i] for i in token.retained)
    known -= math.fsum(p * p for p in token.pi)
    if not token.hidden:
        return known, known
    prices = [token.pi[i] for i in token.hidden]
    ends = []
    for side in (1, -1):
        found = linprog(
            [side * p for p in prices],
            A_eq=[[1.0] * len(prices)],
            b_eq=[token.mass(token.mu)],
            bounds=(0.0, token.cap),
        )
        ends.append(known + side * found.fun)
    return ends[0], ends[1]


def masked(token: Token, far: bool, outward: bool, d: float, c: float | None = None) -> Verdict:
    """Importance sampling, and nothing where far and outward."""
    keep = not (far and outward)
    return Verdict(keep, token.ratio * keep, token.ratio * token.advantage * keep, 0.0, far, d, c)


def reinforce(token: Token) -> Verdict:
    return Verdict(True, 1.0, token.advantage * math.log(token.pi[token.k]))


def importance_sampling(token: Token) -> Verdict:
    return Verdict(True, token.ratio, token.ratio * token.advantage)


def clipped(token: Token, low: float, high: float, upper: float, far: bool, d: float) -> Verdict:
    """The best ratio that the token is paid for: [0, high] if raised, [low, upper] if lowered."""
    r, a = token.ratio, token.advantage
    paid = min(r, high) if a > 0 else min(max(r, low), upper)
    keep = a == 0 or paid == r
    return Verdict(keep, r * keep, paid * a, 0.0, far, d)


def ppo(token: Token, eps_low: float = 0.2, eps_high: float = 0.2, upper: float = math.inf) -> Verdict:
    low, high = 1 - eps_low, 1 + eps_high
    far = not low <= token.ratio <= high
    return clipped(token, low, high, upper, far, abs(token.ratio - 1))


def two_sided(token: Token, delta: float = 0.1, tau: float = 1e-3) -> Verdict:
    far, log_r = abs(token.gap) > delta, math.log(token.ratio)
    keep = not far or token.advantage == 0
    surrogate = token.ratio * token.advantage * keep - tau * log_r**2
    return Verdict(keep, token.ratio * keep, surrogate, -2 * tau * log_r, far, abs(token.gap))


def dppo(token: Token, divergence: str, resolution: str, delta: float) -> Verdict:
    d = distance(token, divergence, resolution)
    return masked(token, d > delta, token.advantage * (token.ratio - 1) > 0, d)


def predictive(token: Token, divergence: str, tail: str, delta: float = 0.15) -> Verdict:
    d, c = distance(token, divergence, "top_k"), change(token, divergence, tail)
    return masked(token, d > delta, token.advantage * c > 0, d, c)


def certified(token: Token, delta: float = 0.15, otherwise: str = "keep") -> Verdict:
    d, (low, high) = distance(token, "kl", "top_k"), change_range(token)
    if low > 0 or high < 0:
        outward = token.advantage * low > 0
    else:
        c = {"keep": 0.0, "ratio": token.ratio - 1, "uniform": change(token, "kl", "uniform")}[otherwise]
        outward = token.advantage * c > 0
    return masked(token, d > delta, outward, d, (low + high) / 2)


def band_edges(mu_k: float, divergence: str, delta: float) -> tuple[float, float]:
    """TV and chi2 in closed form, KL by root finding; cut to the reachable [0, 1 / mu_k]."""
    reach = 1 / mu_k
    if divergence == "kl":

        def excess(r: float) -> float:
            return kl((mu_k, 1 - mu_k), (r * mu_k, 1 - r * mu_k)) - delta

        nothing, everything = 1e-300, reach * (1 - 1e-12)  # KL is infinite where either outcome is
        low = brentq(excess, nothing, 1, xtol=1e-15) if excess(nothing) > 0 else 0.0
        return low, brentq(excess, 1, everything, xtol=1e-15) if excess(everything) > 0 else reach
    width = delta / mu_k if divergence == "tv" else math.sqrt(delta * (1 - mu_k) / mu_k)
    return max(1 - width, 0.0), min(1 + width, reach)


def banded(token: Token, divergence: str, delta: float = 0.05) -> Verdict:
    low, high = band_edges(token.mu[token.k], divergence, delta)
    far = not low <= token.ratio <= high
    return clipped(token, low, high, math.inf, far, distance(token, divergence, "binary"))


def penalised(token: Token, radius: float, active: bool = True) -> tuple[float, float]:
    """Weight and surrogate of r A - |A| (r - 1)^2 / (2 radius), the penalty only where active."""
    r, a = token.ratio, token.advantage
    weight = r * (1 - active * sign(a) * (r - 1) / radius)
    return weight, r * a - active * abs(a) * (r - 1) ** 2 / (2 * radius)


def spo(token: Token, eps: float = 0.2) -> Verdict:
    return Verdict(True, *penalised(token, eps))


def drpo(token: Token, delta: float = 0.15) -> Verdict:
    return Verdict(True, *penalised(token, delta / token.mu[token.k]))


def drpo_unweighted(token: Token, delta: float = 0.15) -> Verdict:
    r, penalty = token.ratio, token.gap**2 / (2 * delta * token.mu[token.k])
    return Verdict(True, r, r * token.advantage - penalty, -r * token.gap / delta)


def mask_drpo(token: Token, delta: float = 0.15, radius: float = 0.15) -> Verdict:
    far = abs(token.gap) > radius
    weight, surrogate = penalised(token, delta / token.mu[token.k], far)
    return Verdict(True, weight, surrogate, 0.0, far, abs(token.gap))


def cispo(token: Token, eps_low: float = 1.0, eps_high: float = 4.0) -> Verdict:
    weight = max(min(token.ratio, 1 + eps_high), 1 - eps_low)
    return Verdict(True, weight, weight * token.advantage * math.log(token.pi[token.k]))


TAIL_NAMES = ("full", "aggregated", "uniform", "proportional", "zero")

ORACLES: dict[str, Callable[..., Verdict]] = {
    "reinforce": reinforce,
    "importance_sampling": importance_sampling,
    "ppo_clip": ppo,
    "clip_higher": partial(ppo, eps_high=0.28),
    "dual_clip": partial(ppo, upper=3.0),
    "two_sided": two_sided,
    **{
        f"dppo_{resolution}_{name}": partial(dppo, divergence=name, resolution=resolution, delta=delta)
        for resolution in ("binary", "top_k", "full")
        for name, delta in (("kl", 0.05), ("tv", 0.15))
    },
    **{
        f"predictive_{tail}_{name}": partial(predictive, divergence=name, tail=tail)
        for tail in TAIL_NAMES
        for name in ("kl", "tv")
    },
    "certified": certified,
    "spo": spo,
    "drpo": drpo,
    "drpo_unweighted": drpo_unweighted,
    "mask_drpo": mask_drpo,
    **{f"band_{name}": partial(banded, divergence=name) for name in MEASURES},
    "cispo": cispo,
}
"""One oracle for every name of a rule, with the defaults of the papers and of the design."""
