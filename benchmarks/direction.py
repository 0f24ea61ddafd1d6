"""What a token's exact direction costs: divergence, first-order change and realised change from its logits.

The unit is one `np.exp` over the same float64 logits in the same tiles of rows, timed in the same run; one
`np.exp` over the whole array is shown beside it. Times are CPU seconds of one thread, so that neighbours on
the machine do not count. Run `.venv/bin/python benchmarks/direction.py`; it writes `benchmarks/direction.md`.
"""

import platform
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from divsim.formulas import forward_kl_along, log_softmax, policy_gradient_direction, step_kl

REPEATS = 7
TILE_BYTES = 2**19  # a few arrays of this size fit the caches of one core
GOAL, LIMIT = 20, 35
REPORT = Path(__file__).with_suffix(".md")


@dataclass(frozen=True)
class Tokens:
    """What one measurement reads.

    Attributes:
      mu_logits, pi_logits: (n, V).
      action: (n) int, the sampled token.
      step: (n) logit step s = eta A r.
    """

    mu_logits: Any
    pi_logits: Any
    action: Any
    step: Any

    def tiles(self) -> Iterator["Tokens"]:
        """The same tokens, a few rows at a time."""
        rows = max(1, TILE_BYTES // (8 * self.mu_logits.shape[-1]))
        for start in range(0, len(self.action), rows):
            yield Tokens(*(array[start : start + rows] for array in vars(self).values()))


def draw(count: int, vocabulary: int) -> Tokens:
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((count, vocabulary))
    moved = logits + 0.1 * rng.standard_normal(logits.shape)
    return Tokens(logits, moved, rng.integers(vocabulary, size=count), 0.3 * rng.standard_normal(count))


def directions(tokens: Tokens) -> tuple[Any, Any, Any]:
    """KL(mu || pi), c_k, and the exact change of KL under the token's own step: each (n), nats."""
    log_mu, log_pi = log_softmax(tokens.mu_logits), log_softmax(tokens.pi_logits)
    direction = policy_gradient_direction(log_pi, tokens.action)
    kl, c = forward_kl_along(log_mu, log_pi, direction)
    return kl, c, tokens.step * c + step_kl(log_pi, tokens.step[:, None] * direction)


def over_tiles(work: Callable[[Tokens], Any], tokens: Tokens) -> None:
    for tile in tokens.tiles():
        work(tile)


def exp_of(tokens: Tokens) -> Any:
    return np.exp(tokens.mu_logits)


def fastest(work: Callable[[], Any]) -> float:
    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    work()
    return min(once() for _ in range(REPEATS))


def peak_bytes(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def measured(count: int, vocabulary: int) -> tuple[float, float, str]:
    """The cost in exps of the tiles and in exps of the whole, and a line of the report."""
    tokens = draw(count, vocabulary)
    whole = fastest(partial(exp_of, tokens))
    tiled = fastest(partial(over_tiles, exp_of, tokens))
    work = partial(over_tiles, directions, tokens)
    taken, peak = fastest(work), peak_bytes(work)
    per_logit = 1e9 / tokens.mu_logits.size
    cells = (
        f"{count:,}", f"{vocabulary:,}", f"{taken / tiled:.1f}", f"{taken / whole:.1f}",
        f"{tiled * per_logit:.2f}", f"{taken * per_logit:.1f}", f"{peak / 2**20:.1f}",
    )  # fmt: skip
    return taken / tiled, taken / whole, f"| {' | '.join(cells)} |"


def main() -> None:
    sizes = [(count, 1_000) for count in (500, 1_000, 2_000, 4_000)]
    sizes += [(2_000_000 // vocabulary, vocabulary) for vocabulary in (100, 10_000, 50_000, 151_936)]
    rows = {size: measured(*size) for size in sizes}
    tiled, whole, _ = rows[2_000, 1_000]
    lines = [
        "# The cost of a direction",
        "",
        "Command: `python benchmarks/direction.py`. Per token: two log-softmaxes, KL(mu || pi), c_k and the",
        f"exact change under the token's own step, float64, in tiles of {TILE_BYTES // 2**10} KiB an array.",
        f"CPU seconds of one thread, the fastest of {REPEATS} runs. One exp: `np.exp` of one logit array.",
        "",
        f"2,000 tokens, V = 1,000: {tiled:.1f} exps in the same tiles, {whole:.1f} exps over the whole array "
        f"(goal {GOAL}, limit {LIMIT}).",
        "",
        "| tokens | V | in tiled exps | in whole exps | ns a logit, exp | ns a logit, all | peak MiB |",
        "|---|---|---|---|---|---|---|",
        *(line for _, _, line in rows.values()),
        "",
        "Linear in tokens and in V: the time per logit is flat. Peak memory, beside the logits, is that of",
        "one tile, or of one token where a row is larger than a tile.",
        "",
        f"Python {platform.python_version()}, numpy {version('numpy')}, array-api-compat "
        f"{version('array-api-compat')}; one core, {platform.machine()}.",
    ]
    REPORT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
