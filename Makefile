# wattkeeper: every task of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Coverage is collected from the tests and from the operator processes they start.
PYTEST_FLAGS ?= --durations=15 --durations-min=1

export PYTHONUNBUFFERED := 1

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# ---- what everything rests on -------------------------------------------------------------------

.PHONY: system
system: ## Install the system packages that are missing (Debian-like; asks nothing)
	@scripts/system-packages base test prometheus image

$(VENV)/.installed: requirements-dev.lock pyproject.toml
	@scripts/system-packages base
	@echo "==> Python environment ($(VENV))"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: venv
venv: $(VENV)/.installed ## The Python environment, from the hash-locked dependencies

.PHONY: binaries
binaries: venv ## Build etcd, Kubernetes, kwok and helm from Go modules (cached; about 20 min the first time)
	@$(BIN)/python -m tests.cluster build

# ---- the product at work ------------------------------------------------------------------------

.PHONY: demo
demo: venv binaries ## The main job, on a real control plane with a mixed fleet of fake GPU nodes
	@$(BIN)/python scripts/demo.py

.PHONY: cluster-up cluster-down
cluster-up: venv binaries ## Start the local cluster and print its kubeconfig
	@$(BIN)/python -m tests.cluster up
cluster-down: venv ## Stop the local cluster
	@$(BIN)/python -m tests.cluster down

# ---- checks -------------------------------------------------------------------------------------

.PHONY: test
test: lint verify test-unit test-integration test-e2e test-image ## Everything that CI runs
	@echo "==> all green"

.PHONY: lint
lint: venv ## ruff, mypy --strict, import contracts
	@echo "==> lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

.PHONY: verify
verify: venv ## Fail when a generated file is stale
	@echo "==> generated files"
	@$(BIN)/python -m wattkeeper.api.generate --check
	@$(BIN)/wattkeeper-predictor model-card | diff -u docs/model-card.md - \
	  || { echo "docs/model-card.md is stale: run .venv/bin/wattkeeper-predictor model-card --out docs/model-card.md"; exit 1; }

.PHONY: generate
generate: venv ## Make the generated files anew (CRDs, also the chart's copy)
	@$(BIN)/python -m wattkeeper.api.generate

.PHONY: test-unit
test-unit: venv ## Unit, property and golden tests, and those on the measured data (WATTKEEPER_DATA)
	@scripts/system-packages test
	@echo "==> unit tests"
	@$(PYTEST) tests/unit -m "not full" -n 2 --cov --cov-report=term:skip-covered $(PYTEST_FLAGS)

.PHONY: test-integration
test-integration: venv ## Telemetry through a real Prometheus; the activator in front of real servers
	@scripts/system-packages test prometheus
	@echo "==> integration tests"
	@$(PYTEST) $(wildcard tests/integration tests/telemetry) -m "not full" $(PYTEST_FLAGS)

.PHONY: test-e2e
test-e2e: venv ## Tests on a real control plane (or on WATTKEEPER_TEST_KUBECONFIG)
	@scripts/system-packages test
	@$(BIN)/python -m tests.cluster build
	@echo "==> e2e tests"
	@$(PYTEST) tests/e2e -m "not full" $(PYTEST_FLAGS)

.PHONY: test-image
test-image: venv ## Build the container image on a locally made base, and run it
	@scripts/system-packages image
	@echo "==> image tests"
	@$(PYTEST) tests/image -m "not full" -s $(PYTEST_FLAGS)

.PHONY: test-full
test-full: venv binaries ## The long figures too
	@$(PYTEST) tests $(PYTEST_FLAGS)

.PHONY: bench
bench: venv ## Benchmarks, as JSON
	@$(BIN)/python -m tests.bench

# ---- upkeep -------------------------------------------------------------------------------------

DATA ?= $(WATTKEEPER_DATA)
.PHONY: train
train: venv ## Train the shipped predictor artifacts anew (DATA=folder of the measured runs)
	@test -n "$(DATA)" || { echo "say where the measured runs are: make train DATA=FOLDER (see docs/model-card.md)"; exit 2; }
	@$(BIN)/wattkeeper-predictor train --recipe wattgpu --runs "$(DATA)/wattgpu/watt_counts_runs.csv" \
	  --models "$(DATA)/wattgpu/model_features.csv" --gpus "$(DATA)/wattgpu/gpu_features.csv" \
	  --out predictor/wattkeeper_predictor/artifacts/wattgpu
	@$(BIN)/wattkeeper-predictor model-card --out docs/model-card.md

.PHONY: catalogue
catalogue: venv ## Build the catalogues of GPUs and models anew (DATA=folder of the measured data)
	@test -n "$(DATA)" || { echo "say where the data is: make catalogue DATA=FOLDER"; exit 2; }
	@$(BIN)/wattkeeper-predictor catalogue build --data "$(DATA)"

.PHONY: lock
lock: ## Resolve and lock the dependencies with hashes (needs uv)
	@uv pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header -q --python-version 3.11 -o requirements.lock
	@uv pip compile pyproject.toml --group dev -c requirements.lock --generate-hashes --no-emit-index-url --no-header -q \
	  --python-version 3.11 -o requirements-dev.lock
	@echo hatchling==1.28.0 | uv pip compile - -c requirements-dev.lock --generate-hashes --no-emit-index-url --no-header -q \
	  --python-version 3.11 -o requirements-build.lock

.PHONY: format
format: venv ## Format and fix what ruff can
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

.PHONY: clean
clean: ## Remove the environment and caches of this checkout (the built binaries stay in the user's cache)
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist .coverage*
