# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Deriving the change
#
# A trust-region mask asks two questions of every sampled token. Is the training policy $\pi$ already far from
# the behaviour policy $\mu$ that sampled the token? And would this token's update lead it further away? PPO
# and DPPO answer the second question with the ratio $r = \pi_k / \mu_k$: above 1, raising the token leads
# outward. The predictive mask ([PDM] in REFERENCES.md) asks the divergence itself: will
# $D = \mathrm{KL}(\mu \,\|\, \pi)$ rise?
#
# This lesson derives that answer three times: by hand, by machine, and by taking the step. You need the chain
# rule and softmax. Afterwards you can derive it on a blackboard, say what a machine-checked certificate does
# and does not certify, and name three things that the result does not say.
#
# Vocabulary: `mu` is the behaviour policy, `pi` the training policy, `k` the sampled token, $A$ its
# advantage, $\eta$ the learning rate. Logarithms are natural, and divergences are in nats.

# %%
import textwrap
from dataclasses import replace
from fractions import Fraction

import numpy as np
import sympy
from scipy.optimize import brentq

from divsim.derivations import kernel, load, notation, render, softmax, theorem
from divsim.formulas import (
    FORWARD_KL,
    REVERSE_KL,
    View,
    change,
    directional_change,
    exponential_path,
    finite_change,
    flip_step_bracket,
    kernel_change,
    policy_gradient_direction,
)
from divsim.tabular.geometry import EUCLIDEAN
from divsim.tabular.ladder import convergence_slope
from divsim.tabular.one_step import one_step
from divsim.tabular.policies import PAIR_FAMILIES, sample_action

# %% [markdown]
# ## 1. Two answers to one question
#
# Three tokens. The training policy has left $\mu$ mainly by moving probability from token 2 to token 1. Token
# 0 is sampled and its advantage is positive, so the update will raise it.

# %%
mu = np.array([0.40, 0.30, 0.30])
pi = np.array([0.45, 0.50, 0.05])
k = np.array(0)
log_mu, log_pi = np.log(mu), np.log(pi)

ratio = pi[0] / mu[0]
divergence = float(FORWARD_KL.measure(log_mu, log_pi))
c_k = float(change(View.full(log_mu, log_pi, k)))

print("1. TWO ANSWERS TO ONE QUESTION")
print(f"   mu = {mu}, pi = {pi}, token 0 is sampled with A > 0")
print(f"   KL(mu || pi) = {divergence:.3f} nats: far outside a trust region of 0.05")
print(f"   the ratio r = {ratio:.3f} is above 1:      raising token 0 leads outward")
print(f"   the change c_0 = {c_k:+.3f} is below 0:   raising token 0 leads inward")

