"""The kernel that decides identities of sums: SymPy's traps, and what the kernel shows and what it refuses.

Its verdicts are set against the independent evaluator, which replays expressions on random numbers.
"""

import numpy as np
import pytest
from sympy import (
    IndexedBase,
    KroneckerDelta,
    Piecewise,
    Rational,
    Sum,
    Symbol,
    diff,
    exp,
    lambdify,
    log,
    simplify,
    sqrt,
)

from divsim.derivations.evaluator import difference, draw, evaluate
from divsim.derivations.kernel import is_zero, normal_form
from divsim.derivations.notation import (
    CaptureError,
    at,
    j,
    k,
    m,
    mean,
    n,
    p,
    smooth,
    specialise,
    t,
    total,
    v,
    z,
)
from divsim.derivations.signs import nonnegative
from divsim.derivations.softmax import path, softmax

i = Symbol("i", integer=True, nonnegative=True)  # a plain symbol as a bound index: what total() avoids
NAMED = Sum(p[i] * p[k], (i, 0, n - 1))
a = Symbol("a", positive=True)
S2 = total(lambda i: p[i] ** 2)
AVERAGE = mean(p, lambda i: v[i])
ENTROPY = -mean(p, lambda i: log(p[i]))


# --- SymPy's traps, each shown to be real, and the kernel's answer


@pytest.mark.parametrize(
    "substitute", [lambda e: e.subs(k, i), lambda e: e.xreplace({k: i})], ids=["subs", "xreplace"]
)
def test_sympy_captures_a_bound_index_and_at_refuses(substitute):
    assert substitute(NAMED) == Sum(p[i] ** 2, (i, 0, n - 1))
    with pytest.raises(CaptureError, match="total"):
        at(NAMED, k, i)
    assert at(total(lambda i: p[i] * p[k]), k, j) != total(lambda i: p[i] ** 2)


def test_at_leaves_a_bound_index_alone():
    assert at(NAMED, i, j) == NAMED
    assert at(v[i] + NAMED, i, j) == v[j] + NAMED


def test_sympy_differentiates_softmax_to_zero_when_names_clash():
    assert diff(exp(z[i]) / Sum(exp(z[i]), (i, 0, n - 1)), z[i]) == 0
    assert is_zero(diff(softmax(k), z[k]) - softmax(k) * (1 - softmax(k)))


def test_sympy_counts_a_derivative_n_times_when_names_clash():
    assert Sum(z[i], (i, 0, n - 1)).diff(z[i]).doit() == n
    assert normal_form(total(lambda i: z[i]).diff(z[k])) == 1


def test_sympy_splits_a_delta_sum_into_cases_for_ever():
    contracted = Sum(KroneckerDelta(i, k) * p[i], (i, 0, n - 1)).doit()
    assert contracted.has(Piecewise) and simplify(contracted).has(Piecewise)
    assert normal_form(total(lambda i: KroneckerDelta(i, k) * p[i])) == p[k]


def test_sympy_does_not_recognise_a_renamed_sum():
    assert simplify(Sum(p[i], (i, 0, n - 1)) - Sum(p[j], (j, 0, n - 1))) != 0
    assert is_zero(Sum(p[i], (i, 0, n - 1)) - Sum(p[j], (j, 0, n - 1)), ())


def test_sympy_leaves_a_constant_inside_a_sum():
    assert Sum(2 * p[i], (i, 0, n - 1)).expand() == Sum(2 * p[i], (i, 0, n - 1))
    assert normal_form(total(lambda i: 2 * p[i])) == 2 * normal_form(total(lambda i: p[i]))


def test_a_one_based_sum_is_silently_wrong_and_is_refused():
    one_based = Sum(p[i], (i, 1, n))
    size, array = 3, np.array([1.0, 2.0, 3.0, 50.0])  # one entry more than n, so that nothing overflows
    assert lambdify((n, p), one_based)(size, array) == 55
    assert evaluate(total(lambda i: p[i]), {"n": size, "p": array}) == 6
    with pytest.raises(ValueError, match=r"0\.\.n-1"):
        normal_form(one_based)
    with pytest.raises(IndexError):
        evaluate(one_based, {"n": size, "p": array[:size]})


def test_sympy_does_not_know_that_a_delta_is_zero_or_one():
    assert KroneckerDelta(i, k).is_nonnegative is None
    assert nonnegative(KroneckerDelta(i, k)) and nonnegative(1 - KroneckerDelta(i, k))
    assert not nonnegative(KroneckerDelta(i, k) - 1) and not nonnegative(-KroneckerDelta(i, k))
    assert not nonnegative(KroneckerDelta(i, k) ** Symbol("complex"))


# --- true identities are shown, for every n, and the evaluator agrees

GRAM = IndexedBase("K", real=True)
f = smooth("f")

