"""The door of a view: padding, precision and autograd stop here, and every refusal names its reason."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Library
from pairs import batch, logs, numpy_of
from test_divergences import EVERY
from test_view import engine_record

from divsim.formulas import FORWARD_KL, TAILS, View, change, change_interval

GARBAGE = [np.nan, np.inf, -np.inf, 1.0, -1e30]  # +1.0 is a sentinel that engines use for padding

LOG_MU, LOG_PI = batch(31, (3, 4))
ACTION = np.array([0, 1, 3])
LOG_MU_K, IDS, TOP = engine_record(LOG_MU, ACTION, 2)
OPEN = np.array([True, False, True])
CERTAIN = logs([[1, 0, 0, 0]] * 3)


def build(constructor: str, library: Callable[[Any], Any] = np.asarray, **changed: Any) -> View:
    """A valid view of the three tokens, with some arguments changed."""
    arguments: dict[str, dict[str, Any]] = {
        "full": {"log_mu": LOG_MU, "log_pi": LOG_PI, "action": ACTION},
        "top_k": {"log_mu": LOG_MU, "log_pi": LOG_PI, "action": ACTION, "k": 2},
        "sampled": {"log_mu_k": LOG_MU_K, "log_pi_k": LOG_PI[np.arange(3), ACTION], "vocab_size": 4},
        "from_logits": {
            "pi_logits": LOG_PI, "action": ACTION, "log_mu_k": LOG_MU_K, "top_ids": IDS, "top_log_mu": TOP,
        },
    }  # fmt: skip
    chosen = arguments[constructor] | changed
    view: View = getattr(View, constructor)(
        **{name: library(x) if isinstance(x, np.ndarray) else x for name, x in chosen.items()}
    )
    return view


constructors = pytest.mark.parametrize("constructor", ["full", "top_k", "sampled", "from_logits"])


def at_1(array: Any, value: Any) -> Any:
    """The entries of token 1 overwritten."""
    spoilt = np.array(array)
    spoilt[1] = value
    return spoilt


def spoilt_arguments(constructor: str, value: float) -> dict[str, Any]:
    floats = {
        "full": {"log_mu": LOG_MU, "log_pi": LOG_PI},
        "top_k": {"log_mu": LOG_MU, "log_pi": LOG_PI},
        "sampled": {"log_mu_k": LOG_MU_K, "log_pi_k": LOG_PI[np.arange(3), ACTION]},
        "from_logits": {"pi_logits": LOG_PI, "log_mu_k": LOG_MU_K, "top_log_mu": TOP},
    }[constructor]
    ids = {"action": ACTION, "top_ids": IDS}
    known = {"full": ["action"], "top_k": ["action"], "sampled": [], "from_logits": ["action", "top_ids"]}
    spoilt = {name: at_1(array, value) for name, array in floats.items()}
    return spoilt | {name: at_1(ids[name], -100) for name in known[constructor]}


def answers(view: View) -> list[Any]:
    """Everything that is read from a view, as numbers."""
    tails = ["full"] if view.is_full else ["zero", "uniform", "aggregated"]
    results = [divergence.measure(*view.cells) for divergence in EVERY]
    results += [change(view, divergence, tail) for divergence in EVERY for tail in tails]
    results += [view.ratio, *view.cells, view.tail_size, view.cell_k, view.in_support]
    if view.overlap_low is not None:
        results += [*change_interval(view)]
    return [numpy_of(x) for x in results]


@constructors
@pytest.mark.parametrize("value", GARBAGE)
def test_what_stands_in_padding_does_not_matter(constructor: str, value: float, xp: Library) -> None:
    """Bit for bit, and the padded token itself is at distance 0 with ratio 1 and change 0."""
    bracket = {"bracket": True} if constructor in ("top_k", "from_logits") else {}
    clean = build(constructor, xp.array, is_response=OPEN, **bracket)
    spoilt = build(constructor, xp.array, is_response=OPEN, **bracket, **spoilt_arguments(constructor, value))
    for before, after in zip(answers(clean), answers(spoilt), strict=True):
        np.testing.assert_array_equal(before, after)
    assert float(spoilt.ratio[1]) == 1.0
    for divergence in EVERY:
        assert float(divergence.measure(*spoilt.cells)[1]) == 0.0
        assert float(change(spoilt, divergence, "full" if spoilt.is_full else "zero")[1]) == 0.0


@constructors
def test_padding_leaves_the_other_tokens_alone(constructor: str) -> None:
    whole, padded = build(constructor), build(constructor, is_response=OPEN)
    for before, after in zip(answers(whole), answers(padded), strict=True):
        np.testing.assert_array_equal(before[OPEN], after[OPEN])


@constructors
def test_a_batch_of_padding_only(constructor: str, xp: Library) -> None:
    nothing = np.zeros(3, dtype=bool)
    view = build(constructor, xp.array, is_response=nothing)
    assert numpy_of(view.ratio).tolist() == [1.0, 1.0, 1.0]
    assert numpy_of(FORWARD_KL.measure(*view.cells)).tolist() == [0.0, 0.0, 0.0]


@constructors
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_is_lifted_before_any_difference(constructor: str, half: str) -> None:
    """The same values in float32 give the same answers, bit for bit."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def rounded(array: Any) -> Any:
        tensor = torch.as_tensor(np.array(array))
        return tensor.to(getattr(torch, half)) if tensor.is_floating_point() else tensor

    def lifted(array: Any) -> Any:
        tensor = rounded(array)
        return tensor.float() if tensor.is_floating_point() else tensor

    view = build(constructor, rounded)
    assert view.log_mu.dtype == view.log_pi.dtype == torch.float32
    loose = build(constructor, lifted, check=False)  # rounded rows do not sum to 1 in float32's tolerance
    for half_way, whole_way in zip(answers(view), answers(loose), strict=True):
        np.testing.assert_array_equal(half_way, whole_way)


