# make run                 set up .venv, simulate the GEMM program, print a report, serve the dashboard
# make run ARGS=--no-serve stop after the report
# make test                set up .venv and run every test
# make lint | bench | clean

VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
TESTS  ?= tests
JOBS   ?= 2

# The first interpreter that starts, is 3.11 to 3.13 and can make a virtual environment.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& { command -v $$p; break; }; done)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test lint bench clean

run: $(VENV)/installed
	@echo "Simulating gemm (a first run compiles for up to a minute)" >&2
	@$(BIN)/h100sim run gemm --serve $(ARGS)

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n $(JOBS) $(TESTS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed-dev
	@for b in benchmarks/bench_*.py; do echo "== $$b"; $(BIN)/python -m "benchmarks.$$(basename $$b .py)" || exit 1; done

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "h100sim: Python must be 3.11, 3.12 or 3.13 with the venv module, and none was found" \
	"(Debian: apt-get install python3-venv; or make PYTHON=/path/to/python3.12 ...)" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

# A stamp per set of packages: pip runs again only after pyproject.toml has changed. Bytecode is made of the modules that
# are imported, and not of all that plotly has.
$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --no-compile -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --no-compile -e '.[dev]'
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
