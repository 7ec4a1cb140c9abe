"""Catching up: the records that a store has not seen, brought into a hard-linked copy of it, or into a fetched one.

A long tail becomes sorted runs, as all of a log does in a rebuild, and SST files that lie over the store's. A short one
is replayed record by record: that takes less than making files. So is every tail of a supplier's store, which is also
built anew in this way: all of its log is replayed into an empty one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from statestore import kill_switch
from statestore.bulk.ingestion import ingest
from statestore.bulk.routing import routing_of
from statestore.bulk.runs import RunWriter
from statestore.changelog import brokers_clock
from statestore.changelog.reader import ChangelogReader
from statestore.durable import remove_tree
from statestore.errors import StateStoreError, StoreBehindLogStartError, StoreCorruptedError
from statestore.formats.database_files import has_rows
from statestore.kafka.topics import LogRange
from statestore.kinds.segment_directories import segments_in
from statestore.partition.replacement import (
    clear_built,
    has_lost_none,
    may_follow,
    require_tombstones,
    staged_context,
)
from statestore.partition.replay import Replayed, replay
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Built, Logs, build_full
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Staging
from statestore.recovery.unknown_headers import require_no_headers
from statestore.statedir.record import read_record, whole_ms
from statestore.stores.built_in import BuiltInBytes
from statestore.stores.open import build_store
from statestore.stores.typed import AnyStore

#: Tails of so many offsets are sorted; below, sorting and a replay take about as long.
LEAST_SORTED = 10_000
_NOT_COPIED = ("LOCK", "LOG")


def build_anew(
    spec: RestoreSpec, staging: Staging, logs: Logs, progress: RestoreProgressWriter, asked_ms: int
) -> Built:
    """Build a store from all of its log, by a replay if nothing is known of its files."""
    if spec.store.store.files_are_known:
        return build_full(spec, staging, logs, progress, asked_ms)
    return build_replayed(spec, logs, None, progress, asked_ms, anew=True)


def build_replayed(
    spec: RestoreSpec,
    logs: Logs,
    before: int | None,
    progress: RestoreProgressWriter,
    asked_ms: int,
    *,
    anew: bool = False,
) -> Built:
    """Bring a copy of the live store to the end of its changelog, in the staging directory.

    Parameters
    ----------
    before
        Offset of the last changelog record in the live store.
    asked_ms
        Time of the brokers before the logs' ends were asked for.
    anew
        Begin with an empty store instead, at the log's start.

    Raises
    ------
    StoreBehindLogStartError
        If the replay took so long that deletes behind the store's offset may be gone from the log.
    """
    store = spec.store
    record = read_record(store.paths, store.store.name)
    # A store that has nothing of its log is replayed from the log's start: only the replay itself takes time.
    known_ms = asked_ms if anew or before is None else whole_ms(record, before, asked_ms)
    with building(store) as staged:
        if not anew:
            link_store(store, staged)
        reached = None if anew or record is None else store.store.store_kind.replayed_from(record.stream_time)
        built = replay_staged(spec, logs, before, progress, asked_ms, known_ms, anew=anew, stream_time=reached)
    return built if anew or reached is not None else built._replace(stream_time=None)  # its task finds it out


@contextmanager
def building(store: StorePartitionSpec) -> Iterator[Path]:
    """Yield the directory of a staged store, yet to be made; what is in it is removed if it cannot be built."""
    try:
        staged = store.paths.staging(store.store.name)
        clear_built(store.paths)
        staged.parent.mkdir(parents=True)
        yield staged
    except (StateStoreError, OSError):
        clear_built(store.paths)  # perhaps the disk is full of it
        raise


def replay_staged(
    spec: RestoreSpec,
    logs: Logs,
    before: int | None,
    progress: RestoreProgressWriter,
    asked_ms: int,
    whole_ms: int | None,
    *,
    anew: bool = False,
    stream_time: int | None = None,
) -> Built:
    """Bring a staged store to the end of its log.

    Parameters
    ----------
    before
        Offset of the last changelog record in it.
    asked_ms
        Time of the brokers before the logs' ends were asked for.
    whole_ms
        When it was known whole, ms since the epoch; None: that does not matter, as the log is not compacted, or it is
        not known, and then what was read must have lost nothing until it was read.
    anew
        It is empty, and is replayed from the log's start.
    stream_time
        Largest timestamp (ms) that it has reached; None: not known.

    Raises
    ------
    StoreBehindLogStartError
        If the replay took so long that deletes behind the store's offset may be gone from the log.
    """
    store = spec.store
    opened = build_store(store.store)
    opened.init(staged_context(store, read_only=False))
    if stream_time is not None:
        opened.inner.advance_stream_time(stream_time)
    advice = "raise that setting, then run the restore again" if anew else "use mode full"
    records = skipped = 0
    committed: dict[object, int | None] = {}
    clean = False
    try:
        # Our own stores have nothing to recover here: what they stage is in memory.
        if not store.store.files_are_known and not anew and opened.transactional and not opened.recover(before):
            raise StoreCorruptedError(
                f"store {store.store_partition} reports that it cannot be set to its state at committed offset "
                f"{before}; use mode full"
            )
        for partition in store.partitions:
            # Of a store with a legacy checkpoint file, verification knows the offset and the store does not.
            offset = None if anew else before if len(store.partitions) == 1 else opened.committed_offset(partition)
            log = logs[partition]
            start = log.start if offset is None else max(offset + 1, log.start)  # before it there were markers alone
            progress.reading(start, log.last_stable)
            committed[partition] = offset
            if start >= log.last_stable:
                continue
            with ChangelogReader(store.cluster, partition, watch_headers=store.logs_no_headers) as reader:
                by_rows = isinstance(opened.inner, BuiltInBytes) and store.store.store_kind.log_may_be_split
                if by_rows and log.last_stable - start >= LEAST_SORTED:
                    replayed = _take_over(spec, opened, opened.inner, reader, start, log.last_stable, progress)
                else:
                    replayed = replay(opened, reader, start, log.last_stable)
                    require_no_headers(store, reader)
                    progress.read(log.last_stable - start, replayed.records)
            records += replayed.records
            skipped += replayed.skipped
            if replayed.last_offset is not None:
                committed[partition] = replayed.last_offset
        if store.store.compaction_keeps_rows:  # otherwise a rebuild could lose more: see `standing`
            _require_deletes(store, logs, before, whole_ms, advice)
        kill_switch.reached("restore, tail replayed")
        stream_time = opened.inner.stream_time
        clean = True
    finally:
        opened.close(clean=clean)
    built = Built(
        records,
        skipped,
        0,
        None,
        dict(committed),  # type: ignore[arg-type]
        None,
        asked_ms,
        stream_time=stream_time if stream_time >= 0 else None,
    )
    return built._replace(first=min(log.start for log in logs.values())) if anew else built


def _require_deletes(
    store: StorePartitionSpec, logs: Logs, before: int | None, whole_ms: int | None, advice: str
) -> None:
    """Refuse what was read so slowly that a delete may be gone from it; see `replay_staged`.

    Raises
    ------
    StoreBehindLogStartError
        Saying what to do.
    """
    if before is not None and may_follow(store):
        _require_no_deletes_gone(store, logs[store.partition], before, whole_ms, advice)
    elif whole_ms is not None:  # if None, the log is not compacted
        require_tombstones(store, whole_ms, brokers_clock.now_ms(store.cluster), advice)


def _require_no_deletes_gone(
    store: StorePartitionSpec, log: LogRange, before: int, whole_ms: int | None, advice: str
) -> None:
    """Refuse what was read if a delete may have been gone from it, by the time or by what the log has now.

    Raises
    ------
    StoreBehindLogStartError
        Saying what to do.
    """
    changelog = store.changelog
    if changelog is None or not store.log_is_compacted:
        return
    kept = whole_ms is not None and brokers_clock.now_ms(store.cluster) - whole_ms < changelog.delete_retention_ms
    if not kept and not has_lost_none(store, before + 1, log.last_stable):
        raise StoreBehindLogStartError(
            f"{store.store_partition}: when {store.partition} was read to its end, compaction had removed records "
            f"after offset {before}, perhaps including a delete; {advice}"
        )


def _take_over(
    spec: RestoreSpec,
    opened: AnyStore,
    inner: BuiltInBytes[Any],
    reader: ChangelogReader,
    start: int,
    end: int,
    progress: RestoreProgressWriter,
) -> Replayed:
    """Do what `replay` does, with one commit, by sorted runs and SST files beside the staged store."""
    definition, partition = spec.store.store, reader.partition
    staged = spec.store.paths.staging(definition.name)
    scratch = staged.with_name(f".{staged.name}.tail")  # no store can have such a name
    writer = RunWriter(scratch / "runs", routing_of(definition), spec.run_bytes, start=start)
    at = start
    try:
        for batch in reader.read(start, end, definition.values):
            require_no_headers(spec.store, reader)
            writer.add(batch)
            after = batch.column(3)[-1].as_py() + 1
            progress.read(after - at, batch.num_rows)
            at = after
            kill_switch.reached("restore, batch of a tail read")
        progress.read(end - at, 0)
        runs = writer.finish(end)
        progress.phase("building")
        ingest([runs], definition, inner, scratch / "files")
    finally:
        remove_tree(scratch)
    kill_switch.reached("restore, tail taken over, not committed")
    if runs.last_offset is not None:
        opened.commit({partition: runs.last_offset}, reader.position or None)  # as in a replay
    return Replayed(runs.records, runs.skipped, runs.last_offset)


def tail_logs(logs: Logs, committed: int | None) -> Logs:
    """Return the parts of logs that a store which has them up to a committed offset has not seen. Pure."""
    return {
        partition: log._replace(start=log.start if committed is None else min(committed + 1, log.last_stable))
        for partition, log in logs.items()
    }


def link_store(store: StorePartitionSpec, staged: Path) -> None:
    """Copy a closed store of any kind, SST files as hard links, and what we keep of its segments."""
    live, name = store.live, store.store.name
    if not live.exists():
        return
    if not store.store.files_are_known:
        shutil.copytree(live, staged)
        if (offsets := store.paths.offsets(name)).exists():
            shutil.copy2(offsets, store.paths.staged_offsets(name))
        return
    if not store.store.segmented:
        link_database(live, staged)
        return
    staged.mkdir(parents=True)
    for segment in store.segments_used(segments_in(live)).values():
        link_database(segment, staged / segment.name)
    kept = store.paths.staged_segments(name)
    kept.mkdir(parents=True)
    for file in store.paths.segments(name).glob("*"):
        # Kafka Streams does not write down how long segments are: the application may have changed it.
        if file.is_file() and (store.origin.keeps_intervals or file.name != "interval"):
            shutil.copy2(file, kept / file.name)


def link_database(source: Path, target: Path) -> None:
    """Copy a closed database: files with rows, which never change, as hard links; the small rest as files."""
    target.mkdir(parents=True)
    for file in sorted(source.iterdir()):
        if file.name.startswith(_NOT_COPIED) or file.is_dir():  # a directory is what a killed flush left
            continue
        if has_rows(file.name):
            os.link(file, target / file.name)
        else:
            shutil.copy2(file, target / file.name)
