# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
# Extras that the README's first page uses; `make install` brings all.
DEMO := openspiel,pettingzoo,ray,tensorboard,ui
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Google Research Football has no wheel on PyPI: it is installed from a directory that has one.
LUDUS_WHEELS ?= ../shared/wheels
WHEEL := $(firstword $(wildcard $(LUDUS_WHEELS)/gfootball-*.whl))
FOOTBALL := $(VENV)/.football
export OMP_NUM_THREADS ?= 1
# Tests start many processes, which all import Ludus: compiled code is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install football demo test test-slow test-long test-trackers test-noise test-gpu search traces snapshots wheel-check docs check lint types format benchmarks clean

help:
	@echo "make demo        install, then train PSRO with PPO on Leduc poker (about two minutes)"
	@echo "make test        install everything, then the fast tests"
	@echo "make football    install Google Research Football from the wheel in LUDUS_WHEELS ($(LUDUS_WHEELS))"
	@echo "make test-slow   the slow tests"
	@echo "make test-long   the long ones, which CI leaves out: learning gates, games of packages one by one, repeated kills"
	@echo "make test-noise  the fast tests under deliberate rounding noise; NOISE=2 is another seed (docs/guides/reproduce.md)"
	@echo "make test-gpu    what can only be seen on a GPU"
	@echo "make search      the property tests, with examples that were not tried before"
	@echo "make wheel-check build a wheel, install it into an empty environment, train there; sizes and seconds"
	@echo "make traces      whether this tree computes the same numbers as commit BASE=COMMIT; ONLY=\"ppo dqn\" for some (docs/contributing/rename.md)"
	@echo "make snapshots   write anew what tests/snapshots holds of names, options, presets and schemas"
	@echo "make docs        build the documentation into site/, strictly; open site/index.html"
	@echo "make check       linter, formatter, type checker and fast tests"
	@echo "make format      rewrite the code in the project's format"
	@echo "make clean       remove .venv and caches"

install: $(STAMP)

$(CORE): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) setuptools
	-$(BIN)/python -m pip uninstall -qq --yes ludus  # what it was called until 0.1
	$(PIP) --no-build-isolation -e ".[$(DEMO)]"
	@touch $(CORE)

$(STAMP): $(CORE)
	$(PIP) --no-build-isolation -e ".[dev]"
	$(PIP) --no-deps jumanji  # it pins an old matplotlib, for its pictures
	@touch $(STAMP)

# Its own requirement pygame would overwrite pygame-ce, and gym 0.26 breaks its reset: hence --no-deps, and what it needs by name.
$(FOOTBALL): $(STAMP) $(WHEEL)
	@test -n "$(WHEEL)" || { echo "No wheel of gfootball is in $(LUDUS_WHEELS). Set LUDUS_WHEELS to a directory that has one;" \
	  "docs/environments/football.md says how it is built."; exit 1; }
	$(PIP) "gym==0.25.2" six opencv-python psutil absl-py pygame-ce
	$(PIP) --no-deps "$(WHEEL)"
	@touch $(FOOTBALL)

football: $(FOOTBALL)

demo: $(CORE)
	$(BIN)/ludus train leduc

test: install $(if $(WHEEL),football)
	$(BIN)/python -m pytest -m "not slow and not gpu" -n 2 --dist loadfile -q

test-slow: install $(if $(WHEEL),football)
	$(BIN)/python -m pytest -m "slow and not long and not gpu" -n 4 --dist loadfile -q --durations=15

test-long: install $(if $(WHEEL),football)
	$(BIN)/python -m pytest -m "long and not gpu" -n 4 --dist loadfile -q --durations=15

test-trackers: install
	$(BIN)/python -m benchmarks.trackers

NOISE ?= 1
test-noise: export LUDUS_ROUNDING_NOISE := $(NOISE)
test-noise: test

test-gpu: install
	$(BIN)/python -m pytest -m gpu -q --durations=15

search: install
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=search -n 2 --dist loadfile -q

wheel-check: install
	$(BIN)/python -m benchmarks.wheel

traces: install
	@test -n "$(BASE)" || { echo "Say which commit to compare with: make traces BASE=main"; exit 2; }
	$(BIN)/python -m benchmarks.traces $(BASE) $(if $(ONLY),--only $(ONLY))

snapshots: install
	LUDUS_REWRITE_SNAPSHOTS=1 $(BIN)/python -m pytest tests/snapshots -q -n 0

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The documentation is in site/index.html; it needs neither a server nor a network."

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/exact_comparisons.py

types: install
	$(BIN)/mypy

check: lint types test

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build site *.egg-info
