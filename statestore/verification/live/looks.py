"""One look at a store that is in use, through links to its files. The log is asked for after the look."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from time import monotonic, sleep
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from statestore.discovery.changelogs import log_ranges
from statestore.discovery.links import undisturbed
from statestore.discovery.opening import Opened, close_all, open_databases
from statestore.discovery.store_directory import LiveStore
from statestore.errors import (
    StateStoreError,
    StoreBehindLogStartError,
    StoreCorruptedError,
    UnknownStoreError,
    unreadable_is_damaged,
)
from statestore.formats.database_files import files_with_rows
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.partition.inspection import damaged_file
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.record import StoreRecord, read_record
from statestore.statedir.scratch import scratch_directory
from statestore.stores.scan import ScannedDatabase
from statestore.verification.kernels import hashes_of
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.bounds import (
    below_last_verification,
    bounds_apply,
    is_another_store,
    older_databases,
)
from statestore.verification.proof.closed import Proof, is_provable, prove, why_not_comparable
from statestore.verification.proof.global_tables import GlobalProof, prove_global
from statestore.verification.proof.memory import describe, find_behind_memory
from statestore.verification.row_reading import reading_of

_ATTEMPTS = 3
#: Pauses before the log is read again, if rows are on disk whose records are not in the log yet (s).
_UNTIL_LOGGED_S = (0.3, 1.0, 3.0)


class Look(NamedTuple):
    """The content of a store's files at one moment.

    Attributes
    ----------
    at_s
        When its files were opened, by `time.monotonic`.
    log
        Offsets of its log, asked for after that.
    claims
        By segment: the offset that its files state.
    committed
        The largest offset that the files state; None if they state none.
    changed_ms
        When its files last changed, ms since the epoch; None without files.
    rows
        Rows that were read; None if not all were.
    proof
        Which offsets of the log the rows equal; None if that was not asked, or not possible.
    global_proof
        The same for a global table, of all partitions of its topic.
    not_proven
        Why there is no proof.
    keys
        By its two hashes: the key of a suspect that no committed record has.
    damage, file
        Why it cannot be read, or what it has lost, and the damaged file.
    lost_at
        The segment (ms) that lost what was on disk, and the offset of its rows; None if no segment shows it.
    behind
        Why its files can be those of an earlier time; empty if nothing shows it.
    another_topic
        How its changelog's topic has changed since the store was recorded; empty if it has not.
    """

    at_s: float
    log: LogRange
    claims: Mapping[int, int] = MappingProxyType({})
    committed: int | None = None
    changed_ms: int | None = None
    rows: int | None = None
    proof: Proof | None = None
    global_proof: GlobalProof | None = None
    not_proven: str = ""
    keys: Mapping[tuple[int, int], bytes] = MappingProxyType({})
    damage: str = ""
    file: str | None = None
    lost_at: tuple[int, int] | None = None
    behind: str = ""
    another_topic: str = ""


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
    found = Look(monotonic(), LogRange(0, 0, 0))
    try:
        with unreadable_is_damaged():
            older = undisturbed(store, lambda: older_databases(spec))
            opened = open_databases(store, spec.store.values)
            found = found._replace(at_s=monotonic(), changed_ms=_changed_ms(opened))
            used = spec.segments_used({each.start: each.database for each in opened})
            if not spec.store.logged:
                return _read(spec, used, found, options, cluster)
            record = read_record(spec.paths, spec.store.name)
            if record is not None and spec.changelog is not None:
                found = found._replace(another_topic=change_of_topic(record.topic_id, spec.changelog.topic_id))
            if not spec.origin.has_partition_of_task:
                return _look_at_global(spec, used, found, options, cluster)
            claims = _claims(spec, used)
            found = found._replace(
                claims=claims,
                committed=max(claims.values(), default=None),
                log=log_ranges(cluster.topics, [spec])[spec.partition],
            )
            if older and not is_another_store(spec, record):
                said = f"an older copy of its files was put back: {'; '.join(older)}"
                if bounds_apply(spec, record, found.committed):
                    return found._replace(damage=said)
                found = found._replace(behind=said)
            found = _read(spec, used, found, options, cluster)
            return found if older else _with_bounds(spec, found, record, options)
    except StoreCorruptedError as error:
        log = log_ranges(cluster.topics, [spec])[spec.partition] if spec.store.logged else found.log
        damage = _without_views(str(error), opened)
        return found._replace(log=log, damage=damage, file=damaged_file(StoreCorruptedError(damage), spec.live))
    except FileNotFoundError as error:
        if error.filename is None or not Path(error.filename).is_relative_to(spec.live):
            raise
        raise UnknownStoreError(f"{spec.live} was removed or replaced during the look: {error}") from error
    except StateStoreError as error:
        raise type(error)(_without_views(str(error), opened)) from error
    finally:
        close_all(opened)


def change_of_topic(before: str, now: str | None) -> str:
    """Return how the ID of a changelog's topic has changed (None: there is none now); empty if it has not."""
    if before == now:
        return ""
    return f"its changelog was topic {before} and {'no longer exists' if now is None else f'is now topic {now}'}"


