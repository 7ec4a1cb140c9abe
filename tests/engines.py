"""The engines with which tests of tasks, restores, and crashes run: one table for all of them (KIP-844's test plan).

Stores by themselves have a table of their own (compositions.py). What `make test` leaves out, `make faults` runs. `make
conformance` prints how many cases each engine and each composition has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from statestore.definitions.fields import Engine


class Kept(NamedTuple):
    """What is left of the stores of an engine when a task is killed.

    Attributes
    ----------
    on_disk
        Whether anything is. A store in memory is replayed from its whole log.
    transactional
        Whether that is the last commit. Under exactly once, a store without transactions is rebuilt.
    """

    on_disk: bool
    transactional: bool


ENGINES: dict[Engine, Kept] = {
    "txn_rocksDB": Kept(on_disk=True, transactional=True),
    "rocksDB": Kept(on_disk=True, transactional=False),
    "in_memory": Kept(on_disk=False, transactional=False),
}
#: What `make test` runs.
SHORT: Engine = "txn_rocksDB"


def engines(*, on_disk: bool = False) -> list[Any]:
    """Return the engines as parameters of a test; those that `make test` leaves out are marked.

    Parameters
    ----------
    on_disk
        Leave out those that keep nothing on disk: their restores and directories cannot be tested.
    """
    chosen = [engine for engine, kept in ENGINES.items() if kept.on_disk or not on_disk]
    return [engine if engine == SHORT else pytest.param(engine, marks=pytest.mark.long) for engine in chosen]


each_engine = pytest.mark.parametrize("engine", engines())
each_engine_on_disk = pytest.mark.parametrize("engine", engines(on_disk=True))
#: In a file whose `application` has each engine: for tests of a store that keeps its last commit when it is left open.
transactional_alone = pytest.mark.parametrize("application", [SHORT], indirect=True)


def with_each_engine(metafunc: pytest.Metafunc) -> None:
    """Give the fixture `application` each engine that is on disk, in files with `EACH_ENGINE = True`."""
    if not getattr(metafunc.module, "EACH_ENGINE", False) or "application" not in metafunc.fixturenames:
        return
    if not any("application" in marker.args[0] for marker in metafunc.definition.iter_markers("parametrize")):
        metafunc.parametrize("application", engines(on_disk=True), indirect=True)
