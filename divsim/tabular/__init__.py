"""Exact tabular worlds: everything is enumerated, nothing is sampled but the seeds.

Import the modules by name, `from divsim.tabular import worlds`:

- `policies`: random pairs (mu, pi), from flat to as peaked as a language model;
- `geometry`: what a step on one token is, in four geometries;
- `one_step`, `ladder`: the step taken exactly, and the order of a prediction's remainder;
- `worlds`: finite-horizon decision processes by dynamic programming;
- `trees`, `tree_pairs`: token trees with an outcome reward, all sequences enumerated;
- `check`, `simulations`: the numerical checks of every theorem, one `verify_*` module for each idea.
"""
