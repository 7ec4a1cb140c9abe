"""The manifest of a snapshot: which files a store partition had when it had applied its changelog up to an offset.

A manifest is written once and never changed. Whoever reads one trusts nothing in it that is not checked here: it may
have been damaged, or written by somebody else.
"""

from __future__ import annotations

import builtins
import hashlib
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from statestore.archive.documents import from_document, to_document
from statestore.archive.layout import SnapshotName, StoreDirectory, blob, seen
from statestore.definitions.store import StoreDefinition
from statestore.errors import SnapshotError
from statestore.model import Name, StorePartition, TaskId, check_name
from statestore.statedir.record import StoreRecord

#: Bytes of a manifest that is read; one of a store with 100,000 files has some 15 MB.
MAX_BYTES = 64 * 1024 * 1024
_MAX_FILE_BYTES = 1 << 40
_MAX_DEPTH = 8


def _inside(path: str) -> str:
    """Refuse a path that could leave the store's directory."""
    parts = path.split("/")
    if len(parts) > _MAX_DEPTH:
        raise ValueError(f"{path[:200]!r} has more than {_MAX_DEPTH} parts")
    for part in parts:
        check_name(part)
    return path


class StoredFile(BaseModel):
    """The bytes of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: Annotated[int, Field(ge=0, le=_MAX_FILE_BYTES)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SnapshotFile(StoredFile):
    """One file of the store.

    Attributes
    ----------
    path
        In the store's directory, parts separated by `/`.
    content
        Its bytes, where it is so small that a request for it would cost more; None: they are in a blob.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    path: Annotated[str, AfterValidator(_inside)]
    content: builtins.bytes | None = None

    @model_validator(mode="after")
    def _content_is_the_files(self) -> Self:
        if self.content is not None and (
            len(self.content) != self.bytes or hashlib.sha256(self.content).hexdigest() != self.sha256
        ):
            raise ValueError(f"the content of {self.path} does not match its size and SHA-256")
        return self


class Manifest(BaseModel):
    """A snapshot of one store partition.

    Attributes
    ----------
    cluster
        Id of the Kafka cluster that has the changelog.
    definition
        What the store is: its kind, format and retention, which nothing in Kafka tells.
    committed
        Offset of the last changelog record in the store; None: it has none.
    record
        What was known of the store when it was closed: topic id, log end and epoch, when it was known whole.
    own
        Text of our files that belong to the store, by name: what is kept of its segments, offsets beside it.
    rows
        How many rows it has; None: not counted.
    rows_sha256
        Digest of the rows in key order; None: not known.
    source
        What published it.
    host
        Where it was written: a task that runs there may find the same files.
    parent
        The snapshot that the store grew from; None: it was built from the log alone.
    begins
        Its store was replaced with something that its log does not give: it counts only if it began its generation.
    by_hand
        What a person has put there instead of what its log gives, and when; None: nothing.
    written_ms
        Wall clock time of the writer, ms since the epoch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    cluster: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    application: Name
    definition: StoreDefinition
    task: Annotated[str, Field(pattern=r"^[0-9]{1,9}_[0-9]{1,9}$")]
    generation: Annotated[int, Field(ge=0, lt=10**8)]
    uuid: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    topic: str
    partition: Annotated[int, Field(ge=0)]
    committed: Annotated[int | None, Field(ge=0)]
    record: StoreRecord
    own: dict[Annotated[str, AfterValidator(_inside)], str] = {}
    files: tuple[SnapshotFile, ...]
    rows: Annotated[int | None, Field(ge=0)] = None
    rows_sha256: str | None = None
    source: Literal["process", "snapshot", "restore"]
    host: str
    parent: str | None = None
    begins: bool = False
    by_hand: str | None = None
    written_ms: int
    written_by: str

    @model_validator(mode="after")
    def _paths_are_distinct(self) -> Self:
        paths = [file.path for file in self.files]
        if len(set(paths)) != len(paths):
            raise ValueError("two of its files have the same path")
        directories = {path.rpartition("/")[0] for path in paths}
        if clash := directories & set(paths):
            raise ValueError(f"{min(clash)} is a file and a directory")
        return self

    @property
    def store_partition(self) -> StorePartition:
        """Store partition of the snapshot."""
        return StorePartition(self.application, self.definition.name, TaskId.parse(self.task))

    @property
    def directory(self) -> StoreDirectory:
        """Where it lies in the archive."""
        return StoreDirectory(self.cluster, self.store_partition)

    @property
    def name(self) -> SnapshotName:
        """Its name in that directory."""
        return SnapshotName(self.generation, seen(self.committed), self.uuid)

    @property
    def blobs(self) -> set[str]:
        """Objects with the bytes of its files."""
        return {blob(file.sha256) for file in self.files if file.content is None}

    @property
    def bytes(self) -> int:
        """Bytes of all its files."""
        return sum(file.bytes for file in self.files)


def to_bytes(manifest: Manifest) -> bytes:
    """Write a manifest, with a checksum of itself."""
    return to_document(manifest, "manifest")


def from_bytes(content: bytes, directory: StoreDirectory, name: SnapshotName) -> Manifest:
    """Read a manifest.

    Parameters
    ----------
    directory, name
        Where it was found, which it must confirm.

    Raises
    ------
    SnapshotError
        If it is damaged, was made for another place, or by a version that this one does not know.
    """
    place = directory.snapshot(name)
    manifest = from_document(content, "manifest", Manifest, f"snapshot {place}: its manifest")
    if (manifest.directory, manifest.name) != (directory, name):
        raise SnapshotError(f"snapshot {place}: its manifest is that of {manifest.directory.snapshot(manifest.name)}")
    return manifest
