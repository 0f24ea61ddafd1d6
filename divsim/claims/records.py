"""The records of the ledger, and how a verdict follows from them.

What is left out: where the records come from (`reader.py`) and how they are shown (`page.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from divsim.experiments.rows import Row, select

Verdict = Literal["holds", "does not hold", "undecided", "not measured", "holds in part", "fails in part"]
Side = Literal["above", "below", "equal"]


@dataclass(frozen=True)
class Run:
    """A run that the ledger reads.

    Attributes:
      name: its name in the ledger.
      command: the command that makes it.
      config: settings that were fixed before the run: fields of its `config.json` and their values.
    """

    name: str
    command: str
    config: Mapping[str, Any]

    def misfits(self, config: Mapping[str, Any]) -> list[str]:
        """The fixed settings that a `config.json` does not have, in words; empty if it is of this run."""
        return [
            f"{name} is {config.get(name)!r}, not {value!r}"
            for name, value in self.config.items()
            if config.get(name) != value
        ]


@dataclass(frozen=True)
class Decision:
    """The rule by which an interval decides a claim.

    Attributes:
      holds: the side of the threshold on which the claim holds; "equal" is within the margin around it.
      threshold: in the unit of the measured quantity.
      margin: half-width of "equal", at least 0, in the same unit.

    >>> Decision("above", 0.0).verdict(0.01, 0.03), Decision("equal", 0.0, margin=0.02).verdict(0.01, 0.03)
    ('holds', 'undecided')
    """

    holds: Side
    threshold: float
    margin: float = 0.0

    def verdict(self, low: float, high: float) -> Verdict:
        """The verdict of one interval, given its ends; an end on the boundary decides only "equal"."""
        if self.holds == "above":
            inside, outside = low > self.threshold, high < self.threshold
        elif self.holds == "below":
            inside, outside = high < self.threshold, low > self.threshold
        else:
            floor, ceiling = self.threshold - self.margin, self.threshold + self.margin
            inside, outside = floor <= low and high <= ceiling, high < floor or low > ceiling
        return "holds" if inside else "does not hold" if outside else "undecided"

    @property
    def edges(self) -> tuple[float, ...]:
        """The numbers at which the verdict of an end of an interval changes."""
        if self.holds == "equal":
            return self.threshold - self.margin, self.threshold + self.margin
        return (self.threshold,)

    def __str__(self) -> str:
        if self.holds == "equal":
            within = f"within {self.margin:g} of {self.threshold:g}"
            return f"holds if the whole interval lies {within}, does not hold if no point of it does"
        other = "below" if self.holds == "above" else "above"
        whole = f"holds if the whole interval lies {self.holds} {self.threshold:g}"
        return f"{whole}, does not hold if it lies {other}"


@dataclass(frozen=True)
class Measurement:
    """One row of a run as evidence.

    Attributes:
      case: what is particular to it, in a few words.
      run: the name of its `Run`.
      select: key fields that exactly one row of the run's `results.json` has.
    """

    case: str
    run: str
    select: Mapping[str, Any]


@dataclass(frozen=True)
class Proof:
    """A theorem as evidence.

    Attributes:
      case: what it covers, in a few words.
      theorem: its id in `derivations/`, such as "T3c".
      verdict: "holds" or "does not hold".
      counterexample: the example that refutes the claim; empty where it holds.
    """

    case: str
    theorem: str
    verdict: Verdict
    counterexample: str = ""


@dataclass(frozen=True)
class Claim:
    """One claim about masks.

    Attributes:
      id: its name.
      source: keys of REFERENCES.md and a place there.
      claim: the claim, one sentence.
      estimand: what exactly is measured or proven.
      evidence: at least one entry; each has a verdict of its own.
      configuration: the settings, fixed before the run; empty for proofs.
      decision: the rule, fixed before the run; None for proofs.
      where: where it holds or fails, in one sentence; may be empty before the run.
    """

    id: str
    source: str
    claim: str
    estimand: str
    evidence: tuple[Measurement | Proof, ...]
    configuration: str = ""
    decision: Decision | None = None
    where: str = ""

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of the runs that it reads, each once."""
        return tuple(dict.fromkeys(e.run for e in self.evidence if isinstance(e, Measurement)))


@dataclass(frozen=True)
class Topic:
    """The claims of one file: its title, what they are about, and they."""

    title: str
    text: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Recorded:
    """What the ledger keeps of a run.

    Attributes:
      run: which one.
      config: its `config.json`.
      environment: its `environment.json`: versions and threads.
      rows: the rows of its `results.json` that are evidence.
    """

    run: Run
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Ledger:
    """All claims, the runs that they read, and what was recorded of these runs, by name."""

    topics: tuple[Topic, ...]
    runs: Mapping[str, Run]
    recorded: Mapping[str, Recorded] = field(default_factory=dict)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every claim, in the order of the files."""
        return tuple(claim for topic in self.topics for claim in topic.claims)

    def claim(self, name: str) -> Claim:
        """The claim of that id. Errors: ValueError that lists the ids."""
        for claim in self.claims:
            if claim.id == name:
                return claim
        raise ValueError(f"unknown claim {name!r}; the ledger has: {', '.join(c.id for c in self.claims)}")

    def row(self, evidence: Measurement) -> Row | None:
        """The recorded row of a measurement; None before it was recorded."""
        recorded = self.recorded.get(evidence.run)
        matches = select(recorded.rows, **evidence.select) if recorded else []
        return matches[0] if len(matches) == 1 else None

    def verdict(self, claim: Claim, evidence: Measurement | Proof) -> Verdict:
        """The verdict of one entry; a row without an interval decides nothing."""
        if isinstance(evidence, Proof):
            return evidence.verdict
        row = self.row(evidence)
        if row is None or claim.decision is None:
            return "not measured"
        low, high = row["low"], row["high"]
        return "undecided" if low is None or high is None else claim.decision.verdict(low, high)

    def overall(self, claim: Claim) -> Verdict:
        """The verdict that all entries share; where they differ, whether any of them holds, or fails."""
        verdicts = [self.verdict(claim, evidence) for evidence in claim.evidence]
        if len(set(verdicts)) == 1:
            return verdicts[0]
        if "holds" in verdicts:
            return "holds in part"
        return "fails in part" if "does not hold" in verdicts else "undecided"
