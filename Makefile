# make run        set up and run the reference scenario
# make check      style, types, layers and quick tests, in a minute
# make test       set up and run every check
# make prove      the long proofs: many seeds, many cells; the tests run a sample of each
# make mutants    do 400 small wrongs to the program, one at a time, and say which no test tells (continues)
# make reference  write the generated docs pages and the output shown in the docs anew
# make fuzz       feed every reader 100,000 spoiled files (half an hour)
# make docs       build the docs site into site/
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Some tests wait for processes of their own more than they work: three of them keep two cores busy.
WORKERS := $(shell $(PYTHON) -c "import os; print(max(2, 3 * (os.cpu_count() or 2) // 2))")
# Every worker of the tests reads some six hundred modules: what was compiled of them is kept.
unexport PYTHONDONTWRITEBYTECODE
PROPERTIES := tests/demand tests/engine tests/finance tests/output tests/physics tests/run
QUICK  := tests/finance tests/engine tests/physics tests/test_units.py tests/test_errors.py tests/test_yaml_io.py

.PHONY: run check test types suite prove mutants fuzz bench reference docs clean
run: $(VENV)/installed
	$(BIN)/planner run scenarios/fleet-2026.yaml

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n auto --dist worksteal -m 'not slow and not prove' $(QUICK)

test: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory -j 2 types suite

# The types take one core a minute, so they are checked beside the tests.
types: $(VENV)/installed-dev
	$(BIN)/mypy

suite: $(VENV)/installed-dev
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

prove: $(VENV)/installed-dev
	$(BIN)/pytest -n auto --dist worksteal -m prove
	$(BIN)/pytest -n auto --dist worksteal --hypothesis-profile=many $(PROPERTIES)
	$(BIN)/python -m tests.requests.agreement
	$(BIN)/python -m tests.sizing.single_plans

mutants: $(VENV)/installed-dev
	$(BIN)/python -m tests.mutants

reference: $(VENV)/installed-dev
	$(BIN)/python -m docs.generate docs/reference
	$(BIN)/python -m tests.docs.refresh

docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fuzz: $(VENV)/installed-dev
	$(BIN)/python -m tests.fuzz --count 100000

bench: $(VENV)/installed-dev
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'planner needs Python 3.11 or newer: make PYTHON=/path/to/python3.11'; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "the venv module is missing; on Debian it is a package of its own, installing it"; \
	  $$(command -v sudo) apt-get install -y python3-venv && $(PYTHON) -m venv $(VENV); }

# What the first run imports is compiled then: a third less to wait for than all of every library.
$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[ui]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,ui]'
	@touch $@ $(VENV)/installed
