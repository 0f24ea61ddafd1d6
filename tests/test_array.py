"""The array library that is neither NumPy nor torch: it sorts, and needs no more."""

from types import SimpleNamespace
from typing import Any

import array_api_compat.numpy
import numpy as np
import pytest

from divsim.formulas import _array


def test_a_library_that_only_sorts_finds_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    sorting: Any = array_api_compat.numpy
    plain = SimpleNamespace(argsort=sorting.argsort)
    monkeypatch.setattr(_array, "namespace", lambda *arrays: plain)
    rows = np.array([[1.0, 3.0, 2.0], [0.0, -1.0, 5.0]])
    assert _array.largest(rows, 2).tolist() == [[1, 2], [2, 0]]
    assert _array.largest(rows, 3).tolist() == [[1, 2, 0], [2, 0, 1]]
