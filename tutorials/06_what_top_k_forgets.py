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
# # What top-K forgets
#
# A mask wants to know two things about a sampled token $k$: how far the training policy $\pi$ is from the
# behaviour policy $\mu$, and in which direction the update leads. For the full vocabulary lesson 04 gave both
# answers in closed form. But a rollout engine does not return the full $\mu$. It returns the
# log-probabilities of its $K$ likeliest tokens and of the token that it sampled. What is lost?
#
# The trainer owns every logit of $\pi$. So the only unknown is how $\mu$'s remaining mass $M$ is spread
# over the $m$ tokens of the **tail** $T$. Everything in this lesson follows from that sentence.
#
# You need lesson 04. Afterwards you can say what each estimator of the tail assumes, when it is wrong, what
# no estimator can know, and when the sign of the change is *proven* in spite of all that. Logarithms are
# natural.

# %%
from fractions import Fraction

import numpy as np

from divsim.formulas import (
    FORWARD_KL,
    TAILS,
    TV,
    View,
    change,
    change_interval,
    difference,
    log_mass,
)
from divsim.tabular.language import WORLDS
from divsim.tabular.mismatch import MISMATCHES, mismatched
from divsim.tabular.policies import PAIR_FAMILIES, PolicyPair, at_action, sample_from
from divsim.tabular.real_tokens import load
from divsim.tabular.real_views import view as recorded_view

ESTIMATORS = [name for name in TAILS if name != "full"]
SIZES = (1, 5, 20, 100)


def percent(share: float) -> str:
    return f"{100 * share:5.1f} %"


# %% [markdown]
# ## 1. How far: the cells hide distance
#
# Put all hidden tokens into one cell. The $K$ (or $K + 1$) retained tokens and this cell are a smaller
# vocabulary, and any divergence can be measured on it. It is a lower bound of the true one (T7q: merging
# cells cannot create distance). How much can it miss? Everything. Three tokens, $K = 1$:

# %%
mu = np.array([0.90, 0.09, 0.01])
pi = np.array([0.90, 0.01, 0.09])
token = np.array(0)
seen = View.top_k(np.log(mu), np.log(pi), token, k=1)
coarse, exact = float(FORWARD_KL.measure(*seen.cells)), float(FORWARD_KL.measure(np.log(mu), np.log(pi)))
print("1. HOW FAR: THE CELLS HIDE DISTANCE")
print(f"   mu = {mu}, pi = {pi}, K = 1: seen {coarse:.3f} nats, true {exact:.3f}")

assert abs(coarse) < 1e-15 and exact > 0.17
assert float(TV.measure(*seen.cells)) < 1e-15

# %% [markdown]
# A token that looks near may be far. A token that looks far *is* far. Keep this in mind; we come back to how
# much is missed on ordinary distributions.
#
# ## 2. Which way: one number for the tail
#
# The change is $c_k = (\pi_k - \mu_k) + \sum_i \pi_i (\mu_i - \pi_i)$. The terms of retained tokens are
# known. Of the tail's part,
#
# $$t = \sum_{i \in T} \pi_i (\mu_i - \pi_i), \tag{1}$$
#
# only the masses $P = \sum_T \pi_i$ and $M = \sum_T \mu_i$ and everything about $\pi$ are known. All
# estimators are of one form (T7a): $t \approx \nu\,(M - P)$, with one number $\nu$ for the whole tail.
#
# | estimator | $\nu$ | in words |
# |---|---|---|
# | aggregated | $P$ | the tail is one token |
# | uniform | $P / m$ | $\pi$ is flat on the tail |
# | proportional | $Q / P$, with $Q = \sum_T \pi_i^2$ | $\mu$ has the shape of $\pi$ on the tail |
# | zero | $0$ | the tail does not answer |
#
# *aggregated* and *uniform* are those of [PDM]. *proportional* is the exact derivative of the coarse KL of
# section 1, the very quantity that a top-K mask thresholds. At $K = 0$ it has the sign of the ratio test, and
# at $K = V$ it is $c_k$: the two tests of lesson 05 are one test at two resolutions.
#
# The first three are ordered: $1/m \le Q / P^2 \le 1$, so aggregated answers most and zero least. Here is a
# pair on which *all four* get the sign wrong, in exact fractions:

