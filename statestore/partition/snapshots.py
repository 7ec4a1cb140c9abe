"""Snapshots of one store partition: publishing the sealed live store, and whether one may be restored from."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from statestore import clock
from statestore.archive.grown_from import GrownFrom, read_grown_from, write_grown_from
from statestore.archive.layout import seen, snapshot_name, time_ordered_uuid
from statestore.archive.manifest import Manifest, SnapshotFile
from statestore.archive.snapshots import (
    History,
    begin_generation,
    history,
    mark_suspect,
    readable,
)
from statestore.archive.upload import Published, Uploading, put_lately
from statestore.changelog import brokers_clock
from statestore.changelog.epochs import LogComparison, compare_ends
from statestore.errors import SnapshotError, StateStoreError, StoreCorruptedError
from statestore.kafka.topics import LogRange
from statestore.objects.store import ObjectStore
from statestore.partition.changelog_time import LogTimes, log_times
from statestore.partition.facts import LastKnown, LogFacts, RebuildLoss, cut_at, log_end
from statestore.partition.generations import known_origin, outdated, snapshot_directory
from statestore.partition.replacement import may_lack_versions
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import needs_stream_time, rebuild_loss, standing_of
from statestore.reports import Failure, Loss, SnapshotRow, Status
from statestore.statedir.record import StoreRecord, read_record
from statestore.statedir.seal import Seal, check_seal

#: What the definitions of a store and of its snapshot must have in common.
_SAME = {
    "kind",
    "format",
    "retention_ms",
    "window_size_ms",
    "retain_duplicates",
    "segment_interval_ms",
    "supplier",
    "logged",
}
#: In a manifest: what the stores of its task were built for (`tasks/shape.py`).
SHAPE = "shape"
#: Bytes of a file that a manifest has in itself, and of all of them together: each would cost requests of its own.
_INLINE, _ALL_INLINE = 16 * 1024, 64 * 1024
Source = Literal["process", "snapshot", "restore"]


def publish_live(spec: StorePartitionSpec, source: Source, put_before: Collection[str] = ()) -> Published | None:
    """Publish the live store, which was closed, recorded and sealed; the caller holds the task's lock.

    Parameters
    ----------
    put_before
        SHA-256 of files that were uploaded while the store was built.

    Returns
    -------
    Published or None
        None if there is nothing to be published: the store is not sealed, or its snapshot is there already. What the
        log does not give begins a new generation.

    Raises
    ------
    StoreCorruptedError
        If a file is not as it was sealed.
    SnapshotError
        If it must not be published: another generation was begun, what it grew from is suspect, or it lacks what an
        earlier snapshot has.
    ArchiveUnavailableError, ArchiveAccessError
        If the archive cannot be written; the store is as good as before.
    """
    sealed = check_seal(spec.paths, spec.store.name, spec.store.store_kind)
    record = read_record(spec.paths, spec.store.name)
    if sealed is None or record is None or record.committed != sealed.committed:
        return None
    objects, directory = spec.snapshot_archive.open(), snapshot_directory(spec)
    grown = read_grown_from(spec.paths, spec.store.name)
    files = snapshot_files(spec, sealed)
    uploading = Uploading(objects, spec.live)
    with ThreadPoolExecutor(1) as pool:
        listing = pool.submit(history, objects, directory)
        if grown is not None and grown.files:  # it is likely to be published, and little is new
            uploading.upload(files, grown.files)
        found = listing.result()
    known = known_origin(spec, objects, found, grown)
    begins = None if known is None else known.begins
    if begins is None:
        _require_fold(spec, record)
        _require_successor(spec, objects, found, known)
    generation = found.generation if begins is None else found.generation + 1
    kept = () if known is None else known.kept(found)
    if kept == files and _has_all(known, sealed):
        return None
    uploading.upload(files, (*kept, *put_lately(objects, files, put_before)))
    made = Manifest(
        cluster=directory.cluster,
        application=spec.application,
        definition=spec.store,
        task=str(spec.task),
        generation=generation,
        uuid=time_ordered_uuid(clock.now_ms()),
        topic=spec.partition.topic,
        partition=spec.partition.partition,
        committed=sealed.committed,
        record=record,
        own=_own_files(spec),
        files=files,
        source=source,
        host=socket.gethostname(),
        parent=None if known is None else known.snapshot,
        begins=begins is not None,
        by_hand=None if grown is None else grown.by_hand,
        written_ms=clock.now_ms(),
        written_by=_our_version(),
    )
    done = uploading.publish(made)
    if made.parent in done.after.suspects:
        mark_suspect(objects, directory, made.name, f"it grew from {made.parent}, which is suspect")
        raise SnapshotError(
            f"{spec.store_partition}: the snapshot that it grew from has become suspect. Verify the store"
        )
    if known is not None and begins is not None:
        if not begin_generation(objects, made, begins, known.id):
            mark_suspect(objects, directory, made.name, "another store began its generation")
            raise SnapshotError(f"{spec.store_partition}: another store has begun generation {generation} meanwhile")
        for other in done.after.snapshots:  # of an attempt that was killed before it began the generation
            if other.name.generation == generation and other.name != made.name:
                mark_suspect(objects, directory, other.name, "it was not what began its generation")
    write_grown_from(spec.paths, spec.store.name, spec.snapshot_archive.url, made)
    return done


def _has_all(known: GrownFrom | None, sealed: Seal) -> bool:
    """Tell whether the snapshot that a store grew from has seen as much of its log as the sealed store."""
    name = None if known is None or known.snapshot is None else snapshot_name(f"{known.snapshot}.json")
    return name is not None and name.offset == seen(sealed.committed)


def publish_row(spec: StorePartitionSpec, source: Source, put_before: Collection[str] = ()) -> SnapshotRow:
    """Publish the live store as `publish_live`; a failure of ours becomes part of the row."""
    started = time.monotonic()
    row = SnapshotRow(store=spec.store.name)
    try:
        done = publish_live(spec, source, put_before)
        if done is not None:
            update = {"snapshot": str(done.manifest.name), "files": done.files, "bytes": done.bytes}
            row = row.model_copy(update=update)
    except (StateStoreError, OSError) as error:
        row = row.model_copy(update={"failure": Failure.of(error)})
    except ValueError as error:  # a name or a number that no manifest may have
        row = row.model_copy(update={"failure": Failure.of(SnapshotError(f"it cannot be described: {error}"))})
    return row.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def _require_fold(spec: StorePartitionSpec, record: StoreRecord) -> None:
    """Refuse to publish a store that may not be what its log gives."""
    if record.at_least_once:
        raise SnapshotError(
            f"{spec.store_partition} was written at least once, so it may differ from its changelog: it is not "
            "published; restore it with mode full and --force"
        )


def _require_successor(spec: StorePartitionSpec, objects: ObjectStore, found: History, known: GrownFrom | None) -> None:
    """Refuse to publish a store that would take the place of snapshots which have what it lacks."""
    if known is not None:
        if (why := outdated(known, found)) is not None:
            raise SnapshotError(
                f"{spec.store_partition} is not published: {why}; verify it with depth deep, and restore it"
            )
        return
    newest = newest_snapshot(objects, found)
    lost = archived_loss(spec, found, newest)
    # What nothing rules out of a versioned store is as likely as not, and so is what a person has put there instead of
    # what the log gives. Clean-up takes a later snapshot for the heir of an earlier one.
    unlikely = spec.store.compaction_keeps_rows and (newest is None or newest.by_hand is None)
    refused = (Loss.LIKELY,) if unlikely else (Loss.LIKELY, Loss.UNPROVEN)
    if lost is not None and lost.loss in refused:
        raise SnapshotError(
            f"{spec.store_partition} is not published: {lost.why}, so it may lack what its snapshots have; restore it "
            "with mode snapshot, or with mode full and --accept-loss"
        )


def newest_snapshot(objects: ObjectStore, found: History) -> Manifest | None:
    """Return the newest snapshot of the current generation that can be read, suspect or not; None if there is none.

    It is evidence of what the store had.
    """
    listed = (one for one in found.snapshots if one.name.generation == found.generation)
    return next(readable(objects, listed, []), None)


def archived_loss(
    spec: StorePartitionSpec, found: History, newest: Manifest | None, log: LogRange | None = None
) -> RebuildLoss | None:
    """Return what a rebuild from the log would lose of what the archive has; None if it has no snapshot.

    Parameters
    ----------
    newest
        Of the history, as `newest_snapshot` returns it.
    log
        The changelog partition's offsets; None if they were not asked for.

    Raises
    ------
    KafkaUnavailableError
        If Kafka does not answer.
    """
    if newest is not None:
        return snapshot_loss(spec, newest, log)
    if any(one.name.generation == found.generation for one in found.snapshots):
        return RebuildLoss(Loss.LIKELY, "none of its snapshots can be read, so what they have is unknown")
    return None


def snapshot_loss(spec: StorePartitionSpec, snapshot: Manifest, log: LogRange | None = None) -> RebuildLoss:
    """Return what a rebuild from the log would lose of what a snapshot has; `log` as of `archived_loss`.

    Raises
    ------
    KafkaUnavailableError
        If Kafka does not answer.
    """
    if not spec.store.logged:
        return RebuildLoss(Loss.LIKELY, "it has no changelog")
    if spec.changelog is None:
        return RebuildLoss(Loss.LIKELY, f"changelog topic {spec.partition.topic} does not exist")
    if log is None:
        where = spec.partition
        log = spec.cluster.topics.log_ranges([where])[where]
    lacks = may_lack_versions(spec, snapshot.committed, log)
    facts = LogFacts(spec.changelog, log, cut_at(compared_end(spec, snapshot)), lacks_versions=lacks)
    lost = loss_by_log(spec, LastKnown(snapshot.committed is not None, snapshot.committed, snapshot.record), facts)
    if lost.loss is Loss.NONE and snapshot.by_hand is not None:
        why = f"it was put in place by {snapshot.by_hand}, and its log need not give its rows"
        return RebuildLoss(Loss.UNPROVEN, why)
    return lost


def loss_by_log(spec: StorePartitionSpec, known: LastKnown, facts: LogFacts) -> RebuildLoss:
    """Return the loss of a rebuild from the log; the log is read if times decide.

    Raises
    ------
    KafkaUnavailableError
        If Kafka does not answer.
    """
    times = log_times(spec, facts.log) if needs_stream_time(spec, known.record, facts.log) else LogTimes()
    facts = facts._replace(stream_time=times.latest, first_time=times.first)
    return rebuild_loss(
        known, facts, retention_ms=spec.store.row_retention_ms, now_ms=brokers_clock.now_ms(spec.cluster)
    )


def compared_end(spec: StorePartitionSpec, snapshot: Manifest) -> LogComparison | None:
    """Compare the log with where it ended when a snapshot was whole; None if that was not recorded."""
    end = log_end(snapshot.record, spec.changelog)
    if end is None:
        return None
    return compare_ends(spec.cluster, {spec.partition: end}).get(spec.partition)


def suspect_all(spec: StorePartitionSpec, why: str) -> None:
    """Mark the snapshots of a store whose rows were found to be wrong: nobody restores from them any more."""
    objects, directory = spec.snapshot_archive.open(), snapshot_directory(spec)
    # Again, as what another node has published meanwhile may have grown from one that was not yet marked.
    while usable := history(objects, directory).usable:
        for listed in usable:
            mark_suspect(objects, directory, listed.name, why)


@cache
def _our_version() -> str:
    return version("statestore")


def snapshot_files(spec: StorePartitionSpec, sealed: Seal) -> tuple[SnapshotFile, ...]:
    """Describe the files that make up a sealed store, by path; RocksDB's logs and lock are no part of it."""
    files = {path: SnapshotFile(path=path, bytes=file.bytes, sha256=file.sha256) for path, file in sealed.sst.items()}
    inline = 0
    for name, database in sealed.databases.items():
        inside = f"{name}/" if name else ""
        options = sorted(path.name for path in (spec.live / name).glob("OPTIONS-*[0-9]"))[-1:]
        for small in ("CURRENT", "IDENTITY", database.manifest, *options):
            if (spec.live / name / small).exists():
                files[inside + small] = found = _described(spec.live, inside + small, _ALL_INLINE - inline)
                inline += 0 if found.content is None else found.bytes
        if files[inside + database.manifest].sha256 != database.manifest_sha256:
            raise StoreCorruptedError(
                f"{spec.live / name / database.manifest} has changed since the store was closed; restore the store"
            )
    return tuple(files[path] for path in sorted(files))


