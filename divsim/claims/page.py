"""The ledger as one page of markdown, and the wording that the page and the command line share."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from divsim.experiments.rows import Row

from .records import Claim, Decision, Ledger, Measurement, Proof, Topic

MARK = "<!-- Written by `divsim claims --write`. Edit claims/*.toml instead. -->"
"""The first line of a page; a file without it is not overwritten."""

VERDICTS = {
    "holds": "proven, or the whole interval lies on the claimed side of the threshold",
    "does not hold": "a counterexample is proven, or the whole interval lies on the other side",
    "undecided": "the interval reaches to both sides, or there is none",
    "holds in part": "it holds in one case at least, not in all; the evidence says where",
    "fails in part": "it holds in no case; it does not hold in one case at least, and the others are open",
    "not measured": "the run was not recorded yet",
}
"""What the words of a verdict mean."""
_LEGEND = "\n".join(f"| {word} | {meaning} |" for word, meaning in VERDICTS.items())

SECOND_LOOK = """\
The interval decides, p does not. p flips the signs of the clusters' differences and asks whether 0 is likely;
it supposes symmetric differences where the interval supposes nearly normal means. Where one of the two
excludes 0 and the other does not, the case is too close to call with these clusters: read it as open."""
"""What to do with an interval and a p that disagree."""

INTRODUCTION = f"""\
# Claims about masks, and what was found

Each entry is a claim as a reader meets it, with what is measured or proven, and a verdict. Some are
stated in a paper, some are how a paper is often read, some are variants of ours; the source says which.
The settings and the rule of decision of a measurement were fixed before its run; cases that are marked
as added later were added after the result was seen. The verdict is computed from a 95 % interval.

| verdict | meaning |
|---|---|
{_LEGEND}

Words of the tables. *Language* and *flat*: worlds of synthetic positions whose probabilities fall
steeply, or as 1 / rank; *stale policy*: pi took 16 policy-gradient passes on tokens of mu; *logit
noise*: .5 nats on every logit; *engine noise*: heavy-tailed, of the size that engines report;
*flattened*: logits times .7; *fp8 head*: the engine rounds head and activations; *real tokens*:
recorded from a 135M-parameter model. `s*`: the size of a token's own step at which KL is back where it
was, on the side on which it falls first; the unit of steps on both sides. *Clusters*: independent
seeds, or prompts, that have such tokens; intervals are Student's over clusters, for real tokens a
bootstrap over prompts, for shares of 0 or 1 exact (of real tokens with every prompt counted once); *p*:
two-sided, by flipping the signs of the clusters' differences.

{SECOND_LOOK}

