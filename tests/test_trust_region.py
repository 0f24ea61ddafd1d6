"""The yardstick against a simplex grid, mathematical programming, optimality conditions and rivals."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pairs import logs
from region_oracles import PLAIN, by_linear_program, by_nonlinear_program

from divsim.tabular.policies import Shape, dirichlet
from divsim.tabular.trust_region import (
    REGIONS,
    SCOPES,
    Problem,
    distance,
    forward_tilt,
    optimum,
    reverse_tilt,
    surrogate,
)

Floats = NDArray[np.float64]

RADIUS_ERROR = 1e-8  # relative; log pi is rounded at 1e-15 and a radius of 1e-6 may be linear in it
EVERY = list(product(REGIONS, SCOPES))
RADII = (1e-6, 1e-3, 0.05, 0.3)


def random_problem(
    seed: int,
    shape: Shape = (),
    states: int = 3,
    vocab: int = 4,
    concentration: float = 1,
    decades: float = 0,
) -> Problem:
    """Gaussian advantages; `decades` spreads their sizes over that many powers of ten."""
    rng = np.random.default_rng(seed)
    size = 10 ** (decades * (rng.random((*shape, states, vocab)) - 2 / 3))
    return Problem(
        dirichlet(rng, (*shape, states), vocab, concentration),
        size * rng.standard_normal((*shape, states, vocab)),
        rng.dirichlet(np.ones(states), shape),
    )


def apart(name: str, scope: str, problem: Problem, pi: Floats) -> Any:
    in_state = PLAIN[name](np.exp(problem.log_mu), pi)
    return np.max(in_state, axis=-1) if scope == "state" else np.sum(problem.weight * in_state, axis=-1)


def solve(name: str, scope: str, problem: Problem, delta: Any) -> Floats:
    return optimum(problem, REGIONS[name], delta, scope)


@pytest.mark.parametrize(("name", "scope"), EVERY)
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_is_that_of_mathematical_programming(name: str, scope: str, seed: int) -> None:
    problem = random_problem(seed, concentration=2.0)
    parts = np.exp(problem.log_mu), problem.advantage, problem.weight
    for delta in (0.01, 0.1):
        worth = float(surrogate(problem, solve(name, scope, problem, delta)))
        if name == "tv":
            assert worth == pytest.approx(by_linear_program(*parts, delta, scope), abs=1e-9)  # HiGHS: 1e-9
        else:
            assert worth == pytest.approx(by_nonlinear_program(name, *parts, delta, scope), abs=1e-6)


@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize("delta", RADII)
def test_no_point_of_a_simplex_grid_is_better(name: str, delta: float) -> None:
    problem = random_problem(5, states=1, vocab=3, concentration=3.0)
    n = 400
    counts = np.array([(i, j, n - i - j) for i in range(1, n) for j in range(1, n - i)])
    grid = counts[:, None, :] / n
    is_inside = apart(name, "state", problem, grid) <= delta
    best = float(surrogate(problem, solve(name, "state", problem, delta)))
    values = np.sum(grid * problem.advantage, axis=(-1, -2))[is_inside]
    assert np.all(values <= best)
    if delta > 0.01:  # a smaller region holds few points; here the best is within two cells of the edge
        assert best - np.max(values) < 2 / n * np.ptp(problem.advantage)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("delta", RADII)
def test_multipliers_exist(scope: str, delta: float) -> None:
    """Forward: mu / pi falls as a line in A; reverse: log mu / pi falls as one; in the mean, one slope."""
    problem = random_problem(6, (50,))
    for name, line in (
        ("forward_kl", lambda log_pi: np.exp(problem.log_mu - log_pi)),
        ("reverse_kl", lambda log_pi: problem.log_mu - log_pi),
    ):
        log_pi = solve(name, scope, problem, delta)
        binds = np.all(np.isfinite(log_pi), axis=-1)  # elsewhere greedy is within delta
        assert np.mean(binds) > 0.5
        x = problem.advantage - problem.advantage.mean(axis=-1, keepdims=True)
        y = line(np.where(binds[..., None], log_pi, 0))
        slope = np.sum(x * y, axis=-1, keepdims=True) / np.sum(x * x, axis=-1, keepdims=True)
        off = y - y.mean(axis=-1, keepdims=True) - slope * x
        assert np.all(slope[binds] < 0)
        # y is rounded at 1e-15 (1 + |y|), and a small step leaves 1e-4 of it to see.
        assert np.max((np.abs(off) / np.max(np.abs(slope * x), axis=-1, keepdims=True))[binds]) < 1e-9
        if scope == "mean":
            together = np.all(binds, axis=-1)
            same = np.broadcast_to(slope[:, :1], slope.shape)
            np.testing.assert_allclose(slope[together], same[together], rtol=1e-9)


@pytest.mark.parametrize(("name", "scope"), EVERY)
@given(
    seed=st.integers(0, 10**6),
    log_delta=st.floats(-6, np.log10(3)),
    concentration=st.sampled_from([0.01, 0.1, 1.0, 10.0]),
    log_scale=st.floats(-6, 3),
    decades=st.sampled_from([0.0, 9.0]),
)
def test_the_constraint_is_met_or_slack(
    name: str, scope: str, seed: int, log_delta: float, concentration: float, log_scale: float, decades: float
) -> None:
    drawn = random_problem(seed, (20,), 3, 5, concentration, decades)
    problem = Problem(drawn.log_mu, 10**log_scale * drawn.advantage, drawn.weight)
    delta = 10**log_delta
    log_pi = solve(name, scope, problem, delta)
    np.testing.assert_allclose(np.sum(np.exp(log_pi), axis=-1), 1, atol=1e-12)
    reached = distance(problem, log_pi, REGIONS[name].divergence, scope)
    is_slack = distance(problem, problem.greedy, REGIONS[name].divergence, scope) <= delta
    assert np.all(reached <= delta * (1 + RADIUS_ERROR))
    np.testing.assert_allclose(reached[~is_slack], delta, rtol=RADIUS_ERROR)
    np.testing.assert_array_equal(log_pi[is_slack], problem.greedy[is_slack])


@pytest.mark.parametrize(("name", "scope"), EVERY)
@pytest.mark.parametrize("delta", RADII)
def test_nobody_beats_the_optimum(name: str, scope: str, delta: float) -> None:
    """A thousand rivals: mixtures of mu with anything, as far out as the region allows."""
    problem = random_problem(7)
    best = float(surrogate(problem, solve(name, scope, problem, delta)))
    rng = np.random.default_rng(8)
    mu = np.exp(problem.log_mu)
    # Half of the rivals know where to go: tilted by the advantage times a random factor.
    drawn = rng.dirichlet(np.full(4, 0.5), (500, 3))
    tilted = mu * np.exp(rng.gamma(1.0, 3.0, (500, 3, 1)) * problem.advantage)
    goal = np.concatenate([drawn, tilted / tilted.sum(axis=-1, keepdims=True)])
    low, high = np.zeros(1000), np.full(1000, 1 - 1e-9)
    for _ in range(50):
        middle = (low + high) / 2
        inside = apart(name, scope, problem, mu + middle[:, None, None] * (goal - mu)) <= delta
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    rivals = mu + low[:, None, None] * (goal - mu)
    worth = np.sum(problem.weight[:, None] * rivals * problem.advantage, axis=(-1, -2))
    assert np.all(worth <= best + 1e-9 * abs(best))
    start = float(surrogate(problem, problem.log_mu))
    assert np.max(worth) > start + 0.1 * (best - start)  # some rival has gone some of the way


@pytest.mark.parametrize(("name", "scope"), EVERY)
def test_more_room_gains_more_until_greedy(name: str, scope: str) -> None:
    problem = random_problem(9)
    radii = np.geomspace(1e-6, 30, 60)
    worth = surrogate(problem, solve(name, scope, problem, radii))
    most = float(surrogate(problem, problem.greedy))
    assert np.all(np.diff(worth) >= -1e-15)
    assert np.all(np.diff(worth)[:30] > 0)
    # E^-30 of the mass is left behind in forward KL, and none in the others.
    assert worth[-1] == pytest.approx(most, abs=1e-9)


@pytest.mark.parametrize(("name", "scope"), EVERY)
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-6, 1e6), shift=st.floats(-4, 4))
def test_neither_scale_nor_shift_of_advantages_matters(
    name: str, scope: str, seed: int, scale: float, shift: float
) -> None:
    problem = random_problem(seed)
    per_state = shift * np.arange(3.0)[:, None]
    moved = Problem(problem.log_mu, scale * (problem.advantage + per_state), problem.weight)
    for delta in (1e-3, 0.3):
        before, after = (np.exp(solve(name, scope, which, delta)) for which in (problem, moved))
        # A shift by 10 rounds gaps at 1e-15; two gaps of 1e-6 or a curved region may amplify that a little.
        np.testing.assert_allclose(after, before, atol=1e-9)


def test_many_problems_and_radii_at_once_are_each_alone() -> None:
    problem = random_problem(10, (4, 2))
    radii = np.array([0.01, 0.2])
    for name, scope in EVERY:
        together = solve(name, scope, problem, radii)
        for place in np.ndindex(4, 2):
            one = Problem(problem.log_mu[place], problem.advantage[place], problem.weight[place])
            alone = solve(name, scope, one, radii[place[1]])
            np.testing.assert_allclose(together[place], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "scope"), EVERY)
def test_edges_are_defined(name: str, scope: str) -> None:
    """Nothing to gain; never visited; an action out of reach; 1e-12 left to gain; a tie for the best."""
    mu = np.array([[0.2, 0.3, 0.5]] * 2 + [[0, 0.4, 0.6], [1 - 1e-12, 6e-13, 4e-13], [0.1, 0.3, 0.6]])
    advantage = np.array([[2.0, 2, 2], [2, 1, 0], [9, 1, 0], [2, 1, 0], [1, 1, 0]])
    problem = Problem(logs(mu), advantage, np.array([0.3, 0.0, 0.2, 0.3, 0.2]))
    for delta in (1e-6, 0.1, 3.0):
        log_pi = solve(name, scope, problem, delta)
        pi = np.exp(log_pi)
        assert not np.any(np.isnan(log_pi))
        np.testing.assert_allclose(pi.sum(axis=-1), 1, atol=1e-12)
        np.testing.assert_allclose(pi[:2], mu[:2], atol=1e-15)
        assert pi[2, 0] == 0
        assert pi[2, 1] >= 0.4
        assert pi[3, 0] >= mu[3, 0]
        assert pi[4, 1] / pi[4, 0] == pytest.approx(3, rel=1e-12)
    assert pi[2, 1] > 0.9  # at the largest radius
    everything = Problem(problem.log_mu, np.ones_like(advantage), problem.weight)
    np.testing.assert_allclose(np.exp(solve(name, scope, everything, 0.1)), mu, atol=1e-15)


@pytest.mark.parametrize("left", [1e-3, 1e-12, 1e-100])
def test_an_almost_certain_action_pushes_the_rest_as_far_as_delta_goes(left: float) -> None:
    """KL(mu || pi) has no upper limit: the log-probability of what is left falls by about delta / left."""
    mu = np.array([[1 - left, left]])
    problem = Problem(np.log(mu), np.array([[1.0, 0.0]]), np.array([1.0]))
    log_pi = solve("forward_kl", "state", problem, 0.5)
    assert left * (np.log(left) - log_pi[0, 1]) == pytest.approx(0.5, rel=2 * left + RADIUS_ERROR)


def test_a_state_that_mu_never_visits_is_at_no_distance() -> None:
    problem = Problem(np.log(np.full((2, 2), 0.5)), np.zeros((2, 2)), np.array([1.0, 0.0]))
    log_pi = np.array([[np.log(0.25), np.log(0.75)], [0.0, -np.inf]])
    for name, scope in EVERY:
        expected = PLAIN[name](np.array([0.5, 0.5]), np.array([0.25, 0.75]))
        reached = distance(problem, log_pi, REGIONS[name].divergence, scope)
        assert float(reached) == pytest.approx(float(expected), rel=1e-12)


def test_trpo_is_not_the_exponential_tilt() -> None:
    """Under KL(mu || pi) the tilt mu e^(A / lam) at the same distance gains less, but for two actions."""
    for vocab, is_same in ((2, True), (3, False), (6, False)):
        problem = random_problem(11, (100,), states=1, vocab=vocab)
        log_pi = reverse_tilt(problem.log_mu, problem.gap, np.log(np.full((100, 1), 0.7)))
        kl = distance(problem, log_pi, REGIONS["forward_kl"].divergence, "state")
        best = solve("forward_kl", "state", problem, kl)
        lost = surrogate(problem, best) - surrogate(problem, log_pi)
        assert np.all(lost > -1e-12)
        if is_same:
            np.testing.assert_allclose(np.exp(best), np.exp(log_pi), atol=1e-9)  # sqrt of rounding in KL
        else:
            assert np.median(lost) > 1e-4


@given(seed=st.integers(0, 10**6), log_lam=st.floats(-30, 30), concentration=st.sampled_from([0.01, 1.0]))
def test_forward_tilt_solves_its_equation(seed: int, log_lam: float, concentration: float) -> None:
    """pi_i (nu - A_i) = lam mu_i with one nu, and probabilities that sum to 1 before they are normalised."""
    problem = random_problem(seed, (20,), 1, 5, concentration, decades=9.0)
    log_pi = forward_tilt(problem.log_mu, problem.gap, np.array([log_lam]))
    np.testing.assert_allclose(np.exp(log_pi).sum(axis=-1), 1, atol=1e-12)
    best = np.argmax(problem.advantage, axis=-1)[..., None]
    ahead = np.exp(np.take_along_axis(problem.log_mu - log_pi, best, axis=-1))  # (nu - max A) / lam
    expected = problem.log_mu - np.logaddexp(np.log(ahead), logs(problem.gap) - log_lam)
    np.testing.assert_allclose(log_pi, expected, rtol=1e-12, atol=1e-9)  # |log pi| up to 1e3, a few roundings


def test_refusals_name_the_remedy() -> None:
    problem = random_problem(12)
    with pytest.raises(ValueError, match=r"delta must be > 0 .* got 0"):
        optimum(problem, REGIONS["tv"], 0.0, "mean")
    with pytest.raises(ValueError, match="scope must be one of state, mean, got 'max'"):
        optimum(problem, REGIONS["tv"], 0.1, "max")
    with pytest.raises(ValueError, match="must have shapes"):
        Problem(problem.log_mu, problem.advantage[:2], problem.weight)
    with pytest.raises(ValueError, match="advantage must be finite"):
        Problem(problem.log_mu, np.full((3, 4), np.nan), problem.weight)
    with pytest.raises(ValueError, match=r"advantage must be at most 8e\+307 in size, got 1e\+308"):
        Problem(problem.log_mu, np.full((3, 4), -1e308), problem.weight)
    for wrong in (problem.log_mu - 0.1, np.full((3, 4), -np.inf), np.full((3, 4), np.nan)):
        with pytest.raises(ValueError, match="log_mu must be log-probabilities, mu sums to"):
            Problem(wrong, problem.advantage, problem.weight)
    with pytest.raises(ValueError, match="sum to 1 over S"):
        Problem(problem.log_mu, problem.advantage, 2 * problem.weight)
