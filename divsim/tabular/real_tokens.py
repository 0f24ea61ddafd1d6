r"""Tokens of a real language model: what an engine (mu) and a trainer (pi) said at the same places.

An archive holds four pairs of policies over V = 49,152 tokens. Each sampled token has the likeliest tokens of
mu, sums over the tail and exact statistics of the whole vocabulary; a few have every logit. `load` reads the
copy that comes with divsim, or a larger archive of the same layout; `divsim/data/README.md` says how they
were made. What can be asked of them is in `real_views.py`. Left out: sequences, and any advantage.
"""

import json
import lzma
import zipfile
import zlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np

from divsim.formulas import log_softmax

from .policies import Floats, Ints, PolicyPair

PAIRS = {"bf16_base": "bf16", "fp8_base": "fp8", "fp32_stale": "fp32", "fp8_stale": "fp8"}
"""Pair -> the engine that sampled it. What separates mu and pi: precision, precision, training, both."""

ENGINE_FIELDS = (
    *("k", "rank_k", "prompt", "position", "top_ids"),
    *("top_log_mu", "log_mu_k", "mu_tail", "entropy_mu"),
)
PAIR_FIELDS = (
    *("top_log_pi", "log_pi_k", "pi_tail", "pi_sq_tail", "kl", "reverse_kl", "tv", "c"),
    *("pi_sq", "pi_mu", "entropy_pi", "c_low_20", "c_high_20"),
)
FULL_FIELDS = (
    *("full_row", "full_k", "full_kl", "full_reverse_kl", "full_tv", "full_c", "full_pi_sq", "full_pi_mu"),
    *("full_log_mu_k", "full_log_pi_k", "full_entropy_mu", "full_entropy_pi"),
)
LOGIT_FIELDS = ("full_logits_mu", "full_logits_pi")
DIFFERENCE_FIELDS = ("full_falls_mu", "full_gaps_pi")
"""The logits as integers that compress well: mu's from column to column, and pi's from mu's."""

RENAMED = {"k": "action", "full_k": "full_action"}
"""Stored field -> its name in the glossary."""

GRID = 64
"""Full logits are multiples of 1 / 64."""

UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class RealTokens:
    """N sampled tokens of one pair with their K likeliest tokens under mu; F of them have every logit.

    Logs are natural. Stored float32 values are lifted to float64 and otherwise as they are; whatever is exact
    was summed over the whole vocabulary in float64 before it was stored.

    Attributes:
      name: a key of `PAIRS`.
      vocab: V.
      action: (N,) int, the sampled tokens.
      rank_k: (N,) int, the sampled token's rank under mu, 0 for the likeliest.
      prompt, position: (N,) int, the prompt that is answered, and the place in the answer.
      top_ids, top_log_mu, top_log_pi: (N, K) the likeliest tokens of mu, descending, and their logs, nats.
      log_mu_k, log_pi_k: (N,) of the sampled token, nats.
      mu_tail, pi_tail, pi_sq_tail: (N,) sums of mu, pi and pi^2 outside the K likeliest and the sampled one.
      entropy_mu, entropy_pi: (N,) nats, exact.
      kl, reverse_kl, tv: (N,) exact divergences; nats, nats, and in [0, 1].
      c: (N,) exact first-order change of forward KL, c_k, nats per unit logit step.
      pi_sq, pi_mu: (N,) exact sums of pi^2 and of pi mu.
      c_low_20, c_high_20: (N,) the tight interval of c_k at K = 20, neither inflated nor rounded outward.
      full_row: (F,) int, which tokens have every logit.
      full_action: (F,) int, the sampled token's column.
      full_logits_mu, full_logits_pi: (F, V) logits, in descending order of mu's: shuffle the columns of both
        alike where order must not help.
      full_kl, full_reverse_kl, full_tv, full_c, full_pi_sq, full_pi_mu, full_log_mu_k, full_log_pi_k,
        full_entropy_mu, full_entropy_pi: (F,) exact for these logits, which are rounded to 1 / 64: they
        differ a little from `kl`, `c` and so on of the same token.
    """

    name: str
    vocab: int
    action: Ints
    rank_k: Ints
    prompt: Ints
    position: Ints
    top_ids: Ints
    top_log_mu: Floats
    log_mu_k: Floats
    mu_tail: Floats
    entropy_mu: Floats
    top_log_pi: Floats
    log_pi_k: Floats
    pi_tail: Floats
    pi_sq_tail: Floats
    kl: Floats
    reverse_kl: Floats
    tv: Floats
    c: Floats
    pi_sq: Floats
    pi_mu: Floats
    entropy_pi: Floats
    c_low_20: Floats
    c_high_20: Floats
    full_row: Ints
    full_action: Ints
    full_logits_mu: Floats
    full_logits_pi: Floats
    full_kl: Floats
    full_reverse_kl: Floats
    full_tv: Floats
    full_c: Floats
    full_pi_sq: Floats
    full_pi_mu: Floats
    full_log_mu_k: Floats
    full_log_pi_k: Floats
    full_entropy_mu: Floats
    full_entropy_pi: Floats

    @property
    def columns(self) -> int:
        """K, how many of the likeliest tokens are stored."""
        return int(self.top_ids.shape[-1])

    @property
    def top_20_mass(self) -> Floats:
        """(N,) mass of mu's 20 likeliest tokens. Errors: ValueError if fewer are stored."""
        if self.columns < 20:
            raise ValueError(f"{self.name} stores the {self.columns} likeliest tokens; 20 are needed")
        return np.asarray(np.sum(np.exp(self.top_log_mu[:, :20]), axis=-1))


