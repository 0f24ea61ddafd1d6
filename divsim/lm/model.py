"""A decoder of a few layers, with a KV cache, and a table of free logits: what a policy can be here.

Both map tokens to features and features to logits by one matrix, the head, so that a loss can go through the
head in pieces. Prompts are padded on the left; a position counts tokens, not padding. What is left out:
dropout, rotary positions, grouped heads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .precision import Linear


@dataclass(frozen=True)
class Shape:
    """Of a decoder.

    Attributes:
      width: of the features, d.
      layers: blocks of attention and feed-forward.
      heads: of the attention; they divide the width.
      tied: whether the head is the table of input embeddings.

    >>> Shape(64, 2, 4).tied
    True
    """

    width: int
    layers: int
    heads: int
    tied: bool = True


MODELS = {
    "tiny": Shape(64, 2, 4),
    "untied": Shape(64, 2, 4, tied=False),
    "small": Shape(128, 4, 4),
    "medium": Shape(256, 6, 8),
    "large": Shape(512, 9, 8),
}
"""Presets of .1M, .1M, .8M, 5M and 28M parameters without embeddings; `table` is the other kind."""


class Cache:
    """Keys and values of what was read so far, one pair a layer, with room for `longest` positions."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.length = 0
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}

    def extended(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of a layer, (B, H, so far, d / H), these new ones included."""
        if layer not in self.pairs:
            batch, heads, _, size = key.shape
            room = (batch, heads, self.longest, size)
            self.pairs[layer] = (key.new_zeros(room), value.new_zeros(room))
        keys, values = self.pairs[layer]
        end = self.length + key.shape[2]
        keys[:, :, self.length : end] = key
        values[:, :, self.length : end] = value
        return keys[:, :, :end], values[:, :, :end]


class Policy(Protocol):
    """What the trainer and the sampler ask of a model."""

    head: Linear

    def features(self, tokens: Tensor, is_token: Tensor, cache: Cache | None = None) -> Tensor:
        """Features of the last tokens.

        Args:
          tokens: (B, N) the new tokens.
          is_token: (B, S) bool, False at padding; the new tokens are the last N of S.
          cache: of the S - N tokens before, or None if there are none.

        Returns: (B, N, d).
        """


class Block(nn.Module):
    """Attention and feed-forward, each on normalised features and added to them."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.layer, self.heads = layer, shape.heads
        self.before_attention, self.before_feed = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.read, self.write = Linear(shape.width, 3 * shape.width), Linear(shape.width, shape.width)
        self.widen, self.narrow = Linear(shape.width, 4 * shape.width), Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor, visible: Tensor, cache: Cache | None) -> Tensor:
        """(B, N, d), and which keys each query sees (B, 1, N, S)."""
        batch, length, width = x.shape
        heads = self.read(self.before_attention(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if cache is not None:
            key, value = cache.extended(self.layer, key, value)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        x = x + self.write(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + cast(Tensor, self.narrow(F.gelu(self.widen(self.before_feed(x)))))


class Decoder(nn.Module):
    """A transformer decoder.

    Args:
      shape: width, layers, heads.
      vocab_size: V.
      longest: positions, the longest prompt and response together.

    >>> model = Decoder(Shape(8, 1, 2), vocab_size=11, longest=4)
    >>> tokens = torch.tensor([[3, 4, 2]])
    >>> tuple(model.head(model.features(tokens, tokens > 0)).shape)
    (1, 3, 11)
    """

    def __init__(self, shape: Shape, vocab_size: int, longest: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, shape.width)
        self.position = nn.Embedding(longest, shape.width)
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = Linear(shape.width, vocab_size)
        if shape.tied:
            self.head.weight = cast(nn.Parameter, self.embedding.weight)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(
                    parameter, std=0.02 if parameter.shape[0] == vocab_size else shape.width**-0.5 / 2
                )

    def features(self, tokens: Tensor, is_token: Tensor, cache: Cache | None = None) -> Tensor:
        """As `Policy.features`."""
        new, seen = tokens.shape[1], is_token.shape[1]
        position = torch.clamp(is_token.cumsum(dim=1)[:, seen - new :] - 1, min=0)
        x = self.embedding(tokens) + self.position(position)
        place = torch.arange(seen, device=tokens.device)
        earlier, itself = place <= place[seen - new :, None], place == place[seen - new :, None]
        # Padding sees itself, so that no query is without a key: attention over nothing is NaN.
        visible = ((is_token[:, None, :] & earlier) | itself)[:, None]
        for block in self.blocks:
            x = block(x, visible, cache)
        if cache is not None:
            cache.length += new
        return cast(Tensor, self.norm(x))


class Table(nn.Module):
    """One free row of logits a prompt, for answers of one token: the policy of the exact bandits.

    The features of a token say which prompt it belongs to, and the head holds the logits.

    >>> model = Table(vocab_size=7)
    >>> tokens = torch.tensor([[4, 2]])
    >>> model.head(model.features(tokens, tokens > 0))[0, -1].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.head = Linear(vocab_size, vocab_size)
        nn.init.zeros_(self.head.weight)

    def features(self, tokens: Tensor, is_token: Tensor, cache: Cache | None = None) -> Tensor:
        """Which symbol the prompt began with, at each of the last tokens: (B, N, V)."""
        if cache is None or cache.length == 0:
            first = torch.argmax(is_token.int(), dim=1)
            symbol = tokens.gather(1, first[:, None])[:, 0]
            if cache is not None:
                cache.pairs[0] = (symbol, symbol)
        else:
            symbol = cache.pairs[0][0]
        if cache is not None:
            cache.length += tokens.shape[1]
        one_hot = F.one_hot(symbol, self.head.weight.shape[1]).to(self.head.weight.dtype)
        return one_hot[:, None].expand(-1, tokens.shape[1], -1)


def build(model: str, vocab_size: int, longest: int, seed: int) -> "Decoder | Table":
    """A new policy; its weights depend on the seed alone.

    Errors: ValueError for an unknown model.
    """
    if model != "table" and model not in MODELS:
        raise ValueError(f"model must be one of table, {', '.join(MODELS)}, got {model!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Table(vocab_size) if model == "table" else Decoder(MODELS[model], vocab_size, longest)


def untied(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name, each tensor once: a tied head goes by the name of its embedding."""
    seen: dict[int, str] = {}
    weights = model.state_dict(keep_vars=True)
    for name, tensor in weights.items():
        seen.setdefault(id(tensor), name)
    return {name: weights[name].detach().contiguous() for name in seen.values()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put weights as `untied` names them into a model of the same shape.

    Errors: ValueError if some are missing, or not the model's: nothing keeps an old value by accident.
    """
    if weights.keys() != untied(model).keys():
        differing = ", ".join(sorted(weights.keys() ^ untied(model).keys()))
        raise ValueError(
            f"weights are not those of this model: {differing}; take the file of the same config"
        )
    model.load_state_dict(dict(weights), strict=False)