TRUE = {
    "double sum over a product": (total(lambda i, h: p[i] * m[h] * v[i]), AVERAGE),
    "variance as pairs": (
        total(lambda i, h: p[i] * p[h] * (v[i] - v[h]) ** 2) / 2,
        mean(p, lambda i: v[i] ** 2) - AVERAGE**2,
    ),
    "sum of ones": (total(lambda i: p[i] + 1), 1 + n),
    "two deltas": (total(lambda i, h: KroneckerDelta(i, h) * p[i] * v[h]), AVERAGE),
    "delta of free tokens": (KroneckerDelta(k, j) * v[k] * v[j], KroneckerDelta(k, j) ** 2 * v[j] ** 2),
    "power of a sum": (
        total(lambda i: p[i] * total(lambda h: m[h] * v[i]) ** 2),
        mean(p, lambda i: v[i] ** 2),
    ),
    "log of a ratio": (
        mean(p, lambda i: log(2 * p[i] / (m[i] * S2))),
        log(2) - log(S2) - ENTROPY - mean(p, lambda i: log(m[i])),
    ),
    "log of a sum of two": (log(p[k] / 2 + m[k] / 2), log(p[k] + m[k]) - log(2)),
    "powers": (
        total(lambda i: sqrt(p[i] * m[i]) * (m[i] / p[i]) ** a),
        total(lambda i: m[i] ** (a + Rational(1, 2)) * p[i] ** (Rational(1, 2) - a)),
    ),
    "path sums to one": (total(path), 1),
    "path composes": (specialise(path(k), p, path), path(k, 2 * t)),
    "fractions of sums": (1 / (1 + S2) + S2 / (1 + S2), 1),
    "fractions inside a sum": (total(lambda i: p[i] ** 2 / (p[i] + m[i]) + p[i] * m[i] / (p[i] + m[i])), 1),
    "square of a fraction inside a sum": (
        total(lambda i: p[i] * (p[i] + m[i]) / (p[i] + m[i]) ** 2),
        total(lambda i: p[i] / (p[i] + m[i])),
    ),
    "chain rule of an open function": (
        diff(total(lambda i: f(t * p[i])), t),
        total(lambda i: p[i] * smooth("fp")(t * p[i])),
    ),
    "log of a sum inside a sum": (
        total(lambda i: p[i] * log(2 * total(lambda h: exp(GRAM[i, h])))),
        log(2) + total(lambda h: p[h] * log(total(lambda i: exp(GRAM[h, i])))),
    ),
    "double sum of ones": (total(lambda i, h: p[i]), n),
    "square of a dependent sum": (
        total(lambda i: p[i] * total(lambda h: GRAM[i, h]) ** 2),
        total(lambda h, i, a: p[h] * GRAM[h, i] * GRAM[h, a]),
    ),
    "log of a sum with a common factor": (
        log(p[k] ** 2 * m[k] + p[k] * m[k] ** 2),
        log(p[k]) + log(m[k]) + log(p[k] + m[k]),
    ),
}
FALSE = {
    "double sum without one factor": (total(lambda i, h: p[i] * v[i]), AVERAGE),
    "variance without 1/2": (
        total(lambda i, h: p[i] * p[h] * (v[i] - v[h]) ** 2),
        mean(p, lambda i: v[i] ** 2) - AVERAGE**2,
    ),
    "sum of ones as one": (total(lambda i: p[i] + 1), 2),
    "off-diagonal delta": (total(lambda i: KroneckerDelta(i, k) * p[i]), p[j]),
    "delta as one": (KroneckerDelta(k, j) * v[k], v[j]),
    "square inside and outside": (S2, total(lambda i: p[i]) ** 2),
    "product of sums as sum of products": (total(lambda i: p[i] * v[i] * v[i]), AVERAGE**2),
    "log of a sum as sum of logs": (log(p[k] + m[k]), log(p[k]) + log(m[k])),
    "swapped bases": (mean(p, lambda i: m[i] * v[i]), mean(p, lambda i: p[i] * v[i])),
    "path along half": (path(k), path(k, t / 2)),
    "fractions upside down": (total(lambda i: p[i] / (p[i] + m[i])), total(lambda i: m[i] / (p[i] + m[i]))),
    "transposed table": (
        total(lambda i, h: GRAM[i, h] * p[i] * m[h]),
        total(lambda i, h: GRAM[i, h] * p[h] * m[i]),
    ),
    "n forgotten": (total(lambda i: 1 / n), n),
}


def _gaps(lhs, rhs):
    rng = np.random.default_rng(0)
    functions = {"f": np.cos, "fp": lambda x: -np.sin(x)}
    return [difference(lhs, rhs, draw([lhs, rhs], size, rng) | functions) for size in (2, 3, 5, 7)]


@pytest.mark.parametrize("name", TRUE)
def test_a_true_identity_is_shown(name):
    lhs, rhs = TRUE[name]
    assert is_zero(lhs - rhs)
    assert max(_gaps(lhs, rhs)) < 1e-12  # float64, at most 7^2 terms of order one


@pytest.mark.parametrize("name", FALSE)
def test_a_false_identity_is_refused(name):
    lhs, rhs = FALSE[name]
    assert not is_zero(lhs - rhs)
    assert max(_gaps(lhs, rhs)) > 1e-3


def test_what_is_not_a_number_is_infinitely_wrong():
    assert difference(log(v[k]), v[k], {"v": np.array([-1.0]), "k": 0}) == np.inf


def test_without_the_hypothesis_the_sum_of_probabilities_stays():
    assert is_zero(total(lambda i: p[i]) - 1)
    assert not is_zero(total(lambda i: p[i]) - 1, ())


@pytest.mark.parametrize(
    ("joint", "split"),
    [
        (log(v[k] * v[j]), log(v[k]) + log(v[j])),
        (log(v[k] ** 2), 2 * log(v[k])),
        (sqrt(v[k] * v[j]), sqrt(v[k]) * sqrt(v[j])),
        ((v[k] ** 2) ** a, v[k] ** (2 * a)),
    ],
)
def test_a_law_that_needs_a_sign_waits_for_it(joint, split):
    assert not is_zero(joint - split)
    positive = IndexedBase("w", positive=True)
    assert is_zero(specialise(joint - split, v, lambda i: positive[i]))