# %% [markdown]
# They contradict each other. A mask with the ratio test drops this token; a mask with the divergence test
# keeps it. Where does the second number come from?
#
# ## 2. By hand
#
# **Softmax.** The policy is $\pi_i = e^{z_i} / \sum_l e^{z_l}$, so $\log \pi_i = z_i - \log \sum_l e^{z_l}$.
# Differentiate both terms in $z_j$. The first gives 1 if $i = j$ and 0 otherwise, written $\delta_{ij}$; the
# second gives $e^{z_j} / \sum_l e^{z_l}$, which is $\pi_j$:
#
# $$\frac{\partial \log \pi_i}{\partial z_j} = \delta_{ij} - \pi_j. \tag{1}$$
#
# **The divergence.** Write $D = \sum_i \mu_i \log \mu_i - \sum_i \mu_i \log \pi_i$. The first sum does not
# contain $z$. Put (1) into the second, then use $\sum_i \mu_i = 1$:
#
# $$\frac{\partial D}{\partial z_j} = -\sum_i \mu_i (\delta_{ij} - \pi_j) = \pi_j - \mu_j. \tag{2}$$
#
# So (2) is the ratio test, one logit at a time: *if only logit $j$ rose*, a little, then $D$ would rise
# exactly when $\pi_j > \mu_j$.
#
# **The step.** A policy-gradient step does not move only one logit. The token's objective is $r A$ with
# $r = \pi_k / \mu_k$, and $\mu_k$ is a constant. A derivative of $\pi_k$ is $\pi_k$ times that of
# $\log \pi_k$, so by (1) the gradient in $z_j$ is $A r (\delta_{kj} - \pi_j)$. After one step of size $\eta$
# the logits have moved by
#
# $$\Delta z = s\,(e_k - \pi), \qquad s = \eta A r, \tag{3}$$
#
# where $e_k$ is the vector with a 1 at token $k$. For $s > 0$ the sampled logit rises by $s (1 - \pi_k)$;
# every other logit falls, and the logits of likely tokens fall most.
#
# **The chain rule.** Multiply (2) by (3) entry by entry and add up. The entry $j = k$ of $e_k$ leaves
# $\pi_k - \mu_k$; the rest has a factor $-\pi_j$:
#
# $$\frac{dD}{d\eta}\Big|_{0} = \sum_j (\pi_j - \mu_j)\, A r\, (\delta_{kj} - \pi_j) = A\, r\, c_k,$$
#
# $$c_k = (\pi_k - \mu_k) + \sum_i \pi_i (\mu_i - \pi_i). \tag{4}$$
#
# The first part of $c_k$ is *local*: it looks at the sampled token. The sum is *global*: it is the same for
# every token.
#
# Because $r > 0$, the sign of the change is the sign of $A c_k$. With $d_i = \pi_i - \mu_i$ the result is
# also
#
# $$c_k = d_k - \mathrm{E}_\pi[d]: \tag{5}$$
#
# the ratio test compares $d_k$ with 0, the divergence test compares it with the average of $d$ under $\pi$.
# They disagree if and only if $d_k$ lies strictly between 0 and that average. From (5) also
# $\mathrm{E}_\pi[c] = 0$.
#
# In exact fractions, line by line:

# %%
mu_exact = [Fraction(4, 10), Fraction(3, 10), Fraction(3, 10)]
pi_exact = [Fraction(45, 100), Fraction(50, 100), Fraction(5, 100)]

d = [p_i - m_i for p_i, m_i in zip(pi_exact, mu_exact, strict=True)]
average = sum(p_i * d_i for p_i, d_i in zip(pi_exact, d, strict=True))
c = [d_i - average for d_i in d]

print("\n2. BY HAND, IN FRACTIONS")
print(f"   d = pi - mu       = {', '.join(map(str, d))}")
print(f"   E_pi[d]           = {average}")
print(f"   c = d - E_pi[d]   = {', '.join(map(str, c))}")
print(f"   c_0 = {c[0]}: the local term {d[0]} says outward, the global term {-average} outweighs it")

assert c[0] == Fraction(-3, 50)
assert sum(p_i * c_i for p_i, c_i in zip(pi_exact, c, strict=True)) == 0
assert np.allclose(c_k, float(c[0]), rtol=1e-12)  # the shipped formula, in float64

# %% [markdown]
# In words: raising token 0 takes probability from the other tokens, and it takes most of it from token 1,
# whose probability is far above $\mu_1$. Bringing token 1 back helps more than pushing token 0 away harms.
# The ratio looks at the token that rises. It cannot see who pays.
#
# ## 3. By machine
#
# Equation (4) is short, but a mistake in a sign or an index would also look short. Can SymPy check it for
# *every* vocabulary size at once? Only with care. Two traps, in plain SymPy:

# %%
n = sympy.Symbol("n", integer=True, positive=True)
i, j = sympy.symbols("i j", integer=True, nonnegative=True)
q, z = sympy.IndexedBase("q"), sympy.IndexedBase("z")

weighted = sympy.Sum(q[i] * q[j], (i, 0, n - 1))  # equals q_j, because the q_i add up to one
captured = weighted.subs(j, i)  # should equal q_i

naive = sympy.exp(z[i]) / sympy.Sum(sympy.exp(z[i]), (i, 0, n - 1))
slope = sympy.diff(naive, z[i])  # should be pi_i (1 - pi_i)

print("\n3. BY MACHINE")
print("   Two traps of plain SymPy:")
print(f"   {weighted} with i put for j gives\n      {captured}, the sum of the squares")
print(f"   d softmax(z)_i / d z_i = {slope}, but raising a logit does raise its token")