# %%
pi_5 = [Fraction(n, 40) for n in (5, 16, 1, 14, 4)]
mu_5 = [Fraction(n, 40) for n in (14, 13, 6, 5, 2)]
sampled, support = 1, (0, 1)
tail = [i for i in range(5) if i not in support]
P, M, Q = sum(pi_5[i] for i in tail), sum(mu_5[i] for i in tail), sum(pi_5[i] ** 2 for i in tail)
known = pi_5[sampled] - mu_5[sampled] + sum(pi_5[i] * (mu_5[i] - pi_5[i]) for i in support)
nu = {"aggregated": P, "uniform": P / len(tail), "proportional": Q / P, "zero": Fraction(0)}
exact_5 = known + sum(pi_5[i] * (mu_5[i] - pi_5[i]) for i in tail)
guesses = {name: known + value * (M - P) for name, value in nu.items()}

print("\n2. WHICH WAY: ONE NUMBER FOR THE TAIL")
print(f"   five tokens, two retained: exact c = {exact_5} = {float(exact_5):+.4f}")
for name, guess in guesses.items():
    print(f"   {name:13} nu = {nu[name]!s:8} c = {guess!s:9} = {float(guess):+.4f}")

assert exact_5 == Fraction(-3, 400) and all(guess > 0 for guess in guesses.values())
seen_5 = View.top_k(*(np.log(np.array(p, dtype=float)) for p in (mu_5, pi_5)), np.array(sampled), k=2)
for name, guess in guesses.items():  # the shipped estimators
    assert abs(float(change(seen_5, FORWARD_KL, name)) - float(guess)) < 1e-15

# %% [markdown]
# The error of each has a closed form (T7). For *uniform* it is $m$ times the covariance, over the tail, of
# $\pi$ and $\pi - \mu$: zero if $\pi$ is flat there, or if $\pi - \mu$ is. For *proportional* it is $P M
# (|\hat\pi|^2 - \langle \hat\pi, \hat\mu \rangle)$ with the tail's conditional distributions: zero if the
# shapes match. For *aggregated* it is $\sum_{i \ne l} \pi_i (\mu_l - \pi_l)$ over pairs of hidden tokens:
# for a flat tail it counts (1) $m$ times.
#
# ## 3. Three kinds of position
#
# **Guess.** A vocabulary of 1,000 tokens, $K = 20$. How often does each estimator turn the sign: at a peaked
# position, at a flat one, and if $\mu$ and $\pi$ have nothing to do with one another?

# %%
POSITIONS = {
    "peaked": mismatched(WORLDS["language"], MISMATCHES["noise_0.5"]),
    "flat": mismatched(WORLDS["flat"], MISMATCHES["noise_0.5"]),
    "unrelated": PAIR_FAMILIES["peaked"],
}
VOCAB, TOKENS = 1000, 1500


def positions(kind: str) -> tuple[PolicyPair, np.ndarray, np.ndarray]:
    """Pairs of policies, a token sampled from each mu, and the exact change."""
    rng = np.random.default_rng(0)
    pair = POSITIONS[kind](rng, (TOKENS,), VOCAB)
    action = sample_from(rng, pair.log_mu)
    return pair, action, change(View.full(pair.log_mu, pair.log_pi, action))


