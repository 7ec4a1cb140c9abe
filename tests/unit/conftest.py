"""What the unit tests share: settings of hypothesis, and the paths of a task in a fresh state directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from statestore.model import TaskId
from statestore.statedir.paths import TaskPaths

# No deadline: the machine is shared, and a slow example is not a wrong one.
settings.register_profile(
    "unit", deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("unit")


@pytest.fixture
def paths(tmp_path: Path) -> TaskPaths:
    """Paths of task 0_0 of application `app`."""
    return TaskPaths(tmp_path / "state", "app", TaskId(0, 0))
