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

.PHONY: help install demo docs results reproduction test test-matrix record check-face dist check-dist licences bench lint types clean
.DEFAULT_GOAL := help

help:
	@echo "make install   create .venv with pinned versions"
	@echo "make demo      run the main job on the embedded data"
	@echo "make test      tests, lint and types"
	@echo "make test-matrix  every Python, oldest and newest libraries: what is not known yet; hours"
	@echo "make record    record again what is public, and the digits that doctor compares with"
	@echo "make check-face  a parameter renamed in a copy: which test fails, and what it says"
	@echo "make dist      wheel and source archive in dist/; make check-dist tries the wheel elsewhere"
	@echo "make licences  table of the licences of all dependencies and data"
	@echo "make bench     how fast everything is here, against its floor; several minutes"
	@echo "make docs      the documentation as a site in build/docs"
	@echo "make results   results page, tables and picture of the README, from recorded results"
	@echo "make reproduction  pages of the paper's tables, figures and claims, from recorded results"
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

test-matrix: install
	$(BIN)/python release/matrix.py $(MATRIX)

record: install
	$(BIN)/python release/digits.py
	$(BIN)/python tests/test_face.py record

check-face: install
	$(BIN)/python release/renamed.py

dist: install
	$(BIN)/python release/artefacts.py build

check-dist: dist
	$(BIN)/python release/artefacts.py check

licences: install
	$(BIN)/python release/licences.py

bench: install
	$(BIN)/python benchmarks/table.py
	$(BIN)/python benchmarks/page.py

docs: install
	$(BIN)/python docs/_tools/build.py

results: install
	$(BIN)/python benchmarks/make_results.py

reproduction: install
	$(BIN)/python docs/_tools/published.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
