"""What must hold of any implementation. Each check takes the implementation, so broken ones can be tried too.

`test_*.py` runs a check on what ships, `test_checkers_checked.py` the same check on mutants, and expects red.
Arrays are NumPy float64 unless a check says otherwise.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import oracles
from pairs import Floats, Pair, assert_close, numpy_of
from scipy.special import log_softmax

PairFunction = Callable[[Any, Any], Any]

EPS = float(np.finfo(np.float64).eps)


def rounding_of(value: float, floor: float = 1e-28) -> float:
    """How far a divergence may be off in float64.

    Log-probabilities are rounded at 1e-15 (|log p| < 20, a few operations), so each log ratio d is off by
    that, and a divergence that is quadratic in d by 1e-14 sqrt(D) + 1e-28. Sums of six terms add 1e-13 D.
    """
    return 1e-13 * value + 1e-14 * math.sqrt(value) + floor


def check_against_oracle(measure: PairFunction, oracle: oracles.Measure, pair: Pair) -> None:
    exact = max(0.0, float(oracle(oracles.normalised(pair[0]), oracles.normalised(pair[1]))))  # 0 is -1e-60
    floor = 1e-15 if oracle is oracles.tv else 1e-28  # TV is linear in d
    assert_close(measure(*pair), exact, rtol=0, atol=rounding_of(exact, floor))


def check_never_negative(measure: PairFunction, pair: Pair) -> None:
    assert float(measure(*pair)) >= 0


def check_zero_iff_equal(measure: PairFunction, pair: Pair) -> None:
    log_mu, log_pi = pair
    assert float(measure(log_mu, log_mu)) == 0
    if np.max(np.abs(log_mu - log_pi)) > 1e-3:  # closer ones are told apart by check_against_oracle
        assert float(measure(log_mu, log_pi)) > 0


def check_data_processing(measure: PairFunction, pair: Pair, cell_of: Sequence[int]) -> None:
    """Merging tokens into cells never raises a divergence."""
    cells = [np.flatnonzero(np.asarray(cell_of) == c) for c in sorted(set(cell_of))]
    coarse = [np.array([np.logaddexp.reduce(row[cell]) for cell in cells]) for row in pair]
    full = float(measure(*pair))
    assert float(measure(*coarse)) <= full + rounding_of(full) + 1e-14  # cells' own logs are rounded too


def check_gradient_sums_to_zero(logit_grad: PairFunction, pair: Pair) -> None:
    """A common shift of all logits changes nothing."""
    grad = logit_grad(*pair)
    assert abs(np.sum(grad)) <= 1e-14 * max(1.0, np.max(np.abs(grad)))  # a sum of six terms


def has_derivative(oracle: oracles.Measure, log_mu: Floats, log_pi: Floats) -> bool:
    """TV has none at a tie, and a difference quotient cannot tell a tie from what rounding made of one."""
    possible = log_mu > -np.inf
    apart = np.abs(log_mu[possible] - log_pi[possible])
    return oracle is not oracles.tv or bool(np.all(apart > 1e-12))


def check_gradient_is_derivative(logit_grad: PairFunction, oracle: oracles.Measure, pair: Pair) -> None:
    exact = oracles.logit_gradient(oracle, oracles.normalised(pair[0]), oracles.normalised(pair[1]))
    expected = np.array([float(g) for g in exact])
    # Terms are at most as large as the largest entry allows; log ratios are off by 1e-15.
    assert_close(logit_grad(*pair), expected, rtol=0, atol=1e-13 * np.max(np.abs(expected)) + 1e-14)


def check_permutation_equivariant(measure: PairFunction, logit_grad: PairFunction, pair: Pair) -> None:
    """Names of tokens do not matter."""
    order = np.roll(np.arange(len(pair[0]))[::-1], 1)
    shuffled = pair[0][order], pair[1][order]
    value = float(measure(*pair))
    assert_close(measure(*shuffled), value, rtol=1e-14)  # the same terms, added in another order
    grad = logit_grad(*pair)
    assert_close(logit_grad(*shuffled), grad[order], rtol=1e-12, atol=1e-15 * max(1, np.max(np.abs(grad))))


def check_convex_in_logits(measure: PairFunction, logit_grad: PairFunction, pair: Pair, move: Floats) -> None:
    """D(pi_x) - D(pi) >= q . x: a predicted increase is a real one."""
    log_mu, log_pi = pair
    predicted = float(np.sum(logit_grad(log_mu, log_pi) * move))
    before, after = float(measure(log_mu, log_pi)), float(measure(log_mu, log_softmax(log_pi + move)))
    assert after - before >= predicted - 1e-12 * (1 + before + after + abs(predicted))  # rounding of the four


def check_change(change_of: Callable[[Pair, int], Any], oracle: oracles.Measure, pair: Pair, k: int) -> None:
    """The change of token k is the derivative of the divergence along its own step."""
    mu, pi = oracles.normalised(pair[0]), oracles.normalised(pair[1])
    exact = float(oracles.change(oracle, mu, pi, k))
    scale = max(1.0, abs(exact), float(oracle(mu, pi)))
    assert_close(change_of(pair, k), exact, rtol=0, atol=1e-13 * scale)  # a sum of six terms of that size


def violations(interval: tuple[Any, Any], exact: Any) -> int:
    """How many exact values lie outside their interval. NaN lies outside."""
    low, high = (numpy_of(end).astype(np.float64) for end in interval)
    return int(np.sum(~((low <= exact) & (exact <= high))))