@constructors
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_precision_is_kept(constructor: str, precision: str, xp: Library) -> None:
    floats = {
        name: array.astype(precision)
        for name, array in spoilt_arguments(constructor, 0.0).items()
        if array.dtype.kind == "f"
    }
    view = build(constructor, xp.array, is_response=OPEN, **floats)
    for array in (*view.cells, view.ratio, FORWARD_KL.measure(*view.cells)):
        assert precision in str(array.dtype)


@constructors
def test_no_gradient_leaks_through_a_view(constructor: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def tracked(array: Any) -> Any:
        tensor = torch.tensor(array)
        return tensor.requires_grad_() if tensor.is_floating_point() else tensor

    view = build(constructor, tracked)
    results = [*view.cells, view.ratio, FORWARD_KL.measure(*view.cells), view.binary().log_pi_tail]
    results += [change(view, tail=tail) for tail in TAILS if tail == ("full" if view.is_full else "uniform")]
    assert not any(array.requires_grad for array in results)


def test_half_precision_rows_may_sum_to_what_rounding_makes_of_1() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rows = torch.log_softmax(torch.as_tensor(LOG_PI).to(torch.bfloat16), dim=-1)
    assert abs(float(rows.float().exp().sum(-1)[0]) - 1) < 0.05
    build("full", torch.as_tensor, log_pi=rows, log_mu=rows)


@pytest.mark.parametrize(("off", "accepted"), [(0.9e-3, True), (1.1e-3, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_row_sums_are_1_within_a_thousandth(off: float, accepted: bool, sign: int) -> None:
    log_mu = LOG_MU + np.log1p(sign * off)
    if accepted:
        build("full", log_mu=log_mu)
        return
    with pytest.raises(ValueError, match=r"log_mu must sum to 1 over the vocabulary, got .* at \[0\]; pass"):
        build("full", log_mu=log_mu)


def test_unchecked_values_pass() -> None:
    build("full", log_mu=LOG_MU + 1, check=False)
    build("from_logits", log_mu_k=LOG_MU_K - 1, check=False)
    build("sampled", log_mu_k=-LOG_MU_K, check=False)


# Constructor, what is changed, and what the message says: argument, value, remedy.
ERRORS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("full", {"log_mu": LOG_MU.tolist()}, "one library", "log_mu: list, log_pi: ndarray", "convert"),
    ("full", {"action": [0, 1, 3]}, "one library", "action: list", "convert"),
    ("full", {"log_mu": np.zeros((3, 4), int)}, "log_mu must hold floating", "int64", "take the log first"),
    ("full", {"log_mu": LOG_MU.astype("f4")}, "dtypes", "log_mu: float32, log_pi: float64", "convert"),
    ("full", {"log_mu": LOG_MU[:, :2]}, "log_mu must have shape (3, 4)", "(3, 2)", ""),
    ("full", {"action": ACTION[:2]}, "action must have shape (3,)", "(2,)", ""),
    ("full", {"action": ACTION / 2}, "action must hold integer token ids", "float64", "convert it"),
    ("full", {"action": ACTION + 1}, "action must be a token id in [0, 4)", "4 at [2]", "mask padding"),
    ("full", {"action": ACTION - 1}, "action must be a token id in [0, 4)", "-1 at [0]", "mask padding"),
    ("full", {"log_pi": at_1(LOG_PI, np.nan)}, "log_pi must not be NaN", "nan at [1, 0]", "is_response"),
    ("full", {"log_pi": at_1(LOG_PI, 1)}, "log_pi must be log-prob", "1 at [1, 0]", "normalise logits"),
    ("full", {"log_mu": LOG_MU - 1}, "log_mu must sum to 1", "0.367879 at [0]", "log_softmax"),
    ("full", {"is_response": np.ones(3)}, "is_response must be boolean", "float64", "compare it with 0"),
    ("full", {"is_response": OPEN[:2]}, "is_response must have shape (3,)", "(2,)", ""),
    ("full", {"log_mu": CERTAIN}, "log_mu of the sampled token must be finite", "-inf at [1]", "aligned"),
    ("top_k", {"k": 0}, "k must be a whole number >= 1", "0", "View.sampled is the view without"),
    ("top_k", {"log_mu_error": -0.1}, "log_mu_error must be between 0 and 1", "-0.1", "0 means"),
    ("top_k", {"log_mu_error": np.inf}, "log_mu_error must be between 0 and 1", "inf", "0 means"),
    ("top_k", {"log_mu_error": np.nan}, "log_mu_error must be between 0 and 1", "nan", "0 means"),
    (
        "sampled",
        {"vocab_size": 0},
        "vocab_size must be a whole number >= 1",
        "0",
        "pass the size of the vocabulary",
    ),
    ("sampled", {"log_mu_k": LOG_MU_K[:2]}, "log_mu_k must have shape (3,)", "(2,)", ""),
    ("sampled", {"log_mu_k": at_1(LOG_MU_K, -np.inf)}, "log_mu_k must be finite", "-inf at [1]", "aligned"),
    ("sampled", {"log_mu_k": -LOG_MU_K}, "log_mu_k must be log-prob", "at [0]", "normalise"),
    ("sampled", {"log_pi_k": at_1(LOG_MU_K, 1)}, "log_pi_k must be log-prob", "1 at [1]", "normalise"),
    ("from_logits", {"pi_logits": LOG_PI.astype(int)}, "pi_logits must hold floating", "int64", "log"),
    ("from_logits", {"pi_logits": at_1(LOG_PI, np.inf)}, "pi_logits must be", "inf at [1, 0]", "is_response"),
    ("from_logits", {"pi_logits": at_1(LOG_PI, np.nan)}, "pi_logits must be", "nan at [1, 0]", "is_response"),
    (
        "from_logits",
        {"pi_logits": at_1(LOG_PI, -np.inf)},
        "pi_logits must have a finite",
        "-inf at [1]",
        "mask",
    ),
    ("from_logits", {"top_ids": IDS + 2}, "top_ids must be a token id in [0, 4)", "at [", "mask padding"),
    ("from_logits", {"top_ids": at_1(IDS, 2)}, "top_ids must not name a token twice", "2 at [1, 0]", "once"),
    ("from_logits", {"top_ids": IDS / 2}, "top_ids must hold integer token ids", "float64", "convert it"),
    ("from_logits", {"top_log_mu": TOP[:, :1]}, "top_log_mu must have shape (3, 2)", "(3, 1)", ""),
    (
        "from_logits",
        {"top_log_mu": at_1(TOP, -0.1)},
        "top_log_mu must sum to at most 1",
        "at [1]",
        "log_soft",
    ),
    ("from_logits", {"top_log_mu": at_1(TOP, 1)}, "top_log_mu must be log-prob", "1 at [1, 0]", "normalise"),
    ("from_logits", {"log_mu_k": LOG_MU_K[:2]}, "log_mu_k must have shape (3,)", "(2,)", ""),
    ("from_logits", {"log_mu_k": at_1(LOG_MU_K, -np.inf)}, "log_mu_k must be finite", "-inf at [1]", "align"),
    ("from_logits", {"log_mu_k": LOG_MU_K - 0.1}, "log_mu_k must equal top_log_mu", "at [", "aligned"),
    (
        "from_logits",
        {"top_ids": IDS[:, :0], "top_log_mu": TOP[:, :0]},
        "top_ids must have a last axis with at least one entry",
        "(3, 0)",
        "",
    ),
]


@pytest.mark.parametrize(("constructor", "changed", "argument", "value", "remedy"), ERRORS)
def test_a_refusal_names_argument_value_and_remedy(
    constructor: str, changed: dict[str, Any], argument: str, value: str, remedy: str
) -> None:
    said = ".*".join(re.escape(part) for part in (argument, value, remedy))
    with pytest.raises((TypeError, ValueError), match=said):
        build(constructor, **changed)


@pytest.mark.parametrize(
    ("constructor", "name"),
    [("full", "action"), ("full", "log_mu"), ("full", "is_response"), ("sampled", "log_pi_k"),
     ("from_logits", "pi_logits"), ("from_logits", "action"), ("from_logits", "top_ids")],
)  # fmt: skip
def test_arrays_of_two_libraries_are_refused_by_name(constructor: str, name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    known = {"is_response": OPEN, "action": ACTION, "top_ids": IDS, "log_mu": LOG_MU}
    odd = torch.as_tensor(known.get(name, LOG_PI if name == "pi_logits" else LOG_MU_K))
    with pytest.raises(
        TypeError, match=rf"arrays must come from one library, got .*{name}: Tensor.*; convert"
    ):
        build(constructor, **{name: odd})


def test_a_record_that_no_distribution_has_is_refused() -> None:
    """Misaligned records: more hidden mass than the tail can hold, a sampled token above the K-th largest."""
    flat = np.zeros((1, 5))
    too_little = np.log([[0.04, 0.03]])
    with pytest.raises(
        ValueError, match=r"top_log_mu must leave no more mass than .* got 0.07 at \[0\]; pass the K"
    ):
        View.from_logits(flat, np.array([0]), np.log([0.04]), np.array([[0, 1]]), too_little)
    with pytest.raises(
        ValueError, match=r"log_mu_k must not exceed top_log_mu .* at \[0\]; check that tokens and"
    ):
        View.from_logits(flat, np.array([4]), np.log([0.9]), np.array([[0, 1]]), np.log([[0.05, 0.04]]))
    with pytest.raises(ValueError, match=r"log_mu_k must sum to 1 over the vocabulary, got 0.5"):
        View.sampled(np.log([0.5]), np.log([0.5]), vocab_size=1)
    # Just possible: three hidden tokens at the K-th largest each.
    View.from_logits(flat, np.array([0]), np.log([0.2]), np.array([[0, 1]]), np.log([[0.2, 0.2]]))
