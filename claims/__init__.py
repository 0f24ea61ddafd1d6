"""The ledger of claims as data: TOML files by topic, and recorded rows of runs; read by `divsim.claims`."""
