"""An archive: where snapshots lie, in which version of the layout, and for which Kafka cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from statestore.archive.layout import FORMAT
from statestore.errors import ArchiveAccessError, InputError
from statestore.objects.store import ObjectStore, StoredObject
from statestore.objects.url import checked_url

if TYPE_CHECKING:  # both bring a lot, and most processes that know of an archive ask neither
    from statestore.config import Settings
    from statestore.kafka.topics import Topics

_VERSION = 1
#: How long an archive counts as one of this layout, s: about as long as a run works with it.
_KNOWN_S = 300.0
_known: dict[str, float] = {}


class ArchiveSpec(BaseModel):
    """Which archive a store partition's snapshots are in.

    Attributes
    ----------
    url
        Such as `s3://bucket/prefix`; without credentials.
    cluster
        Id of the Kafka cluster that has the changelogs.
    timeout_s
        Deadline of one request.
    node_local
        Each node has a state directory of its own: the archive has the stores, what lies on a disk are copies.
    """

    model_config = ConfigDict(frozen=True)

    url: str
    cluster: str
    timeout_s: float = 60.0
    node_local: bool = False

    def open(self) -> ObjectStore:
        """Return the archive's objects as `open_archive` does, which this process asks only every few minutes."""
        if time.monotonic() < _known.get(self.url, 0.0):
            return ObjectStore(self.url, self.timeout_s)
        objects = open_archive(self.url, self.timeout_s)
        _known[self.url] = time.monotonic() + _KNOWN_S
        return objects


class NoArchive(ArchiveSpec):
    """No archive: an empty one that takes nothing."""

    url: str = ""
    cluster: str = ""

    def open(self) -> ObjectStore:
        """Return an object store without objects."""
        return _NoObjects()


class _NoObjects(ObjectStore):
    def __init__(self) -> None:
        self.url = "no archive"

    def entries(self, prefix: str = "") -> Iterator[StoredObject]:
        return iter(())

    def stat(self, name: str) -> StoredObject | None:
        return None

    def read(self, name: str, limit: int) -> bytes:
        raise FileNotFoundError(name)

    def create(self, name: str, content: bytes) -> bool:
        raise InputError(f"{name} cannot be written: there is no archive; set STATESTORE_ARCHIVE")

    def upload(self, name: str, chunks: Iterable[bytes]) -> None:
        raise InputError(f"{name} cannot be written: there is no archive; set STATESTORE_ARCHIVE")


NO_ARCHIVE = NoArchive()


def archive_spec(url: str | None, timeout_s: float, topics: Topics, *, node_local: bool = False) -> ArchiveSpec | None:
    """Say which archive is used; None if there is none.

    Parameters
    ----------
    node_local
        As of `ArchiveSpec`.

    Raises
    ------
    InputError
        If the URL is not one of an archive.
    KafkaUnavailableError
        If the cluster does not tell its id.
    """
    if url is None:
        return None
    return ArchiveSpec(url=checked_url(url), cluster=topics.cluster_id(), timeout_s=timeout_s, node_local=node_local)


def archive_of(settings: Settings, topics: Topics) -> ArchiveSpec | None:
    """Say which archive an installation uses; see `archive_spec`."""
    return archive_spec(settings.archive, settings.archive_timeout_s, topics, node_local=settings.node_local_state)


def open_archive(url: str, timeout_s: float = 60.0, *, create: bool = True) -> ObjectStore:
    """Return an archive's objects, once it is clear that it is one of this layout.

    Parameters
    ----------
    timeout_s
        Deadline of one request.
    create
        Whether an archive is begun where there is none.

    Raises
    ------
    ArchiveAccessError
        If there is none and none is to be begun, or its bucket does not exist.
    InputError
        If it has another layout.
    """
    objects = ObjectStore(url, timeout_s)
    content = json.dumps({"format": "statestore-archive", "version": _VERSION}).encode()
    for _ in range(2):
        try:
            found = objects.read(FORMAT, 4096)
        except FileNotFoundError:
            if not create:
                raise ArchiveAccessError(
                    f"archive {objects.url}: {FORMAT} does not exist, so there is no archive; check the URL, or create "
                    "one with the first snapshot"
                ) from None
            objects.create(FORMAT, content)
            continue
        except ValueError:
            found = b""
        if found != content:
            raise InputError(
                f"archive {objects.url}: expected {FORMAT} with {content.decode()}, found {found[:120]!r}; another "
                "version or another program wrote it. Use that version, or another prefix"
            )
        return objects
    raise ArchiveAccessError(
        f"archive {objects.url}: {FORMAT} was written, but does not exist. Check the lifecycle rules of the bucket"
    )
