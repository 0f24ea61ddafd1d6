# Every target works on a fresh clone with Python >= 3.11, make and a package index; nothing else is needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

.DEFAULT_GOAL := help
.PHONY: help verify test lint types slow mutation bench lock clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

verify: $(VENV)/core  ## prove every theorem and check it against the exact simulators (core packages only)
	$(BIN)/divsim verify

test: lint types  ## lint, types and the quick test suite, with torch
	$(PYTEST) -m "not slow"

lint: $(VENV)/dev  ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev  ## mypy --strict on divsim/ and derivations/
	$(BIN)/mypy divsim derivations

slow: $(VENV)/dev mutation  ## the long tests, and mutation testing of the formulas
	$(PYTEST) -m slow

mutation: $(VENV)/dev  ## at least 95 % of the mutants of divsim/formulas/ must be killed
	$(BIN)/python tests/mutation.py

bench: $(VENV)/dev  ## measure the commands, imports and formulas into benchmarks/
	$(BIN)/python benchmarks/timings.py
	$(BIN)/python benchmarks/direction.py
	$(BIN)/python benchmarks/learner.py
	$(BIN)/python benchmarks/lm.py

lock: $(VENV)/dev  ## write constraints.txt anew from the installed environment
	{ sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.new
	mv constraints.new constraints.txt

clean:  ## remove the environment and everything that is made
	rm -rf $(VENV) build dist mutants .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) --editable .
	@touch $@

$(VENV)/dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) --editable '.[lm,dev]'
	@touch $@ $(VENV)/core
