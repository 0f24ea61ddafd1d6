"""Steps against torch's optimisers; a token's share of a step against the published lines of Adam."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from divsim.tabular.optimisers import Moments, Optimiser, adam, sgd

Floats = NDArray[np.float64]

OTHER_BETAS = (0.7, 0.95)
PAIRS: list[tuple[Optimiser, Callable[[list[torch.Tensor]], torch.optim.Optimizer]]] = [
    (sgd(0.2), lambda p: torch.optim.SGD(p, lr=0.2)),
    (adam(0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
    (adam(0.3, OTHER_BETAS, 1e-2), lambda p: torch.optim.Adam(p, lr=0.3, betas=OTHER_BETAS, eps=1e-2)),
]


def fresh(shape: tuple[int, ...]) -> Moments:
    return Moments(np.zeros(shape), np.zeros(shape))


def remembered(seed: int = 1) -> tuple[Floats, Moments]:
    """A gradient and the moments of some steps before it, (4, 3)."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((4, 3)), Moments(rng.standard_normal((4, 3)), rng.random((4, 3)), 6)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["sgd", "adam", "adam with other betas"])
def test_steps_are_those_of_torch(
    ours: Optimiser, theirs: Callable[[list[torch.Tensor]], torch.optim.Optimizer]
) -> None:
    rng = np.random.default_rng(0)
    weights = torch.zeros(5, 3, dtype=torch.float64, requires_grad=True)
    optimiser = theirs([weights])
    mine, moments = np.zeros((5, 3)), fresh((5, 3))
    for _ in range(20):
        gradient = rng.standard_normal((5, 3))
        weights.grad = -torch.from_numpy(gradient)  # torch descends
        optimiser.step()
        step, moments = ours.step(gradient, moments)
        mine = mine + step
        np.testing.assert_allclose(mine, weights.detach().numpy(), rtol=1e-12, atol=1e-15)  # 20 additions


def test_the_share_of_a_gradient_under_adam_is_that_of_algorithm_1() -> None:
    rate, b1, b2, epsilon = 0.3, *OTHER_BETAS, 1e-2
    gradient, moments = remembered()
    found = adam(rate, OTHER_BETAS, epsilon).scale(gradient, moments)
    for place in np.ndindex(gradient.shape):
        v = b2 * moments.second[place] + (1 - b2) * gradient[place] ** 2
        root = math.sqrt(v / (1 - b2**7))
        expected = rate * (1 - b1) / (1 - b1**7) / (root + epsilon)
        assert found[place] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("optimiser", [sgd(0.2), adam(0.01)], ids=lambda o: o.name)
def test_shares_of_a_gradient_and_the_memory_add_up_to_the_step(optimiser: Optimiser) -> None:
    gradient, moments = remembered()
    parts = gradient * np.random.default_rng(2).dirichlet(np.ones(5))[:, None, None]
    step, _ = optimiser.step(gradient, moments)
    forgetful, _ = optimiser.step(gradient, Moments(0 * moments.first, moments.second, moments.steps))
    shares = optimiser.scale(gradient, moments) * parts
    np.testing.assert_allclose(shares.sum(axis=0), forgetful, rtol=1e-14)  # five additions
    memory = step - forgetful
    if optimiser.name == "sgd":
        assert np.array_equal(memory, np.zeros_like(memory))
    else:
        # what is left is beta_1 / (1 - beta_1) of the old mean, seen as a gradient
        expected = optimiser.scale(gradient, moments) * moments.first * 0.9 / (1 - 0.9)
        np.testing.assert_allclose(memory, expected, rtol=1e-12, atol=1e-15)  # a difference of steps


def test_adam_forgets_the_size_of_its_first_gradient_and_sgd_does_not() -> None:
    gradient = np.array([3.0, -1e-3, 40.0])
    small, _ = adam(0.1, epsilon=1e-300).step(1e-5 * gradient, fresh((3,)))
    np.testing.assert_allclose(small, 0.1 * np.sign(gradient), rtol=1e-12)  # bias corrections cancel
    plain, _ = sgd(0.1).step(1e-5 * gradient, fresh((3,)))
    np.testing.assert_allclose(plain, 1e-6 * gradient, rtol=1e-15)


@pytest.mark.parametrize("optimiser", [sgd(0.2), adam(0.01)], ids=lambda o: o.name)
def test_a_step_leaves_what_it_was_given_and_adam_counts_it(optimiser: Optimiser) -> None:
    gradient, moments = remembered()
    _, after = optimiser.step(gradient, moments)
    optimiser.scale(gradient, moments)
    again, kept = remembered()
    assert np.array_equal(gradient, again)
    assert np.array_equal(moments.first, kept.first) and np.array_equal(moments.second, kept.second)
    assert moments.steps == 6
    assert after.steps == (7 if optimiser.name == "adam" else 6)
