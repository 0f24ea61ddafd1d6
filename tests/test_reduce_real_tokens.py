"""The reduction of an archive keeps every bit, gives the same bytes, and refuses what it cannot do."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from divsim.experiments.reduce_real_tokens import CHOICE, Choice, main, reduce, write
from divsim.tabular.real_tokens import PAIRS, load
from divsim.tabular.real_views import (
    tail_sums,
)

DATA = Path(__file__).resolve().parents[1] / "divsim" / "data" / "real_tokens.npz"
ALL = load()
each_pair = pytest.mark.parametrize("tokens", ALL.values(), ids=list(ALL))


# ---- the reduction


SMALLER = Choice(prompts=(5, 10, 18, 35, 41), columns=8, whole=tuple((pair, (1,)) for pair in PAIRS))


def test_a_reduction_keeps_every_bit(tmp_path: Path) -> None:
    out = tmp_path / "smaller.npz"
    assert main([str(DATA), str(out)], SMALLER) == 0
    for name, ours in load(out).items():
        source = ALL[name]
        rows = np.isin(source.prompt, SMALLER.prompts)
        for field in fields(ours):
            mine, theirs = getattr(ours, field.name), getattr(source, field.name)
            if field.name in ("name", "vocab"):
                assert mine == theirs
            elif field.name == "full_row":
                assert source.prompt[rows][mine] == source.prompt[theirs[1]]
                assert source.c[rows][mine] == source.c[theirs[1]]
            elif field.name.startswith("full_"):
                assert np.array_equal(mine, theirs[[1]])
            elif field.name.startswith("top_"):
                assert np.array_equal(mine, theirs[rows][:, :8])
            elif not field.name.endswith("_tail"):
                assert np.array_equal(mine, theirs[rows]), field.name
        for k in (1, 8):
            for mine, theirs in zip(tail_sums(ours, k), tail_sums(source, k), strict=True):
                np.testing.assert_allclose(mine, theirs[rows], rtol=1e-14)  # the order of a sum


def test_the_same_reduction_gives_the_same_bytes(tmp_path: Path) -> None:
    with np.load(DATA) as archive:
        for name in ("a.npz", "b.npz"):
            write(reduce(ALL, archive, SMALLER), tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_logits_are_read_from_either_layout(tmp_path: Path) -> None:
    with np.load(DATA) as archive:
        stored = {n: v for n, v in archive.items() if "full_falls" not in n and "full_gaps" not in n}
    for name, tokens in ALL.items():
        stored[f"{name}/full_logits_mu"] = tokens.full_logits_mu.astype(np.float16)
        stored[f"{name}/full_logits_pi"] = tokens.full_logits_pi.astype(np.float16)
    np.savez(path := tmp_path / "plain.npz", **stored)
    for name, tokens in load(path).items():
        assert np.array_equal(tokens.full_logits_mu, ALL[name].full_logits_mu)
        assert np.array_equal(tokens.full_logits_pi, ALL[name].full_logits_pi)
        assert tokens.full_logits_pi.dtype == np.float64


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "taken.npz"
    taken.write_text("mine")
    calls = {
        "usage": [str(DATA)],
        "exists; remove it": [str(DATA), str(taken)],
        "no whole tokens [2, 11]": [str(DATA), str(tmp_path / "out.npz")],
        "not a readable .npz": [str(taken), str(tmp_path / "out.npz")],
    }
    for message, arguments in calls.items():
        assert main(arguments, CHOICE) == 2
        assert message in capsys.readouterr().err
    assert taken.read_text() == "mine" and not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (replace(SMALLER, prompts=(5, 6)), r"no tokens of prompts \[6\]"),
        (replace(SMALLER, columns=21), "not 21"),
    ],
)
def test_a_choice_that_is_not_stored_is_refused(choice: Choice, message: str) -> None:
    with np.load(DATA) as archive, pytest.raises(ValueError, match=message):
        reduce(ALL, archive, choice)
