"""The parts of `exact bounds` on small settings: never violated, and a violation would be seen."""

from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from bound_worlds import Process, Tree, kl, tv
from rich.console import Console

from divsim.cli.bounds_tables import print_bounds
from divsim.experiments import bounds_discounted, bounds_horizon
from divsim.experiments.bounds import EXPERIMENT, FULL, PARTS, QUICK, check
from divsim.experiments.bounds_discounted import DISCOUNTED
from divsim.experiments.bounds_growth import GROWTH, points
from divsim.experiments.bounds_horizon import REWARDS, TREE
from divsim.experiments.bounds_rows import bound_rows, violations
from divsim.experiments.parts import Part
from divsim.experiments.rows import Row, find, select
from divsim.experiments.runs import stream
from divsim.tabular.horizon import BOUNDS

SMALL = replace(
    QUICK, seeds=3, mdps=12, trees=8, shapes=((2, 2), (3, 3), (2, 5)), horizons=(4, 8, 16, 32),
    distances=(0.001, 0.02, 0.05), horizon=16,
)  # fmt: skip
Seeds = dict[str, np.ndarray]


def computed(part: Part[Any], cell: str) -> Seeds:
    seeds = [part.compute(SMALL, cell, stream(0, f"{cell}@{seed}")) for seed in range(SMALL.seeds)]
    return {name: np.stack([seed[name] for seed in seeds]) for name in seeds[0]}


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], Seeds]:
    return {(part.name, cell): computed(part, cell) for part in PARTS for cell in part.cells(SMALL)}


@pytest.fixture(scope="module")
def rows(found: dict[tuple[str, str], Seeds]) -> list[Row]:
    parts = {part.name: part for part in PARTS}
    return [row for (name, cell), seeds in found.items() for row in parts[name].rows(SMALL, cell, seeds)]


def test_no_bound_is_violated(rows: list[Row]) -> None:
    judged = select(rows, quantity="violation_share")
    assert len(judged) > 300 and all(row["value"] == 0 for row in judged)
    assert all(row["value"] >= 1 - 1e-9 for row in select(rows, quantity="tightness_min"))


def test_identities_hold(rows: list[Row]) -> None:
    judged = select(rows, quantity="largest_error")
    assert {row["bound"] for row in judged} == {
        "performance_difference", "surrogate_minus_error", "expected_advantages",
    }  # fmt: skip
    assert all(row["value"] < 1e-12 for row in judged)  # of the range: solves of condition 200, in float64


def tenth(part: Part[Any], cell: str, seeds: Seeds) -> list[Row]:
    """What would be reported if every bound were a tenth of what it is."""
    return part.rows(SMALL, cell, seeds | {"bound": 0.1 * seeds["bound"]})


def test_a_planted_violation_is_counted(found: dict[tuple[str, str], Seeds]) -> None:
    seeds = found["tree", "tree"]
    planted = tenth(TREE, "tree", seeds)
    for b, name in enumerate(BOUNDS):
        for r, rewards in enumerate(REWARDS):
            cell = find(planted, bound=name, rewards=rewards, tree="all", noise="all",
                        quantity="violation_share")  # fmt: skip
            by_hand = int(np.sum(seeds["error"][:, :, r] > 0.1 * seeds["bound"][:, :, b] + 1e-12))
            assert round(cell["value"] * cell["tokens"]) == by_hand
            assert by_hand > 0 or rewards == "random", name


def test_a_planted_violation_is_counted_where_penalties_are_attained(
    found: dict[tuple[str, str], Seeds],
) -> None:
    planted = tenth(DISCOUNTED, "doorway", found["discounted", "doorway"])
    shares = select(planted, quantity="violation_share", gamma="all")
    assert {row["bound"] for row in shares if row["value"] > 0} >= {
        "kakade_langford_0.01", "trpo_tv", "trpo_kl", "cpo", "occupancy", "simulation",
    }  # fmt: skip


