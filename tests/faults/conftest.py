"""A broker of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.processes import Processes
from tests.faults.own_broker import OwnBroker


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OwnBroker]:
    """A broker that the test may stop and kill."""
    with Processes(tmp_path / "broker") as processes:
        yield OwnBroker(processes, tmp_path / "broker" / "kafka")