assert captured == sympy.Sum(q[i] ** 2, (i, 0, n - 1))
assert slope == 0

# %% [markdown]
# Both mistakes have one cause: the letter $i$ was free and was also the index of a sum. The `derivations`
# package therefore builds sums only with `total`, which gives every sum an index of its own, and it
# substitutes indices only with `at`, which refuses a capture:

# %%
token = notation.k
careful = sympy.diff(softmax.softmax(token), notation.z[token])

try:
    notation.at(weighted, j, i)
    refusal = ""
except notation.CaptureError as error:
    refusal = str(error)
print(f"   divsim refuses the first:\n      {refusal}")
print("   and gets the second right: pi_k (1 - pi_k)")

assert "is bound" in refusal
assert kernel.is_zero(careful - softmax.softmax(token) * (1 - softmax.softmax(token)), ())

# %% [markdown]
# Here is the theorem behind (4). Each step is a sentence, and below it the equation that was checked. `p` and
# `m` of the source are printed as $\pi$ and $\mu$, and `Σ_i` runs over a vocabulary of unspecified size.


# %%
def theorem_of(chapter: str, name: str) -> theorem.Theorem:
    return next(each for each in load(chapter) if each.id == name)


first_order = theorem_of("T2", "T2b")
print(f"\n   {first_order.id}. {first_order.title}")
for number, step in enumerate(first_order.steps, 1):
    print(f"\n   Step {number}\n{textwrap.indent(render.explain_step(step, first_order.aliases), '   ')}")

# %% [markdown]
# `check` turns the theorem into a certificate.

# %%
report = theorem.check(first_order)


def show(certificate: theorem.Report) -> None:
    """Print a certificate, one line a claim."""
    print(f"\n   {certificate.id}: {'holds' if certificate.ok else 'FAILS'}")
    print(f"   identities proven, any vocabulary size  {certificate.identities}")
    print(f"   inequalities proven                     {certificate.certificates}")
    print(f"   proven again by another method          {certificate.degree_proofs}")
    print(f"   false variants refused                  {certificate.mutants_refused}")
    print(f"   shipped functions traced                {certificate.traces}")
    print(f"   replayed on random numbers              V = {certificate.shadow_sizes}, ", end="")
    print(f"largest error {certificate.shadow_error:.0e}")
    residue = "; ".join(certificate.residue) or "nothing"
    for name, text in (("scope", certificate.scope), ("residue", residue)):
        print(textwrap.fill(f"{name}: {text}", 100, initial_indent="   ", subsequent_indent="      "))


show(report)
print("\n   The false variants:")
for mutant in first_order.mutants:
    print(f"   - {mutant.text}")

assert report.ok and not report.residue
assert report.mutants_refused == len(first_order.mutants) > 0

# %% [markdown]
# How to read it:
#
# * **Identities proven.** Both sides were brought to one normal form for a *symbolic* vocabulary size. This
#   is a proof, not a test on examples.
# * **Proven again.** A polynomial identity of degree $g$ that holds for one $V \ge g + 1$ holds for every
#   $V$. So expanding it at one size is a second proof, by a method that has nothing in common with the first.
# * **False variants refused.** A checker that accepts everything would also print "holds". These are
#   plausible mistakes that it must reject. The first one is the ratio test.
# * **Shipped functions traced.** The function that trainers call was run on symbols and compared with the
#   theorem. Up to rounding, the proof is about the code, not about a formula that resembles it.
# * **Replayed.** An independent evaluator put random numbers into both sides.
# * **Scope.** What is claimed, and what is not. Read it before you quote the theorem.
# * **Residue.** What no machine checked and a human must accept. T2b leaves nothing.
#
# A check that has never failed is not yet a check. So break the theorem: take the average in (5) under $\mu$.

# %%
mu_average = notation.mean(notation.m, lambda a: notation.p[a] - notation.m[a])
wrong_step = replace(
    first_order.steps[1],
    text="The average taken under μ.",
    rhs=notation.p[token] - notation.m[token] - mu_average,
    polynomial=False,
)
refused = theorem.check(replace(first_order, steps=(wrong_step,), mutants=(), traces=()))

