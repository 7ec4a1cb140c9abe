"""A versioned store behaves as a list of versions for each key, whatever the order in which they are put (KIP-889)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statestore.bulk.versions import LoggedVersion, folded
from statestore.errors import InvalidStateError
from statestore.formats.versioned_put import PUT_RETURN_CODE_NOT_PUT, PUT_RETURN_CODE_VALID_TO_UNDEFINED
from statestore.formats.versioned_row import LATEST, encode_latest, encode_segment_row, row_key
from statestore.model import TaskId
from statestore.stores.api import StoreContext
from statestore.stores.builders import versioned_key_value_store_builder
from statestore.stores.readers import IsolationLevel, VersionedRecord
from statestore.stores.serdes import BYTES
from statestore.stores.suppliers import in_memory_versioned_key_value_store, persistent_versioned_key_value_store
from statestore.stores.views import read_only
from tests.session.examples import examples

KEYS = [b"", b"a", b"a\0", b"b"]
RETENTION_MS = 60
INTERVAL_MS = 10
PUTS = st.tuples(st.just("put"), st.sampled_from(KEYS), st.none() | st.binary(max_size=3), st.integers(-70, 40))
STEPS = st.lists(
    PUTS | PUTS | PUTS | st.tuples(st.sampled_from(["commit", "rollback", "undone", "reopen", "read"])), max_size=40
)
#: Where every time lies somewhere behind, so that none is before 1970.
BEGIN_MS = 1_000


class Model:
    """Versions of keys, and nothing of segments."""

    def __init__(self) -> None:
        self.keys: dict[bytes, dict[int, bytes | None]] = {}
        self.stream_time = -1

    def put(self, key, value, timestamp):
        """Return what the store is to return; None: it depends on segments that have expired."""
        if timestamp < self.stream_time - RETENTION_MS:
            return PUT_RETURN_CODE_NOT_PUT
        self.stream_time = max(self.stream_time, timestamp)
        versions = self.keys.setdefault(key, {})
        later = [time for time in versions if time > timestamp]
        before = max((time for time in versions if time < timestamp), default=None)
        if (
            value is None
            and not later
            and versions.get(timestamp) is not None
            and (before is None or versions[before] is None)
        ):
            # Kafka Streams forgets this delete: nothing ended before that could tell of it.
            del versions[timestamp]
        else:
            versions[timestamp] = value
        return min(later, default=PUT_RETURN_CODE_VALID_TO_UNDEFINED)

    def at(self, key, time):
        versions = self.keys.get(key, {})
        begun = max((begin for begin in versions if begin <= time), default=None)
        if begun is None or versions[begun] is None:
            return None
        later = min((begin for begin in versions if begin > time), default=None)
        if time < self.stream_time - RETENTION_MS and later is not None:
            return None
        return VersionedRecord(versions[begun], begun, later)

    def history(self, key, first, last):
        versions = sorted(self.keys.get(key, {}).items())
        ends = [*(begin for begin, _ in versions[1:]), None][: len(versions)]
        return [
            VersionedRecord(value, begin, end)
            for (begin, value), end in zip(versions, ends, strict=True)
            if value is not None and begin <= last and (end is None or end > first)
        ]


def context(root: Path) -> StoreContext:
    return StoreContext("app", TaskId(0, 0), root / "app" / "0_0", root / ".statestore" / "app" / "0_0")


def copied(model: Model) -> Model:
    copy = Model()
    copy.keys = {key: dict(versions) for key, versions in model.keys.items()}
    copy.stream_time = model.stream_time
    return copy


def assert_same(shown, model: Model) -> None:
    oldest = model.stream_time - RETENTION_MS
    for key in KEYS:
        assert shown.get(key) == model.at(key, 1 << 62)
        for time in range(max(oldest - 3, 0), model.stream_time + 3):
            assert shown.get(key, time) == model.at(key, time), (key, time)
        expected = model.history(key, max(oldest, 0), model.stream_time)
        assert shown.history(key, max(oldest, 0), model.stream_time, descending=False) == expected
        assert shown.history(key, max(oldest, 0), model.stream_time) == expected[::-1]


@pytest.mark.short_for("transactional-rocksdb", "direct-in_memory")
@pytest.mark.behaviour("V1", "V2")
@pytest.mark.parametrize("persistent", [True, False], ids=["rocksdb", "in_memory"])
@pytest.mark.parametrize("transactional", [True, False], ids=["transactional", "direct"])
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_a_versioned_store_behaves_as_its_model(persistent, transactional, steps):
    make = persistent_versioned_key_value_store if persistent else in_memory_versioned_key_value_store
    times = timedelta(milliseconds=RETENTION_MS), timedelta(milliseconds=INTERVAL_MS)
    store = versioned_key_value_store_builder(make("s", *times, transactional=transactional), BYTES, BYTES).build()
    logged = []
    with TemporaryDirectory() as root:
        store.init(context(Path(root)))
        store.log_changes_to(lambda *change: logged.append(change))
        model, committed, now, expected = Model(), Model(), BEGIN_MS, []
        for step, *arguments in [*steps, ("read",)]:
            if step == "put":
                key, value, around = arguments
                valid_to = model.put(key, value, now + around)
                assert store.put(key, value, now + around) == valid_to
                if valid_to != PUT_RETURN_CODE_NOT_PUT:
                    expected.append((key, value, now + around))
                assert logged == expected
                now = max(now, now + around)
                if not transactional:
                    committed = model
            elif step == "commit":
                store.commit({})
                committed = copied(model)
            elif step == "rollback" and transactional:
                store.rollback()
                model = copied(committed)
            elif step == "undone":
                store.begin_record()
                for number, key in enumerate(KEYS):
                    store.put(key, b"undone", now + 5 * number)
                store.put(b"a", None, now - 10)
                store.undo_record()
                logged[:] = expected  # its task drops what a record that failed has logged
            elif step == "reopen" and persistent:
                store.close()
                model = copied(committed) if transactional else model
                store.init(context(Path(root)))
                store.inner.advance_stream_time(model.stream_time)
            elif step == "read":
                assert_same(store, model)
                if transactional:
                    assert_same(read_only(store, IsolationLevel.READ_COMMITTED), committed)
        store.close()


@settings(max_examples=examples(200), deadline=None)
@given(
    puts=st.lists(st.tuples(st.integers(0, 12), st.none() | st.binary(max_size=2)), min_size=1, max_size=12),
    more=st.lists(st.tuples(st.integers(0, 12), st.none() | st.binary(max_size=2)), max_size=6),
)
def test_rows_laid_out_at_once_are_gone_on_with_like_those_that_were_put(puts, more):
    """What a restore writes is a store that later puts, also late ones, change as any other."""
    times = timedelta(milliseconds=1_000), timedelta(milliseconds=3)
    supplier = in_memory_versioned_key_value_store("s", *times)
    put, laid_out = (versioned_key_value_store_builder(supplier, BYTES, BYTES).build() for _ in range(2))
    for store in (put, laid_out):
        store.init(context(Path("unused")))
    for time, value in puts:
        put.put(b"k", value, time)
    key = folded([LoggedVersion(time, value, False) for time, value in puts], 3)
    for segment, row in key.rows().items():
        laid_out.inner.put(row_key(segment, b"k"), encode_segment_row(row))
    if (latest := key.latest()) is not None:
        laid_out.inner.put(row_key(LATEST, b"k"), encode_latest(latest.value, latest.timestamp))
    assert dict(laid_out.inner.scan(None, None)) == dict(put.inner.scan(None, None))
    laid_out.inner.find_segments()
    laid_out.inner.advance_stream_time(max(time for time, _ in puts))
    for time, value in [*more, (13, b"end")]:
        assert laid_out.put(b"k", value, time) == put.put(b"k", value, time)
        for at in range(15):
            assert laid_out.get(b"k", at) == put.get(b"k", at)
        assert laid_out.history(b"k") == put.history(b"k")


@pytest.mark.behaviour("V2")
@settings(max_examples=examples(100), deadline=None)
@given(puts=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-70, 40), st.none() | st.binary(max_size=2))))
def test_rows_expire_alike_whether_or_not_a_record_can_be_undone(puts):
    times = timedelta(milliseconds=RETENTION_MS), timedelta(milliseconds=INTERVAL_MS)
    supplier = in_memory_versioned_key_value_store("s", *times)
    plain, undoable = (versioned_key_value_store_builder(supplier, BYTES, BYTES).build() for _ in range(2))
    for store in (plain, undoable):
        store.init(context(Path("unused")))
    now = BEGIN_MS
    for key, around, value in puts:
        now = max(now, now + around)
        undoable.begin_record()
        assert undoable.put(key, value, now + around) == plain.put(key, value, now + around)
        undoable.end_record()
        assert dict(undoable.inner.scan(None, None)) == dict(plain.inner.scan(None, None))
        assert undoable.inner.segments == plain.inner.segments


@pytest.mark.parametrize("retention", [timedelta(minutes=10), timedelta(days=1)])
def test_a_store_is_not_opened_with_a_retention_that_makes_other_segments(tmp_path, retention):
    """Its history would expire at once, or be looked for where it is not."""

    def opened(retention):
        supplier = persistent_versioned_key_value_store("s", history_retention=retention)
        store = versioned_key_value_store_builder(supplier, BYTES, BYTES).build()
        store.init(context(tmp_path))
        return store

    hour, begin = timedelta(hours=1), 1_700_000_000_000
    store = opened(hour)
    for minute in range(60):
        store.put(b"k", b"%d" % minute, begin + minute * 60_000)
    store.commit({})
    store.close()
    with pytest.raises(InvalidStateError, match="written with"):
        opened(retention)
    store = opened(hour)
    assert len(store.history(b"k")) == 60
    store.close()
