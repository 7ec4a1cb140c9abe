"""What the unit tests share: settings of hypothesis, and the paths of a task in a fresh state directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

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
def paths(tmp_path: Path) -> Iterator[TaskPaths]:
    """Paths of task 0_0 of application `app`, in memory where that is a directory.

    What a killed process has written is there in memory, too, and nobody waits for a disk.
    """
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as directory:
        yield TaskPaths(Path(directory) / "state", "app", TaskId(0, 0))
