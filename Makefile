# partita: make help lists the targets. The first one that needs it makes .venv from pyproject.toml and constraints.txt.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.installed-docs
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: demo test lint types bench bench-check docs clean help

demo: $(STAMP) ## compare nine families on the digits within five minutes: a leaderboard and a page
	@$(BIN)/python -m partita.cli.demo

test: $(STAMP) ## run all tests and doctests
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -q

lint: $(STAMP) ## check the style
	@$(BIN)/ruff check .

types: $(STAMP) ## check the types
	@$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(STAMP) ## compare speed and quality with peers, into benchmarks/results.json
	@$(BIN)/python benchmarks/run.py

bench-check: $(STAMP) ## run the quick ones again and fail where a ratio got worse
	@$(BIN)/python benchmarks/run.py --quick --check

docs: $(DOCS) ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove the environment, caches and built files
	@rm -rf $(VENV) site dist build .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' Makefile

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
