"""The object store's clock, which determines the ages of its objects."""

from __future__ import annotations

from uuid import uuid4

from statestore.archive.layout import TRASH
from statestore.errors import SnapshotError
from statestore.objects.store import ObjectStore


def server_time_ms(objects: ObjectStore) -> int:
    """Return the object store's clock, in ms since the epoch."""
    name = f"{TRASH}/clock-{uuid4().hex}"
    objects.create(name, b"")
    try:
        found = objects.stat(name)
    finally:
        objects.delete(name)
    if found is None:
        raise SnapshotError(f"{objects.url}/{name} was deleted while it was being read. Run again")
    return found.modified_ms
