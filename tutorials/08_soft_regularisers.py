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
# # Soft regularisers
#
# A mask drops the update of a token that has gone too far. It is a cliff: full weight on one side, none on
# the other, and nobody is brought back. A *soft regulariser* puts a slope in place of the cliff: it weighs
# the update less, the farther the token has gone, and in the end pulls it back.
#
# Three families do that: a penalty of the ratio ([SPO]), a penalty of the probability gap ([DRPO]), and the
# old penalty of the divergence itself ([PPO] section 4). Each has one number that says how soft. [DRPO]
# states it as 12.5. This lesson asks what such a number means: a radius, a price, or nothing.
#
# You need lesson 04; lessons 05 and 07 help. Before each measurement, stop and guess.
#
# Vocabulary: $\mu$ is the behaviour policy that sampled token $k$, $\pi$ the training policy,
# $r = \pi_k / \mu_k$ the ratio, $d_k = \pi_k - \mu_k$ the gap, $A$ the advantage with its sign
# $\mathrm{sgn}(A)$, $\eta$ the learning rate. Divergences are in nats.

# %%
from dataclasses import replace
from fractions import Fraction

import numpy as np
from scipy.special import stdtrit

from divsim.formulas import (
    CHI2_PI_MU,
    FORWARD_KL,
    REVERSE_KL,
    TV,
    Rule,
    View,
    change,
    difference,
    directional_change,
    dppo,
    drpo,
    drpo_unweighted,
    importance_sampling,
    log_softmax,
    mask_drpo,
    ppo_clip,
    spo,
)
from divsim.tabular.agreement import disagree, scores, see
from divsim.tabular.environments import ENVIRONMENTS, Environment
from divsim.tabular.geometry import EUCLIDEAN
from divsim.tabular.language import WORLDS
from divsim.tabular.learner import Recipe, learn
from divsim.tabular.lines import line
from divsim.tabular.mismatch import MISMATCHES, mismatched
from divsim.tabular.optimisers import sgd
from divsim.tabular.policies import sample_from
from divsim.tabular.policy_steps import adapt, mirror, penalised
from divsim.tabular.trust_region import REGIONS, Problem, distance, optimum, surrogate

READING = 12.5
NONE = importance_sampling()


def percent(share: float) -> str:
    return f"{100 * share:5.1f} %"


# %% [markdown]
# ## 1. From a cliff to a slope
#
# Every rule below moves the logits by $s\,(e_k - \pi)$ for the sampled token, with $s = \eta\, A\, w$. With
# importance sampling alone the weight is $w = r$. Write $w = r f$; the **factor** $f$ is the rule's part:
#
# | rule | objective of a token | factor $f$ |
# |---|---|---|
# | [PPO] | $\min(r A,\ \mathrm{clip}(r)\, A)$ | 1, or 0 if $\mathrm{sgn}(A)(r - 1) > \epsilon$ |
# | [SPO] | $r A - \lvert A \rvert\, (r - 1)^2 / (2 \epsilon)$ | $1 - \mathrm{sgn}(A)\,(r - 1) / \epsilon$ |
# | [DRPO] | $r A - \lvert A \rvert\, \mu_k (r - 1)^2 / (2 \delta)$ | $1 - \mathrm{sgn}(A)\, d_k / \delta$ |
#
# The last two lines are one derivative each. $r$ is $e^{\log \pi_k} / \mu_k$, so the derivative of $r$ in
# $\log \pi_k$ is $r$ itself; that of $(r - 1)^2 / 2$ is $r (r - 1)$; and $\mu_k (r - 1) = d_k$ (theorems T9a
# and T9b; `divsim verify --explain T9` prints them). DRPO is thus SPO with a width of its own for each token,
# $\epsilon = \delta / \mu_k$.
#
# Some tokens by hand, with $\epsilon = .2$ and $\delta = .15$. A likely one, $\mu_k = .9$, has risen to .99:
# $r = 1.1$ and $d_k = .09$, so for $A > 0$ SPO's factor is $1 - .1 / .2 = .5$, and DRPO's is
# $1 - .09 / .15 = .4$.
#
# **Guess.** A rare token, $\mu_k = .001$, has risen to .002. What are the two factors? And what are they for
# the likely token if it has *fallen* by exactly .15?

# %%
RULES_1 = {"PPO .2": ppo_clip(), "SPO .2": spo(0.2), "DRPO .15": drpo(0.15)}
TOKENS_1 = (
    (0.9, 0.99, 1), (0.9, 1.0, 1), (0.9, 0.75, 1), (0.9, 0.75, -1),
    (0.001, 0.002, 1), (0.001, 0.151, 1), (0.001, 0.0005, 1), (0.001, 0.0005, -1),
)  # fmt: skip


def factor(rule: Rule, mu_k: float, pi_k: float, sign: float) -> float:
    """weight / r of one token, whose advantage has this sign."""
    view = View.sampled(np.log([mu_k]), np.log([pi_k]), vocab_size=100)
    return float(rule(view, np.array([sign])).weight[0]) * mu_k / pi_k


print("1. FROM A CLIFF TO A SLOPE")
print("      mu_k      pi_k    A         r       gap    factor:  PPO .2     SPO .2   DRPO .15")
first = {}
for mu_k, pi_k, sign in TOKENS_1:
    found = first[mu_k, pi_k, sign] = {name: factor(rule, mu_k, pi_k, sign) for name, rule in RULES_1.items()}
    row = f"   {mu_k:7g}   {pi_k:7g}   {sign:+d}  {pi_k / mu_k:8.3f}  {pi_k - mu_k:+8.4f}           "
    print(row + f"{found['PPO .2']:6.3f}  {found['SPO .2']:9.3f}   {found['DRPO .15']:8.3f}")

by_hand = {key: [values[name] for name in ("SPO .2", "DRPO .15")] for key, values in first.items()}
assert np.allclose(by_hand[0.9, 0.99, 1], [0.5, 0.4])
assert np.allclose(by_hand[0.9, 0.75, 1], [1 + 1 / 1.2, 2]) and np.allclose(by_hand[0.9, 0.75, -1][1], 0)
assert np.allclose(by_hand[0.001, 0.002, 1], [-4, 1 - 1 / 150])
assert np.allclose(by_hand[0.001, 0.151, 1], [-749, 0], atol=1e-12)
assert by_hand[0.9, 1.0, 1][1] > 1 / 3 - 1e-12  # pi_k <= 1: this token is never pulled back

