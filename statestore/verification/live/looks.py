"""One look at a store that is in use, through links to its files. The log is asked for after the look."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from statestore.changelog.topics import LogRange
from statestore.discovery.links import undisturbed
from statestore.discovery.opening import Opened, close_all, open_databases
from statestore.discovery.store_directory import LiveStore
from statestore.errors import StateStoreError, StoreBehindLogStartError, StoreCorruptedError, unreadable_is_damaged
from statestore.formats.database_files import files_with_rows
from statestore.partition.inspection import damaged_file
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.legacy import legacy_offsets
from statestore.stores.scan import ScannedDatabase
from statestore.verification.gathering import Cluster
from statestore.verification.kernels import hashes_of
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.bounds import older_databases
from statestore.verification.proof.closed import Proof, is_provable, prove
from statestore.verification.row_reading import reading_of

_ATTEMPTS = 3


class Look(NamedTuple):
    """What the files of a store had at one moment.

    Attributes
    ----------
    at_s
        When its files were opened, by `time.monotonic`.
    log
        Offsets of its log, asked for after that.
    committed
        Offset that the files state; None if they state none.
    changed_ms
        When its files last changed, ms since the epoch; None if there are none.
    rows
        Rows that were read; None if not all were.
    proof
        Which offsets of the log the rows equal; None if that was not asked, or not possible.
    not_proven
        Why there is no proof.
    keys
        By its two hashes: the key of a suspect that no committed record has.
    damage, file
        Why it cannot be read, and the damaged file.
    """

    at_s: float
    log: LogRange
    committed: int | None = None
    changed_ms: int | None = None
    rows: int | None = None
    proof: Proof | None = None
    not_proven: str = ""
    keys: Mapping[tuple[int, int], bytes] = MappingProxyType({})
    damage: str = ""
    file: str | None = None


def look(spec: StorePartitionSpec, options: VerifyOptions, cluster: Cluster) -> Look:
    """Look at a store.

    Raises
    ------
    RetryError
        If its files changed each time they were opened.
    UnknownStoreError
        If the store is gone.
    StoreBehindLogStartError
        If the log's start moved each time the log was read.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _look(spec, options, cluster)
        except StoreBehindLogStartError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _look(spec: StorePartitionSpec, options: VerifyOptions, cluster: Cluster) -> Look:
    store = LiveStore(
        spec.store.name, spec.store.segmented, spec.live, spec.application, spec.task, spec.state_dir.absolute()
    )
    opened: Sequence[Opened] = ()
    found = Look(time.monotonic(), LogRange(0, 0, 0))
    try:
        with unreadable_is_damaged():
            older = undisturbed(store, lambda: older_databases(spec))
            opened = open_databases(store, spec.store.values)
            found = found._replace(at_s=time.monotonic(), changed_ms=_changed_ms(opened))
            used = spec.segments_used({each.start: each.database for each in opened})
            found = found._replace(committed=_committed(spec, used), log=cluster.log_ranges([spec])[spec.partition])
            if older:
                return found._replace(damage=f"an older copy of its files was put back: {'; '.join(older)}")
            return _read(spec, used, found, options)
    except StoreCorruptedError as error:
        log = cluster.log_ranges([spec])[spec.partition]
        damage = _without_views(str(error), opened)
        return found._replace(log=log, damage=damage, file=damaged_file(StoreCorruptedError(damage), spec.live))
    except StateStoreError as error:
        raise type(error)(_without_views(str(error), opened)) from error
    finally:
        close_all(opened)


def _read(
    spec: StorePartitionSpec, databases: Mapping[int, ScannedDatabase], found: Look, options: VerifyOptions
) -> Look:
    if options.depth == "offsets":
        return found
    not_proven = ""
    if options.depth == "deep":
        not_proven = _why_not_provable(spec)
        if not not_proven:
            with TemporaryDirectory(prefix="statestore-") as scratch:
                proof = prove(
                    spec, databases, found.log, replace(options, scratch=Path(scratch) / "runs"), name_suspects=True
                )
            if proof is not None:
                keys = _keys_without_record(spec, databases, proof, options)
                return found._replace(proof=proof, rows=proof.digest.rows, keys=keys)
            not_proven = "the log has positions in headers"
    reading, rows = reading_of(spec.store), 0
    for segment, database in databases.items():
        if spec.store.store_kind.has_history:
            rows += reading.count_rows(database, segment, options.give_way)
            continue
        for batch in reading.rows(database, segment, options.give_way, ScannedDatabase.rows):
            options.pace(batch.nbytes)
            rows += batch.num_rows
    return found._replace(rows=rows, not_proven=not_proven)


def _keys_without_record(
    spec: StorePartitionSpec, databases: Mapping[int, ScannedDatabase], proof: Proof, options: VerifyOptions
) -> dict[tuple[int, int], bytes]:
    """Read the keys of suspects that no committed record has; only the store has them."""
    found: dict[tuple[int, int], bytes] = {}
    for segment, suspects in proof.suspects.items():
        wanted = {suspect.key[0]: suspect.key for suspect in suspects.rows if suspect.record is None}
        if not wanted or segment not in databases:
            continue
        hashes = np.array(list(wanted), np.int64).view(np.uint64)
        for batch in reading_of(spec.store).rows(databases[segment], segment, options.give_way, ScannedDatabase.rows):
            options.pace(batch.nbytes)
            low = hashes_of(batch.column(0))
            for at in np.flatnonzero(np.isin(low, hashes)).tolist():
                found[wanted[int(low[at].astype(np.int64))]] = batch.column(0)[at].as_py()
    return found


def _why_not_provable(spec: StorePartitionSpec) -> str:
    if is_provable(spec):
        return ""
    return "store and log number duplicates independently" if spec.store.retain_duplicates else "custom store"


def _committed(spec: StorePartitionSpec, databases: Mapping[int, ScannedDatabase]) -> int | None:
    """Return the offset that the files state."""
    offsets: list[int] = []
    for database in databases.values():
        with suppress(StoreCorruptedError):
            if (offset := database.committed_offset(spec.partition)) is not None:
                offsets.append(offset)
    with suppress(StoreCorruptedError):
        if not offsets and (legacy := legacy_offsets(spec.paths).get(spec.partition)) is not None:
            offsets.append(legacy)
    return max(offsets, default=None)


def _changed_ms(opened: Sequence[Opened]) -> int | None:
    """Return when rows were last written to files, ms since the epoch; None without such files."""
    times: list[int] = []
    for each in opened:
        with suppress(FileNotFoundError):
            times += [path.stat().st_mtime_ns // 1_000_000 for path in files_with_rows(each.directory)]
    return max(times, default=None)


def _without_views(text: str, opened: Sequence[Opened]) -> str:
    for each in opened:
        text = text.replace(str(each.view), str(each.directory))
    return text
