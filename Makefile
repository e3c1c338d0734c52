# Two commands do everything on a fresh machine: 'make demo' and 'make test'.
# Every target creates .venv when it is absent and installs the pinned versions of constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Real data sets beside the checkout are used when they are there.
ifneq ($(wildcard ../shared/data),)
export FEWVIEW_DATA ?= $(abspath ../shared/data)
endif

# A hundred processes of the tests would compile the package again, each for itself, where somebody
# has switched compiled files off; 'make clean' removes them.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo docs results test parity lint types clean
.DEFAULT_GOAL := help

help:
	@echo "make install   create .venv with pinned versions"
	@echo "make demo      run the main job on the embedded data"
	@echo "make test      tests, lint and types"
	@echo "make parity    checks from outside, by ../shared/tools; some: make parity GROUPS='tasks reading'"
	@echo "make docs      the documentation as a site in build/docs"
	@echo "make results   results page, tables and picture of the README, from recorded results"
	@echo "make clean     remove .venv, caches and outputs"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: install
	$(BIN)/fewview run --output demo

test: install lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile

PARITY := $(wildcard ../shared/tools/parity.py)
parity: $(if $(PARITY),install)
	$(if $(PARITY),$(BIN)/python $(PARITY) $(GROUPS),@echo "skipped: no ../shared")

docs: install
	$(BIN)/python docs/_tools/build.py

results: install
	$(BIN)/python benchmarks/make_results.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

clean:
	rm -rf $(VENV) demo build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
