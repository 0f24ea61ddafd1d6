"""Sampling and the record: cache against full pass, padding, batching, ends, truncation; F17 to F25."""

import math
from typing import Any

import numpy as np
import pytest
from lm_samples import PROMPTS, VOCAB, decoder, rollout
from scipy import stats

torch = pytest.importorskip("torch")

from divsim.lm import rollout as rollouts  # noqa: E402
from divsim.lm.fp8 import round_e4m3  # noqa: E402
from divsim.lm.loss import response_log_probs  # noqa: E402
from divsim.lm.model import Cache  # noqa: E402
from divsim.lm.precision import PRECISIONS, engine, log_probs  # noqa: E402
from divsim.lm.rollout import Sampling, draw, generate, truncated  # noqa: E402
from divsim.lm.task import EOS, PAD, left_padded  # noqa: E402

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}
"""What sums in another order may differ by, nats."""


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_f22_a_cached_pass_is_the_full_pass_whatever_the_padding(dtype: Any) -> None:
    model = decoder(dtype)
    for width in (6, 6, 9):
        drawn = rollout(model, width=width, sampling=Sampling(k=VOCAB, whole=True))
        again = response_log_probs(model, drawn)
        assert float((again - drawn.log_mu_k).abs().max()) <= TOLERANCE[dtype]
        assert len({int(n) for n in drawn.is_response.sum(dim=1)}) > 1  # rows of several lengths


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_f22_every_row_is_what_it_is_alone(dtype: Any) -> None:
    model = decoder(dtype)
    for temperature in (1.0, 0.0):
        together = rollout(model, sampling=Sampling(temperature, k=4))
        for row, prompt in enumerate(PROMPTS):
            tokens, is_prompt = map(torch.from_numpy, left_padded([prompt], len(prompt)))
            uniforms = torch.from_numpy(np.random.default_rng(0).random((4, 6))[[row]])
            alone = generate(model, tokens, is_prompt, uniforms, Sampling(temperature, k=4))
            assert torch.equal(alone.response[0], together.response[row])
            gap = (alone.log_mu_k[0] - together.log_mu_k[row]).abs().max()
            assert float(gap) <= TOLERANCE[dtype]


def test_a_position_counts_tokens_and_not_padding() -> None:
    model = decoder()
    narrow, wide = (rollout(model, width=width).log_mu_k for width in (6, 7))
    torch.testing.assert_close(narrow, wide, rtol=0, atol=1e-10)
    model.position.weight.data[3] += 1
    assert float((rollout(model).log_mu_k - narrow).abs().max()) > 1e-3


