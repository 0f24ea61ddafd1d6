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
# # Two directions
#
# A trust-region mask drops the update of a sampled token $k$ if the training policy $\pi$ is already far
# from the behaviour policy $\mu$ **and** the update leads further out. There are two ways to ask for the
# direction, and lesson 04 derived both from $d_i = \pi_i - \mu_i$:
#
# * the **ratio test** of PPO and DPPO: outward if and only if $A\, d_k > 0$, that is $A (r - 1) > 0$;
# * the **divergence test** of the predictive mask ([PDM] in REFERENCES.md): outward if and only if
#   $A\, c_k > 0$, with $c_k = d_k - \mathrm{E}_\pi[d]$.
#
# Here $A$ is the advantage and $r = \pi_k / \mu_k$. Both claim to say whether
# $D = \mathrm{KL}(\mu \,\|\, \pi)$ rises. They disagree on some tokens, so on those one of them is wrong.
# Which one? This lesson answers by *taking the step*. Before each measurement, stop and guess.
#
# You need lesson 04. Afterwards you can say who the disputed tokens are, why the answer depends on what a
# step is, what "the change under an update" can mean, and which of its meanings a mask controls.

# %%
from fractions import Fraction
from itertools import pairwise

import numpy as np

from divsim.formulas import (
    FORWARD_KL,
    REVERSE_KL,
    TV,
    View,
    change,
    curvature,
    difference,
    exponential_path,
    finite_change,
    flip_step_bracket,
    kernel_change,
    mean_under,
    policy_gradient_direction,
)
from divsim.tabular.agreement import disagree, scores, see, verdicts
from divsim.tabular.geometry import EUCLIDEAN, NATURAL, SIGN, linear_head
from divsim.tabular.language import WORLDS
from divsim.tabular.lines import flip_step, line
from divsim.tabular.mismatch import MISMATCHES, mismatched
from divsim.tabular.policies import PolicyPair, at_action, dirichlet, sample_from
from divsim.tabular.real_tokens import load
from divsim.tabular.shared_head import SETTINGS, collect, effects


def percent(share: float) -> str:
    return f"{100 * share:5.1f} %"


# %% [markdown]
# ## 1. Who is disputed
#
# Call a token **disputed** if the two tests point to opposite sides. The ratio test compares $d_k$ with 0,
# the divergence test compares it with the average $\mathrm{E}_\pi[d]$. So a token is disputed exactly when
# $d_k$ lies strictly between the two (theorem T5a; `divsim verify --explain T5` prints it):
#
# $$0 < \frac{d_k}{\mathrm{E}_\pi[d]} < 1. \tag{1}$$
#
# Start small: three tokens and sevenths. No policies with a smaller common denominator have a disputed
# token, and these have the only one with sevenths, up to the names of the tokens (T5e).

# %%
mu_7, pi_7 = [Fraction(n, 7) for n in (5, 1, 1)], [Fraction(n, 7) for n in (1, 2, 4)]
d_7 = [p - m for m, p in zip(mu_7, pi_7, strict=True)]
average_7 = sum(p * d for p, d in zip(pi_7, d_7, strict=True))
c_7 = [d - average_7 for d in d_7]
print("1. WHO IS DISPUTED")
print(f"   mu = (5, 1, 1)/7, pi = (1, 2, 4)/7, the average of d is {average_7}; for A > 0:")
print("             d          c     ratio test   divergence test")
for k, (d_k, c_k) in enumerate(zip(d_7, c_7, strict=True)):
    ways = ["outward" if x > 0 else "inward" for x in (d_k, c_k)]
    print(f"   token {k}  {d_k!s:>4}  {c_k!s:>9}     {ways[0]:10}   {ways[1]:10}", end="")
    print("  disputed" if ways[0] != ways[1] else "")
    assert (ways[0] != ways[1]) == (0 < d_k / average_7 < 1)

log_pair = np.log(np.array([[5, 1, 1], [1, 2, 4]]) / 7)
rise = 0.1 * policy_gradient_direction(log_pair[1], np.array(1))
moved_7 = float(finite_change(*log_pair, rise))
print(f"   raise token 1 by a step of 0.1: KL changes by {moved_7:+.4f}")

step_7 = [int(i == 1) - p for i, p in enumerate(pi_7)]
mean_step = sum(p * v for p, v in zip(pi_7, step_7, strict=True))
speed = [p * (v - mean_step) for p, v in zip(pi_7, step_7, strict=True)]  # the derivative of softmax
print(f"   at first, the probabilities move at the rates {', '.join(map(str, speed))}")

