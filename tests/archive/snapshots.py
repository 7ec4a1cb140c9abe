"""Stores' files and manifests of them, as tests of the archive need them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from uuid import uuid4

from statestore.archive.manifest import Manifest, SnapshotFile
from statestore.archive.upload import Published, Uploading
from statestore.definitions.store import StoreDefinition
from statestore.objects.store import ObjectStore
from statestore.statedir.record import StoreRecord

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


def written(directory: Path, files: dict[str, bytes]) -> Path:
    """Write files below a directory; return it."""
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def file(path: str, content: bytes, *, inline: bool = False) -> SnapshotFile:
    """Describe a file."""
    digest = hashlib.sha256(content).hexdigest()
    return SnapshotFile(path=path, bytes=len(content), sha256=digest, content=content if inline else None)


def publish(objects: ObjectStore, made: Manifest, directory: Path, parent: Manifest | None = None) -> Published:
    """Publish a snapshot of the files in a directory; those of the parent need not be uploaded again."""
    uploading = Uploading(objects, directory)
    uploading.upload(made.files, parent.files if parent else ())
    return uploading.publish(made)


def published(objects: ObjectStore, directory: Path, **changes: Any) -> Manifest:
    """Publish the files of a closed store."""
    paths = [path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("LO")]
    made = manifest({str(path.relative_to(directory)): path.read_bytes() for path in paths}, **changes)
    publish(objects, made, directory)
    return made


def manifest(files: dict[str, bytes] | None = None, **changes: Any) -> Manifest:
    """Make a manifest of files by path."""
    fields = {
        "cluster": CLUSTER,
        "application": "app",
        "definition": StoreDefinition(name="totals"),
        "task": "0_3",
        "generation": 0,
        "uuid": uuid4().hex,
        "topic": "app-totals-changelog",
        "partition": 3,
        "committed": 41,
        "record": StoreRecord(topic_id="id", caught_up_ms=5, committed=41, end=43),
        "files": tuple(file(path, content) for path, content in (files or {}).items()),
        "source": "process",
        "host": "here",
        "written_ms": 7,
        "written_by": "0.1.0",
    }
    return Manifest(**{**fields, **changes})
