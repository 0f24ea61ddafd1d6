"""How far the formulas are from their floor, as ratios within one run.

The floor of a measure or a change over whole policies is reading two arrays and taking one exponential of
each: `exp(log_mu)` and `exp(log_pi)`. Run `.venv/bin/python benchmarks/formulas.py [tokens] [vocabulary]`.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from divsim.formulas import DIVERGENCES, View, change, log_softmax

REPEATS = 5


def fastest(work: Callable[[], Any]) -> float:
    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    work()
    return min(once() for _ in range(REPEATS))


def rows(log_mu: Any, log_pi: Any, action: Any, exp: Callable[[Any], Any]) -> list[tuple[str, float]]:
    def floor() -> None:
        exp(log_mu), exp(log_pi)

    unit = fastest(floor)
    full = View.full(log_mu, log_pi, action)
    works = {
        "View.full, checked": partial(View.full, log_mu, log_pi, action),
        "View.full, unchecked": partial(View.full, log_mu, log_pi, action, check=False),
        "View.top_k, K = 20": partial(View.top_k, log_mu, log_pi, action, 20, check=False),
        "View.top_k, K = 20, bracket": partial(
            View.top_k, log_mu, log_pi, action, 20, check=False, bracket=True
        ),
        "change, forward_kl": partial(change, full),
        **{f"{name}.measure": partial(d.measure, log_mu, log_pi) for name, d in DIVERGENCES.items()},
    }
    return [(name, fastest(work) / unit) for name, work in works.items()]


def main(tokens: int = 64, vocabulary: int = 50_000) -> None:
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((tokens, vocabulary), dtype=np.float32)
    log_mu = log_softmax(logits)
    log_pi = log_softmax(logits + 0.1 * rng.standard_normal(logits.shape, dtype=np.float32))
    action = rng.integers(vocabulary, size=tokens)
    tables = {"numpy": dict(rows(log_mu, log_pi, action, np.exp))}
    try:
        import torch
    except ImportError:
        print("torch is not installed: NumPy only")
    else:
        arrays = [torch.from_numpy(x) for x in (log_mu, log_pi, action)]
        tables["torch"] = dict(rows(*arrays, torch.exp))
    print(f"{tokens} tokens, V = {vocabulary:,}, float32; times in units of exp(log_mu) and exp(log_pi)\n")
    print(f"{'':30}" + "".join(f"{library:>8}" for library in tables))
    for name in tables["numpy"]:
        print(f"{name:30}" + "".join(f"{table[name]:8.1f}" for table in tables.values()))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
