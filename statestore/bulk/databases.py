"""From sorted runs to the databases of a store, with offsets, whole and on disk.

The files of a database are written in key order and do not overlap, so they lie in RocksDB's last level when they are
taken over: reads are as after a compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, merged
from statestore.bulk.segment_files import SegmentFiles, counted, write_time_ordered
from statestore.bulk.time_ordered import without_end
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_tree, sync_directory
from statestore.errors import StoreAccessError, of_os_error
from statestore.formats.offsets import STATUS_CLOSED
from statestore.model import TopicPartition
from statestore.sst.writer import SstFiles
from statestore.stores.rocksdb import RocksDB

#: Start of the segment that a windowed store without rows has, so that its offsets have a place.
_EMPTY_SEGMENT = 0


class Written(NamedTuple):
    """What was built: rows, bytes of the files with the rows, and the digest of the rows (`Digest`)."""

    rows: int
    bytes: int
    digest: str


def write_databases(
    runs: Sequence[Runs],
    store: StoreDefinition,
    directory: Path,
    offsets: Mapping[TopicPartition, int],
    position: Mapping[TopicPartition, int] | None = None,
) -> Written:
    """Build a store from sorted runs; all of it is on disk when this returns.

    Parameters
    ----------
    runs
        One for each range of the log, in offset order.
    directory, offsets, position
        As of `make_databases`.

    Raises
    ------
    StoreAccessError
        If there is something in the directory.
    DiskSpaceError
        If the disk is full.
    """
    digest = Digest(store.values)
    staged = directory.with_name(f".{directory.name}.sst")  # no store can have such a name
    try:
        remove_tree(staged)
        size = make_databases(write_files(runs, store, staged, digest), store, directory, offsets, position)
    finally:
        remove_tree(staged)
    return Written(digest.rows, size, digest.hexdigest())


def write_files(
    runs: Sequence[Runs], store: StoreDefinition, directory: Path, digest: Digest
) -> Iterator[SegmentFiles]:
    """Write the rows of sorted runs as SST files, one segment after the other; they are not forced to the disk.

    Parameters
    ----------
    directory
        Where the files go, each segment's into a directory of its own.
    digest
        The rows are added to it.
    """
    kind = store.store_kind
    rows_by_segment = merged(runs, routing_of(store))
    if kind.layout is not None:
        yield from write_time_ordered(counted(rows_by_segment, digest), kind.layout, directory, store.values)
        return
    try:
        for segment, rows in groupby(rows_by_segment, key=lambda found: found.segment):
            into = directory / str(segment)
            into.mkdir(parents=True)
            with SstFiles(into, timestamped=store.values.timestamp_in_front) as files:
                for _, batch in rows:
                    digest.add(batch)
                    files.add(without_end(batch, kind.logged_values_end_with))
                files.finish()
            yield SegmentFiles(segment, tuple(files.files), files.bytes)
    except OSError as error:
        raise of_os_error(error) from error


def make_databases(
    segments: Iterable[SegmentFiles],
    store: StoreDefinition,
    directory: Path,
    offsets: Mapping[TopicPartition, int],
    position: Mapping[TopicPartition, int] | None = None,
) -> int:
    """Make the databases of a store of SST files, which are moved; return their bytes. All of it is on disk then.

    Parameters
    ----------
    segments
        Each once.
    directory
        Where the store is to be, not there or empty: a key-value store's database, or the segments of another as
        `<directory>/<store>.<start ms>`. Those are the segments that are live at the ranges' stream time and have
        rows; if none has, an empty one holds the offsets.
    offsets, position
        Committed with the rows, in each segment.

    Raises
    ------
    StoreAccessError
        If there is something in the directory.
    DiskSpaceError
        If the disk is full.
    """
    if directory.exists() and any(directory.iterdir()):
        raise StoreAccessError(f"{directory} is not empty; expected an empty directory to build store {store.name} in")
    size = databases = 0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for found in segments:
            _make_database(
                store,
                store.store_kind.database(directory, store.name, found.segment),
                found.files,
                offsets,
                position or {},
            )
            size += found.bytes
            databases += 1
        if not databases:
            _make_database(
                store, store.store_kind.database(directory, store.name, _EMPTY_SEGMENT), [], offsets, position or {}
            )
        for made in (directory, directory.parent):  # RocksDB has seen to what is in a database's own
            sync_directory(made)
    except OSError as error:
        raise of_os_error(error) from error
    return size


def _make_database(
    store: StoreDefinition,
    directory: Path,
    files: Sequence[Path],
    offsets: Mapping[TopicPartition, int],
    position: Mapping[TopicPartition, int],
) -> None:
    made = store.values.made_families
    database = RocksDB(directory, made, store=store.name)
    try:
        database.ingest(made[0], files)  # by moving them; RocksDB then forces them to the disk
        database.write({}, offsets, position or None, STATUS_CLOSED)
        database.sync()
    finally:
        database.close()
