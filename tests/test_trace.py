"""The tracer is checked: forms are written out, cases reach every side, and a wrong formula is refused."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from sympy import Expr, Max, Min, Rational, Symbol, flatten, log, nan, oo, sign

import divsim.formulas as shipped
from divsim.derivations import forward_kl, load
from divsim.derivations.cases import Case
from divsim.derivations.notation import j, k, m, mean, n, p, smooth, total, v
from divsim.derivations.symbolic import real, xp
from divsim.derivations.theorem import Theorem, check
from divsim.derivations.trace import FOUR, MASKED, PAIRS, UNTIED, expressions, stepped, trace
from divsim.formulas import divergences

# --- writing out --------------------------------------------------------------------------------------------


def test_a_general_form_is_written_out() -> None:
    case, f, b = UNTIED[0], smooth("f"), Symbol("b")
    assert case.explicit(total(lambda i: p[i] * m[k])) == m[0] * p[0] + m[0] * p[1] + m[0] * p[2]
    pairs = case.explicit(total(lambda i, h: v[i] * m[h]), tokens=(1, 2))
    assert (pairs - (v[1] + v[2]) * (m[1] + m[2])).expand() == 0
    assert case.explicit(v[j] - v[k]) == [0, v[1] - v[0], v[2] - v[0]]
    assert case.explicit(f(b) * n, b=2, f=lambda x: x**2) == 12
    assert case.explicit(total(lambda i: p[i]), p=(1, 2, 4)) == 7
    assert case.explicit(p[0] * case.explicit(p[k])) == p[0] ** 2


def test_signs_are_settled_at_the_point() -> None:
    case = UNTIED[0]  # weights (3, 4, 5) and (4, 5, 3)
    assert case.explicit(abs(p[j] - m[j])) == [p[0] - m[0], p[1] - m[1], m[2] - p[2]]
    assert case.explicit(sign(p[j] - m[j])) == [1, 1, -1]
    assert case.explicit(Max(p[0], m[0])) == p[0] and case.explicit(Min(p[0], m[0])) == m[0]


def test_masked_tokens_are_left_out_of_sums() -> None:
    (case, _) = MASKED
    assert case.explicit(total(lambda i: 1)) == 3 and case.explicit(p[j])[3] == 0
    assert expressions(case.log_pi)[3] == -oo


def test_the_hidden_tokens_are_those_of_the_shipped_view() -> None:
    for case in FOUR:
        view, hidden = case.coarse_view(), case.hidden()
        mass = sum(weight for weight, out in zip(case.pi, hidden, strict=True) if out)
        assert int(view.tail_size.data) == sum(hidden)
        assert (expressions(xp.exp(view.log_pi_tail)) - mass).simplify() == 0


# --- every side ---------------------------------------------------------------------------------------------

Run = Callable[[Case], Any]
ON_CELLS: dict[str, Callable[[Any, Any], Any]] = {
    f"{divergence.name}.{name}": getattr(divergence, name)
    for divergence in (*shipped.DIVERGENCES.values(), shipped.renyi(2.0), shipped.alpha(0.5))
    for name in ("measure", "logit_grad")
}
OTHERS: dict[str, Run] = {
    "change": lambda case: shipped.change(case.full_view),
    "curvature": lambda case: shipped.curvature(case.log_pi, case.vector(v)),
}
STEPPED: dict[str, Run] = {
    "exponential_path": lambda case: shipped.exponential_path(case.log_pi, case.vector(v), 1.0),
    "finite_change": lambda case: shipped.finite_change(case.log_mu, case.log_pi, case.vector(v)),
}
EXCHANGE = {base[i]: base[3 - i] for base in (p, m, v) for i in (1, 2)}


def forms(run: Run, case: Case) -> list[Expr]:
    return list(flatten([expressions(run(case))]))


def random_case(rng: np.random.Generator) -> Case:
    """Policies and a direction on a fine grid, from nearly equal to far apart."""
    spread = rng.uniform(0.1, 3)
    mu, pi = (np.exp(spread * rng.normal(size=3)) for _ in range(2))
    direction = rng.choice((0.1, 1, 5)) * rng.normal(size=3)
    point = {m: mu / mu.sum(), p: pi / pi.sum(), v: direction}
    exact = {base[i]: Rational(float(row[i])) for base, row in point.items() for i in range(3)}
    return replace(UNTIED[0], point=exact)


@pytest.mark.parametrize("name", [*ON_CELLS, *OTHERS, *STEPPED])
def test_the_cases_reach_every_side(name: str) -> None:
    """A random pair takes no arm that the cases do not take, up to an exchange of tokens 1 and 2."""
    runs = {**OTHERS, **STEPPED}
    run = runs.get(name, lambda case: ON_CELLS[name](case.log_mu, case.log_pi))
    reached = {form for case in (stepped(v) if name in STEPPED else UNTIED) for form in forms(run, case)}
    reached |= {form.xreplace(EXCHANGE) for form in reached}
    rng = np.random.default_rng(0)
    for _ in range(60):
        assert set(forms(run, random_case(rng))) <= reached


# --- wrong formulas -----------------------------------------------------------------------------------------


def verdict(run: Run, derived: Any, cases: tuple[Case, ...] = PAIRS, name: str = "change.change") -> str:
    empty = Theorem(id="X1", title="", statement="", scope="", tier="F", steps=())
    return " ".join(check(replace(empty, traces=(trace(name, run, derived, cases),))).failures)


KL = forward_kl.forward_kl()
KL_GRAD = p[j] - m[j]


def kl_cells(case: Case, near: Any, far: Any) -> Any:
    d = divergences.log_ratio(case.log_mu, case.log_pi)
    return xp.sum(xp.exp(case.log_mu) * xp.where(xp.abs(d) < 1, near(d), far(d)), axis=-1)


def kl_near(d: Any) -> Any:
    return xp.expm1(d) - d


def kl_far(d: Any) -> Any:
    return xp.exp(d) - 1 - d


RIGHT: dict[str, tuple[Run, Any]] = {
    "KL": (lambda case: kl_cells(case, kl_near, kl_far), KL),
    "TV": (lambda case: shipped.TV.measure(case.log_mu, case.log_pi), total(lambda i: abs(p[i] - m[i])) / 2),
}
WRONG: dict[str, tuple[Run, Any]] = {
    "far arm": (lambda case: kl_cells(case, kl_near, lambda d: xp.exp(d) - d), KL),
    "near arm": (lambda case: kl_cells(case, lambda d: d**2 / 2, kl_far), KL),
    "sign": (lambda case: -shipped.change(case.full_view), forward_kl.change()),
    "half": (
        lambda case: 2 * shipped.TV.measure(case.log_mu, case.log_pi),
        total(lambda i: abs(p[i] - m[i])) / 2,
    ),
    "side": (
        lambda case: xp.sum(divergences.difference(case.log_mu, case.log_pi), axis=-1) / 2,
        total(lambda i: abs(p[i] - m[i])) / 2,
    ),
    "weight": (lambda case: shipped.mean_under(case.log_mu, case.vector(v)), mean(p, lambda i: v[i])),
    "swapped": (lambda case: shipped.FORWARD_KL.measure(case.log_pi, case.log_mu), KL),
    "a tie": (
        lambda case: xp.where(divergences.log_ratio(case.log_mu, case.log_pi) >= 0, 1.0, -1.0),
        sign(p[j] - m[j]),
    ),
    "an entry too few": (lambda case: case.log_pi[:2], log(p[j])),
    "no such function": (lambda case: case.log_pi, log(p[j])),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_formula_is_accepted(name: str) -> None:
    assert verdict(*RIGHT[name]) == ""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_formula_is_refused(name: str) -> None:
    function = "change.no_such" if name == "no such function" else "change.change"
    message = {"an entry too few": "entries", "no such function": "has no"}.get(name, "the code computes")
    assert message in verdict(*WRONG[name], name=function)


def test_nothing_undefined_is_accepted() -> None:
    assert "the code computes" in verdict(lambda case: real(np.nan), nan)


def test_an_error_below_rounding_is_refused() -> None:
    """The proof is symbolic: what no float64 run can see is seen."""
    tiny = Rational(1, 10**30)
    assert "not shown to be equal" in verdict(lambda case: case.number(p[0] * (1 + tiny)), p[k])


SPOILT: dict[str, tuple[str, str, Any, str]] = {
    "T1b": ("softmax", "log_softmax", lambda logits: logits, "softmax.exponential_path"),
    "T2a": ("divergences", "_kl_cell", lambda log_p, log_q: log_p - log_q, "divergences.FORWARD_KL.measure"),
    "T2b": ("change", "take", lambda array, index: -array[..., 0], "change.change"),
    "T3b": ("change", "mean_under", lambda log_pi, values: xp.sum(values, axis=-1), "change.curvature"),
}


@pytest.mark.parametrize("theorem_id", SPOILT)
def test_a_theorem_fails_when_its_code_is_spoilt(theorem_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, broken, function = SPOILT[theorem_id]
    (theorem,) = (one for one in load(theorem_id[:2]) if one.id == theorem_id)
    bare = replace(theorem, steps=(), mutants=())
    assert check(bare).ok
    monkeypatch.setattr(import_module(f"divsim.formulas.{module}"), name, broken)
    assert any(f"trace of {function}: the code computes" in failure for failure in check(bare).failures)


def test_cases_of_different_sizes_make_two_traces() -> None:
    with pytest.raises(ValueError, match=r"one number of tokens, got \[3, 4\]"):
        trace("change.change", lambda case: case.log_pi, log(p[j]), (*UNTIED, *FOUR))