# %% [markdown]
# What to see:
#
# * **Negative factors.** A mask stops at 0. Here the update is *reversed*: SPO pulls the rare token back four
#   times as hard as the reward pushes it up.
# * **The zero is one-sided.** DRPO's factor vanishes at $\mathrm{sgn}(A)\, d_k = \delta$, where the token
#   has gone $\delta$ in the direction in which $A$ pushes. At the same distance on the other side the factor
#   is 2: the penalty helps the push home. So "DRPO stops at $|d_k| = \delta$" is half true.
# * **Rare tokens: SPO forbids what DRPO allows.** From .001 to .002 is a ratio of 2 and a gap of .001. SPO
#   asks the ratio and reverses; DRPO asks the gap and hardly notices. For DRPO to stop, the token must become
#   151 times as likely; SPO's factor there is $-749$.
# * **Where the scale ends, so does DRPO.** A rare token can fall by $\mu_k$ at most: with $A < 0$ its factor
#   never leaves $[1 - \mu_k / \delta, 1]$ on the way down. A likely token can rise by $1 - \mu_k$ at most: if
#   $\mu_k > 1 - \delta$ its factor stays positive all the way up.
#
# ![the factor of each rule, against the ratio and against the gap](../figures/drpo_factors.png)
#
# ## 2. What is penalised, and what the pull does
#
# One token at a time says little about the policy. Average the penalties over tokens sampled from $\mu$, all
# with $|A| = 1$ (T9c):
#
# $$\mathrm{E}_\mu[\mu_k (r - 1)^2] = \sum_i (\pi_i - \mu_i)^2, \qquad
# \mathrm{E}_\mu[(r - 1)^2] = \sum_i \frac{(\pi_i - \mu_i)^2}{\mu_i} = \chi^2(\pi \,\|\, \mu). \tag{1}$$
#
# DRPO penalises the squared Euclidean distance, SPO a divergence in which rare tokens count $1 / \mu_i$.
#
# Does their pull lower $D = \mathrm{KL}(\mu \,\|\, \pi)$, the divergence that a mask would test? The pull of
# DRPO's penalty on a sampled token is $-(|A| / \delta)\, r\, d_k\, (e_k - \pi)$. From lesson 04, $D$ changes
# along $e_k - \pi$ at the rate $c_k = d_k - \mathrm{E}_\pi[d]$. So, to first order (T9d and T9e),
#
# $$\text{one token:} \;\; -\frac{|A|}{\delta}\, r\, d_k\, c_k ; \qquad
# \text{on average, if all } |A| = a\text{:} \;\; -\frac{a}{\delta} \sum_k \pi_k\, d_k\, c_k
# = -\frac{a}{\delta} \mathrm{Var}_\pi(d) \le 0. \tag{2}$$
#
# The average takes a line: $\mu_k r = \pi_k$, and $\mathrm{E}_\pi[d\,(d - \mathrm{E}_\pi[d])]$ is the
# variance. On average the pull lowers $D$; a single token's pull lowers it if and only if $c_k$ has the sign
# of $d_k$. Those where it has not are the *disputed* tokens of lesson 05: the ratio looks at $d_k$, the
# divergence at $c_k$. DRPO pulls each token back to its own $\mu_k$, as the ratio test would have it.
#
# **Guess.** Lesson 05's example, in sevenths, with one disputed token: token 1. How large must its $|A|$ be,
# if all others have $|A| = 1$, for the *average* pull to raise $D$?

# %%
mu_7, pi_7 = [Fraction(n, 7) for n in (5, 1, 1)], [Fraction(n, 7) for n in (1, 2, 4)]
d_7 = [p - m for m, p in zip(mu_7, pi_7, strict=True)]
c_7 = [x - sum(p * y for p, y in zip(pi_7, d_7, strict=True)) for x in d_7]


def expected_pull_rate(sizes: tuple[int, ...]) -> Fraction:
    """The rate of KL along DRPO's expected pull, times delta."""
    return -sum(a * p * x * c for a, p, x, c in zip(sizes, pi_7, d_7, c_7, strict=True))


squares, chi2 = sum(x * x for x in d_7), sum(x * x / m for x, m in zip(d_7, mu_7, strict=True))
variance = sum(p * x * x for p, x in zip(pi_7, d_7, strict=True)) - (d_7[0] - c_7[0]) ** 2
least = (pi_7[0] * d_7[0] * c_7[0] + pi_7[2] * d_7[2] * c_7[2]) / -(pi_7[1] * d_7[1] * c_7[1])
print("\n2. WHAT IS PENALISED, AND WHAT THE PULL DOES")
print(
    "   mu = (5, 1, 1)/7, pi = (1, 2, 4)/7: the mean of DRPO's penalty is the squared distance",
    squares,
    end="",
)
print(f", of SPO's chi2 = {chi2}")
print(f"   d = {', '.join(map(str, d_7))};  c = {', '.join(map(str, c_7))}")
print(f"   |A| = 1, 1, 1:    the average pull changes D at the rate {expected_pull_rate((1, 1, 1))} / delta")
print(
    f"   |A| = 1, 60, 1:   ... at the rate {expected_pull_rate((1, 60, 1))} / delta; zero at |A_1| = {least}"
)

log_mu_7, log_pi_7 = (np.log(np.array(weights) / 7) for weights in ((5, 1, 1), (1, 2, 4)))
assert np.isclose(float(CHI2_PI_MU.measure(log_mu_7, log_pi_7)), float(chi2))
assert expected_pull_rate((1, 1, 1)) == -variance < 0 < expected_pull_rate((1, 60, 1))
assert [x * c > 0 for x, c in zip(d_7, c_7, strict=True)] == [True, False, True]
assert squares == Fraction(26, 49) and chi2 == Fraction(66, 35) and least == Fraction(142, 3)

# %% [markdown]
# Forty-seven times, here. Equation (2) is algebra; does the shipped rule do it? `expected_step`
# shows every token to the rule, weighs its update by $\mu_k$, and adds up. The penalty's own part is that
# step minus the step without a penalty.


# %%
def expected_step(rule: Rule, log_mu: np.ndarray, log_pi: np.ndarray, advantage: np.ndarray) -> np.ndarray:
    """The mean over tokens from mu of their updates: logits (V,) per unit of learning rate."""
    vocab = len(advantage)
    pair = (np.tile(log_policy, (vocab, 1)) for log_policy in (log_mu, log_pi))
    decision = rule(View.full(*pair, np.arange(vocab), check=False), advantage, check=False)
    push = np.exp(log_mu) * (decision.weight * advantage + decision.pull)
    return push - np.exp(log_pi) * push.sum()


def pull_rate(rule: Rule, log_mu: np.ndarray, log_pi: np.ndarray, advantage: np.ndarray) -> float:
    """The rate of KL along the penalty's part of the expected step."""
    pull = expected_step(rule, log_mu, log_pi, advantage) - expected_step(NONE, log_mu, log_pi, advantage)
    return float(directional_change(FORWARD_KL, log_mu, log_pi, pull))


