"""The ledger of claims as code: reading, verdicts, recording a run, and what the command prints."""

import dataclasses
import json
from pathlib import Path

import pytest
from claim_ledgers import CONFIG, ENVIRONMENT, ROWS, TOPIC, row, write_ledger, write_run

from divsim.claims import (
    Decision,
    Ledger,
    differences,
    load,
    page,
    read_run,
    record,
    write_page,
    write_recorded,
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The ledger's folder in something that looks like a checkout."""
    (tmp_path / "pyproject.toml").write_text("")
    return write_ledger(tmp_path / "claims")


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def recorded(checkout: Path, run_directory: Path) -> Ledger:
    write_recorded(checkout, record(load(checkout), read_run(run_directory)))
    return load(checkout)


ABOVE, BELOW, EQUAL = Decision("above", 0.5), Decision("below", 0.5), Decision("equal", 0.5, margin=0.125)


@pytest.mark.parametrize(
    ("decision", "low", "high", "verdict"),
    [
        (ABOVE, 0.51, 0.6, "holds"),
        (ABOVE, 0.4, 0.49, "does not hold"),
        (ABOVE, 0.4, 0.6, "undecided"),
        (ABOVE, 0.5, 0.6, "undecided"),
        (ABOVE, 0.4, 0.5, "undecided"),
        (BELOW, 0.4, 0.49, "holds"),
        (BELOW, 0.51, 0.6, "does not hold"),
        (BELOW, 0.4, 0.5, "undecided"),
        (BELOW, 0.5, 0.6, "undecided"),
        (EQUAL, 0.375, 0.625, "holds"),
        (EQUAL, 0.3, 0.5, "undecided"),
        (EQUAL, 0.5, 0.7, "undecided"),
        (EQUAL, 0.3, 0.7, "undecided"),
        (EQUAL, 0.63, 0.7, "does not hold"),
        (EQUAL, 0.3, 0.37, "does not hold"),
        (EQUAL, 0.625, 0.7, "undecided"),
    ],
)
def test_the_interval_decides(decision: Decision, low: float, high: float, verdict: str) -> None:
    assert decision.verdict(low, high) == verdict


@pytest.mark.parametrize(
    ("language", "flat", "overall"),
    [
        ((0.1, 0.2), (0.1, 0.2), "holds"),
        ((0.1, 0.2), (-0.2, -0.1), "holds in part"),
        ((-0.1, 0.2), (0.1, 0.2), "holds in part"),
        ((-0.1, 0.2), (-0.2, -0.1), "fails in part"),
        ((-0.2, -0.1), (-0.2, -0.1), "does not hold"),
        ((-0.1, 0.2), (None, None), "undecided"),
    ],
)
def test_a_claim_takes_the_verdict_that_its_cases_share(
    tmp_path: Path, language: tuple[float, float], flat: tuple[float, float], overall: str
) -> None:
    run = write_run(tmp_path / "run", [row("language", 0.0, *language), row("flat", 0.0, *flat)])
    ledger = recorded(write_ledger(tmp_path / "claims"), run)
    assert ledger.overall(ledger.claim("better")) == overall


def test_a_case_that_is_not_recorded_is_not_measured(checkout: Path, run_directory: Path) -> None:
    claim = load(checkout).claim("better")
    assert load(checkout).overall(claim) == "not measured"
    both = recorded(checkout, run_directory)
    (kept,) = both.recorded.values()
    one = dataclasses.replace(both, recorded={"direction": dataclasses.replace(kept, rows=kept.rows[:1])})
    assert [one.verdict(claim, evidence) for evidence in claim.evidence] == ["holds", "not measured"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('estimand = "A difference."', "", "topic.toml, claim 'better': estimand is missing"),
        ('estimand = "A difference."', 'estimand = ""', "estimand has no usable value, got ''"),
        ('estimand = "A difference."', "estimand = 3", "estimand has no usable value, got 3"),
        ("command", "comand", "run 'direction': command is missing"),
        ("where", "were", "unknown field 'were'; known: id, source"),
        ("[[claim]]", "[claim]", "topic.toml is not TOML"),
        (
            'run = "direction"',
            'run = "tails"',
            "'better': unknown run 'tails'; known: direction, other",
        ),
        ('run = "direction"', "", "claim 'better', evidence 'peaked': run is missing"),
        ('id = "proven"', 'id = "better"', "the claim better stands twice"),
        ('case = "open"', 'case = "peaked"', "the case better, peaked stands twice"),
        ('holds = "above"', 'holds = "over"', "holds must be one of above, below, equal, got 'over'"),
        ('holds = "above"', 'holds = "equal"', "a margin >= 0 belongs to 'equal'"),
        ("threshold = 0.0", "threshold = 0.0, margin = 0.1", "a margin >= 0 belongs to 'equal'"),
        ('"above", threshold = 0.0', '"equal", threshold = 0.0, margin = -0.1', "a margin >= 0 belongs"),
        ("threshold = 0.0", "threshold = true", "threshold has no usable value, got True"),
        (
            'verdict = "holds"',
            'verdict = "undecided"',
            "of a proof is 'holds' or 'does not hold'",
        ),
        (
            'verdict = "does not hold", counterexample',
            'verdict = "holds", counterexample',
            "a counterexample",
        ),
        (', counterexample = "mu = [1], pi = [2]"', "", "a counterexample belongs to every 'does not hold'"),
        (
            'estimand = "A sign."',
            'estimand = "A sign."\nconfiguration = "x"',
            "configuration belongs to claims",
        ),
        ('{ case = "here", theorem = "T3c", verdict = "holds" }', "3", "must be a table with case"),
    ],
)
def test_a_ledger_with_a_mistake_is_refused_by_name(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in TOPIC
    with pytest.raises(ValueError) as refusal:
        load(write_ledger(tmp_path, TOPIC.replace(old, new, 1)))
    assert says in str(refusal.value)


def test_a_run_stands_in_one_file(tmp_path: Path) -> None:
    folder = write_ledger(tmp_path)
    (folder / "another.toml").write_text(TOPIC.replace('id = "', 'id = "2-'))
    with pytest.raises(ValueError, match="the run 'direction' stands in two files"):
        load(folder)


def test_a_run_that_fits_two_is_refused(checkout: Path, run_directory: Path) -> None:
    write_ledger(checkout, TOPIC.replace("seed = 1 }", "seed = 0 }"))
    with pytest.raises(ValueError, match="this run fits direction and other; give them settings"):
        record(load(checkout), read_run(run_directory))


def test_a_case_may_read_a_run_of_its_own(tmp_path: Path) -> None:
    topic = TOPIC.replace('"open", select', '"open", run = "other", select')
    ledger = recorded(write_ledger(tmp_path / "claims", topic), write_run(tmp_path / "run", ROWS[:1]))
    claim = ledger.claim("better")
    assert claim.runs == ("direction", "other")
    assert [ledger.verdict(claim, evidence) for evidence in claim.evidence] == ["holds", "not measured"]


def test_recording_keeps_the_evidence_to_the_last_bit(checkout: Path, run_directory: Path) -> None:
    ledger = recorded(checkout, run_directory)
    kept = ledger.recorded["direction"]
    assert list(kept.rows) == ROWS[:2]
    assert (kept.config, kept.environment) == (CONFIG, ENVIRONMENT)
    assert differences(ledger, read_run(run_directory)) == []
    first = (checkout / "results" / "direction.jsonl").read_bytes()
    assert first.decode().splitlines()[1] == json.dumps(ROWS[0], sort_keys=True)
    recorded(checkout, run_directory)
    assert (checkout / "results" / "direction.jsonl").read_bytes() == first


def test_a_difference_in_the_last_bit_is_named(checkout: Path, run_directory: Path) -> None:
    ledger = recorded(checkout, run_directory)
    rows = [ROWS[0] | {"value": 0.3}, *ROWS[1:]]
    (found,) = differences(ledger, read_run(write_run(run_directory, rows)))
    assert found == "better, peaked: value 0.30000000000000004 in the ledger, 0.3 in the run"
    write_run(run_directory, rows, tokens=64)
    (run_directory / "environment.json").write_text(json.dumps(ENVIRONMENT | {"numpy": "9"}))
    assert differences(ledger, read_run(run_directory))[1:] == [
        "tokens 32 in the ledger, 64 in the run",
        "numpy '2.4.6' in the ledger, '9' in the run",
    ]
    assert differences(load(write_ledger(checkout.parent / "new")), read_run(run_directory))[:2] == [
        "better, peaked: not recorded",
        "better, open: not recorded",
    ]


FAR = row("other", 0.0, None, None, test="ratio")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([ROWS[0], FAR], "better, open: no row matches test='forward_kl/full', quantity='difference', "
                         "world='flat'; the nearest rows differ in world ('language')"),
        ([*ROWS, row("flat", 0.0, -0.1, 0.1, step="1")], "better, open: 2 rows match"),
        ([*ROWS, row("flat", 0.0, -0.1, 0.1, step="1")], "they differ in step (absent, '1')"),
        ([*ROWS, ROWS[1]], "they are equal"),
        ([], "the run has no rows"),
    ],
)  # fmt: skip
def test_a_selection_that_does_not_match_one_row_says_what_differs(
    checkout: Path, tmp_path: Path, rows: list[dict[str, object]], says: str
) -> None:
    with pytest.raises(ValueError) as refusal:
        record(load(checkout), read_run(write_run(tmp_path / "run", rows)))
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (
            {"seed": 2},
            "direction (divsim exact direction --preset quick): seed is 2, not 0\n"
            "other (divsim exact direction --seed 1): seed is 2, not 1",
        ),
        ({"deltas": [0.05]}, "deltas is [0.05], not [0.05, 0.15]"),
        ({"rows": 3}, "is no results file"),
        ({"rows": [{"value": 1.0}]}, "KeyError('low')"),
        ({"rows": [row("flat", 0.0, 0.2, 0.1)]}, "low must be <= high, got 0.2 and 0.1"),
        ({"rows": [ROWS[0] | {"p": "small"}]}, "p must be a number or null, got 'small'"),
        ({"rows": [ROWS[0] | {"value": float("nan")}]}, "NaN is no result; write null"),
    ],
)
def test_a_run_that_is_not_the_ledgers_or_is_damaged_is_refused(
    checkout: Path, tmp_path: Path, header: dict[str, object], says: str
) -> None:
    with pytest.raises(ValueError) as refusal:
        record(load(checkout), read_run(write_run(tmp_path / "run", **header)))
    assert says in str(refusal.value)


