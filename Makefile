# Everything below works from a bare checkout with git, make and Python 3.11 or newer.
# Another interpreter: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
WORKERS ?= 2

.PHONY: help demo test lint bench audit fuzz test-engines clean

help:
	@echo "make demo          release a synthetic copy of 336,776 real flights and compare it with the truth"
	@echo "make test          lint, types, and the tests"
	@echo "make bench         the benchmarks: speed and accuracy against stated figures"
	@echo "make audit         the statistical privacy audits"
	@echo "make fuzz          hostile releases, domains and queries: 10 minutes or a million inputs each"
	@echo "make test-engines  the tests that need a distributed engine"
	@echo "make clean         remove the environment and everything generated"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: PYTHON: '$(PYTHON)' is refused; must be Python 3.11 or newer"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# A stamp is newer than the files that say what to install, so a second run installs nothing.
INSTALLED := setup.py pyproject.toml $(wildcard beam_dp/hashing/_kernel*.[ch])
$(VENV)/.stamp-demo: $(INSTALLED) | $(BIN)/python
	$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.stamp-test: $(INSTALLED) | $(BIN)/python
	$(PIP) --editable '.[demo,test]'
	@touch $@ $(VENV)/.stamp-demo

demo: $(VENV)/.stamp-demo
	$(BIN)/python examples/flights.py

lint: $(VENV)/.stamp-test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

test: lint
	$(BIN)/python -m pytest -n $(WORKERS)

# Pytest's exit code 5 means that no test has the marker yet: said plainly, not passed off as a success.
define run_marked
	@$(BIN)/python -m pytest -m $(1); code=$$?; \
	if [ $$code -eq 5 ]; then echo "nothing to run: no test is marked '$(1)' yet"; \
	else exit $$code; fi
endef

# The whole of it takes long: `python benchmarks/NAME.py --help` tells what else there is.
bench: $(VENV)/.stamp-test
	$(BIN)/python benchmarks/distributed_pass.py --quick
	$(BIN)/python benchmarks/hashing.py --quick
	$(BIN)/python benchmarks/accuracy.py wide --ways 2 --epsilon 1 --delta 1e-9 --runs 1
	$(BIN)/python benchmarks/intervals.py sizes --measured 64
	$(BIN)/python benchmarks/sparse_release.py --quick
	$(BIN)/python benchmarks/sparse_grid.py --quick
	@if [ -n "$$BEAM_DP_DATA" ]; then set -x; \
	  $(BIN)/python benchmarks/accuracy.py nltcs --ways 3 --epsilon 1 --delta 1e-9 --runs 3; \
	else echo "accuracy: skipped, BEAM_DP_DATA is not set"; fi

audit: $(VENV)/.stamp-test
	$(BIN)/python -m pytest -q -m audit -n $(WORKERS) tests

# Without atheris, which has no wheel for every machine, inputs are random instead of guided.
FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.stamp-test
	-$(PIP) --editable '.[fuzz]'
	for target in read_release read_sparse_release parse_domain parse_workload; do \
	  $(BIN)/python tests/fuzz/run.py $$target --seconds $(FUZZ_SECONDS) || exit 1; \
	done

test-engines: $(VENV)/.stamp-test
	$(call run_marked,engines)

clean:
	rm -f beam_dp/hashing/*.so
	rm -rf $(VENV) demo-output build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
