r"""Exact trees for T12: every prefix with its policies, every sequence with its reward, in rationals."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from random import Random

from .intervals import policy
from .theorem import Verdict

Tokens = tuple[int, ...]
SHAPES = ((2, 2), (3, 2), (5, 2), (2, 3), (3, 3), (2, 4))
"""Vocabulary size and horizon of the random trees."""


@dataclass(frozen=True)
class Tree:
    """Two policies on every prefix, and the reward of every sequence."""

    mu: Mapping[Tokens, list[Fraction]]
    pi: Mapping[Tokens, list[Fraction]]
    reward: Mapping[Tokens, Fraction]

    def gain_surrogate_gap(self) -> tuple[Fraction, Fraction, Fraction]:
        """J(pi) - J(mu), L' and Delta, each by its definition."""
        gain, surrogate, gap = Fraction(0), Fraction(0), Fraction(0)
        for tokens, reward in self.reward.items():
            steps = [(tokens[:t], token) for t, token in enumerate(tokens)]
            r = [self.pi[prefix][token] / self.mu[prefix][token] for prefix, token in steps]
            weight = reward * prod(self.mu[prefix][token] for prefix, token in steps)
            gain += weight * (prod(r) - 1)
            surrogate += weight * sum(ratio - 1 for ratio in r)
            gap += weight * sum((ratio - 1) * (1 - prod(r[t + 1 :])) for t, ratio in enumerate(r))
        return gain, surrogate, gap

    def bound(self) -> Fraction:
        """2 T (T - 1) xi eps^2."""
        horizon, xi = max(map(len, self.reward)), max(map(abs, self.reward.values()))
        pairs = [zip(self.pi[prefix], self.mu[prefix], strict=True) for prefix in self.mu]
        eps = max(sum((abs(a - b) for a, b in rows), Fraction(0)) / 2 for rows in pairs)
        return 2 * horizon * (horizon - 1) * xi * eps * eps


def random_tree(rng: Random, size: int, horizon: int) -> Tree:
    """Policies from whole numbers up to 9, rewards from -1 to 1."""
    prefixes = [prefix for t in range(horizon) for prefix in product(range(size), repeat=t)]

    def rows() -> dict[Tokens, list[Fraction]]:
        return {prefix: policy([rng.randint(1, 9) for _ in range(size)]) for prefix in prefixes}

    rewards = {leaf: Fraction(rng.randint(-6, 6), 6) for leaf in product(range(size), repeat=horizon)}
    return Tree(rows(), rows(), rewards)


def random_trees() -> Verdict:
    """The gap is what the gain lacks, and within its bound, on 300 trees."""
    rng, holds, largest = Random(0), True, Fraction(0)
    for number in range(300):
        tree = random_tree(rng, *SHAPES[number % len(SHAPES)])
        gain, surrogate, gap = tree.gain_surrogate_gap()
        holds = holds and gain == surrogate - gap and abs(gap) <= tree.bound()
        largest = max(largest, abs(gap) / tree.bound())
    return Verdict(holds, f"300 trees with T from 2 to 4: |Δ| is at most {float(largest):.2f} of the bound")


def attained() -> Verdict:
    """Two tokens that reach the bound."""
    even, tilted = policy((1, 1)), policy((3, 1))
    prefixes: tuple[Tokens, ...] = ((), (0,), (1,))
    rewards: dict[Tokens, Fraction] = {
        (i, h): Fraction(1 if i == h else -1) for i, h in product((0, 1), repeat=2)
    }
    tree = Tree(dict.fromkeys(prefixes, even), dict.fromkeys(prefixes, tilted), rewards)
    _, _, gap = tree.gain_surrogate_gap()
    return Verdict(
        abs(gap) == tree.bound(),
        f"μ = (1, 1)/2, π = (3, 1)/4 at both tokens, R = ±1: Δ = {gap}, the bound is {tree.bound()}",
    )
