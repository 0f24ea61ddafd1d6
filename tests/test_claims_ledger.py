"""The ledger that ships: sources and theorems exist, counterexamples are true, CLAIMS.md is its page."""

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from divsim.claims import Measurement, Proof, load, page
from divsim.cli.exact import EXACT
from divsim.derivations import load as load_chapter
from divsim.formulas import DIVERGENCES, exponential_path, policy_gradient_direction

ROOT = Path(__file__).resolve().parents[1]
LEDGER = load()
PROOFS = [(c, e) for c in LEDGER.claims for e in c.evidence if isinstance(e, Proof)]


def proof(claim: str, case: str) -> str:
    """The counterexample of one entry."""
    (text,) = (e.counterexample for c, e in PROOFS if c.id == claim and e.case == case)
    return text


def policies(text: str) -> tuple[list[Fraction], list[Fraction]]:
    """mu and pi of a text such as `mu = (1, 8, 2)/11, pi = (4, 6, 1)/11, ...`."""
    found = re.findall(r"(?:mu|pi) = \(([\d, ]+)\)/(\d+)", text)
    mu, pi = ([Fraction(int(n), int(total)) for n in numbers.split(",")] for numbers, total in found[:2])
    assert sum(mu) == sum(pi) == 1
    return mu, pi


def change(mu: list[Fraction], pi: list[Fraction], k: int) -> Fraction:
    """c_k of forward KL, written out."""
    return pi[k] - mu[k] + sum(p * (m - p) for m, p in zip(mu, pi, strict=True))


def after(pi: np.ndarray, k: int, step: float) -> np.ndarray:
    log_pi = np.log(pi)
    return np.exp(exponential_path(log_pi, policy_gradient_direction(log_pi, np.array(k)), step))


def kl(mu: np.ndarray, pi: np.ndarray) -> float:
    return float(np.sum(mu * np.log(mu / pi)))


def test_the_ledger_is_not_empty_and_speaks_of_every_experiment() -> None:
    assert len(LEDGER.claims) >= 25
    assert {run.command.split()[2] for run in LEDGER.runs.values()} == {*EXACT, "compare"}


def test_every_source_is_in_the_references() -> None:
    known = set(re.findall(r"^\| \[(\w+)\]", (ROOT / "REFERENCES.md").read_text(), flags=re.MULTILINE))
    for claim in LEDGER.claims:
        keys = re.findall(r"\[(\w+)\]", claim.source)
        assert keys or claim.source.startswith("derived here"), claim.id
        assert set(keys) <= known, claim.id


def test_every_theorem_exists() -> None:
    cited = {evidence.theorem for _, evidence in PROOFS}
    chapters = {name.rstrip("abcdefghijklmnopqrstuvwxyz") for name in cited}
    known = {theorem.id for chapter in chapters for theorem in load_chapter(chapter)}
    assert cited and cited <= known


def test_every_theorem_that_a_text_names_exists() -> None:
    texts = [claim.source + claim.where for claim in LEDGER.claims]
    for name in set(re.findall(r"\bT\d+[a-z]\b", " ".join(texts))):
        assert name in {theorem.id for theorem in load_chapter(name[:-1])}


STEPS = {"coarse (top-K) forward KL": None, "reverse KL": "reverse_kl", "TV": "tv", "Jensen–Shannon": "js"}


@pytest.mark.parametrize("case", STEPS)
def test_predicted_rises_that_are_falls(case: str) -> None:
    text = proof("never-blocks-good-step", case)
    exact_mu, exact_pi = policies(text)
    mu, pi = np.array(exact_mu, float), np.array(exact_pi, float)
    k = 1 if "second token" in text else len(mu) - 1
    step, predicted, realised = (
        float(re.search(rf"{name} ([+-]?[\d.]+)", text)[1]) for name in ("s =", "predicted", "realised")
    )

    def cells(policy: np.ndarray) -> np.ndarray:
        return policy if STEPS[case] else np.array([policy[0], policy[1], policy[2:].sum()])

    divergence = DIVERGENCES[STEPS[case] or "forward_kl"]

    def measure(policy: np.ndarray) -> float:
        return float(divergence.measure(np.log(cells(mu)), np.log(cells(policy))))

    small = 1e-6  # a central difference of a function of size 1: error about 1e-11
    slope = (measure(after(pi, k, small)) - measure(after(pi, k, -small))) / (2 * small)
    assert slope * step == pytest.approx(predicted, abs=6e-5)  # the text has four decimals
    assert measure(after(pi, k, step)) - measure(pi) == pytest.approx(realised, abs=6e-5)


def test_a_shared_head_turns_the_sign() -> None:
    text = proof("never-blocks-good-step", "full forward KL, linear head, direction from the logits alone")
    mu, pi = policies(text)
    head = [tuple(map(int, pair.split(","))) for pair in re.findall(r"\((-?\d, -?\d)\)", text)]
    pushed = [sum((Fraction(i == 0) - pi[i]) * head[i][f] for i in range(3)) for f in range(2)]
    moved = [sum(head[i][f] * pushed[f] for f in range(2)) for i in range(3)]
    assert f"c = {change(mu, pi, 0)}" in text
    assert f"head +{sum((pi[i] - mu[i]) * moved[i] for i in range(3))}" in text


