"""The wheel in an empty environment: it verifies, and it puts nothing but divsim into site-packages."""

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    return subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment_verifies(tmp_path: Path) -> None:
    source = (
        tmp_path / "source"
    )  # a copy: a build leaves files in its tree, and an old build's files enter a new one
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, source, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"divsim"}
    assert "divsim/derivations/kernel.py" in names
    assert "divsim/derivations.pyi" not in names
    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", wheel, "-c", ROOT / "constraints.txt", cwd=tmp_path)
    shown = run(environment / "bin" / "divsim", "verify", "--only", "T2", cwd=tmp_path)
    assert "proven: 3 of 3 theorems proven" in shown
    run(python, "-W", "error", "-c", "import divsim, divsim.formulas, divsim.derivations", cwd=tmp_path)
