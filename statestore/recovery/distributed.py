"""Building one store partition on many machines, where each has a disk of its own: they exchange files by the archive.

    begin_build        the driver fixes the ranges of the log, and the keys at which their sorted runs are cut
    read_log_range     one machine for each range: its runs, cut at these keys, are uploaded
    merge_key_range    one machine for each range of keys: it merges what all ranges have of it to SST files
    put_together       the machine that gets the store fetches these files and makes the databases of them

Reading, merging and writing are those of a build on one machine (full.py). What is committed once is used by whoever
goes on: another attempt, or another restore of the same store partition. If anything of it fails, the restore builds
the store alone, from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

from statestore import clock, kill_switch
from statestore.archive.builds import (
    KeyRangeMerged,
    LogRangeRead,
    Piece,
    SegmentBlobs,
    create,
    described,
    listed_builds,
    put_piece,
    read,
    read_key_range,
    remove_build,
)
from statestore.archive.builds import read_log_range as range_read
from statestore.archive.fetch import fetch_files
from statestore.archive.layout import BuildDirectory, time_ordered_uuid
from statestore.archive.manifest import SnapshotFile, StoredFile
from statestore.archive.upload import put_files
from statestore.bulk.databases import make_databases, write_files
from statestore.bulk.digest import Digest
from statestore.bulk.pieces import choose_cuts, cut_runs, require_piece
from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, stream_time
from statestore.bulk.segment_files import SegmentFiles
from statestore.bulk.versions import fold_of
from statestore.changelog import brokers_clock
from statestore.changelog.reader import ChangelogReader
from statestore.durable import remove_tree
from statestore.errors import SnapshotError, StateStoreError
from statestore.formats.offsets import UNKNOWN_OFFSET
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.objects.store import ObjectStore
from statestore.partition.needed_offsets import latest
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.disk_space import (
    disk_to_merge,
    disk_to_put_together,
    require_disk,
    require_room,
    sample_places,
)
from statestore.recovery.distributed_plan import DistributedPlan, FoundBuild, builds_there, unfit
from statestore.recovery.full import Built, Logs, keep_interval, new_plan, read_range, store_logs
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.staging import OffsetRange, Staging, merged_positions
from statestore.recovery.tail import building, replay_staged
from statestore.statedir.scratch import default_scratch, scratch_directory

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Places of a log in which keys are looked at, to cut it.
_SAMPLED = 32


def begin_build(spec: RestoreSpec) -> FoundBuild:
    """Go on with a build that is in the archive and fits the log, or begin one; those of no use are removed.

    Raises
    ------
    ArchiveUnavailableError, ArchiveAccessError
        If the archive does not answer.
    """
    asked_ms, store = brokers_clock.now_ms(spec.store.cluster), spec.store
    logs, objects = store_logs(store), _objects(store)
    found, useless = builds_there(store, objects, logs)
    for one in useless:
        remove_build(objects, one)
    if found is not None:
        return found
    routing = routing_of(store.store)
    cuts = choose_cuts(_sample(store, logs), spec.ranges, routing)
    plan = DistributedPlan(
        reading=new_plan(spec, logs, asked_ms), format=store.store.format, cuts=tuple(key.hex() for key in cuts)
    )
    directory = _directory(store, time_ordered_uuid(clock.now_ms()))
    create(objects, directory.plan, plan)
    return FoundBuild(directory, plan, frozenset({directory.plan}))


def read_log_range(spec: RestoreSpec, part: OffsetRange, progress: RestoreProgressWriter) -> LogRangeRead:
    """Read one range of the log, upload the pieces of its sorted runs, and commit them, unless somebody has.

    Raises
    ------
    SnapshotError
        If the build is gone: another restore of the store has ended.
    """
    store, objects = spec.store, _objects(spec.store)
    found = _found(spec, objects)
    directory, plan = found.directory, found.plan
    if part not in plan.reading.ranges:
        raise SnapshotError(f"{directory} does not have the range {part}; run the restore again")
    if (done := range_read(objects, directory, part.partition, part.start)) is not None:
        return done
    partition = store.partition._replace(partition=part.partition)
    with scratch_directory(default_scratch(store.state_dir)) as scratch:
        here = spec._replace(store=store.model_copy(update={"state_dir": scratch / "state"}), ranges=1)
        require_disk(here, "full", {partition: LogRange(part.start, part.end, part.end)})
        staging = Staging(here.store.paths, store.store.name)
        progress.reading(part.start, part.end)
        (runs,), _ = read_range(here, staging, part, progress, fold_of(here.store.store), keep_in_memory=True)
        progress.phase("building")
        pieces: list[Piece | None] = [None for _ in plan.key_ranges]
        for piece in cut_runs(runs, plan.cut_keys, plan.reading.routing, scratch / "pieces"):
            pieces[piece.number] = put_piece(objects, directory, piece.path, piece.row_bytes)
            piece.path.unlink()
        kill_switch.reached("restore, pieces uploaded")
        made = LogRangeRead(
            build=directory.uuid,
            partition=part.partition,
            start=part.start,
            end=part.end,
            records=runs.records,
            skipped=runs.skipped,
            last_offset=runs.last_offset,
            stream_time=runs.stream_time,
            position=tuple(staging.position().items()),
            pieces=tuple(pieces),
        )
    name = directory.log_range(part.partition, part.start)
    create(objects, name, made)
    kill_switch.reached("restore, range committed")
    # Another attempt may have been first: what it has committed counts.
    return _there(range_read(objects, directory, part.partition, part.start), objects, name)


def merge_key_range(spec: RestoreSpec, number: int, progress: RestoreProgressWriter) -> KeyRangeMerged:
    """Merge what all ranges of the log have of one range of keys, upload its SST files, and commit them.

    Raises
    ------
    SnapshotError
        If the build, or a part of it, is gone or damaged.
    StoreCorruptedError
        If a piece is none of sorted runs.
    """
    store, objects = spec.store, _objects(spec.store)
    found = _found(spec, objects)
    directory, plan = found.directory, found.plan
    if (done := read_key_range(objects, directory, number)) is not None:
        return done
    ranges = _ranges(objects, found)
    pieces = {at: one.pieces[number] for at, one in enumerate(ranges)}
    files = {
        at: SnapshotFile(path=f"{at}.arrow", bytes=piece.bytes, sha256=piece.sha256)
        for at, piece in pieces.items()
        if piece is not None
    }
    fetched_bytes = sum(file.bytes for file in files.values())
    row_bytes = sum(piece.row_bytes for piece in pieces.values() if piece is not None)
    require_room(store, disk_to_merge(fetched_bytes, row_bytes, len(files)), f"merging keys {number}")
    routing, digest = plan.reading.routing, Digest(store.store.values)
    with scratch_directory(default_scratch(store.state_dir)) as scratch:
        progress.fetching(fetched_bytes)
        fetch_files(objects, scratch / "pieces", files.values(), directory.piece, progress.fetched)
        paths = {at: scratch / "pieces" / file.path for at, file in files.items()}
        for path in paths.values():
            require_piece(path, number, plan.cut_keys, routing)
        progress.phase("building")
        runs = [_runs(one, [paths[at]] if at in paths else []) for at, one in enumerate(ranges)]
        segments = []
        for made in write_files(runs, store.store, scratch / "sst", digest):
            uploaded = [described(scratch / "sst", path) for path in made.files]
            put_files(objects, scratch / "sst", uploaded)
            remove_tree(scratch / "sst" / str(made.segment))
            blobs = tuple(StoredFile(bytes=file.bytes, sha256=file.sha256) for file in uploaded)
            segments.append(SegmentBlobs(segment=made.segment, files=blobs))
    kill_switch.reached("restore, key range uploaded")
    merged = KeyRangeMerged(
        build=directory.uuid, number=number, rows=digest.rows, digest=digest.hexdigest(), segments=tuple(segments)
    )
    name = directory.key_range(number)
    create(objects, name, merged)
    kill_switch.reached("restore, key range committed")
    return _there(read_key_range(objects, directory, number), objects, name)


def put_together(spec: RestoreSpec, logs: Logs, progress: RestoreProgressWriter, asked_ms: int) -> tuple[Built, int]:
    """Make the store of a build in the staging directory, bring it to the end of its changelog, and check it.

    Parameters
    ----------
    asked_ms
        Time of the brokers before the logs' ends were asked for.

    Returns
    -------
    Built
        What was built.
    int
        Its rows.

    Raises
    ------
    SnapshotError
        If the build does not fit the log of now, or a part of it is gone or damaged.
    StoreCorruptedError
        If what was built is not what was merged.
    DiskSpaceError
        If its files are not likely to fit here.
    StoreBehindLogStartError
        If reading took longer than the log keeps tombstones.
    """
    store, objects = spec.store, _objects(spec.store)
    found = _found(spec, objects)
    ranges, reading = _ranges(objects, found), found.plan.reading
    all_read = frozenset(found.directory.log_range(part.partition, part.start) for part in reading.ranges)
    if (why := unfit(store, found._replace(done=all_read), logs)) is not None:
        raise SnapshotError(f"{objects.url}/{found.directory} cannot be used: {why}")
    key_ranges = [
        _there(read_key_range(objects, found.directory, number), objects, found.directory.key_range(number))
        for number in found.plan.key_ranges
    ]
    files, digest = _files_by_segment(key_ranges), Digest(store.store.values)
    for one in key_ranges:
        digest.add_digest(one.rows, one.digest)
    size = sum(file.bytes for segment in files.values() for file in segment)
    require_room(store, disk_to_put_together(size), "putting it together")
    first = min((part.start for part in reading.ranges), default=None)
    offsets_read = sum(part.end - part.start for part in reading.ranges)
    progress.reading(first or 0, (first or 0) + offsets_read)
    progress.resumed(offsets_read)
    last = _last_offsets(store, ranges)
    with building(store) as staged:
        progress.fetching(size)
        fetched = staged.with_name(f".{staged.name}.sst")  # no store can have such a name
        fetch_files(objects, fetched, _flat(files), advanced=progress.fetched)
        kill_switch.reached("restore, files fetched")
        progress.phase("building")
        segments = (
            SegmentFiles(segment, tuple(fetched / file.path for file in one), sum(file.bytes for file in one))
            for segment, one in files.items()
        )
        offsets = {partition: UNKNOWN_OFFSET if offset is None else offset for partition, offset in last.items()}
        make_databases(segments, store.store, staged, offsets, _position(ranges))
        remove_tree(fetched)
        keep_interval(store)
        kill_switch.reached("restore, databases written")
        records, time = sum(one.records for one in ranges), stream_time([_runs(one, []) for one in ranges])
        built = Built(
            records=records,
            skipped=sum(one.skipped for one in ranges),
            resumed=records,
            rows=digest.rows,
            committed=last,
            digest=digest.hexdigest(),
            since_ms=reading.started_ms,
            stream_time=time if store.store.retention_ms is not None and time >= 0 else None,
            first=first,
            uploaded=frozenset(file.sha256 for file in _flat(files)),
        )
        built = _with_tail(spec, found, built, logs, progress, asked_ms)
        progress.phase("checking")
        return built, check_staged(store, built, spec.request.check)


def remove_builds(store: StorePartitionSpec) -> None:
    """Remove what is left of builds once a store is restored; what cannot be removed now is left to clean-up."""
    try:
        objects = _objects(store)
        for one in listed_builds(objects, store.snapshot_archive.cluster, store.store_partition):
            remove_build(objects, one)
    except (StateStoreError, OSError) as error:
        _log.warning("restore: %s: its build stays in the archive: %s", store.store_partition, error)


def _objects(store: StorePartitionSpec) -> ObjectStore:
    return store.snapshot_archive.open()


def _directory(store: StorePartitionSpec, uuid: str) -> BuildDirectory:
    return BuildDirectory(store.snapshot_archive.cluster, store.store_partition, uuid)


def _found(spec: RestoreSpec, objects: ObjectStore) -> FoundBuild:
    assert spec.build is not None
    directory = _directory(spec.store, spec.build)
    plan = _there(read(objects, directory.plan, DistributedPlan), objects, directory.plan)
    return FoundBuild(directory, plan, frozenset())


def _there(found: T | None, objects: ObjectStore, name: str) -> T:
    if found is None:
        raise SnapshotError(
            f"{objects.url}/{name} does not exist: another restore has ended, or clean-up has removed it"
        )
    return found


def _sample(store: StorePartitionSpec, logs: Logs) -> Iterator[pa.RecordBatch]:
    for partition, log in logs.items():
        with ChangelogReader(store.cluster, partition) as reader:
            for start, end in sample_places(log.start, log.last_stable, _SAMPLED):
                yield from reader.read(start, end)


def _ranges(objects: ObjectStore, found: FoundBuild) -> list[LogRangeRead]:
    """Return what became of all ranges of the log, in their order."""
    result = []
    for part in found.plan.reading.ranges:
        name = found.directory.log_range(part.partition, part.start)
        one = _there(range_read(objects, found.directory, part.partition, part.start), objects, name)
        if one.end != part.end or len(one.pieces) != len(found.plan.key_ranges):
            raise SnapshotError(f"{objects.url}/{name} does not belong to the build's plan")
        result.append(one)
    return result


def _runs(found: LogRangeRead, files: Iterable[object]) -> Runs:
    return Runs(
        tuple(files),  # type: ignore[arg-type]
        None,
        found.records,
        found.skipped,
        found.last_offset,
        found.start,
        found.end,
        found.stream_time,
    )


def _files_by_segment(key_ranges: Iterable[KeyRangeMerged]) -> dict[int, list[SnapshotFile]]:
    """Name the files of all ranges of keys, each segment's in key order."""
    found: dict[int, list[SnapshotFile]] = {}
    for one in key_ranges:
        for segment in one.segments:
            files = found.setdefault(segment.segment, [])
            for file in segment.files:
                path = f"{segment.segment}/{len(files) + 1:06d}.sst"
                files.append(SnapshotFile(path=path, bytes=file.bytes, sha256=file.sha256))
    return dict(sorted(found.items()))


