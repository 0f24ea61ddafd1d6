"""Exact tabular worlds: policies, steps, decision processes and token trees, with nothing sampled."""