A verdict speaks of the case in its row: these distributions, these steps. It does not say that a mask
trains a network better. `divsim claims` prints this list in short; `divsim claims --check
RUN_DIRECTORY` compares it with a run of your own; `divsim verify --explain T2b` prints a theorem. Keys
such as [PDM] are explained in `REFERENCES.md`.
"""


def facts(ledger: Ledger, claim: Claim) -> dict[str, str]:
    """What is said of a claim besides the claim itself and its evidence, under its headings."""
    said = {"Source": claim.source, "Estimand": claim.estimand, "Configuration": claim.configuration}
    if claim.decision:
        commands = ", ".join(f"`{ledger.runs[name].command}`" for name in claim.runs)
        said |= {"Command": commands, "Decision": f"{claim.decision}."}
    return {heading: text for heading, text in (said | {"Where": claim.where}).items() if text}


def cases(ledger: Ledger, claim: Claim) -> tuple[list[str], list[list[str]]]:
    """The evidence of a claim as a table: the headings of the columns that anything fills, and the rows."""
    headings = ["case", "verdict", "evidence", "value [95 % interval]", "tokens", "clusters", "p"]
    rows = [_case(ledger, claim, evidence) for evidence in claim.evidence]
    filled = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    return [headings[i] for i in filled], [[row[i] for i in filled] for row in rows]


def _case(ledger: Ledger, claim: Claim, evidence: Measurement | Proof) -> tuple[str, ...]:
    verdict = ledger.verdict(claim, evidence)
    if isinstance(evidence, Proof):
        proof = ": ".join(filter(None, (f"theorem {evidence.theorem}", evidence.counterexample)))
        return evidence.case, verdict, proof, "", "", "", ""
    row = ledger.row(evidence)
    if row is None:
        return evidence.case, verdict, "", "", "", "", ""
    p = "" if row["p"] is None else f"{row['p']:.2g}"
    return (
        evidence.case,
        verdict,
        "",
        interval(row, claim.decision),
        f"{row['tokens']:,}",
        str(row["seeds"]),
        p,
    )


def interval(row: Row, decision: Decision | None = None) -> str:
    """A value and its interval, such as `0.12 [0.1, 0.14]`, each number on the side of the decision it is on.

    >>> interval({"value": 0.125, "low": None, "high": None})
    '0.125 (no interval)'
    >>> interval({"value": 0.9, "low": 0.8, "high": 0.94996}, Decision("above", 0.95))
    '0.9 [0.8, 0.94996]'
    """
    edges = decision.edges if decision else ()
    if row["value"] is None:
        return "no value"
    if row["low"] is None or row["high"] is None:
        return f"{_number(row['value'], edges)} (no interval)"
    value, low, high = (_number(row[name], edges) for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _side(x: float, edge: float) -> int:
    """Of the edge: 1 above, -1 below, 0 on it."""
    return (x > edge) - (x < edge)


def _number(x: float, edges: Sequence[float]) -> str:
    """Three significant digits, or as many more as keep it on its side of every edge."""
    texts = (f"{x:.{digits}g}" for digits in range(3, 18))
    return next(text for text in texts if all(_side(float(text), edge) == _side(x, edge) for edge in edges))


def summary(ledger: Ledger, claim: Claim) -> str:
    """The evidence of a claim in one cell: a single entry as it is, several as counts of verdicts."""
    if len(claim.evidence) == 1:
        (evidence,) = claim.evidence
        if isinstance(evidence, Proof):
            return f"theorem {evidence.theorem}"
        row = ledger.row(evidence)
        return "" if row is None else interval(row, claim.decision)
    verdicts = [ledger.verdict(claim, evidence) for evidence in claim.evidence]
    return ", ".join(f"{verdict}: {verdicts.count(verdict)}" for verdict in dict.fromkeys(verdicts))


def page(ledger: Ledger) -> str:
    """The whole ledger as markdown."""
    blocks = [MARK, INTRODUCTION]
    for topic in ledger.topics:
        blocks += _topic(ledger, topic)
    blocks.append(_runs(ledger))
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def _topic(ledger: Ledger, topic: Topic) -> Iterable[str]:
    overview = [
        (f"[{claim.id}](#{claim.id})", claim.claim, ledger.overall(claim), summary(ledger, claim))
        for claim in topic.claims
    ]
    yield f"## {topic.title}"
    yield topic.text
    yield _table(("id", "claim", "verdict", "evidence"), overview)
    for claim in topic.claims:
        yield f"### {claim.id}"
        yield f"**{claim.claim}** Verdict: **{ledger.overall(claim)}**."
        yield "\n".join(f"- {heading}: {text}" for heading, text in facts(ledger, claim).items())
        yield _table(*cases(ledger, claim))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _runs(ledger: Ledger) -> str:
    lines = ["## Runs", "", "The settings that were fixed before each run, and what it was made with.", ""]
    for run in ledger.runs.values():
        recorded = ledger.recorded.get(run.name)
        made_with = _listed(recorded.environment) if recorded else "not recorded yet"
        lines.append(f"- `{run.command}`: {_listed(run.config)} ({made_with})")
    return "\n".join(lines)


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value != "")


def write_page(ledger: Ledger, file: Path) -> None:
    """Write the page to a file.

    Errors: ValueError if the file exists and is not such a page, or cannot be written.
    """
    try:
        if file.exists() and not file.read_text(encoding="utf-8", errors="replace").startswith(MARK):
            raise ValueError(f"{file} exists and is no page of claims; name another file or remove it first")
        file.write_text(page(ledger), encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{file} cannot be written: {error.strerror}; name another file") from error
