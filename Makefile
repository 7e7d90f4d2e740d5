# Everything starts from a fresh clone: each target makes what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Tests and benchmarks run in several processes; threads of BLAS would only fight them.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1

# Where data files that may not ship lie, for the experiments.
FFERM_DATA_HOME ?= ../shared/data

# What is held to the same numbers with the instructions of any processor.
PORTABLE := $(wildcard tests/laws tests/parity tests/reference tests/golden)

.PHONY: demo test test-portable slow mutate check bench reproduce docs build clean

demo: $(VENV)/demo
	$(BIN)/python examples/demo.py

test: test-portable
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto

# Compiled code of the two kinds is kept apart.
test-portable: $(VENV)/dev
	$(ONE_THREAD) NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)/numba-plain \
		$(BIN)/python tests/plain_processor.py -n auto $(PORTABLE)

slow: $(VENV)/dev
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto -m slow

# Mutants of the core, other ones every day; SEED draws those of a day or number again.
mutate: $(VENV)/dev
	$(ONE_THREAD) $(BIN)/python tests/mutation/run.py --seed $(or $(SEED),$(shell date +%Y%m%d)) \
		--sample $(or $(SAMPLE),120) --session $(VENV)/mutants.sqlite

check: $(VENV)/dev
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m codespell_lib

bench: $(VENV)/dev
	$(ONE_THREAD) $(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.write

# The paper's figures in their small size; SIZE=full is what the documentation shows.
reproduce: $(VENV)/dev
	$(ONE_THREAD) $(BIN)/python -m fferm.lab.experiments --size $(or $(SIZE),small) \
		--data-home $(FFERM_DATA_HOME) --out docs/paper/results

docs: $(VENV)/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The sdist, and the wheel that is made from it, in dist/.
build: $(VENV)/dev
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) site dist report.html report.png
	find src -name '*.nbi' -o -name '*.nbc' | xargs rm -f

$(VENV)/demo: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[report]'
	touch $@

$(VENV)/dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[all,dev]'
	touch $@ $(VENV)/demo

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
