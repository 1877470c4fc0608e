# make demo    set up .venv and run a data-parallel training step on 8 devices
# make test    set up .venv and pass the tests
# make check   formatter, linter, types, import rules
# make bench   distxla beside XLA CPU, MPI, and gloo where PyTorch is installed

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name) 2>/dev/null)))
BIN := .venv/bin
PIP := PIP_CONSTRAINT=requirements/pinned.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet
PINS := pyproject.toml requirements/pinned.txt
DEMO := examples/dp_mlp

.PHONY: demo test check bench ops-table clean

demo: .venv/installed
	$(BIN)/distxla run $(DEMO)/partitioned.hlo --args $(DEMO)/args.npz --expected $(DEMO)/expected.npz --repeat 5

test: .venv/installed-all
	$(BIN)/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder

check: .venv/installed-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed-bench
	$(BIN)/python -m bench

ops-table: .venv/installed
	PYTHONPATH=. $(BIN)/python docs/update_readme.py

clean:
	rm -rf .venv build dist *.egg-info

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11; set PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python $(PINS)
	$(PIP) -e .
	@touch $@

.venv/installed-all: .venv/installed
	$(PIP) -e '.[test,lint,jax]'
	@touch $@

.venv/installed-bench: .venv/installed-all
	$(PIP) -e '.[bench]'
	@touch $@
