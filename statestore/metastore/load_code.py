"""Load the code and the suites that definitions name, and tell what cannot be loaded: what `loading.py` starts.

A program of its own: an import runs code of the user's, which may hang, end its process, or change it.

Standard input holds the definitions, a JSON list. The first argument is a file descriptor, to which it writes a JSON
object a line: `{"loading": ...}` before each thing, `{"problem": ...}` behind one that cannot be loaded, and
`{"ended": true}`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from functools import partial

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.tasks.loading import Named, named_code


def main() -> None:
    """Load everything, one after the other."""
    told = int(sys.argv[1])
    os.set_inheritable(told, False)
    for given in json.load(sys.stdin):
        definition = ApplicationDefinition.model_validate(given)
        for what, load in [*named_code(definition), *_suites(definition)]:
            _tell(told, "loading", f"application {definition.name}: {what}")
            try:
                load()
            except InputError as error:
                _tell(told, "problem", f"application {definition.name}: {error}")
    _tell(told, "ended", True)
    os._exit(0)  # whatever threads that code has left running


def _suites(definition: ApplicationDefinition) -> Iterator[Named]:
    for store in definition.stores:
        if store.expectations is not None:
            what = f"suite {store.expectations} of store {store.name}"
            yield Named(what, partial(_load_suite, definition.name, store))


def _load_suite(application: str, store: StoreDefinition) -> None:
    # By its name: the library does without the package that validates, and without the extra that this needs.
    importlib.import_module("statestore_expectations.suites").suite_of(application, store)


def _tell(told: int, what: str, value: object) -> None:
    os.write(told, json.dumps({what: value}).encode() + b"\n")


if __name__ == "__main__":
    main()
