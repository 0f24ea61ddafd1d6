"""The normal form: which hypotheses it uses, and that it never changes a value."""

import numpy as np
import pytest
from hypothesis import given as forall_cases
from hypothesis import strategies as st
from sympy import (
    Derivative,
    IndexedBase,
    Integral,
    KroneckerDelta,
    Limit,
    Rational,
    Subs,
    exp,
    log,
    sqrt,
    symbols,
)

from divsim.derivations.evaluator import difference, draw
from divsim.derivations.hypotheses import SIMPLEX, Symmetric, given, given_all
from divsim.derivations.kernel import is_zero, normal_form
from divsim.derivations.notation import carry_out, j, k, m, mean, p, t, total, v

a = symbols("a", positive=True)
B = IndexedBase("b", nonnegative=True)
TABLE = IndexedBase("q", positive=True)
GRAM = IndexedBase("K", real=True)
S2 = total(lambda i: p[i] ** 2)


# --- hypotheses

INDICATOR = (given_all(lambda i: (B[i] ** 2, B[i])), given(B[k], 0))
ROWS = (*SIMPLEX, given_all(lambda i: (total(lambda h: TABLE[i, h]), 1)))


@pytest.mark.parametrize(
    ("lhs", "rhs", "hypotheses"),
    [
        (total(lambda i: B[i] ** 3 * p[i]), total(lambda i: B[i] * p[i]), INDICATOR),
        (total(lambda i: KroneckerDelta(i, k) * B[i]), 0, INDICATOR),
        (total(lambda i, h: p[i] * TABLE[i, h]), 1, ROWS),
        (total(lambda h, i: p[i] * TABLE[i, h]), 1, ROWS),
        (total(lambda i, h: GRAM[i, h] * (p[i] * m[h] - p[h] * m[i])), 0, (Symmetric(GRAM),)),
        (total(lambda i: p[i]) * v[k], a * v[k], (given(total(lambda i: p[i]), a),)),
    ],
    ids=["idempotent", "zero at k", "rows", "rows in the other order", "symmetric", "closed"],
)
def test_a_hypothesis_is_used_and_needed(lhs, rhs, hypotheses):
    assert is_zero(lhs - rhs, hypotheses)
    assert not is_zero(lhs - rhs, SIMPLEX)


def test_a_hypothesis_that_rewrites_nothing_is_an_error():
    with pytest.raises(ValueError, match="one sum or one monomial"):
        is_zero(S2, (given(S2 + v[k], 1),))


# --- soundness: the normal form has the value of what it came from

ATOMS = [p[k], m[j], v[k], p[j] ** 2, exp(v[j]), Rational(1, 3), t]


def _weights(i):
    return [
        p[i],
        m[i] * v[i],
        exp(t * v[i]),
        log(p[i] / m[i]),
        KroneckerDelta(i, k),
        KroneckerDelta(i, j) * v[i],
        sqrt(m[i]),
    ]


def _sum_of(inner, first, second):
    return total(lambda i: _weights(i)[first] * (inner + _weights(i)[second]))


def _nested(inner, first, second):
    return total(
        lambda i: _weights(i)[first] * total(lambda h: _weights(h)[second] * (GRAM[i, h] + inner)) ** 2
    )


def _double(inner, first, second):
    return total(lambda i, h: _weights(i)[first] * _weights(h)[second] * (p[i] - v[h]) * inner)


EXPRESSIONS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x, y: x * y, inner, inner),
        st.builds(lambda x: x**2, inner),
        st.builds(lambda x: 1 / (2 + x**2), inner),
        st.builds(_sum_of, inner, st.integers(0, 6), st.integers(0, 6)),
        st.builds(_nested, inner, st.integers(0, 6), st.integers(0, 6)),
        st.builds(_double, inner, st.integers(0, 6), st.integers(0, 6)),
    ),
    max_leaves=4,
)


@forall_cases(expr=EXPRESSIONS, size=st.sampled_from([1, 2, 4]), seed=st.integers(0, 99))
def test_the_normal_form_keeps_the_value(expr, size, seed):
    values = draw(
        [expr, total(lambda i: p[i] * m[i] * v[i] + t) + v[k] + v[j] + GRAM[k, j]],
        size,
        np.random.default_rng(seed),
    )
    assert difference(expr, normal_form(expr, SIMPLEX), values) < 1e-9  # float64, up to 4^4 terms, some large


@forall_cases(expr=EXPRESSIONS)
def test_the_normal_form_is_its_own(expr):
    assert is_zero(normal_form(expr) - expr, ())
    assert not is_zero(normal_form(expr) - expr - p[k] * S2, ())


def test_unevaluated_calculus_is_carried_out_without_touching_sums():
    curve = total(lambda i: p[i] * exp(t * v[i]))
    assert is_zero(Subs(Derivative(curve, (t, 2)), t, 0) - mean(p, lambda i: v[i] ** 2))
    assert carry_out(Integral(a * t, (t, 0, 1)) + Limit(t * a, t, 0)) == a / 2
    assert carry_out(curve) is curve
