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
SOAK ?= 10
PROCESSES ?= $(shell echo $$((2 * $$(nproc 2>/dev/null || sysctl -n hw.ncpu))))  # tests wait as much as they compute

.DEFAULT_GOAL := help
.PHONY: help setup ui run dev test test-ui fuzz lint format bench \
  bench-full bench-peers bench-guards bench-inside bench-instructions bench-plots chaos mutants docs lua lock clean lint-ui ui-if-npm speed-ui screenshots

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(STAMP) ## the virtual environment with .venv/bin/headrace

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

UI := src/headrace/api/static/index.html
UI_SOURCES := $(shell find ui/src ui/public -type f -not -name schema.d.ts) $(wildcard ui/*.html ui/vite.config.ts)
MODULES := ui/node_modules/.stamp

ui: lint-ui $(UI) ## check the web UI and build it into the package; needs Node 20 and npm

$(MODULES): ui/package-lock.json
	@command -v npm >/dev/null || { echo "the web UI needs Node 20 and npm; all else works without it"; exit 1; }
	cd ui && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(UI): $(MODULES) $(UI_SOURCES)
	@echo "building the web UI"
	cd ui && npm run --silent build

lint-ui: $(STAMP) $(MODULES)
	$(BIN)/python ui/openapi.py > ui/openapi.json
	cd ui && npm run --silent generate && npm run --silent check

ui-if-npm: # what the others need of it: built if it can be, and never in their way
	@if ! command -v npm >/dev/null; then echo "no npm here: the web UI is left out, all else works"; \
	else $(MAKE) -s --no-print-directory $(UI) || echo "the web UI could not be built; all else works"; fi

run: setup ui-if-npm ## run an example workflow to its end on the embedded engine
	$(BIN)/headrace run $(EXAMPLE) --handlers examples.handlers

dev: setup ui-if-npm ## the whole service with the web UI, on http://127.0.0.1:8080
	$(BIN)/headrace dev --handlers examples.handlers

test: setup ui-if-npm ## the whole suite, against a real Valkey and a real PostgreSQL
	$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal

test-ui: ui ## the web UI in a real browser; needs Chromium (CHROMIUM=/usr/bin/chromium)
	node --test tests/ui/*.test.mjs

speed-ui: $(UI) ## how quick the web UI is, at 200 changes a second
	node tests/ui/speed.mjs

screenshots: $(UI) setup ## take the pictures of docs/images anew
	node tests/ui/screenshots.mjs

fuzz: SEED = $(shell date +%s)
fuzz: setup ## Schemathesis on the API, at random: make fuzz CASES=100000 SEED=1
	FUZZ_CASES=$(CASES) FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -n auto --dist worksteal -rP tests/acceptance/api/test_fuzz.py

lint: setup ## ruff, mypy and the layers of the house; TypeScript and Biome where npm is
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory lint-ui; fi

format: setup ## let ruff (and Biome) put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(MODULES) && cd ui && npm run --silent format; fi

bench: setup ## speed and growth as ratios to the bare bus, in one run of two minutes
	$(BIN)/python -m bench

bench-full: setup ## also 100,000 nodes, 2 GiB of live executions, history, a soak: SOAK=10 (minutes)
	$(BIN)/python -m bench --full --soak $(SOAK)

PEERS := .venv-peers
PEERS_INSTALL := $(BIN)/uv pip install --quiet --python $(PEERS)/bin/python
RESTATE_SERVER := @restatedev/restate-server@1.7.12

bench-peers: $(PEERS)/.stamp ## the same workloads on other engines, which go to .venv-peers; Restate needs npm
	$(BIN)/python -m bench.peers

$(PEERS)/.stamp: $(STAMP) bench/peers/requirements.txt
	@test -x $(PEERS)/bin/python || $(BIN)/uv venv --quiet --python $(BIN)/python $(PEERS)
	-$(PEERS_INSTALL) -r bench/peers/requirements.txt || sed 's/ *#.*//' bench/peers/requirements.txt | xargs -n 1 $(PEERS_INSTALL)
	-npm install --silent --ignore-scripts --no-audit --no-fund --no-save --prefix $(PEERS) $(RESTATE_SERVER)
	@touch $@

bench-guards: setup ## what each guard costs: the engine without it, in a scratch copy
	$(BIN)/python -m bench.guards

bench-inside: setup ## where Valkey's thread spends its time
	$(BIN)/python -m bench.inside

bench-instructions: setup ## Valkey's instructions per node, by function and guard: right under any load; needs valgrind
	$(BIN)/python -m bench.instructions

bench-plots: setup ## pictures of the last figures, in bench/results and docs/images
	$(BIN)/uv run --quiet --no-project --with matplotlib==3.11.2 python -m bench.plots bench/results docs/images

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
	rm -rf $(VENV) .headrace .pytest_cache .mypy_cache .ruff_cache .hypothesis dist ui/node_modules src/headrace/api/static
