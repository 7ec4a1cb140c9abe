"""The progress of running work in small files, in a directory or in object storage, which can be read at any time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from statestore.durable import write_atomically
from statestore.errors import StateStoreError
from statestore.objects.path import TROUBLE, Location, ObjectPath, each_at_once, listing, remove_all

_log = logging.getLogger(__name__)
_EVERY_S = 1.0
#: In object storage, where each time is a request.
_OBJECT_EVERY_S = 5.0
M = TypeVar("M", bound=BaseModel)
#: What was read of files, by how they were then.
Known = MutableMapping[tuple[Location, object], M | None]


class ProgressFile:
    """A file that is written anew now and then, each time as a whole; nothing where there is no path.

    Progress is for people: where the file cannot be written, the work goes on without it. It has no checksum, as
    nothing is decided by it. An object is written by a thread, so that no work waits for object storage.
    """

    def __init__(self, path: Location | None) -> None:
        self._path = path
        self._told = 0.0
        self._objects = _ProgressObject(path.soon()) if isinstance(path, ObjectPath) else None

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
        if self._objects is not None:
            self._objects.write(progress.model_dump_json().encode())
            return
        assert not isinstance(self._path, ObjectPath)
        try:
            write_atomically(self._path, progress.model_dump_json())
        except OSError:
            self._path = None

    def end(self, progress: BaseModel) -> None:
        """Replace the file for the last time: afterwards nothing is written any more, and it may be removed."""
        self.write(progress)
        if self._objects is not None:
            self._objects.end()


class _ProgressObject:
    """An object that is written anew every few seconds, if there is something new."""

    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._news: bytes | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False

    def write(self, content: bytes) -> None:
        with self._changed:
            self._news = content
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, name="progress", daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._news is not None)
                content, self._news = self._news, None
            if content is None:
                return
            with suppress(*TROUBLE):  # it is tried again with what there is to say then
                self._path.write_bytes(content)
            with self._changed:
                self._changed.wait_for(lambda: self._ended, _OBJECT_EVERY_S)


def remove_progress(directory: Location) -> None:
    """Remove the files of a run that has ended; what object storage keeps, the job `maintenance` removes."""
    if not isinstance(directory, ObjectPath):
        remove_all(directory)
        return
    try:
        directory.soon().remove_below()
    except StateStoreError as error:
        _log.warning("progress could not be removed: %s", error)


def read_files(directory: Location, kind: type[M], known: Known[M] | None = None) -> list[M]:
    """Read what the work of a run says; what cannot be read says nothing.

    Parameters
    ----------
    known
        What was read before: objects that have not changed since are not read again.
    """
    known = {} if known is None else known
    try:
        paths = sorted(listing(directory, "*.json"), key=str)
    except TROUBLE:
        return []
    files: list[tuple[Location, object]] = [
        (path, path.stat() if isinstance(path, ObjectPath) else None) for path in paths
    ]
    news = [file for file in files if file[1] is None or file not in known]

    def read(path: Location) -> M | None:
        try:
            return kind.model_validate_json(path.read_bytes())
        except (*TROUBLE, ValidationError):
            return None

    said = dict(known) | dict(zip(news, each_at_once([path for path, _ in news], read), strict=True))
    known.clear()
    known.update((file, said[file]) for file in files)
    return [progress for file in files if (progress := said[file]) is not None]