assert average_7 == Fraction(10, 49) and c_7[1] == Fraction(-3, 49)
assert moved_7 < 0 and speed == [0, Fraction(12, 49), Fraction(-12, 49)]

# %% [markdown]
# Token 1 has risen, from $\mu_1 = 1/7$ to $\pi_1 = 2/7$, so the ratio test calls raising it further
# *outward*. But see who pays: at first, what token 1 gains is what token 2 loses. Under $\mu$ the two are
# equally likely, and token 2 has risen even more, to 4/7. The step evens them out, and KL falls.
#
# So the disputed tokens are *moderate*: they moved the way the average moved, but less. Three consequences,
# without any measurement:
#
# 1. The tokens with the largest $d$ and with the smallest are never disputed (T5c), and therefore never the
#    one with the largest $|d|$.
# 2. With two tokens there is no room between 0 and the average: $c_k = 2 (1 - \pi_k)\, d_k$ (T5d).
# 3. If $\mathrm{E}_\pi[d] > 0$, which is certain when $\pi$ is the sharper of the two in the sense of
#    $\sum_i \pi_i^2 \ge \sum_i \mu_i^2$ (T5a), the disputed tokens are small *risers*; where it is negative,
#    small *fallers*.
#
# **Guess.** A policy is made sharper: all its logits are multiplied by 1.5. What share of sampled tokens is
# disputed: 1 %, 10 % or 50 %? And if it is made flatter? Does the share grow or fall among tokens that are
# far from $\mu$?

# %%
VOCAB, TOKENS = 1000, 3000


def sampled(mismatch: str, seed: int = 0) -> tuple[PolicyPair, np.ndarray, dict[str, np.ndarray]]:
    """Pairs of policies, a token sampled from each mu, and the scores of every test of direction."""
    rng = np.random.default_rng(seed)
    pair = mismatched(WORLDS["language"], MISMATCHES[mismatch])(rng, (TOKENS,), VOCAB)
    action = sample_from(rng, pair.log_mu)
    return pair, action, scores(see(pair, action, k=20))


print(f"\n   {TOKENS} sampled tokens of a peaked world, V = {VOCAB}; far: KL > 0.05")
print("   mismatch       mean KL   disputed   of them: risers   E_pi[d] > 0      far   disputed of the far")
everywhere, risers, beyond = {}, {}, {}
for name in ("sharpen_1.5", "flatten_0.7", "noise_0.5", "stale_16", "fp8_head"):
    pair, action, score = sampled(name)
    disputed = disagree(score)
    d = difference(pair.log_mu, pair.log_pi)
    average = mean_under(pair.log_pi, d)
    extreme = np.argmax(np.abs(d), axis=-1) == action
    kl = FORWARD_KL.measure(pair.log_mu, pair.log_pi)
    far = kl > 0.05
    risers[name] = np.mean(at_action(d, action)[disputed] > 0)
    everywhere[name] = np.mean(disputed)
    print(
        f"   {name:12} {kl.mean():9.4f}    {percent(everywhere[name])}          {percent(risers[name])}",
        end="",
    )
    print(f"       {percent(np.mean(average > 0))}    {int(far.sum()):5}", end="")
    if far.sum() > 100:
        beyond[name] = np.mean(disputed[far])
        print(f"               {percent(beyond[name])}")
    else:
        print("               too few")
    between = (at_action(d, action) / average > 0) & (at_action(d, action) / average < 1)
    assert np.array_equal(disputed, between) and not np.any(disputed & extreme)
    assert 0.005 < everywhere[name] < 0.04

assert risers["sharpen_1.5"] == 1 and risers["flatten_0.7"] == 0
assert set(beyond) == set(everywhere) - {"fp8_head"}
assert all(everywhere[name] < share < 0.06 for name, share in beyond.items())

two_tokens = np.random.default_rng(0)
two = PolicyPair(*(dirichlet(two_tokens, (1000,), 2, 1.0) for _ in range(2)))
never = disagree(scores(see(two, np.zeros(1000, dtype=int), k=1)))
print(f"   1,000 random pairs with two tokens: {int(never.sum())} disputed")
assert not np.any(never)

