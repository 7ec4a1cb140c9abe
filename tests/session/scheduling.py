"""Which tests share a worker, and which begin first.

A worker runs the tests of a file one after the other. The files that need a Spark session, an Airflow or the compiled
Kafka Streams driver are one unit each: these are started once, not in every worker. Such units begin first, so that at
the end of a run no worker waits for another one for long. Then files whose tests mostly wait for Kafka and for other
processes take turns with those that compute, so that no core is idle.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Directories that are one unit, those that take longest first.
UNITS = ("tests/spark/", "tests/dags/", "tests/interop/")
#: Directories of tests that mostly wait.
WAITING = ("tests/integration/", "tests/faults/", "tests/ui/")


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
        """Put units of several files first, and have the other files take turns."""
        items[:] = in_order(items)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Order the tests by unit; what is within a unit keeps its order."""
    order = {unit: place for place, unit in enumerate(_units_in_order([unit_of(item.nodeid) for item in items]))}
    return sorted(items, key=lambda item: order[unit_of(item.nodeid)])


def _units_in_order(units: list[str]) -> list[str]:
    found = dict.fromkeys(units)
    files = [unit for unit in found if unit not in UNITS]
    groups = (
        [file for file in files if file.startswith(WAITING)],
        [file for file in files if not file.startswith(WAITING)],
    )
    # Both groups are spread over the whole run, however many files each has.
    places = {file: place / len(group) for group in groups for place, file in enumerate(group)}
    return [*(unit for unit in UNITS if unit in found), *sorted(files, key=places.__getitem__)]