def load(path: Path | None = None) -> dict[str, RealTokens]:
    """All pairs of an archive, by name.

    Args:
      path: an archive of this layout; None is the reduced copy that comes with divsim.

    Returns:
      A record for each key of `PAIRS`.

    Errors: ValueError that names the file, what is wrong with it, and the remedy.

    >>> tokens = load()["bf16_base"]
    >>> tokens.columns, tokens.vocab
    (20, 49152)
    """
    source, remedy = _source(path)
    try:
        with source.open("rb") as file:
            archive = np.load(file)
            stored = dict(archive) if isinstance(archive, np.lib.npyio.NpzFile) else {}
    except UNREADABLE as error:
        raise ValueError(f"{source} is not a readable .npz archive ({error}); {remedy}") from error
    _require_fields(stored, source, remedy)
    vocab = _vocab(str(stored["meta"]), source, remedy)
    return {name: _tokens(stored, name, vocab) for name in PAIRS}


def whole_policies(tokens: RealTokens) -> PolicyPair:
    """The policies of the tokens with every logit: `full_row` says which, `full_action` what was sampled.

    Returns: a `PolicyPair` (F, V), float64.

    >>> whole_policies(load()["bf16_base"]).vocab
    49152
    """
    return PolicyPair(log_softmax(tokens.full_logits_mu), log_softmax(tokens.full_logits_pi))


def _source(path: Path | None) -> tuple[Path | Traversable, str]:
    if path is None:
        return resources.files("divsim") / "data" / "real_tokens.npz", "reinstall divsim, which comes with it"
    return Path(path), "name an archive of real tokens, or none for the copy that comes with divsim"


def _require_fields(stored: dict[str, Any], source: Path | Traversable, remedy: str) -> None:
    """Every field is there, and all fields of an engine's tokens have one length."""
    missing = [] if "meta" in stored else ["meta"]
    for pair, engine in PAIRS.items():
        logits = DIFFERENCE_FIELDS if f"{pair}/{DIFFERENCE_FIELDS[0]}" in stored else LOGIT_FIELDS
        names = [f"{engine}/{field}" for field in ENGINE_FIELDS]
        names += [f"{pair}/{field}" for field in (*PAIR_FIELDS, *FULL_FIELDS, *logits)]
        missing += [name for name in names if name not in stored and name not in missing]
    if missing:
        more = f" and {len(missing) - 1} more fields" if len(missing) > 1 else ""
        raise ValueError(f"{source} lacks {missing[0]}{more}; {remedy}")
    for pair, engine in PAIRS.items():
        count = len(stored[f"{engine}/k"])
        for name in (*(f"{engine}/{f}" for f in ENGINE_FIELDS), *(f"{pair}/{f}" for f in PAIR_FIELDS)):
            rows = len(stored[name])
            if rows != count:
                raise ValueError(f"{source} has {rows} rows of {name} for {count} tokens; {remedy}")


def _vocab(meta: str, source: Path | Traversable, remedy: str) -> int:
    try:
        return int(json.loads(meta)["V"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{source} has no size of the vocabulary, V, in its meta; {remedy}") from error


def _tokens(stored: dict[str, Any], pair: str, vocab: int) -> RealTokens:
    fields = {field: stored[f"{PAIRS[pair]}/{field}"] for field in ENGINE_FIELDS}
    fields |= {field: stored[f"{pair}/{field}"] for field in (*PAIR_FIELDS, *FULL_FIELDS)}
    fields |= dict(zip(LOGIT_FIELDS, _logits(stored, pair), strict=True))
    return RealTokens(
        pair, vocab, **{RENAMED.get(name, name): _lifted(values) for name, values in fields.items()}
    )


def _logits(stored: dict[str, Any], pair: str) -> tuple[Floats, Floats]:
    falls, gaps = (f"{pair}/{field}" for field in DIFFERENCE_FIELDS)
    if falls not in stored:
        mu, pi = (stored[f"{pair}/{field}"] for field in LOGIT_FIELDS)
        return mu, pi
    mu = np.cumsum(stored[falls], axis=-1, dtype=np.int64)
    return mu / GRID, (mu + stored[gaps]) / GRID


def _lifted(values: Any) -> Any:
    return values.astype(np.int64 if np.issubdtype(values.dtype, np.integer) else np.float64)
