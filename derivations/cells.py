r"""The cells of a top-K view (chapter T7): their masses, their divergences, the one form of every estimate.

The coarse divergence keeps every retained token as a cell of its own and puts the hidden ones into one
tail cell.

Letters: h_i = 1 if token i is hidden, else 0; P and M the tail masses of pi and mu; Q2 the sum of pi^2 over
the tail; N the number of hidden tokens; S2 the sum of pi^2 over all tokens.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sympy import Expr, IndexedBase, Symbol, log

from divsim.formulas.change import change as shipped_change
from divsim.formulas.divergences import Divergence

from .hypotheses import SIMPLEX, given, given_all
from .notation import h, k, m, p, smooth, total
from .theorem import Alias, Mutant, Step, Trace, alias
from .trace import FOUR, Case, trace

nu = Symbol("nu", real=True)
phi, phi_tail = IndexedBase("phi", real=True), Symbol("φ_tail", real=True)
w = Symbol("w", positive=True)
order = Symbol("a", positive=True)
f = smooth("f")
fp = smooth("fp", 2)
TAIL = (*SIMPLEX, given_all(lambda i: (h[i] ** 2, h[i])), given(h[k], 0))
step, mutant = partial(Step, hypotheses=TAIL), partial(Mutant, hypotheses=TAIL)


def hidden(body: Callable[[Any], Any]) -> Expr:
    """Sum of `body(i)` over the tail."""
    return total(lambda i: h[i] * body(i))


def kept(body: Callable[[Any], Any]) -> Expr:
    """Sum of `body(i)` over the retained tokens."""
    return total(lambda i: (1 - h[i]) * body(i))


P, M = hidden(lambda i: p[i]), hidden(lambda i: m[i])
Q2, N, S2 = hidden(lambda i: p[i] ** 2), total(lambda i: h[i]), total(lambda i: p[i] ** 2)


SPLIT = (
    "h_i is 1 at hidden tokens and 0 at retained ones, such as k; Σ_tail and Σ_kept run over the two kinds",
)
MASSES = (
    alias("P", "Σ_tail π, the tail's mass under π", P),
    alias("M", "Σ_tail μ, its mass under μ", M),
    alias("Q₂", "Σ_tail π²", Q2),
    alias("N", "the number of hidden tokens", N),
    alias("S₂", "Σ π² over all tokens", S2),
)


def estimate(q: Callable[[Any], Any], q_tail: Any, weight: Any) -> Expr:
    """The one form: q_k - sum_C q_C nu_C with nu_C = pi_C on retained tokens and `weight` on the tail."""
    return q(k) - kept(lambda i: q(i) * p[i]) - q_tail * weight


def estimate_kl(weight: Any) -> Expr:
    """The one form for forward KL, whose logit gradient is pi - mu on every cell."""
    return estimate(lambda i: p[i] - m[i], P - M, weight)


def estimate_of(push: Callable[[Any], Any], push_tail: Any, weight: Any) -> Expr:
    """The one form for any D whose derivative in the probability of a cell is `push`."""
    average = kept(lambda i: p[i] * push(i)) + P * push_tail
    return estimate(lambda i: p[i] * (push(i) - average), P * (push_tail - average), weight)


def short_form(push: Callable[[Any], Any], push_tail: Any, letter: str) -> tuple[Alias, ...]:
    """Names for the parts of `estimate_of`, whose `push` is called `letter`."""
    average = kept(lambda i: p[i] * push(i)) + P * push_tail
    return (
        alias(
            "q_{}", f"π_i ({letter}_i − E {letter}), the logit gradient", lambda i: p[i] * (push(i) - average)
        ),
        alias("q_tail", f"P ({letter}_tail − E {letter})", P * (push_tail - average)),
        alias(f"E {letter}", f"the average of {letter} over the cells under π", average),
    )


def coarse_f(policy: Callable[[Any], Any]) -> Expr:
    """The coarse f-divergence sum_C pi_C f(mu_C / pi_C), the definition."""
    mass = hidden(policy)
    return kept(lambda i: policy(i) * f(m[i] / policy(i))) + mass * f(M / mass)


def coarse_kl(policy: Callable[[Any], Any]) -> Expr:
    """The coarse forward KL sum_C mu_C log(mu_C / pi_C), the definition."""
    return kept(lambda i: m[i] * log(m[i] / policy(i))) + M * (log(M) - log(hidden(policy)))


def linear(policy: Callable[[Any], Any]) -> Expr:
    """sum_C phi_C pi_C: any divergence of the cells, to first order."""
    return kept(lambda i: phi[i] * policy(i)) + phi_tail * hidden(policy)


def coarse_power(policy: Callable[[Any], Any]) -> Expr:
    """sum_C mu_C^a pi_C^(1-a) over the cells."""
    tail = M**order * hidden(policy) ** (1 - order)
    return kept(lambda i: m[i] ** order * policy(i) ** (1 - order)) + tail


def coarse_renyi(policy: Callable[[Any], Any]) -> Expr:
    """The coarse Renyi divergence of order a, the definition."""
    return log(coarse_power(policy)) / (order - 1)


def f_push(ratio: Any) -> Expr:
    """g(w) = f(w) - w f'(w), the derivative of pi f(mu / pi) in pi."""
    return f(ratio) - ratio * fp(ratio)


def tilted(scale: Any, mu: Any, pi: Any) -> Any:
    """tau = mu^a pi^(1-a) / scale, which takes mu's place in the gradient of a Renyi divergence."""
    return mu**order * pi ** (1 - order) / scale


def draw_tail(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """A random tail that holds at least one token, but not the sampled one."""
    token, other = rng.permutation(size)[:2]
    mask = (rng.uniform(size=size) < 0.5).astype(float)
    mask[token], mask[other] = 0.0, 1.0
    return {
        "h": mask, "k": int(token), "l": int(other),
        "f": lambda x: x**2 - np.cos(x), "fp": lambda x: 2 * x + np.sin(x), "fpp": lambda x: 2 + np.cos(x),
    }  # fmt: skip


def traced(
    divergence: Divergence, tail: str, form: Any, cases: tuple[Case, ...] = FOUR, **names: Any
) -> Trace:
    """The shipped change with a tail model against the one form, over four tokens, some of them hidden."""
    return trace(
        "change.change",
        lambda c: shipped_change(c.coarse_view(), divergence, tail),
        lambda c: c.explicit(form, h=c.hidden(), **names),
        cases,
    )
