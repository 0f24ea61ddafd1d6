"""The README's example runs as printed, and prints what its comments say."""

import re
import subprocess
import sys
from pathlib import Path

from divsim.claims import load

README = Path(__file__).resolve().parents[1] / "README.md"


def example() -> str:
    found = re.search(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert found
    return found[1]


def test_the_example_prints_what_the_readme_says() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example()], capture_output=True, text=True, check=True
    )
    changes, dppo, predictive = done.stdout.splitlines()
    assert [float(c) for c in changes.strip("[]").split()] == [-0.06, 0.15, 0.0, 0.0]
    assert changes.split() == re.search(r"# c_k: (.*)", example())[1].split()
    assert "[False False  True  True]" in dppo
    assert "[ True False  True  True]" in predictive


def test_every_figure_and_file_that_the_readme_names_exists() -> None:
    named = re.findall(r"\]\(([\w/.-]+)\)|`((?:benchmarks|tutorials|figures)/[\w.]+)`", README.read_text())
    paths = [path for pair in named for path in pair if path]
    assert paths
    assert [path for path in paths if not (README.parent / path).exists()] == []


def test_the_verdicts_in_the_readme_are_the_ledgers() -> None:
    rows = re.findall(r"^\| `([\w-]+)`: .*? \| ([\w ]+) \|", README.read_text(), flags=re.MULTILINE)
    assert 0 < len(rows) <= 8
    ledger = load()
    assert dict(rows) == {name: ledger.overall(ledger.claim(name)) for name, _ in rows}
