# What one does with this project. `make` alone lists it.

PYTHON_IN_VENV := .venv/bin/python
COMPILE := .venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# Tests and demo start hundreds of Python processes; without bytecode each would compile all of its imports anew.
unexport PYTHONDONTWRITEBYTECODE

# What `make faults` and `make soak` draw their kills from, and how many of tasks that are run directly.
SEED := $(shell date +%s)
KILLS = 180
# A soak goes on with the seed of its tally, unless another one is asked for.
soak soak-campaign: SEED =
soak: KILLS = 10000
STEPS = 20000
TALLY = build/soak/tally.json
KIND = kills
LENGTH = 12
DOCS = build/docs/venv
AZURITE = build/azurite/node_modules/.bin/azurite-blob
SOAK = $(PYTHON_IN_VENV) -m tests.faults.soak --tally $(TALLY) --length $(LENGTH) $(if $(WORKERS),--workers $(WORKERS))

.DEFAULT_GOAL := help
.PHONY: help demo up down test archive-azure ui screenshots recording everything faults faults-share interop soak soak-campaign soak-totals mutants conformance bench bench-store bench-process bench-restore bench-verify bench-validate bench-metastore bench-page bench-snapshot bench-warm bench-rewrite bench-live docs lint lock clean environment-demo environment-dev

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: environment-demo ## process, damage, verify, restore, and validate stores with real input, then stop (build/demo)
	@$(PYTHON_IN_VENV) -m demo

up: environment-demo ## start Kafka and Airflow, and leave them running (build/up), with your code from APPLICATIONS_DIR=applications
	@$(PYTHON_IN_VENV) -m demo.up

down: environment-demo ## stop what `make up` started
	@$(PYTHON_IN_VENV) -m demo.down

test: environment-dev ## run one or two cases of each behaviour (make faults runs the others); ARGS are passed to pytest
	$(PYTHON_IN_VENV) -m pytest -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(ARGS)

archive-azure: environment-dev ## run the archive's tests on Azurite, which npm installs (build/azurite, 190 MB); ARGS are passed to pytest
	@command -v npm >/dev/null || { echo "npm does not exist; install Node.js 20 or later"; exit 1; }
	mkdir -p build/azurite && cp tests/archive/azurite/package*.json build/azurite
	[ -x $(AZURITE) ] || npm ci --prefix build/azurite --no-audit --no-fund
	STATESTORE_AZURITE=$(abspath $(AZURITE)) $(PYTHON_IN_VENV) -m pytest -m azure tests/archive $(ARGS)

faults: environment-dev ## kill tasks and jobs 200 times, kill processes that use an archive 200 times, damage 200 places, and run all cases that make test omits; SEED=... repeats a run, ARGS are passed to pytest
	@echo "SEED=$(SEED)"
	FAULTS_SEED=$(SEED) FAULTS_KILLS=$(KILLS) $(PYTHON_IN_VENV) -m pytest -n 4 --dist worksteal -m "long and not azure" $(ARGS)

faults-share: environment-dev ## run a fixed subset of make faults, with one campaign of each kind; ARGS are passed to pytest
	FAULTS_SEED=20261121 $(PYTHON_IN_VENV) -m pytest -n 3 --dist worksteal -m share $(ARGS) tests/faults/long tests/faults/test_crash_windows.py \
		$(addprefix tests/interop/test_kafka_streams_,oracle.py headers.py versioned.py)

everything: environment-dev ## run every suite that is not green for the present files, and keep the results (docs/testing.md); ARGS: --list, or --only with suites
	@$(PYTHON_IN_VENV) -m tests.everything $(ARGS)

interop: environment-dev ## test every store of every Kafka Streams version since 3.9, and write docs/compatibility.md; resumes after an interruption; ARGS are passed to pytest
	$(PYTHON_IN_VENV) -m pytest -p tests.interop.compatibility --compatibility build/interop/outcomes.json \
		-m "interop or not interop" tests/interop/test_kafka_streams_compatibility.py \
		tests/interop/test_kafka_streams_compatibility_transactional.py $(ARGS)

soak: environment-dev ## kill tasks, and run random sequences of operations, until the tally (docs/testing.md) has KILLS=10000 and STEPS=20000; resumes after an interruption
	$(SOAK) --kills $(KILLS) --steps $(STEPS) $(if $(SEED),--seed $(SEED))

soak-campaign: environment-dev ## run one campaign of make soak alone, without counting it; SEED=... CAMPAIGN=...
	$(SOAK) --seed $(SEED) --campaign $(CAMPAIGN) --kind $(KIND)

soak-totals: environment-dev ## write the totals of the tally into docs/testing.md
	$(PYTHON_IN_VENV) -m tests.faults.soak.totals --tally $(TALLY)

