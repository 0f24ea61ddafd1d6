"""Four steps on one token: the regions, the paths and their prices, as data and as drawn."""

from pathlib import Path

import numpy as np
import pytest
from figure_checks import check_the_command_writes_the_same_bytes_everywhere
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Polygon
from matplotlib.transforms import TransformedPath
from numpy.typing import NDArray

from divsim.experiments.draw_triangle import LOOK
from divsim.experiments.step_paths import LOOKS, WORDS, Config, Panel, plot, run
from divsim.experiments.triangle import to_plane

Floats = NDArray[np.float64]

RESULT = run(Config())
MU, K, SYNONYM, OTHER = np.array(RESULT.config.mu), 0, 1, 2


def kl(mu: Floats, pi: Floats) -> Floats:
    """The oracle: the textbook sum."""
    return np.asarray(np.sum(mu * (np.log(mu) - np.log(pi)), axis=-1))


def direction(name: str, pi: Floats) -> Floats:
    """The oracle: what each step does to the logits, token by token."""
    one = np.eye(3)[K]
    if name == "euclidean":
        return np.asarray(one - pi)
    if name == "sign":
        return np.asarray(np.sign(one - pi))
    if name == "natural":
        return np.asarray(one / pi)
    together = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])  # k and its synonym are alike
    return np.asarray((one - pi) @ together)


def stepped(name: str, pi: Floats, s: float) -> Floats:
    weights = pi * np.exp(s * direction(name, pi))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def slope(name: str, pi: Floats) -> Floats:
    """The oracle: a central difference, wrong by s^2 times a third derivative."""
    s = 1e-4
    return (kl(MU, stepped(name, pi, s)) - kl(MU, stepped(name, pi, -s))) / (2 * s)


def random_policies(count: int) -> Floats:
    return np.random.default_rng(0).dirichlet(np.ones(3), count)


def random_starts(count: int) -> tuple[tuple[float, float, float], ...]:
    """Policies from which every path can gain 1e-4, the head's included: pi_k pi_o / (pi_k + pi_s)."""
    return tuple((a, b, c) for a, b, c in random_policies(count) if min(a, b, c) > 0.02)


@pytest.mark.parametrize("panel", RESULT.panels, ids=("left", "right"))
@pytest.mark.parametrize("name", RESULT.panels[0].paths)
def test_a_path_is_the_step_taken(panel: Panel, name: str) -> None:
    path = panel.paths[name]
    taken = np.array([stepped(name, panel.pi, s) for s in path.step])
    np.testing.assert_allclose(path.policies, taken, rtol=1e-13)  # a softmax of three numbers
    np.testing.assert_allclose(path.realised, kl(MU, taken) - kl(MU, panel.pi), atol=1e-13)
    assert path.rate == pytest.approx(slope(name, panel.pi), abs=1e-6)  # 1e-8 times derivatives below 100
    assert path.policies[-1, K] == pytest.approx(panel.pi[K] + RESULT.config.gain, abs=1e-10)  # root finding


def test_sign_and_natural_step_draw_one_curve_straight_to_the_corner() -> None:
    for panel in RESULT.panels:
        natural, sign = panel.paths["natural"], panel.paths["sign"]
        # Both ends are roots found to 1e-12 in s, and even steps between them are even in both units.
        np.testing.assert_allclose(sign.policies, natural.policies, atol=1e-10)
        np.testing.assert_allclose(sign.realised, natural.realised, atol=1e-9)
        share = natural.policies[:, SYNONYM] / natural.policies[:, OTHER]
        np.testing.assert_allclose(share, share[0], rtol=1e-12)
        assert np.max(np.abs(panel.paths["euclidean"].policies - natural.policies)) > 0.01


def test_the_head_keeps_its_synonyms_in_proportion() -> None:
    for panel in RESULT.panels:
        policies = panel.paths["linear_head"].policies
        share = policies[:, K] / policies[:, SYNONYM]
        np.testing.assert_allclose(share, share[0], rtol=1e-12)


def test_which_test_each_step_obeys() -> None:
    config = Config(starts=random_starts(300), gain=1e-4)
    panels = run(config).panels
    pi = np.array([panel.pi for panel in panels])
    rates = {name: np.array([panel.paths[name].rate for panel in panels]) for name in panels[0].paths}
    ratio, c, pair = pi[:, K] - MU[K], slope("euclidean", pi), MU[OTHER] - pi[:, OTHER]
    assert np.array_equal(rates["natural"] > 0, ratio > 0)
    assert np.array_equal(rates["sign"] > 0, ratio > 0)
    clear = np.abs(c) > 1e-6  # the oracle's error
    assert np.array_equal(rates["euclidean"][clear] > 0, c[clear] > 0)
    assert np.array_equal(rates["linear_head"] > 0, pair > 0)
    for test in (ratio, c, ratio * (ratio * c > 0)):  # the head contradicts either test, and both at once
        assert np.mean(rates["linear_head"] * test < 0) > 0.05
    verdict = np.array([panel.verdict for panel in panels])
    assert np.array_equal(verdict[clear], np.stack([ratio > 0, c > 0], axis=-1)[clear])