print("\n3. THREE KINDS OF POSITION")
print(f"   signs that turn, {TOKENS} tokens, V = {VOCAB}; the ratio test turns as many as it disputes")
flips: dict[tuple[str, int, str], float] = {}
missed: dict[tuple[str, int], float] = {}
disputed: dict[str, float] = {}
for kind in POSITIONS:
    pair, action, c = positions(kind)
    disputed[kind] = float(np.mean((at_action(pair.log_pi, action) - at_action(pair.log_mu, action)) * c < 0))
    print(f"\n   {kind:10} ratio test {percent(disputed[kind])}")
    print("       K  " + "".join(f"{name:>14}" for name in ESTIMATORS) + "    KL missed")
    kl = FORWARD_KL.measure(pair.log_mu, pair.log_pi)
    for k in SIZES:
        seen = View.top_k(pair.log_mu, pair.log_pi, action, k)
        for name in ESTIMATORS:
            flips[kind, k, name] = float(np.mean(change(seen, FORWARD_KL, name) * c < 0))
        missed[kind, k] = float(1 - FORWARD_KL.measure(*seen.cells).sum() / kl.sum())
        row = "".join(f"{percent(flips[kind, k, name]):>14}" for name in ESTIMATORS)
        print(f"   {k:5}  {row}      {percent(missed[kind, k])}")

assert max(flips["peaked", 20, name] for name in ESTIMATORS) < 0.002
assert flips["flat", 20, "aggregated"] > 0.2 > 0.05 > flips["flat", 20, "uniform"]
assert flips["unrelated", 20, "aggregated"] < flips["unrelated", 20, "uniform"]
assert flips["unrelated", 20, "zero"] > disputed["unrelated"] > flips["unrelated", 20, "uniform"] > 0.09
assert missed["peaked", 20] < 0.05 and missed["flat", 20] > 0.3

# %% [markdown]
# Three positions, three answers.
#
# * **Peaked:** from $K = 5$ on it does not matter what one assumes. This is the regime that [PDM] reports,
#   and there *aggregated* and *uniform* are interchangeable.
# * **Flat:** up to $K = 20$ *aggregated* turns more signs than the ratio test that it is meant to improve on.
#   The others are fine. And something else is worse: half of the KL itself is not seen.
# * **Unrelated policies:** now *aggregated* is the best and *zero* the worst. The hidden tokens that $\pi$
#   likes are not those that $\mu$ likes, so the tail's part is close to $-\sum_T \pi_i^2$, which a few
#   large $\pi_i$ make large: an estimator that answers much is nearer to it.
#
# No estimator wins everywhere. Which position do real tokens come from? From all of them:

# %%
print("\n   recorded tokens of a 135M-parameter model, V = 49,152, K = 20, by the mass of mu's top 20")
print("   top-20 mass      tokens     ratio  " + "".join(f"{name:>14}" for name in ESTIMATORS))
bins = {"> .99": (0.99, 2.0), ".9 to .99": (0.9, 0.99), ".5 to .9": (0.5, 0.9), "< .5": (-1.0, 0.5)}
pairs = [tokens for tokens in load().values() if tokens.name != "fp8_stale"]  # the same tokens as fp8_base
guessed = {
    name: np.concatenate([change(recorded_view(tokens, 20), FORWARD_KL, name) for tokens in pairs])
    for name in ESTIMATORS
}
c = np.concatenate([tokens.c for tokens in pairs])
gap = np.concatenate([tokens.log_pi_k - tokens.log_mu_k for tokens in pairs])
mass = np.concatenate([tokens.top_20_mass for tokens in pairs])
moved = np.concatenate([difference(tokens.log_mu_k, tokens.log_pi_k) for tokens in pairs])
counted = (np.abs(c) >= 1e-6) & (np.abs(moved) >= 1e-6)  # below, the sign is noise of float32
real: dict[str, dict[str, float]] = {}
for words, (low, high) in bins.items():
    here = counted & (mass > low) & (mass <= high)
    real[words] = {name: float(np.mean((guess * c < 0)[here])) for name, guess in guessed.items()}
    real[words]["ratio"] = float(np.mean((gap * c < 0)[here]))
    row = "".join(f"{percent(real[words][name]):>14}" for name in ESTIMATORS)
    print(f"   {words:12} {int(here.sum()):10}   {percent(real[words]['ratio'])}  {row}")

assert real["> .99"]["aggregated"] < 0.02 and real["< .5"]["aggregated"] > 0.3
assert real[".9 to .99"]["aggregated"] < 0.02
assert max(real[words]["uniform"] for words in bins) < 0.05
assert real[".5 to .9"]["aggregated"] > real[".5 to .9"]["ratio"]  # worse than the test it is to replace

