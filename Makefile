# Everything here needs git, make and Python 3.11 or newer, and nothing but the Python package registry.
#
#   make PYTHON=/path/to/python …   another Python for the virtual environment
#   make test ARGS="-k merger -x"   more arguments for pytest (or the demo, or the benchmarks)

PYTHON ?=
ARGS ?=

VENV := .venv
STAMP := $(VENV)/.installed
CLASSES := $(VENV)/.classes-archived
RUN := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help venv test test-pure test-cluster test-nightly soak lint demo bench docs clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'

venv: $(STAMP) ## build .venv, if it is missing or pyproject.toml has changed

# An environment that works is kept and brought up to date; a broken or half-built one is replaced.
$(STAMP): pyproject.toml
	@if ! $(RUN) -m pip --version >/dev/null 2>&1; then \
		python=$$(sh scripts/find-python $(if $(PYTHON),"$(PYTHON)")) || exit 1; \
		echo "Building $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "Installing the packages (pyspark is large: the first time takes minutes)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The classes that every JVM of the tests loads, ready to be mapped: tests/cheap_jvm.py. Tests run without it, too.
$(CLASSES): $(STAMP) tests/cheap_jvm.py
	@echo "Archiving Spark's classes for the JVMs of the tests"
	@$(RUN) -m tests.cheap_jvm $(VENV)/spark-classes.jsa >/dev/null 2>&1 || echo "without: the tests take longer"
	@touch $@

# Two processes: tests/conftest.py says what goes into which. ARGS="-n 0" runs all in one.
PARALLEL := -n 2 --dist loadscope --no-loadscope-reorder

test: $(CLASSES) ## all tests, in two processes
	$(RUN) -m pytest $(PARALLEL) $(ARGS)

test-pure: $(STAMP) ## the tests that start no JVM
	$(RUN) -m pytest $(PARALLEL) -m "not spark and not cluster and not faults" $(ARGS)

test-cluster: $(CLASSES) ## the tests that start a standalone Spark cluster
	$(RUN) -m pytest -m cluster $(ARGS)

test-nightly: $(CLASSES) ## thousands of random programs and schedules of drivers, and the swarms of both simulators
	ANABRANCH_PROGRAMS=5000 $(RUN) -m pytest --timeout 0 tests/test_graphs.py tests/test_parallel_equals_sequential.py $(ARGS)
	ANABRANCH_BODIES=20000 $(RUN) -m pytest --timeout 0 tests/compiler/test_bodies.py $(ARGS)
	ANABRANCH_ENGINEERS=1 $(RUN) -m pytest --timeout 0 tests/compiler/test_engineers.py $(ARGS)
	ANABRANCH_PLANTED=12 ANABRANCH_FUZZED=1000 ANABRANCH_FUNCTIONS=8000 ANABRANCH_HANDED_OVER=20 \
		$(RUN) -m pytest --timeout 0 tests/compiler/test_soundness.py tests/compiler/test_fuzzed.py \
		tests/compiler/test_over_columns.py tests/compiler/test_handed_over.py $(ARGS)
	ANABRANCH_PROGRAMS=2000 $(RUN) -m pytest --timeout 0 tests/engine/test_error_policy.py tests/engine/test_first_error.py \
		tests/engine/test_keyed_columns.py tests/engine/test_order_needs.py tests/engine/test_partitioned_source.py \
		tests/event_time/test_errors_in_time.py $(ARGS)
	ANABRANCH_PROGRAMS=300 $(RUN) -m pytest --timeout 0 tests/engine/test_verify.py $(ARGS)
	ANABRANCH_TIME_PROGRAMS=1000 ANABRANCH_PUNCTUATION_EXAMPLES=1000 $(RUN) -m pytest --timeout 0 \
		tests/event_time/test_watermarks.py tests/engine/test_users_punctuations.py $(ARGS)
	ANABRANCH_EXAMPLES=300 ANABRANCH_TABLES_EXAMPLES=300 $(RUN) -m pytest --timeout 0 tests/operators/test_broadcast.py \
		tests/operators/test_changes.py tests/operators/test_shared_state.py tests/operators/test_changing_tables.py $(ARGS)
	ANABRANCH_VERSIONS_EXAMPLES=300 ANABRANCH_GROWING_EXAMPLES=300 $(RUN) -m pytest --timeout 0 \
		tests/state/test_versions.py tests/state/test_growing_state.py $(ARGS)
	ANABRANCH_SET_CASES=4000 $(RUN) -m pytest --timeout 0 tests/program/test_set_tables.py $(ARGS)
	ANABRANCH_SET_CASES=100 $(RUN) -m pytest --timeout 0 tests/state/test_order_of_sets.py $(ARGS)
	ANABRANCH_ELASTIC_CASES=100 ANABRANCH_POOL_CASES=300 ANABRANCH_KILL_CASES=20 $(RUN) -m pytest --timeout 0 \
		tests/api/test_elastic_streams.py tests/engine/test_unordered_elastic.py tests/operators/test_accumulators.py \
		tests/engine/test_pool.py tests/engine/test_elastic_kills.py $(ARGS)
	ANABRANCH_ELASTIC_EPOCHS=42 $(RUN) -m pytest --timeout 0 tests/spark/test_elastic_operators.py $(ARGS)
	ANABRANCH_CRASHES=2400 ANABRANCH_RESCALINGS=900 $(RUN) -m pytest --timeout 0 tests/faults/test_schedules.py \
		tests/test_rescaling.py $(ARGS)
	$(RUN) -m benchmarks soundness --more 5
	ANABRANCH_SCHEDULES=1000 $(RUN) -m pytest --timeout 0 tests/faults/test_driver_schedules.py $(ARGS)
	ANABRANCH_HOSTED_SCHEDULES=1000 $(RUN) -m pytest --timeout 0 tests/faults/test_hosted_runs.py $(ARGS)
	ANABRANCH_CLUSTER_SCHEDULES=50 $(RUN) -m pytest --timeout 0 tests/cluster/test_cluster_schedules.py $(ARGS)
	ANABRANCH_REAL_SCHEDULES=60 $(RUN) -m pytest --timeout 0 tests/faults/test_real_drivers.py $(ARGS)
	$(RUN) -m anabranch.sim.swarm --seconds 900 --seed 0
	$(RUN) -m anabranch.papers.machine.swarm --seconds 120 --seed 0

soak: $(STAMP) ## a night: thousands of epochs, keys and restarts; what grew is in soak-report/
	$(RUN) -m benchmarks soak --report soak-report $(ARGS)

lint: $(STAMP) ## ruff and mypy
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

demo: $(STAMP) ## the OpMon example, parallel beside sequential
	$(RUN) examples/opmon.py $(ARGS)

bench: $(STAMP) ## every benchmark, in its quick form
	$(RUN) -m benchmarks all --quick $(ARGS)

docs: $(STAMP) ## the tables of the docs that follow from code
	$(RUN) scripts/write_docs.py

clean: ## remove .venv and everything that tools left behind
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log artifacts soak-report
	find src tests benchmarks experiments examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
