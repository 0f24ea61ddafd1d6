"""Experiments: one question per file, each a frozen `Config`, a `run`, and what shows its result."""