def _flat(files: dict[int, list[SnapshotFile]]) -> list[SnapshotFile]:
    return [file for segment in files.values() for file in segment]


def _last_offsets(store: StorePartitionSpec, ranges: Iterable[LogRangeRead]) -> dict[TopicPartition, int | None]:
    last: dict[TopicPartition, int | None] = dict.fromkeys(store.partitions)
    for one in ranges:
        if one.last_offset is not None:
            last[store.partition._replace(partition=one.partition)] = one.last_offset
    return last


def _position(ranges: Iterable[LogRangeRead]) -> dict[TopicPartition, int]:
    with_records = [one for one in ranges if one.last_offset is not None]
    return merged_positions({(one.partition, one.start): dict(one.position) for one in with_records})


def _with_tail(
    spec: RestoreSpec, found: FoundBuild, built: Built, logs: Logs, progress: RestoreProgressWriter, asked_ms: int
) -> Built:
    """Add what the log has got since the build was begun, as to a store from a snapshot."""
    reading, log = found.plan.reading, logs[spec.store.partition]
    if log.last_stable <= max((part.end for part in reading.ranges), default=log.start):
        return built
    added = replay_staged(spec, logs, built.committed_offset, progress, asked_ms, reading.started_ms)
    return built._replace(
        records=built.records + added.records,
        skipped=built.skipped + added.skipped,
        rows=None,
        committed=added.committed,
        digest=None,
        since_ms=added.since_ms,
        stream_time=latest(built.stream_time, added.stream_time),
    )