print("\n   A wrong theorem, and what the checker says of it:")
for failure in refused.failures:
    print(f"   - {failure}")

assert len(refused.failures) == 2

# %% [markdown]
# `divsim verify` checks the theorems of every chapter in this way, and the simulators with them.
#
# ## 4. By simulator
#
# A derivative is a claim about small steps. So take steps of several sizes, exactly: move the logits by
# $s (e_k - \pi)$, normalise, measure $D$ again. The remainder, realised minus predicted, must vanish as
# $s^2$: a step of half the size leaves a quarter of it. Here $A > 0$, so $s > 0$.

# %%
direction = policy_gradient_direction(log_pi, k)
sizes = np.array([0.4, 0.2, 0.1, 0.05, 0.025, 0.0125])
after = exponential_path(log_pi, direction, sizes[:, None])
realised = FORWARD_KL.measure(log_mu, after) - divergence
predicted = sizes * c_k
remainder = realised - predicted

print("\n4. BY SIMULATOR")
print("   step s    predicted    realised     remainder    remainder at 2s / at s")
for row, (s, first, real, rest) in enumerate(zip(sizes, predicted, realised, remainder, strict=True)):
    shrinks = f"{remainder[row - 1] / rest:.2f}" if row else ""
    print(f"   {s:<8g}  {first:+.6f}    {real:+.6f}    {rest:+.6f}    {shrinks}")

order = np.polyfit(np.log(sizes[-3:]), np.log(remainder[-3:]), 1)[0]
print(f"   the remainder shrinks as s^{order:.3f}")

# The third order is at most 2 % of the second at s = 0.05 (T3f), which tilts the line by 0.01 at most.
assert abs(order - 2) < 0.01

# %% [markdown]
# The same measurement over 1,000 random pairs of policies with 30 tokens each. The measured order is 2 only
# if every prediction is right: one wrong prediction leaves a remainder of order 1, which dominates at small
# steps.

# %%
rng = np.random.default_rng(0)
pairs = PAIR_FAMILIES["language"](rng, (1000,), 30)
actions = sample_action(rng, pairs.log_mu)
measured = convergence_slope([one_step(FORWARD_KL, EUCLIDEAN, pairs, actions).ladder])
print(f"   1,000 random pairs: the remainder shrinks as s^{measured:.3f}")

assert abs(measured - 2) < 0.02

# %% [markdown]
# For forward KL no expansion is needed at all. The change is known at every step size, at the cost of $c_k$:
#
# $$D(s) - D(0) = \log \mathrm{E}_\pi[e^{s v}] - s\, \mathrm{E}_\mu[v], \qquad v = e_k - \pi. \tag{6}$$
#
# This is theorem T3a. It tells us when the prediction "KL falls" ends: $D(s)$ starts downhill, is convex, and
# must turn. The step $s^*$ at which it is back at its start has a closed bracket.

# %%
exact = finite_change(log_mu, log_pi, sizes[:, None] * direction)
low, high = (float(end) for end in flip_step_bracket(log_mu, log_pi, k))

flip = brentq(lambda s: finite_change(log_mu, log_pi, s * direction), low, high)

print(f"   equation (6) against the step taken: largest difference {np.max(np.abs(exact - realised)):.0e}")
print(f"   KL falls for steps below s* = {flip:.3f} and rises beyond; the bracket: {low:.3f} to {high:.3f}")

assert np.allclose(exact, realised, rtol=0, atol=1e-14)  # D is about 0.3: a few roundings
assert low < flip < high
assert finite_change(log_mu, log_pi, 0.9 * flip * direction) < 0
assert finite_change(log_mu, log_pi, 1.1 * flip * direction) > 0

# %% [markdown]
# Predicted against realised, then: at $s = 0.1$ the first order says $-0.006$ and KL falls by $0.0047$; at
# $s = 0.5$ it says $-0.03$ and KL *rises*. The sign of $c_k$ is a statement about small steps, with one
# exception.
#
# ## 5. What the result does not say
#
# **One-sided certainty.** The exception is theorem T3c:
# $D(s) - D(0) - s c_k = \mathrm{KL}(\pi \,\|\, \pi(s)) \ge 0$. What the first order misses is never negative.
# So a predicted *increase* is real at every step size, and only a predicted *decrease* can fail. Look at the
# residue of the certificate: here a human has something to accept.

