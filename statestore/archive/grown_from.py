"""Records which snapshot a local store was built from, in a file next to the store's record.

<own directory>/snapshot-<store>.json
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from statestore import clock
from statestore.archive.manifest import Manifest, SnapshotFile
from statestore.archive.snapshots import History
from statestore.durable import read_checked, with_checksum, write_checked
from statestore.errors import SnapshotError
from statestore.statedir.lock import require_locks
from statestore.statedir.paths import TaskPaths


class GrownFrom(BaseModel):
    """The snapshot that a local store was copied from, with later records.

    Attributes
    ----------
    url, cluster
        Of the archive.
    generation
        Of the snapshots that it may become. If it begins one: the newest one then, as far as was known.
    snapshot
        Name of the snapshot; None: it was built from the log alone.
    files
        Of that snapshot.
    begins
        The store was replaced with something that the log does not give, such as a rollback: its next snapshot begins a
        new generation. What it was replaced with, for people; None: it is of its log.
    by_hand
        What a person has put there instead, and when: nobody else replaces it with what the log gives. It stays known
        when the generation has begun.
    id
        Of that replacement: who was killed after he had begun the generation, knows it again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    url: str
    cluster: str
    generation: int
    snapshot: str | None
    files: tuple[SnapshotFile, ...] = ()
    begins: str | None = None
    by_hand: str | None = None
    id: str = ""

    def kept(self, found: History) -> tuple[SnapshotFile, ...]:
        """Return the files whose blobs need not be uploaded again, while the snapshot is among those that are there.

        Clean-up leaves its blobs for a grace period from then on. Of one that is gone, they may go at any moment.
        """
        return self.files if self.snapshot in {str(one.name) for one in found.snapshots} else ()


def beginning(why: str, newest: int, *, by_hand: bool = False) -> str:
    """Return the file's content for a store whose next snapshot begins a new generation.

    Parameters
    ----------
    newest
        The newest generation: if another one has begun by the time of that snapshot, it counts.
    by_hand
        A person has chosen the rows, which the log need not give.
    """
    at = datetime.fromtimestamp(clock.now_ms() // 1000, UTC)
    found = GrownFrom(
        url="",
        cluster="",
        generation=newest,
        snapshot=None,
        begins=why,
        by_hand=f"{why}, at {at:%F %T} UTC" if by_hand else None,
        id=uuid4().hex,
    )
    return with_checksum(found.model_dump_json())


def continuing(url: str, snapshot: Manifest) -> str:
    """Return the file's content for a store that grew from a snapshot of an archive."""
    return with_checksum(_grown(url, snapshot).model_dump_json())


def _grown(url: str, snapshot: Manifest) -> GrownFrom:
    return GrownFrom(
        url=url,
        cluster=snapshot.cluster,
        generation=snapshot.generation,
        snapshot=str(snapshot.name),
        files=snapshot.files,
        by_hand=snapshot.by_hand,
    )


def read_grown_from(paths: TaskPaths, store: str) -> GrownFrom | None:
    """Return what is known; None if nothing is.

    Raises
    ------
    SnapshotError
        If the file cannot be read: whether the store may follow the newest snapshot is not known.
    """
    try:
        return GrownFrom.model_validate_json(read_checked(paths.snapshot(store)))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SnapshotError(
            f"{paths.snapshot(store)} cannot be read ({error}), so it is not known which snapshot the store grew from: "
            "it is not published; verify it with depth deep, and restore it with mode full and force"
        ) from None


def put_in_place_by(paths: TaskPaths, store: str) -> str | None:
    """Say by what a person has put a store in its place; None: by nothing, or that cannot be read."""
    try:
        grown = read_grown_from(paths, store)
    except SnapshotError:
        return None
    return None if grown is None else grown.by_hand


def write_grown_from(paths: TaskPaths, store: str, url: str, snapshot: Manifest) -> None:
    """Write down which snapshot a store is, durably; its holder must still have the task's locks."""
    require_locks(paths)
    write_checked(paths.snapshot(store), _grown(url, snapshot).model_dump_json())
