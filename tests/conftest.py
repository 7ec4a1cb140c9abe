"""What all tests share: one real broker per session, from the same code as the demo's; and which tests take long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.kafka import Kafka
from demo.processes import Processes

_LONG = Path(__file__).parent / "faults" / "long"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave whole directories of tests to `make faults`."""
    for item in items:
        if item.path.is_relative_to(_LONG):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker that lives as long as the session; tests take names of their own for topics and groups."""
    directory = tmp_path_factory.mktemp("broker")
    with Processes(directory) as processes:
        yield Kafka(processes, directory / "kafka").start()
