"""The ledger of claims: what papers say about masks, and a verdict that a machine computes.

A claim is data: TOML files in `claims/`, which ship as `divsim.ledger`. It names what is measured, the
settings and the rule of decision, all fixed before the run, and its evidence: rows of a run's `results.json`,
or theorems. No verdict on a measurement is written by hand; it follows from the interval. What is left out:
the runs themselves (`divsim/experiments/`) and the proofs (`derivations/`).
"""

from .page import page, write_page
from .reader import ledger_folder, load
from .records import Claim, Decision, Ledger, Measurement, Proof, Recorded, Run, Topic
from .results import Measured, differences, read_run, record, write_recorded

__all__ = [
    "Claim",
    "Decision",
    "Ledger",
    "Measured",
    "Measurement",
    "Proof",
    "Recorded",
    "Run",
    "Topic",
    "differences",
    "ledger_folder",
    "load",
    "page",
    "read_run",
    "record",
    "write_page",
    "write_recorded",
]