for sizes in ((1, 1, 1), (1, 60, 1)):
    signed = np.array(sizes) * np.array([-1.0, 1.0, 1.0])
    from_rule = pull_rate(drpo(0.15), log_mu_7, log_pi_7, signed)
    print(f"   the rule drpo(0.15), |A| = {sizes}: {from_rule:+.6f}", end="")
    print(f"; in fractions over .15: {float(expected_pull_rate(sizes)) / 0.15:+.6f}")
    assert np.isclose(from_rule, float(expected_pull_rate(sizes)) / 0.15, rtol=1e-12, atol=0)

# %% [markdown]
# Now tokens in numbers: two worlds of 1,000 tokens, peaked and open, where $\pi$ has gone on learning for 16
# passes while the samples stayed. We draw 3,000 tokens from $\mu$, give them advantages of random sign, and
# look at those that a soft rule **reverses**: does the reversed update lower $D$? To first order, that is
# the question whether $c_k$ has the sign of $d_k$. Then with a step at learning rate 1.
#
# **Guess.** Which rule reverses most: SPO .2, DRPO .15 or DRPO .08? What share of the reversed updates raises
# $D$, to first order? And when the step is taken?

# %%
SOFT = {"SPO .2": spo(0.2), "DRPO .15": drpo(0.15), "DRPO .08": drpo(1 / READING), "DRPO 12.5": drpo(READING)}
VOCAB, TOKENS = 1000, 3000
print(f"\n   {TOKENS} tokens of stale samples, A normal: the factor, and what KL does where it is negative")
print("                           factor                            reversed updates")
print("   world      rule        smallest   largest    .9 to 1.1    number   disputed", end="")
print("   KL falls: at first, at rate 1")
reversed_, falls, spread, rare, disputed_of = {}, {}, {}, {}, {}
for world in ("language", "flat"):
    rng = np.random.default_rng(1)
    pair = mismatched(WORLDS[world], MISMATCHES["stale_16"])(rng, (TOKENS,), VOCAB)
    action, advantage = sample_from(rng, pair.log_mu), rng.standard_normal(TOKENS)
    view, disputed = View.full(pair.log_mu, pair.log_pi, action), disagree(scores(see(pair, action, k=20)))
    along, c_k = line(EUCLIDEAN, pair, action), change(view)
    disputed_of[world] = np.mean(disputed)
    for name, rule in SOFT.items():
        weight = rule(view, advantage).weight
        f = weight / view.ratio
        back, step = f < 0, advantage * weight
        spread[world, name] = f.min(), f.max(), np.mean(np.abs(f - 1) < 0.1)
        reversed_[world, name] = int(back.sum())
        row = f"   {world:9}  {name:10} {f.min():9.2f} {f.max():9.2f}      {percent(spread[world, name][2])}"
        row += f"     {int(back.sum()):5}"
        if back.any():
            lowers, sinks = (step * c_k < 0)[back], (along.realised(step) < 0)[back]
            falls[world, name] = np.mean(lowers), np.mean(sinks)
            row += f"    {percent(np.mean(disputed[back]))}             "
            row += f"{percent(falls[world, name][0])}   {percent(falls[world, name][1])}"
            assert np.array_equal(lowers, ~disputed[back])
        print(row)
    gap, mu = difference(pair.log_mu, pair.log_pi), np.exp(pair.log_mu)
    seldom = mu < 0.001
    rare[world] = [float(np.sum(x[seldom]) / np.sum(x)) for x in (gap**2, gap**2 / mu)]
for world, (squared, pearson) in rare.items():
    print(f"   {world:8}: disputed are {percent(disputed_of[world])} of all tokens;", end="")
    print(f" mu_k < .001 makes {percent(squared)} of the squared distance, {percent(pearson)} of chi2")

for world in ("language", "flat"):
    assert min(reversed_[world, "SPO .2"], reversed_[world, "DRPO .08"]) > reversed_[world, "DRPO .15"] > 0
    assert reversed_[world, "DRPO 12.5"] == 0 and spread[world, "DRPO 12.5"][2] == 1
    assert max(abs(end - 1) for end in spread[world, "DRPO 12.5"][:2]) <= 1 / READING
    for name in ("SPO .2", "DRPO .15", "DRPO .08"):
        assert falls[world, name][0] > 0.97 and falls[world, name][0] > falls[world, name][1] > 0.84
    assert 0.84 < falls[world, "SPO .2"][1] < 0.88 and falls[world, "SPO .2"][0] < 0.99
    assert all(0.93 < falls[world, name][1] < 0.99 for name in ("DRPO .15", "DRPO .08"))
assert reversed_["flat", "SPO .2"] > 5 * reversed_["flat", "DRPO .08"]
assert falls["flat", "DRPO .15"][0] == falls["flat", "DRPO .08"][0] == 1 and 0.09 < disputed_of["flat"] < 0.11
assert 0.14 < rare["flat"][1] < 0.16 and rare["flat"][0] < 0.002

# %% [markdown]
# In the peaked world DRPO .08 reverses as many as SPO; in the open one SPO reverses five times as many. There
# many tokens are rare, and a ratio is easily off by a fifth: they hold 15 % of $\chi^2$ and a thousandth of
# the squared distance.
#
# To first order hardly any reversed update raises $D$. That is no accident. DRPO reverses a token when
# $|d_k| > \delta$, when it moved a lot, and disputed tokens moved *moderately* (lesson 05): in the open world
# one token in ten is disputed, and none of those that DRPO reverses. SPO also reverses rare tokens, whose
# gap may be anything, and 1 to 3 % of its reversed updates lead outward. So the two tests of direction, which
# masks quarrel about, hardly matter to a soft rule.
#
# The *size* of the push back does. At learning rate 1, one reversed update in seven of SPO ends up raising
# $D$, and 2 to 7 % of DRPO's: the push is longer than the way back. Look at the column of smallest factors.
# Keep it in mind for the next section.
#
# ![the factor of each rule, spread over sampled tokens](../figures/drpo_histogram.png)
#
# ## 3. What 12.5 does
#
# Look at the last rows again. $\delta$ is compared with $|d_k| = |\pi_k - \mu_k|$, a difference of two
# probabilities. It never exceeds 1, so at $\delta = 12.5$
#
# $$1 - \tfrac{1}{12.5} = .92 \;\le\; f \;\le\; 1.08 = 1 + \tfrac{1}{12.5}. \tag{3}$$
#
# No token of any model can leave that band. Read as a radius, 12.5 is a learning rate that varies by 8 %. The
# other reading is that 12.5 is what the penalty is multiplied by: $1 / \delta = 12.5$, a radius of .08. The
# paper's text does not settle it, so we follow both.
#
# A radius of .08 is a real restraint. Is it a *good* one? Take the smallest world: two actions, $\mu_0 = m$,
# $\pi_0 = p$, and advantages $A_0 = a (1 - m)$, $A_1 = -a m$ with mean zero; $a > 0$ is the difference
# between the two rewards. The gap is $d = p - m$ at action 0 and $-d$ at action 1, so both have the same
# factor $f = 1 - d / \delta$. The expected update moves the logit difference $x = z_0 - z_1$ by
#
# $$x \;\to\; x + 2 \eta\, a\, p (1 - p) \Big(1 - \frac{d}{\delta}\Big). \tag{4}$$
#
# It comes to rest where $d = \delta$, at $p^* = m + \delta$, if that is below 1. Whether it does come to
# rest is decided by the slope of the map (4) there. The derivative of $p$ in $x$ is $p (1 - p)$, and the
# bracket vanishes at $p^*$, so only its own derivative counts:
#
# $$\text{slope} = 1 - \frac{2 \eta\, a\, [p^* (1 - p^*)]^2}{\delta}, \qquad
# \text{stable if and only if} \quad \ell = 2 \eta\, a\, [p^* (1 - p^*)]^2 < 2 \delta. \tag{5}$$
#
# Read $\ell$: it is how far, to first order, one update *without* the penalty would move $p$ from there.
# **A penalty of radius $\delta$ holds only a policy whose single steps are shorter than $2 \delta$.** Where a
# step is longer, the push back throws the policy beyond the other side.
#
# **Guess.** $m = 1/4$, $\delta = .08$, $a = 1$. Action 0 is the better one. Where does $p$ end at half the
# critical learning rate, at 1.1 times, at twice, at four times?

