"""The offsets that the proof of a versioned store finds are those at which a fold of its log gives its versions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statestore.bulk.versions import LoggedVersion, OffsetRecord, folded
from statestore.kafka.topics import LogRange
from statestore.stores.versioned import RawVersion
from statestore.verification.proof.prefix import Prefix
from statestore.verification.proof.versioned import VersionRows
from statestore.verification.versions import timeline, versions_of

_KEYS = [b"", b"a", b"b"]
_VALUES = [None, b"1", b"2"]
_INTERVAL_MS = 10


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[bytes, OffsetRecord]]:
    """Logs of a few keys, with repeated and disordered times, markers, and records of aborted transactions."""
    found: list[tuple[bytes, OffsetRecord]] = []
    offset = draw(st.integers(0, 2))
    for _ in range(draw(st.integers(0, 12))):
        optional = draw(st.integers(0, 5)) == 0
        record = OffsetRecord(offset, draw(st.integers(0, 40)), draw(st.sampled_from(_VALUES)), False, optional)
        found.append((draw(st.sampled_from(_KEYS)), record))
        offset += draw(st.integers(1, 2))
    return found


def fold(log: list[tuple[bytes, OffsetRecord]], key: bytes, upto: int) -> list[RawVersion]:
    """Return the versions of a key that the required records up to an offset give."""
    chosen = [record for of, record in log if of == key and record.offset <= upto and not record.optional]
    return versions_of(folded((LoggedVersion(found.timestamp, found.value, False) for found in chosen), _INTERVAL_MS))


def prefix_of(
    log: list[tuple[bytes, OffsetRecord]], stored: dict[bytes, list[RawVersion]], oldest_ms: int, end: int
) -> Prefix:
    """Find the prefix with the code under test."""
    rows = VersionRows(LogRange(0, end, end), oldest_ms)
    for key in _KEYS:
        rows.add(key, stored[key], [record for of, record in log if of == key])
    return rows.finish().prefix


@given(log=logs(), data=st.data())
def test_a_prefix_of_versions_is_found_where_its_fold_gives_them(
    log: list[tuple[bytes, OffsetRecord]], data: st.DataObject
) -> None:
    end = max((record.offset for _, record in log), default=-1) + data.draw(st.integers(1, 2))
    oldest_ms = data.draw(st.integers(-1, 30))
    true_offset = data.draw(st.integers(-1, end - 1))
    stored = {key: fold(log, key, true_offset) for key in _KEYS}
    found = prefix_of(log, stored, oldest_ms, end)
    seen = {key: timeline(versions, oldest_ms) for key, versions in stored.items()}
    alike = [
        upto for upto in range(-1, end) if all(timeline(fold(log, key, upto), oldest_ms) == seen[key] for key in _KEYS)
    ]
    if not any(record.optional for _, record in log):
        assert {upto for upto in range(-1, end) if found.equals_at(upto)} <= set(alike)
    assert found.equals_at(true_offset) or _may_forget_a_delete(log)


def _may_forget_a_delete(log: list[tuple[bytes, OffsetRecord]]) -> bool:
    """Return whether a delete has the time of an earlier value: then Kafka Streams can keep neither."""
    return any(
        record.value is None and any(of == key and earlier.timestamp == record.timestamp for of, earlier in log[:at])
        for at, (key, record) in enumerate(log)
    )


@given(log=logs(), data=st.data())
def test_a_changed_or_lost_version_leaves_no_offset_that_its_log_does_not_give(
    log: list[tuple[bytes, OffsetRecord]], data: st.DataObject
) -> None:
    log = [(key, record) for key, record in log if not record.optional]
    end = max((record.offset for _, record in log), default=-1) + 1
    stored = {key: fold(log, key, end) for key in _KEYS}
    key = data.draw(st.sampled_from(_KEYS))
    if stored[key]:
        at = data.draw(st.integers(0, len(stored[key]) - 1))
        changed = stored[key][at]._replace(value=b"changed")
        stored[key] = data.draw(
            st.sampled_from([stored[key][:at] + stored[key][at + 1 :], [*stored[key][:at], changed]])
        )
    found = prefix_of(log, stored, -1, end)
    seen = {key: timeline(versions, -1) for key, versions in stored.items()}
    for upto in range(-1, end):
        if found.equals_at(upto):
            assert all(timeline(fold(log, key, upto), -1) == seen[key] for key in _KEYS)
