"""Every mistake at a rule's door gets an error that names the argument, the value and the remedy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pairs import logs
from rule_cases import NUMPY, RULES_AND_VIEWS, VIEWS, decide, draw, everywhere

from divsim.formulas import (
    RULES,
    TV,
    View,
    banded,
    certified,
    cispo,
    clip_higher,
    dppo,
    drpo,
    drpo_unweighted,
    dual_clip,
    importance_sampling,
    make_rule,
    mask_drpo,
    ppo_clip,
    predictive,
    spo,
    two_sided,
)

NOT_POSITIVE = (0.0, -0.1, float("nan"), float("inf"))

WIDTHS: list[tuple[str, Callable[..., Any]]] = [
    ("eps_low", ppo_clip),
    ("eps_high", ppo_clip),
    ("eps_low", clip_higher),
    ("eps_high", clip_higher),
    ("eps_low", dual_clip),
    ("eps_low", cispo),
    ("eps_high", cispo),
    ("eps", spo),
    ("delta", two_sided),
    ("delta", dppo),
    ("delta", predictive),
    ("delta", certified),
    ("delta", drpo),
    ("delta", drpo_unweighted),
    ("delta", mask_drpo),
    ("radius", mask_drpo),
    ("delta", banded),
    *(
        ("ratio_cap", build)
        for build in (importance_sampling, ppo_clip, clip_higher, dual_clip, two_sided, dppo, predictive)
    ),
    *(("ratio_cap", build) for build in (certified, spo, drpo, drpo_unweighted, mask_drpo, banded)),
]


@pytest.mark.parametrize(("setting", "build"), WIDTHS)
def test_radii_and_widths_are_positive_numbers(setting: str, build: Callable[..., Any]) -> None:
    for value in NOT_POSITIVE:
        with pytest.raises(ValueError, match=rf"{setting} must be a finite number > 0 \(.+\), got {value}"):
            build(**{setting: value})
    with pytest.raises(TypeError, match=rf"{setting} must be a number \(.+\), got '0.1'"):
        build(**{setting: "0.1"})
    with pytest.raises(TypeError, match=rf"{setting} must be a number \(.+\), got True"):
        build(**{setting: True})


def test_other_settings_have_their_ranges() -> None:
    for upper in (1.2, 0.0, float("nan")):
        with pytest.raises(
            ValueError, match=rf"upper must be > 1 \+ eps_high = 1.2 \(a ratio\), got {upper}"
        ):
            dual_clip(upper=upper)
    for tau in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"tau must be a finite number >= 0 .+ got {tau}"):
            two_sided(tau=tau)


def test_numbers_are_not_strings() -> None:
    for rule, setting in (("two_sided", "tau"), ("dual_clip", "upper"), ("drpo", "delta")):
        with pytest.raises(TypeError, match=f"{setting} must be a number.+got '3'"):
            make_rule(rule, **{setting: "3"})


NAMED: list[tuple[str, str, Callable[[], Any]]] = [
    ("rule", "ppo", lambda: make_rule("ppo")),
    ("resolution", "ful", lambda: dppo(resolution="ful")),
    ("resolution", "topk", lambda: dppo(TV, "topk")),
    ("tail", "agg", lambda: predictive(tail="agg")),
    ("otherwise", "drop", lambda: certified(otherwise="drop")),
    ("setting of ppo_clip", "delta", lambda: make_rule("ppo_clip", delta=0.1)),
    ("setting of dppo_binary_tv", "divergence", lambda: make_rule("dppo_binary_tv", divergence="kl")),
    ("setting of dppo_binary_tv", "resolution", lambda: make_rule("dppo_binary_tv", resolution="full")),
    ("setting of predictive_full_kl", "tail", lambda: make_rule("predictive_full_kl", tail="zero")),
    ("setting of band_kl", "divergence", lambda: make_rule("band_kl", divergence="tv")),
    ("setting of drpo", "eps", lambda: make_rule("drpo", eps=0.1)),
]


@pytest.mark.parametrize(("argument", "value", "call"), NAMED)
def test_an_unknown_name_is_an_error_that_lists_the_known(
    argument: str, value: str, call: Callable[[], Any]
) -> None:
    with pytest.raises(ValueError, match=f"^{argument} must be one of .+, got '{value}'$"):
        call()


def test_a_rule_without_settings_says_so() -> None:
    with pytest.raises(ValueError, match=r"reinforce.+ got 'delta'") as caught:
        make_rule("reinforce", delta=0.1)
    assert "one of ," not in str(caught.value)


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(ValueError, match="reinforce, importance_sampling, ppo_clip"):
        make_rule("ppo")
    with pytest.raises(ValueError, match="one of delta, ratio_cap, got 'tail'"):
        make_rule("dppo_binary_tv", tail="zero")


@pytest.mark.parametrize("build", [dppo, predictive, banded])
def test_a_divergence_is_a_record(build: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"divergence must be a Divergence record, got 'kl'; .+forward_kl"):
        build("kl")


def seen_token() -> View:
    return View.sampled(logs([0.5, 0.25]), logs([0.25, 0.5]), vocab_size=10)


def test_advantage_is_one_finite_number_a_token() -> None:
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(
            ValueError, match=rf"advantage must be finite at a response, got {value} at \[1\]; score it"
        ):
            ppo_clip()(seen_token(), np.array([1.0, value]))
    for shape in ((1,), (3,), (2, 1), (1, 2), ()):
        with pytest.raises(ValueError, match=r"advantage must have shape \(2,\) \(one number a token"):
            ppo_clip()(seen_token(), np.ones(shape))
    padded = ppo_clip()(seen_token(), np.array([1.0, np.nan]), np.array([True, False]))
    assert padded.keep.all()


def test_is_response_is_one_bool_a_token() -> None:
    for shape in ((1,), (2, 1), ()):
        with pytest.raises(ValueError, match=r"is_response must have shape \(2,\) \(one entry a token"):
            ppo_clip()(seen_token(), np.ones(2), np.ones(shape, bool))
    for dtype in (np.float64, np.int64):
        with pytest.raises(TypeError, match=r"is_response must be boolean, got \w+; compare it with 0"):
            ppo_clip()(seen_token(), np.ones(2), np.ones(2, dtype))


def test_arrays_of_two_libraries_do_not_meet() -> None:
    torch = pytest.importorskip("torch")
    strangers: list[tuple[str, Any, Any]] = [
        ("advantage: Tensor", torch.ones(2), None),
        ("advantage: list", [1.0, 1.0], None),
        ("is_response: Tensor", np.ones(2), torch.ones(2, dtype=torch.bool)),
        ("is_response: list", np.ones(2), [True, True]),
    ]
    for named, advantage, is_response in strangers:
        with pytest.raises(TypeError, match=f"arrays must come from one library, got .*{named}"):
            ppo_clip()(seen_token(), advantage, is_response)


LACKS = [(name, kind) for name in RULES for kind in VIEWS if (name, kind) not in RULES_AND_VIEWS]


@pytest.mark.parametrize(("name", "kind"), LACKS)
def test_a_view_that_hides_too_much_is_an_error_that_names_the_constructor(name: str, kind: str) -> None:
    asked = {"dppo": "resolution 'full'", "predictive": "tail 'full'"}
    wanted = asked[name.split("_")[0]] if "full" in name else "this view has no"
    with pytest.raises(ValueError, match=rf"{wanted}.+View\.full"):
        decide(make_rule(name), everywhere(draw(61)), kind, NUMPY)


def test_a_bracket_must_be_asked_for() -> None:
    view = View.top_k(logs([[0.5, 0.3, 0.2]]), logs([[0.2, 0.3, 0.5]]), np.array([0]), k=1)
    with pytest.raises(ValueError, match=r"this view has no overlap_low; .+bracket=True supplies it"):
        certified()(view, np.ones(1))


def drifted(is_response: Any) -> View:
    """A token with r = 1, and one with r = e^200, which float32 cannot hold."""
    log_mu_k, log_pi_k = np.array([[-1.0, -201.0]], np.float32), np.full((1, 2), -1.0, np.float32)
    return View.sampled(log_mu_k, log_pi_k, 10, is_response=is_response)


def test_an_infinite_weight_at_a_kept_token_is_an_error_that_names_it() -> None:
    rule, advantage = importance_sampling(ratio_cap=1e300), np.ones((1, 2), np.float32)
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=r"got inf at \[0, 1\]; lower ratio_cap"):
        rule(drifted(None), advantage)
    only_first = np.array([[True, False]])
    assert rule(drifted(only_first), advantage, only_first).weight.tolist() == [[1.0, 0.0]]


def test_checks_can_be_switched_off() -> None:
    decision = ppo_clip()(seen_token(), np.array([1.0, np.nan]), check=False)
    assert decision.weight[0] == 0.5


def test_rules_tell_themselves_apart() -> None:
    rules = [make_rule(name) for name in RULES]
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(rule.source for rule in rules)


DEFAULTS: list[tuple[Callable[..., Any], str]] = [
    (ppo_clip, "ppo_clip(0.2, 0.2)"),
    (clip_higher, "clip_higher(0.2, 0.28)"),
    (dual_clip, "dual_clip(0.2, 0.2, 3)"),
    (two_sided, "two_sided(0.1)"),
    (dppo, "dppo(forward_kl, top_k, 0.05)"),
    (predictive, "predictive(forward_kl, full, 0.15)"),
    (certified, "certified(0.15, else keep)"),
    (spo, "spo(0.2)"),
    (drpo, "drpo(0.15)"),
    (drpo_unweighted, "drpo_unweighted(0.15)"),
    (mask_drpo, "mask_drpo(0.15, 0.15)"),
    (banded, "banded(tv, 0.05)"),
    (cispo, "cispo(1, 4)"),
]


@pytest.mark.parametrize(("build", "name"), DEFAULTS)
def test_a_rule_is_named_by_its_settings(build: Callable[..., Any], name: str) -> None:
    assert build().name == name
