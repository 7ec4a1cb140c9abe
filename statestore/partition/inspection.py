"""Looking at one store partition's directory, without changing anything in it. The task's lock is held."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from statestore.archive.grown_from import put_in_place_by
from statestore.errors import (
    StateStoreError,
    StoreCorruptedError,
    StoreUncleanError,
    UnknownFormatError,
    WrongStoreError,
    unreadable_is_damaged,
)
from statestore.formats import checkpoint_file
from statestore.formats.database_files import files_with_rows, has_rows
from statestore.formats.offsets import COLUMN_FAMILY
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY
from statestore.partition.facts import DiskFacts, LastKnown, Trouble
from statestore.partition.needed_offsets import latest
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status
from statestore.statedir.legacy import legacy_offsets, legacy_offsets_of
from statestore.statedir.record import StoreRecord, committed_of, read_record
from statestore.statedir.seal import Seal, check_seal
from statestore.stores.manifest import segment_identities
from statestore.stores.open import build_store
from statestore.stores.rocksdb import RocksDB, column_families, exists
from statestore.stores.segment_starts import segment_interval_ms


def inspect(
    spec: StorePartitionSpec,
    *,
    open_sealed: bool = True,
    contents: bool = False,
    between: Callable[[], None] | None = None,
) -> DiskFacts:
    """Look at a store partition.

    Parameters
    ----------
    open_sealed
        Whether a store is opened whose seal is intact; if not, the seal tells of it.
    contents
        Whether the bytes of its files are compared with the seal, too.
    between
        Called before each of these files.
    """
    found = _inspect(spec, open_sealed=open_sealed, contents=contents, between=between)
    return found._replace(
        installed_by=put_in_place_by(spec.paths, spec.store.name),
        has_database=found.committed is not None
        or (found.present and any(map(exists, spec.store.store_kind.databases(spec.live)))),
    )


def _inspect(
    spec: StorePartitionSpec, *, open_sealed: bool, contents: bool, between: Callable[[], None] | None
) -> DiskFacts:
    record = None
    try:
        with unreadable_is_damaged():
            record = read_record(spec.paths, spec.store.name)
            if not spec.live.exists():
                return DiskFacts(present=False, record=record, known=known_by_record(record))
            _require_segments(spec)
            kind = spec.store.store_kind
            seal = check_seal(spec.paths, spec.store.name, kind, contents=contents, between=between)
            if not open_sealed and seal is not None and (by_seal := _by_seal(spec, seal, record)) is not None:
                return by_seal
            return _open(spec, record, sealed=seal is not None)
    except UnknownFormatError as error:
        status = spec.origin.unknown_format
        owner = {
            Status.UNKNOWN_FORMAT: "no definition owns it",
            Status.DOWNGRADED: f"its definition specifies {spec.store.format}",
        }
        return _unusable(spec, record, status, f"{error}; {owner[status]}")
    except StoreUncleanError as error:
        return _unusable(spec, record, Status.UNCLEAN, str(error))._replace(sealed=False)
    except WrongStoreError as error:
        found = _unusable(spec, record, Status.CORRUPT, str(error))
        return found._replace(known=known_by_record(record)._replace(foreign=True))
    except StoreCorruptedError as error:
        found = _unusable(spec, record, Status.CORRUPT, str(error))
        return found._replace(file=damaged_file(error, spec.live))


def _require_segments(spec: StorePartitionSpec) -> None:
    """Refuse a store that lacks a segment which was seen in it, and which cannot have expired since.

    Whoever has built the store anew since has other databases in it, and what was seen before says nothing of it.

    Raises
    ------
    StoreCorruptedError
        Naming the segments.
    """
    seen, retention_ms = dict(spec.segments_seen), spec.store.retention_ms
    if not seen or retention_ms is None:
        return
    here = segment_identities(spec.live)
    if not any(here.get(name) == identity for name, identity in seen.items()):
        return
    starts = {name: int(name.rpartition(".")[2]) for name in {*seen, *here}}
    interval_ms = segment_interval_ms(retention_ms)
    oldest = max(starts.values()) + interval_ms - 1 - retention_ms  # at the latest time that the newest one can have
    lost = sorted(name for name in seen if name not in here and starts[name] >= oldest - oldest % interval_ms)
    if lost:
        raise StoreCorruptedError(
            f"store {spec.store.name} has lost {', '.join(str(spec.live / name) for name in lost)}: it existed when "
            "the store was last verified, and had not expired; restore the store from its changelog"
        )


def _require_nothing_since(spec: StorePartitionSpec) -> None:
    """Refuse a store from before Kafka Streams 4.3 that was written to after its offsets were.

    Such a version has them in a file that it writes when it begins and when it ends, under exactly once, and nothing
    in the store says that it was left open.

    Raises
    ------
    StoreUncleanError
        Naming the newest file.
    """
    offsets_ns = spec.paths.checkpoint.stat().st_mtime_ns
    for directory in spec.store.store_kind.databases(spec.live):
        if not exists(directory) or COLUMN_FAMILY in column_families(directory):
            continue
        newest = max(files_with_rows(directory), key=lambda path: path.stat().st_mtime_ns, default=None)
        if newest is not None and newest.stat().st_mtime_ns > offsets_ns:
            raise StoreUncleanError(
                f"{newest} is newer than {spec.paths.checkpoint}: the application was killed, and uncommitted "
                "writes may be in the store; if it processes at least once, add --at-least-once"
            )


def known_by_record(record: StoreRecord | None) -> LastKnown:
    """Return what our own directory alone tells of what a store had."""
    committed = committed_of(record)
    return LastKnown(committed is not None, committed, record)


def damaged_file(error: Exception, directory: Path) -> str | None:
    """Find the file of a store that an error speaks of; RocksDB names it in its text only."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.filename is not None:
        return str(cause.filename)
    found = re.search(re.escape(str(directory)) + r"(/[\w.-]+)*/[\w.-]*\w", str(error))
    return found.group() if found else None


