"""Versioned stores at work: processed, verified at every depth, caught up and rebuilt from a real log."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statestore.changelog.topic_settings import changelog_config
from statestore.cli.store_rows import Serdes, read_rows
from statestore.definitions.store import StoreDefinition
from statestore.discovery.row_range import RowRange
from statestore.formats import versioned_row as layout
from statestore.formats.offsets import STATUS_CLOSED
from statestore.formats.versioned_row import LATEST, SegmentRow, Version, row_key
from statestore.reports import Status
from statestore.statedir.seal import break_seal
from statestore.stores.open import build_store
from statestore.stores.rocksdb import RocksDB
from statestore.tasks import ProcessorContext, Record
from tests.engines import each_engine_on_disk
from tests.integration.broker import T0, Row, set_topic_config
from tests.integration.support import Application

MINUTE = 60_000
RETENTION_MS = 10 * MINUTE
VERSIONED = StoreDefinition(name="prices", kind="versioned", retention_ms=RETENTION_MS)
KEYS = [b"", b"a", b"a\0", b"a\0\0", *(b"key-%02d" % number for number in range(20))]
BEGIN = T0 - T0 % MINUTE


def keep(record: Record, context: ProcessorContext) -> None:
    """Put the version that the value tells: its timestamp, and behind it the value, or nothing for a delete."""
    timestamp, value = int(record.value[:13]), record.value[13:] or None
    store = context.state_store("prices")
    if value is None and timestamp % 2:
        store.delete(record.key, timestamp)
    else:
        store.put(record.key, value, timestamp)
    if value == b"poison":
        raise ValueError("this version cannot be kept")


def versions(count: int, seed: int, begin: int = BEGIN) -> list[Row]:
    """Input over an hour: versions of some keys often, deletes, and such that come late, also too late."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for number in range(count):
        late = chance.choice([0, 0, 0, 0, 1, 3, 9, 15]) * MINUTE
        timestamp = begin + number * 3_600_000 // count - late + chance.randrange(3)
        value = b"" if chance.random() < 0.2 else b"%d" % number
        rows.append((chance.choice(KEYS if number % 3 else KEYS[:4]), b"%013d" % timestamp + value))
    return rows


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    found = Application(bootstrap_servers, tmp_path, stores=[VERSIONED], changelog_config=changelog_config(VERSIONED))
    processor = "tests.integration.test_versioned_jobs:keep"
    return found.defined(processor=processor)


def opened(application: Application) -> Any:
    spec = application.store_spec()
    store = build_store(spec.store)
    store.init(spec.context(read_only=True))
    return store