def test_a_planted_violation_is_counted_in_the_world_that_counts(
    found: dict[tuple[str, str], Seeds],
) -> None:
    planted = select(tenth(GROWTH, "rare", found["growth", "rare"]), quantity="violation_share")
    broken = {row["bound"] for row in planted if row["rewards"] == "worst" and row["value"] > 0}
    assert broken >= {"quadratic", "coupling", "adaptive", "smallest", "linear"}


def test_violations_count_bounds_and_identities_once(
    found: dict[tuple[str, str], Seeds], rows: list[Row]
) -> None:
    assert violations(rows)[0] == 0
    whole = select(rows, quantity="largest_error", bound="performance_difference")[0]
    for error in (0.1, float("nan")):
        assert violations([*rows, whole | {"value": error}]) == (1, violations(rows)[1])
    planted, seeds = tenth(TREE, "tree", found["tree", "tree"]), found["tree", "tree"]
    proper = [b for b, name in enumerate(BOUNDS) if name != "smallest"]
    by_hand = sum(
        np.sum(seeds["error"][:, :, r][:, :, None] > 0.1 * seeds["bound"][:, :, proper] + 1e-12)
        for r in range(len(REWARDS))
    )
    assert violations(planted)[0] == by_hand > 100


def test_the_penalties_are_attained_at_the_door(rows: list[Row]) -> None:
    for name in ("kakade_langford_0.01", "trpo_tv", "cpo", "occupancy", "simulation"):
        at_door = find(rows, world="doorway", bound=name, gamma="all", quantity="tightness_min")
        assert 1 <= at_door["value"] < 1.05, name


def test_discounted_arrays_are_those_of_single_processes() -> None:
    """Truth and bound of one process of a seed, written out."""
    config = replace(SMALL, gammas=(0.9,), noises=(0.5,), mixings=(0.3,), mdps=4)
    arrays = bounds_discounted.compute(config, "random", stream(0, "x"))
    case = bounds_discounted._random(stream(0, "x"), config, 0.9, 0.5)
    place, g = 2, 0.9
    mdp = Process(case.mdp.transition[place], case.mdp.reward[place], case.mdp.initial[place], g)
    model = Process(case.model.transition[place], case.model.reward[place], mdp.start, g)
    mu, pi, other = (np.exp(p[place]) for p in (case.log_mu, case.log_pi, case.log_other))
    advantage, occupied, apart = mdp.advantage(mu), mdp.occupancy(mu), tv(mu, pi)

    def error(policy: Any, share: float, target: Any) -> float:
        surrogate = occupied @ np.sum(target * advantage, axis=-1) / (1 - g)
        return float(abs(mdp.objective(policy) - mdp.objective(mu) - share * surrogate) * (1 - g))

    off = np.abs(mdp.value(mu) - model.value(mu)).max() * (1 - g)
    shift = np.abs(mdp.occupancy(pi) - occupied).sum() / 2
    truth = [error(0.7 * mu + 0.3 * other, 0.3, other), *[error(pi, 1.0, pi)] * 3, shift, off]
    largest = [np.abs(np.sum(policy * advantage, axis=-1)).max() for policy in (other, pi)]
    moved = np.abs(model.transition - mdp.transition).sum(axis=-1).max()
    bound = [
        2 * largest[0] * g * 0.3**2 / (1 - g),
        4 * np.abs(advantage).max() * g * apart.max() ** 2 / (1 - g),
        2 * np.abs(advantage).max() * g * kl(mu, pi).max() / (1 - g),
        2 * g * largest[1] * (occupied @ apart) / (1 - g),
        g * (occupied @ apart) / (1 - g),
        np.abs(model.reward - mdp.reward).max() + g * moved * np.ptp(model.value(mu)) / 2,
    ]
    np.testing.assert_allclose(arrays["error"][0, :, place], truth, atol=1e-12)  # of the range
    np.testing.assert_allclose(arrays["bound"][0, :, place], bound, rtol=1e-10)


