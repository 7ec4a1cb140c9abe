# What one does with this project. `make` alone lists it.

PYTHON_IN_VENV := .venv/bin/python
COMPILE := .venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.DEFAULT_GOAL := help
.PHONY: help demo up down test conformance bench bench-store lint lock clean environment-demo environment-dev

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: environment-demo ## process, damage, verify, restore and validate stores on real input, then stop (build/demo)
	@$(PYTHON_IN_VENV) -m demo

up: environment-demo ## start Kafka and Airflow and leave them running (build/up)
	@$(PYTHON_IN_VENV) -m demo.up

down: environment-demo ## stop what `make up` started
	@$(PYTHON_IN_VENV) -m demo.down

test: environment-dev ## run all tests, two files at a time; ARGS are given to pytest
	$(PYTHON_IN_VENV) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

conformance: environment-dev ## run the tests that prove a behaviour, and list the behaviours that none proves
	$(PYTHON_IN_VENV) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --conformance

bench: bench-store ## measure everything beside its peers (build/bench, docs/benchmarks); SCALE=small for a look

bench-store: environment-dev ## measure the stores beside raw rocksdict
	$(PYTHON_IN_VENV) -m benchmarks.store

lint: environment-dev ## check style, types and the arrows between the rooms
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

lock: environment-dev ## compile requirements/*.txt anew from pyproject.toml
	$(COMPILE) requirements/bootstrap.in -o requirements/bootstrap.txt
	$(COMPILE) pyproject.toml --extra demo --overrides requirements/overrides.txt -o requirements/demo.txt
	$(COMPILE) pyproject.toml --extra demo --extra dev --overrides requirements/overrides.txt \
		-c requirements/demo.txt -o requirements/dev.txt

clean: ## stop what `make up` started, and delete the environment and everything that was built
	@if [ -x $(PYTHON_IN_VENV) ] && [ -e build/up/processes.json ]; then $(PYTHON_IN_VENV) -m demo.down; fi
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

environment-demo environment-dev: environment-%:
	@demo/environment.sh $*
