"""What all tests share: one real broker per session, from the same code as the demo's; and which tests take long."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from demo.kafka import Kafka
from demo.processes import Processes

# No deadline: the machine is shared, and a slow example is not a wrong one. The same examples in each run: what fails
# was changed. `--hypothesis-profile=random` draws others.
_COMMON = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
settings.register_profile("same", derandomize="STATESTORE_PROPERTY_STEPS" not in os.environ, **_COMMON)
settings.register_profile("random", **_COMMON)
settings.load_profile("same")

_LONG = Path(__file__).parent / "faults" / "long"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make faults` a whole directory of tests, and the cases that `short_for` does not name."""
    cases: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if item.path.is_relative_to(_LONG) or not _is_short(item, cases[test]):
            item.add_marker(pytest.mark.long)
        cases[test] += 1


def _is_short(item: pytest.Item, case: int) -> bool:
    marker = item.get_closest_marker("short_for")
    if marker is None:
        return True
    if marker.kwargs:
        return case % marker.kwargs["every"] == 0
    # A case of several parameters is called after all of them.
    case_id = item.callspec.id  # type: ignore[attr-defined]
    return any(f"-{name}-" in f"-{case_id}-" for name in marker.args)


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker that lives as long as the session; tests take names of their own for topics and groups."""
    directory = tmp_path_factory.mktemp("broker")
    with Processes(directory) as processes:
        yield Kafka(processes, directory / "kafka").start()