def test_tree_arrays_are_those_of_single_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(SMALL, shapes=((3, 3),), noises=(0.5,), trees=4)
    kept: list[Any] = []
    shipped = bounds_horizon.apart

    def kept_apart(mu: Any, pi: Any) -> Any:
        kept.append((mu, pi))
        return shipped(mu, pi)

    monkeypatch.setattr(bounds_horizon, "apart", kept_apart)
    arrays = bounds_horizon.compute(config, "tree", stream(0, "x"))
    rewards = stream(0, "x").random((4, 27))  # the first that is drawn
    for place in range(4):
        mu, pi = ([np.exp(level[place]) for level in levels] for levels in kept[0])
        tree = Tree(mu, pi, rewards[place])
        assert arrays["error"][0, 0, place] == pytest.approx(abs(tree.error()), abs=1e-13)
        every = (replace(tree, reward=np.eye(27)[leaf]).error() for leaf in range(27))
        worst = sum(max(error, 0.0) for error in every)  # the error is linear in the rewards
        assert arrays["error"][0, 1, place] == pytest.approx(worst, abs=1e-13)
        t, e, k = 3, tree.max_of(tv), tree.max_of(kl)
        by_hand = [
            t * (t - 1) * e**2,
            2 * tree.mean_tv().sum(),
            2 * sum(e * min(1, n * e) for n in range(t)),
            2 * sum(min(1, (k / 2) ** 0.5) * min(1, (n * k / 2) ** 0.5) for n in range(t)),
            2 * t * min(1, (k / 2) ** 0.5) * min(1, (tree.sequence_kl() / 2) ** 0.5),
            2 * sum(d * min(1, n * e, (n * k / 2) ** 0.5)
                    for n, d in zip((2, 1, 0), tree.mean_tv(), strict=True)),
        ]  # fmt: skip
        expected = [*by_hand, min(by_hand)]
        np.testing.assert_allclose(arrays["bound"][0, :, place], expected, rtol=1e-10)


def exponent(rows: list[Row], world: str, of: str, span: str) -> float:
    found = find(rows, table="growth", world=world, of=of, quantity="exponent", span=span)
    return float(found["value"])


def test_errors_grow_as_they_must(rows: list[Row]) -> None:
    """Like T^2 where every step can hurt, like T where a coin hides it, not at all where it is forgotten."""
    assert exponent(rows, "rare", "error_worst", "4-16") == pytest.approx(2.0, abs=0.1)
    assert exponent(rows, "rare", "error_worst", "16-32") < exponent(rows, "rare", "error_worst", "4-16")
    assert exponent(rows, "fair", "error_worst", "4-32") == pytest.approx(1.0, abs=0.15)
    assert exponent(rows, "forgetful", "error_worst", "4-32") == pytest.approx(0.0, abs=0.4)
    assert exponent(rows, "fair", "linear", "4-32") == pytest.approx(1.0, abs=1e-9)
    assert exponent(rows, "fair", "mixed", "4-32") == pytest.approx(1.5, abs=0.05)
    assert exponent(rows, "fair", "quadratic", "4-32") > 2.0


def test_long_rows_are_those_of_their_seeds(found: dict[tuple[str, str], Seeds], rows: list[Row]) -> None:
    seeds, place = found["growth", "fair"], points(SMALL).index((16, 0.001))
    size = find(rows, table="growth", world="fair", of="mixed", quantity="size", horizon=16, distance="0.001")
    assert size["value"] == pytest.approx(seeds["bound"][:, BOUNDS.index("mixed"), place].mean(), rel=1e-12)
    error = find(rows, table="growth", world="fair", of="error_worst", quantity="size", horizon=16,
                 distance="0.001")  # fmt: skip
    assert error["value"] == pytest.approx(seeds["error"][:, 1, place].mean(), rel=1e-12)
    # 2 xi T (T - 1) TV^2 at .02 is 240 * .0004 for T = 16 and .3968 for 32; the linear one passes 1 at 32
    first = {of: find(rows, table="growth", world="fair", of=of, quantity="vacuous_from")["value"]
             for of in ("quadratic", "linear")}  # fmt: skip
    assert first == {"quadratic": None, "linear": 32}


