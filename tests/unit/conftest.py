"""Fixtures of the unit tests: the paths of a task in a fresh state directory, and a time of the brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore import clock
from statestore.changelog import brokers_clock
from statestore.model import TaskId
from statestore.statedir.paths import TaskPaths


@pytest.fixture(autouse=True)
def _brokers_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine's clock stand for the brokers': no broker runs for these tests."""
    monkeypatch.setattr(brokers_clock, "_ask", lambda *_: brokers_clock._Answer(clock.now_ms(), True))


@pytest.fixture
def paths(tmp_path: Path) -> TaskPaths:
    """Paths of task 0_0 of application `app`."""
    return TaskPaths(tmp_path / "state", "app", TaskId(0, 0))