def test_the_border_of_the_head_is_where_it_changes_nothing() -> None:
    start, end = RESULT.border
    assert start[K] == end[SYNONYM] == 0 or end[K] == start[SYNONYM] == 0  # it crosses the whole triangle
    for t in (0.1, 0.5, 0.9):
        on = (1 - t) * start + t * end
        assert abs(slope("linear_head", on)) < 1e-8
        away = np.eye(3)[OTHER] - on
        assert slope("linear_head", on + 0.01 * away) < 0 < slope("linear_head", on - 0.01 * away)


def covers(axes: Axes, shape: Polygon, places: Floats) -> NDArray[np.bool_]:
    """Which places of the axes a patch paints, its clip path heeded."""
    outline = shape.get_transform().transform_path(shape.get_path())
    at = axes.transData.transform(places)
    clip = shape.get_clip_path()
    if clip is None:
        return np.asarray(outline.contains_points(at))
    assert isinstance(clip, TransformedPath)
    within = clip.get_fully_transformed_path().contains_points(at)
    return np.asarray(outline.contains_points(at) & within)


@pytest.mark.parametrize("column", [0, 1])
def test_the_regions_as_drawn_are_the_verdicts(column: int) -> None:
    axes = plot(RESULT).axes[column]
    pi = random_policies(20_000)
    verdict = np.full((len(pi), 2), -1)
    assert len({colour for colour, _ in LOOK.values()}) == len(LOOK)  # each region can be told apart
    for shape in axes.patches:  # in drawing order: later ones paint over earlier ones
        assert isinstance(shape, Polygon)
        (meant,) = (key for key, words in WORDS.items() if words == shape.get_label())
        assert shape.get_facecolor() == to_rgba(LOOK[meant][0])
        verdict[covers(axes, shape, to_plane(pi, K))] = meant
    ratio, c = pi[:, K] - MU[K], slope("euclidean", pi)
    clear = np.abs(c) > 1e-3  # a polygon of 180 sides is within 1.1e-4 of its circle
    assert np.array_equal(verdict[clear], np.stack([ratio > 0, c > 0], axis=-1)[clear])
    assert clear.mean() > 0.95


def test_the_drawn_curves_are_the_data() -> None:
    """The triangle and the prices below it hold the four paths, each in its own look."""
    axes = plot(RESULT).axes
    for column, panel in enumerate(RESULT.panels):
        triangle, prices = axes[column], axes[2 + column]
        for name, look in LOOKS.items():
            path = panel.paths[name]
            (above,) = (x for x in triangle.lines if x.get_label() == look.name.format(synonym=SYNONYM))
            below = prices.lines[1 + list(LOOKS).index(name)]  # the first is the line of zero
            assert above.get_color() == below.get_color() == look.line["color"]
            drawn = np.asarray(above.get_xydata())
            np.testing.assert_array_equal(drawn, to_plane(path.policies, K)[: len(drawn)])
            np.testing.assert_array_equal(
                below.get_xydata(), np.column_stack([path.policies[:, K], path.realised])
            )


def test_the_pictures_message() -> None:
    left, right = RESULT.panels
    assert left.verdict == (1, 0) and right.verdict == (1, 1)
    falls = [{name: path.realised[-1] < 0 for name, path in p.paths.items()} for p in RESULT.panels]
    assert falls[0] == {"euclidean": True, "sign": False, "natural": False, "linear_head": True}
    assert falls[1] == {"euclidean": False, "sign": False, "natural": False, "linear_head": True}
    for panel in RESULT.panels:
        assert kl(MU, panel.pi) > RESULT.config.delta  # far
        # 50 halvings leave 1e-15 of a segment, on which KL changes at most a thousandfold here
        np.testing.assert_allclose(kl(MU, panel.start_level), kl(MU, panel.pi), rtol=1e-11)
    np.testing.assert_allclose(kl(MU, RESULT.trust_region), RESULT.config.delta, rtol=1e-11)


def test_an_impossible_gain_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gain must be at most 0\.466, got 0\.5"):
        run(Config(gain=0.5))  # the head stops where the pair has everything: 0.24 / 0.34 - 0.24


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    check_the_command_writes_the_same_bytes_everywhere("divsim.experiments.step_paths", tmp_path)
