"""Temporary files in memory: tests make thousands of databases, and each would wait for a disk.

A kill takes nothing from what a process has written, in memory or on a disk; only a power cut would, and no test cuts
the power.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
#: What a run has at a time, with the brokers that ask for 2 GiB each.
_ROOM_BYTES = 4 << 30


def use_memory() -> None:
    """Have this process and those that it starts keep temporary files in memory, if there is room and none is set."""
    if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
