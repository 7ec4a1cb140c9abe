"""Differences between two copies of a store partition: a merge of both in key order, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa

from statestore.archive.manifest import Manifest
from statestore.discovery.archived import is_segmented, opened_snapshot
from statestore.discovery.opening import Opened, close_all, open_databases
from statestore.discovery.store_directory import LiveStore
from statestore.errors import InputError
from statestore.kinds.kind import StoreKind
from statestore.objects.store import ObjectStore
from statestore.statedir.paths import TaskPaths
from statestore.statedir.seal import known_files
from statestore.stores.scan import STORED_SCHEMA
from statestore.verification.comparison import Side, merged_sides
from statestore.verification.kernels import NO_TIMES, ONLY_IN_LOG, ONLY_IN_STORE, OTHER_VALUE

Change = Literal["added", "changed", "removed"]
#: Names of what `merge_rows` finds, where the earlier copy stands for the store and the later one for the log.
_CHANGES: dict[int, Change] = {ONLY_IN_LOG: "added", OTHER_VALUE: "changed", ONLY_IN_STORE: "removed"}
#: Without any of these in common, the same rows lie elsewhere, or are written otherwise.
_SAME = ("kind", "format", "retention_ms", "window_size_ms", "retain_duplicates", "segment_interval_ms")


class ChangedRow(NamedTuple):
    """A row that is not the same in both; its row key is as the changelog has it."""

    change: Change
    row_key: bytes


@dataclass
class RowCounts:
    """How many rows were found."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    equal: int = 0

    @property
    def differing(self) -> int:
        """Rows that are not the same in both."""
        return self.added + self.changed + self.removed


def require_comparable(before: Manifest, after: Manifest) -> None:
    """Refuse snapshots of different stores, and those whose rows cannot be compared.

    Raises
    ------
    InputError
        If they are not of the same store partition, defined in the same way.
    """
    if before.directory != after.directory:
        raise InputError(
            f"snapshot {before.name} is of {before.store_partition} in cluster {before.cluster}, snapshot {after.name} "
            f"of {after.store_partition} in cluster {after.cluster}; name two of the same store partition"
        )
    require_readable(before)
    for name in _SAME:
        its, other = getattr(before.definition, name), getattr(after.definition, name)
        if its != other:
            raise InputError(
                f"{before.store_partition} was redefined in between: {name} was {its}, then {other}; such snapshots "
                "cannot be compared"
            )


def require_readable(snapshot: Manifest) -> None:
    """Refuse the snapshot of a store of whose files nothing is known.

    Raises
    ------
    InputError
        If it is a supplier's.
    """
    if not snapshot.definition.files_are_known:
        raise InputError(
            f"snapshot {snapshot.name} is of a store of supplier {snapshot.definition.supplier}: its file format is "
            f"unknown, so it cannot be compared"
        )


def differing_from_snapshot(
    objects: ObjectStore, before: Manifest, later: Manifest | LiveStore, scratch: Path | None, counts: RowCounts
) -> Iterator[ChangedRow]:
    """Yield the rows that differ between a snapshot and a later one of it, or the live store as it is on disk.

    Files that both have are fetched once. Nothing is written where the live store lies.

    Parameters
    ----------
    scratch
        Directory with room for both; None: that of temporary files.

    Raises
    ------
    SnapshotError
        If a file is missing from the archive, or damaged.
    StoreCorruptedError
        If one of the two cannot be read.
    """
    local: dict[str, Path] = {}
    if isinstance(later, LiveStore):
        known = known_files(later.paths, later.name)
        local = {sha256: later.directory / path for path, sha256 in known.items()}
    with ExitStack() as opened:
        earlier = opened.enter_context(opened_snapshot(objects, before, scratch, local=local))
        if isinstance(later, LiveStore):
            databases = open_databases(later, before.definition.values)
            opened.callback(close_all, databases)
        else:
            local = {file.sha256: earlier.directory / file.path for file in before.files}
            databases = opened.enter_context(opened_snapshot(objects, later, scratch, local=local)).databases
        yield from differing_rows(earlier.databases, databases, counts, before.definition.store_kind)


def live_store(snapshot: Manifest, state_dir: Path) -> LiveStore:
    """Return where a state directory has the store whose snapshot this is.

    Raises
    ------
    InputError
        If it has none.
    """
    application, store, task = snapshot.store_partition
    paths = TaskPaths(state_dir, application, task)
    segmented = is_segmented(snapshot)
    live = paths.task_dir / store if segmented else paths.store(store)
    if not live.is_dir():
        raise InputError(f"{snapshot.store_partition} has no store in {live}; name another snapshot, or restore it")
    return LiveStore(store, segmented, live, application, task, state_dir)


def differing_rows(
    before: Sequence[Opened], after: Sequence[Opened], counts: RowCounts, kind: StoreKind
) -> Iterator[ChangedRow]:
    """Yield the rows that differ, segment by segment and in key order; all rows are counted on the way.

    Values are compared as they are stored, with their timestamps.

    Raises
    ------
    StoreCorruptedError
        If one cannot be read.
    """
    earlier, later = ({opened.start: opened for opened in databases} for databases in (before, after))
    for start in sorted({*earlier, *later}):
        for row in merged_rows(_rows(earlier.get(start), kind), _rows(later.get(start), kind), counts):
            yield row._replace(row_key=kind.logged_key(row.row_key))


def _rows(database: Opened | None, kind: StoreKind) -> Iterable[pa.RecordBatch]:
    return () if database is None else database.rows(*kind.bounds_on_disk((None, None)))


def merged_rows(
    before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], counts: RowCounts
) -> Iterator[ChangedRow]:
    """Yield the rows that differ between two databases; both come in key order, in batches of `STORED_SCHEMA`."""
    earlier, later = Side(before, STORED_SCHEMA), Side(after, STORED_SCHEMA)
    for found in merged_sides(earlier, later, NO_TIMES):
        counts.equal += found.same
        rows, others = found.rows
        for kind, mine, its in zip(*(each.tolist() for each in (found.kinds, *found.at)), strict=True):
            change = _CHANGES[kind]
            setattr(counts, change, getattr(counts, change) + 1)
            yield ChangedRow(change, (rows.column(0)[mine] if mine >= 0 else others.column(0)[its]).as_py())