# %%
LOG_M, A_2 = np.log([0.25, 0.75]), np.array([0.75, -0.25])
TIMES = (0.25, 0.5, 0.9, 1.1, 2.0, 4.0)


def follow(rule: Rule, rate: float, steps: int, advantage: np.ndarray = A_2) -> np.ndarray:
    """The probability of action 0 after every expected update."""
    log_pi, path = LOG_M, []
    for _ in range(steps):
        log_pi = log_softmax(log_pi + rate * expected_step(rule, LOG_M, log_pi, advantage))
        path.append(float(np.exp(log_pi[0])))
    return np.array(path)


def critical(delta: float, m: float = 0.25) -> float:
    """The learning rate at which the slope is -1, for a = 1."""
    rest = m + delta
    return delta / (rest * (1 - rest)) ** 2


print("\n3. WHAT 12.5 DOES")
print("   two actions, mu_0 = .25, action 0 is better by 1; p after updates 1 to 5, and 396 to 400")
print("   delta = .08 would rest at p = .33")
ends = {}
for times in TIMES:
    rate = times * critical(0.08)
    path = ends[times] = follow(drpo(0.08), rate, 400)
    print(f"   {times:4g} x critical, rate {rate:5.2f}:  " + " ".join(f"{p:.3f}" for p in path[:5]), end="")
    print("   ...   " + " ".join(f"{p:.3f}" for p in path[-5:]))
reached = {
    name: int(np.argmax(follow(SOFT.get(name, NONE), 1.0, 200) > 0.99)) + 1 for name in ("none", "DRPO 12.5")
}
print(f"   at learning rate 1, updates until p > .99: without a penalty {reached['none']}", end="")
print(f", at delta = 12.5 {reached['DRPO 12.5']}, at delta = .08 never")

calm = [times for times in TIMES if np.allclose(ends[times][-2:], 0.33, rtol=0, atol=1e-6)]
assert calm == [0.25, 0.5, 0.9]
assert np.allclose(ends[1.1][-4:-2], ends[1.1][-2:]) and ends[1.1][-1] < 0.25 < 0.33 < ends[1.1][-2]
assert ends[2.0][-20:].min() < 0.1 and ends[2.0][-20:].max() > 0.4
assert ends[4.0][0] > 0.75 and ends[4.0][1:].max() < 0.001
assert reached == {"none": 56, "DRPO 12.5": 59}
assert follow(drpo(0.08), 1.0, 200).max() < 0.4

# %% [markdown]
# Below the critical rate $p$ comes to rest at .33; at .9 times it rings. At 1.1 times it never rests: it
# jumps between .40 and .24, and .24 is *less* than $\mu_0$, although action 0 is the better one. At twice
# the critical rate there is no pattern left. At four times, the first update goes to .80, because at
# $\pi = \mu$ the penalty is zero; the push back then throws the better action out. The expected update has
# a factor $p (1 - p)$ and cannot repair that soon; a learner that samples hardly ever draws it again.
#
# And 12.5 is no radius here: $p^* = m + 12.5$ is no probability. Nothing is held. It takes 59 updates in
# place of 56, which is (3).
#
# A minibatch does not hold expectations but tokens. One rare token, $\mu_k = m$, drawn once among $B$: its
# update is $r A / B$ where the average token's is $\pi_k A$, so $a$ in (5) becomes $|A| / (m B)$, and the
# bound shrinks with $m$:
#
# $$\eta < \frac{\delta\, m B}{|A|\, [p^* (1 - p^*)]^2}. \tag{6}$$

# %%
RARE, BATCH = 0.001, 16
bound = 0.08 * RARE * BATCH / ((RARE + 0.08) * (1 - RARE - 0.08)) ** 2
rare_ends = {}
for times in (0.9, 1.1):
    log_rare = np.log(np.array([RARE, 1 - RARE]))
    log_pi, path = log_rare, []
    for _ in range(1000):
        seen = View.full(log_rare[None], log_pi[None], np.array([0]), check=False)
        push = times * bound * drpo(0.08)(seen, np.array([1.0]), check=False).weight[0] / BATCH
        log_pi = log_softmax(log_pi + push * np.array([1, -1]) * (1 - np.exp(log_pi[0])))
        path.append(float(np.exp(log_pi[0])))
    rare_ends[times] = path[-2:]
print(f"\n   a token with mu_k = {RARE} and A = 1, alone in 1,000 minibatches of {BATCH}, delta = .08:")
print(f"   the bound (6) is a learning rate of {bound:.3f}; above, it was {critical(0.08):.3f}")
for times, last_two in rare_ends.items():
    print(f"   at {times} times the bound, p after the last two: {last_two[0]:.4f} {last_two[1]:.4f}")

assert np.allclose(rare_ends[0.9], RARE + 0.08, rtol=0, atol=1e-6)
assert abs(rare_ends[1.1][0] - rare_ends[1.1][1]) > 0.01

