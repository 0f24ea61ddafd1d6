"""The numeric shadow of a theorem: its claims replayed by the evaluator at several vocabulary sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sympy import sympify

from . import evaluator
from .hypotheses import Given, Hypothesis, Nonneg

Sampler = Callable[[np.random.Generator, int], dict[str, Any]]
SIZES = (2, 3, 5, 7)
TOLERANCE = 1e-9  # float64 on sums of at most 7^3 terms of order one


@dataclass(frozen=True)
class Shadow:
    """How to draw values for one theorem."""

    sample: Sampler | None  # replaces drawn values by name
    sizes: tuple[int, ...] = SIZES
    seed: int = 0

    def gap(self, lhs: Any, rhs: Any, hypotheses: tuple[Hypothesis, ...]) -> float:
        """The largest relative |lhs - rhs| over the sizes, on values that satisfy the hypotheses.

        Raises ValueError where the drawn values do not satisfy them.
        """
        rng, gaps = np.random.default_rng(self.seed), []
        for size in self.sizes:
            values = evaluator.draw([lhs, rhs, *_expressions(hypotheses)], size, rng)
            if self.sample is not None:
                values.update(self.sample(rng, size))
            for fact in hypotheses:
                if evaluator.violated(fact, values, TOLERANCE):
                    raise ValueError(
                        f"the drawn values break the hypothesis {fact}; give the theorem a sample="
                    )
            gaps.append(evaluator.difference(lhs, rhs, values))
        return max(gaps)


def _expressions(hypotheses: tuple[Hypothesis, ...]) -> list[Any]:
    found = []
    for fact in hypotheses:
        if isinstance(fact, Given):
            found += [fact.lhs, sympify(fact.rhs)]
        elif isinstance(fact, Nonneg):
            found.append(fact.expr)
        else:
            found.append(fact.base[0, 0])
    return found
