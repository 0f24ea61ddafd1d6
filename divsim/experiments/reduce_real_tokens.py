"""The small copy of the real tokens that comes with divsim, made from a full archive.

    python -m divsim.experiments.reduce_real_tokens FULL.npz OUT.npz

Keeps all tokens of a few prompts, fewer columns, and a few of the tokens with every logit. What is kept is
what was stored, bit for bit: dropped columns join the tail sums in float64, and logits become integer
differences, which compress better. The same call gives the same bytes. Left out: any choice but `CHOICE`.
"""

import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divsim.tabular.policies import Bools
from divsim.tabular.real_tokens import (
    DIFFERENCE_FIELDS,
    ENGINE_FIELDS,
    FULL_FIELDS,
    GRID,
    PAIR_FIELDS,
    PAIRS,
    RealTokens,
    load,
)
from divsim.tabular.real_views import tail_sums

Arrays = dict[str, NDArray[Any]]
USAGE = "usage: python -m divsim.experiments.reduce_real_tokens FULL.npz OUT.npz"
TAILS = ("mu_tail", "pi_tail", "pi_sq_tail")


@dataclass(frozen=True)
class Choice:
    """What is kept.

    Attributes:
      prompts: whose tokens; 0 to 11 are arithmetic, 12 to 23 instructions, 24 to 31 code, 32 to 41 stories.
      columns: how many of the likeliest tokens.
      whole: (pair, places) which tokens with every logit.
    """

    prompts: tuple[int, ...] = (1, 5, 10, 17, 18, 20, 26, 28, 30, 34, 35, 41)
    columns: int = 20
    # In each pair one where ratio and c_k disagree at a large divergence, and an ordinary one.
    whole: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("bf16_base", (2, 11)),
        ("fp8_base", (3, 9)),
        ("fp32_stale", (2, 10)),
        ("fp8_stale", (2, 9)),
    )


CHOICE = Choice()


def reduce(tokens: Mapping[str, RealTokens], stored: Mapping[str, NDArray[Any]], choice: Choice) -> Arrays:
    """The arrays of a smaller archive.

    Args:
      tokens: what `load` makes of the archive.
      stored: the arrays of the same archive, for their dtypes and bits.
      choice: what is kept.

    Errors: ValueError if a prompt is missing, or too few columns or whole tokens are stored.
    """
    kept: Arrays = {}
    for name, engine in PAIRS.items():
        pair = tokens[name]
        _require(pair, choice)
        rows = np.isin(pair.prompt, choice.prompts)
        for field in ENGINE_FIELDS:
            kept[f"{engine}/{field}"] = stored[f"{engine}/{field}"][rows]
        for field in PAIR_FIELDS:
            kept[f"{name}/{field}"] = stored[f"{name}/{field}"][rows]
        for field, owner in (("top_ids", engine), ("top_log_mu", engine), ("top_log_pi", name)):
            kept[f"{owner}/{field}"] = kept[f"{owner}/{field}"][:, : choice.columns]
        for field, owner, tail in zip(
            TAILS, (engine, name, name), tail_sums(pair, choice.columns), strict=True
        ):
            kept[f"{owner}/{field}"] = tail[rows]
        kept |= {f"{name}/{field}": values for field, values in _whole(pair, stored, rows, choice).items()}
    meta = json.loads(str(stored["meta"]))
    kept["meta"] = np.array(json.dumps(meta | {"K": choice.columns, "prompts": list(choice.prompts)}))
    return kept


def write(arrays: Mapping[str, NDArray[Any]], path: Path) -> None:
    """An archive that `numpy.load` reads, with LZMA, and without a date. Errors: FileExistsError."""
    with zipfile.ZipFile(path, "x") as archive:
        for name, values in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = zipfile.ZIP_LZMA
            with archive.open(entry, "w") as file:
                np.lib.format.write_array(file, np.asarray(values, order="C"), allow_pickle=False)


def main(arguments: Sequence[str], choice: Choice = CHOICE) -> int:
    """Reduce the archive that is named first into the file that is named second; 2 for a bad call."""
    if len(arguments) != 2:
        print(USAGE, file=sys.stderr)
        return 2
    full, out = map(Path, arguments)
    if out.exists():
        print(f"{out} exists; remove it, or name another file", file=sys.stderr)
        return 2
    try:
        tokens = load(full)
        with np.load(full) as archive:
            arrays = reduce(tokens, archive, choice)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    write(arrays, out)
    print(f"{out}: {out.stat().st_size:,} bytes")
    return 0


def _require(pair: RealTokens, choice: Choice) -> None:
    absent = sorted(set(choice.prompts) - set(pair.prompt.tolist()))
    if absent:
        raise ValueError(f"{pair.name} has no tokens of prompts {absent}; reduce a full archive")
    if pair.columns < choice.columns:
        raise ValueError(f"{pair.name} stores {pair.columns} columns, not {choice.columns}; keep fewer")
    places = [*dict(choice.whole)[pair.name]]
    if max(places) >= len(pair.full_row) or set(pair.prompt[pair.full_row[places]]) - set(choice.prompts):
        raise ValueError(f"{pair.name} has no whole tokens {places} in these prompts; choose others")


def _whole(
    pair: RealTokens, stored: Mapping[str, NDArray[Any]], rows: Bools, choice: Choice
) -> dict[str, NDArray[Any]]:
    """The chosen tokens with every logit, numbered anew."""
    chosen = np.array(dict(choice.whole)[pair.name])
    fields: Arrays = {field: stored[f"{pair.name}/{field}"][chosen] for field in FULL_FIELDS}
    place = np.cumsum(rows) - 1
    fields["full_row"] = place[pair.full_row[chosen]].astype(np.uint16)
    mu, pi = (
        np.rint(logits[chosen] * GRID).astype(np.int16)
        for logits in (pair.full_logits_mu, pair.full_logits_pi)
    )
    falls = np.diff(mu, axis=-1, prepend=np.int16(0))
    return fields | dict(zip(DIFFERENCE_FIELDS, (falls, pi - mu), strict=True))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
