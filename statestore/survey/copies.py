"""What the archive and the reports tell about stores: their snapshots, and whether they were ever verified."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from statestore.archive.archive import open_archive
from statestore.archive.contents import all_histories
from statestore.objects.path import Location
from statestore.reports import Status
from statestore.verification.history import read_history

#: Application and store.
StoreName = tuple[str, str]
_NOT_VERIFIED = frozenset({Status.LOCKED, Status.UNDETERMINED, Status.UNKNOWN_FORMAT})


class Snapshot(NamedTuple):
    """The newest usable snapshot of a store partition.

    Attributes
    ----------
    seen
        Number of changelog offsets in it.
    """

    written_ms: int
    seen: int


class Copies(NamedTuple):
    """Snapshots and verifications by store, then by partition; None: they were not looked at."""

    snapshots: Mapping[StoreName, Mapping[int, Snapshot]] | None = None
    verified: Mapping[StoreName, frozenset[int]] | None = None
    archive: str = ""
    reports_dir: str = ""


def read_snapshots(url: str, timeout_s: float, cluster: str) -> dict[StoreName, dict[int, Snapshot]]:
    """List the newest usable snapshots of a cluster.

    Raises
    ------
    ArchiveAccessError, ArchiveUnavailableError
        If there is no archive, or it cannot be listed.
    """
    found: dict[StoreName, dict[int, Snapshot]] = defaultdict(dict)
    for history in all_histories(open_archive(url, timeout_s, create=False), cluster):
        application, store, task = history.directory.store_partition
        if history.usable:
            newest = history.usable[0]
            found[application, store][task.partition] = Snapshot(newest.written_ms, newest.name.offset)
    return dict(found)


def read_verified(reports_dir: Location) -> dict[StoreName, frozenset[int]]:
    """Return the partitions of stores that a verification in the reports has judged."""
    found: dict[StoreName, set[int]] = defaultdict(set)
    table = read_history(reports_dir).select(["application", "store", "task", "status"])
    for row in table.group_by(table.column_names).aggregate([]).to_pylist():
        number = row["task"].rpartition("_")[2]
        if row["status"] not in _NOT_VERIFIED and number.isdigit():
            found[row["application"], row["store"]].add(int(number))
    return {name: frozenset(numbers) for name, numbers in found.items()}
