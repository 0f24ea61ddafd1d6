# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A tiny language model
#
# So far every world could be enumerated. Here is one that cannot: a transformer of 100,000 weights that
# learns to sort three numbers by reinforcement, from samples that are stale and were drawn in lower
# precision. It is small enough to train while you read, and large enough to show what tables cannot:
# weights that all tokens share.
#
# Questions: what does low precision do to a policy? When does a mask act? What does a KL that looks healthy
# hide? Everything runs on one core in less than a minute; one seed, so what follows is *illustration*. The
# comparison with intervals is `divsim lm compare`.

# %%
import tempfile

import numpy as np
import torch

from divsim.lm.config import preset
from divsim.lm.evaluate import evaluate
from divsim.lm.loss import response_log_probs
from divsim.lm.precision import PRECISIONS, engine
from divsim.lm.rollout import Sampling, generate
from divsim.lm.task import draw_prompts, left_padded
from divsim.lm.train import begin, collect, iterate
from divsim.lm.warm_start import fresh, supervise

torch.set_num_threads(1)
SETTINGS = {"task_settings": {"values": 24, "length": 3}, "warm_steps": 120, "prompts": 16, "lr": 1e-3}
CONFIG = preset("harsh", **SETTINGS)

# %% [markdown]
# ## 1. Where reinforcement begins
#
# A policy that is right already has nothing to learn, and one that is never right has no reward to learn
# from. The base is in between on purpose: it is supervised on demonstrations in which 15 % of the tokens
# are *wrong*. Its likeliest answer is then much better than a sampled one; the difference is what
# reinforcement can win.

# %%
base = fresh(CONFIG)
supervise(base, CONFIG)
start = evaluate(CONFIG, base)
print(f"   weights                {sum(weight.numel() for weight in base.parameters()):,}")
print(f"   likeliest answer right {start['held_out_greedy']:.2f}")
print(f"   sampled answer right   {start['held_out_sampled']:.2f}")

assert start["held_out_greedy"] > start["held_out_sampled"] + 0.2

# %% [markdown]
# ## 2. The same weights, other probabilities
#
# A rollout engine computes in bfloat16 or in FP8, a trainer in something finer. The weights are the same,
# the policies are not: $\mu \neq \pi$ *before any update*. Below, engines of three precisions sample, and
# the trainer (float32) scores what they drew. FP8 is simulated: weights are rounded to e4m3 row by row,
# activations token by token.

# %%
task = CONFIG.make_task()
prompts = draw_prompts(task, np.random.default_rng(1), 512, held_out=False)
tokens, is_prompt = map(torch.from_numpy, left_padded(prompts, task.longest_prompt))
uniforms = torch.from_numpy(np.random.default_rng(2).random((512, task.longest_answer + 1)))
print("   engine   KL(mu || pi)   mean |log r| where mu < .05   where mu > .5")
mismatch = {}
for name in ("fp32", "bf16", "fp8"):
    drawn = generate(engine(base, PRECISIONS[name]), tokens, is_prompt, uniforms, Sampling(k=1))
    log_mu = drawn.log_mu_k[drawn.is_response]
    log_ratio = (response_log_probs(base, drawn))[drawn.is_response] - log_mu
    kl = float((torch.expm1(log_ratio) - log_ratio).mean())  # k3, unbiased at samples of mu
    rare, usual = (float(log_ratio[at].abs().mean()) for at in (log_mu < np.log(0.05), log_mu > np.log(0.5)))
    mismatch[name] = kl, rare, usual
    print(f"   {name:6}   {kl:12.1e}   {rare:27.4f}   {usual:13.4f}")

assert mismatch["fp32"][0] < 1e-6 < mismatch["bf16"][0] < mismatch["fp8"][0]
assert mismatch["fp8"][1] > 2 * mismatch["fp8"][2]

# %% [markdown]
# The error is in the *logits* and about the same for all of them; in the log-probability of a likely token it
# nearly cancels, in that of an unlikely one it does not. So the ratio of rare tokens is noisy, and a ratio
# test, which asks rare and usual tokens alike, spends itself on noise. Forward KL weighs tokens by $\mu$.
#
# Two habits follow. The anchor of a trust region is what the token was *really* drawn from: `log mu` is
# stored when it is sampled and never computed again. And log-probabilities are made in float32, whatever
# the logits are.
#
# ## 3. Masks at work
#
# One rollout, 32 stale minibatches, a learning rate that is too high. What does each rule do with it?


