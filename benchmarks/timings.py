"""How long the things take that everybody waits for: `import divsim`, `divsim verify`, `divsim exact`.

Run `make bench`; it writes `benchmarks/timings.md`. Import times are minima of several fresh interpreters
beside an empty one, since machines are noisy. Commands are timed as a user sees them, once. What the full
presets took is read from the run directories that are named as arguments.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

REPEATS = 7
REPORT = Path(__file__).with_suffix(".md")


def seconds(*command: str, cwd: str | None = None) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=cwd)
    return time.perf_counter() - start


def fastest(statement: str) -> float:
    return min(seconds(sys.executable, "-c", statement) for _ in range(REPEATS))


def command(*words: str) -> float:
    """A command of divsim, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return seconds(sys.executable, "-m", "divsim", *words, cwd=folder)


def full(folder: Path) -> tuple[str, float, str]:
    """What a finished run says of itself."""
    environment = json.loads((folder / "environment.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    words = f"`divsim exact {config['experiment']} --preset full`, {environment['processes']} processes, "
    return (
        words + f"{environment['largest_worker_mb']} MB each at most",
        environment["seconds"],
        "900 s on two cores",
    )


def main() -> None:
    rows = [
        ("an empty interpreter", fastest("pass"), ""),
        ("`import numpy`", fastest("import numpy"), ""),
        ("`import divsim`", fastest("import divsim"), ".3 s"),
        ("`import divsim, divsim.formulas`", fastest("import divsim, divsim.formulas"), ".3 s"),
        ("`divsim verify`", command("verify"), "60 s on two cores"),
        ("`divsim exact direction`", command("exact", "direction"), "30 s on two cores"),
        ("`divsim exact tails`", command("exact", "tails"), "30 s on two cores"),
        *(full(Path(folder)) for folder in sys.argv[1:]),
    ]
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("numpy", "scipy", "sympy", "array-api-compat")
    )
    lines = [
        "# Timings",
        "",
        "Command: `make bench`. Times are wall seconds; imports are the fastest of "
        f"{REPEATS} fresh interpreters.",
        "",
        "| what | seconds | goal |",
        "|---|---|---|",
        *(f"| {what} | {taken:.2f} | {goal} |" for what, taken, goal in rows),
        "",
        f"Python {platform.python_version()}, {packages}; {os.cpu_count()} cores, {platform.machine()}.",
    ]
    REPORT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