# %% [markdown]
# One to three per cent, and 2 to 5 % of the far ones. With temperature alone *every* disputed token moves
# the predicted way. How is it on a real model? The package ships what an engine and a trainer of a small
# language model said at some 800 tokens a pair, with the exact $c_k$ over 49,152 tokens.
#
# **Guess.** More or fewer? The small model is less sure of itself than the peaked world: its 20 likeliest
# tokens hold 99 % of $\mu$ at one position in six only.

# %%
print(
    "\n   recorded tokens of a 135M-parameter model   tokens   disputed   peaked: top 20 > .99   open: < .8"
)
for tokens in load().values():
    gap = difference(tokens.log_mu_k, tokens.log_pi_k)
    known = (np.abs(tokens.c) > 1e-6) & (np.abs(gap) > 1e-6)  # below, the sign is noise of float32
    opposed, mass = gap * tokens.c < 0, tokens.top_20_mass
    real, peaked, open_ = (np.mean(opposed[known & among]) for among in (mass >= 0, mass > 0.99, mass < 0.8))
    print(f"   {tokens.name:39} {int(known.sum()):10}    {percent(real)}", end="")
    print(f"                {percent(peaked)}     {percent(open_)}")
    assert real > 3 * max(everywhere.values()) and peaked < 0.05 < 0.2 < open_
    assert 0.12 < np.mean(mass[known] > 0.99) < 0.2  # one in six

# %% [markdown]
# Three times the largest share above, and more. It is the openness: where the small model is sure, 3 to 5 %
# are disputed, as in the peaked world; where it is not, one in five to one in four, because there
# $\mathrm{E}_\pi[d]$ is not negligible beside $d_k$. [PDM] counts 5.7 % among its far tokens: that is a
# number of one set of distributions, not of the tests.
#
# ## 2. The same token, four steps
#
# Now take the step. A *geometry* says how the gradient of the sampled token becomes a displacement of the
# logits; $s = \eta A r$ is its size. Each token's **flip step** $s^*$ is the size at which KL is back where
# it was (section 3); below, all steps are a tenth of it. The *own rate* is the first-order change of the
# very step taken, the last column of this table.
#
# | geometry | displacement of the logits | first-order change of KL |
# |---|---|---|
# | Euclidean: plain gradient, one free logit a token | $s (e_k - \pi)$ | $s\, c_k$ |
# | sign: a sign optimiser, or Adam's first step | $s\,\mathrm{sign}(e_k - \pi)$ | $2 s\, d_k$ |
# | natural gradient of free logits | $s\, e_k / \pi_k$ | $s\, d_k / \pi_k$ |
# | linear head with kernel $K = W W^\top$ | $s\, K (e_k - \pi)$ | $s\, d^\top K (e_k - \pi)$ |
#
# The sign step adds 1 to logit $k$ and $-1$ to all others. A common shift of all logits changes no policy, so
# it is the same as adding 2 to logit $k$ *alone*; the natural step adds $1/\pi_k$ to logit $k$ alone. They go
# along one line, in two units. And along that line KL changes with the sign of $d_k$: it is the ratio test.
#
# **Guess.** On the disputed tokens, in which rows of the table is the ratio test right, and in which is
# $c_k$?

# %%
one = np.array(1)
by_sign = exponential_path(log_pair[1], SIGN.direction(log_pair[1], one), 0.3)
by_natural = exponential_path(log_pair[1], NATURAL.direction(log_pair[1], one), 0.6 * np.exp(log_pair[1, 1]))
print("\n2. THE SAME TOKEN, FOUR STEPS")
print("   pi = (1, 2, 4)/7, raise token 1: a sign step of 0.3 and a natural step of 0.6 pi_1 end at")
print(f"   {np.exp(by_sign).round(6)} and {np.exp(by_natural).round(6)}")
assert np.allclose(by_sign, by_natural, rtol=0, atol=1e-14)  # a few roundings of numbers near 1

pair, action, score = sampled("noise_0.5")
far = FORWARD_KL.measure(pair.log_mu, pair.log_pi) > 0.05
advantage = np.random.default_rng(1).choice([-1.0, 1.0], TOKENS)
said = verdicts(score, advantage)
features = np.random.default_rng(2).standard_normal((VOCAB, 32))

