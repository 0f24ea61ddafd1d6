"""Rules that are the same rule, or contain each other, under the names that the field gives them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pairs import assert_close, logs
from rule_cases import NUMPY, TOP, Batch, draw, everywhere, show, update

from divsim.formulas import (
    CHI2_PI_MU,
    FORWARD_KL,
    RULES,
    TAILS,
    TV,
    Decision,
    Rule,
    View,
    band,
    banded,
    certified,
    change,
    cispo,
    clip_higher,
    dppo,
    drpo,
    dual_clip,
    importance_sampling,
    make_rule,
    mask_drpo,
    ppo_clip,
    predictive,
    spo,
    two_sided,
)


@pytest.fixture(scope="module")
def many() -> Batch:
    """8000 tokens over 9 words."""
    return everywhere(draw(71, shape=(80, 100), vocab=9))


def on(rule: Rule, batch: Batch, view: View | None = None) -> Decision:
    return rule(show(batch, "full", NUMPY) if view is None else view, batch.advantage)


@pytest.mark.parametrize("divergence", [TV, FORWARD_KL, CHI2_PI_MU], ids=lambda d: d.name)
def test_a_band_is_the_binary_mask(many: Batch, divergence: Any) -> None:
    view = show(many, "sampled", NUMPY)
    by_divergence, by_band = (
        on(rule, many, view) for rule in (dppo(divergence, "binary", 0.05), banded(divergence, 0.05))
    )
    low, high = band(divergence, view.log_mu_k, 0.05)
    rising, falling = many.advantage > 0, many.advantage < 0
    clipped = (rising & (view.ratio > high)) | (falling & (view.ratio < low))
    assert 0.1 < clipped.mean() < 0.9
    assert (by_divergence.keep == ~clipped).all()
    assert (by_band.keep == by_divergence.keep).all()
    assert_close(by_band.weight, by_divergence.weight, rtol=0)


@pytest.mark.parametrize("tail", sorted(set(TAILS) - {"full"}))
@pytest.mark.parametrize("divergence", [FORWARD_KL, TV], ids=lambda d: d.name)
def test_at_the_binary_view_every_prediction_is_the_ratio_test(
    many: Batch, divergence: Any, tail: str
) -> None:
    view = show(
        many, "full", NUMPY
    ).binary()  # it knows the tail's sum of squares, which "proportional" needs
    assert (np.sign(change(view, divergence, tail)) == np.sign(view.ratio - 1)).all()
    predicted = on(predictive(divergence, tail, 0.05), many, view)
    by_ratio = on(dppo(divergence, "binary", 0.05), many, view)
    assert (predicted.keep == by_ratio.keep).all()
    assert 0.1 < predicted.keep.mean() < 0.95


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("divergence", [FORWARD_KL, TV], ids=lambda d: d.name)
def test_a_top_k_of_every_token_is_the_full_view(many: Batch, divergence: Any, tail: str) -> None:
    everything = View.top_k(many.log_mu, many.log_pi, many.action, k=many.log_mu.shape[-1])
    if tail == "full":
        everything = replace(everything, is_full=True)
    whole, exact = on(predictive(divergence, tail, 0.05), many, everything), on(predictive(divergence), many)
    assert_close(whole.change, exact.change, rtol=1e-12, atol=1e-15)
    assert (whole.keep == on(predictive(divergence, "full", 0.05), many).keep).all()


@pytest.mark.parametrize("divergence", [FORWARD_KL, TV], ids=lambda d: d.name)
def test_resolutions_are_ordered(many: Batch, divergence: Any) -> None:
    view = show(many, "top_k", NUMPY)
    binary, top_k = (on(dppo(divergence, r, 0.05), many, view) for r in ("binary", "top_k"))
    full = on(dppo(divergence, "full", 0.05), many)
    for coarse, fine in ((binary, top_k), (top_k, full)):
        assert coarse.divergence is not None and fine.divergence is not None
        assert (coarse.divergence <= fine.divergence + 1e-15).all()  # data processing, up to rounding
        assert (~coarse.far | fine.far).all()
        assert (coarse.keep | ~fine.keep).all()
    assert (full.keep == on(dppo(divergence, "top_k", 0.05), many).keep).all()


SAME: list[tuple[str, Rule, Rule]] = [
    ("clip-higher with equal sides is PPO", clip_higher(0.2, 0.2), ppo_clip()),
    ("dual clip beyond every ratio is PPO", dual_clip(upper=1e6), ppo_clip()),
    ("an endless radius is importance sampling", dppo(TV, "binary", 1.0), importance_sampling()),
    ("two sides without limit or pull too", two_sided(1.0, 0.0), importance_sampling()),
    ("a penalty nowhere too", mask_drpo(0.15, 1.0), importance_sampling()),
    ("a penalty everywhere is DRPO", mask_drpo(0.15, 1e-12), drpo(0.15)),
]


@pytest.mark.parametrize(("claim", "one", "other"), SAME, ids=[claim for claim, _, _ in SAME])
def test_the_same_rule(many: Batch, claim: str, one: Rule, other: Rule) -> None:
    ours, theirs = on(one, many), on(other, many)
    assert (ours.keep == theirs.keep).all()
    for field in ("weight", "pull", "surrogate"):
        assert_close(getattr(ours, field), getattr(theirs, field), rtol=1e-11, atol=1e-13)


def test_cispo_without_limits_weighs_as_importance_sampling(many: Batch) -> None:
    assert_close(on(cispo(1.0, 1e6), many).weight, on(importance_sampling(), many).weight, rtol=1e-14)


def test_drpo_is_spo_with_a_width_for_each_token() -> None:
    for mu_k in (0.01, 0.3, 0.9):
        view = View.sampled(logs([mu_k] * 4), logs([0.001, 0.2, 0.4, 0.99]), vocab_size=10)
        advantage = np.array([1.0, -1.0, 2.0, -0.5])
        one, other = drpo(0.15)(view, advantage), spo(0.15 / mu_k)(view, advantage)
        assert_close(one.weight, other.weight, rtol=1e-12)
        assert_close(one.surrogate, other.surrogate, rtol=1e-12)


def test_drpo_turns_at_its_radius(many: Batch) -> None:
    decision, view = on(drpo(0.15), many), show(many, "full", NUMPY)
    gap = np.sign(many.advantage) * (np.exp(view.log_pi_k) - np.exp(view.log_mu_k))
    assert (np.sign(decision.weight) == np.sign(0.15 - gap)).all()
    assert (gap > 0.15).any()


def test_a_radius_of_12_5_never_turns_anything(many: Batch) -> None:
    share_of_ratio = on(drpo(12.5), many).weight / show(many, "full", NUMPY).ratio
    assert ((share_of_ratio >= 0.92) & (share_of_ratio <= 1.08)).all()
    extreme = View.sampled(logs([1e-7, 1e-7]), logs([1 - 1e-7, 1 - 1e-7]), vocab_size=10)
    ends = drpo(12.5)(extreme, np.array([1.0, -1.0])).weight / extreme.ratio
    assert_close(ends, [0.92, 1.08], rtol=1e-7)  # pi_k - mu_k is 2e-7 short of 1


def test_two_sided_drops_all_that_dppo_drops_and_more(many: Batch) -> None:
    one_sided, both_sides = (on(rule, many) for rule in (dppo(TV, "binary", 0.1), two_sided(0.1)))
    assert (one_sided.keep | ~both_sides.keep).all()
    inward = one_sided.keep & ~both_sides.keep
    assert (inward == (both_sides.far & ~one_sided.outward & (many.advantage != 0))).all()
    assert inward.any()


def never_drops_inward(rule: Rule, batch: Batch, view: View) -> None:
    """Dropped tokens only where the change at full resolution really is outward, and some are dropped."""
    truth = change(show(batch, "full", NUMPY), FORWARD_KL)
    dropped = ~on(rule, batch, view).keep
    assert dropped.any()
    assert (batch.advantage * truth > 0)[dropped].all()


@pytest.mark.parametrize("k", [1, 2, TOP, 6, 8])
def test_certified_never_drops_an_inward_token(many: Batch, k: int) -> None:
    view = View.top_k(many.log_mu, many.log_pi, many.action, k=k, bracket=True)
    never_drops_inward(certified(0.02), many, view)


def test_certified_in_float32_is_right_about_float64(many: Batch) -> None:
    never_drops_inward(certified(0.02), many, show(many, "top_k", NUMPY, np.float32))


@pytest.mark.parametrize("rule", [predictive(tail="aggregated", delta=0.02), dppo(delta=0.02)])
def test_the_certificate_check_sees_a_guess(many: Batch, rule: Rule) -> None:
    with pytest.raises(AssertionError):
        never_drops_inward(rule, many, View.top_k(many.log_mu, many.log_pi, many.action, k=TOP))


@pytest.mark.parametrize(("stated", "is_sound"), [(0.05, True), (0.0, False)])
def test_a_certificate_holds_within_the_stated_error(many: Batch, stated: float, is_sound: bool) -> None:
    ids = np.argsort(-many.log_mu, axis=-1)[..., :TOP]
    index = np.concatenate([ids, many.action[..., None]], axis=-1)
    error = np.random.default_rng(72).uniform(-0.05, 0.05, many.log_mu.shape)
    recorded = np.take_along_axis(np.minimum(many.log_mu + error, -1e-3), index, axis=-1)
    view = View.from_logits(
        many.log_pi, many.action, recorded[..., -1], ids, recorded[..., :-1],
        bracket=True, log_mu_error=stated, check=False,
    )  # fmt: skip
    if is_sound:
        never_drops_inward(certified(0.02), many, view)
    else:
        with pytest.raises(AssertionError):
            never_drops_inward(certified(0.02), many, view)


def test_with_everything_in_sight_certified_is_predictive(many: Batch) -> None:
    proven, predicted = (on(rule, many) for rule in (certified(0.05), predictive(delta=0.05)))
    # the certificate rounds outward, so a change of less than 1e-13 is not proven; none is that small here
    assert predicted.change is not None and np.abs(predicted.change).min() > 1e-13
    assert (proven.keep == predicted.keep).all()
    assert proven.certified is not None and proven.certified.all()


def test_fallbacks_differ_only_where_nothing_is_proven(many: Batch) -> None:
    view = View.top_k(many.log_mu, many.log_pi, many.action, k=1, bracket=True)
    keep, ratio, uniform = (on(certified(0.02, name), many, view) for name in ("keep", "ratio", "uniform"))
    assert keep.certified is not None
    open_cases = ~keep.certified
    assert open_cases.any()
    assert keep.keep[open_cases].all()
    assert (ratio.keep == dppo(delta=0.02)(view, many.advantage).keep)[open_cases].all()
    assert (uniform.keep == predictive(tail="uniform", delta=0.02)(view, many.advantage).keep)[
        open_cases
    ].all()
    for other in (ratio, uniform):
        assert (other.keep == keep.keep)[~open_cases].all()
        assert (other.keep != keep.keep).any()


def test_worked_example_of_a_disagreement() -> None:
    """mu = (.4, .3, .3), pi = (.45, .5, .05): the ratio of token 0 rose, and raising it still lowers KL."""
    view = View.full(logs([[0.4, 0.3, 0.3]]), logs([[0.45, 0.5, 0.05]]), np.array([0]))
    # mp.dps = 50; m, p = (.4, .3, .3), (.45, .5, .05); sum(a * mp.log(a / b) for a, b in zip(m, p))
    # c_k = d_k - E_pi[d] = .05 - (.45 * .05 + .5 * .2 - .05 * .25) = -.06
    asked, by_ratio = predictive(delta=0.05)(view, np.ones(1)), dppo(delta=0.05)(view, np.ones(1))
    assert asked.divergence is not None and asked.change is not None
    assert float(asked.divergence[0]) == pytest.approx(0.33716693937606590, rel=1e-14)
    assert float(asked.change[0]) == pytest.approx(-0.06, abs=1e-15)
    assert (bool(asked.keep[0]), bool(by_ratio.keep[0])) == (True, False)


def test_every_named_rule_is_its_own(many: Batch) -> None:
    """No two names decide alike, but for the one pair whose default radii are equal too."""
    view = show(many, "top_k", NUMPY)
    named = {name: make_rule(name) for name in RULES if "full" not in name}
    updates = {name: on(rule, many, view) for name, rule in named.items()}
    alike = {
        (one, other)
        for one in updates
        for other in updates
        if one < other and np.array_equal(update(updates[one]), update(updates[other]))
    }
    assert alike == {("band_kl", "dppo_binary_kl")}
