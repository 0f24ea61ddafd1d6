"""How every figure of divsim looks, and how it is written so that the same data give the same bytes.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; a figure also says with
hatches, line styles or words whatever it says with colour, so that it survives a black-and-white print. What
is left out: what a figure shows, which is the business of the experiment that plots it.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OKABE_ITO: dict[str, str] = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
}
"""Okabe and Ito, Color Universal Design, 2008."""

WIDTH = 9.0
"""Inches. Shown 900 pixels wide, a figure has 100 pixels an inch and its 11-point text is 15 pixels high."""

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 2,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 140,
    "svg.hashsalt": "divsim",
    "svg.fonttype": "path",
}
"""The default font ships with matplotlib, so a figure does not depend on the fonts of a machine."""


@contextmanager
def style() -> Iterator[None]:
    """Everything drawn inside has the look of the house; matplotlib is imported only here."""
    import matplotlib
    import matplotlib.style

    # "default" undoes the user's own matplotlibrc, which would otherwise change the bytes.
    with matplotlib.style.context("default"), matplotlib.rc_context(RC):
        yield


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure; the ending of `path` chooses the format. The file holds no date and no version.

    Args:
      figure: what to write.
      path: ends in .svg or .png; missing folders are made.

    Returns:
      `path`.

    Errors: ValueError for another ending.
    """
    metadata: dict[str, dict[str, str | None]] = {
        ".svg": {"Date": None, "Creator": None},
        ".png": {"Software": None},
    }
    if path.suffix not in metadata:
        raise ValueError(f"path must end in {' or '.join(metadata)}, got {str(path)!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with style():
        figure.savefig(path, metadata=metadata[path.suffix])
    return path


def command(
    module: str, make: "Callable[[], Figure]", description: str | None, arguments: Sequence[str] | None
) -> None:
    """The command line of a figure: write it to every path that is named, and print the paths.

    Args:
      module: the name of its module in this package.
      make: draws it; called after the arguments were understood.
      description: for `--help`.
      arguments: the command line without the program's name; None reads `sys.argv`.
    """
    parser = argparse.ArgumentParser(prog=f"python -m divsim.experiments.{module}", description=description)
    parser.add_argument("paths", nargs="+", type=Path, help="ends in .svg or .png")
    paths = parser.parse_args(arguments).paths
    figure = make()
    for path in paths:
        print(save(figure, path))