print(f"\n   a step of a tenth of each token's flip step; {int(far.sum())} tokens with KL > 0.05,")
print(f"   of which {int((far & disagree(score)).sum())} are disputed")
print("   geometry        ratio right   c_k right   own rate right    on the disputed: ratio   c_k")
right = {}
for geometry in (EUCLIDEAN, SIGN, NATURAL, linear_head(features)):
    along = line(geometry, pair, action)
    rises = along.realised(0.1 * advantage * np.abs(flip_step(along))) > 0
    told = {"ratio": said["ratio"], "c_k": said["full"], "own": advantage * along.rate() > 0}
    hits = {test: outward == rises for test, outward in told.items()}
    right[geometry.name] = {test: np.mean(hit[far]) for test, hit in hits.items()}
    disputed = far & disagree(score)
    row = [percent(np.mean(hits[test][far])) for test in ("ratio", "c_k", "own")]
    ends = [percent(np.mean(hits[test][disputed])) for test in ("ratio", "c_k")]
    print(
        f"   {geometry.name:14} {row[0]:>12}   {row[1]}         {row[2]}                  {ends[0]} {ends[1]}"
    )

assert right["euclidean"]["c_k"] == 1 > right["euclidean"]["ratio"]
assert right["sign"]["ratio"] == right["natural"]["ratio"] == 1 > right["sign"]["c_k"]
assert right["linear_head"]["own"] == 1 > max(right["linear_head"][test] for test in ("ratio", "c_k"))

# %% [markdown]
# Neither test is *the* right one. Each is exact for its own geometry: $c_k$ for the plain gradient in free
# logits, the ratio for the sign step and for the natural gradient of free logits (T5g). For shared weights
# neither is exact, and what is exact is the rate of the step that is really taken.
#
# ![the paths of one token's step in four geometries](../figures/step_paths.png)
#
# For a small vocabulary the head's rate can be written with its kernel $K = W W^\top$; `kernel_change` does.
# Here is a head of rank 2, and beside each prediction the change that a small step in the head's own weights
# really makes, per unit of step.

# %%
small = np.random.default_rng(3).standard_normal((5, 2))
head = linear_head(small)
log_mu = np.log(np.array([0.30, 0.25, 0.20, 0.15, 0.10]))
log_pi = np.log(np.array([0.32, 0.10, 0.33, 0.15, 0.10]))
tiny = 1e-4
plain, kernel, real_rate = [], [], []
print("\n   five tokens, a head of rank 2:   d_k      c_k      with the kernel    realised")
for k in range(5):
    d_k = float(np.exp(log_pi[k]) - np.exp(log_mu[k]))
    direction = head.direction(log_pi, np.array(k))
    plain.append(float(change(View.full(log_mu, log_pi, np.array(k)))))
    kernel.append(float(kernel_change(FORWARD_KL, log_mu, log_pi, np.array(k), small @ small.T)))
    real_rate.append(float(finite_change(log_mu, log_pi, tiny * direction)) / tiny)
    print(f"   token {k}                       {d_k:+.3f}   {plain[k]:+.3f}   {kernel[k]:+.3f}", end="")
    print(f"             {real_rate[k]:+.3f}")
    # What the first order leaves out is s/2 times the curvature, up to a factor near 1.
    assert abs(real_rate[k] - kernel[k]) < tiny * float(curvature(log_pi, direction))

turned = int(np.sum(np.sign(plain) != np.sign(kernel)))
print(f"   the head turns {turned} of 5 signs of c_k")
assert turned == 2 and np.array_equal(np.sign(kernel), np.sign(real_rate))
# Both have mean zero under pi, whatever the kernel is.
assert np.allclose([np.exp(log_pi) @ plain, np.exp(log_pi) @ kernel], 0, atol=1e-15)

# %% [markdown]
# Tokens 3 and 4 have $r = 1$. The ratio test calls them neutral, $c_k$ says that raising them lowers KL, and
# with this head KL rises. Three answers, and the step decides. How much of the two tests is left depends on
# the number of features:
#
# ![how far a head of rank d turns the two tests, for d from 2 to V - 1](../figures/kernel_angle.png)
#

# %% [markdown]
# ## 3. How far a prediction reaches
#
# KL is convex along every line of logits. So a predicted *increase* is real at every step size, and a
# predicted *decrease* is real up to the **flip step** $s^*$, at which KL is back where it was, and false
# beyond it. For the Euclidean step $s^*$ has a bracket in closed form (T3g).
#
# ![a predicted decrease has an end, a predicted increase has none](../figures/flip_step.png)
#
# **Guess.** There is a third test, "always outward", which says yes to everything. Can it ever be the best of
# the three?

