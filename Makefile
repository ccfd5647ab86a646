# Everything sets itself up: only Python >= 3.11, make and git are needed. `make` alone lists the targets: each has a line
# that begins with ##.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
FILES ?=

.PHONY: help demo test test-long test-all lint format bench docs man site pins clean
.DEFAULT_GOAL := help

## help        list these targets
help:
	@sed -n 's/^## /  make /p' $(firstword $(MAKEFILE_LIST))

## demo        publish, sync, change, sync, audit and push a real tree (FILES=DIR for one of yours)
demo:
	@$(PYTHON) tools/environment.py
	@$(BIN)/python tools/demo.py $(if $(FILES),"$(FILES)")

## test        all tests, five to six minutes on two cores (ARGS='tests/sync -k stream' for some)
test:
	@$(PYTHON) tools/environment.py test
	@$(BIN)/python -m compileall -q src  # tests start many a process: half of a start would be compiling
	@# tests wait half of their time: three workers to each of two cores; what pytest compiles of them is kept, or each worker would compile it
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 6 --dist loadfile --no-loadscope-reorder $(ARGS)

## test-long   the same with many more examples, kills and power losses: an hour
test-long:
	@$(PYTHON) tools/environment.py test
	@# on the disk: it is the place to see what a disk does that memory does not
	TMPDIR=$${TMPDIR:-/tmp} PYTHONDONTWRITEBYTECODE= HEADWATER_MANY_EXAMPLES=1 HEADWATER_POWER_LOSSES=2000 HEADWATER_KILLS=100 HEADWATER_TRIAL_EVENTS=300 $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

## test-all    all tests on every version of Python from 3.11 on that is found here
test-all:
	@$(PYTHON) tools/matrix.py $(ARGS)

## lint        format, lint, types and the import contract
lint:
	@$(PYTHON) tools/environment.py test lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

## format      format the code, and mend what can be mended
format:
	@$(PYTHON) tools/environment.py test lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

## bench       ratios against peers and limits (ARGS='--quick', ARGS='--write')
bench:
	@$(PYTHON) tools/environment.py test
	$(BIN)/python -m bench $(ARGS)

## docs        write the pages and drawings that come from the program
docs:
	@$(PYTHON) tools/environment.py test
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.library
	$(BIN)/python -m tools.pictures

## man         write the man pages to build/man
man:
	@$(PYTHON) tools/environment.py test
	$(BIN)/python -m tools.man_pages

## site        build the documents as a site with search into build/site; checks its links
site:
	@$(PYTHON) tools/environment.py docs
	$(BIN)/python -m tools.site

## pins        write requirements/*.txt anew (needs uv)
pins:
	tools/pin.sh

## clean       remove the environment, what was built, and caches
clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
