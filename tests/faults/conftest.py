"""A broker of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.own_broker import OwnBroker, own_broker_in


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OwnBroker]:
    """A broker that the test may stop and kill."""
    with own_broker_in(tmp_path / "broker") as broker:
        yield broker