# %%
along = line(EUCLIDEAN, pair, action)
flip = np.abs(flip_step(along))
low, high = flip_step_bracket(pair.log_mu, pair.log_pi, action)
print("\n3. HOW FAR A PREDICTION REACHES")
print(f"   Euclidean flip step of {TOKENS} tokens, noise of .5 nats:")
edges = np.array([0, 0.1, 1, 10, 100, np.inf])
for a, b in pairwise(edges):
    share = np.mean((flip >= a) & (flip < b))
    print(f"   {a:6g} to {b:<6g} {percent(share)} {'#' * round(60 * share)}")

fractions = (0.1, 0.9, 1.1, 3.0)
after = [along.realised(fraction * advantage * flip) > 0 for fraction in fractions]
table = {
    "predicted up: KL rises": [np.mean(rises[said["full"]]) for rises in after],
    "predicted down: KL falls": [np.mean(~rises[~said["full"]]) for rises in after],
    "KL rises, of all tokens": [np.mean(rises) for rises in after],
    "right: ratio test": [np.mean(said["ratio"] == rises) for rises in after],
    "right: divergence test": [np.mean(said["full"] == rises) for rises in after],
    "right: always outward": [np.mean(said["always"] == rises) for rises in after],
}
print("   step / s*                     0.1     0.9     1.1       3")
for words, shares in table.items():
    print(f"   {words:24}" + "".join(f"{percent(share):>8}" for share in shares))

assert table["predicted up: KL rises"] == [1, 1, 1, 1]
assert table["predicted down: KL falls"] == [1, 1, 0, 0]
assert (
    table["right: always outward"][:2] < table["right: ratio test"][:2] < table["right: divergence test"][:2]
)
assert table["right: always outward"][2:] == [1, 1]
assert max(table["right: ratio test"][2:] + table["right: divergence test"][2:]) < 0.6
assert np.all((low <= flip * (1 + 1e-6)) & (flip <= high * (1 + 1e-6)))  # Newton stops at 1e-5, squared

# %% [markdown]
# Within $s^*$ the divergence test is never wrong. Beyond it everything rises, "always outward" is never
# wrong, and both tests of direction do as well as a coin: they were right about the *start* of the step.
#
# ## 4. Where the certainty ends
#
# A mask **falsely blocks** a token if its test predicts an increase, and the step that was really meant would
# have lowered the divergence. For the full forward KL that cannot happen, at any step size: what the first
# order leaves out is never negative (T3c),
#
# $$D(s) - D(0) = s\, c_k + \mathrm{KL}(\pi \,\|\, \pi(s)) \ge s\, c_k. \tag{2}$$
#
# **Guess.** Does the same hold for reverse KL? For total variation? For the *lumped* forward KL, in which a
# top-K mask puts all hidden tokens into one cell? One exact pair each settles it (T4o, T3h). The last two
# columns take the very same step and ask the full forward KL, as a control.

# %%
FALSE_BLOCKS = {
    "reverse KL": (REVERSE_KL, (1, 8, 2), (4, 6, 1), 2, -6.0, None),
    "TV": (TV, (1, 5, 2), (3, 4, 1), 2, -3.0, None),
    "lumped KL, K = 1": (FORWARD_KL, (334, 1, 333, 332), (470, 1, 495, 34), 1, -15.0, 1),
}
print("\n4. WHERE THE CERTAINTY ENDS")
print("                                                             its own change         full forward KL")
print("   divergence         mu, pi                            predicted   realised   predicted   realised")
for name, (divergence, mu_n, pi_n, token, s, top) in FALSE_BLOCKS.items():
    log_mu_n, log_pi_n = (np.log(np.array(weights) / sum(weights)) for weights in (mu_n, pi_n))
    k = np.array(token)
    moved = exponential_path(log_pi_n, policy_gradient_direction(log_pi_n, k), s)

    def seen(log_policy: np.ndarray, log_mu=log_mu_n, k=k, top=top) -> View:
        return View.full(log_mu, log_policy, k) if top is None else View.top_k(log_mu, log_policy, k, top)

    tail = "full" if top is None else "proportional"  # the exact derivative of the lumped divergence
    predicted = s * float(change(seen(log_pi_n), divergence, tail))
    realised = float(divergence.measure(*seen(moved).cells) - divergence.measure(*seen(log_pi_n).cells))
    control = s * float(change(View.full(log_mu_n, log_pi_n, k)))
    whole_kl = float(FORWARD_KL.measure(log_mu_n, moved) - FORWARD_KL.measure(log_mu_n, log_pi_n))
    policies = f"{mu_n}, {pi_n}".replace(" ", "")
    print(f"   {name:18} {policies:36} {predicted:+.4f}    {realised:+.4f}", end="")
    print(f"     {control:+.4f}    {whole_kl:+.4f}")
    assert predicted > 0 > realised and whole_kl >= control

