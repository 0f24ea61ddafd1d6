r"""T11, geometry: forward KL when the step on the logits is not the plain one.

A temperature rescales the change, a bias or a mask leaves it alone, and a linear head, whose tokens share
weights, multiplies the step by a kernel K that can turn its sign round. What errors in the logits do is in
`logit_noise.py`. A deep network has a kernel too, but one that depends on the input and moves as it learns.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from sympy import Derivative, Expr, IndexedBase, KroneckerDelta, S, Subs, Symbol, exp, log, oo, symbols

import divsim.formulas as shipped

from .direction_examples import change_at
from .divergence_table import moved, slope
from .forward_kl import A, change, eta, forward_kl, token_step
from .hypotheses import SIMPLEX, Symmetric, given_all, nonneg
from .intervals import policy
from .logit_noise import noise_bound, noise_on_average
from .notation import at, j, k, m, mean, p, specialise, total, v, z
from .softmax import path
from .theorem import Mutant, Step, Theorem, Verdict, alias
from .trace import MASKED, UNTIED, trace

T = Symbol("T", positive=True)
x = Symbol("x", real=True)
a = IndexedBase("a", nonnegative=True)  # weight of a token before its logit: e^bias, or 0 where masked
W, K = IndexedBase("W", real=True), IndexedBase("K", real=True)
theta = IndexedBase("theta", real=True)
l = Symbol("l", integer=True, nonnegative=True)  # noqa: E741 (a feature)


def temperature() -> Theorem:
    """T11a."""

    def cooled(i: Any) -> Expr:
        return exp(z[i] / T) / total(lambda h: exp(z[h] / T))

    ratio = p[k] / m[k]
    after = forward_kl(lambda i: path(i, eta * A * ratio / T))
    stepped = specialise(after, v, lambda i: token_step(i) / T)
    rate = Subs(Derivative(stepped, eta), eta, 0)
    return Theorem(
        id="T11a",
        title="A temperature divides the change by its square",
        statement=r"\pi = \mathrm{softmax}(z / T): \quad \frac{dD}{d\eta} = A\, r\, c_k / T^2",
        scope="Any vocabulary size, one free logit per token, an infinitesimal step; π, μ and r are those of "
        "the tempered policy, the one that was sampled. No sign changes.",
        tier="G",
        steps=(
            Step(
                "The gradient of log π_k in the logits is (e_k − π)/T: one factor 1/T.",
                Derivative(log(cooled(k)), z[j]),
                (KroneckerDelta(j, k) - cooled(j)) / T,
            ),
            Step(
                "The policy answers a logit step divided by T: the other factor.",
                rate,
                A * ratio * change() / T**2,
            ),
        ),
        mutants=(
            Mutant("One factor forgotten.", rate, A * ratio * change() / T),
            Mutant("No temperature at all.", rate, A * ratio * change()),
        ),
        aliases=(
            alias("π_{}", "softmax(z / T) at token i", cooled),
            alias("D(η)", "KL(μ‖π) after the step", stepped),
        ),
    )


def bias_and_mask() -> Theorem:
    """T11b."""
    partition = total(lambda i: a[i] * exp(z[i]))

    def weighted(i: Any) -> Expr:
        return a[i] * exp(z[i]) / partition

    visible = log(partition) - mean(m, lambda i: z[i])
    along = total(lambda i: (weighted(i) - m[i]) * (KroneckerDelta(i, k) - weighted(i)))
    form = specialise(change(), p, weighted)
    beyond = replace(UNTIED[0], pi=(UNTIED[0].pi[0], 1 - UNTIED[0].pi[0], S.Zero))
    return Theorem(
        id="T11b",
        title="A bias or a mask on the logits changes no formula",
        statement=r"\pi_i \propto a_i e^{z_i}, \; a_i \ge 0: \quad "
        r"\partial D / \partial z_j = \pi_j - \mu_j, \quad c_k \text{ as in T2}",
        scope="Any vocabulary size; a_i = e^b for a bias b, a_i = 0 for a masked token, the sampled token is "
        "not masked. Where μ puts mass on a masked token D is infinite and no first-order claim is made.",
        tier="G",
        steps=(
            Step(
                "The gradient of log π_k is still e_k − π.",
                Derivative(log(weighted(k)), z[j]),
                KroneckerDelta(j, k) - weighted(j),
            ),
            Step(
                "All that D knows of z is log Σ a e^z − Σ μ z, and its gradient is π − μ.",
                Derivative(visible, z[j]),
                weighted(j) - m[j],
            ),
            Step("So the change along e_k − π is c_k, written in the biased policy.", along, form),
            Step(
                "By convention m log(m/0) = +∞ for m > 0 and 0 log(0/0) = 0, so a masked token costs all or "
                "nothing.",
                kind="cited",
            ),
        ),
        mutants=(
            Mutant("The weight left in the gradient.", Derivative(visible, z[j]), a[j] * weighted(j) - m[j]),
            Mutant(
                "Softmax without the weights.",
                along,
                specialise(change(), p, lambda i: exp(z[i]) / partition),
            ),
        ),
        aliases=(alias("π_{}", "a_i e^{z_i} / Σ a e^z", weighted), alias("Z", "Σ a e^z", partition)),
        traces=(
            trace("change.change", lambda case: shipped.change(case.full_view), change(), MASKED),
            trace(
                "divergences.FORWARD_KL.measure",
                lambda case: shipped.FORWARD_KL.measure(case.log_mu, case.log_pi),
                lambda case: oo,
                (beyond,),
            ),
        ),
    )


def kernel_step(i: Any) -> Expr:
    """Entry i of K (e_k - pi), the logit step of a shared head."""
    return total(lambda h: K[i, h] * (KroneckerDelta(h, k) - p[h]))


def kernel_change() -> Expr:
    """(pi - mu)^T K (e_k - pi)."""
    return total(lambda i, h: (p[i] - m[i]) * K[i, h] * (KroneckerDelta(h, k) - p[h]))


def _draw_head(rng: np.random.Generator, size: int) -> dict[str, Any]:
    features = rng.normal(size=(size, size))
    return {"W": features, "K": features @ features.T}


def linear_head() -> Theorem:
    """T11c."""

    def head(i: Any) -> Expr:
        logits = exp(total(lambda h: W[i, h] * theta[h]))
        return logits / total(lambda b: exp(total(lambda h: W[b, h] * theta[h])))

    def feature(policy: Any, h: Any) -> Expr:
        return W[k, h] - total(lambda b: policy(b) * W[b, h])

    gram = (given_all(lambda i, h: (total(lambda b: W[i, b] * W[h, b]), K[i, h])), Symmetric(K))
    move = total(lambda h: W[j, h] * feature(lambda b: p[b], h))
    along = slope(forward_kl, kernel_step)
    return Theorem(
        id="T11c",
        title="A shared head multiplies the step by a kernel",
        statement=r"z = W \theta, \; K = W W^\top: \quad "
        r"c^K_k = (\pi - \mu)^\top K (e_k - \pi), \qquad E_\pi[c^K] = 0",
        scope="Any vocabulary size, one state, a linear head with at most as many features as tokens (others "
        "add nothing to K), an infinitesimal plain gradient step on its weights θ. With K = 1 it is c_k.",
        tier="G",
        steps=(
            Step(
                "The gradient of log π_k in a weight is the token's feature less the average feature.",
                Derivative(log(head(k)), theta[l]),
                feature(head, l),
            ),
            Step(
                "A step along that gradient moves the logits by K (e_k − π).",
                move,
                kernel_step(j),
                hypotheses=(*SIMPLEX, *gram),
            ),
            Step("The change of D along it is a bilinear form in K.", along, kernel_change()),
            Step(
                "It averages to zero under π, as c_k does.", mean(p, lambda i: at(kernel_change(), k, i)), 0
            ),
            Step(
                "The identity gives c_k back.",
                specialise(kernel_change(), K, lambda i, h: KroneckerDelta(i, h)),
                change(),
            ),
            Step(
                "Features that all tokens share do nothing: a constant kernel moves no probability.",
                specialise(kernel_change(), K, lambda i, h: x),
                0,
            ),
        ),
        mutants=(
            Mutant("The kernel's diagonal alone.", along, K[k, k] * change()),
            Mutant("The average forgotten.", along, total(lambda i: (p[i] - m[i]) * K[i, k])),
            Mutant("Averaged under μ.", mean(m, lambda i: at(kernel_change(), k, i)), 0),
        ),
        aliases=(
            alias("π_{}", "softmax(W θ) at token i", head),
            alias("c(K)", "(π − μ)ᵀ K (e_k − π)", kernel_change()),
            alias("D(t)", "KL(μ‖π) after the logit step t K (e_k − π)", moved(forward_kl, kernel_step)),
        ),
        traces=(
            trace(
                "change.kernel_change",
                lambda case: shipped.kernel_change(
                    shipped.FORWARD_KL, case.log_mu, case.log_pi, case.k, case.table(K)
                ),
                kernel_change(),
                UNTIED[:6],
            ),
        ),
        sample=_draw_head,
    )


def head_change_at(
    mu: Sequence[Any], pi: Sequence[Any], features: Sequence[Sequence[int]], token: int
) -> Any:
    """c^K of forward KL for a head with these rows of features: the token's lead along W^T (pi - mu)."""
    drift = [
        sum((q - w) * f for q, w, f in zip(pi, mu, column, strict=True))
        for column in zip(*features, strict=True)
    ]
    scores = [sum(f * x for f, x in zip(row, drift, strict=True)) for row in features]
    return scores[token] - sum(q * score for q, score in zip(pi, scores, strict=True))


