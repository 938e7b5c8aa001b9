# Two commands: `make demo` shows what longtail does, `make test` checks it. Both create .venv if it is missing or outdated.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint coverage docs build interop clean

# The demo needs the library, torch and the service, not the tools of developers.
demo: .venv/.demo
	$(BIN)/longtail demo --out demo
	@echo 'To use longtail in this shell:  . $(BIN)/activate'

# One process per core; the tests of a file share what they have trained, so they stay together.
test: .venv/.dev lint
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

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

# Annif, its client and schemathesis in an environment, and the service checked with them. All requests stay on this machine.
interop: .venv/.dev .venv-interop/.done
	$(BIN)/python tests/interop/check_annif.py .venv-interop

.venv-interop/.done:
	test -x .venv-interop/bin/python || $(PYTHON) -m venv .venv-interop
	.venv-interop/bin/python -m pip install --quiet annif==1.4.3 annif-client==0.5.0 schemathesis==4.32.5
	touch $@

# A stamp is written last, so that a broken installation is never taken for a complete one.
.venv/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable '.[dev]'
	touch .venv/.demo $@

.venv/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable '.[nn,serve]'
	touch $@

clean:
	rm -rf .venv .venv-interop demo build dist docs/_build src/*.egg-info