# %% [markdown]
# Three false blocks, and the control obeys (2) three times. The steps are large: near $s = 0$ every
# derivative is right. How rare false blocks are on ordinary tokens is measured by `divsim exact direction`.
#
# ## 5. One update, three questions
#
# A real update is a minibatch on shared weights. "Did this token's divergence rise?" then hides three
# questions about token $t$:
#
# * **own**: what would its own step, alone, do to its own $D_t$?
# * **marginal**: what does it add: $D_t$ after the update, minus $D_t$ after the same update without it?
# * **whole**: what does the whole update do to $D_t$, whoever caused it? This is what [PDM] reports.
#
# A mask can only drop a token's own push, so it controls the first two. Below, a linear head of rank 32 is
# trained on minibatches of one rollout, whose engine errs by .3 nats on every logit; we look at the next
# update, with SGD and with Adam. One common update, no mask, and every test is asked in advance.
#
# Before the numbers, two ways to score a test:
#
# * **accuracy**: how often "outward" and "KL rises" coincide. A test that always says "outward" has the
#   *base rate* of rising as its accuracy, and knows nothing.
# * **risk difference**: P(rises | said outward) - P(rises | said inward). It is 1 for a test that knows
#   everything, and 0 for a coin, whatever the base rate is.
#
# There are two references, which need the weights: the *own rate* of section 2, and the **whole rate**, the
# first-order change of $D_t$ under the whole update.
#
# **Guess.** For the whole update: which of the five tests has the best accuracy? Would it be a good mask?

# %%
print("\n5. ONE UPDATE, THREE QUESTIONS")
print("                                     risk difference                          accuracy")
print(
    "   optimiser  question   KL rises    ratio    c_k  own rate  whole rate    ratio     c_k   always",
    end="",
)
print("  whole rate")


def risk_difference(outward: np.ndarray, rises: np.ndarray) -> float:
    return float(rises[outward].mean() - rises[~outward].mean())


found: dict[tuple[str, str], dict[str, float]] = {}
exact: dict[tuple[str, str], dict[str, float]] = {}
size, misled = {}, {}
for name in ("sgd_engine", "adam_engine"):
    drawn = [collect(SETTINGS[name], 128, np.random.default_rng([7, seed])) for seed in range(6)]
    outcome = [effects(batch, delta=0.05) for batch in drawn]
    far = np.concatenate([FORWARD_KL.measure(b.pair.log_mu, b.pair.log_pi) for b in drawn]) > 0.05
    told = [verdicts(scores(see(b.pair, b.action, k=20)), b.advantage) for b in drawn]
    tests = {
        "ratio": np.concatenate([t["ratio"] for t in told])[far],
        "c_k": np.concatenate([t["full"] for t in told])[far],
        "own rate": np.concatenate([e.own_rate > 0 for e in outcome])[far],
        "whole rate": np.concatenate([e.whole_rate > 0 for e in outcome])[far],
        "always": np.ones(int(far.sum()), dtype=bool),
    }
    changes = {q: np.concatenate([getattr(e, q) for e in outcome])[far] for q in ("own", "marginal", "whole")}
    for question, realised in changes.items():
        rises, key = realised > 0, (name, question)
        found[key] = {test: risk_difference(said, rises) for test, said in tests.items() if test != "always"}
        exact[key] = {test: float(np.mean(said == rises)) for test, said in tests.items()}
        row = f"   {name.split('_')[0]:9}  {question:9}  {percent(rises.mean())}    "
        row += "{ratio:+.2f}  {c_k:+.2f}     {own rate:+.2f}       {whole rate:+.2f}  ".format(**found[key])
        row += " ".join(percent(exact[key][test]) for test in ("ratio", "c_k", "always", "whole rate"))
        print(row)
        assert exact[key]["always"] == rises.mean()
    size[name] = np.median(np.abs(changes["own"]) / np.abs(changes["whole"]))
    drop = tests["whole rate"]
    misled[name] = np.mean(changes["own"][drop] < 0), np.mean(changes["own"][~drop] > 0)