def test_a_cache_that_sees_padding_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above is red where keys of padding are visible."""
    model = decoder()
    right = rollout(model).log_mu_k
    features = type(model).features

    def blind(self: Any, tokens: Any, is_token: Any, cache: Cache | None = None) -> Any:
        return features(self, tokens, torch.ones_like(is_token), cache)

    monkeypatch.setattr(type(model), "features", blind)
    assert float((rollout(model).log_mu_k - right).abs().max()) > 1e-3


def test_f17_to_f19_the_first_end_counts_and_nothing_after_it() -> None:
    drawn = rollout(decoder(), prompts=PROMPTS * 8)
    ended = 0
    for response, counted, log_mu_k in zip(
        drawn.response.tolist(), drawn.is_response.tolist(), drawn.log_mu_k.tolist(), strict=True
    ):
        length = response.index(EOS) + 1 if EOS in response else len(response)
        ended += EOS in response
        assert counted == [True] * length + [False] * (len(response) - length)
        assert response[length:] == [PAD] * (len(response) - length)
        assert log_mu_k[length:] == [0.0] * (len(response) - length)
    assert 0 < ended < len(drawn.tokens)


class Uniform:
    """A model of equal logits; the bias makes single tokens impossible or sure."""

    def __init__(self, logits: Any) -> None:
        self.logits = torch.as_tensor(logits)

    def features(self, tokens: Any, is_token: Any, cache: Cache | None = None) -> Any:
        return torch.ones(*tokens.shape, 1)

    def head(self, features: Any) -> Any:
        return self.logits.expand(*features.shape[:-1], -1)


def test_f20_nothing_is_truncated_unasked() -> None:
    count = 20_000
    prompts = torch.full((count, 1), 2)
    uniforms = torch.from_numpy(np.random.default_rng(3).random((count, 1)))
    drawn = generate(Uniform(torch.zeros(200)), prompts, prompts > 0, uniforms, Sampling())
    counts = np.bincount(drawn.response[:, 0].numpy(), minlength=200)
    assert np.all(counts > 0) and stats.chisquare(counts).pvalue > 1e-3
    assert float(-drawn.log_mu_k.mean()) == pytest.approx(math.log(200), rel=1e-6)


def test_f21_what_is_recorded_is_what_was_drawn_from() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))
    prompts = torch.full((4, 1), 2)
    uniforms = torch.tensor([[0.1], [0.6], [0.7], [0.999]])
    drawn = generate(Uniform(logits), prompts, prompts > 0, uniforms, Sampling(top_p=0.8, k=3))
    assert drawn.response[:, 0].tolist() == [0, 0, 1, 1]
    assert drawn.log_mu_k[0, 0] == pytest.approx(math.log(0.625), abs=1e-12)
    assert drawn.top_log_mu[0, 0].tolist() == pytest.approx([math.log(0.625), math.log(0.375), -math.inf])
    full = generate(Uniform(logits), prompts, prompts > 0, uniforms, Sampling(k=3))
    assert full.log_mu_k[0, 0] == pytest.approx(math.log(0.5), abs=1e-12)


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.50001, 0.8, 0.9, 1.0])
def test_truncation_keeps_the_fewest_likeliest_tokens_that_reach_it(top_p: float) -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        log_prob = torch.log_softmax(torch.from_numpy(rng.standard_normal(9)), dim=-1)
        kept = torch.isfinite(truncated(log_prob, top_p)).numpy()
        prob = log_prob.exp().numpy()
        assert prob[kept].min() >= prob[~kept].max(initial=0.0)
        assert prob[kept].sum() >= top_p - 1e-9
        assert prob[kept].sum() - prob[kept].min() < top_p


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    log_mu = torch.log(torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]], dtype=torch.float64))
    ends = torch.tensor([0.0, 0.5 - 1e-16, 0.5, 1 - 2e-16], dtype=torch.float64)
    assert draw(log_mu.expand(4, -1), ends).tolist() == [1, 1, 3, 3]


def test_f24_a_shift_by_one_place_would_be_seen() -> None:
    class Next:
        """Logits of 20 at the successor of each token."""

        head = staticmethod(lambda features: features)

        def features(self, tokens: Any, is_token: Any, cache: Cache | None = None) -> Any:
            return 20.0 * torch.nn.functional.one_hot((tokens + 1) % 10, 10).double()

    tokens = torch.tensor([[0, 1, 2, 3]])
    recorded = rollouts.Rollout(
        tokens, torch.ones_like(tokens, dtype=torch.bool), torch.zeros(1, 3),
        torch.zeros(1, 3, 1, dtype=torch.int64), torch.zeros(1, 3, 1),
    )  # fmt: skip
    log_pi_k = response_log_probs(Next(), recorded)
    assert log_pi_k.shape == (1, 3)
    assert log_pi_k.tolist()[0] == pytest.approx([-math.log(1 + 9 * math.exp(-20))] * 3, rel=1e-6)


def test_f25_a_temperature_near_zero_and_at_zero() -> None:
    assert log_probs(torch.tensor([10.0, 9.0], dtype=torch.float16), 1e-4).tolist() == [0.0, -1e4]
    greedy = rollout(decoder(), sampling=Sampling(0.0, k=4))
    likeliest = torch.where(greedy.is_response, greedy.top_ids[..., 0], PAD)
    assert torch.equal(greedy.response, likeliest)
    for setting, value in (("temperature", -1.0), ("temperature", math.nan), ("top_p", 0.0), ("k", 0)):
        with pytest.raises(ValueError, match=setting):
            Sampling(**{setting: value})


@pytest.mark.parametrize(
    ("name", "least", "most"), [("bf16", 1e-8, 1e-1), ("fp8", 1e-5, 10.0), ("fp32", 0, 1e-9)]
)
def test_f27_an_engine_of_lower_precision_differs_and_of_the_same_does_not(
    name: str, least: float, most: float
) -> None:
    model = decoder(torch.float32)
    drawn = rollout(engine(model, PRECISIONS[name]), prompts=PROMPTS * 16)
    gap = (response_log_probs(model, drawn) - drawn.log_mu_k)[drawn.is_response]
    assert least <= float((gap**2).mean()) <= most
    assert drawn.log_mu_k.dtype == torch.float32


def test_an_engine_is_a_copy_and_rounds_its_weights_once() -> None:
    model = decoder(torch.float32)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    held = engine(model, PRECISIONS["fp8"])
    model.head.weight.data.add_(1.0)
    assert float((held.head.weight.float() - before["head.weight"]).abs().max()) < 0.1
    first = held.blocks[0].read.weight
    torch.testing.assert_close(round_e4m3(first), first, rtol=1e-2, atol=0)
    assert all(not weight.requires_grad for weight in held.parameters())


def test_e4m3_saturates_and_keeps_nan_and_gradients() -> None:
    x = torch.tensor([[1e4, 1.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    rounded = round_e4m3(x)
    assert float(rounded[0, 0].detach()) == pytest.approx(1e4, rel=1e-6) and rounded[1].tolist() == [
        0.0,
        0.0,
        0.0,
    ]
    rounded.sum().backward()
    assert x.grad.tolist() == [[1.0] * 3] * 2
    assert bool(torch.isnan(round_e4m3(torch.tensor([math.nan, 1.0]))).any())
    assert bool(torch.isnan(round_e4m3(torch.tensor([math.inf, 1.0]))).any())
    relative = (round_e4m3(torch.linspace(1, 448, 1000)) / torch.linspace(1, 448, 1000) - 1).abs()
    assert 0.05 < float(relative.max()) <= 2**-4  # three bits of mantissa


def test_weights_that_diverged_are_an_error() -> None:
    model = decoder()
    model.norm.weight.data[0] = math.nan
    with pytest.raises(ValueError, match="weights have diverged; lower lr"):
        rollout(model)
