"""Does every theorem hold? The proofs of `derivations/` joined with the exact one-step simulator.

One chapter is one task: its theorems are checked symbolically, then its claims are simulated. Chapters run in
parallel processes; nothing is sampled but the simulator's random cases, which the seed fixes.
"""

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .pool import spread

if TYPE_CHECKING:
    from divsim.derivations import Report
    from divsim.tabular.check import Simulation


@dataclass(frozen=True)
class Config:
    """What to verify.

    Attributes:
      chapters: chapter ids in table order, such as ("T1", "T3").
      seed: of the simulator's random cases.
      processes: how many chapters run at once.
    """

    chapters: tuple[str, ...]
    seed: int = 0
    processes: int = 2


@dataclass(frozen=True)
class ChapterResult:
    """The outcome of one chapter.

    Attributes:
      chapter: its id.
      reports: one per theorem, in reading order.
      simulation: the simulator's checks of the chapter's claims.
      seconds: wall time of both.
    """

    chapter: str
    reports: "tuple[Report, ...]"
    simulation: "Simulation"
    seconds: float

    @property
    def failures(self) -> tuple[str, ...]:
        """Every failure in words; empty if all is proven and simulated."""
        failed = [f for report in self.reports for f in report.failures]
        failed += [
            f"{self.chapter}, simulator, {check.name}: {check.violations} of {check.cases} cases beyond "
            f"{check.tolerance:.2g} (largest error {check.max_error:.3g})"
            for check in self.simulation.checks
            if not check.ok
        ]
        if not self.reports:
            failed.append(f"{self.chapter}: the chapter has no theorem")
        return tuple(failed)


def chapter_ids(only: Sequence[str] = ()) -> tuple[str, ...]:
    """All chapter ids in order, or those named in `only`.

    Errors: ValueError that lists the valid ids.

    >>> chapter_ids(["T3", "t1"])
    ('T1', 'T3')
    """
    from divsim.derivations import CHAPTERS

    wanted = [name.upper() for name in only]
    unknown = [name for name in wanted if name not in CHAPTERS]
    if unknown:
        valid = f"valid ids: {', '.join(CHAPTERS)}"
        raise ValueError(f"unknown chapter {', '.join(unknown)}; {valid}; --explain also takes one theorem")
    return tuple(name for name in CHAPTERS if not only or name in wanted)


def run(config: Config) -> Iterator[ChapterResult]:
    """Verify the chapters; results come as they are finished, not in table order."""
    work = functools.partial(verify_chapter, seed=config.seed)
    for _, result in spread(work, config.chapters, config.processes):
        yield result


def verify_chapter(chapter: str, seed: int) -> ChapterResult:
    """Check every theorem of one chapter and simulate its claims."""
    from divsim.derivations import prove
    from divsim.tabular.simulations import SIMULATIONS

    start = time.perf_counter()
    reports = prove(chapter)
    simulation = SIMULATIONS[chapter](np.random.default_rng(seed))
    return ChapterResult(chapter, reports, simulation, time.perf_counter() - start)
