"""How long the two things take that everybody waits for: `import divsim` and `divsim verify`.

Run `make bench`; it writes `benchmarks/timings.md`. Import times are minima of several fresh interpreters
beside an empty one, since machines are noisy. `divsim verify` is timed as a user sees it, once.
"""

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

REPEATS = 7
REPORT = Path(__file__).with_suffix(".md")


def seconds(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def fastest(statement: str) -> float:
    return min(seconds(sys.executable, "-c", statement) for _ in range(REPEATS))


def main() -> None:
    rows = [
        ("an empty interpreter", fastest("pass"), ""),
        ("`import numpy`", fastest("import numpy"), ""),
        ("`import divsim`", fastest("import divsim"), ".3 s"),
        ("`import divsim, divsim.formulas`", fastest("import divsim, divsim.formulas"), ".3 s"),
        ("`divsim verify`", seconds(sys.executable, "-m", "divsim", "verify"), "60 s on two cores"),
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
