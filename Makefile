# The project's habits. `make run` and `make test` need Python 3.11, pip and make; they set up the rest in .venv.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY := PASSIVE

.PHONY: run test quick check lint bench browser setup clean

run: setup  ## the main job
	@$(BIN)/genplan quickstart

test: setup  ## all tests
	@$(BIN)/python -m pytest -n 2

quick: setup  ## the tests that take no longer than a minute together: while one is writing
	@$(BIN)/python -m pytest -n 2 -m "not slow"

lint: setup  ## format, lint, order of imports, strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	@command -v npx >/dev/null && npx --yes @biomejs/biome@2 lint src/genplan/serve/static || echo "no npx: the page's own code is not linted"

check: lint  ## lint, all tests, and every branch of flow/ covered
	$(BIN)/python -m pytest -n 2 --cov=genplan.flow --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100

bench: setup  ## speed, as ratios measured in one run
	$(BIN)/python benchmarks/sampler_overhead.py
	$(BIN)/python benchmarks/tasks.py
	$(BIN)/python benchmarks/planner.py
	$(BIN)/python benchmarks/speed.py

browser:  ## a Chromium for the tests of the page, from Debian's packages; without one they are skipped and say so
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null) \
	  || echo "genplan: no Chromium could be installed; the tests of the page in a browser will be skipped"

setup:
	@$(PYTHON) tools/bootstrap.py

clean:  ## remove the environment and what was built (runs and data stay)
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
