"""Textbook facts that more than one theorem cites; a human must accept each of them once."""

from .theorem import Step

LOG_TANGENT = Step("x − 1 − log x ≥ 0 for every x > 0.", kind="cited")
TANGENTS = Step("A convex function lies above its tangents.", kind="cited")
GIBBS = Step("A KL divergence is never negative (Gibbs' inequality).", kind="cited")
TAYLOR = Step(
    "Taylor's theorem with integral remainder: D(s) − D(0) − s D′(0) is the integral of (s − τ) D″(τ) over τ "
    "from 0 to s.",
    kind="cited",
)
