"""Restoring one store partition: build beside the live store, check, swap.

The live store is not touched before the swap, so an interrupted restore has changed nothing and is simply run again.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Literal, NamedTuple

from statestore.changelog.reader import LogReader
from statestore.changelog.topics import LogRange, Topics
from statestore.durable import remove_tree
from statestore.errors import (
    DiskSpaceError,
    InputError,
    StateStoreError,
    StoreCorruptedError,
    TopicMismatchError,
    of_os_error,
)
from statestore.formats.offsets import STATUS_CLOSED
from statestore.recovery.runs import build_runs
from statestore.reports import Action, Failure, RestoreRow, VerifyRow
from statestore.statedir.lock import locked
from statestore.statedir.record import write_record
from statestore.statedir.seal import seal
from statestore.statedir.swap import finish_swaps, swap
from statestore.stores.accessor import DATA_COLUMN_FAMILIES
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB
from statestore.tasks.replay import replay
from statestore.tasks.spec import StorePartitionSpec
from statestore.verification.check import check

Mode = Literal["auto", "tail", "full"]
#: What SST files are linked for; everything else in a database is small or is written to, and is copied.
_LINKED = ".sst"
_NOT_COPIED = ("LOCK", "LOG")


class Built(NamedTuple):
    """A store in the staging directory: records read for it, its rows, and its committed offset."""

    records: int
    keys: int | None
    committed: int | None


class RestoreSpec(NamedTuple):
    """What to do with one store partition.

    `force` rebuilds it even if it is whole; `label` names the run and its quarantine directory.
    """

    store: StorePartitionSpec
    mode: Mode
    force: bool
    label: str
    run_bytes: int


def restore(spec: RestoreSpec) -> RestoreRow:
    """Lock the task and restore its store; a failure of ours becomes part of the row, so that others go on."""
    started = time.monotonic()
    row = RestoreRow(
        application=spec.store.application, store=spec.store.store.name, task=str(spec.store.task), outcome="failed"
    )
    try:
        with locked(spec.store.paths, spec.store.lock_wait_s):
            finish_swaps(spec.store.paths)
            found = check(spec.store)
            row = row.model_copy(update={"before": found.status})
            row = _restore(spec, row, found)
    except StateStoreError as error:
        row = row.model_copy(update={"failure": Failure.of(error)})
    except OSError as error:
        row = row.model_copy(update={"failure": Failure.of(of_os_error(error))})
    return row.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def _restore(spec: RestoreSpec, row: RestoreRow, found: VerifyRow) -> RestoreRow:
    if spec.store.store.kind != "key-value" and (spec.force or found.action is not Action.NONE):
        raise InputError(
            f"{row.label} is a {spec.store.store.kind} store, expected a key-value store: run process, whose task "
            "replays or rebuilds it from its changelog"
        )
    mode = choose_mode(spec.mode, spec.force, found)
    if mode is None:
        return row.model_copy(update={"outcome": "skipped", "keys": found.keys or 0, "committed": found.committed})
    require_disk(spec)
    paths, store = spec.store.paths, spec.store.store.name
    staged = paths.staging(store)
    remove_tree(staged)
    built = (build_full if mode == "full" else build_tail)(spec, staged, found)
    keys = check_staged(spec.store, staged, built)
    quarantine = swap(paths, store, staged, spec.label)
    assert spec.store.changelog is not None
    write_record(paths, store, spec.store.changelog.topic_id, built.committed)
    seal(paths, store)
    return row.model_copy(
        update={
            "mode": mode,
            "outcome": "restored",
            "records": built.records,
            "keys": keys,
            "committed": built.committed,
            "quarantine": str(quarantine) if quarantine else None,
        }
    )


def choose_mode(asked: Mode, force: bool, found: VerifyRow) -> Literal["tail", "full"] | None:
    """Decide what to do with a store partition; None if it is whole. Pure.

    Raises
    ------
    InputError
        If it cannot be restored, or not in the way asked for.
    """
    if found.action is Action.BY_HAND:
        raise InputError(f"{found.label} is {found.status} and is only touched by hand: {found.detail}")
    if found.action is Action.LATER:
        raise InputError(f"{found.label} could not be looked at ({found.status}): {found.detail}; try again later")
    if found.action is Action.NONE and not force:
        return None
    if asked == "tail" and found.action is Action.FULL:
        raise InputError(f"{found.label} is {found.status}, which a replay of the tail cannot mend: use mode full")
    if asked == "full" or (asked == "auto" and (force or found.action is Action.FULL)):
        return "full"
    return None if found.action is Action.NONE else "tail"


def require_disk(spec: RestoreSpec) -> None:
    """Refuse to begin where the replacement is not likely to fit.

    Raises
    ------
    DiskSpaceError
        With the bytes needed and free.
    """
    spec.store.state_dir.mkdir(parents=True, exist_ok=True)
    live = sum(file.stat().st_size for file in spec.store.live.rglob("*")) if spec.store.live.exists() else 0
    needed = live + spec.run_bytes
    free = shutil.disk_usage(spec.store.state_dir).free
    if free < needed:
        raise DiskSpaceError(
            f"restoring {spec.store.store_partition} needs about {needed} bytes in {spec.store.state_dir}, "
            f"{free} are free: free some, or lower STATESTORE_RESTORE_RUN_BYTES"
        )


def build_full(spec: RestoreSpec, staged: Path, found: VerifyRow) -> Built:
    """Build the store anew from its whole changelog."""
    store, log = spec.store, _log_range(spec.store)
    runs_dir = staged.with_name(f"{staged.name}.runs")
    remove_tree(runs_dir)
    runs_dir.mkdir(parents=True)
    with LogReader(store.bootstrap_servers, store.partition, stall_timeout_s=store.kafka_timeout_s) as reader:
        runs = build_runs(reader.read(log.start, log.last_stable), store.store.format, runs_dir, spec.run_bytes)
    families = DATA_COLUMN_FAMILIES[store.store.format]
    database = RocksDB(staged, families)
    try:
        database.ingest(families[0], runs.files)
        offsets = {} if runs.last_offset is None else {store.partition: runs.last_offset}
        database.write({}, offsets, status=STATUS_CLOSED)
        database.sync()
    finally:
        database.close()
    remove_tree(runs_dir)
    return Built(runs.records, runs.rows if len(runs.files) <= 1 else None, runs.last_offset)


def build_tail(spec: RestoreSpec, staged: Path, found: VerifyRow) -> Built:
    """Catch up on a hard-linked copy of the live store."""
    store, log = spec.store, _log_range(spec.store)
    if store.live.exists():
        link_database(store.live, staged)
    start = log.start if found.committed is None else found.committed + 1
    opened = open_key_value_store(store.store, staged)
    clean = False
    try:
        with LogReader(store.bootstrap_servers, store.partition, stall_timeout_s=store.kafka_timeout_s) as reader:
            replayed = replay(opened, reader, start, log.last_stable)
        clean = True
    finally:
        opened.close(clean=clean)
    return Built(replayed.records, None, found.committed if replayed.last_offset is None else replayed.last_offset)


def check_staged(store: StorePartitionSpec, staged: Path, built: Built) -> int:
    """Read the new store in full before it goes live; return its rows.

    Raises
    ------
    StoreCorruptedError
        If its offset or its rows are not what was built.
    """
    opened = open_key_value_store(store.store, staged, read_only=True)
    try:
        committed = opened.committed_offset(store.partition)
        keys = sum(1 for _ in opened.range())
    finally:
        opened.close(clean=False)
    if committed != built.committed or (built.keys is not None and keys != built.keys):
        raise StoreCorruptedError(
            f"the store built in {staged} has {keys} rows at offset {committed}, expected "
            f"{built.keys if built.keys is not None else 'any number of'} rows at {built.committed}; "
            "the live store is untouched, run the restore again"
        )
    return keys


def link_database(source: Path, target: Path) -> None:
    """Copy a closed database: SST files, which never change, as hard links; the small rest as files."""
    target.mkdir(parents=True)
    for file in sorted(source.iterdir()):
        if file.name.startswith(_NOT_COPIED) or file.is_dir():  # a directory is what a killed flush left
            continue
        if file.suffix == _LINKED:
            os.link(file, target / file.name)
        else:
            shutil.copy2(file, target / file.name)


def _log_range(store: StorePartitionSpec) -> LogRange:
    if store.changelog is None:
        raise TopicMismatchError(f"changelog topic {store.partition.topic} does not exist: nothing to restore from")
    topics = Topics(store.bootstrap_servers, store.kafka_timeout_s)
    return topics.log_ranges([store.partition])[store.partition]