def _with_bounds(spec: StorePartitionSpec, found: Look, record: StoreRecord | None, options: VerifyOptions) -> Look:
    """Compare the offsets that the rows equal with lower bounds."""
    proof, log = found.proof, found.log
    if proof is None or found.another_topic:
        return found
    if bounds_apply(spec, record, found.committed):
        lost = below_last_verification(spec, proof.ranges, record, max(log.last_stable, log.high_watermark))
        if lost:
            return found._replace(damage=f"rows that were on disk are lost: {lost}")
    for each in find_behind_memory(spec, proof, log, options):
        said = describe(each, spec.store.store_kind.segments(spec.live), spec.live)
        if each.was_applied:
            return found._replace(damage=said, lost_at=(each.segment, each.position))
        return found._replace(behind=said)
    return found


def _read(
    spec: StorePartitionSpec,
    databases: Mapping[int, ScannedDatabase],
    found: Look,
    options: VerifyOptions,
    cluster: Cluster,
) -> Look:
    if options.depth == "offsets":
        return found
    not_proven = ""
    if options.depth == "deep":
        not_proven = _why_not_provable(spec) or why_not_comparable(spec)
        if not not_proven:
            found, proof = _proven(spec, databases, found, options, cluster)
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


def _look_at_global(
    spec: StorePartitionSpec,
    databases: Mapping[int, ScannedDatabase],
    found: Look,
    options: VerifyOptions,
    cluster: Cluster,
) -> Look:
    logs = log_ranges(cluster.topics, [spec])
    if options.depth == "deep" and spec.global_kind != "processor" and not why_not_comparable(spec):
        (database,) = databases.values()
        if (proof := prove_global(spec, logs, options, database)) is not None:
            return found._replace(global_proof=proof, rows=proof.digest.rows)
    return _read(spec, databases, found, options, cluster)


def _proven(
    spec: StorePartitionSpec,
    databases: Mapping[int, ScannedDatabase],
    found: Look,
    options: VerifyOptions,
    cluster: Cluster,
) -> tuple[Look, Proof | None]:
    """Prove which offsets the rows equal; rows that are not logged yet are given the time of a producer's batch."""
    for pause_s in (*_UNTIL_LOGGED_S, None):
        # Not in the state directory. The next look removes the files of a look that was killed.
        with scratch_directory(Path(gettempdir()) / f"statestore-scratch-{os.getuid()}") as scratch:
            own = replace(options, scratch=scratch / "runs")
            proof = prove(spec, databases, found.log, own, name_suspects=True)
        if pause_s is None or proof is None or not proof.unexplained:
            break
        sleep(pause_s)
        log = log_ranges(cluster.topics, [spec])[spec.partition]
        if log.high_watermark == found.log.high_watermark:
            break
        found = found._replace(log=log)
    return found, proof


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
    if not spec.store.logged:
        return "it has no changelog"
    if is_provable(spec):
        return ""
    if not spec.origin.has_partition_of_task:
        return "a processor fills it" if spec.global_kind == "processor" else "it has too many keys for the memory"
    return "store and log number duplicates independently" if spec.store.retain_duplicates else "custom store"


def _claims(spec: StorePartitionSpec, databases: Mapping[int, ScannedDatabase]) -> dict[int, int]:
    """Return the offset that the files of each segment state."""
    claims: dict[int, int] = {}
    for segment, database in databases.items():
        with suppress(StoreCorruptedError):
            if (offset := database.committed_offset(spec.partition)) is not None:
                claims[segment] = offset
    with suppress(StoreCorruptedError):
        if not claims and (legacy := legacy_offsets(spec.paths).get(spec.partition)) is not None:
            claims = dict.fromkeys(databases, legacy)
    return claims


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