# %% [markdown]
# ## 4. What no estimator can know
#
# An estimator is a guess. How wrong can it be, given the record? Build two behaviour policies that agree in
# everything the engine returns and have *opposite* changes.

# %%
pi_6 = np.array([0.20, 0.28, 0.34, 0.06, 0.06, 0.06])
shown = [0.30, 0.24]  # mu of the two likeliest tokens; token 1 was sampled
hidden = {"on the small pi": [0.0, 0.16, 0.15, 0.15], "on the large pi": [0.235, 0.075, 0.075, 0.075]}
print("\n4. WHAT NO ESTIMATOR CAN KNOW")
print(f"   pi = {pi_6}, mu of the top two = {shown}")
records, changes = [], []
for words, rest in hidden.items():
    log_mu_6, log_pi_6 = log_mass(np.array(shown + rest)), np.log(pi_6)
    seen_6 = View.top_k(log_mu_6, log_pi_6, np.array(1), k=2)
    changes.append(float(change(View.full(log_mu_6, log_pi_6, np.array(1)))))
    records.append([float(change(seen_6, FORWARD_KL, name)) for name in ESTIMATORS])
    print(f"   hidden mass {words}: c = {changes[-1]:+.3f}; 'uniform' says {records[-1][1]:+.3f}")

assert changes[0] < 0 < changes[1]  # opposite directions
assert np.allclose(*records, atol=1e-15)  # every estimator says the same of both

# %% [markdown]
# And the less one sees, the worse. From the sampled token alone ($\pi$ and $\mu_k$, as engines return that
# give one log-probability) nothing about the direction can be proven *against* the ratio test: spreading
# the rest of $\mu$ in the shape of $\pi$ fits the record and makes $c_k$ agree with it (T7f). Some of the
# likeliest tokens of $\mu$ are needed.
#
# ## 5. What can be proven all the same
#
# Equation (1) is linear in the hidden $\mu_i$. We know their sum $M$, and that none exceeds $b$, the $K$-th
# largest: a hidden token that did would have been returned. So the largest possible $\sum_T \pi_i \mu_i$
# fills $b$ into the tail tokens with the largest $\pi_i$ until $M$ is used up, and the smallest one fills
# from below: a fractional knapsack. The result is an interval that contains $c_k$ for *every* $\mu$ that
# fits the record (T7k to T7m). If it excludes 0, the sign is **certified**.

# %%
print("\n5. WHAT CAN BE PROVEN ALL THE SAME")
print("   certified signs, by K         " + "".join(f"{k:>9}" for k in SIZES))
certified: dict[tuple[str, int], float] = {}
for kind in POSITIONS:
    pair, action, c = positions(kind)
    for k in SIZES:
        low, high = change_interval(View.top_k(pair.log_mu, pair.log_pi, action, k, bracket=True))
        assert np.all((low <= c) & (c <= high))  # never violated
        certified[kind, k] = float(np.mean((low > 0) | (high < 0)))
    print(f"   {kind:28}  " + "".join(f"{percent(certified[kind, k]):>9}" for k in SIZES))

assert certified["peaked", 20] > 0.99 and certified["flat", 20] > 0.8

# %% [markdown]
# The certificate assumes that the record is exact. An engine in low precision is not. Let every recorded
# $\log \mu$ be off by up to $\epsilon$. If the trainer states $\epsilon$, the interval is widened and stays
# true; if not, some certificates lie.

