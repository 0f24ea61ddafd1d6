"""The record of a numerical check of a theorem: what was tried, how far off it was, and whether that is fine.

A `Check` compares two computations of one claim over many random cases; a `Simulation` collects the checks
of one theorem. A claim is reduced to one non-negative error per case: a difference for an identity, the
amount by which it fails for an inequality, the distance from the claimed order for a slope, and 0 or 1 for a
statement that is simply true or false. A case whose error exceeds the tolerance, or is not a number, is a
violation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

EXACT = "the statement is true or false: no rounding is forgiven"


@dataclass(frozen=True)
class Check:
    """One claim tried on random cases.

    Attributes:
      name: the claim, in words.
      cases: number of cases tried, > 0.
      sizes: vocabulary sizes V that were used, ascending.
      max_error: the largest error of any case, in the unit of the tolerance; inf if one was not a number.
      violations: number of cases with an error above the tolerance.
      tolerance: largest error that is accepted.
      reason: why this tolerance, with the unit of the error.
      slope: measured convergence order farthest from the claimed one, None if no order was measured.

    >>> check([1e-16, 3e-16], "a = b", sizes=[2], tolerance=1e-15, reason="one rounding, relative").ok
    True
    """

    name: str
    cases: int
    sizes: tuple[int, ...]
    max_error: float
    violations: int
    tolerance: float
    reason: str
    slope: float | None = None

    @property
    def ok(self) -> bool:
        """True if something was tried and nothing violated the claim."""
        return self.cases > 0 and self.violations == 0

    @property
    def severity(self) -> float:
        """The largest error in units of the tolerance; inf for any violation of an exact statement."""
        if self.tolerance > 0:
            return self.max_error / self.tolerance
        return float("inf") if self.violations else 0.0


@dataclass(frozen=True)
class Simulation:
    """All numerical checks of one theorem.

    Attributes:
      name: chapter id and title, such as "T2 forward KL".
      checks: one `Check` per claim; `max_error`, `tolerance` and `reason` are those of the worst.

    >>> Simulation("T0", (truth([True, True], "a <= b", sizes=[2]),)).ok
    True
    """

    name: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """True if there are checks and all of them hold."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def worst(self) -> Check:
        """The check that comes nearest to, or goes farthest beyond, its tolerance."""
        return max(self.checks, key=lambda check: check.severity)

    @property
    def cases(self) -> int:
        """Number of cases of all checks together."""
        return sum(check.cases for check in self.checks)

    @property
    def violations(self) -> int:
        """Number of violations of all checks together."""
        return sum(check.violations for check in self.checks)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Vocabulary sizes V used by any check, ascending."""
        return tuple(sorted({size for check in self.checks for size in check.sizes}))

    @property
    def max_error(self) -> float:
        """The largest error of the worst check, in the unit of its tolerance."""
        return self.worst.max_error

    @property
    def tolerance(self) -> float:
        """The tolerance of the worst check."""
        return self.worst.tolerance

    @property
    def reason(self) -> str:
        """Why that tolerance."""
        return self.worst.reason

    @property
    def slope(self) -> float | None:
        """The measured order of the check of an order that fits worst, None if none was measured."""
        measured = [check for check in self.checks if check.slope is not None]
        return max(measured, key=lambda check: check.severity).slope if measured else None


def check(errors: ArrayLike, name: str, sizes: Iterable[int], tolerance: float, reason: str) -> Check:
    """A `Check` of one claim from the error of every case.

    Args:
      errors: any shape, one non-negative error per case.
      name, tolerance, reason: see `Check`.
      sizes: vocabulary sizes V used.

    Returns:
      A `Check`.

    >>> check([0.0, np.nan], "a = b", sizes=[2], tolerance=1e-15, reason="one rounding").violations
    1
    """
    error = np.asarray(errors, dtype=np.float64).ravel()
    error = np.where(np.isnan(error), np.inf, error)
    return Check(
        name=name,
        cases=error.size,
        sizes=tuple(sorted(set(sizes))),
        max_error=float(np.max(error, initial=0.0)),
        violations=int(np.sum(error > tolerance)),
        tolerance=tolerance,
        reason=reason,
    )


def truth(holds: ArrayLike, name: str, sizes: Iterable[int]) -> Check:
    """A `Check` of a statement that is true or false in every case.

    Args:
      holds: any shape, bool.
      name, sizes: see `Check`.

    Returns:
      A `Check` with tolerance 0.

    >>> truth([True, False], "a < b", sizes=[2]).violations
    1
    """
    errors = 1.0 - np.asarray(holds, dtype=np.bool_)
    return check(errors, name, sizes, tolerance=0.0, reason=EXACT)
