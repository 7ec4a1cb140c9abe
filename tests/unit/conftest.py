"""What the unit tests share: the paths of a task in a fresh state directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from statestore.model import TaskId
from statestore.statedir.paths import TaskPaths


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[TaskPaths]:
    """Paths of task 0_0 of application `app`, in memory where that is a directory.

    What a killed process has written is there in memory, too, and nobody waits for a disk.
    """
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as directory:
        yield TaskPaths(Path(directory) / "state", "app", TaskId(0, 0))