def test_rows_of_a_bound_by_hand() -> None:
    error = np.array([[0.5, 0.1, 0.0], [0.5, 0.25, 0.2]])
    bound = np.array([[1.0, 0.4, 3.0], [2.0, 1.0, 0.1]])
    found = {row["quantity"]: row for row in bound_rows(error, bound, {})}
    assert found["vacuous_share"]["value"] == pytest.approx(2 / 6)
    assert found["violation_share"]["value"] == pytest.approx(1 / 6)
    assert found["tightness_q50"]["value"] == pytest.approx((3.0 + 4.0) / 2)  # of {2, 4} and {4, 4, .5}
    assert (found["tightness_min"]["value"], found["tightness_min"]["tokens"]) == (0.5, 5)
    assert found["vacuous_share"]["tokens"] == 6 and found["vacuous_share"]["seeds"] == 2


def test_no_two_rows_have_the_same_key(rows: list[Row]) -> None:
    measured = ("value", "low", "high", "tokens", "seeds", "p")
    keys = [tuple(sorted((k, str(v)) for k, v in row.items() if k not in measured)) for row in rows]
    assert len(set(keys)) == len(keys)


def test_the_tables_fit_and_say_vacuity_first(rows: list[Row]) -> None:
    console = Console(width=80, highlight=False, record=True, file=StringIO())
    print_bounds(console, SMALL, rows)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    heading = next(line for line in text.splitlines() if line.startswith("bound"))
    assert heading.index("vacuous") < heading.index("broken") < heading.index("median")
    assert "Violations: 0 of" in text and "quadratic, T^2" in text and "TRPO, max KL" in text


def test_the_figure_has_every_curve(rows: list[Row]) -> None:
    figure = EXPERIMENT.figures(SMALL, rows)["bounds_and_truth"]
    assert [len(panel.lines) for panel in figure.axes] == [8] * 6
    horizons = figure.axes[0].lines[0].get_xdata()
    assert np.asarray(horizons).tolist() == [4, 8, 16, 32]
    assert np.asarray(figure.axes[1].lines[0].get_xdata()).tolist() == [0.001, 0.02, 0.05]


def test_presets_are_sound() -> None:
    for config in (QUICK, FULL):
        check(config)
    per_seed = FULL.mdps * len(FULL.gammas) * len(FULL.noises)
    assert FULL.seeds * per_seed >= 10_000
    assert FULL.seeds * FULL.trees * len(FULL.shapes) * len(FULL.noises) >= 10_000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gammas": (1.0,)}, r"gammas must be in \(0, 1\), got 1.0"),
        ({"gammas": (0.999999,)}, "gammas must be at most 0.9999, got 0.999999"),
        ({"seeds": 10**9}, "seeds must be from 2 to 10,000, got 1000000000"),
        ({"gammas": (0.5, 0.5)}, "gammas must be one or more distinct settings"),
        ({"noises": (-0.1,)}, "noises must be a finite number > 0, got -0.1"),
        ({"noises": ()}, "noises must be one or more distinct settings"),
        ({"mixings": (1.5,)}, r"mixings must be in \(0, 1\], got 1.5"),
        ({"states": 1}, "states must be >= 2, got 1"),
        ({"shapes": ((2, 1),)}, r"got \(2, 1\)"),
        ({"shapes": ((2, 17),)}, r"V\^T <= 65,536, got \(2, 17\)"),
        ({"horizons": (8, 4)}, r"horizons must be three or more, growing, got \(8, 4\)"),
        ({"horizons": (4,)}, "horizons must be three or more"),
        ({"horizons": (1, 2, 4)}, "horizons must be from 2 to 512 steps, got 1"),
        ({"horizon": 2000}, "got 2000"),
        ({"distance": 0.4}, r"distances must be in \(0, 0.35\], got 0.4"),
        ({"distances": (0.0,)}, "got 0.0; it is a total variation"),
        ({"mdps": 0}, "mdps must be a finite number > 0, got 0"),
        ({"seeds": 1}, "seeds must be from 2 to 10,000, got 1; an interval needs two"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(replace(SMALL, **change))