for name in size:
    print(f"   {name.split('_')[0]}: |own| is {size[name]:.2f} of |whole| in the median", end="")
    print("; of what a mask by the whole rate drops,")
    print(f"         {percent(misled[name][0])} would have lowered their own D; of what it keeps,", end="")
    print(f" {percent(misled[name][1])} raise it")

for name in size:
    own, whole = (name, "own"), (name, "whole")
    for test in ("ratio", "c_k", "own rate"):
        assert found[whole][test] < 0.5 < 0.7 < found[own][test]
    assert max(exact[whole], key=exact[whole].__getitem__) == "whole rate"
    assert exact[whole]["always"] > max(exact[whole]["ratio"], exact[whole]["c_k"])
    assert size[name] < 0.5 and min(misled[name]) > 0.2
assert found["sgd_engine", "own"]["c_k"] > 0.99 > found["sgd_engine", "own"]["ratio"] + 0.1
assert found["adam_engine", "own"]["own rate"] > 0.98 > found["adam_engine", "own"]["c_k"] + 0.2

# %% [markdown]
# Read down a column first. All tests that know the token's own push know a great deal about its own step
# and about what it adds, and half as much or less about the whole update. No wonder: in the median the own
# push is .4 of the whole change with SGD and .1 with Adam; the rest comes from other tokens, through shared
# weights.
#
# Now the accuracies of the whole update. With neither optimiser does $c_k$ reach the base rate: "always
# outward", which knows nothing, is right more often. Its risk difference does not exist, since it never says
# "inward". Never read an accuracy without its base rate.
#
# The best predictor of the whole update is its own first-order change, by both measures. It makes a bad mask.
# More than a quarter of the pushes that it would drop *lower* their own divergence, and more than a quarter
# of those that it would keep raise it: it punishes and spares tokens for what their neighbours do. Prediction
# and control are different questions, and a mask controls.
#
# With SGD the own step of a token on the head is nearly the Euclidean one, and $c_k$ is right about it.
# Adam divides by the size of past gradients; there the ratio and $c_k$ are equally good, and only the rate
# of the step that is really taken is nearly so. These are six small minibatches without intervals; `divsim
# exact direction --preset full` measures 61 seeds, and `divsim claims` says what is left of the papers'
# claims.
#
# ## 6. What this lesson does not say
#
# * It does not say which test trains better. A network has a backbone below its head, whose kernel is not the
#   identity either, and momentum.
# * It does not say that a mask keeps KL inside its radius: the own push that a mask removes is a small part
#   of what moves a token.
# * It says nothing about top-K views, on which $c_k$ must be estimated: that is lesson 06.
#
# ## Exercises
#
# 1. Show that the token with the largest $d$ is never disputed, without looking at section 1 again.
# 2. The training policy $\pi$ is uniform over $V$ tokens. When do the tests disagree?
# 3. In section 2, replace `linear_head(features)` by a head of rank 999. Why is $c_k$ still not exact?
# 4. By search over random heads of rank 2: of the five tokens at the end of section 2, how many can a head
#    turn at once, so that their kernel change has not the sign of their $c_k$?
#
# *Solutions.* 1: the average under $\pi$ of numbers that are all at most $d_k$ is at most $d_k$, and below it
# unless all are equal; so $d_k$ lies beyond the average, not between 0 and it. 2: never: if $\pi$ is uniform,
# $\mathrm{E}_\pi[d] = \sum_i d_i / V = 0$, and nothing lies between 0 and 0, whatever $\mu$ is. 3: $W W^\top$
# of a random $W$ is no multiple of the identity, however large its rank: its eigenvalues spread. 4: four of
# the five.

# %%
turned = []
for seed in range(4000):
    head = np.random.default_rng(seed).standard_normal((5, 2))
    kernel = [kernel_change(FORWARD_KL, log_mu, log_pi, np.array(k), head @ head.T) for k in range(5)]
    turned.append(int(np.sum(np.sign(kernel) != np.sign(plain))))
print("\nEXERCISE 4")
print(f"   of 4,000 heads of rank 2, so many turn 0, 1, 2, 3, 4 signs: {np.bincount(turned).tolist()}")

assert max(turned) == 4