mutants: environment-dev ## plant every mutant of mutmut in the rules that data depends on, and list those that no test detects; ARGS names some of them
	$(PYTHON_IN_VENV) -m tests.mutants $(ARGS)

ui: environment-dev ## test the page in Chromium, on a real Airflow; ARGS are passed to pytest
	$(PYTHON_IN_VENV) -m pytest -m browser tests/ui $(ARGS)

screenshots: environment-dev ## run the whole-path test of `make ui`, and keep its pictures in docs/screenshots
	STATESTORE_SCREENSHOTS=docs/screenshots $(PYTHON_IN_VENV) -m pytest -m browser tests/ui/test_whole_path_in_browser.py $(ARGS)

recording: environment-demo ## damage, verify, and restore stores on a real Kafka, and draw the session as docs/pictures/recording.svg
	@$(PYTHON_IN_VENV) -m demo.recording

conformance: environment-dev ## run the tests that prove a behaviour, and list the behaviours that no test proves
	$(PYTHON_IN_VENV) -m pytest -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --conformance

bench: bench-store bench-process bench-restore bench-verify bench-validate bench-metastore bench-page bench-snapshot bench-warm bench-rewrite bench-live ## run all benchmarks (build/bench, docs/benchmarks); SCALE=small for a quick check

bench-store: environment-dev ## compare the stores with rocksdict itself
	$(PYTHON_IN_VENV) -m benchmarks.store

bench-process: environment-dev ## compare tasks with Kafka Streams and Quix Streams; ARGS such as --rounds 1
	$(PYTHON_IN_VENV) -m benchmarks.process $(ARGS)

bench-restore: environment-dev ## compare restores with Kafka Streams and Quix Streams; ARGS as above
	$(PYTHON_IN_VENV) -m benchmarks.restore $(ARGS)

bench-verify: environment-dev ## measure verification: the offsets of thousands of store partitions, and contents, compared with a restore
	$(PYTHON_IN_VENV) -m benchmarks.verify $(ARGS)

bench-validate: environment-dev ## compare the Spark sources with Parquet, and measure the validation of 1 to 10 million rows
	$(PYTHON_IN_VENV) -m benchmarks.validate $(ARGS)

bench-metastore: environment-dev ## measure the metastore: the rebuild of 100,000 commands, and how long a command takes
	$(PYTHON_IN_VENV) -m benchmarks.metastore $(ARGS)

bench-page: environment-dev ## measure the page: the load of 10,000 and 100,000 store partitions on the API server
	$(PYTHON_IN_VENV) -m benchmarks.page $(ARGS)

bench-snapshot: environment-dev ## measure snapshots on s3proxy and in a directory: restores, fetching, and publishing; ARGS as above
	$(PYTHON_IN_VENV) -m benchmarks.snapshot $(ARGS)

bench-warm: environment-dev ## compare warmed pods of Kafka Streams with pods that restore their own stores from empty disks; ARGS as above
	$(PYTHON_IN_VENV) -m benchmarks.warm $(ARGS)

bench-rewrite: environment-dev ## compare a repartition with a restore of the same state; ARGS as above
	$(PYTHON_IN_VENV) -m benchmarks.rewrite $(ARGS)

bench-live: environment-dev ## measure what a Kafka Streams application loses while its stores are verified; ARGS as above
	$(PYTHON_IN_VENV) -m benchmarks.live $(ARGS)

docs: $(DOCS)/.installed ## build the documentation as a site (build/docs/site); fails on a broken link, or on a page that is not in the navigation
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet

$(DOCS)/.installed: requirements/docs.txt
	$(or $(PYTHON),python3.11) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	touch $@

lint: environment-dev ## check style, types, and imports between rooms
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

lock: environment-dev ## recompile requirements/*.txt from pyproject.toml
	$(COMPILE) requirements/bootstrap.in -o requirements/bootstrap.txt
	$(COMPILE) pyproject.toml --extra demo --overrides requirements/overrides.txt -o requirements/demo.txt
	$(COMPILE) pyproject.toml --extra demo --extra dev --overrides requirements/overrides.txt \
		-c requirements/demo.txt -o requirements/dev.txt
	$(COMPILE) requirements/docs.in -o requirements/docs.txt
	$(COMPILE) benchmarks/peers/quix.in -o benchmarks/peers/quix.txt

clean: ## stop what `make up` started, and delete .venv and build, including Kafka, stores, and snapshots, but not the tally of make soak
	@echo "Deleting .venv, caches, and build, except build/soak:"; du -sh $(filter-out build/soak,$(wildcard build/*)) .venv 2>/dev/null || true
	@if [ -x $(PYTHON_IN_VENV) ] && [ -e build/up/processes.json ]; then $(PYTHON_IN_VENV) -m demo.down; fi
	if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name soak -exec rm -rf {} +; fi
	rm -rf .venv mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

environment-demo environment-dev: environment-%:
	@demo/environment.sh $*