# %%
certainty = theorem_of("T3", "T3c")
certificate_of_certainty = theorem.check(certainty)
print("\n5. WHAT THE RESULT DOES NOT SAY")
show(certificate_of_certainty)

assert certificate_of_certainty.ok and certificate_of_certainty.residue

# %% [markdown]
# *Misreading 1: "a predicted increase is certain".* Only for the full forward KL (and the few others whose
# record says `convex_in_logits`). Not for a top-K divergence, not for many tokens at once, and not for
# reverse KL. Here the reverse KL is predicted to rise, and falls:

# %%
pi_r, mu_r, token_2 = np.array([594, 295, 111]) / 1000, np.array([357, 12, 631]) / 1000, np.array(2)
log_pi_r, log_mu_r = np.log(pi_r), np.log(mu_r)
s = -6.0  # A < 0: the token is punished
first = s * float(change(View.full(log_mu_r, log_pi_r, token_2), REVERSE_KL))
moved = exponential_path(log_pi_r, policy_gradient_direction(log_pi_r, token_2), s)
real = float(REVERSE_KL.measure(log_mu_r, moved) - REVERSE_KL.measure(log_mu_r, log_pi_r))
print(f"\n   Misreading 1. Reverse KL at s = {s:g}: predicted {first:+.3f}, realised {real:+.3f}")

assert FORWARD_KL.convex_in_logits and not REVERSE_KL.convex_in_logits
assert first > 0 > real

# %% [markdown]
# *Misreading 2: "the divergence test is right and the ratio test is wrong".* Equation (3) assumed one free
# logit per token and a plain gradient step. Change either and the answer can change.
#
# For this softmax (one free logit per token, one state) and a small step, the natural gradient moves only
# logit $k$, by $s / \pi_k$. Then (2) gives $1 - 1/r$ in place of $c_k$: the ratio test is *exactly* the test
# of that step. In a network the logits share weights. With a head $z = W h$ and a gradient step on $h$, (3)
# becomes $s\, W W^\top (e_k - \pi)$, and the sign can flip:

# %%
natural = np.eye(3)[0] / pi[0]
along_natural = float(directional_change(FORWARD_KL, log_mu, log_pi, natural))

pi_w, mu_w = np.array([5, 7, 7]) / 19, np.array([6, 7, 4]) / 17
head = np.array([[0.0, 1.0], [-1.0, 0.0], [1.0, 1.0]])  # W: one row of two features a token
log_pi_w, log_mu_w = np.log(pi_w), np.log(mu_w)
free = float(change(View.full(log_mu_w, log_pi_w, k)))
shared = float(kernel_change(FORWARD_KL, log_mu_w, log_pi_w, k, head @ head.T))

print("\n   Misreading 2. The change depends on what a step is")
print(f"   the worked example: plain gradient {c_k:+.3f}, natural gradient {along_natural:+.3f} = 1 - 1/r")
print(f"   another pair:       free logits    {free:+.3f}, a shared head    {shared:+.3f}")

assert np.isclose(along_natural, 1 - 1 / ratio, rtol=1e-12)
assert np.isclose(free, -609 / 6137, rtol=1e-12) and np.isclose(shared, 98 / 6137, rtol=1e-12)

# %% [markdown]
# *Misreading 3: "a mask keeps the divergence below delta".* A mask removes a token's own push, and nothing
# else. Let two prefixes with the same $\mu$ share weights, so that an update at prefix B moves the logits at
# prefix A by half as much. Token 1 is sampled at both, with $A > 0$. At A it is far and outward: the mask
# drops it. B is inside its trust region: the mask keeps it. The divergence at A rises although nothing at A
# was updated.

# %%
c_at_a = float(change(View.full(log_mu, log_pi, np.array(1))))
pi_b = np.array([0.38, 0.34, 0.28])
far_at_b = float(FORWARD_KL.measure(log_mu, np.log(pi_b)))
push_from_b = 0.5 * 0.2 * policy_gradient_direction(np.log(pi_b), np.array(1))  # overlap 1/2, s = 0.2
rise = float(finite_change(log_mu, log_pi, push_from_b))

