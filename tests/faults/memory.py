"""Directories in memory: nobody waits for a disk there, and what a killed process has written is there, too.

A kill takes nothing from what the system has been given to write; only a power cut would, and no test cuts the power.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_MEMORY = Path("/dev/shm")
#: Several tests run beside each other, some with a broker that asks for 2 GiB.
_ROOM_BYTES = 4 << 30


@contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """Make a directory in memory that is removed at the end; without such a place, or room, take `otherwise`."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        yield otherwise
        return
    with TemporaryDirectory(prefix=f"{otherwise.name}-", dir=_MEMORY) as directory:
        yield Path(directory)
