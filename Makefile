# make demo    set up .venv and run a data-parallel training step on 8 devices
# make test    set up .venv and pass the tests; `make quick`: those that take no cluster and no long time, SHARE=1/2 for
#              one half of them; `make test-all`: also the long random and the exhaustive ones; ARGS=--times for
#              processor times by folder, ARGS='-k infeed' for other options of pytest
# make check   formatter, linter, types, import rules
# make fuzz    fuzz the readers of text, .npz files, frames and cache entries, by coverage: SECONDS=600 in all
# make fuzz-xla  random programs against XLA CPU: MODULES=1000 of them, others for another SEED; TARGET=nvptx: their
#              kernels for a GPU
# make simulate  the runtime's protocols under 10,000 seeds, on virtual time; SEEDS=500 for fewer (docs/simulation.md)
# make rays    every tested version of Ray in an environment of its own; RAYS='2.61.0' for others
# make jaxes   every tested version of JAX, likewise; JAXES='0.13.0' for others
# make chaos   200 kills, stops and interrupts of real processes; CHAOS='--count 50 --seed 7' for others, '--only processes'
#              for those of several JAX processes. What is
#              known of those that went wrong is kept in build/chaos/
# make gpu-check  four minutes on a machine with an NVIDIA GPU (docs/guide/gpu.md); without Ray or make it is
#              `python -m tests.gpu_check`
# make all     before a change is called done: check, docs, simulate, test-all, chaos and fuzz
# make docs    the documentation as a site with a search: build/docs/index.html, readable without a network
# make bench   distxla beside XLA CPU, MPI, and gloo where PyTorch is installed; ARGS="--only start" for one table
#
# The newest of Python 3.13, 3.12 and 3.11 that this machine has is used. PYTHON=/path/to/python names another one;
# VENV=.venv-3.12 keeps its environment beside the first.

PYTHON ?= $(shell requirements/pythons | head -n 1)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := PIP_CONSTRAINT=requirements/pinned.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet
PINS := pyproject.toml requirements/pinned.txt
# of pytest; on two processors a fourth one costs more than it brings
WORKERS ?= $(shell [ "$$(nproc 2>/dev/null || echo 4)" -gt 2 ] && echo 4 || echo 3)
# what pytest makes of the tests' code is kept for the next run
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder $(if $(FAILURES),--failures=$(FAILURES))
DEMO := examples/dp_mlp
SEEDS ?= 10000
SECONDS ?= 600
MODULES ?= 1000
SEED ?= 1

# an environment of another Python than the one that the command line names is made again
ifeq ($(origin PYTHON),command line)
VERSION := -c 'import sys; print(sys.version)'
ifneq ($(shell $(PYTHON) $(VERSION)),$(shell $(BIN)/python $(VERSION) 2>/dev/null))
.PHONY: $(BIN)/python
endif
endif

.PHONY: demo test test-all all quick check fuzz fuzz-xla rays jaxes simulate chaos gpu-check bench docs ops-table clean

demo: $(VENV)/installed
	$(BIN)/distxla run $(DEMO)/partitioned.hlo --args $(DEMO)/args.npz --expected $(DEMO)/expected.npz --repeat 5

test: $(VENV)/installed-all
	$(PYTEST) -m "not exhaustive" $(ARGS)

test-all: $(VENV)/installed-all
	$(PYTEST) --slow-marks $(ARGS)

all: check docs simulate test-all chaos fuzz

quick: $(VENV)/installed-quick
	$(PYTEST) -m "not slow and not cluster and not exhaustive" $(if $(SHARE),--share $(SHARE)) $(ARGS)

check: $(VENV)/installed-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: $(VENV)/installed-fuzz
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

fuzz-xla: $(VENV)/installed-all
	$(BIN)/python -m tests.fuzz.xla --modules $(MODULES) --seed $(SEED) $(if $(TARGET),--target $(TARGET))

rays: $(VENV)/installed-all
	$(BIN)/python -m tests.runtime.ray.each_version $(RAYS)

jaxes: $(VENV)/installed-all
	$(BIN)/python -m tests.jax.each_version $(JAXES)

bench: $(VENV)/installed-bench
	$(BIN)/python -m bench $(ARGS)

simulate: $(VENV)/installed-all
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

chaos: $(VENV)/installed-all
	$(BIN)/python -m tests.chaos $(CHAOS)

gpu-check: $(VENV)/installed-bench
	$(BIN)/python -m tests.gpu_check

docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --jobs auto docs build/docs
	@echo "the documentation is in build/docs/index.html"

ops-table: $(VENV)/installed
	PYTHONPATH=. $(BIN)/python docs/update_tables.py

clean:
	rm -rf .venv .venv-* build dist *.egg-info

$(BIN)/python:
	@python="$(PYTHON)"; \
	  test -n "$$python" || { echo "no Python 3.11, 3.12 or 3.13 was found; set PYTHON=/path/to/python" >&2; exit 1; }; \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$$python does not run, or is older than Python 3.11; set PYTHON=/path/to/python" >&2; exit 1; }; \
	  echo "$$python -m venv $(VENV)"; "$$python" -m venv --clear $(VENV)

# byte code is written here as for any other package: where PYTHONDONTWRITEBYTECODE is set, nothing else would. compileall
# enters no linked folder by itself.
$(VENV)/installed: $(BIN)/python $(PINS)
	$(PIP) -e '.[run]'
	$(BIN)/python -m compileall -q distxla distxla/collectives distxla/scheduler
	@touch $@

# all that the quick tests need: no linters, nothing for the documentation's site
$(VENV)/installed-quick: $(VENV)/installed
	$(PIP) -e '.[test,jax]'
	@touch $@

$(VENV)/installed-all: $(VENV)/installed
	$(PIP) -e '.[test,lint,jax,docs]'
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed-all
	$(PIP) -e '.[bench]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/installed-fuzz: $(VENV)/installed-all
	$(PIP) -e '.[fuzz]'
	@touch $@