def test_missing_and_damaged_files_are_named(checkout: Path, run_directory: Path) -> None:
    (run_directory / "environment.json").write_text("[]")
    with pytest.raises(ValueError, match="must hold one JSON object"):
        read_run(run_directory)
    (run_directory / "environment.json").unlink()
    with pytest.raises(ValueError, match=r"environment\.json cannot be read \(No such file"):
        read_run(run_directory)
    (checkout / "results").mkdir()
    (checkout / "results" / "direction.jsonl").write_text('{"experiment": "direction"}\n')
    with pytest.raises(ValueError, match=r"results/direction\.jsonl is damaged \('config'\)"):
        load(checkout)


def test_recorded_rows_of_another_run_are_refused(checkout: Path, run_directory: Path) -> None:
    recorded(checkout, run_directory)
    write_ledger(checkout, TOPIC.replace("[0.05, 0.15]", "[0.1]"))
    with pytest.raises(ValueError, match=r"is of another run: deltas is \[0\.05, 0\.15\], not \[0\.1\]"):
        load(checkout)


def test_the_page_shows_every_field(checkout: Path, run_directory: Path) -> None:
    ledger = recorded(checkout, run_directory)
    text = page(ledger)
    for shown in (
        "### better\n\n**It is better.** Verdict: **holds in part**.",
        "- Source: [PDM] section 3\n- Estimand: A difference.\n- Configuration: Fixed before.\n"
        "- Command: `divsim exact direction --preset quick`\n"
        "- Decision: holds if the whole interval lies above 0, does not hold if it lies below.\n"
        "- Where: Somewhere.",
        "| peaked | holds | 0.3 [0.1, 0.4] | 1,200 | 8 | 0.004 |\n"
        "| open | does not hold | -0.2 [-0.3, -0.1] |",
        "| here | holds | theorem T3c |\n| there | does not hold | theorem T3h: mu = [1], pi = [2] |",
        "| [proven](#proven) | It is \\| proven. | holds in part | holds: 1, does not hold: 1 |",
        "- `divsim exact direction --preset quick`: experiment direction, seed 0, deltas [0.05, 0.15] "
        "(numpy 2.4.6, threads 1)",
        "seed 1 (not recorded yet)",
    ):
        assert shown in text
    assert page(dataclasses.replace(ledger, recorded={})).count("not measured") > text.count("not measured")


def test_a_page_overwrites_a_page_and_nothing_else(checkout: Path, tmp_path: Path) -> None:
    ledger, file = load(checkout), tmp_path / "page.md"
    write_page(ledger, file)
    write_page(ledger, file)
    assert file.read_text() == page(ledger)
    file.write_text("mine")
    with pytest.raises(ValueError, match="is no page of claims; name another file"):
        write_page(ledger, file)
    assert file.read_text() == "mine"
    with pytest.raises(ValueError, match="cannot be written: No such file"):
        write_page(ledger, tmp_path / "nowhere" / "page.md")
