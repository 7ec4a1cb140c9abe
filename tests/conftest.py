"""What all tests share: one real broker per session, from the same code as the demo's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.kafka import Kafka
from demo.processes import Processes


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker that lives as long as the session; tests take names of their own for topics and groups."""
    directory = tmp_path_factory.mktemp("broker")
    with Processes(directory) as processes:
        yield Kafka(processes, directory / "kafka").start()
