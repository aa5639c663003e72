# Headrace: `make help` lists what there is. Everything happens in .venv, from the pinned requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
EXAMPLE ?= examples/tour.yaml
CASES ?= 100000
MINUTES ?= 10
SEED ?= 1
DATABASE ?= sqlite

.DEFAULT_GOAL := help
.PHONY: help setup ui run test test-ui fuzz lint format bench chaos mutants docs lua lock clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## the virtual environment with .venv/bin/headrace

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

UI_SOURCES := $(shell find ui/src ui/public -type f -not -name schema.d.ts 2>/dev/null) $(wildcard ui/*.html ui/*.json ui/*.ts ui/*.py)
UI := src/headrace/api/static/index.html

ui: $(UI) ## build the web UI into the package; needs Node 20 and npm

$(UI): $(STAMP) $(filter-out ui/openapi.json,$(UI_SOURCES)) $(wildcard src/headrace/api/*.py src/headrace/api/routes/*.py)
	@command -v npm >/dev/null || { echo "make ui needs Node 20 and npm; all else works without it"; exit 1; }
	cd ui && npm ci --no-audit --no-fund
	$(BIN)/python ui/openapi.py > ui/openapi.json
	cd ui && npm run generate && npm run check && npm run build

run: setup ## run an example workflow to its end on the embedded engine
	$(BIN)/headrace run $(EXAMPLE) --handlers examples.handlers

test: setup ## the whole suite, against a real embedded Valkey
	$(BIN)/python -m pytest -n auto --dist worksteal

test-ui: ui ## the web UI in a real browser; needs Chromium (CHROMIUM=/usr/bin/chromium)
	node --test tests/ui/journey.test.mjs

fuzz: SEED = $(shell date +%s)
fuzz: setup ## Schemathesis on the API, at random: make fuzz CASES=100000 SEED=1
	FUZZ_CASES=$(CASES) FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -n auto --dist worksteal -rP tests/acceptance/api/test_fuzz.py

lint: setup ## ruff, mypy and the layers of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup ## let ruff put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## speed and growth as ratios to the bare bus, in one run
	$(BIN)/python -m bench

chaos: setup ## break everything on purpose: MINUTES=10 SEED=1 DATABASE=sqlite|postgresql [RECORD=file]
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --seed $(SEED) --database $(DATABASE) $(if $(RECORD),--record $(RECORD))

mutants: setup ## put deliberate bugs into a copy of the engine, one at a time: the checker must catch each [RECORD=file]
	$(BIN)/python -m tests.chaos.mutants $(if $(RECORD),--record $(RECORD))

docs: setup ## write the generated parts of docs/reference
	@$(BIN)/python -m docs.generate

lua: setup ## print the assembled function library
	@$(BIN)/python -m headrace.hot.library

lock: setup ## resolve the dependencies anew into requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --python-version 3.11 --quiet -o requirements.lock

clean: ## remove the environment and what runs left behind
	rm -rf $(VENV) .headrace .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
