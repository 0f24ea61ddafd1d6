"""The checkers of theorems are checked: each accepts a true claim and reports every way to spoil it."""

import pickle
from dataclasses import replace

import pytest
from sympy import (
    Derivative,
    IndexedBase,
    Integral,
    KroneckerDelta,
    Limit,
    Max,
    Min,
    Subs,
    Symbol,
    exp,
    log,
    oo,
    sin,
    sqrt,
)

from divsim.derivations import CHAPTERS, coarse_certainty, degree, intervals, load
from divsim.derivations.forward_kl import change, forward_kl, token_step
from divsim.derivations.hypotheses import SIMPLEX, nonneg, nonneg_all
from divsim.derivations.notation import h, j, k, m, mean, n, p, s, smooth, t, total, v
from divsim.derivations.render import explain, explain_step, latex, plain
from divsim.derivations.softmax import path
from divsim.derivations.theorem import Mutant, Step, Theorem, Trace, Verdict, alias, check

S2 = total(lambda i: p[i] ** 2)
VARIANCE = mean(p, lambda i: v[i] ** 2) - mean(p, lambda i: v[i]) ** 2
PAIRS = total(lambda i, h: p[i] * p[h] * (v[i] - v[h]) ** 2) / 2
x = Symbol("x", positive=True)


def theorem(*steps: Step, **fields) -> Theorem:
    return Theorem(id="X1", title="t", statement="", scope="", tier="G", steps=steps, **fields)


GOOD = theorem(
    Step("An identity.", mean(p, token_step), p[k] - S2, polynomial=True),
    Step("A certificate.", VARIANCE, PAIRS, "nonneg"),
    Step("A scalar.", exp(x) * (1 + exp(-x)) ** 2, exp(x) + 2 + exp(-x), "scalar", ()),
    Step("An example.", kind="exact", decide=lambda: Verdict(True, "1 < 2")),
    Step("A fact.", kind="cited"),
    mutants=(Mutant("A falsehood.", mean(p, token_step), p[k]),),
    traces=(Trace("change.change", lambda: [x, -oo], lambda: [x, -oo]),),
    residue=("Another fact.",),
)


def test_a_good_theorem_is_counted_and_travels_between_processes():
    report = pickle.loads(pickle.dumps(check(GOOD)))
    assert report.ok and report.failures == ()
    counts = (report.identities, report.certificates, report.exact, report.mutants_refused, report.traces)
    assert counts == (2, 1, 1, 1, 1) and report.degree_proofs == 1
    assert report.residue == ("Another fact.", "A fact.")
    assert report.shadow_sizes == (2, 3, 5, 7) and report.shadow_error < 1e-12


BAD = {
    "does not show": Step("S.", mean(p, token_step), p[k] + S2),
    "numerically false": Step("S.", mean(p, token_step), p[k] + S2),
    "not visibly": Step("S.", -VARIANCE, -PAIRS, "nonneg"),
    "simplify leaves": Step("S.", exp(x), 1 + x, "scalar", ()),
    "does not hold: 2 < 1": Step("S.", kind="exact", decide=lambda: Verdict(False, "2 < 1")),
    "needs decide": Step("S.", kind="exact"),
    "ZeroDivisionError": Step("S.", kind="exact", decide=lambda: Verdict(1 / 0 > 0, "")),
    "degree principle finds": Step("S.", S2, p[k] ** 2, polynomial=True),
    "hides a factor n": Step(
        "S.", total(lambda i: p[i] + 1), 1 + n - n + total(lambda i: 1), polynomial=True
    ),
    "break the hypothesis": Step("S.", VARIANCE, PAIRS, "nonneg", (*SIMPLEX, nonneg_all(lambda i: -p[i]))),
    "0..n-1": Step("S.", IndexedBase("p")[k], total(lambda i: p[i]).func(p[j], (j, 1, n))),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_step_is_reported_with_its_theorem_and_its_number(message):
    report = check(theorem(Step("Fine.", VARIANCE, PAIRS), BAD[message]))
    assert not report.ok
    assert any(message in failure for failure in report.failures)
    assert all(failure.startswith("X1, step 2 (S.)") for failure in report.failures)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (Mutant("M.", VARIANCE, PAIRS), "kernel accepts"),
        (Mutant("M.", Max(v[k], v[j]) + Min(v[k], v[j]), v[k] + v[j]), "cannot tell"),
        (Mutant("M.", sqrt(-1 - p[k]), p[k]), "not a finite number"),
    ],
    ids=["true", "true but beyond the kernel", "undefined"],
)
def test_a_mutant_that_refutes_nothing_is_reported(mutant, message):
    (failure,) = check(theorem(mutants=(mutant,))).failures
    assert message in failure and failure.startswith("X1, mutant (M.)")


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (Trace("change.change", lambda: x, lambda: 2 * x), "the code computes x"),
        (Trace("change.change", lambda: [x, x], lambda: [x]), "traced 2 entries, derived 1"),
        (Trace("change.change", list, list), "traced 0 entries"),
        (Trace("change.no_such_function", lambda: x, lambda: x), "no_such_function"),
    ],
    ids=["different", "different shape", "empty", "unknown function"],
)
def test_a_trace_that_vouches_for_nothing_is_reported(trace, message):
    (failure,) = check(theorem(traces=(trace,))).failures
    assert message in failure