# %% [markdown]
# Now learn: rollout, stale minibatches, new rollout, as in lesson 07. Ten-armed bandits and token trees, both
# readings of 12.5 against no penalty, same worlds, same streams. KL is the one at the end of the *first*
# rollout, where all rules still have the same samples, as a multiple of that without a penalty (geometric
# mean over seeds). Gain is the share of the possible gain, averaged over 20 rollouts so that speed counts;
# beside it the paired difference with Student's 95 % interval.
#
# **Guess.** At which learning rates is DRPO 12.5 different from no penalty? And at which is DRPO .08 closer
# to $\mu$ than no penalty?


# %%
def generators(name: int, seeds: int) -> list[np.random.Generator]:
    """One stream a seed, so that all rules see the same worlds."""
    return [np.random.default_rng([name, seed]) for seed in range(seeds)]


def learned(environment: Environment, rule: Rule, rate: float, seeds: int) -> tuple[np.ndarray, ...]:
    """KL at the end of the first rollout, mean gain, final gain, and final policy, of each seed."""
    recipe = Recipe(rule, sgd(rate), 20, episodes=64, minibatches=16, passes=2, advantage="group")
    history = learn(environment, recipe, generators(4, seeds))
    gain = (history.ret - history.ret[:, :1]) / (history.best - history.ret[:, 0])[:, None]
    return history.kl[:, 0, -1], np.mean(gain[:, 1:], axis=-1), gain[:, -1], history.policy


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and 95 % interval."""
    n = len(values)
    reach = float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n))
    return float(values.mean()), float(values.mean()) - reach, float(values.mean()) + reach


def shown(values: np.ndarray) -> str:
    return "{:+6.1f} [{:+6.1f},{:+6.1f}]".format(*(100 * x for x in interval(values)))


BANDITS, TREES = 64, 16
print(f"\n   20 rollouts, {BANDITS} bandits and {TREES} trees")
print("                       no penalty              DRPO 12.5                       DRPO .08 = 1/12.5")
print("   world       rate     KL     gain      KL      gain, difference            KL      gain, difference")
study: dict[tuple[str, float, str], tuple[np.ndarray, ...]] = {}
nearer, worth, ended = {}, {}, {}
for world, rates, seeds in (("bernoulli", (0.25, 1, 4, 16), BANDITS), ("tree", (5, 20, 80), TREES)):
    for rate in rates:
        study[world, rate, "none"] = learned(ENVIRONMENTS[world], NONE, rate, seeds)
        kl, gain, final, _ = study[world, rate, "none"]
        ended[world, rate, "none"] = final.mean()
        row = f"   {world:9}  {rate:5}   {kl.mean():6.3f}   {100 * gain.mean():4.1f}"
        for name in ("DRPO 12.5", "DRPO .08"):
            key = world, rate, name
            study[key] = learned(ENVIRONMENTS[world], SOFT[name], rate, seeds)
            own_kl, own_gain, own_final, _ = study[key]
            nearer[key], worth[key] = float(np.exp(np.mean(np.log(own_kl / kl)))), own_gain - gain
            ended[key] = own_final.mean()
            row += f"    x {nearer[key]:5.3f}   {shown(worth[key])}"
        print(row)
for rate in (5, 20):
    finals = (f"{name} {percent(ended['tree', rate, name])}" for name in ("none", "DRPO 12.5", "DRPO .08"))
    print(f"   final gain of the trees at rate {rate:2}: {', '.join(finals)}")

pays = np.array([ENVIRONMENTS["bernoulli"].draw(rng)[0].reward[0] for rng in generators(4, BANDITS)])
is_good = pays > pays.mean(axis=-1, keepdims=True)
lost = {
    (rate, name): np.mean(np.sum(np.exp(study["bernoulli", rate, name][3][:, 0]) * is_good, axis=-1) < 0.01)
    for rate in (1, 4)
    for name in ("none", "DRPO 12.5", "DRPO .08")
}
print("   bandits that end with less than .01 on all arms that pay more than average:")
for rate in (1, 4):
    shares = ", ".join(f"{name} {percent(lost[rate, name])}" for name in ("none", "DRPO 12.5", "DRPO .08"))
    print(f"      rate {rate}: {shares}")

cells = [(world, rate) for world, rate, name in ended if name == "none"]
for cell in cells:
    assert 0.96 < nearer[*cell, "DRPO 12.5"] < 1
    assert interval(worth[*cell, "DRPO 12.5"])[1] < 0 < interval(worth[*cell, "DRPO 12.5"])[2]
    assert interval(worth[*cell, "DRPO .08"])[2] < 0
for cell, multiple in ((("bernoulli", 0.25), 0.59), (("bernoulli", 1), 0.13), (("tree", 5), 0.08)):
    assert (
        abs(nearer[*cell, "DRPO .08"] - multiple) < 0.01 and -0.24 < worth[*cell, "DRPO .08"].mean() < -0.09
    )
for cell in (("bernoulli", 4), ("tree", 20)):
    assert nearer[*cell, "DRPO .08"] < 0.5 and worth[*cell, "DRPO .08"].mean() < -0.6
assert min(nearer["bernoulli", 16, "DRPO .08"], nearer["tree", 80, "DRPO .08"]) > 1.4
assert lost[1, "DRPO .08"] == 0 and lost[4, "none"] == 0 and 0.35 < lost[4, "DRPO .08"] < 0.45
assert ended["tree", 5, "DRPO .08"] > 0.97 > 0.2 > ended["tree", 20, "DRPO .08"]

# %% [markdown]
# Read as a radius, 12.5 takes 0 to 4 % off the KL, and no interval of the gain excludes zero. It is no
# regulariser.
#
# Read as an inverse radius, it is a trust region at small rates: KL is .59, .13, .08 of what it was. That has
# its price, 10 to 23 points of gain, since the policy is held back. The trees at rate 5 still arrive, only
# later. At large rates it overshoots, and at the largest KL is *higher* than without a penalty.
#
# Worst is what lies between. In the bandits at rate 4 and the trees at rate 20, KL is less than half of that
# without a penalty. Somebody who logs KL would be content, and little is learned. In four bandits out of ten
# less than .01 is left on all arms that pay more than average, as in the smallest world, and what is gone is
# hardly sampled again. Without a penalty, or at rate 1, that happens in none.
#
# Equation (5) does not give the number for ten actions and sampled minibatches, but it says what to change:
# the step, not the radius. A smaller $\delta$ needs a smaller learning rate.
#
# ![what is learned against how far the policy goes, by radius](../figures/drpo_learning.png)
#
# ## 4. A price and a budget
#
# DRPO's $\delta$ is called a radius, and it is the weight of a penalty. The two are different things: a
# **budget** bounds the distance, whatever the reward; a **price** charges for it, and who earns more goes
# farther. The oldest soft regulariser is a price:
#
# $$\max_\pi\; \mathrm{E}_\pi[A] - \beta\, \mathrm{KL}(\mu \,\|\, \pi)
# \qquad \text{or} \qquad \max_\pi\; \mathrm{E}_\pi[A] - \beta\, \mathrm{KL}(\pi \,\|\, \mu). \tag{7}$$
#
# Both have closed forms, which we met in lesson 07: $\pi_i = \beta \mu_i / (\nu - A_i)$ with $\nu$ such that
# the sum is 1, and the exponential tilt $\pi_i \propto \mu_i e^{A_i / \beta}$, the step of mirror descent
# ([MDPO]). The first is the *same* formula as the best policy within a budget, $\beta$ standing where the
# multiplier $\lambda$ stood. That is duality. If $\pi_\beta$ maximises (7) and its distance is $\delta$, then
# no policy within $\delta$ gains more: it would pay at most $\beta \delta$, as $\pi_\beta$ does, and have a
# higher total. And $\beta$ is what one more nat of budget is worth.
#
# **Guess.** All rewards are doubled. What happens to the policy with the price $\beta$, with the budget
# $\delta$, and with DRPO's $\delta$?

# %%
A_4 = np.array([7.0, 3.0, -5.0])
LOG_MU_4 = np.log(np.array([0.25, 0.25, 0.5]))


def problem_of(advantage: np.ndarray) -> Problem:
    return Problem(LOG_MU_4[None], advantage[None], np.ones(1))


problem = problem_of(A_4)
STEPS = {
    "KL(mu || pi)": (REGIONS["forward_kl"], FORWARD_KL, lambda beta: penalised(problem, beta)),
    "KL(pi || mu)": (REGIONS["reverse_kl"], REVERSE_KL, lambda beta: mirror(problem, 1 / beta)),
}
H = 1e-5  # central difference: error of order H^2, rounding of order 1e-14 / H
print("\n4. A PRICE AND A BUDGET")
print("   mu = (1, 1, 2)/4, A = (7, 3, -5)")
print("   penalty        beta    pi                    distance   gain         best within it  one more nat")
for name, (region, divergence, step) in STEPS.items():
    for beta in (32.0, 8.0, 4.0):
        log_pi = step(beta)
        delta = float(distance(problem, log_pi, divergence, "mean"))
        within = optimum(problem, region, delta, "mean")
        gains = [float(surrogate(problem, optimum(problem, region, delta + x, "mean"))) for x in (H, -H)]
        price = (gains[0] - gains[1]) / (2 * H)
        gain = float(surrogate(problem, log_pi))
        print(f"   {name}  {beta:5g}    " + " ".join(f"{p:.4f}" for p in np.exp(log_pi[0])), end="")
        print(f"   {delta:.4f}     {gain:.4f}       {float(surrogate(problem, within)):.4f}", end="")
        print(f"        {price:8.4f}")
        assert np.allclose(np.exp(within), np.exp(log_pi), rtol=0, atol=1e-8) and abs(price - beta) < 1e-3

quarter = float(distance(problem, penalised(problem, 8.0), FORWARD_KL, "mean"))
assert np.isclose(quarter, np.log(2) / 4)


def drpo_rest(advantage: np.ndarray, rule: Rule, rate: float, steps: int = 800) -> np.ndarray:
    """Where expected updates from mu come to rest."""
    log_pi = LOG_MU_4
    for _ in range(steps):
        log_pi = log_softmax(log_pi + rate * expected_step(rule, LOG_MU_4, log_pi, advantage))
    return np.exp(log_pi)


nu_4 = 1 / sum(Fraction(1, n) for n in (7, 3, 5))
rest_4 = [sign - nu_4 / abs(a) for sign, a in ((1, Fraction(7)), (1, Fraction(3)), (-1, Fraction(5)))]
doubled = problem_of(2 * A_4)
print("\n   all rewards doubled              before                    after")
answers = {
    "price, beta = 8": [np.exp(penalised(one, 8.0)[0]) for one in (problem, doubled)],
    "budget, KL = log(2)/4": [
        np.exp(optimum(one, REGIONS["forward_kl"], quarter, "mean")[0]) for one in (problem, doubled)
    ],
    "DRPO .15": [drpo_rest(A_4, drpo(0.15), 0.05), drpo_rest(2 * A_4, drpo(0.15), 0.025)],
    "DRPO .015 without |A|": [
        drpo_rest(A_4, drpo_unweighted(0.015), 0.05),
        drpo_rest(2 * A_4, drpo_unweighted(0.015), 0.025),
    ],
}
for name, (before, after) in answers.items():
    print(f"   {name:24}  " + "   ".join(" ".join(f"{p:.4f}" for p in pi) for pi in (before, after)))
print(f"   DRPO's rest by hand: nu = {nu_4}, d / delta = {', '.join(map(str, rest_4))}")

assert np.allclose(*answers["budget, KL = log(2)/4"], rtol=0, atol=1e-8)
by_rule = [mu + 0.15 * float(x) for mu, x in zip((0.25, 0.25, 0.5), rest_4, strict=True)]
assert np.allclose(answers["DRPO .15"], [by_rule, by_rule], rtol=0, atol=1e-8) and sum(rest_4) == 0
assert rest_4 == [Fraction(56, 71), Fraction(36, 71), Fraction(-92, 71)]
farther = [after[0] > before[0] + 0.05 for before, after in answers.values()]
assert farther == [True, False, False, True]
spread_4 = 0.015 * (A_4 - A_4.mean())
plain_4 = [np.exp(LOG_MU_4) + n * spread_4 for n in (1, 2)]
assert np.allclose(answers["DRPO .015 without |A|"], plain_4, rtol=0, atol=1e-8)

# %% [markdown]
# The price: farther. The budget: the same policy. DRPO: the same policy too, since $|A|$ makes its price grow
# with the rewards; without $|A|$ it is a plain price, and doubled rewards double every gap.
#
# So has DRPO a budget? Let us solve it. Averaged over $\mu$ its objective is
# $\sum_i \pi_i A_i - \sum_i |A_i|\, d_i^2 / (2 \delta)$. At its maximum the derivative in $\pi_i$ is one
# number $\nu$ for all $i$, as in lesson 07, unless some $\pi_i$ is zero:
#
# $$A_i - \frac{|A_i|\, d_i}{\delta} = \nu \quad \Longrightarrow \quad
# d_i = \delta \Big(\mathrm{sgn}(A_i) - \frac{\nu}{|A_i|}\Big), \qquad \sum_i d_i = 0. \tag{8}$$
#
# Here $\nu = 105/71$, and the third action rests at $|d| = \frac{92}{71} \delta$, *outside* $\delta$: its own
# factor is negative there, and the updates of the others keep it where it is. A common scale of the rewards
# drops out of (8), as from a budget. But $\delta$ bounds nothing.
#
# To hold a distance by a price, the price must be adapted. [PPO] section 4 doubles $\beta$ if KL exceeds 1.5
# times a target, and halves it below the target over 1.5. Let every step be the exact $\pi_\beta$.
#
# **Guess.** Does that find a price and stay?

# %%
TARGET = 0.05
print(f"\n   the adaptive price, target KL = {TARGET}, exact steps: beta after each step")
tail = {}
for beta in (1.0, 20.0, 11.0):
    prices, reached_4 = [beta], []
    for _ in range(16):
        reached_4.append(float(distance(problem, penalised(problem, prices[-1]), FORWARD_KL, "mean")))
        prices.append(float(adapt(prices[-1], reached_4[-1], TARGET)))
    tail[beta] = reached_4[-2:]
    print(f"   {' '.join(f'{x:2g}' for x in prices[:10])} ...", end="")
    print(f"   KL at last {tail[beta][0]:.4f}, {tail[beta][1]:.4f}")

assert tail[1.0][0] == tail[1.0][1] and tail[20.0][0] == tail[20.0][1]
assert tail[11.0][1] < TARGET / 1.5 < 1.5 * TARGET < tail[11.0][0] and tail[11.0][0] > 3.5 * tail[11.0][1]

# %% [markdown]
# Not always. Near $\mu$ the distance goes like $1 / \beta^2$, so doubling the price divides it by nearly 4;
# the zone in which $\beta$ stays is only 2.25 wide. From 11 the rule jumps over it, back and forth, for ever.
# (Exercise 4.)
#
# ## 5. Why $|A|$, and where the penalty begins
#
# [DRPO] has two ablations. One drops $|A|$ from the penalty: the pull $-(1/\delta)\, r\, d_k$ then acts on
# every token, whatever its advantage. The other, Mask-DRPO, penalises only tokens whose $|d_k|$ exceeds a
# radius of its own, on either side of $\mu_k$.
#
# Without $|A|$, equation (2) with $a = 1$ holds for all rewards: to first order, the average pull always
# lowers $D$. And the rest of two actions, where the derivative of $a d - 2 d^2 / (2 \delta)$ vanishes, is
# $d = a \delta / 2$: a price.
#
# **Guess.** Does $|A|$ help, at the same KL? And is it better to begin beyond the radius only?

# %%
ABLATION = {
    "DPPO mask .15": dppo(TV, "binary", 0.15),
    "Mask-DRPO .15": mask_drpo(0.15, 0.15),
    "DRPO .15": drpo(0.15),
    "DRPO .08": drpo(0.08),
    "no |A|, .3": drpo_unweighted(0.3),
}
print("\n5. WHY |A|, AND WHERE THE PENALTY BEGINS")
print("   two actions, delta = .15: the gap at rest, if the rewards differ by    .5      1      2      4")
rests = {}
for name, rule in (("DRPO", drpo(0.15)), ("without |A|", drpo_unweighted(0.15))):
    for a in (0.5, 1.0, 2.0, 4.0):
        rests[name, a] = float(follow(rule, 0.4 / a if name == "DRPO" else 0.4, 300, a * A_2)[-1]) - 0.25
    gaps = "".join(f"{rests[name, a]:7.4f}" for a in (0.5, 1.0, 2.0, 4.0))
    print(f"      {name:11}                                                  {gaps}")
pulls = {
    name: pull_rate(rule, log_mu_7, log_pi_7, np.array([-1.0, 60.0, 1.0]))
    for name, rule in (("DRPO .15", drpo(0.15)), ("without |A|", drpo_unweighted(0.15)))
}
print("   the average pull of section 2, |A| = 1, 60, 1, changes D at the rate ", end="")
print(", ".join(f"{rate:+.4f} ({name})" for name, rate in pulls.items()))

loud = replace(ENVIRONMENTS["bernoulli"], noise=lambda expected, level: 10.0 * (level < expected))
scaled = {}
print("   bandits, rewards times 10 and learning rate over 10: KL after the first rollout, and gain")
for name, rule in (("DRPO .15", drpo(0.15)), ("without |A| .15", drpo_unweighted(0.15))):
    scaled[name] = [
        [float(np.mean(x)) for x in learned(place, rule, rate, 16)[:2]]
        for place, rate in ((ENVIRONMENTS["bernoulli"], 1.0), (loud, 0.1))
    ]
    before, after = [f"{kl:.4f} {percent(gain)}" for kl, gain in scaled[name]]
    print(f"      {name:16} {before}  ->  {after}")

print("\n   A > 0, mu_k = .4; the factor at d = -.16   -.14    .08    .14    .16    .30")
steps = {}
for name in ("DPPO mask .15", "Mask-DRPO .15", "DRPO .15"):
    steps[name] = [factor(ABLATION[name], 0.4, 0.4 + x, 1) for x in (-0.16, -0.14, 0.08, 0.14, 0.16, 0.3)]
    print(f"      {name:25}" + "".join(f"{x:+7.2f}" for x in steps[name]))

print("\n   the same learners as in section 3; KL and gain against no penalty")
print("                    bandit, rate 1                  bandit, rate 4                   tree, rate 5")
print("                   KL   gain, difference" + 2 * "           KL   gain, difference")
PLACES = (("bernoulli", 1, BANDITS), ("bernoulli", 4, BANDITS), ("tree", 5, TREES))
small: dict[tuple[str, str, int], tuple[float, np.ndarray]] = {}
for name, rule in ABLATION.items():
    row = f"   {name:13}"
    for world, rate, seeds in PLACES:
        done = study.get((world, rate, name)) or learned(ENVIRONMENTS[world], rule, rate, seeds)
        bare = study[world, rate, "none"]
        factor_kl = float(np.exp(np.mean(np.log(done[0] / bare[0]))))
        small[name, world, rate] = factor_kl, done[1] - bare[1]
        row += f" x {factor_kl:5.3f} {shown(small[name, world, rate][1])} "
    print(row.rstrip())
ahead = {}
for world, rate, weighted in (("bernoulli", 1, "DRPO .15"), ("tree", 5, "DRPO .08")):
    (near, with_size), (far, without) = small[weighted, world, rate], small["no |A|, .3", world, rate]
    ahead[world] = interval(with_size - without)
    print(
        f"   {world}, rate {rate}: {weighted} minus no |A|, .3, of KL x {near:.3f} and x {far:.3f}:", end=""
    )
    print(f" {shown(with_size - without)}")

for a in (0.5, 1.0, 2.0, 4.0):
    assert abs(rests["DRPO", a] - 0.15) < 1e-6 and abs(rests["without |A|", a] - 0.15 * a / 2) < 1e-6
assert pulls["DRPO .15"] > 0 > pulls["without |A|"]
assert np.isclose(pulls["without |A|"], -float(variance) / 0.15, rtol=1e-12)
assert np.allclose(*scaled["DRPO .15"], rtol=1e-9)  # the same samples: only rounding differs
assert 5.5 < scaled["without |A| .15"][1][0] / scaled["without |A| .15"][0][0] < 6.5
assert np.allclose(steps["Mask-DRPO .15"][1:4], 1) and np.allclose(steps["DPPO mask .15"], 4 * [1] + 2 * [0])
assert np.allclose([steps[name][i] for name in ("DRPO .15", "Mask-DRPO .15") for i in (0, 4, 5)],
                   2 * [1 + 16 / 15, 1 - 16 / 15, -1])  # fmt: skip
at_4 = [interval(small[name, "bernoulli", 4][1]) for name in ("DPPO mask .15", "Mask-DRPO .15")]
at_1 = [interval(small[name, "bernoulli", 1][1]) for name in ("DPPO mask .15", "Mask-DRPO .15")]
assert at_4[0][0] > 0 > at_4[1][2] and -0.25 < at_4[1][0] < -0.2
assert all(low < 0 < high for _, low, high in (*at_1, at_4[0]))
assert all(abs(np.log(small[a][0] / small[b][0])) < 0.15 for a, b in (
    (("DRPO .15", "bernoulli", 1), ("no |A|, .3", "bernoulli", 1)),
    (("DRPO .08", "tree", 5), ("no |A|, .3", "tree", 5)),
))  # fmt: skip
assert np.allclose([ahead["bernoulli"][0], ahead["tree"][0]], [0.04, -0.08], rtol=0, atol=0.005)
assert ahead["bernoulli"][1] > 0 > ahead["tree"][2]

# %% [markdown]
# What $|A|$ does for certain: it takes the scale of the rewards out. Rewards times ten at a tenth of the
# learning rate leave DRPO exactly where it was; without $|A|$ its KL is six times as large. What it costs:
# the average pull need not lower $D$ any more (section 2). Which of the two learns better? We compare radii
# that lead to about the same KL in the first rollout. In the bandits the rule with $|A|$ is ahead by 4
# points, in the trees it is behind by 8. Neither result is a law.
#
# Mask-DRPO is no slope. With $\delta$ equal to the radius its factor falls from 1 to just below 0 at one
# place, as a mask's does, and jumps from 1 to 2 on the other side. What differs from the mask is what comes
# after: a push back. In the bandits at rate 1 neither costs a gain that we could see. At rate 4 Mask-DRPO
# costs 23 points and the mask none that we could see. It is section 3 again: a push back can overshoot, a
# push that is dropped cannot.
#
# `divsim exact drpo` does all this at size, with more radii, worlds and rates.
#
# ## 6. What this lesson does not say
#
# * It does not say what [DRPO]'s 12.5 is in its authors' code. It says what either reading would do.
# * It does not say that soft rules are worse than masks, or than nothing. All rules were compared at one
#   learning rate, in small tables, where no penalty is a strong rival (lesson 07). Engines whose numbers
#   differ from the trainer's, shared weights and long training are what these rules are for.
# * (2) and (5) are about expected steps, and (5) about two actions. A sampled minibatch has noise, and an
#   optimiser such as Adam rescales the push back together with the push.
# * A price that holds KL at a target says nothing of whether that target is the right one.
#
# ## Exercises
#
# 1. For $A > 0$, which of SPO ($\epsilon$) and DRPO ($\delta$) reverses a rising token first? Where do they
#    agree?
# 2. Show that with two tokens every reversed update lowers $D$ to first order.
# 3. What is the bound (5) without $|A|$? Why is "the same $\delta$ without $|A|$" not the same rule made
#    simpler?
# 4. From which starts does the adaptive price of section 4 never settle? What if it moved by factors of
#    $\sqrt 2$?
# 5. Take natural gradient steps in (4): $x \to x + \eta\, a\, (1 - d / \delta)$. What is the bound now, and
#    what does it say about rare actions?
#
# *Solutions.* 1: SPO stops at a gap of $\epsilon \mu_k$ and DRPO at $\delta$, so SPO first if
# $\mu_k < \delta / \epsilon$, which is .75 in section 1. At $\mu_k = \delta / \epsilon$ they are one rule. 2:
# with two tokens $c_k = 2 (1 - \pi_k)\, d_k$ (T5d), so $c_k$ has the sign of $d_k$. 3: the map is
# $x \to x + 2 \eta\, p (1 - p)\, (a - 2 d / \delta)$, so it is stable if and only if
# $2 \eta\, [p^* (1 - p^*)]^2 < \delta$ with $p^* = m + a \delta / 2$. The factor $a$ of (5) has become 2:
# where rewards differ by less than 2, the rule without $|A|$ is stiffer at the same $\delta$. It is another
# rule, with another radius. 4: more than a third; by factors of $\sqrt 2$ KL changes by about 2, which does
# not jump over a zone of 2.25. 5: the slope is $1 - \eta\, a\, p^* (1 - p^*) / \delta$, so
# $\ell = \eta\, a\, p^* (1 - p^*) < 2 \delta$: again the step without a penalty, to first order. For a rare
# action $p^*$ is near $\delta$, and the bound $2 / (a (1 - \delta))$ does not shrink with $\delta$: there,
# natural steps are not stiff. Exercises 3 and 4 by machine:

# %%
print("\nEXERCISE 3")
swing = {}
for a in (0.5, 1.0, 2.0):
    rest = 0.25 + a * 0.15 / 2
    edge = 0.15 / (2 * (rest * (1 - rest)) ** 2)
    swing[a] = [float(np.ptp(follow(drpo_unweighted(0.15), t * edge, 400, a * A_2)[-2:])) for t in (0.9, 1.1)]
    print(f"   a = {a:3g}: critical rate {edge:5.2f} without |A|, {critical(0.15) / a:5.2f} with it;", end="")
    print(f" p swings by {swing[a][0]:.4f} at 0.9 of it, {swing[a][1]:.4f} at 1.1")

print("\nEXERCISE 4")
starts = np.geomspace(8, 32, 200)


def unsettled(power: float) -> float:
    """The share of starts whose price still moves after 60 exact steps, each by 2 to this power."""
    beta = starts
    for _ in range(60):
        kl = distance(problem, penalised(problem, beta), FORWARD_KL, "mean")
        previous, beta = beta, beta * (adapt(beta, kl, TARGET) / beta) ** power
    return float(np.mean(beta != previous))


shares = [unsettled(power) for power in (1.0, 0.5)]
print(f"   of 200 starts from 8 to 32, {percent(shares[0])} never settle", end="")
print(f"; by factors of sqrt(2), {percent(shares[1])}")

assert all(calm < 1e-6 < 0.02 < wild for calm, wild in swing.values())
assert 0.3 < shares[0] < 0.4 and shares[1] == 0
