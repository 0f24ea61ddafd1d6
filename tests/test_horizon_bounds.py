"""Finite-horizon bounds: by enumeration of every answer, by their written sums, and in a worked example."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bound_worlds import kl, random_tree, tv, worst_tree
from conftest import Library

from divsim.formulas import (
    horizon_adaptive,
    horizon_coupling,
    horizon_linear,
    horizon_mixed,
    horizon_pinsker_marginal,
    horizon_quadratic,
    pinsker,
)

TREES = 300


def horizon_bounds(tree: Any) -> dict[str, float]:
    steps, max_tv, max_kl = tree.horizon, tree.max_of(tv), tree.max_of(kl)
    bounds = {
        "quadratic": horizon_quadratic(max_tv, steps),
        "linear": horizon_linear(tree.mean_tv()),
        "coupling": horizon_coupling(max_tv, steps),
        "marginal": horizon_pinsker_marginal(max_kl, steps),
        "mixed": horizon_mixed(max_kl, tree.sequence_kl(), steps),
        "adaptive": horizon_adaptive(tree.mean_tv(), max_tv, max_kl),
    }
    return {name: float(bound) for name, bound in bounds.items()}


def test_horizon_bounds_hold_on_random_trees() -> None:
    rng = np.random.default_rng(102)
    for _ in range(TREES):
        tree = random_tree(rng)
        error = abs(tree.error())
        for name, bound in horizon_bounds(tree).items():
            assert error <= bound + 1e-12, name  # 81 leaves, float64


def test_horizon_bounds_hold_on_the_worst_tree_at_any_step() -> None:
    for step in (0.01, 0.1, 0.3, 0.49):
        tree = worst_tree(step)
        assert all(abs(tree.error()) <= bound * (1 + 1e-12) for bound in horizon_bounds(tree).values())
        assert abs(tree.error()) > 0.99 * horizon_bounds(tree)["quadratic"]


def test_sequences_part_no_further_than_their_tokens() -> None:
    rng = np.random.default_rng(103)
    for _ in range(50):
        tree = random_tree(rng)
        leaves = [tree.prefixes(policy)[-1] for policy in (tree.mu, tree.pi)]
        assert tv(*leaves) <= tree.mean_tv().sum() + 1e-14
        reached = tree.prefixes(tree.mu)
        token_kl = sum(reached[t] @ kl(tree.mu[t], tree.pi[t]) for t in range(tree.horizon))
        assert tree.sequence_kl() == pytest.approx(token_kl, rel=1e-9)


LOOPS: dict[str, tuple[Callable[..., Any], Callable[..., float]]] = {
    "quadratic": (
        lambda e, k, s, d: horizon_quadratic(e, d.shape[-1]),
        lambda e, k, s, d: 2 * len(d) * (len(d) - 1) * e * e,
    ),
    "linear": (lambda e, k, s, d: horizon_linear(d), lambda e, k, s, d: 4 * sum(d)),
    "coupling": (
        lambda e, k, s, d: horizon_coupling(e, d.shape[-1]),
        lambda e, k, s, d: 4 * sum(min(1, e) * min(1, (t - 1) * e) for t in range(1, len(d) + 1)),
    ),
    "marginal": (
        lambda e, k, s, d: horizon_pinsker_marginal(k, d.shape[-1]),
        lambda e, k, s, d: 4 * sum(
            min(1, math.sqrt(k / 2)) * min(1, math.sqrt((t - 1) * k / 2)) for t in range(1, len(d) + 1)
        ),
    ),
    "mixed": (
        lambda e, k, s, d: horizon_mixed(k, s, d.shape[-1]),
        lambda e, k, s, d: 4 * len(d) * min(1, math.sqrt(k / 2)) * min(1, math.sqrt(s / 2)),
    ),
    "adaptive": (
        lambda e, k, s, d: horizon_adaptive(d, e, k),
        lambda e, k, s, d: 4 * sum(
            x * min(1, (len(d) - t) * e, math.sqrt((len(d) - t) * k / 2)) for t, x in enumerate(d, start=1)
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_horizon_bounds_by_their_sums(xp: Library, name: str) -> None:
    """Where nothing is capped, where later steps are, and where everything is: TV above 1 is not a TV,
    but a bound of it may come in."""
    shipped, by_hand = LOOPS[name]
    rng = np.random.default_rng(104)
    for e, k, s in ((0.002, 0.001, 0.03), (0.3, 0.2, 0.7), (0.6, 5.0, 0.1), (7.0, 40.0, 90.0)):
        for steps in (1, 2, 5, 40):
            mean_tv = e * rng.random(steps)
            arrays = (xp.array(np.array(x)) for x in (e, k, s, mean_tv))
            assert float(shipped(*arrays)) == pytest.approx(by_hand(e, k, s, mean_tv.tolist()), rel=1e-13)


@pytest.mark.parametrize("name", LOOPS)
def test_leading_shape_is_free(name: str) -> None:
    rng, shipped = np.random.default_rng(106), LOOPS[name][0]
    e, k, s, mean_tv = rng.random((2, 3)), rng.random((2, 3)), rng.random((2, 3)), rng.random((2, 3, 5))
    together = shipped(e, k, s, mean_tv)
    for place in np.ndindex(2, 3):
        alone = shipped(e[place], k[place], s[place], mean_tv[place])
        assert together[place] == pytest.approx(float(alone), rel=1e-14)


def test_a_reward_of_any_size_scales_the_bound() -> None:
    one, ten = np.array(0.1), {"xi": 10.0}
    mean_tv = np.array([0.1, 0.2])
    assert horizon_quadratic(one, 4, **ten) == 10 * horizon_quadratic(one, 4)
    assert horizon_linear(mean_tv, **ten) == 10 * horizon_linear(mean_tv)
    assert horizon_coupling(one, 4, **ten) == pytest.approx(10 * horizon_coupling(one, 4))
    assert horizon_mixed(one, one, 4, **ten) == pytest.approx(10 * horizon_mixed(one, one, 4))
    assert horizon_pinsker_marginal(one, 4, **ten) == pytest.approx(10 * horizon_pinsker_marginal(one, 4))
    assert horizon_adaptive(mean_tv, one, one, **ten) == pytest.approx(
        10 * horizon_adaptive(mean_tv, one, one)
    )


def test_the_worked_example_of_a_long_answer(xp: Library) -> None:
    """T = 4096, KL 1e-4 at each token, sequence KL 0.01: 1677, 35.0 and 8.19, all of them beyond |R| = 1."""
    k = xp.array(np.array(1e-4))
    assert float(horizon_quadratic(pinsker(k), 4096)) == pytest.approx(4096 * 4095 * 1e-4, rel=1e-13)
    assert round(float(horizon_quadratic(pinsker(k), 4096))) == 1677
    assert round(4 / 3 * 4096**1.5 * 1e-4, 1) == 35.0  # the integral that bounds the sum
    assert float(horizon_pinsker_marginal(k, 4096)) == pytest.approx(34.946, abs=5e-4)
    assert round(float(horizon_mixed(k, xp.array(np.array(0.01)), 4096)), 2) == 8.19


def test_a_horizon_below_one_is_an_error() -> None:
    x = np.array(0.1)
    for horizon in (0, -3):
        for call in (horizon_quadratic, horizon_coupling, horizon_pinsker_marginal):
            with pytest.raises(ValueError, match=rf"horizon must be .+ got {horizon}"):
                call(x, horizon)
        with pytest.raises(ValueError, match=rf"horizon must be .+ got {horizon}"):
            horizon_mixed(x, x, horizon)
