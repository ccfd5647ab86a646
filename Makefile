# Everything sets itself up: only Python >= 3.11, make and git are needed.
#   make demo              publish, sync, change, sync, audit and push a real tree (FILES=DIR for one of yours)
#   make test              all tests (ARGS='tests/sync -k stream' for some)
#   make test-long         the same with many more examples, kills and power losses: an hour
#   make test-all          all tests on every version of Python from 3.11 on that can be found here
#   make lint              format, lint, types, the rooms' import contract
#   make bench             ratios against peers and limits (ARGS='--quick', ARGS='--write')
#   make docs              write the pages that come from the program
#   make man               write the man pages to build/man
#   make pins              write requirements/*.txt anew (needs uv)
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
FILES ?=

.PHONY: demo test test-long test-all lint format bench docs man pins clean
.DEFAULT_GOAL := demo

demo:
	@$(PYTHON) tools/environment.py
	@$(BIN)/python tools/demo.py $(if $(FILES),"$(FILES)")

test:
	@$(PYTHON) tools/environment.py test
	@$(BIN)/python -m compileall -q src  # tests start many a process: half of a start would be compiling
	@# tests wait half of their time: three workers to each of two cores; what pytest compiles of them is kept, or each worker would compile it
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 6 --dist loadfile --no-loadscope-reorder $(ARGS)

test-long:
	@$(PYTHON) tools/environment.py test
	@# on the disk: it is the place to see what a disk does that memory does not
	TMPDIR=$${TMPDIR:-/tmp} PYTHONDONTWRITEBYTECODE= HEADWATER_MANY_EXAMPLES=1 HEADWATER_POWER_LOSSES=2000 HEADWATER_KILLS=100 HEADWATER_TRIAL_EVENTS=300 $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-all:
	@$(PYTHON) tools/matrix.py $(ARGS)

lint:
	@$(PYTHON) tools/environment.py test lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format:
	@$(PYTHON) tools/environment.py test lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench:
	@$(PYTHON) tools/environment.py test
	$(BIN)/python -m bench $(ARGS)

docs:
	@$(PYTHON) tools/environment.py test
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.library

man:
	@$(PYTHON) tools/environment.py test
	$(BIN)/python -m tools.man_pages

pins:
	tools/pin.sh

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
