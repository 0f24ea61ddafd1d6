"""The path of a trainer, whole: logits, the engine's record, padding, a rule, and the gradient of logits."""

from typing import Any

import numpy as np
import pytest
from pairs import assert_close, numpy_of

from divsim.formulas import RULES, Decision, View, aggregate, group_advantage, loss_weights, make_rule

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", [name for name in RULES if "_full_" not in name])
def test_from_logits_to_the_gradient_of_logits(name: str) -> None:
    rng = np.random.default_rng(7)
    mu_logits = rng.standard_normal((3, 4, 8))
    log_mu = np.log(np.exp(mu_logits) / np.exp(mu_logits).sum(-1, keepdims=True))
    start = (mu_logits + 0.7 * rng.standard_normal((3, 4, 8))).astype(np.float32)
    ids = np.argsort(-log_mu, axis=-1)[..., :3]
    action, advantage = rng.integers(8, size=(3, 4)), rng.standard_normal((3, 4))
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)

    def gradient(litter: float) -> tuple[Any, Decision, Any]:
        def fill(x: Any) -> Any:
            return np.where(mask.reshape(3, 4, *[1] * (x.ndim - 2)), x, litter).astype(np.float32)

        logits = torch.tensor(np.where(mask[..., None], start, min(litter, 1e4)), requires_grad=True)
        is_response, token = torch.tensor(mask), torch.tensor(action)
        log_mu_k = np.take_along_axis(log_mu, action[..., None], -1)[..., 0]
        view = View.from_logits(
            logits, token, torch.tensor(fill(log_mu_k)), torch.tensor(ids),
            torch.tensor(fill(np.take_along_axis(log_mu, ids, -1))), is_response=is_response, bracket=True,
        )  # fmt: skip
        decision = make_rule(name)(view, torch.tensor(fill(advantage)), is_response)
        log_pi = torch.log_softmax(logits, dim=-1)
        log_pi_k = torch.gather(log_pi, -1, token[..., None])[..., 0]
        push = decision.weight * decision.advantage + decision.pull
        (-aggregate(push * log_pi_k, loss_weights(is_response))).backward()
        return logits.grad, decision, log_pi.detach()

    clean, decision, log_pi = gradient(0.0)
    for litter in (1.0, 200.0, -200.0):
        assert torch.equal(gradient(litter)[0], clean)
    step = torch.nn.functional.one_hot(torch.tensor(action), 8) - log_pi.exp()
    push = decision.weight * decision.advantage + decision.pull
    # float32 softmax of eight logits; the mean is over 7 tokens
    assert_close(clean, -push[..., None] * step / 7, rtol=1e-4, atol=1e-6)
    assert not numpy_of(clean)[~mask].any()


@pytest.mark.parametrize("reward", [1.0, 0.0, 0.1, -1 / 3])
@pytest.mark.parametrize("name", RULES)
def test_f7_equal_rewards_move_nothing_but_what_is_pulled(name: str, reward: float) -> None:
    """Advantages of a group of equal rewards, stale tokens: no update, no loss, and a full denominator."""
    rng = np.random.default_rng(9)
    log_mu, log_pi = (
        torch.log_softmax(torch.tensor(rng.standard_normal((4, 5, 6))), dim=-1) for _ in range(2)
    )
    view = View.full(log_mu, log_pi, torch.as_tensor(rng.integers(6, size=(4, 5))))
    advantage = group_advantage(torch.full((4,), reward, dtype=torch.float64), divide_by_std=True)
    decision = make_rule(name)(view, torch.broadcast_to(advantage[:, None], (4, 5)))
    update = decision.weight * decision.advantage + decision.pull
    assert torch.equal(update, decision.pull)
    log_r, gap = view.log_pi_k - view.log_mu_k, view.log_pi_k.exp() - view.log_mu_k.exp()
    pulled = {"two_sided": -1e-3 * log_r**2, "drpo_unweighted": -(gap**2) / (0.3 * view.log_mu_k.exp())}
    weights = loss_weights(decision.is_response)
    loss, right = (float(aggregate(x, weights)) for x in (decision.surrogate, pulled.get(name, 0 * gap)))
    assert loss == pytest.approx(right, rel=1e-13, abs=0)
    assert bool(decision.pull.any()) is (name in pulled)
    assert float(weights.sum()) == pytest.approx(1.0)  # the group stays in the denominator
