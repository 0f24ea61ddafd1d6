"""What an iteration of the trainer costs beyond bare sampling, forward and backward, and what a mask costs.

The bare loop does the work that nobody can avoid: the same model samples as many tokens through the same
cache, and takes as many plain policy-gradient steps on them, without a record, a view, a rule or a
measurement. CPU seconds of one thread, interleaved, the fastest of several; ratios hold within this run only.
Run `.venv/bin/python benchmarks/lm.py`; it writes `benchmarks/lm.md`.
"""

import copy
import platform
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from divsim.formulas import View, entropy, make_rule
from divsim.lm.config import Config, preset
from divsim.lm.model import Cache
from divsim.lm.train import State, begin, iterate
from divsim.lm.warm_start import fresh

REPEATS = 5
OVERHEAD, SHARE, SHARE_WIDE = 0.25, 0.10, 0.03
REPORT = Path(__file__).with_suffix(".md")
TASKS = {131: ("sort", {}), 515: ("reverse", {})}
RULES = ("reinforce", "ppo_clip", "dppo_top_k_kl", "predictive_uniform_kl", "predictive_full_kl", "certified")


def config(vocab: int, rule: str) -> Config:
    task, settings = TASKS[vocab]
    return preset(
        "smoke", task=task, task_settings=settings, rule=rule, minibatches=16, warm_steps=0, lr=1e-9
    )


def bare(asked: Config, state: State) -> None:
    """Sampling and steps, and nothing else."""
    task, model = asked.make_task(), state.model
    rows, width = asked.prompts * asked.group, task.longest_prompt
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, task.vocab_size, (rows, width), generator=rng)
    with torch.no_grad():
        cache, new = Cache(width + task.longest_answer + 1), tokens
        for _ in range(task.longest_answer + 1):
            seen = torch.ones(rows, tokens.shape[1], dtype=torch.bool)
            logits = model.head(model.features(new, seen, cache)[:, -1])
            new = torch.multinomial(torch.softmax(logits, dim=-1), 1, generator=rng)
            tokens = torch.cat([tokens, new], dim=1)
    for part in tokens.chunk(asked.minibatches):
        seen = torch.ones_like(part[:, :-1], dtype=torch.bool)
        features = model.features(part[:, :-1], seen)[:, width - 1 :]
        log_pi = torch.log_softmax(model.head(features), dim=-1)
        loss = -log_pi.gather(-1, part[:, width:, None]).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        state.optimiser.step()
        state.optimiser.zero_grad()


def seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def fastest(works: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Interleaved, so that a slow moment of the machine meets all alike."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(REPEATS + 1):
        for name, work in works.items():
            taken[name].append(seconds(work))
    return {name: min(times[1:]) for name, times in taken.items()}


def overheads(vocab: int) -> list[str]:
    """An iteration under each rule, over the bare loop."""
    works: dict[str, Callable[[], Any]] = {}
    base = fresh(config(vocab, "reinforce"))
    states = {rule: begin(config(vocab, rule), copy.deepcopy(base), "cpu") for rule in RULES}
    works["bare"] = lambda: bare(config(vocab, "reinforce"), states["reinforce"])
    for rule, state in states.items():
        works[rule] = partial(iterate, config(vocab, rule), state, "cpu")
    taken = fastest(works)
    return [
        f"| {vocab} | {rule} | {1000 * taken[rule]:.0f} | {taken[rule] / taken['bare'] - 1:+.0%} |"
        for rule in ("bare", *RULES)
    ]


def shares(vocab: int, tokens: int, width: int) -> list[str]:
    """View, rule and weights of `tokens` tokens, of a step through the head alone and through a decoder."""
    rng = np.random.default_rng(0)
    mu, pi = (torch.from_numpy(rng.standard_normal((tokens, vocab)) * 2).float() for _ in range(2))
    log_mu, log_pi = torch.log_softmax(mu, dim=-1), torch.log_softmax(mu + 0.1 * pi, dim=-1)
    action, advantage = (
        torch.multinomial(log_mu.exp(), 1)[:, 0],
        torch.from_numpy(rng.standard_normal(tokens)),
    )
    top = log_mu.topk(20, dim=-1)
    log_mu_k = log_mu.gather(-1, action[:, None])[:, 0]
    head = torch.randn(vocab, width, requires_grad=True)
    features = torch.randn(tokens, width, requires_grad=True)

    def step() -> None:
        log_prob = torch.log_softmax(features @ head.T, dim=-1)
        (-log_prob.gather(-1, action[:, None]).mean()).backward()

    def decide(rule: str) -> None:
        full = "_full_" in rule
        view = View.full(log_mu, log_pi, action) if full else View.from_logits(
            log_pi, action, log_mu_k, top.indices, top.values, bracket=rule == "certified"
        )  # fmt: skip
        make_rule(rule)(view, advantage)

    works: dict[str, Callable[[], Any]] = {"head": step, "entropy": lambda: entropy(log_pi)}
    for rule in RULES[1:]:
        works[rule] = partial(decide, rule)
    taken = fastest(works)
    return [
        f"| {vocab:,} | {width} | {rule} | {1000 * taken[rule]:.1f} | {taken[rule] / taken['head']:.0%} |"
        for rule in (*RULES[1:], "entropy")
    ]


def main() -> None:
    torch.set_num_threads(1)
    lines = [line for vocab in TASKS for line in overheads(vocab)]
    pieces = [*shares(515, 288, 64), *shares(32_768, 288, 512)]
    REPORT.write_text(
        f"""# The trainer

Command: `python benchmarks/lm.py`. An iteration: 512 responses of 9 tokens, 16 minibatches, the tiny decoder,
float32. CPU seconds of one thread, interleaved, the fastest of {REPEATS}. *Bare*: sampling through the
cache and plain policy-gradient steps, nothing recorded or measured. The goal was at most
{OVERHEAD:.0%} above it.

| V | rule | milliseconds | above bare |
|---|---|---|---|
{chr(10).join(lines)}

View, rule and weights of 288 tokens, beside one pass of the same tokens through the head and back (no decoder
body, so a share of less than a step). The goal was {SHARE:.0%} of a training step at V = 515, and
{SHARE_WIDE:.0%} for top-K rules at V = 32,768. Both are missed: a top-K view passes several times over all
logits, for pi's tail mass and its sum of squares and to check what it is given.

| V | width of the head | what | milliseconds | of the head's step |
|---|---|---|---|---|
{chr(10).join(pieces)}

Python {platform.python_version()}, torch {version("torch")}; one core, {platform.machine()}.
""",
        encoding="utf-8",
    )
    print(REPORT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