def _unusable(spec: StorePartitionSpec, record: StoreRecord | None, status: Status, detail: str) -> DiskFacts:
    committed, readable = _offset_left(spec)
    return DiskFacts(
        present=True,
        empty=False,
        record=record,
        trouble=Trouble(status, detail, rebuildable=status is not Status.UNKNOWN_FORMAT),
        known=known_of_store(
            record,
            committed,
            anything=any(not spec.store.files_are_known or has_rows(path.name) for path in spec.live.rglob("*")),
            readable=readable,
        ),
    )


def known_of_store(
    record: StoreRecord | None, committed: int | None, *, anything: bool, readable: bool = True
) -> LastKnown:
    """Put together what a store and our record tell; whichever was further.

    Parameters
    ----------
    readable
        No committed offset means that there is none, not that it could not be read.
    """
    known = latest(committed, committed_of(record))
    return LastKnown(anything or known is not None, known, record, uncommitted=readable and known is None)


def _offset_left(spec: StorePartitionSpec) -> tuple[int | None, bool]:
    """Committed offset in a store that cannot be used, None for none; and whether all of it could be asked."""
    found = [_offset_in(directory, spec) for directory in spec.store.store_kind.databases(spec.live)]
    offsets = [offset for offset, _ in found]
    offsets += legacy_offsets_of(spec.paths, spec.store.name, spec.partitions).values()
    with suppress(FileNotFoundError, StoreCorruptedError):
        offsets += checkpoint_file.read(spec.paths.offsets(spec.store.name)).values()
    return max((offset for offset in offsets if offset is not None), default=None), all(read for _, read in found)


def _offset_in(directory: Path, spec: StorePartitionSpec) -> tuple[int | None, bool]:
    if not exists(directory):
        return None, False
    try:
        database = RocksDB(directory, column_families(directory), read_only=True)
    except (StateStoreError, OSError):
        return None, False
    try:
        database.require_no_foreign_files()  # that one has no offset says nothing of the database that was lost
        return database.committed_offset(spec.partition), True
    except StateStoreError:
        return None, False
    finally:
        database.close()


def _by_seal(spec: StorePartitionSpec, seal: Seal, record: StoreRecord | None) -> DiskFacts | None:
    """Tell from the seal alone how far a store is; None where only the store itself can tell."""
    known = {DEFAULT_COLUMN_FAMILY, COLUMN_FAMILY, *spec.store.values.column_families}
    found = {family for database in seal.databases.values() for family in database.column_families}
    if (
        record is None
        or seal.committed is None
        or record.committed != seal.committed
        or not found <= known
        or spec.partition in legacy_offsets(spec.paths)
    ):
        return None
    known_of_it = known_of_store(record, seal.committed, anything=True)
    return DiskFacts(present=True, committed=seal.committed, empty=False, record=record, sealed=True, known=known_of_it)


def _open(spec: StorePartitionSpec, record: StoreRecord | None, *, sealed: bool) -> DiskFacts:
    store = build_store(spec.store)
    store.init(spec.context(read_only=True))
    try:
        empty = store.is_empty
        legacy = None if empty else legacy_offsets(spec.paths).get(spec.partition)
        if legacy is not None and spec.exactly_once:
            _require_nothing_since(spec)
        committed = store.committed_offset(spec.partition) if legacy is None else legacy
        return DiskFacts(
            present=True,
            committed=committed,
            empty=empty,
            record=record,
            sealed=sealed,
            upgrade_pending=store.inner.upgrade_pending,
            known=known_of_store(record, committed, anything=not empty or committed is not None),
        )
    finally:
        store.close(clean=False)
