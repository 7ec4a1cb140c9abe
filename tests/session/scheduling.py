"""Which tests share a worker, and which begin first.

A worker runs the tests of a file one after the other. The files that need a Spark session, an Airflow or the compiled
Kafka Streams driver are one unit each: these are started once, not in every worker. Such units begin first, so that at
the end of a run no worker waits for another one for long.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Directories that are one unit, those that take longest first.
UNITS = ("tests/spark/", "tests/dags/", "tests/interop/")


class Scheduling(LoadScopeScheduling):
    """pytest-xdist's `loadfile`, with units of several files."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """Return the unit of a test: one of the directories above, or the test's file."""
    file = nodeid.partition("::")[0]
    return next((unit for unit in UNITS if file.startswith(unit)), file)


class Order:
    """A plugin that orders the tests when all others have: one that shuffles them may run before."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put units of several files first."""
        items[:] = in_order(items)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Put the units of several files first; what is within a unit keeps its order."""
    rank = {unit: number for number, unit in enumerate(UNITS)}
    return sorted(items, key=lambda item: rank.get(unit_of(item.nodeid), len(UNITS)))
