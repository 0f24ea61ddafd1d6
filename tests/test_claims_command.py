"""`divsim claims`: the list, one claim, recording and checking a run, and refusals."""

from pathlib import Path

import pytest
from claim_ledgers import write_ledger, write_run

from divsim.claims import load, page
from divsim.cli import COMMANDS, main
from divsim.cli.claims import claims


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The ledger's folder in something that looks like a checkout."""
    (tmp_path / "pyproject.toml").write_text("")
    return write_ledger(tmp_path / "claims")


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture
def command(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    """`divsim claims ...` on the small ledger; its exit code."""
    monkeypatch.setitem(COMMANDS, "claims", claims)
    monkeypatch.setattr("divsim.claims.reader.ledger_folder", lambda: checkout)
    monkeypatch.setattr("divsim.claims.ledger_folder", lambda: checkout)

    def run(*args: object) -> int:
        with pytest.raises(SystemExit) as stop:
            main(["claims", *map(str, args)])
        return int(stop.value.code or 0)

    return run


def test_the_command_lists_and_explains(command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[1:3]] == ["better", "proven"]
    assert "not measured: 2" in shown and "holds: 1, does not hold: 1" in shown and "\x1b" not in shown
    assert command("proven") == 0
    shown = capsys.readouterr().out
    assert "It is | proven." in shown and "theorem T3h: mu = [1], pi = [2]" in shown


def test_the_command_records_checks_and_writes(
    command, checkout: Path, run_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--check", run_directory) == 1
    assert "better, peaked: not recorded" in capsys.readouterr().out
    assert command("--update", run_directory) == 0
    assert "direction.jsonl: 2 rows" in capsys.readouterr().out
    assert command("--check", run_directory) == 0
    assert "the ledger agrees with the run" in capsys.readouterr().out
    assert command() == 0 and "holds: 1, does not hold: 1" in capsys.readouterr().out
    assert command("better") == 0 and "0.3 [0.1, 0.4]" in capsys.readouterr().out
    assert command("--write", checkout / "page.md") == 0
    assert (checkout / "page.md").read_text() == page(load(checkout))


def test_a_damaged_record_is_made_anew(
    command, checkout: Path, run_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "results").mkdir()
    (checkout / "results" / "direction.jsonl").write_text("half a li")
    assert command() == 2
    assert "is damaged" in capsys.readouterr().err
    assert command("--update", run_directory) == 0
    assert command("--check", run_directory) == 0


def test_a_wrong_call_is_exit_code_2(
    command, checkout: Path, run_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for args, says in (
        (("nope",), "unknown claim 'nope'; the ledger has: better, proven"),
        (("better", "--check", run_directory), "ask for one at a time"),
        (("--check", checkout), "config.json cannot be read"),
        (("--write", checkout / "topic.toml"), "is no page of claims"),
    ):
        assert command(*args) == 2
        assert says in capsys.readouterr().err
    (checkout.parent / "pyproject.toml").unlink()
    assert command("--update", run_directory) == 2
    assert "is an installed package; run it in a checkout" in capsys.readouterr().err
    assert not (checkout / "results").exists()
