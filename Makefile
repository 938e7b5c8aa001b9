# Two commands: `make demo` shows what longtail does, `make test` checks it. Both create .venv if it is missing or outdated.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint coverage docs build clean

# The demo needs the library and torch, not the tools of developers.
demo: .venv/.demo
	$(BIN)/longtail demo --out demo
	@echo 'To use longtail in this shell:  . $(BIN)/activate'

# One process per core; the tests of a file share what they have trained, so they stay together.
test: .venv/.dev lint
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: .venv/.dev
	$(BIN)/ruff check src tests benchmarks docs examples
	$(BIN)/ruff format --check --quiet src tests benchmarks docs examples
	$(BIN)/mypy

coverage: .venv/.dev
	$(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered

# Warnings are errors: a broken link, or a page that no table of contents lists. `make test` checks that, too.
docs: .venv/.dev
	$(BIN)/python -m sphinx -W --keep-going --quiet docs docs/_build
	@echo 'docs/_build/index.html'

# A wheel and an sdist in dist/.
build: .venv/.dev
	$(BIN)/python -m build --outdir dist .

# A stamp is written last, so that a broken installation is never taken for a complete one.
.venv/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable '.[dev]'
	touch .venv/.demo $@

.venv/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable '.[nn]'
	touch $@

clean:
	rm -rf .venv demo build dist docs/_build src/*.egg-info
