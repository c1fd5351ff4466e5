# Everything starts from here: each target sets up what it needs in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CORE_SOURCES := pyproject.toml CMakeLists.txt $(shell find cpp -name '*.h' -o -name '*.cpp')
CPP_SOURCES := $(shell find cpp -name '*.h' -o -name '*.cpp')

.PHONY: help setup test check format bench clean

help:
	@echo "make test    set everything up, check the code, run the tests"
	@echo "make bench   set everything up, measure the engine against Gymnasium's on this machine"
	@echo "make check   linters and type checker only"
	@echo "make format  lay the code out"

# torch first and pinned: any other package that asks for it would take the newest, with its CUDA libraries.
$(VENV)/.created: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	$(PIP) install --quiet torch -c constraints.txt
	$(PIP) install --quiet "scikit-build-core>=0.10" "nanobind>=2.2" "numpy>=2.0" ninja cmake
	@touch $@

# Editable: Python sources are used where they lie; only a change of the C++ core builds again.
$(VENV)/.installed: $(VENV)/.created $(CORE_SOURCES)
	$(PIP) install --quiet --no-build-isolation --editable ".[dev]" -c constraints.txt
	@touch $@

setup: $(VENV)/.installed

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP_SOURCES)

test: check
	$(BIN)/python -m pytest

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP_SOURCES)

bench: setup
	$(BIN)/python benchmarks/engine.py --json benchmarks/results/engine.json

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