# %%
pair, action, c = positions("peaked")
rng = np.random.default_rng(1)
ids = np.argsort(-pair.log_mu, axis=-1)[:, :20]
top = np.take_along_axis(pair.log_mu, ids, axis=-1)
print("\n   peaked positions, K = 20      certified   of them wrong    not stated: certified   wrong")
lies = []
for error in (0.001, 0.01, 0.05):
    off = rng.uniform(-error, error, (TOKENS, 21))
    is_k = ids == action[:, None]
    own = np.where(is_k.any(axis=-1), np.where(is_k, off[:, :20], 0).sum(axis=-1), off[:, 20])
    record = (at_action(pair.log_mu, action) + own, ids, top + off[:, :20])
    cells = []
    for stated in (error, 0.0):
        seen = View.from_logits(pair.log_pi, action, *record, bracket=True, log_mu_error=stated, check=False)
        low, high = change_interval(seen)
        sure = (low > 0) | (high < 0)
        wrong = ((low > 0) & (c < 0)) | ((high < 0) & (c > 0))
        cells += [float(sure.mean()), float(wrong.sum() / max(sure.sum(), 1))]
    print(f"   log mu off by up to {error:5g} nats {percent(cells[0])}         {percent(cells[1])}", end="")
    print(f"                  {percent(cells[2])} {percent(cells[3])}")
    assert cells[1] == 0
    lies.append(cells[3])

assert lies == sorted(lies) and lies[-1] > 0.05

# %% [markdown]
# A certificate is about the Euclidean $c_k$ of lesson 04, for one token and free logits. It does not say that
# $c_k$ is the right test for your optimiser; lesson 05 says when it is.
#
# ## 6. What to take along
#
# 1. Where the top 20 hold more than 90 % of $\mu$, any estimator will do. Where they hold less and $\pi$ is
#    still like $\mu$, as on the recorded tokens, *aggregated* turns more signs than the ratio test that it is
#    to replace: between .5 and .9, where nearly half of them lie, 22 against 19 %, below .5 more than half.
#    There take *uniform*, *zero* or *proportional*. For unrelated policies it is the other way round:
#    *aggregated* is best, and *zero* turns more signs than the ratio test (12 against 10 %), *uniform* hardly
#    fewer.
# 2. At flat positions the larger loss is the *distance*: the coarse KL misses half of it, so "inside the
#    trust region" is not proven by a top-K record.
# 3. If a mask must not drop an update that leads inward, let it drop only where the sign is certified, with
#    the engine's error stated (the rule `certified` in `divsim.formulas`).
#
# `divsim exact tails` measures all this for vocabularies up to 151,936 tokens, with intervals;
# `divsim exact tails --world real` for the recorded tokens; `divsim verify --explain T7` proves it.
#
# ## Exercises
#
# 1. The tail has one token. Show that *aggregated* is exact, and find another tail on which it is.
# 2. Which estimators are exact if $\mu = \pi$ on the tail?
# 3. The sampled token lies outside the top $K$. Why must the cap $b$ still be the $K$-th largest $\mu$, and
#    not the smallest retained one?
# 4. Check numerically that *proportional* is the derivative of the coarse KL along the token's own step.
#
# *Solutions.* 1: with one hidden token, $t = \pi_T (\mu_T - \pi_T)$ is $P (M - P)$. Also wherever $\sum_{i
# \ne l} \pi_i (\mu_l - \pi_l) = 0$, for example $\mu = \pi$ on the tail. 2: all: then $t = 0$ and $M = P$.
# 3: the sampled token was returned because it was sampled, not because it is likely; a hidden token may
# well be likelier than it. 4:

# %%
pair, action, _ = positions("flat")
one = slice(0, 50)
log_mu, log_pi, k50 = pair.log_mu[one], pair.log_pi[one], action[one]
h = 1e-5  # central difference: error h^2, rounding 1e-16 / h


def coarse_kl(step: float) -> np.ndarray:
    logits = log_pi - step * np.exp(log_pi)
    logits[np.arange(50), k50] += step
    moved = logits - log_mass(np.exp(logits).sum(axis=-1, keepdims=True))
    return FORWARD_KL.measure(*View.top_k(log_mu, moved, k50, 20).cells)


slope = (coarse_kl(h) - coarse_kl(-h)) / (2 * h)
said = change(View.top_k(log_mu, log_pi, k50, 20), FORWARD_KL, "proportional")
print(
    f"\nEXERCISE 4\n   derivative of the coarse KL against 'proportional': {np.max(np.abs(slope - said)):.0e}"
)

assert np.allclose(slope, said, rtol=0, atol=1e-9)
