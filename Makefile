# `make` lists the targets. Everything runs from .venv, which `make setup` keeps up to date.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

BIN := .venv/bin
PYTHON := $(BIN)/python
CODE := src $(wildcard tests benchmarks scripts)
SITE := build/site
N ?= 20000
SEED ?=

.PHONY: help setup demo test check bench docs clean simulate soak lock

help: ## List the targets
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make or update .venv; returns at once when nothing changed
	@scripts/setup.sh

demo: setup ## A pipeline on Spark, a run killed and resumed, a log replayed, verified, tampered with
	@scripts/demo.sh

test: setup ## Run every test suite
	@$(PYTHON) scripts/emulators.py all
	@$(PYTHON) scripts/run_tests.py

check: setup ## Formatting, lint, types, imports between rooms, shape, docs
	$(BIN)/ruff format --check --quiet $(CODE)
	$(BIN)/ruff check --quiet $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo
	$(PYTHON) scripts/check_shape.py src
	@$(MAKE) --no-print-directory docs

bench: setup ## Run every benchmark against its reference and print a table
	@$(PYTHON) -m benchmarks all

docs: setup ## Build the documentation into build/site
	$(PYTHON) scripts/generate_reference.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --clean --site-dir $(SITE)
	$(PYTHON) scripts/check_site.py $(SITE)

simulate: setup ## Run N=20000 seeded fault schedules [SEED=...]
	@$(PYTHON) -m tests.simulation --schedules $(N) $(if $(SEED),--seed $(SEED))

soak: setup ## Run 2000 executions while every kind of process is killed, and a long outage; takes about an hour [SEED=...]
	NOETL_OUTAGE_SECONDS=60 $(PYTHON) -m pytest -q -n 0 tests/distributed/test_outages.py
	@$(PYTHON) -m tests.distributed.soak --executions 2000 $(if $(SEED),--seed $(SEED))

lock: ## Resolve requirements/*.lock again from pyproject.toml
	@scripts/lock.sh

clean: ## Remove .venv and everything the tools made; never touches a .noetl home
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src $(wildcard tests benchmarks scripts examples) -type d -name __pycache__ -prune -exec rm -rf {} +