def _turned_round() -> Verdict:
    mu, pi, features = policy((6, 7, 4)), policy((5, 7, 7)), ((0, 1), (-1, 0), (1, 1))
    plain, shared = change_at(mu, pi, 0), head_change_at(mu, pi, features, 0)
    return Verdict(
        (plain, shared) == (Fraction(-609, 6137), Fraction(98, 6137)),
        f"μ = (6, 7, 4)/17, π = (5, 7, 7)/19, features {features}, first token: c = {plain}, c^K = +{shared}",
    )


def sign_flip() -> Theorem:
    """T11d."""
    y, near, far, cross = symbols("y b c g", real=True)
    pi, mu, gram = (x, 1 - x), (y, 1 - y), ((near, cross), (cross, far))
    step = (1 - x, x - 1)
    two = sum((pi[i] - mu[i]) * gram[i][h] * step[h] for i in (0, 1) for h in (0, 1))
    apart = near - 2 * cross + far  # |w_0 - w_1|^2
    return Theorem(
        id="T11d",
        title="A shared head can turn the sign, but not with two tokens",
        statement=r"n = 2: \quad c^K_k\, d_k = (1 - \pi_k) |w_0 - w_1|^2 d_k^2 \ge 0; \qquad "
        r"n = 3: \quad c_k < 0 < c^K_k \text{ exists}",
        scope="One state, one token, a linear head. What T2 to T7 say of signs is about K = 1; for a real "
        "head the kernel decides, and change.kernel_change has to be told it.",
        tier="Q",
        steps=(
            Step(
                "With two tokens c^K has the sign of d_k, whatever the head.",
                two * (x - y),
                (1 - x) * apart * (x - y) ** 2,
                "nonneg",
                (nonneg(1 - x), nonneg(apart)),
            ),
            Step(
                "With three tokens and two features the signs of c_k and c^K can differ.",
                kind="exact",
                decide=_turned_round,
            ),
        ),
        mutants=(
            Mutant("The kernel's diagonal alone.", two, (x - y) * (1 - x) * (near + far), ()),
            Mutant("The plain formula of two tokens.", two, 2 * (x - y) * (1 - x), ()),
        ),
        aliases=(alias("|w₀ − w₁|²", "K₀₀ − 2 K₀₁ + K₁₁", apart),),
        sample=lambda rng, size: {"x": rng.uniform(), "b": 3.0, "c": 1.0, "g": 0.5},
    )


THEOREMS = (temperature, bias_and_mask, linear_head, sign_flip, noise_on_average, noise_bound)
