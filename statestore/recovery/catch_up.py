"""Catching up a store whose own offset is missing or cannot be trusted: its rows show where the replay begins.

A store that was left open can have uncommitted rows, and Kafka Streams 4.3 clears its offsets while it runs. A proof
(verification/proof) finds the shortest tail of the log that corrects every row. Rows whose keys have no committed
record are deleted. The database is linked, so that no second copy is on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from statestore.changelog import brokers_clock
from statestore.discovery.changelogs import log_ranges
from statestore.errors import StoreCorruptedError, UnknownFormatError
from statestore.formats.offsets import COLUMN_FAMILY, STATUS_CLOSED
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Built, Logs
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.tail import building, link_store, replay_staged
from statestore.stores.rocksdb import RocksDB, column_families
from statestore.verification.contents import databases
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import Proof, is_provable, prove

_log = logging.getLogger(__name__)
_DELETED_AT_ONCE = 10_000


class CatchUp(NamedTuple):
    """How a store is caught up.

    Attributes
    ----------
    before
        Last offset that is not replayed.
    orphans
        Keys of rows to delete, by segment.
    replaces_unexplained
        Some rows that no record explains are replaced, so they may be the only copy of something.
    asked_ms
        The brokers' time (ms) before the log was read for the proof.
    """

    before: int
    orphans: Mapping[int, tuple[bytes, ...]]
    replaces_unexplained: bool
    asked_ms: int


def find_correction(spec: RestoreSpec, cluster: Cluster) -> tuple[CatchUp, LogRange] | tuple[None, None]:
    """Find the tail that corrects a store, and the offsets of its log; None if it must be rebuilt.

    The caller holds the task's lock.
    """
    store = spec.store
    if store.changelog is None or not is_provable(store):
        return None, None
    asked_ms = brokers_clock.now_ms(store.cluster)
    log = log_ranges(cluster.topics, [store])[store.partition]
    try:
        proof = prove(store, databases(store), log, VerifyOptions(run_bytes=spec.run_bytes), name_orphans=True)
    except (StoreCorruptedError, UnknownFormatError) as error:
        _log.warning("restore: %s: its rows cannot be read, so it is rebuilt: %s", store.store_partition, error)
        return None, None
    if proof is None or proof.misplaced or not _has_all_before(proof, log):
        return None, None
    if store.store.store_kind.has_history and (not proof.offsets or proof.is_optional):
        return None, None  # torn keys of a versioned store need all of their records
    if proof.orphans and not store.store.store_kind.keys_are_logged:  # they are not those of the database
        return None, None
    begin = min(proof.replay_from, log.last_stable)
    if begin <= log.start:
        return None, None
    unexplained = bool(proof.orphans or proof.unexplained)
    return CatchUp(begin - 1, proof.orphan_keys, unexplained, asked_ms), log


def _has_all_before(proof: Proof, log: LogRange) -> bool:
    """Return whether the rows contain everything that the log had before its start.

    They do if they equal the log at an offset that it still has. A row whose record is gone proves nothing.
    """
    if log.start == 0:
        return True
    begun = all(found.offsets and found.offsets[0].first >= log.start for found in proof.prefixes.values())
    return begun and not proof.orphans and not proof.unexplained


def build_caught_up(spec: RestoreSpec, how: CatchUp, logs: Logs, progress: RestoreProgressWriter) -> Built:
    """Build the store in the staging directory from links to the live one, and replay the tail.

    Raises
    ------
    StoreBehindLogStartError
        If it took so long that compaction may have removed deletes.
    """
    store = spec.store
    with building(store) as staged:
        link_store(store, staged)
        for segment, directory in store.store.store_kind.segments(staged).items():
            _set_offset(store, directory, how.before, how.orphans.get(segment, ()))
        # How far the input of its rows goes is unknown, and so is the largest time before the tail.
        (store.paths.staged_segments(store.store.name) / "position").unlink(missing_ok=True)
        built = replay_staged(spec, logs, how.before, progress, how.asked_ms, how.asked_ms)
        return built._replace(stream_time=None)


def _set_offset(store: StorePartitionSpec, directory: Path, offset: int, orphans: Sequence[bytes]) -> None:
    """Mark a database as closed at an offset, with an unknown position, and delete rows."""
    families = [name for name in column_families(directory) if name != COLUMN_FAMILY]
    data = [name for name in store.store.values.column_families if name in families]
    with RocksDB(directory, families) as database:
        for at in range(0, len(orphans), _DELETED_AT_ONCE):
            deletes = dict.fromkeys(orphans[at : at + _DELETED_AT_ONCE])
            database.write({family: deletes for family in data})
        database.write({}, {store.partition: offset}, {}, status=STATUS_CLOSED)
        database.sync()