def test_a_sample_makes_a_sign_hypothesis_true():
    cap = Symbol("cap", positive=True)
    step = Step(
        "S.",
        cap - S2,
        total(lambda i: p[i] * (cap - p[i])),
        "nonneg",
        (*SIMPLEX, nonneg_all(lambda i: cap - p[i])),
    )
    assert check(theorem(step, sample=lambda rng, size: {"cap": 1.0})).ok
    assert not check(theorem(step, sample=lambda rng, size: {"cap": 0.0})).ok


# --- the degree principle


def test_the_degree_principle_names_the_size_that_decides():
    assert degree.prove(mean(p, token_step), p[k] - S2) == degree.DegreeProof(True, 2, 3)
    assert degree.prove(total(lambda i: (p[i] - m[i]) * token_step(i)), change()).size == 4


def test_a_coincidence_of_a_small_size_is_no_proof():
    # Over two tokens any two quantities are perfectly correlated; over more they are not.
    product = VARIANCE * (mean(p, lambda i: m[i] ** 2) - mean(p, lambda i: m[i]) ** 2)
    covariance = mean(p, lambda i: v[i] * m[i]) - mean(p, lambda i: v[i]) * mean(p, lambda i: m[i])
    assert degree.vanishes_at(product - covariance**2, 2, (p, m))
    assert not degree.vanishes_at(product - covariance**2, 3, (p, m))


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (n * p[k], "not a polynomial"),
        (1 / (1 + p[k]), "not a polynomial"),
        (log(p[k]), "not a polynomial"),
        (total(lambda i: 1 + p[i]), "hides a factor n"),
        (total(lambda i: total(lambda h: p[h] * (1 + p[i]))), "hides a factor n"),
        (total(lambda i, h: KroneckerDelta(i, h) * p[i]), "distinguished token"),
        (p[k] * p[j], "one distinguished token"),
        (total(lambda i: IndexedBase("q")[i, k]), "one index"),
        (p[k] ** 9, "degree 9"),
    ],
)
def test_the_degree_principle_refuses_what_it_cannot_decide(expr, message):
    with pytest.raises(ValueError, match=message):
        degree.prove(expr, 0)


# --- the printed form


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (mean(p, lambda i: m[i] - p[i]), "Σ_i π_i (μ_i − π_i)"),
        (change(), "π_k − μ_k + Σ_i π_i (μ_i − π_i)"),
        (S2 * p[k] / 2, "π_k (Σ_i π_i²) / 2"),
        (mean(p, lambda i: mean(m, lambda i: v[i]) * v[i]), "Σ_i π_i v_i Σ_j μ_j v_j"),
        (-(S2**2), "−(Σ_i π_i²)²"),
        (exp(-s) / (1 - p[k]), "exp(−s) / (1 − π_k)"),
        (KroneckerDelta(k, j) * sqrt(p[k]), "√(π_k) δ_jk"),
        (total(lambda i: p[k] * v[i]), "Σ_i π_k v_i"),
        (Derivative(s**2, (s, 2)), "d²/ds² s²"),
        (Subs(Derivative(exp(s), s), s, 0), "[d/ds exp(s) at s = 0]"),
        (Integral(s * t, (t, 0, 1)), "∫_0^1 (s t) dt"),
        (Limit(sin(x) / x, x, 0), "lim_x→0 (sin(x) / x)"),
    ],
)
def test_plain_text_is_what_a_student_would_write(expr, text):
    assert plain(expr) == text


def test_aliases_shorten_only_what_they_name():
    names = (alias("D", "forward KL", forward_kl()), alias("π_{}(t)", "the path", path))
    assert plain(forward_kl() - path(k) * v[k], names) == "D − π_k(t) v_k"
    assert (
        plain(total(lambda i, h: path(i) * path(h) * (v[i] - v[h]) ** 2), names)
        == "Σ_ih π_h(t) π_i(t) (v_i − v_h)²"
    )
    assert plain(path(k, 2 * t), names) != plain(path(k), names)


def test_latex_names_the_policies():
    step = Step("S.", S2, mean(p, lambda i: p[i]), "nonneg")
    assert latex(step) == r"\sum_{i} {\pi}_{i}^{2} \ge 0"
    assert latex(Step("A fact.", kind="cited")) == r"\text{A fact.}"
    shown = latex(Step("S.", path(k), 0), (alias("π_{}(t)", "the path", path),))
    assert shown == r"\pi_k(t) = 0"