def answers(application: Application, stream_time: int) -> Iterator[Any]:
    """What the store answers within its history."""
    store = opened(application)
    try:
        store.inner.advance_stream_time(stream_time)
        for key in KEYS:
            yield key, store.get(key)
            yield store.history(key, stream_time - RETENTION_MS)
            for time in range(stream_time - RETENTION_MS, stream_time + MINUTE, MINUTE // 2):
                yield time, store.get(key, time)
    finally:
        store.close(clean=False)


def change(application: Application, changes: dict[bytes, bytes | None]) -> None:
    """Change rows behind the back of the store's log."""
    spec = application.store_spec()
    break_seal(spec.paths, spec.store.name)
    database = RocksDB(spec.live, ["default"])
    database.write({"default": changes}, status=STATUS_CLOSED)
    database.sync()
    database.close()


def rows(application: Application) -> dict[bytes, bytes]:
    database = RocksDB(application.live, ["default"], read_only=True)
    found = dict(database.scan("default"))
    database.close()
    return found


def stream_time_of(rows: list[Row]) -> int:
    return max(int(value[:13]) for _, value in rows if value is not None)


@each_engine_on_disk
@pytest.mark.behaviour("V1", "V4", "V5")
def test_a_processed_store_is_healthy_and_rebuilt_it_answers_the_same(application: Application, engine: str) -> None:
    application.defined(stores=(VERSIONED.model_copy(update={"engine": engine}),))
    rows_in = versions(2_000, 1)
    row = application.process(rows_in)
    (figures,) = row.stores
    assert figures.expired > 0
    for depth in ("offsets", "scan", "deep"):
        found = application.verify(depth)
        assert found.status is Status.OK, found
    assert found.contents.differing == 0
    assert found.contents.equal > 100
    before = list(answers(application, stream_time_of(rows_in)))
    store = opened(application)
    key = next(key for key in KEYS if store.get(key) is not None)
    latest = store.get(key)
    store.close(clean=False)
    spec = application.store_spec()
    wanted = RowRange(spec.store.store_kind, key, None, None, None, None)
    (shown,) = read_rows(spec, wanted, Serdes("utf8", "utf8"), latest=True)
    assert (shown.value.encode(), shown.timestamp) == (latest.value, latest.timestamp)
    shutil.rmtree(application.live)
    assert application.verify("offsets").status is Status.MISSING
    restored = application.restore(check="deep")
    assert (restored.mode, restored.exact) == ("full", True)
    assert application.verify("deep").status is Status.OK
    assert list(answers(application, stream_time_of(rows_in))) == before
    more = versions(200, 2, BEGIN + 3_600_000)
    application.process(more)
    assert application.verify("deep").status is Status.OK


@pytest.mark.long
@pytest.mark.behaviour("V4")
def test_a_rebuild_whose_runs_do_not_fit_in_memory_is_the_same(application: Application) -> None:
    rows_in = versions(1_500, 3)
    application.process(rows_in)
    application.restore("full", force=True)
    small = rows(application)
    application.restore("full", force=True, label="again", run_bytes=1 << 12)
    assert rows(application) == small
    assert application.verify("deep", run_bytes=1 << 12).status is Status.OK


@pytest.mark.long
@pytest.mark.behaviour("V4")
def test_a_store_that_is_behind_is_caught_up(application: Application, tmp_path: Path) -> None:
    first, second = versions(500, 4), versions(500, 5, BEGIN + 3_000_000)
    application.process(first)
    shutil.copytree(application.state_dir, tmp_path / "before")
    application.process(second)
    after = list(answers(application, stream_time_of(second)))
    shutil.rmtree(application.state_dir)
    shutil.copytree(tmp_path / "before", application.state_dir)
    assert application.verify().status is Status.LAGGING
    assert application.restore().mode == "tail"
    assert application.verify("deep").status is Status.OK
    assert list(answers(application, stream_time_of(second))) == after


@pytest.mark.behaviour("V2")
def test_what_a_record_that_failed_had_put_is_put_back(application: Application) -> None:
    good = versions(300, 6)
    application.process(good)
    before = rows(application)
    late = stream_time_of(good) + 60 * MINUTE
    application.send([(b"a", b"%013dpoison" % late), (b"b", b"%013d" % (late - 2 * MINUTE))])
    assert application.run().failure is not None
    assert rows(application) == before
    assert application.verify("deep").status is Status.OK


@pytest.mark.behaviour("V5")
def test_a_latest_value_that_was_changed_is_named(application: Application) -> None:
    application.process([(b"k", b"%013done" % BEGIN), (b"k", b"%013dtwo" % (BEGIN + 5))])
    change(application, {row_key(LATEST, b"k"): layout.encode_latest(b"other", BEGIN + 5)})
    found = application.verify("deep", name_keys=True)
    assert found.status is Status.DIVERGED
    assert found.contents is not None
    assert [(row.found, row.key) for row in found.contents.first] == [
        ("other value", (b"k" + (BEGIN + 5).to_bytes(8, "big")).hex())
    ]
    application.restore("full", force=True)
    assert application.verify("deep").status is Status.OK


@pytest.mark.long
def test_a_version_that_was_removed_is_named(application: Application) -> None:
    times = [BEGIN + number for number in range(4)]
    application.process([(b"k", b"%013d%d" % (time, time)) for time in times])
    ((key, raw),) = [row for row in rows(application).items() if row[0][:1] == b"\0"]
    row = layout.decode_segment_row(raw)
    left = SegmentRow(row.next_timestamp, tuple(version for version in row.versions if version.timestamp != times[1]))
    change(application, {key: layout.encode_segment_row(left)})
    assert application.verify("scan").status is Status.OK
    found = application.verify("deep", name_keys=True)
    assert found.status is Status.DIVERGED
    assert found.contents is not None
    assert [(row.found, row.key) for row in found.contents.first] == [
        ("only in log", (b"k" + times[1].to_bytes(8, "big")).hex())
    ]


def test_a_version_of_nobody_is_named(application: Application) -> None:
    application.process([(b"k", b"%013done" % BEGIN), (b"k", b"%013dtwo" % (BEGIN + 5))])
    segment = layout.segment_of(BEGIN + 5, layout.default_segment_interval_ms(RETENTION_MS))
    made_up = SegmentRow(BEGIN + 5, (Version(BEGIN + 3, b"made up"), Version(BEGIN, b"one")))
    change(application, {row_key(segment, b"k"): layout.encode_segment_row(made_up)})
    found = application.verify("deep", name_keys=True)
    assert found.status is Status.DIVERGED
    assert found.contents is not None
    assert found.contents.only_in_store == 1


@pytest.mark.behaviour("V3")
def test_a_row_that_was_cut_is_damage(application: Application) -> None:
    application.process([(b"k", b"%013done" % BEGIN), (b"k", b"%013dtwo" % (BEGIN + 5))])
    ((key, raw),) = [row for row in rows(application).items() if row[0][:1] == b"\0"]
    change(application, {key: raw[:-1]})
    assert application.verify("scan").status is Status.CORRUPT
    application.restore()
    assert application.verify("deep").status is Status.OK


@pytest.mark.behaviour("V5")
@pytest.mark.parametrize(("lag_ms", "status"), [("0", Status.OK), ("86400000", Status.DIVERGED)])
def test_what_compaction_may_have_removed_is_no_divergence(
    application: Application, lag_ms: str, status: Status
) -> None:
    """An hour behind the brokers' clock, every record but a key's last may go where there is no lag."""
    application.process([(b"k", b"%013done" % BEGIN), (b"k", b"%013dtwo" % (BEGIN + 5))])
    set_topic_config(application.servers, application.changelog, min_compaction_lag_ms=lag_ms)
    segment = layout.segment_of(BEGIN + 5, layout.default_segment_interval_ms(RETENTION_MS))
    compacted = SegmentRow(BEGIN + 5, (Version(BEGIN + 3, b"logged once"), Version(BEGIN, b"one")))
    change(application, {row_key(segment, b"k"): layout.encode_segment_row(compacted)})
    assert application.verify("deep").status is status
