"""Versioned stores: reading every row, and what a store answers beside what its changelog says it should.

Rows and records are not alike, so the answers are compared: for each key the value at the oldest time whose history is
kept, and every value and delete since. A version is told by its key with its timestamp (8 bytes, big-endian) behind it.

What may differ: Kafka Streams begins anew with its stream time when it is started with nothing to restore. It then
puts what it would have dropped before, and what it restores loses deletes that have expired. So if a key has records
that came late or out of order, the value at that oldest time is not judged, unless it is the latest one and none of
them could have taken its place. And compaction removes versions once their records are older than
`min.compaction.lag.ms`, by the brokers' clock, whatever stream time is. What is not judged is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from struct import Struct
from typing import Literal, NamedTuple, TypeVar

import pyarrow as pa

from statestore import clock
from statestore.bulk.digest import Digest
from statestore.bulk.runs import SegmentRows
from statestore.bulk.versions import FoldedKey, folded, records_by_key
from statestore.definitions.store import StoreDefinition
from statestore.errors import StoreCorruptedError
from statestore.formats import versioned_row as layout
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY
from statestore.formats.versioned_row import LATEST, Version
from statestore.kinds.versioned import COMPACTION_LAG, VERSIONED
from statestore.model import StoreFormat
from statestore.reports import Contents, DifferingKey
from statestore.stores.scan import ScannedDatabase
from statestore.stores.versioned import RawVersion, intervals, versions_in
from statestore.verification.comparison import Allowances
from statestore.verification.exclusions import FOREVER
from statestore.verification.options import VerifyOptions
from statestore.verification.sampling import Sample

S = TypeVar("S")
L = TypeVar("L")
_TIME = Struct(">q")
_BATCH_ROWS = 10_000
DifferenceName = Literal["other value", "only in store", "only in log"]


def count_versioned(database: ScannedDatabase, give_way: Callable[[], None]) -> int:
    """Read and decode every row; return how many there are.

    Parameters
    ----------
    give_way
        Called now and then.

    Raises
    ------
    StoreCorruptedError
        If one cannot be read, naming its key.
    """
    count = 0
    for raw_key, raw in database.family(DEFAULT_COLUMN_FAMILY).scan():
        if count % _BATCH_ROWS == 0:
            give_way()
        count += 1
        segment, key = layout.decode_row_key(raw_key)
        try:
            if segment == LATEST:
                layout.decode_latest(raw)
            else:
                layout.decode_segment_row(raw)
        except StoreCorruptedError as error:
            raise StoreCorruptedError(f"{database.directory}, key {key.hex()}, segment {segment}: {error}") from error
    return count


def timeline(versions: Iterable[RawVersion], oldest_ms: int) -> list[Version]:
    """Return the changes of a key's value that can be seen.

    Parameters
    ----------
    versions
        As they are stored, oldest first.
    oldest_ms
        The oldest time whose history is kept.
    """
    points: list[Version] = []
    until: int | None = None

    def change(timestamp: int, value: bytes | None) -> None:
        while points and points[-1].timestamp >= timestamp:  # a row of a newer segment is right
            points.pop()
        if value is not None or (points and points[-1].value is not None):
            points.append(Version(timestamp, value))

    for value, valid_from, valid_to in versions:
        if until is not None and until < valid_from:
            change(until, None)
        change(valid_from, value)
        until = valid_to
    if until is not None:
        change(until, None)
    begun = [at for at, point in enumerate(points) if point.timestamp <= oldest_ms]
    return _from_first_value(points[begun[-1] if begun else 0 :])


def _from_first_value(points: list[Version]) -> list[Version]:
    first = next((at for at, point in enumerate(points) if point.value is not None), len(points))
    return points[first:]


def _since(points: Sequence[Version], oldest_ms: int) -> list[Version]:
    """Return those points of a timeline that are not about what was valid at the oldest time (ms)."""
    return _from_first_value([point for point in points if point.timestamp > oldest_ms])


class ComparedChange(NamedTuple):
    """A value or delete of a key from a time (ms) on, in a store and in its log; None where one has none from then on.

    Attributes
    ----------
    excused
        It is not judged.
    """

    timestamp: int
    stored: Version | None
    logged: Version | None
    excused: bool = False

    @property
    def difference(self) -> DifferenceName | None:
        """Difference that is not allowed; None if there is none."""
        if self.excused or self.stored == self.logged:
            return None
        if self.stored is None:
            return "only in log"
        return "only in store" if self.logged is None else "other value"


class ComparedKey(NamedTuple):
    """A key within the history that is compared.

    Attributes
    ----------
    changes
        Of its value, on both sides.
    stored, logged
        Its versions on each side, but for those that are not judged.
    """

    key: bytes
    changes: Sequence[ComparedChange]
    stored: Sequence[RawVersion]
    logged: Sequence[RawVersion]


class _TwoTimelines(NamedTuple):
    """Versions of a key in a store, and by its log.

    Attributes
    ----------
    logged
        All versions that its log gives.
    without_oldest
        What was valid at the oldest time is not judged, and in neither timeline.
    """

    mine: Sequence[Version]
    its: Sequence[Version]
    logged: Sequence[RawVersion]
    without_oldest: bool


class VersionComparison:
    """Compares what a versioned store answers with what the fold of its log does.

    Parameters
    ----------
    stream_time
        Largest timestamp (ms) of the log up to the store's committed offset.
    gone_before_ms
        Records older than that may have been compacted away; 0: none, `exclusions.FOREVER`: any.
    delete_retention_ms
        For how long the log keeps deletes after that.
    logs_late
        The log may have records that came too late and were not put, as Kafka Streams logs them. Whether one did
        cannot be told if compaction has removed what stream time was at before it.
    """

    def __init__(
        self,
        store: StoreDefinition,
        stream_time: int,
        allowances: Allowances,
        gone_before_ms: int,
        options: VerifyOptions,
        *,
        delete_retention_ms: int,
        logs_late: bool,
    ) -> None:
        self._retention_ms = store.retention_ms or 0
        self._delete_retention_ms = delete_retention_ms
        self._logs_late = logs_late
        self._interval_ms = VERSIONED.segment_interval_ms(store)
        self._oldest_ms = stream_time - self._retention_ms
        self._allowances = allowances
        self._gone_before_ms = gone_before_ms
        self._options = options
        self._counts: dict[DifferenceName, int] = {"other value": 0, "only in store": 0, "only in log": 0}
        self._equal = self._excused = 0
        self._told: list[DifferingKey] = []
        self._sides = VersionDigest(), VersionDigest()

    def compare(
        self, stored: Iterator[tuple[bytes, list[RawVersion]]], logged: Iterator[tuple[bytes, FoldedKey]]
    ) -> None:
        """Compare both, each with its keys in order, and count what was found."""
        for key, versions, folded_key in side_by_side(stored, logged, self._options.give_way):
            found = self._timelines(versions or [], folded_key)
            self._excused += found.without_oldest
            for side, points in zip(self._sides, (found.mine, found.its), strict=True):
                side.add(key, points)
            if found.mine == found.its:
                self._equal += len(found.mine)
                continue
            for change in self._judged(key, found):
                if change.excused:
                    self._excused += 1
                elif change.difference is None:
                    self._equal += 1
                else:
                    self._note(change.difference, key, change)

    def compared(
        self, stored: Iterator[tuple[bytes, list[RawVersion]]], logged: Iterator[tuple[bytes, FoldedKey]]
    ) -> Iterator[ComparedKey]:
        """Yield what is compared of each key, on both sides; each has its keys in order."""
        for key, versions, folded_key in side_by_side(stored, logged, self._options.give_way):
            found = self._timelines(versions or [], folded_key)
            changes = list(self._judged(key, found))
            if found.without_oldest:
                changes.append(ComparedChange(self._oldest_ms, None, None, excused=True))
            left_out = {change.timestamp for change in changes if change.excused}
            # Killed while it put a record that is not committed, Kafka Streams leaves a version in two segments.
            mine = intervals_of(found.mine) if self._has_changed(key) else versions or []
            yield ComparedKey(
                key, changes, self._within(mine, found, left_out), self._within(found.logged, found, left_out)
            )

    def _timelines(self, stored: Sequence[RawVersion], logged: FoldedKey | None) -> _TwoTimelines:
        versions = [] if logged is None else versions_of(logged)
        mine, its = timeline(stored, self._oldest_ms), timeline(versions, self._oldest_ms)
        if logged is None or not self._is_unsure(logged) or self._at_oldest(mine) == self._at_oldest(its):
            return _TwoTimelines(mine, its, versions, without_oldest=False)
        mine, its = _since(mine, self._oldest_ms), _since(its, self._oldest_ms)
        return _TwoTimelines(mine, its, versions, without_oldest=True)

    def _judged(self, key: bytes, found: _TwoTimelines) -> Iterator[ComparedChange]:
        """Yield the changes of a key's value."""
        left = dict(found.its)
        changed = self._has_changed(key)
        gone: list[int] = []
        for point in found.mine:
            if point.timestamp in left:
                yield ComparedChange(point.timestamp, point, Version(point.timestamp, left.pop(point.timestamp)))
                continue
            excused = changed or self._may_be_gone(point, last=point is found.mine[-1], versions=found.logged)
            if excused:
                gone.append(point.timestamp)
            yield ComparedChange(point.timestamp, point, None, excused)
        for timestamp, value in left.items():
            # What came after it is gone from the log, and so nothing there tells that it is over.
            over = timestamp <= self._oldest_ms and any(at <= self._oldest_ms for at in gone)
            over = over or (value is None and any(at < timestamp for at in gone))
            over = over or (self._may_be_late(timestamp) and (not found.mine or bool(gone)))
            excused = changed or over or self._allowances.deletes_are_gone
            yield ComparedChange(timestamp, None, Version(timestamp, value), excused)

    def _has_changed(self, key: bytes) -> bool:
        """Say whether the log has changed a key behind the store's committed offset."""
        return bool(self._allowances.changed(pa.array([key], pa.binary()))[0])

    def _within(
        self, versions: Iterable[RawVersion], found: _TwoTimelines, left_out: Collection[int]
    ) -> list[RawVersion]:
        """Return the values that are compared."""
        return [
            version
            for version in versions
            if version.value is not None
            and (version.valid_to is None or version.valid_to > self._oldest_ms)
            and not (found.without_oldest and version.valid_from <= self._oldest_ms)
            and version.valid_from not in left_out
        ]

    def _at_oldest(self, points: Sequence[Version]) -> list[Version]:
        return [point for point in points if point.timestamp <= self._oldest_ms]

    def _is_unsure(self, logged: FoldedKey) -> bool:
        """Say whether the value at the oldest time may be another one in the store, although both are right."""
        disordered, latest = logged.disordered, logged.latest()
        if all(timestamp > self._oldest_ms for timestamp in disordered):
            return False
        # Whatever came late or out of order, only a later record takes the place of the latest value.
        sure = latest is not None and latest.timestamp <= self._oldest_ms and max(disordered) < latest.timestamp
        return not sure

    def _may_be_late(self, timestamp: int) -> bool:
        """Say whether what made a record come too late may have been removed from the log."""
        if not self._logs_late or timestamp > self._oldest_ms:
            return False
        return timestamp + self._retention_ms < self._gone_before_ms

    def _may_be_gone(self, point: Version, *, last: bool, versions: Sequence[RawVersion]) -> bool:
        """Say of a version that the log does not have whether it may have been removed from there."""
        if point.timestamp >= self._gone_before_ms:
            return False
        if not last or point.value is None or self._gone_before_ms == FOREVER:
            return True
        # Compaction leaves the record that was logged last, which is an earlier version if that came out of order, and
        # none of the store's if it came too late. A delete is removed, too.
        if not versions:
            return point.timestamp < self._gone_before_ms - self._delete_retention_ms
        return any(
            version.valid_from < point.timestamp or self._may_be_late(version.valid_from) for version in versions
        )

    def _note(self, found: DifferenceName, key: bytes, change: ComparedChange) -> None:
        self._counts[found] += 1
        if len(self._told) >= self._options.first_keys:
            return
        named = key + _TIME.pack(change.timestamp)
        digests = [
            None if version is None or version.value is None else sha256(version.value).hexdigest()
            for version in (change.stored, change.logged)
        ]
        self._told.append(
            DifferingKey(
                found=found,
                key=named.hex() if self._options.name_keys else None,
                key_sha256=sha256(named).hexdigest(),
                store_sha256=digests[0],
                log_sha256=digests[1],
            )
        )

    def contents(self, sample: float | None) -> Contents:
        """Result of the comparison."""
        store, log = (side.finished() for side in self._sides)
        return Contents(
            store_rows=store.rows,
            log_rows=log.rows,
            equal=self._equal,
            other_value=self._counts["other value"],
            only_in_store=self._counts["only in store"],
            only_in_log=self._counts["only in log"],
            not_judged=self._excused,
            store_digest=store.hexdigest(),
            log_digest=log.hexdigest(),
            sample=sample,
            first=tuple(self._told),
        )


