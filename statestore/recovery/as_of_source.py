"""The source of a store as of a point: its log up to that point, or an earlier snapshot.

A log that was compacted no longer has every record up to the point. A snapshot has the store as it was, whatever
compaction has done since: with the log's records from there to the point it is exact again.
"""

from __future__ import annotations

from typing import NamedTuple

from statestore.archive.manifest import Manifest
from statestore.archive.snapshots import read_snapshot, readable
from statestore.changelog.compaction_gaps import holes
from statestore.changelog.standing import next_offset
from statestore.discovery.changelogs import log_ranges
from statestore.errors import InputError
from statestore.kafka.topics import LogRange
from statestore.partition.facts import cut_at
from statestore.partition.generations import snapshots_of
from statestore.partition.snapshots import compared_end, unlike
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.as_of import is_exact, point_and_target, point_range, require_exact
from statestore.recovery.full import Logs
from statestore.recovery.snapshot import find_snapshot
from statestore.recovery.spec import RestoreSpec


class PointSource(NamedTuple):
    """Source of a store as of a point.

    Attributes
    ----------
    logs
        What is read of its log.
    snapshot
        What it begins with; None: it is built from the log alone.
    exact
        The store is what it was at the point.
    """

    logs: Logs
    snapshot: Manifest | None
    exact: bool


def point_source(spec: RestoreSpec) -> PointSource:
    """Decide from what a store as of a point is built.

    Raises
    ------
    InputError
        If the point does not lie in the log; or if the log no longer has every record up to there, no snapshot helps,
        and best effort was not asked for (conformance R16).
    """
    store = spec.store
    as_of, _ = point_and_target(spec)
    if as_of.snapshot is not None:
        found = find_snapshot(store, as_of.snapshot)
        named = read_snapshot(found.objects, found.listed)
        if differing := unlike(store, named):
            raise InputError(f"{store.store_partition}: snapshot {as_of.snapshot} is {differing}")
        end = 0 if named.committed is None else named.committed + 1
        return PointSource({store.partition: LogRange(end, end, end)}, named, exact=not found.listed.suspect)
    try:
        logs = point_range(store, as_of)
    except InputError:
        before = None if as_of.offset is None or store.changelog is None else _before(store, as_of.offset + 1)
        if before is None:
            raise
        return before
    if is_exact(spec, logs):
        return PointSource(logs, None, exact=True)
    before = _before(store, logs[store.partition].last_stable)
    return before or PointSource(logs, None, require_exact(spec, logs))


def still_exact(spec: RestoreSpec, source: PointSource) -> bool:
    """Look again, now that the log was read: compaction may have come between.

    Raises
    ------
    InputError
        If the log no longer has what was read, and best effort was not asked for.
    StoreBehindLogStartError
        If it has lost its start since.
    """
    if not source.exact:
        return False
    if source.snapshot is None:
        return require_exact(spec, source.logs)
    store, log = spec.store, source.logs[spec.store.partition]
    if log.start >= log.last_stable or _is_whole(store, log.start, log.last_stable):
        return True
    if spec.request.best_effort:
        return False
    raise InputError(
        f"as of {spec.request.as_of}: the log of {store.partition} was compacted while it was read; run again, or "
        f"use a later snapshot"
    )


def _before(store: StorePartitionSpec, end: int) -> PointSource | None:
    """Return the newest snapshot from which the log has every record up to an offset (exclusive); None: there is none.

    What is suspect is not used, nor what the log was cut behind. Of a store with several generations, nobody can tell
    which of them it had at the point.
    """
    objects, found = store.snapshot_archive.open(), snapshots_of(store)
    listed = [one for one in found.usable if one.name.offset <= end and not found.generation]
    if store.changelog is None or not listed:
        return None
    log = _log(store)
    for snapshot in readable(objects, listed, []):
        if unlike(store, snapshot) or snapshot.record.topic_id != store.changelog.topic_id:
            continue
        if cut_at(compared_end(store, snapshot)) is not None:
            continue
        record, committed = snapshot.record, snapshot.committed
        seen = 0 if committed is None else next_offset(committed, record.seen_end(committed))
        if seen < end and (seen < log.start or end > log.last_stable or not _is_whole(store, seen, end)):
            continue
        return PointSource({store.partition: LogRange(min(seen, end), end, end)}, snapshot, exact=True)
    return None


def _is_whole(store: StorePartitionSpec, start: int, end: int) -> bool:
    return holes(store.cluster, store.partition, start, end) == 0


def _log(store: StorePartitionSpec) -> LogRange:
    return log_ranges(store.cluster.topics, [store])[store.partition]
