"""What all tests share: one real broker per session, from the same code as the demo's; and which tests take long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.kafka import Kafka
from demo.processes import Processes

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
