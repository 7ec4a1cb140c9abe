"""How far running work is, in small files that others may read at any time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from statestore.durable import write_atomically

_EVERY_S = 1.0
M = TypeVar("M", bound=BaseModel)


class ProgressFile:
    """A file that is written anew now and then, each time as a whole; nothing where there is no path.

    Progress is for people: where the file cannot be written, the work goes on without it. It has no checksum, as
    nothing is decided by it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._told = 0.0

    @property
    def wanted(self) -> bool:
        """False if nobody wants to know, or nothing can be written."""
        return self._path is not None

    @property
    def due(self) -> bool:
        """True if the last time is long enough ago; costs no more than a look at the clock."""
        return self._path is not None and time.monotonic() - self._told >= _EVERY_S

    def write(self, progress: BaseModel) -> None:
        """Replace the file."""
        if self._path is None:
            return
        self._told = time.monotonic()
        try:
            write_atomically(self._path, progress.model_dump_json())
        except OSError:
            self._path = None


def read_files(directory: Path, kind: type[M]) -> list[M]:
    """Read what the work of a run says; what cannot be read says nothing."""
    found = []
    for path in sorted(directory.glob("*.json")):
        try:
            found.append(kind.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            continue
    return found
