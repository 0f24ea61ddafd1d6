"""Whatever a formula makes for itself (ids, places, masks) it makes on the device of what it was given.

torch's meta device has shapes and no values, and refuses to meet a CPU array, so no second device is needed.
"""

from collections.abc import Callable
from typing import Any

import pytest

from divsim.formulas import FORWARD_KL as KL
from divsim.formulas import (
    TAILS,
    View,
    band,
    change,
    change_interval,
    finite_change,
    flip_step_bracket,
    horizon_adaptive,
    horizon_coupling,
    loss_weights,
    overlap_bracket,
    policy_gradient_direction,
    predictive,
)

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

ROWS = torch.zeros((3, 4), dtype=torch.float64, device="meta")
TOKEN = ROWS[..., 0]
IDS = torch.zeros(3, dtype=torch.int64, device="meta")
IS_RESPONSE = IDS == 0
TOP_IDS, TOP = torch.stack([IDS, IDS], dim=-1), ROWS[..., :2]


def full(is_response: Any) -> View:
    return View.full(ROWS, ROWS, IDS, is_response=is_response, check=False)


def top_k(is_response: Any) -> View:
    return View.top_k(ROWS, ROWS, IDS, 2, is_response=is_response, bracket=True, check=False)


def from_logits(is_response: Any) -> View:
    return View.from_logits(
        ROWS, IDS, TOKEN, TOP_IDS, TOP, is_response=is_response, bracket=True, check=False
    )


def sampled(is_response: Any) -> View:
    return View.sampled(TOKEN, TOKEN, 10, is_response=is_response, check=False)


def devices(result: Any) -> set[str]:
    if isinstance(result, tuple):
        return {device for part in result for device in devices(part)}
    return {result.device.type}


@pytest.mark.parametrize("is_response", [None, IS_RESPONSE], ids=["no padding", "padding"])
@pytest.mark.parametrize("view_of", [full, top_k, from_logits, sampled])
def test_views_stay_on_their_device(view_of: Callable[[Any], View], is_response: Any) -> None:
    view = view_of(is_response)
    assert devices((*view.cells, *view.binary().cells, view.in_support, view.cell_k, view.tail_size)) == {
        "meta"
    }
    tails = [tail for tail in TAILS if tail != "full" or view.is_full]
    for tail in [tail for tail in tails if tail != "proportional" or view.pi_tail_sq is not None]:
        assert devices(change(view, tail=tail)) == {"meta"}
    if view.overlap_low is not None:
        assert devices(change_interval(view)) == {"meta"}
    decision = predictive(tail="uniform")(view, TOKEN, is_response, check=False)
    assert devices((decision.keep, decision.weight, decision.pull, decision.is_response)) == {"meta"}


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "policy_gradient_direction": lambda: policy_gradient_direction(ROWS, IDS),
    "finite_change": lambda: finite_change(ROWS, ROWS, ROWS),
    "flip_step_bracket": lambda: flip_step_bracket(ROWS, ROWS, IDS),
    "overlap_bracket": lambda: overlap_bracket(ROWS, TOKEN, TOKEN),
    "band": lambda: band(KL, TOKEN, 0.1),
    "loss_weights": lambda: loss_weights(ROWS == 0, "sequence_mean"),
    "horizon_coupling": lambda: horizon_coupling(TOKEN, 4),
    "horizon_adaptive": lambda: horizon_adaptive(ROWS, TOKEN, TOKEN),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_stay_on_the_device(name: str) -> None:
    assert devices(FUNCTIONS[name]()) == {"meta"}
