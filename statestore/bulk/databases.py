"""From sorted runs to the databases of a store, with offsets, whole and on disk.

The files of a database are written in key order and do not overlap, so they lie in RocksDB's last level when they are
taken over: reads are as after a compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from statestore.bulk.ahead import one_ahead
from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, SegmentRows, merged
from statestore.bulk.segment_files import SegmentFiles, counted, write_time_ordered
from statestore.bulk.time_ordered import without_end
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_tree, sync_directory
from statestore.errors import StoreAccessError, StoreCorruptedError, of_os_error
from statestore.formats import offsets as offsets_format
from statestore.formats import position as position_format
from statestore.kafka.record_columns import batch_of
from statestore.kinds.kind import by_form
from statestore.model import TopicPartition
from statestore.sst.layout import OtherLayoutError
from statestore.sst.writer import SstFiles
from statestore.stores.new_database import make_database, new_identity

#: Start of the segment that a windowed store without rows has, so that its offsets have a place.
_EMPTY_SEGMENT = 0


class Written(NamedTuple):
    """Result of a build: rows, bytes of the files with the rows, and the digest of the rows (`Digest`)."""

    rows: int
    bytes: int
    digest: str


def write_databases(
    runs: Sequence[Runs],
    store: StoreDefinition,
    directory: Path,
    offsets: Mapping[TopicPartition, int],
    position: Mapping[TopicPartition, int] | None = None,
    *,
    ahead: bool = False,
) -> Written:
    """Build a store from sorted runs; all of it is on disk when this returns.

    Parameters
    ----------
    runs
        One for each range of the log, in offset order.
    directory, offsets, position
        As of `make_databases`.
    ahead
        Have a thread merge the next rows while these are written. It pays where no other store has the second core.

    Raises
    ------
    StoreAccessError
        If there is something in the directory.
    DiskSpaceError
        If the disk is full.
    """
    digest = Digest(store.values)
    staged = directory.with_name(f".{directory.name}.sst")  # no store can have such a name
    found = write_files(runs, store, staged, digest, partial(_database, store, directory), ahead=ahead)
    try:
        remove_tree(staged)
        size = make_databases(found, store, directory, offsets, position)
    finally:
        remove_tree(staged)
    return Written(digest.rows, size, digest.hexdigest())


def write_files(
    runs: Sequence[Runs],
    store: StoreDefinition,
    directory: Path,
    digest: Digest,
    place: Callable[[int], Path] | None = None,
    *,
    ahead: bool = False,
) -> Iterator[SegmentFiles]:
    """Write the rows of sorted runs as SST files, one segment after the other; they are not forced to the disk.

    Parameters
    ----------
    directory
        Where the files go, each segment's into a directory of its own.
    digest
        The rows are added to it.
    place
        Where the files of a segment go instead, if its rows need not be sorted once more.
    ahead
        As of `write_databases`.
    """
    try:
        found = merged(runs, routing_of(store))
        with closing(one_ahead(found) if ahead else found) as rows_by_segment:
            yield from _WRITERS[store.store_kind.row_form](rows_by_segment, store, directory, digest, place)
    except OSError as error:
        raise of_os_error(error) from error


def _write_rows(
    rows_by_segment: Iterable[SegmentRows],
    store: StoreDefinition,
    directory: Path,
    digest: Digest,
    place: Callable[[int], Path] | None,
) -> Iterator[SegmentFiles]:
    for segment, rows in groupby(rows_by_segment, key=lambda found: found.segment):
        into = directory / str(segment) if place is None else place(segment)
        into.mkdir(parents=True, exist_ok=True)
        with SstFiles(into, timestamped=store.values.timestamp_in_front, prefix="rows-") as files:
            for _, batch in rows:
                digest.add(batch)
                files.add(without_end(batch, store.store_kind.logged_values_end_with))
            files.finish()
        yield SegmentFiles(segment, tuple(files.files), files.bytes)


def _write_time_ordered(
    rows_by_segment: Iterable[SegmentRows], store: StoreDefinition, directory: Path, digest: Digest, _: object
) -> Iterator[SegmentFiles]:
    return write_time_ordered(counted(rows_by_segment, digest), store, directory)


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
                _database(store, directory, found.segment),
                found.files,
                offsets,
                position or {},
            )
            size += found.bytes
            databases += 1
        if not databases:
            _make_database(store, _database(store, directory, _EMPTY_SEGMENT), [], offsets, position or {})
        if store.segmented:  # else it is the database's own, which is on disk
            sync_directory(directory)
        sync_directory(directory.parent)
    except OSError as error:
        raise of_os_error(error) from error
    return size


def _database(store: StoreDefinition, directory: Path, segment: int) -> Path:
    return store.store_kind.database(directory, store.name, segment)


def _make_database(
    store: StoreDefinition,
    directory: Path,
    files: Sequence[Path],
    offsets: Mapping[TopicPartition, int],
    position: Mapping[TopicPartition, int],
) -> None:
    made = store.values.made_families
    identity = new_identity()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        beside = _offsets_files(directory, offsets, position, identity)
        rows: dict[str, Sequence[Path]] = {**dict.fromkeys(made, ()), made[0]: files}
        make_database(directory, {**rows, offsets_format.COLUMN_FAMILY: beside}, identity)
    except OtherLayoutError as error:
        raise StoreCorruptedError(f"a file of {directory} is damaged: {error}; run it again") from error


def _offsets_files(
    directory: Path, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int], identity: bytes
) -> list[Path]:
    """Write the offsets of a database that is closed, into a file that no other database takes for its own."""
    rows = {offsets_format.offset_key(partition): offset for partition, offset in offsets.items()}
    rows[offsets_format.STATUS_KEY] = offsets_format.STATUS_CLOSED
    found = {key: offsets_format.encode_int64(number) for key, number in rows.items()}
    if position:
        found[offsets_format.POSITION_KEY] = position_format.encode(position)
    keys, values = zip(*sorted(found.items()), strict=True)
    numbers = [0] * len(keys)
    with SstFiles(directory, timestamped=False, creator=identity, prefix="offsets-") as files:
        files.add(batch_of(keys, values, numbers, numbers))
        return files.finish()


_WRITERS = by_form(_write_rows, time_ordered=_write_time_ordered)
