"""A small ledger and a run directory that fits it, for the tests of `divsim.claims`."""

import json
from pathlib import Path
from typing import Any

TOPIC = """
title = "A topic"
text = "About something."

[runs.direction]
command = "divsim exact direction --preset quick"
config = { experiment = "direction", seed = 0, deltas = [0.05, 0.15] }

[runs.other]
command = "divsim exact direction --seed 1"
config = { experiment = "direction", seed = 1 }

[[claim]]
id = "better"
source = "[PDM] section 3"
claim = "It is better."
estimand = "A difference."
configuration = "Fixed before."
run = "direction"
decision = { holds = "above", threshold = 0.0 }
select = { test = "forward_kl/full", quantity = "difference" }
evidence = [
  { case = "peaked", select = { world = "language" } },
  { case = "open", select = { world = "flat" } },
]
where = "Somewhere."

[[claim]]
id = "proven"
source = "derived here"
claim = "It is | proven."
estimand = "A sign."
evidence = [
  { case = "here", theorem = "T3c", verdict = "holds" },
  { case = "there", theorem = "T3h", verdict = "does not hold", counterexample = "mu = [1], pi = [2]" },
]
"""

CONFIG = {"experiment": "direction", "seed": 0, "deltas": [0.05, 0.15], "tokens": 32}
ENVIRONMENT = {"numpy": "2.4.6", "threads": 1}


def row(world: str, value: float, low: float | None, high: float | None, **keys: Any) -> dict[str, Any]:
    fields = {"test": "forward_kl/full", "quantity": "difference", "world": world} | keys
    return fields | {"value": value, "low": low, "high": high, "tokens": 1200, "seeds": 8, "p": 0.004}


ROWS = [
    row("language", 0.1 + 0.2, 0.1, 0.4),  # 0.30000000000000004: no decimal shorter than repr gives it back
    row("flat", -0.2, -0.3, -0.1),
    row("flat", 0.5, 0.4, 0.6, test="ratio"),
    row("other", 0.0, -0.1, 0.1),
]


def write_ledger(folder: Path, topic: str = TOPIC) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "topic.toml").write_text(topic, encoding="utf-8")
    return folder


def write_run(folder: Path, rows: Any = ROWS, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    files = {"config": CONFIG | config, "environment": ENVIRONMENT, "results": {"rows": rows}}
    for name, document in files.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder
