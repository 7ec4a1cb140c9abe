"""Restoring stores of every kind: the rows are those of a replay, however the log was cut and interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from demo.damage import flip_bit
from statestore.changelog.reader import ChangelogReader
from statestore.errors import LockedError
from statestore.formats.position import encode
from statestore.formats.value_format import value_format
from statestore.model import TopicPartition
from statestore.partition.replay import replay
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery import tail
from statestore.recovery.restore import restore
from statestore.recovery.runner import Part
from statestore.recovery.sources.log import begin_ranges, restore_range
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Staging
from statestore.reports import RestoreRow, Status
from statestore.stores.open import build_store
from statestore.stores.rocksdb import RocksDB
from tests.engines import engines
from tests.integration import broker, dying
from tests.integration.broker import T0, Row
from tests.integration.kinds import ALL_STORES, EVERY_KIND, MINUTE, STORES, WITH_HEADERS, changes, logged, stored
from tests.integration.support import STORE, Application

TINY_RUN = 1_000
SEGMENTED = ["window", "window with duplicates", "session"]


def replayed(store: StorePartitionSpec, directory: Path) -> dict[bytes, bytes]:
    """Rows that a task's own replay of the changelog gives."""
    elsewhere = store.model_copy(update={"state_dir": directory})
    opened = build_store(store.store)
    opened.init(elsewhere.context())
    with ChangelogReader(store.cluster, store.partition) as reader:
        replay(opened, reader, 0, broker.consume(store.cluster.servers, store.partition.topic)[1])
    opened.close()
    return stored(store, elsewhere.live)


def whole(row: RestoreRow) -> RestoreRow:
    assert row.failure is None, row.failure
    assert row.outcome == "restored"
    return row


@pytest.fixture(params=EVERY_KIND)
def application(request: Any, bootstrap_servers: str, tmp_path: Path) -> Application:
    store = ALL_STORES[request.param]
    return logged(bootstrap_servers, tmp_path, store, changes(store, 300, 1))


@pytest.fixture(params=engines(on_disk=True))
def windows(request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path) -> Application:
    store = STORES["window"].model_copy(update={"engine": request.param})
    return logged(bootstrap_servers, tmp_path, store, changes(store, 300, 1))


@pytest.mark.short_for("window with duplicates")
@pytest.mark.behaviour("R2", "R9")
def test_r9_r2_every_kind_has_the_rows_of_a_replay_however_its_log_is_cut(
    application: Application, tmp_path: Path
) -> None:
    store = application.store_spec()
    expected = replayed(store, tmp_path / "replayed")
    assert expected
    digests = set()
    for ways in ({}, {"run_bytes": TINY_RUN}, {"run_bytes": TINY_RUN, "ranges": 4}, {"check": "deep"}):
        ranges = ways.pop("ranges", 1)
        spec = application.restore_spec(force=True, **ways)._replace(ranges=ranges)
        row = whole(restore(spec))
        assert stored(store, store.live) == expected
        # The last offset is a transaction's marker: it is passed, and is no record to wait for.
        assert (row.keys, row.records + row.skipped, row.end) == (len(expected), 300, 301)
        assert row.committed == 299
        digests.add(row.digest)
        assert application.verify().status is Status.OK
    assert len(digests) == 1


#: From how many offsets on a tail is sorted.
SORTED, REPLAYED = 1, 1 << 60


@pytest.mark.short_for("window-1")
@pytest.mark.behaviour("S3")
@pytest.mark.parametrize(
    ("kind", "least"),
    [
        *((kind, REPLAYED) for kind in SEGMENTED),
        ("window", SORTED),
        *(pytest.param(kind, SORTED, marks=pytest.mark.long) for kind in ALL_STORES if kind != "window"),
        *(pytest.param(kind, REPLAYED, marks=pytest.mark.long) for kind in WITH_HEADERS),
    ],
)
def test_s3_a_tail_is_brought_into_a_linked_copy(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, least: int
) -> None:
    monkeypatch.setattr(tail, "LEAST_SORTED", least)
    definition = ALL_STORES[kind]
    application = logged(bootstrap_servers, tmp_path, definition, changes(definition, 100, 1))
    store = application.store_spec()
    whole(restore(application.restore_spec()))
    before = stored(store, store.live)
    broker.transaction(application.servers, application.changelog, changes(definition, 60, 2, minute=11))
    row = whole(restore(application.restore_spec("tail")))
    assert (row.mode, row.before, row.records + row.skipped) == ("tail", Status.LAGGING, 60)
    assert stored(store, store.live) == replayed(store, tmp_path / "replayed")
    assert row.keys == len(stored(store, store.live))
    assert application.verify().status is Status.OK
    assert stored(store, Path(row.quarantine)) == before
    interval = str(2 * MINUTE)
    if definition.segmented:
        assert (store.paths.segments(STORE) / "interval").read_text() == interval
        assert (store.paths.quarantined_segments(STORE, "run") / "interval").read_text() == interval


@pytest.mark.long
@pytest.mark.parametrize("kind", SEGMENTED)
def test_a_restored_store_is_opened_and_written_like_any_other(
    bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    definition = STORES[kind]
    application = logged(bootstrap_servers, tmp_path, definition, changes(definition, 100, 1))
    store = application.store_spec()
    whole(restore(application.restore_spec()))
    opened = build_store(definition)
    opened.init(store.context())
    assert opened.committed_offset(store.partition) == 99
    broker.transaction(application.servers, application.changelog, changes(definition, 60, 2, minute=11))
    with ChangelogReader(store.cluster, store.partition) as reader:
        replay(opened, reader, 100, 161)
    opened.close()
    assert stored(store, store.live) == replayed(store, tmp_path / "replayed")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["key-value", *SEGMENTED])
def test_a_log_of_which_no_row_is_left_is_restored_to_an_empty_store(
    bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    definition = STORES[kind].model_copy(update={"retain_duplicates": False})
    rows: list[Row] = [(key, None) for key, _ in changes(definition, 20, 1)]
    application = logged(bootstrap_servers, tmp_path, definition, rows)
    row = whole(restore(application.restore_spec()))
    assert (row.keys, row.committed) == (0, 19)
    found = application.verify()
    assert (found.status, found.committed) == (Status.OK, 19)


@pytest.mark.parametrize("ranges", [1, 3])
def test_the_position_in_kafka_streams_headers_is_the_restored_stores(
    bootstrap_servers: str, tmp_path: Path, ranges: int
) -> None:
    definition = STORES["window"]
    application = logged(bootstrap_servers, tmp_path, definition, [])
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number, (key, value) in enumerate(changes(definition, 30, 1)):
        position = {TopicPartition("in", 0): number * 2, TopicPartition("in", 1): 100 - number}
        headers = [("v", b"\0"), ("c", encode(position))]
        producer.produce(application.changelog, value, key, 0, timestamp=T0, headers=headers)
    assert producer.flush(120) == 0
    spec = application.restore_spec()._replace(ranges=ranges)
    for part in begin_ranges(spec) if ranges > 1 else ():
        whole(restore_range(Part(spec, part)))
    whole(restore(spec))
    opened = build_store(definition)
    opened.init(spec.store.context(read_only=True))
    assert opened.position() == {TopicPartition("in", 0): 58, TopicPartition("in", 1): 71}
    opened.close(clean=False)


# -- interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.short_for("swap, old segments in quarantine")
@pytest.mark.behaviour("R8")
@pytest.mark.parametrize(
    "point", ["restore, databases written", "swap, old store in quarantine", "swap, old segments in quarantine"]
)
def test_r8_a_killed_restore_of_segments_left_them_untouched_or_is_completed(windows: Application, point: str) -> None:
    store = windows.store_spec()
    whole(restore(windows.restore_spec()))
    before = stored(store, store.live)
    dying.die_in(windows.restore_spec(force=True, label="killed"), point)
    assert windows.verify().status is Status.OK
    assert stored(store, store.live) == before
    assert (store.paths.segments(STORE) / "interval").exists()
    opened = build_store(store.store)
    opened.init(store.context())
    opened.close()


@pytest.mark.long
@pytest.mark.behaviour("R8")
@pytest.mark.parametrize("ranges", [pytest.param(1, marks=pytest.mark.long), 3])
def test_r8_a_rerun_goes_on_behind_the_runs_of_a_killed_restore(
    application: Application, tmp_path: Path, ranges: int
) -> None:
    store = application.store_spec()
    spec = application.restore_spec(run_bytes=TINY_RUN)._replace(ranges=ranges)
    dying.die_in(spec, "restore, batch read" if ranges == 1 else "restore, range read:2")
    row = whole(restore(spec))
    assert 0 < row.resumed < row.records
    assert row.records + row.skipped == 300
    assert stored(store, store.live) == replayed(store, tmp_path / "replayed")


@pytest.mark.long
@pytest.mark.behaviour("R8")
def test_r8_what_was_logged_after_the_kill_is_read_by_the_rerun(windows: Application, tmp_path: Path) -> None:
    store = windows.store_spec()
    spec = windows.restore_spec(run_bytes=TINY_RUN)
    dying.die_in(spec, "restore, before the databases")
    broker.transaction(windows.servers, windows.changelog, changes(store.store, 60, 2, minute=31))
    row = whole(restore(spec))
    assert (row.records, row.committed, row.end) == (360, 360, 362)
    assert row.resumed > 0
    assert stored(store, store.live) == replayed(store, tmp_path / "replayed")


def _recreate(application: Application) -> None:
    broker.delete_topic(application.servers, application.changelog)
    broker.create_topic(application.servers, application.changelog, 1, {"cleanup.policy": "compact"})
    definition = application.definition.stores[0]
    broker.transaction(application.servers, application.changelog, changes(definition, 300, 3))


def _make_old(application: Application) -> None:
    staging = Staging(application.store_spec().paths, STORE)
    plan = staging.plan()
    staging.begin(plan.model_copy(update={"started_ms": plan.started_ms - application.delete_retention_ms}))


def _tear(application: Application) -> None:
    for path in application.store_spec().paths.runs(STORE).rglob("*.arrow"):
        path.write_bytes(path.read_bytes()[:-20])


def _flip(application: Application) -> None:
    for path in application.store_spec().paths.runs(STORE).rglob("*.arrow"):
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 3] ^= 0x10
        path.write_bytes(raw)


@pytest.mark.short_for("_recreate")
@pytest.mark.behaviour("R6")
@pytest.mark.parametrize("meanwhile", [_recreate, _make_old, _tear, _flip])
def test_r6_runs_that_do_not_fit_the_log_any_more_are_not_used(
    windows: Application, tmp_path: Path, meanwhile: Any
) -> None:
    spec = windows.restore_spec(run_bytes=TINY_RUN)
    dying.die_in(spec, "restore, before the databases")
    meanwhile(windows)
    row = whole(restore(windows.restore_spec(run_bytes=TINY_RUN)))
    assert row.resumed == 0
    store = windows.store_spec()
    assert stored(store, store.live) == replayed(store, tmp_path / "replayed")


# -- ranges that others read ------------------------------------------------------------------------------------------


@pytest.mark.short_for("window")
def test_r9_ranges_read_by_others_are_taken_over(application: Application, tmp_path: Path) -> None:
    store = application.store_spec()
    spec = application.restore_spec()._replace(ranges=3)
    parts = begin_ranges(spec)
    assert len(parts) == 3
    for part in reversed(parts):
        assert whole(restore_range(Part(spec, part))).records > 0
    row = whole(restore(spec._replace(ranges=1)))
    assert row.resumed == row.records
    assert stored(store, store.live) == replayed(store, tmp_path / "replayed")


@pytest.mark.long
def test_a_range_that_failed_is_read_when_the_store_is_put_together(windows: Application, tmp_path: Path) -> None:
    store = windows.store_spec()
    spec = windows.restore_spec()._replace(ranges=3)
    first, _, last = begin_ranges(spec)
    for part in (first, last):
        whole(restore_range(Part(spec, part)))
    row = whole(restore(spec))
    assert 0 < row.resumed < row.records
    assert stored(store, store.live) == replayed(store, tmp_path / "replayed")


def test_r11_two_restores_of_one_store_do_not_mix(windows: Application) -> None:
    spec = windows.restore_spec()._replace(ranges=3)
    part, *_ = begin_ranges(spec)
    staging = Staging(spec.store.paths, STORE)
    with staging.reading(1):
        row = restore(spec)
        assert (row.failure.kind, row.failure.retriable) == ("LockedError", True)
        with pytest.raises(LockedError):
            begin_ranges(spec)
    whole(restore(spec))
    late = restore_range(Part(spec, part))
    assert (late.failure.kind, late.records) == ("LockedError", 0)
    assert windows.verify().status is Status.OK


# -- the check before the swap ----------------------------------------------------------------------------------------


def _sabotage(monkeypatch: pytest.MonkeyPatch, spec: RestoreSpec, change: Any) -> None:
    """Have the staged store changed between building and checking."""
    from statestore.recovery import full

    write = full.write_databases

    def written(*arguments: Any, **named: Any) -> Any:
        result = write(*arguments, **named)
        families = value_format(spec.store.store.format).column_families
        database = RocksDB(spec.store.paths.staging(STORE), families)
        change(database, families[0])
        database.sync()
        database.close()
        return result

    monkeypatch.setattr(full, "write_databases", written)


SABOTAGES = {
    "a row more": ("files", lambda database, family: database.put(family, b"more", bytes(9))),
    "another offset": (
        "files",
        lambda database, _: database.write({}, {dict.fromkeys([PARTITION[0]]).popitem()[0]: 7}),
    ),
    "left open": ("files", lambda database, _: database.write({}, status=1)),
    "another value": ("deep", lambda database, family: database.put(family, b"key-01", bytes(9))),
}
PARTITION: list[Any] = [None]


@pytest.mark.short_for("a row more")
@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_store_that_is_not_what_was_written_never_goes_live(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sabotage: str
) -> None:
    definition = STORES["key-value"]
    application = logged(bootstrap_servers, tmp_path, definition, [(b"key-%02d" % n, b"1") for n in range(20)])
    whole(restore(application.restore_spec()))
    live = application.live.stat().st_ino
    depth, change = SABOTAGES[sabotage]
    spec = application.restore_spec(force=True, check=depth)
    PARTITION[0] = spec.store.partition
    _sabotage(monkeypatch, spec, change)
    row = restore(spec)
    assert row.failure.kind == "StoreCorruptedError"
    assert application.live.stat().st_ino == live
    assert application.verify().status is Status.OK


@pytest.mark.long
def test_a_damaged_window_store_is_restored(windows: Application, tmp_path: Path) -> None:
    store = windows.store_spec()
    whole(restore(windows.restore_spec()))
    flip_bit(next(path.parent for path in sorted(store.live.rglob("*.sst"))))
    row = whole(restore(windows.restore_spec(label="again")))
    assert (row.before, row.mode) == (Status.CORRUPT, "full")
    assert stored(store, store.live) == replayed(store, tmp_path / "replayed")
