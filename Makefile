# partita: make help lists the targets. The first one that needs it makes .venv from pyproject.toml and constraints.txt.
PYTHON ?= python3
WORKERS ?= 2
THREADS ?= 1
CASES ?= 10000
ROUNDS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.installed-docs
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: demo test test-portable fuzz coverage lint types bench bench-quick bench-check docs clean help

demo: $(STAMP) ## compare nine families on the digits within five minutes: a leaderboard and a page
	@$(BIN)/python -m partita.cli.demo

# A file stays with one worker: what its tests share is made once. Those with slow tests come first (tests/conftest.py), not those with
# many. Bytecode is kept: many tests start processes, which import it all.
# TESTS="tests/training tests/truth" names some.
test: $(STAMP) ## run all tests and doctests
	@OMP_NUM_THREADS=$(THREADS) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -q $(TESTS)

# Processors round differently. torch, OpenBLAS and NumPy each have a variable that makes them compute as on another, lesser one.
WIDEST := import numpy._core._multiarray_umath as m; print(*(f for f in ("X86_V4", "AVX512_ICL", "AVX512_SPR") if m.__cpu_features__.get(f)))
test-portable: $(STAMP) ## the tests as on three other processors, one after the other
	@ATEN_CPU_CAPABILITY=default $(MAKE) test
	@ATEN_CPU_CAPABILITY=avx2 OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES="$$($(BIN)/python -c '$(WIDEST)')" $(MAKE) test
	@OPENBLAS_CORETYPE=Zen THREADS=2 $(MAKE) test

fuzz: $(STAMP) ## every night: 10,000 odd inputs (CASES=...) to estimators, commands, readers, run folders and places
	@OMP_NUM_THREADS=1 PARTITA_FUZZ_CASES=$(CASES) $(BIN)/python -m pytest -n $(WORKERS) -q --hypothesis-show-statistics tests/fuzz

coverage: $(STAMP) ## every night: whether intervals of log Z and of means cover, by 200 of each evaluator (ROUNDS=...)
	@OMP_NUM_THREADS=1 PARTITA_COVERAGE_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -n $(WORKERS) -q tests/truth/test_coverage.py tests/truth/test_hard_models.py tests/truth/test_means.py tests/evaluators/test_latent_gaps.py

lint: $(STAMP) ## check the style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || (echo "Some files are not formatted: run ruff format ." && false)

types: $(STAMP) ## check the types
	@$(BIN)/pyright --pythonpath $(BIN)/python

# ONLY="pcd_step imports" names some. GNU make takes --check for its own --check-symlink-times, L, which nothing else here needs.
CHECK ?= $(findstring L,$(firstword -$(MAKEFLAGS)))
BENCH := $(BIN)/python benchmarks/run.py

bench: $(STAMP) ## compare speed and quality with peers: results.json and a page; --check fails where a ratio got worse
	@$(BENCH) $(if $(QUICK),--quick) $(if $(CHECK),--check) $(ONLY)

bench-quick: $(STAMP) ## only those that take about a minute each, as make bench QUICK=1
	@$(BENCH) --quick $(if $(CHECK),--check) $(ONLY)

bench-check: $(STAMP) ## run those again and fail where a ratio got worse, as make bench QUICK=1 CHECK=1
	@$(BENCH) --quick --check $(ONLY)

docs: $(DOCS) ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove the environment, caches and built files
	@rm -rf $(VENV) site dist build .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' Makefile

# torch goes first, alone: resolved together with the rest it can come as a far larger build.
$(STAMP): pyproject.toml constraints.txt
	@echo "Making $(VENV) (once; a minute or two) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) "$$(grep '^torch==' constraints.txt)"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

$(DOCS): $(STAMP)
	@$(INSTALL) --editable '.[docs]'
	@touch $@