print("\n   Misreading 3. A mask is not a constraint")
print(f"   prefix A: KL = {divergence:.3f} > 0.05 and c_1 = {c_at_a:+.3f}, so its update is dropped")
print(f"   prefix B: KL = {far_at_b:.3f} < 0.05, so its update is kept, and KL at A rises by {rise:.4f}")

assert divergence > 0.05 and c_at_a > 0 and far_at_b < 0.05
assert rise > 0

# %% [markdown]
# ## 6. Exercises
#
# 1. Take $\mu = (5, 1, 1)/7$ and $\pi = (1, 2, 4)/7$. Compute $c$ for all three tokens, by hand. For which
#    token do the two tests disagree?
# 2. Show that for two tokens $c_k = 2 (1 - \pi_k)(\pi_k - \mu_k)$. Why can the two tests never disagree
#    there?
# 3. Show that $c_k = (e_k - \pi) \cdot (\pi - \mu)$. Which shape is the set $c_k = 0$ among the policies over
#    three tokens? Then look at `figures/simplex.svg`.
#
# The answers follow.

# %% [markdown]
# **1.** $d = (-4, 1, 3)/7$, $\mathrm{E}_\pi[d] = (-4 + 2 + 12)/49 = 10/49$, so $c = (-38, -3, 11)/49$. They
# disagree at token 1, where $d_1 = 1/7 = 7/49$ lies between 0 and $10/49$.
#
# **2.** With two tokens $d_2 = -d_1$, so $\mathrm{E}_\pi[d] = (\pi_1 - \pi_2) d_1 = (2 \pi_1 - 1) d_1$ and
# $c_1 = d_1 (2 - 2 \pi_1)$. The factor $2 (1 - \pi_k)$ is positive: $c_k$ has the sign of $d_k$. Nobody else
# can pay.
#
# **3.** Expand: $\pi_k - \mu_k - \pi \cdot \pi + \pi \cdot \mu$, which is (4). The product is zero where the
# way from $\mu$ to $\pi$ and the way from $\pi$ to the corner $e_k$ meet at a right angle: by Thales a
# circle, with the segment from $\mu$ to $e_k$ as its diameter. Inside it $c_k > 0$.

# %%
mu_1, pi_1 = [Fraction(x, 7) for x in (5, 1, 1)], [Fraction(x, 7) for x in (1, 2, 4)]
d_1 = [a - b for a, b in zip(pi_1, mu_1, strict=True)]
average_1 = sum(a * b for a, b in zip(pi_1, d_1, strict=True))
c_1 = [x - average_1 for x in d_1]

a, b = sympy.symbols("a b", positive=True)  # pi_k and mu_k when there are two tokens
two_tokens = (a - b) - (a * (a - b) + (1 - a) * (b - a))

to_corner = np.eye(3)[0] - mu
across = np.array([0.0, 1.0, -1.0]) * np.linalg.norm(to_corner) / np.sqrt(2)  # as long, at right angles
angles = np.linspace(0.0, 2 * np.pi, 60)[1:-1, None]
circle = mu + to_corner / 2 + (np.cos(angles) * to_corner + np.sin(angles) * across) / 2
circle = circle[np.all(circle > 0, axis=-1)]
view = View.full(np.broadcast_to(log_mu, circle.shape), np.log(circle), np.zeros(len(circle), dtype=int))

print("\n6. EXERCISES")
print(f"   1. c = {', '.join(map(str, c_1))}: the tests disagree at token 1")
print(f"   2. for two tokens c_k = {sympy.factor(two_tokens)}, with a = pi_k and b = mu_k")
print("   3. c_k = 0 is a circle, and the segment from mu to the corner of k is its diameter")

assert c_1 == [Fraction(-38, 49), Fraction(-3, 49), Fraction(11, 49)]
assert [x > 0 for x in d_1] != [x > 0 for x in c_1] and d_1[1] > 0 > c_1[1]
assert sympy.expand(two_tokens - 2 * (1 - a) * (a - b)) == 0
assert len(circle) > 10 and np.allclose(change(view), 0, atol=1e-15)
