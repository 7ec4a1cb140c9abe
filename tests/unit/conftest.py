"""What the unit tests share: the paths of a task in a fresh state directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.model import TaskId
from statestore.statedir.paths import TaskPaths


@pytest.fixture
def paths(tmp_path: Path) -> TaskPaths:
    """Paths of task 0_0 of application `app`."""
    return TaskPaths(tmp_path / "state", "app", TaskId(0, 0))
