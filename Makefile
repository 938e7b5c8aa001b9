# Two commands: `make demo` shows what longtail does, `make test` checks that it holds.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint clean

demo: $(STAMP)
	$(BIN)/longtail demo --out demo

test: $(STAMP) lint
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks recipes
	$(BIN)/ruff format --check --quiet src tests benchmarks recipes
	$(BIN)/mypy

# Made anew whenever what it should hold has changed; the stamp is written last, so a broken install is never taken for a good one.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv demo build dist src/*.egg-info
