# The project's habits. `make run` and `make test` need Python 3.11, pip and make; they set up the rest in .venv.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY := PASSIVE

.PHONY: run test check bench setup clean

run: setup  ## the main job
	@$(BIN)/genplan quickstart

test: setup  ## all tests
	@$(BIN)/python -m pytest -n 2

check: setup  ## lint, strict types, tests, and every branch of flow/ covered
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --cov=genplan.flow --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100

bench: setup  ## speed, as ratios measured in one run
	$(BIN)/python benchmarks/sampler_overhead.py
	$(BIN)/python benchmarks/tasks.py
	$(BIN)/python benchmarks/planner.py

setup:
	@$(PYTHON) tools/bootstrap.py

clean:  ## remove the environment and what was built (runs and data stay)
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
