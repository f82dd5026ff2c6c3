# Every target sets itself up: `setup` builds .venv from requirements.lock and costs nothing when nothing changed.

.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
READY := .venv/.ready
JOBS ?= 5
FUZZ_RUNS ?= 100000
DELIVERIES ?= 1000000

# The stamp holds the path it was built for: a virtual environment that was moved or copied does not run.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

.PHONY: help setup demo airline test test-long test-tools lint types unit bench bench-audit fuzz format lock clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY) ## build .venv with the locked versions (quick when nothing changed)

$(READY): requirements.lock pyproject.toml scripts/setup
	@scripts/setup .venv
	@printf '%s\n' '$(CURDIR)' > $@

demo: setup ## five real daemons through kill -9, a partition, a heal and a restart
	@$(BIN)/transis demo

airline: setup ## two partitions sell seats; the archive says which flights are oversold and who is rebooked
	@$(BIN)/python -m examples.airline

# What must not change is in tests/house/lock.json; after a change that is meant: .venv/bin/python -m tests.house.lock --write
test: lint types unit ## everything that must be green: ruff, mypy --strict, pytest

lint: setup ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy --strict over src
	$(BIN)/mypy --strict src

test-tools: setup # a browser and `ip`, if they are missing and may be installed; and what makes Java start in half the time
	@scripts/test-tools
	@$(BIN)/python -m transis.spark.session

unit: test-tools ## pytest in JOBS processes (5 unless told: some compute with Spark, others mostly wait; tests/packing.py)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --durations 10

test-long: test-tools ## the longer brothers of some tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m long

bench: setup ## how fast the simulator is on this machine
	$(BIN)/python -m bench.simulator

bench-audit: setup ## how long an audit takes, and how much memory (DELIVERIES=1000000)
	$(BIN)/python -m bench.audit --deliveries $(DELIVERIES)

fuzz: setup ## coverage-guided fuzzing of every decoder (FUZZ_RUNS=100000)
	$(BIN)/python tests/fuzz/fuzz_wire.py -runs=$(FUZZ_RUNS)

format: setup ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## choose the newest versions again and write requirements.lock (needs uv)
	uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --all-extras --python-version 3.11 \
		pyproject.toml --output-file requirements.lock

clean: ## remove what was built
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* htmlcov build dist out
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
