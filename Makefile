# Claim2Core: everything a clean clone needs. Each target sets up what it uses.
#
#   make demo        the main job, on a private containerd
#   make test        the tests, except those that take minutes
#   make lint        static checks
#   make e2e         all tests on real runtimes: e2e-native, then e2e-vm
#   make e2e-native  those that run on this machine
#   make e2e-vm      those that need cgroup v2, several memory nodes or a kernel with sched_ext
#   make bench       figures beside a Go peer, and what seeding costs
#   make fuzz        coverage-guided fuzzing of the decoders
#   make proto       generate the message modules again
#   make setup       only set up (the virtual machine is made by e2e-vm)
#   make clean       remove what was built here
#
# As root the tests use a real containerd and the real kernel. Without root the demo runs on
# the built-in runtime endpoint, and tests that need root are skipped by name.
# More arguments: make test ARGS="-k envelope", make e2e-vm VM_ARGS="-- e2e/test_bed.py"

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup setup-python setup-runtime demo test lint bench e2e e2e-native e2e-vm proto fuzz \
	clean
.NOTPARALLEL:

help:
	@sed -n '3,17p' Makefile | cut -c3-

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

e2e: e2e-native e2e-vm

e2e-native: setup
	@$(PYTEST) e2e $(ARGS)

# 77: this machine cannot have the virtual machine, and the reason was printed.
e2e-vm: setup
	@$(BIN)/python -m e2e.vm $(VM_ARGS) || [ $$? = 77 ]

bench: setup
	@$(BIN)/python -m e2e.bench $(ARGS)
	@$(BIN)/python -m e2e.bench.maps || [ $$? = 3 ]

fuzz: setup-python
	@$(BIN)/python -m tests.fuzz.fuzz_decoders $(ARGS)

proto: setup-python
	@e2e/setup/gen-proto.sh

clean:
	@rm -rf $(VENV) build dist nri_claim2core/bpfmap/objects .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