# %%
def learned(rule: str, iterations: int, **changes: object) -> tuple[list[dict[str, float]], object]:
    config = preset("harsh", **(SETTINGS | {"rule": rule, "iterations": iterations, "warmup": 1} | changes))
    state = begin(config, base, "cpu")
    return [iterate(config, state, "cpu") for _ in range(iterations)], state


RULES = ("importance_sampling", "dppo_top_k_kl", "predictive_uniform_kl", "drpo")
ITERATIONS = 6
runs = {rule: learned(rule, ITERATIONS)[0] for rule in RULES}
print(f"   {'rule':22}  {'reward, rollout by rollout':34}  {'dropped':8}  KL, last minibatch")
for rule, run in runs.items():
    rewards = "  ".join(f"{one['reward']:.2f}" for one in run)
    drop = np.mean([one["drop"] or 0.0 for one in run])
    print(f"   {rule:22}  {rewards}  {100 * drop:6.1f} %  {np.mean([one['kl_last'] for one in run]):9.3f}")

kl = {rule: np.mean([one["kl_last"] for one in run]) for rule, run in runs.items()}
assert all(kl[rule] < kl["importance_sampling"] for rule in RULES[1:])
assert runs["dppo_top_k_kl"][1]["drop"] > 0.01
assert runs["importance_sampling"][1]["drop"] == 0
lowest = {rule: min(one["reward"] for one in run) for rule, run in runs.items()}
assert lowest["importance_sampling"] < runs["importance_sampling"][0]["reward"] / 2

# %% [markdown]
# At this rate everybody loses what the base could do; without a mask it goes fastest, the masks slow the
# fall. They keep KL lower, and they are no wall: the tokens that were dropped are moved all the same, by the
# others, through the weights that all share. The lowest KL of all has DRPO, and it is not the one with the
# highest reward: a small step in a bad direction is still a bad step. Who is ahead after six rollouts of one
# seed means little; what is seen at once is that no rule repairs a learning rate.
#
# ## 4. A low KL is not health
#
# Turn the learning rate up until learning without a mask breaks.

# %%
dead, _ = learned("importance_sampling", 6, lr=2e-2)
print("   rollout   reward   groups of equal reward   KL(mu || pi)   updates skipped, of 32")
for one in dead:
    same, skipped = one["same_reward"], one["skipped"]
    print(f"   {one['iteration']:7}   {one['reward']:6.2f}   {same:22.2f}   {one['kl']:12.1e}   {skipped:22}")

worst = max(range(6), key=lambda place: dead[place]["kl"])
assert dead[-1]["reward"] < 0.05 and dead[-1]["same_reward"] > 0.9
assert dead[-1]["kl"] < dead[worst]["kl"] / 5

# %% [markdown]
# When no answer is right any more, every group of answers has equal rewards, every advantage is zero, and
# nothing moves: KL falls to what FP8 alone makes of it, and looks better than ever. Read KL beside the
# reward, and log how many groups have no spread.
#
# ## 5. Two KLs that share a name
#
# A *reference* KL holds the policy near where it began; a trust region holds each *update* near what was
# sampled. One can be small while the other is not.

# %%
run, state = learned("dppo_top_k_kl", 12, lr=4e-4, minibatches=4)
config = preset("harsh", **(SETTINGS | {"rollout_precision": "fp32"}))
record, _ = collect(config, state, "cpu")
drift = (response_log_probs(base, record) - response_log_probs(state.model, record))[record.is_response]
from_start = float((torch.expm1(drift) - drift).mean())
within = float(np.mean([one["kl"] for one in run]))
print(f"   KL(pi || where it began), after 12 rollouts     {from_start:.3f} nats a token")
print(f"   KL(mu || pi), mean over the updates             {within:.3f} nats a token")
print(f"   reward                                          {run[0]['reward']:.2f} -> {run[-1]['reward']:.2f}")

assert from_start > 2 * within
assert run[-1]["reward"] > run[0]["reward"]

# %% [markdown]
# Twelve rollouts of small steps are a long way. A trust region bounds none of it, and a reference penalty
# says nothing about the size of a step.
#
# ## What to take along
#
# - Precision makes a difference of its own between $\mu$ and $\pi$, and it is largest for rare tokens.
# - A mask removes a token's own push; shared weights carry the token along.
# - Reward, entropy, KL and the share of groups without spread are read together or not at all.
# - One run is an anecdote. `divsim lm compare` pairs seeds and gives intervals.

# %%
folder = tempfile.gettempdir()
print(f"   next: divsim lm train --preset smoke --out {folder}/smoke")
assert len(runs) == len(RULES)
