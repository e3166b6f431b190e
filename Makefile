# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# In the words of any Python, however old.
NEW_ENOUGH = 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("fmnes: found Python %d.%d as \
	$(PYTHON), wanted 3.11 or later; if there is one:  make PYTHON=python3.12 $(MAKECMDGOALS)" % tuple(v[:2]))'
# Many tests wait for processes: twice as many at a time as there are cores.
TESTS  := $(shell expr 2 \* $$(nproc 2>/dev/null || echo 2))

.PHONY: run examples test test-jax test-clusters check clean

run: $(VENV)/.ready-cli,plot   ## design a lens, where most lenses have no image, and draw it
	$(BIN)/fmnes demo

examples: $(VENV)/.ready-cli,plot,scipy,optuna   ## all examples, with the simulators they need: some minutes
	-examples/install gcc ngspice xfoil
	$(BIN)/python -m examples $(if $(OUT),--out "$(OUT)")

test: $(VENV)/.ready-dev       ## the whole test suite
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TESTS) --ignore tests/jax --ignore tests/clusters

test-jax: $(VENV)/.ready-dev $(VENV)/.ready-jax   ## the compiled side, on the CPU
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -n auto tests/jax
	JAX_PLATFORMS=cpu $(BIN)/python benchmarks/gpu.py --toy

test-clusters: $(VENV)/.ready-dev $(VENV)/.ready-clusters   ## real clusters on this machine: Dask, Ray, MPI, joblib
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest tests/clusters

check: $(VENV)/.ready-dev      ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.ready-%: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -c $(NEW_ENOUGH)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }  # without pip it is of no use
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
