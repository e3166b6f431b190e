# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# In the words of any Python, however old.
NEW_ENOUGH = 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("fmnes: found Python %d.%d as \
	$(PYTHON), wanted 3.11 or later; if there is one:  make PYTHON=python3.12 $(MAKECMDGOALS)" % tuple(v[:2]))'
# Many tests wait for processes: twice as many at a time as there are cores.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest
TESTS  := $(shell expr 2 \* $$(nproc 2>/dev/null || echo 2))
# Where this is set, each of the thousands of processes that tests start would compile every module again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run examples test test-real test-docs test-jax test-clusters coverage promises docs site docs-serve check clean

run: $(VENV)/.ready-cli,plot   ## design a lens, where most lenses have no image, and draw it
	$(BIN)/fmnes demo

examples: $(VENV)/.ready-cli,plot,scipy,optuna   ## all examples, with the simulators they need: some minutes
	-examples/install gcc ngspice xfoil
	$(BIN)/python -m examples $(if $(OUT),--out "$(OUT)")

test: $(VENV)/.ready-dev       ## all that needs no simulator, browser, cluster or JAX
	$(PYTEST) -n $(TESTS) --ignore tests/real --ignore tests/site --ignore tests/jax --ignore tests/clusters

test-real: $(VENV)/.ready-dev  ## simulators, a browser, every program of the docs, runs under kill -9
	$(PYTEST) -n $(TESTS) tests/real

test-jax: $(VENV)/.ready-dev $(VENV)/.ready-jax   ## the compiled side, on the CPU
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -n auto tests/jax

test-clusters: $(VENV)/.ready-dev $(VENV)/.ready-clusters   ## real clusters on this machine: Dask, Ray, MPI, joblib
	$(PYTEST) -n 3 tests/clusters

coverage: $(VENV)/.ready-dev $(VENV)/.ready-coverage   ## which lines and branches of src the tests above run
	$(BIN)/coverage erase
	OPENBLAS_NUM_THREADS=1 $(BIN)/coverage run -m pytest -n $(TESTS) --ignore tests/site --ignore tests/jax --ignore tests/clusters
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

promises: $(VENV)/.ready-dev   ## breaks the code on purpose, once for each promise, and sees its test fail
	$(BIN)/python -m tests.promises

test-docs: $(VENV)/.ready-dev $(VENV)/.ready-docs   ## every code block of every page, every command and link
	$(PYTEST) -n $(TESTS) tests/site

docs: test-docs site           ## the site, in build/site, of pages whose code was run

site: $(VENV)/.ready-dev $(VENV)/.ready-docs   ## the same without running their code
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs build/site
	@echo "build/site/index.html"

docs-serve: docs               ## the site, at an address
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

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
