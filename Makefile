# Two commands: `make demo` shows what longtail does, `make test` checks that it holds. `make docs` makes a site of docs/.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint docs clean

demo: $(STAMP)
	$(BIN)/longtail demo --out demo
	@echo 'To call longtail in this shell, first:  . $(BIN)/activate'

test: $(STAMP) lint
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks recipes docs
	$(BIN)/ruff format --check --quiet src tests benchmarks recipes docs
	$(BIN)/mypy

# Broken links and pages that no list names are errors; `make test` finds them, too.
docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going --quiet docs docs/_build
	@echo 'docs/_build/index.html'

# Made anew whenever what it should hold has changed; the stamp is written last, so a broken install is never taken for a good one.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv demo build dist docs/_build src/*.egg-info
