"""One broker for all workers of a run: the process that spreads the tests starts it, and ends it after them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from demo.kafka import Kafka
from demo.processes import Processes

_INPUT = "bootstrap_servers"


@contextmanager
def running_broker(directory: Path) -> Iterator[str]:
    """Start a broker in the directory, return its bootstrap servers, and end it after the block."""
    with Processes(directory) as processes:
        yield Kafka(processes, directory / "kafka").start()


def shared_broker(config: pytest.Config) -> str | None:
    """Return the bootstrap servers of the broker of all workers; None in a run without workers."""
    worker_input: dict[str, Any] = getattr(config, "workerinput", {})
    return worker_input.get(_INPUT)


class SharedBroker:
    """A plugin for the process that spreads the tests over workers."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._servers = ""

    def pytest_xdist_setupnodes(self) -> None:
        """Start the broker."""
        directory = self._running.enter_context(TemporaryDirectory(prefix="statestore-broker-"))
        self._servers = self._running.enter_context(running_broker(Path(directory)))

    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where the broker is."""
        node.workerinput[_INPUT] = self._servers

    def pytest_unconfigure(self) -> None:
        """End the broker."""
        self._running.close()
