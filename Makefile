# make install  sets up .venv for runs and notebooks
# make lab    sets up and opens the notebooks in JupyterLab; as root ARGS=--allow-root
# make run    sets up and runs the whole series on the bundled default
# make test   sets up and runs lint and tests, a file at a time in each of two processes
# make strict   runs notebooks 00 to 03 and 06 at full size and compares their outputs with the committed
# make book   writes the book into build/book; ARGS=--quick leaves out the reports of runs
# make student   writes the notebooks without solutions into build/student
# make notebooks   takes over the executed notebooks of the last default run
# make faults    breaks everything in the long form (tests/FAULTS.md)
# make benchmarks  measures speed and memory; the machine should be idle
# make constraints  writes constraints.txt again, after an upgrade in requirements.txt or requirements-dev.txt
#
# Setting up uses uv where it is installed, and pip otherwise; make UV= uses pip in any case.

PYTHON ?= python3
UV ?= $(shell command -v uv 2>/dev/null)
BIN := .venv/bin
READY := .venv/.ready
DEV_READY := .venv/.dev-ready
BOOK_READY := .venv/.book-ready
ifneq ($(UV),)
INSTALL = "$(UV)" pip install --quiet --python $(BIN)/python --requirement
else
INSTALL = $(BIN)/python -m pip install --quiet --requirement
endif

.PHONY: install run test strict lint style types lab book student notebooks benchmarks faults constraints clean

install: $(READY)

run: $(READY)
	$(BIN)/python -m helpers run $(ARGS)
	$(if $(ARGS),,-$(BIN)/python scripts/compare_tables.py minilm)

test: $(DEV_READY) style  # types are checked beside the tests; their errors follow the tests' last line
	@mkdir -p build; $(MAKE) --no-print-directory types >build/types.txt 2>&1 & types=$$!; \
	  $(BIN)/python -m pytest --quiet --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS); \
	  tests=$$?; wait $$types || { cat build/types.txt; exit 1; }; exit $$tests

strict: $(READY)
	ATTENTION_PROFILE=full $(BIN)/python -m pytest $(ARGS) notebooks/0[01236]_*.ipynb

lint: style types

style: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_READY)
	$(BIN)/basedpyright

lab: $(READY)
	$(BIN)/jupyter lab notebooks $(ARGS)

book: $(BOOK_READY)
	$(BIN)/python scripts/book.py $(ARGS)

student: $(READY)
	$(BIN)/python scripts/student.py

notebooks: $(READY)
	$(BIN)/python scripts/refresh.py $(ARGS)

$(READY): requirements.txt constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "Python 3.11 to 3.14 is needed, this is " + sys.version.split()[0] + "; try make PYTHON=python3.11")'
ifneq ($(UV),)
	test -x $(BIN)/python || "$(UV)" venv --quiet --seed --allow-existing --python "$$(command -v $(PYTHON))" .venv
else
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --default-pip
endif
	$(INSTALL) requirements.txt
	touch $(READY)

$(DEV_READY) $(BOOK_READY): .venv/.%-ready: requirements-%.txt $(READY)
	$(INSTALL) $<
	touch $@

benchmarks: $(READY)
	set -e; for name in extraction memory scaling; do \
	  $(BIN)/python tests/benchmarks/bench_$$name.py; done

faults: $(DEV_READY)
	$(BIN)/python tests/faults.py $(ARGS)

constraints:  # later versions of jsonschema build a grammar for 1.4 s at each import
	echo 'jsonschema<4.25' > constraints.txt
	$(MAKE) $(DEV_READY)
	$(BIN)/python scripts/constraints.py

clean:
	rm -rf .venv .cache .pytest_cache build
