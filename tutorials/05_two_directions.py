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
from itertools import pairwise

import numpy as np

from divsim.formulas import (
    FORWARD_KL,
    TV,
    View,
    change,
    difference,
    exponential_path,
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
from divsim.tabular.policies import PolicyPair, at_action, sample_from
from divsim.tabular.real_tokens import load
from divsim.tabular.shared_head import SETTINGS, collect, effects


def percent(share: float) -> str:
    return f"{100 * share:5.1f} %"


# %% [markdown]
# ## 1. Who is disputed
#
# The ratio test compares $d_k$ with 0, the divergence test with the average $\mathrm{E}_\pi[d]$. They
# disagree exactly when $d_k$ lies strictly between the two (theorem T5a; here and below, `divsim verify
# --explain T5` prints the theorems). So the disputed tokens are *moderate*: they moved the way the average
# moved, but less. Three consequences, without any measurement:
#
# 1. The token with the largest $d$, and the one with the smallest, are never disputed (T5c).
# 2. With two tokens there is no room between 0 and the average: no dispute (T5d).
# 3. If $\mathrm{E}_\pi[d] > 0$, which is the case when $\pi$ became sharper, the disputed tokens are small
#    *risers*; if it is negative, small *fallers*.
#
# **Guess.** A policy is made sharper: all its logits are multiplied by 1.5. What share of sampled tokens is
# disputed: 1 %, 10 % or 50 %? And if it is made flatter?

# %%
VOCAB, TOKENS = 1000, 3000


def sampled(mismatch: str, seed: int = 0) -> tuple[PolicyPair, np.ndarray, dict[str, np.ndarray]]:
    """Pairs of policies, a token sampled from each mu, and the scores of every test of direction."""
    rng = np.random.default_rng(seed)
    pair = mismatched(WORLDS["language"], MISMATCHES[mismatch])(rng, (TOKENS,), VOCAB)
    action = sample_from(rng, pair.log_mu)
    return pair, action, scores(see(pair, action, k=20))


print("1. WHO IS DISPUTED")
print(f"   {TOKENS} sampled tokens of a peaked world, V = {VOCAB}")
print("   mismatch       mean KL   disputed   of them: risers   E_pi[d] > 0   largest |d| disputed")
risers = {}
for name in ("sharpen_1.5", "flatten_0.7", "noise_0.5", "stale_16", "fp8_head"):
    pair, action, score = sampled(name)
    disputed = disagree(score)
    d = difference(pair.log_mu, pair.log_pi)
    average = mean_under(pair.log_pi, d)
    extreme = np.argmax(np.abs(d), axis=-1) == action
    kl = FORWARD_KL.measure(pair.log_mu, pair.log_pi).mean()
    risers[name] = np.mean(at_action(d, action)[disputed] > 0)
    shares = [np.mean(x) for x in (disputed, average > 0, disputed & extreme)]
    print(f"   {name:12} {kl:9.4f}    {percent(shares[0])}          {percent(risers[name])}", end="")
    print(f"       {percent(shares[1])}                {percent(shares[2])}")
    between = (at_action(d, action) / average > 0) & (at_action(d, action) / average < 1)
    assert np.array_equal(disputed, between) and not np.any(disputed & extreme)
    assert 0 < shares[0] < 0.1

assert risers["sharpen_1.5"] == 1 and risers["flatten_0.7"] == 0

# %% [markdown]
# About one to three per cent, and with temperature alone *every* disputed token moves the predicted way.
# How is it on a real model? The package ships what an engine and a trainer of a small language model said
# at some 800 tokens a pair, with the exact $c_k$ over 49,152 tokens.

# %%
print("\n   recorded tokens of a 135M-parameter model        tokens    disputed")
for tokens in load().values():
    gap = difference(tokens.log_mu_k, tokens.log_pi_k)
    known = (np.abs(tokens.c) > 1e-6) & (np.abs(gap) > 1e-6)  # below, the sign is noise of float32
    real = np.mean((gap * tokens.c < 0)[known])
    print(f"   {tokens.name:44} {int(known.sum()):10}    {percent(real)}")
    assert 0.05 < real < 0.25

# %% [markdown]
# Three times as many and more. The small model is much flatter than the peaked world, and flat positions are
# where $\mathrm{E}_\pi[d]$ is not negligible beside $d_k$. Whoever quotes "5.7 % disputed" from [PDM] quotes
# one set of distributions.
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
pair, action, score = sampled("noise_0.5")
far = FORWARD_KL.measure(pair.log_mu, pair.log_pi) > 0.05
advantage = np.random.default_rng(1).choice([-1.0, 1.0], TOKENS)
said = verdicts(score, advantage)
features = np.random.default_rng(2).standard_normal((VOCAB, 32))

print("\n2. THE SAME TOKEN, FOUR STEPS")
print(f"   a step of a tenth of each token's flip step; {int(far.sum())} tokens with KL > 0.05,")
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
# neither is exact, and what is exact is the rate of the step that is really taken. The picture
# `figures/step_paths.png` shows the four paths on one triangle.
#
# For a small vocabulary the head's rate can be written with its kernel $K = W W^\top$:

# %%
small = np.random.default_rng(3).standard_normal((5, 2))
log_mu = np.log(np.array([0.30, 0.25, 0.20, 0.15, 0.10]))
log_pi = np.log(np.array([0.32, 0.10, 0.33, 0.15, 0.10]))
plain = [float(change(View.full(log_mu, log_pi, np.array(k)))) for k in range(5)]
kernel = [float(kernel_change(FORWARD_KL, log_mu, log_pi, np.array(k), small @ small.T)) for k in range(5)]
print("\n   five tokens, a head of rank 2:   d_k      c_k      with the kernel")
for k in range(5):
    d_k = float(np.exp(log_pi[k]) - np.exp(log_mu[k]))
    print(f"   token {k}                       {d_k:+.3f}   {plain[k]:+.3f}   {kernel[k]:+.3f}")
assert np.any(np.sign(plain) != np.sign(kernel))
# Both have mean zero under pi, whatever the kernel is.
assert np.allclose([np.exp(log_pi) @ plain, np.exp(log_pi) @ kernel], 0, atol=1e-15)

# %% [markdown]
# ## 3. How far a prediction reaches
#
# KL is convex along every line of logits. So a predicted *increase* is real at every step size, and a
# predicted *decrease* is real up to the **flip step** $s^*$, at which KL is back where it was, and false
# beyond it. For the Euclidean step $s^*$ has a bracket in closed form (T3g).

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
print("   step / s*                     0.1     0.9     1.1       3")
for words, test in (("predicted up: KL rises  ", said["full"]), ("predicted down: KL falls", ~said["full"])):
    cells = []
    for fraction in (0.1, 0.9, 1.1, 3.0):
        rises = along.realised(fraction * advantage * flip) > 0
        cells.append(np.mean((rises if "up" in words else ~rises)[test]))
    print(f"   {words}" + "".join(f"{percent(cell):>8}" for cell in cells))
    assert cells == ([1, 1, 1, 1] if "up" in words else [1, 1, 0, 0])

assert np.all((low <= flip * (1 + 1e-6)) & (flip <= high * (1 + 1e-6)))

# %% [markdown]
# This is why "always outward", a test that says yes to everything, beats both tests for large steps: beyond
# $s^*$ everything rises. A test of *direction* is a statement about small steps.
#
# The certainty of a predicted increase belongs to the full forward KL and a few others. For total variation,
# one exact pair suffices (T4o):

# %%
mu, pi, k, s = np.array([1, 5, 2]) / 8, np.array([3, 4, 1]) / 8, np.array(2), -3.0
predicted = s * float(change(View.full(np.log(mu), np.log(pi), k), TV))
moved = exponential_path(np.log(pi), policy_gradient_direction(np.log(pi), k), s)
realised = float(TV.measure(np.log(mu), moved) - TV.measure(np.log(mu), np.log(pi)))
print(f"\n   TV, mu = (1, 5, 2)/8, pi = (3, 4, 1)/8: predicted {predicted:+.4f}, realised {realised:+.4f}")
assert predicted > 0 > realised

# %% [markdown]
# ## 4. One update, three questions
#
# A real update is a minibatch on shared weights. "Did this token's divergence rise?" then hides three
# questions about token $t$:
#
# * **own**: what would its own step, alone, do to its own $D_t$?
# * **marginal**: what does it add: $D_t$ after the update, minus $D_t$ after the same update without it?
# * **whole**: what does the whole update do to $D_t$, whoever caused it? This is what [PDM] reports.
#
# A mask can only drop a token's own push, so it controls the first two. Below, a linear head of rank 32 is
# trained on minibatches of one rollout; we look at the next update, with SGD and with Adam. One common
# update, all tests, no mask.
#
# **Guess.** For the whole update: how often is $c_k$ right, and how often is a test that always says "rises"?

# %%
print("\n4. ONE UPDATE, THREE QUESTIONS")
print("   P(rises | said outward) - P(rises | said inward), tokens with KL > 0.05")
print("   optimiser  question    KL rises    ratio     c_k    own rate    accuracy: ratio   c_k   always")


def risk_difference(outward: np.ndarray, rises: np.ndarray) -> float:
    return float(rises[outward].mean() - rises[~outward].mean())


found: dict[tuple[str, str], dict[str, float]] = {}
for name in ("sgd_engine", "adam_engine"):
    drawn = [collect(SETTINGS[name], 128, np.random.default_rng([7, seed])) for seed in range(6)]
    outcome = [effects(batch, delta=0.05) for batch in drawn]
    kl = np.concatenate([FORWARD_KL.measure(b.pair.log_mu, b.pair.log_pi) for b in drawn])
    told = [verdicts(scores(see(b.pair, b.action, k=20)), b.advantage) for b in drawn]
    tests = {
        "ratio": np.concatenate([t["ratio"] for t in told]),
        "c_k": np.concatenate([t["full"] for t in told]),
        "own": np.concatenate([e.own_rate > 0 for e in outcome]),
    }
    for question in ("own", "marginal", "whole"):
        rises = np.concatenate([getattr(e, question) > 0 for e in outcome])[kl > 0.05]
        knows = {test: risk_difference(outward[kl > 0.05], rises) for test, outward in tests.items()}
        hits = {test: np.mean(outward[kl > 0.05] == rises) for test, outward in tests.items()}
        found[name, question] = knows | {"base": float(rises.mean()), "hits": float(hits["c_k"])}
        print(
            f"   {name.split('_')[0]:9}  {question:9}  {percent(rises.mean())}    {knows['ratio']:+.2f}   ",
            end="",
        )
        print(f"{knows['c_k']:+.2f}      {knows['own']:+.2f}           {percent(hits['ratio'])} ", end="")
        print(f"{percent(hits['c_k'])} {percent(rises.mean())}")

for name in ("sgd_engine", "adam_engine"):
    assert found[name, "own"]["c_k"] > 0.4 and abs(found[name, "whole"]["c_k"]) < found[name, "own"]["c_k"]
    assert found[name, "whole"]["base"] > found[name, "whole"]["hits"]  # "always" is more often right
assert found["sgd_engine", "own"]["c_k"] > found["sgd_engine", "own"]["ratio"]  # the plain step

# %% [markdown]
# Read the columns, then the rows. Both tests know a great deal about a token's own step and what it adds,
# and much less about the whole update: .2 to .4 here, against .7 to 1. Other tokens, through shared
# weights, move $D_t$ more than the token does. There "always" has the better *accuracy*, with a risk
# difference of zero, because most tokens rise. So never read an accuracy without its base rate. And do not
# use the best predictor of the whole change as a mask: it would drop tokens for what their neighbours do.
#
# With SGD the token's own step is the Euclidean one, and $c_k$ is (up to the size of the step) exact. With
# Adam it is neither, and the exact rate of the own step is better than both. These are six small minibatches;
# `divsim exact direction --preset full` measures 61 seeds with intervals, and `divsim claims` says what is
# left of the papers' claims.
#
# ## 5. What this lesson does not say
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
