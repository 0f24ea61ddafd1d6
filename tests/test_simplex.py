"""The picture of the simplex says what is true: areas, curves, paths; and it is the same every time."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.path import Path as Outline
from numpy.typing import NDArray
from scipy.stats import binomtest

from divsim.experiments.simplex import FALLS, RISES, Case, Config, Panel, plot, run, verdicts
from divsim.experiments.style import save
from divsim.experiments.triangle import cells, to_plane

Floats = NDArray[np.float64]
LARGEST_FILE = 200_000  # bytes: a README loads it

SKEWED = Case(mu=(5 / 7, 1 / 7, 1 / 7), action=1, pi=(1 / 7, 2 / 7, 4 / 7), longest_step=0.5)
PANELS = run(Config(cases=(FALLS, RISES, SKEWED))).panels
each_panel = pytest.mark.parametrize("panel", PANELS, ids=("falls", "rises", "skewed"))


def kl(mu: Floats, pi: Floats) -> Floats:
    """The oracle: the textbook sum."""
    return np.asarray(np.sum(mu * (np.log(mu) - np.log(pi)), axis=-1))


def stepped(pi: Floats, action: int, s: float) -> Floats:
    """The oracle: logits, moved by s (e_k - pi), through softmax."""
    weights = np.exp(np.log(pi) + s * (np.eye(pi.shape[-1])[action] - pi))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def slope(mu: Floats, pi: Floats, action: int) -> Floats:
    """The oracle: a central difference, wrong by s^2 times a third derivative of order one."""
    s = 1e-4
    return (kl(mu, stepped(pi, action, s)) - kl(mu, stepped(pi, action, -s))) / (2 * s)


def random_policies(count: int, size: int = 3) -> Floats:
    return np.random.default_rng(0).dirichlet(np.ones(size), count)


@each_panel
def test_shares_lie_in_the_interval_of_a_monte_carlo(panel: Panel) -> None:
    mu, k, pi = np.array(panel.case.mu), panel.case.action, random_policies(200_000)
    ratio, divergence = pi[:, k] > mu[k], slope(mu, pi, k) > 0
    for a in (0, 1):
        for b in (0, 1):
            count = int(np.sum((ratio == a) & (divergence == b)))
            # The 12 intervals miss the truth with probability 1e-3 in all; the cells add less than 1e-3.
            sampled = binomtest(count, len(pi)).proportion_ci(1 - 1e-4)
            assert sampled.low - 1e-3 < panel.shares[a, b] < sampled.high + 1e-3
    assert panel.shares.sum() == pytest.approx(1, abs=1e-12)  # 160,000 cells, counted once each


def test_each_kind_of_disagreement_has_an_area() -> None:
    falls, rises = PANELS[:2]
    assert falls.shares[1, 0] > 0.05 and falls.shares[0, 1] == 0
    assert rises.shares[1, 0] > 0.1 and rises.shares[0, 1] > 0.01


def test_two_tokens_never_disagree() -> None:
    pi = random_policies(10_000, size=2)
    for mu in ([0.5, 0.5], [0.9, 0.1], [0.01, 0.99]):
        for k in (0, 1):
            ratio, divergence = verdicts(np.array(mu), pi, k)
            assert np.array_equal(ratio, divergence)
            assert 0 < ratio.mean() < 1


@each_panel
def test_kl_rises_inside_the_circle_and_only_there(panel: Panel) -> None:
    mu, k, pi = np.array(panel.case.mu), panel.case.action, random_policies(20_000)
    rate = slope(mu, pi, k)
    inside = Outline(to_plane(panel.circle, k)).contains_points(to_plane(pi, k))
    clear = np.abs(rate) > 1e-3  # a polygon of 180 sides is within 1.1e-4 of its circle
    assert np.array_equal(inside[clear], rate[clear] > 0)
    assert clear.mean() > 0.95


@each_panel
def test_the_curves_around_mu_are_level(panel: Panel) -> None:
    mu = np.array(panel.case.mu)
    start = kl(mu, np.array(panel.case.pi))
    # 50 halvings leave 1e-15 of a segment, on which KL changes at most a thousandfold here
    np.testing.assert_allclose(kl(mu, panel.trust_region), 0.05, rtol=1e-11)
    np.testing.assert_allclose(kl(mu, panel.start_level), start, rtol=1e-11)
    assert start > 0.05


@each_panel
def test_the_path_is_the_step_taken(panel: Panel) -> None:
    mu, pi = np.array(panel.case.mu), np.array(panel.case.pi)
    taken = np.array([stepped(pi, panel.case.action, s) for s in panel.step])
    np.testing.assert_allclose(panel.path, taken, rtol=1e-14)  # a softmax of three numbers
    np.testing.assert_allclose(panel.realised, kl(mu, taken) - kl(mu, pi), atol=1e-14)
    np.testing.assert_allclose(panel.predicted, panel.step * slope(mu, pi, panel.case.action), atol=1e-8)


def test_the_paths_go_the_way_the_picture_says() -> None:
    falls, rises = PANELS[:2]
    assert falls.case.pi[0] > falls.case.mu[0] and rises.case.pi[1] < rises.case.mu[1]
    down = falls.realised[1:] < 0
    assert down[0] and np.all(np.diff(down.astype(int)) <= 0)  # below the start, then above, once
    assert falls.step[1:][~down][0] == pytest.approx(0.459, abs=0.01)  # by root finding; steps of 0.01
    assert np.all(np.diff(rises.realised) > 0)


def test_cells_tile_the_triangle() -> None:
    centres = cells(7)
    assert len(np.unique(centres.round(9), axis=0)) == 49
    np.testing.assert_allclose(centres.mean(axis=0), 1 / 3, rtol=1e-14)
    assert centres.min() > 0


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    endings = ("svg", "png")
    elsewhere = [tmp_path / f"elsewhere.{ending}" for ending in endings]
    command = [sys.executable, "-m", "divsim.experiments.simplex", *map(str, elsewhere)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other"}):  # a user's own taste
        here = [save(plot(run(Config())), tmp_path / f"here.{ending}") for ending in endings]
    for one, other in zip(here, elsewhere, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert len(one.read_bytes()) < LARGEST_FILE


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.svg or \.png, got .*figure\.pdf"):
        save(plot(run(Config(resolution=10))), tmp_path / "figure.pdf")


def test_matplotlib_loads_with_the_first_plot_only() -> None:
    code = "import sys, divsim.experiments.simplex; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