def _described(directory: Path, path: str, room: int) -> SnapshotFile:
    """Describe a file, with its content if that is small and fits into the room that is left, in bytes."""
    content = (directory / path).read_bytes()
    inline = content if len(content) <= min(room, _INLINE) else None
    return SnapshotFile(path=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), content=inline)


def _own_files(spec: StorePartitionSpec) -> dict[str, str]:
    """Records of the store's segments, and offsets that the store does not keep itself."""
    kept = spec.paths.segments(spec.store.name)
    files = [path for path in kept.glob("*") if path.is_file() and not path.name.startswith(".")]  # left by a kill
    found = {f"segments/{path.name}": path.read_text(encoding="utf-8") for path in files}
    if spec.paths.shape.exists():
        found[SHAPE] = spec.paths.shape.read_text(encoding="utf-8")
    if not spec.store.files_are_known and (offsets := spec.paths.offsets(spec.store.name)).exists():
        found["offsets"] = offsets.read_text(encoding="utf-8")
    return found


def inadmissible(
    spec: StorePartitionSpec, snapshot: Manifest, log: LogRange, comparison: LogComparison | None, now_ms: int
) -> str | None:
    """Say why a snapshot and the rest of its log do not make the store; None if they do. Pure.

    Parameters
    ----------
    log
        The changelog partition's offsets now.
    comparison
        Of the log with where it ended when the snapshot was whole; None: not compared.
    now_ms
        The brokers' time, ms since the epoch.
    """
    if spec.store.logged and spec.changelog is None:
        return f"changelog topic {spec.partition.topic} does not exist"
    if differing := unlike(spec, snapshot):
        return f"it is {differing}"
    if spec.changelog is None:
        return None
    if (at := cut_at(comparison)) is not None:
        return f"its changelog was cut at offset {at} and has other records from there on"
    record: StoreRecord = snapshot.record
    empty = snapshot.committed is None  # it has files all the same
    found = standing_of(
        snapshot.committed,
        log,
        record,
        spec.changelog,
        empty=empty,
        now_ms=now_ms,
        may_be_rebuilt=spec.store.compaction_keeps_rows,
    )
    if found.status is Status.OK or found.catches_up:
        return None
    return found.detail


def unlike(spec: StorePartitionSpec, snapshot: Manifest) -> str:
    """Say in what a snapshot's store differs from the one that is defined; empty if it does not. Pure."""
    ours, its = (definition.model_dump(include=_SAME) for definition in (spec.store, snapshot.definition))
    differing = [name for name in sorted(_SAME) if ours.get(name) != its.get(name)]
    if not differing or (differing == ["format"] and _reads_older(spec, snapshot)):
        return ""
    return f"of a store with another definition: {', '.join(f'{name} {its.get(name)}' for name in differing)}"


def _reads_older(spec: StorePartitionSpec, snapshot: Manifest) -> bool:
    """Return whether a store reads the rows of a snapshot in an older format, and migrates them when they are used."""
    if not spec.store.files_are_known:
        return False
    kind = spec.store.store_kind
    ours, its = (kind.value_format(definition.format) for definition in (spec.store, snapshot.definition))
    return set(its.column_families) < set(ours.column_families)
