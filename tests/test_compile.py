"""`torch.compile` traces measures, changes and the certificate into one graph each, with the same values."""

from collections.abc import Callable
from typing import Any

import pytest
from pairs import assert_close, batch

from divsim.formulas import (
    FORWARD_KL,
    TV,
    View,
    change,
    change_interval,
    finite_change,
    forward_kl_along,
    policy_gradient_direction,
    renyi,
)

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

LOG_MU, LOG_PI = (torch.as_tensor(row) for row in batch(90, (6, 8)))
ACTION = torch.arange(6) % 8


def top_k(log_mu: Any, log_pi: Any) -> View:
    return View.top_k(log_mu, log_pi, ACTION, 3, bracket=True, check=False)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "forward_kl.measure": FORWARD_KL.measure,
    "tv.logit_grad": TV.logit_grad,
    "renyi.measure": renyi(2.0).measure,
    "change": lambda log_mu, log_pi: change(View.full(log_mu, log_pi, ACTION, check=False), TV),
    "change of a tail": lambda log_mu, log_pi: change(top_k(log_mu, log_pi), tail="proportional"),
    "tail.change_interval": lambda log_mu, log_pi: torch.stack(change_interval(top_k(log_mu, log_pi))),
    "forward_kl_along": lambda log_mu, log_pi: torch.stack(
        forward_kl_along(log_mu, log_pi, policy_gradient_direction(log_pi, ACTION))
    ),
    "change.finite": lambda log_mu, log_pi: finite_change(log_mu, log_pi, 0.1 * log_mu),
}


# array-api-compat caches its dispatch; the tracer looks through the cache and says so.
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_is_eager(name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(FUNCTIONS[name], backend="eager", fullgraph=True)
    # The eager backend runs the same kernels in the same order.
    assert_close(compiled(LOG_MU, LOG_PI), FUNCTIONS[name](LOG_MU, LOG_PI), rtol=0)
