"""What every test file shares: the array libraries a formula must agree on, and reproducible property tests.

`pytest --hypothesis-profile=explore` draws new random cases instead of the fixed ones; "mutation" is for
`tests/mutation.py`, which repeats the tests for every mutant: few cases, and no search for a smaller failure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings

pytest.register_assert_rewrite("laws")

settings.register_profile("divsim", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.register_profile(
    "mutation",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=5,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("divsim")


@dataclass(frozen=True)
class Library:
    """An array library under test.

    Attributes:
      name: "numpy", "torch" or "cuda".
      array: nested numbers or a NumPy array -> an array of this library, of the same dtype.
    """

    name: str
    array: Callable[[Any], Any]


def _torch_library(device: str) -> Library:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return Library("torch", lambda values: torch.as_tensor(np.asarray(values), device=device))


def _names() -> list[str]:
    try:
        import torch
    except ImportError:
        return ["numpy", "torch"]
    return ["numpy", "torch", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=_names())
def xp(request: pytest.FixtureRequest) -> Library:
    """Each array library in turn; float64 unless the test says otherwise."""
    if request.param == "numpy":
        return Library("numpy", np.asarray)
    return _torch_library("cuda" if request.param == "cuda" else "cpu")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Names, not addresses: parallel workers must collect the same test ids."""
    name = getattr(val, "name", None) or getattr(val, "__name__", None)
    return name if isinstance(name, str) else None