class VersionDigest:
    """Digest of versions: keys with their timestamps, and values."""

    def __init__(self) -> None:
        self._digest = Digest(StoreFormat.PLAIN)
        self._rows: list[tuple[bytes, bytes]] = []

    def add(self, key: bytes, points: Sequence[Version]) -> None:
        """Add the changes of a key's value."""
        for timestamp, value in points:
            self._rows.append((key + _TIME.pack(timestamp), b"-" if value is None else b"+" + value))
        if len(self._rows) >= _BATCH_ROWS:
            self.finished()

    def finished(self) -> Digest:
        """Return the digest of all that was added."""
        if self._rows:
            self._digest.add_stored(*(pa.array(column, pa.binary()) for column in zip(*self._rows, strict=True)))
            self._rows = []
        return self._digest


def side_by_side(
    stored: Iterator[tuple[bytes, S]], logged: Iterator[tuple[bytes, L]], give_way: Callable[[], None]
) -> Iterator[tuple[bytes, S | None, L | None]]:
    """Yield each key with what the store and the log have of it; each side has its keys in order."""
    mine, its = next(stored, None), next(logged, None)
    number = 0
    while mine is not None or its is not None:
        if number % _BATCH_ROWS == 0:
            give_way()
        number += 1
        key = min(side[0] for side in (mine, its) if side is not None)
        there = here = None
        if mine is not None and mine[0] == key:
            here, mine = mine[1], next(stored, None)
        if its is not None and its[0] == key:
            there, its = its[1], next(logged, None)
        yield key, here, there