def test_the_ratio_test_is_wrong_at_the_smallest_example() -> None:
    text = proof("ratio-tells-direction", "full forward KL, plain gradient, three tokens or more")
    mu, pi = policies(text)
    assert f"r = {pi[1] / mu[1]}, c = {change(mu, pi, 1)}" in text


def test_a_predicted_decrease_ends() -> None:
    text = proof("sign-needs-no-step-size", "predicted decreases")
    mu, pi = policies(text)
    assert f"c = {change(mu, pi, 0)}" in text
    m, p = np.array(mu, float), np.array(pi, float)
    start, near, far = kl(m, p), kl(m, after(p, 0, 1.0)), kl(m, after(p, 0, 4.0))
    assert f"KL goes from {start:.3f} to {near:.3f} at s = 1, and to {far:.3f} at s = 4" in text


def test_from_equal_policies_every_step_rises() -> None:
    half = np.array([0.5, 0.5])
    end = f"{kl(half, after(half, 0, 2.0)):.3f}"
    assert f"KL rises to {end} at s = 2" in proof("sign-needs-no-step-size", "from pi = mu")
    assert f"s = 2 ends at {end}" in proof("mask-keeps-inside", "one token, from inside")


def test_two_inward_steps_lead_out() -> None:
    text = proof("mask-keeps-inside", "two tokens, both inward")
    mu, pi = (np.array(policy, float) for policy in policies(text))
    alone, both = (kl(mu, after(pi, 0, step)) - kl(mu, pi) for step in (1.0, 2.0))
    assert f"lowers D by {-alone:.3f}, both together raise it by {both:.3f}" in text
    assert kl(mu, pi) > 0.1  # far, so that the direction test is asked at all


def test_the_gaussian_ratio_test_is_not_the_natural_gradient_test() -> None:
    text = proof("ratio-is-natural", "Gaussian with a fixed variance")
    x, mean = Fraction(3, 4), Fraction(1)
    log_r, divergence = mean * x - mean**2 / 2, mean**2 / 2
    assert f"log r = {log_r} > 0, and log r - D = {log_r - divergence}" in text


def test_the_cells_hide_everything() -> None:
    text = proof("coarse-tells-near", "top-K forward KL")
    mu, pi = policies(text)
    assert mu[0] == pi[0]
    assert f"coarse KL 0, full KL {kl(np.array(mu, float), np.array(pi, float)):.3f}" in text


def test_the_aggregated_tail_is_not_the_coarse_derivative() -> None:
    text = proof("aggregated-is-derivative", "free logits, two hidden tokens or more")
    mu, pi = policies(text)
    hidden, shown = 1 - pi[0], 1 - mu[0]
    base = (pi[0] - mu[0]) + pi[0] * (mu[0] - pi[0])
    proportional = base + sum(p * p for p in pi[1:]) / hidden * (shown - hidden)
    assert f"derivative {proportional}, aggregated {base + hidden * (shown - hidden)}" in text

    def coarse(step: float) -> float:
        first = after(np.array(pi, float), 0, step)[0]
        return kl(np.array([mu[0], shown], float), np.array([first, 1 - first]))

    assert (coarse(1e-6) - coarse(-1e-6)) / 2e-6 == pytest.approx(float(proportional), abs=1e-9)


def test_the_sampled_token_alone_does_not_tell() -> None:
    text = proof("sampled-token-is-enough", "full forward KL, three tokens or more")
    mu, pi = policies(text)
    other = [Fraction(n, 35) for n in (6, 5, 24)]
    assert sum(other) == 1 and other[1] == mu[1] and "mu' = (6, 5, 24)/35" in text
    assert f"c = {change(mu, pi, 1)};" in text and f"c = +{change(other, pi, 1)}" in text


def test_on_a_flat_tail_the_aggregated_estimate_has_the_wrong_sign() -> None:
    text = proof("aggregated-is-uniform", "a flat tail, proven")
    pi = [Fraction(50, 200), Fraction(20, 200), *[Fraction(13, 400)] * 20]
    mu = [Fraction(180, 200), Fraction(10, 200), *[Fraction(1, 400)] * 20]
    assert sum(pi) == sum(mu) == 1
    base = pi[1] - mu[1] + sum(p * (m - p) for m, p in zip(mu[:2], pi[:2], strict=True))
    hidden, shown = sum(pi[2:]), sum(mu[2:])
    assert base + hidden * (shown - hidden) / 20 == change(mu, pi, 1)
    assert f"exact +{change(mu, pi, 1)}, aggregated {base + hidden * (shown - hidden)}" in text


def test_what_is_recorded_is_what_is_claimed() -> None:
    measured = [(c, e) for c in LEDGER.claims for e in c.evidence if isinstance(e, Measurement)]
    for name, recorded in LEDGER.recorded.items():
        rows = [(claim, LEDGER.row(evidence)) for claim, evidence in measured if evidence.run == name]
        assert [claim.id for claim, row in rows if row is None] == []
        assert [row for row in recorded.rows if row not in [kept for _, kept in rows]] == []


def test_a_measured_claim_says_where_it_holds() -> None:
    recorded = set(LEDGER.recorded)
    assert [claim.id for claim in LEDGER.claims if recorded & set(claim.runs) and not claim.where] == []


def test_the_page_is_the_ledger() -> None:
    assert (ROOT / "CLAIMS.md").read_text(encoding="utf-8") == page(LEDGER)