def test_a_name_may_stand_for_some_terms_of_a_sum():
    names = (alias("E", "the average", mean(p, lambda i: v[i])), alias("u_{}", "lead", lambda i: v[i] - S2))
    assert plain(2 * m[k] * (1 + v[k] - S2), names) == "2 μ_k (u_k + 1)"
    assert plain(S2 - v[k] - mean(p, lambda i: v[i]), names) == "−E − u_k"


def test_a_sum_says_which_tokens_it_runs_over():
    apart = (1 - KroneckerDelta(j, k)) ** 2
    assert plain(total(lambda i: h[i] * p[i])) == "Σ_tail π_i"
    assert plain(total(lambda i: (h[i] - 1) * p[i])) == "Σ_kept −π_i"
    assert plain(total(lambda i: apart.subs(j, i) * p[i])) == "Σ_i≠k π_i"
    assert plain(total(lambda i, o: apart.subs({j: i, k: o}) * p[i] * m[o])) == "Σ_i≠o μ_o π_i"
    assert plain(total(lambda i: apart * p[i])) == "Σ_i π_i (1 − δ_jk)²"
    assert plain(total(lambda i: p[i] * (1 - KroneckerDelta(i, k)) / (1 - h[i]))) == "Σ_i≠k π_i / (1 − h_i)"


def test_derivatives_of_unknown_functions_have_primes():
    f = smooth("f")
    assert plain(f(x).diff(x, 2) + f(x).diff(x)) == "f′(x) + f″(x)"


def test_a_false_variant_with_a_long_left_hand_side_names_the_step():
    long = total(lambda i: (p[i] - m[i]) ** 2 * (p[i] + m[i] + v[i]) ** 3 * (p[i] + 2 * m[i] + v[i]) ** 3)
    text = explain(theorem(Step("S.", long, long), mutants=(Mutant("M.", long, 2 * long),)))
    assert "False: M.\n    (step 1) ≠ 2 Σ_i" in text


def test_only_names_that_occur_are_explained():
    names = (alias("D", "forward KL", forward_kl()), alias("π_{}(t)", "the path", path))
    text = explain(theorem(Step("S.", path(k), 0), aliases=names))
    assert "Write π_i(t) for the path." in text and "forward KL" not in text


def test_an_explanation_shows_every_kind_of_step():
    text = explain(GOOD)
    for part in (
        "1. An identity.",
        "≥ 0",
        "1 < 2",
        "accepted and not checked",
        "False: A falsehood.",
        "Accepted: Another fact.",
    ):
        assert part in text
    assert explain_step(Step("A fact.", kind="cited")).startswith("A fact.\n")


# --- intervals, and the search that found the example of T3h


def test_intervals_contain_the_number_and_little_else():
    # mp.dps = 50; sum(a * mp.log(a / b) for a, b in zip((.5, .3, .2), (.4, .4, .2)))
    value = intervals.kl(intervals.policy((5, 3, 2)), intervals.policy((4, 4, 2)))
    assert float(value.mid) == pytest.approx(0.025267153921570600, rel=1e-14)  # the literal has 17 digits
    assert value.delta < 1e-25  # 30 digits are kept
    assert intervals.is_positive(value) and not intervals.is_negative(value)
    assert not intervals.is_positive(value - value)  # an interval around 0 decides nothing
    assert sum(intervals.moved(intervals.policy((1, 2, 3)), 0, -3)).delta < 1e-25
    assert intervals.coarsen([1, 2, 3, 4], (0, 2)) == [1, 3, 6]


def test_the_search_finds_the_example_of_the_coarse_kl():
    assert coarse_certainty.PI in set(coarse_certainty.search(stride=5))


# --- chapters


def test_an_unknown_chapter_names_the_valid_ones():
    with pytest.raises(ValueError, match=r"unknown chapter 'T0'; valid chapters: T1, T2, .*T13"):
        load("T0")


@pytest.mark.parametrize("chapter", ["T1", "T2", "T3"])
def test_every_theorem_of_the_chapter_holds(chapter):
    assert chapter in CHAPTERS
    for each in load(chapter):
        report = check(each)
        assert report.failures == ()
        assert each.id.startswith(chapter) and each.mutants and explain(each)


def test_a_theorem_with_a_flipped_sign_fails():
    (gradient, *_) = load("T2")
    (step,) = gradient.steps
    assert not check(replace(gradient, steps=(replace(step, rhs=-step.rhs),))).ok


def test_a_closed_sign_hypothesis_is_used():
    gap = Symbol("low", real=True) - x
    step = Step("S.", x * gap, x * gap, "nonneg", (nonneg(gap),))
    assert check(theorem(step, sample=lambda rng, size: {"low": 2.0, "x": 1.0})).ok
    assert not check(
        theorem(replace(step, hypotheses=()), sample=lambda rng, size: {"low": 2.0, "x": 1.0})
    ).ok