def intervals_of(points: Sequence[Version]) -> list[RawVersion]:
    """Versions between the changes of a key's value, oldest first; deletes among them."""
    ends = [*(point.timestamp for point in points[1:]), None]
    return [RawVersion(point.value, point.timestamp, end) for point, end in zip(points, ends, strict=False)]


def versions_of(key: FoldedKey) -> list[RawVersion]:
    """All versions of a folded key, oldest first."""
    found: list[RawVersion] = []
    for _, row in sorted(key.rows().items()):
        found += reversed(list(intervals(row)))
    if (latest := key.latest()) is not None:
        found.append(RawVersion(latest.value, latest.timestamp, None))
    return found


def logged_keys(rows: Iterable[SegmentRows], store: StoreDefinition) -> Iterator[tuple[bytes, FoldedKey]]:
    """Keys of a log in their order, each with all that was logged of it."""
    interval_ms = VERSIONED.segment_interval_ms(store)
    return ((key, folded(records, interval_ms)) for key, records in records_by_key(rows))


def stored_keys(database: ScannedDatabase, sample: Sample | None) -> Iterator[tuple[bytes, list[RawVersion]]]:
    """Keys of a store in their order, each with all that is stored of it.

    Raises
    ------
    StoreCorruptedError
        If a row cannot be read.
    """
    found = versions_in(database.family(DEFAULT_COLUMN_FAMILY))
    return found if sample is None else (one for one in found if _within(sample, one[0]))


def _within(sample: Sample, key: bytes) -> bool:
    return any((start is None or start <= key) and (stop is None or key < stop) for start, stop in sample.ranges)


def compacted_before_ms(config: Mapping[str, str], gone_before_ms: int, now_ms: int) -> int:
    """Return the time (ms) before which records may have been compacted away; see `VersionComparison`.

    Parameters
    ----------
    config
        Configuration of the changelog topic.
    gone_before_ms
        As `exclusions.gone_before_ms` says of the log's start.
    now_ms
        The brokers' time, ms since the epoch.
    """
    if "compact" not in config.get("cleanup.policy", "compact"):
        return gone_before_ms
    lag_ms = int(config.get(COMPACTION_LAG) or 0)
    return max(gone_before_ms, now_ms - lag_ms + clock.BROKERS_DIFFER_MS)
