# Claim2Core: everything a clean clone needs.
#
#   make demo    set up and run the main job      make lint   static checks
#   make test    set up and run the tests         make bench  figures beside a Go peer
#   make e2e     the long tier on real runtimes   make clean  remove what was built here
#
# SUDO-less: run as root to use the real containerd and kernel; without root the embedded
# runtime is used and the real tiers skip by name.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup setup-python setup-runtime demo test lint bench e2e proto fuzz clean

help:
	@sed -n '3,7p' Makefile | cut -c3-

setup: setup-python setup-runtime

setup-python: $(STAMP)

$(STAMP): pyproject.toml e2e/setup/python.sh
	@e2e/setup/python.sh "$(PYTHON)" "$(VENV)"
	@touch $@

# Each script says in one line what it made, or why it cannot be had here.
setup-runtime: setup-python
	@e2e/setup/runtime.sh

.PHONY: bpf
bpf:
	@e2e/setup/bpf.sh
	@e2e/setup/bpf-objects.sh

demo: setup
	@$(BIN)/nri-claim2core demo $(ARGS)

test: setup
	@$(PYTEST) tests e2e -m "not long" $(ARGS)

lint: setup-python
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@e2e/setup/gen-proto.sh --check

e2e: setup
	@$(PYTEST) e2e $(ARGS)

bench: setup
	@$(BIN)/python -m e2e.bench $(ARGS)

fuzz: setup-python
	@$(BIN)/python -m tests.fuzz.fuzz_decoders $(ARGS)

proto: setup-python
	@e2e/setup/gen-proto.sh

clean:
	@rm -rf $(VENV) build dist nri_claim2core/bpfmap/objects .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
