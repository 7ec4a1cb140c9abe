"""Stores are verified while another program has them open: no lock is taken, and nothing is written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import pytest

from statestore.advice import Situation
from statestore.cli.verification import verify_all
from statestore.definitions.store import StoreDefinition
from statestore.errors import UnknownStoreError
from statestore.formats.timestamped_value import encode
from statestore.reports import Action, Contents, Status, VerifyRow
from statestore.statedir.lock import locked
from statestore.statedir.record import read_record
from statestore.stores.manifest import DatabaseProgress, progress_of
from statestore.stores.rocksdb import RocksDB
from statestore.verification.check import verify_many
from statestore.verification.live import verify as live
from statestore.verification.live.verify import verify_live, with_live
from statestore.verification.options import VerifyOptions
from tests.integration import broker
from tests.integration.broker import T0, Row
from tests.integration.kinds import ALL_STORES, changes, logged
from tests.integration.support import STORE, Application

DEEP = VerifyOptions("deep", confirm_within_s=0)
KEY_VALUE = StoreDefinition(name=STORE)


class Writer:
    """A program that has a store open, and writes it and its changelog."""

    def __init__(self, application: Application, database: RocksDB) -> None:
        self.application, self._database, self._at = application, database, 10_000
        (self._family,) = application.definition.stores[0].values.column_families[:1]

    def log(self, rows: list[Row]) -> None:
        """Write to the changelog alone."""
        broker.transaction(self.application.servers, self.application.changelog, rows, timestamp=T0 + self._at)

    def store(self, rows: list[Row], *, ahead: int = 0) -> None:
        """Write to the store alone, and to disk."""
        at = T0 + self._at + ahead
        changed = {key: None if value is None else encode(value, at + n) for n, (key, value, *_) in enumerate(rows)}
        self._database.write({self._family: changed})
        self._database.sync()

    def write(self, rows: list[Row]) -> None:
        """Write to both."""
        self.log(rows)
        self.store(rows)
        self._at += len(rows)


@contextmanager
def writing(application: Application) -> Iterator[Writer]:
    """Have a program that uses the store, with its task's lock."""
    spec = application.store_spec()
    with locked(spec.paths, 1):
        database = RocksDB(spec.live, spec.store.values.column_families)
        try:
            yield Writer(application, database)
        finally:
            database.close()


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application whose store has the first 100 records of its log."""
    made = logged(bootstrap_servers, tmp_path, KEY_VALUE, [(b"k%02d" % at, b"v") for at in range(100)])
    made.restore("full")
    return made


def test_a_store_in_use_is_proven_and_one_that_writes_on_stays_so(application: Application) -> None:
    with writing(application) as writer:
        for at in range(5):
            writer.write([(b"k%02d" % at, b"w%d" % at), (b"new%d" % at, b"x")])
            (row,) = verify_live([application.store_spec()], DEEP)
            assert (row.status, row.action, row.live, row.keys) == (Status.PROVEN, Action.NONE, True, 101 + at)
            assert (row.disk_lag, row.kill_risk, row.host) == (0, "", gethostname())


def test_the_report_says_how_far_the_disk_is_behind(application: Application) -> None:
    with writing(application) as writer:
        writer.log([(b"k00", b"w"), (b"k01", b"w")])
        (row,) = verify_live([application.store_spec()], DEEP)
        assert (row.status, row.disk_lag) == (Status.PROVEN, row.end - 101)
        assert contents_of(row).offsets[-1][1] == row.disk_offset == 100
        (row,) = verify_live([application.store_spec()], VerifyOptions("offsets"))
        assert (row.status, row.disk_offset, row.keys) == (Status.IN_USE, 99, None)
        (row,) = verify_live([application.store_spec()], VerifyOptions("scan"))
        assert (row.status, row.keys) == (Status.IN_USE, 100)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.long] if store.values.keeps_headers else [])
        for kind, store in ALL_STORES.items()
        if not store.retain_duplicates
    ],
)
def test_every_kind_is_proven(bootstrap_servers: str, tmp_path: Path, kind: str) -> None:
    store = ALL_STORES[kind]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 200, seed=1))
    application.restore("full")
    with locked(application.store_spec().paths, 1):
        (row,) = verify_live([application.store_spec()], DEEP)
    assert (row.status, row.disk_lag) == (Status.PROVEN, 0), row.detail


def test_duplicates_are_read_and_not_proven(bootstrap_servers: str, tmp_path: Path) -> None:
    store = ALL_STORES["window with duplicates"]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 200, seed=1))
    application.restore("full")
    (row,) = verify_live([application.store_spec()], DEEP)
    assert (row.status, bool(row.keys)) == (Status.IN_USE, True)
    assert contents_of(row).not_proven == "store and log number duplicates independently"


@pytest.mark.parametrize("damage", ["changed", "lost", "foreign record"])
def test_a_difference_is_confirmed_by_a_look_after_the_first_ones_end(
    application: Application, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    looks: list[Status] = []
    with writing(application) as writer:
        writer.write([(b"k50", b"w")])
        if damage == "foreign record":
            writer.log([(b"k07", b"foreign")])
        else:
            writer.store([(b"k07", b"changed" if damage == "changed" else None)])

        def write_on(_: float) -> None:
            looks.append(verify_live([application.store_spec()], DEEP)[0].status)
            writer.write([(b"k51", b"w%d" % len(looks))])

        writer.write([(b"k52", b"w")])
        monkeypatch.setattr(live, "sleep", write_on)
        (row,) = verify_live([application.store_spec()], VerifyOptions("deep", confirm_within_s=30))
    assert looks == [Status.UNCONFIRMED]
    assert (row.status, row.action) == (Status.DIVERGED, Action.BY_HAND)
    assert row.detail.endswith("stop the application, then verify")
    assert row.advice is not None
    assert (row.advice.situation, "restore" in str(row.advice.command)) == (Situation.DIFFERS_IN_USE, False)
    (named,) = contents_of(row).first
    assert (named.key, named.found) == (b"k07".hex(), "only in log" if damage == "lost" else "other value")


def _recreate(application: Application) -> None:
    broker.delete_topic(application.servers, application.changelog)
    broker.create_topic(application.servers, application.changelog)


def test_rows_of_a_changelog_that_was_recreated_are_not_judged(application: Application) -> None:
    before = application.store_spec().changelog
    _recreate(application)
    with writing(application) as writer:
        writer.log([(b"k%02d" % at, b"other") for at in range(100)])
        writer.write([(b"new", b"v")])
        spec = application.store_spec()
        (row,) = verify_live([spec], VerifyOptions("deep", confirm_within_s=60))
    assert before is not None
    assert spec.changelog is not None
    assert (row.status, row.action) == (Status.UNCONFIRMED, Action.LATER)
    said = f"its changelog was topic {before.topic_id} and is now topic {spec.changelog.topic_id}"
    assert contents_of(row).not_proven == said
    assert row.detail.startswith(said)


def test_a_changelog_that_is_recreated_between_two_looks_confirms_nothing(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(application) as writer:

        def write_on(key: bytes) -> None:
            for each in (b"k50", b"k51", key):
                writer.write([(each, b"w")])

        def recreate(_: float) -> None:
            _recreate(application)
            rows: list[Row] = [(b"k%02d" % at, b"v") for at in range(100)]
            broker.transaction(application.servers, application.changelog, rows)
            write_on(b"k52")

        writer.write([(b"k50", b"w")])
        writer.store([(b"k07", b"changed")])
        writer.write([(b"k52", b"w")])
        monkeypatch.setattr(live, "sleep", recreate)
        (row,) = verify_live([application.store_spec()], VerifyOptions("deep", confirm_within_s=60))
    assert row.status is Status.UNCONFIRMED, row.detail
    assert contents_of(row).not_proven.startswith("its changelog was topic ")


def test_rows_that_are_on_disk_before_they_are_logged_raise_no_alarm(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Row] = [(b"k07", b"early"), (b"other", b"early")]
    with writing(application) as writer:
        writer.store(rows)
        assert verify_live([application.store_spec()], DEEP)[0].status is Status.UNCONFIRMED
        monkeypatch.setattr(live, "sleep", lambda _: writer.log(rows))
        (row,) = verify_live([application.store_spec()], VerifyOptions("deep", confirm_within_s=30))
    assert (row.status, row.disk_lag) == (Status.PROVEN, 0)


def test_a_replay_that_is_not_over_raises_no_alarm(application: Application) -> None:
    with writing(application) as writer:
        writer.write([(b"k07", b"w"), (b"k08", b"w"), (b"k09", b"w")])
        writer.store([(b"k07", b"v")], ahead=7 - 10_003)  # as its first record
        for _ in range(3):
            (row,) = verify_live([application.store_spec()], DEEP)
            assert (row.status, row.action) == (Status.UNCONFIRMED, Action.LATER)


def test_nothing_is_written_and_no_lock_file_appears(application: Application, tmp_path: Path) -> None:
    def seen() -> dict[str, tuple[int, int]]:
        found = {}
        for path in tmp_path.rglob("*"):
            stat = path.stat()
            found[str(path)] = stat.st_mtime_ns, stat.st_ino
        return found

    spec = application.store_spec()
    for lock in spec.paths.locks:
        lock.unlink(missing_ok=True)
    before = seen()
    for depth in ("offsets", "scan", "deep"):
        verify_live([spec], VerifyOptions(depth))
    assert seen() == before


def test_an_offset_that_the_rows_never_reach_is_reported_after_two_looks(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = application.store_spec()
    with writing(application) as writer:
        writer.log([(b"k07", b"w"), (b"k08", b"w")])
        writer._database.write({}, {spec.partition: 102})
        writer._database.sync()
        assert verify_live([spec], DEEP)[0].status is Status.UNCONFIRMED
        monkeypatch.setattr(live, "sleep", lambda _: None)
        (row,) = verify_live([spec], VerifyOptions("deep", confirm_within_s=30))
        assert (row.status, row.action) == (Status.WRONG_OFFSET, Action.BY_HAND)
        # Rows that reach it meanwhile show that the files were read while they were written.
        monkeypatch.setattr(live, "sleep", lambda _: writer.store([(b"k07", b"w"), (b"k08", b"w")]))
        (row,) = verify_live([spec], VerifyOptions("deep", confirm_within_s=30))
        assert row.status is Status.PROVEN


def test_another_number_of_partitions_than_of_tasks_is_reported(application: Application) -> None:
    spec = application.store_spec()
    assert spec.changelog is not None
    spec = spec.model_copy(update={"changelog": spec.changelog.model_copy(update={"partitions": 1})})
    (row,) = verify_live([spec], DEEP, tasks={(spec.application, spec.task.subtopology): 2})
    assert (row.status, row.action) == (Status.REPARTITIONED, Action.BY_HAND)


def test_a_store_without_a_changelog_is_read(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, stores=(StoreDefinition(name=STORE, logged=False),))
    application.process([(b"a", b"1"), (b"b", b"2")])
    with locked(application.store_spec().paths, 1):
        (row,) = with_live([application.store_spec()], verify_many([application.store_spec()], DEEP), DEEP)
    assert (row.status, row.keys, row.end) == (Status.IN_USE, 2, None)
    assert row.detail == "not proven: it has no changelog"
    shutil.rmtree(application.store_spec().live)
    (row,) = verify_live([application.store_spec()], DEEP)
    assert row.status is Status.UNCONFIRMED


def test_damage_of_a_locked_store_without_a_changelog_is_reported(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, stores=(StoreDefinition(name=STORE, logged=False),))
    application.process([(b"a", b"1"), (b"b", b"2")])
    spec = application.store_spec()
    for path in spec.live.glob("*.sst"):
        path.write_bytes(b"damaged")
    with locked(spec.paths, 1):
        (row,) = with_live([spec], verify_many([spec], DEEP), VerifyOptions("deep", confirm_within_s=5))
    assert (row.status, row.end) == (Status.CORRUPT, None)


def test_a_store_whose_changelog_topic_is_gone_is_reported(application: Application) -> None:
    spec = application.store_spec().model_copy(update={"changelog": None})
    with writing(application):
        (row,) = with_live([spec], verify_many([spec], DEEP), DEEP)
        assert (row.status, row.action) == (Status.REPLACED, Action.BY_HAND)
    shutil.rmtree(spec.live)
    (row,) = verify_live([spec], DEEP)
    assert row.status is Status.EMPTY


def test_scratch_of_a_look_that_was_killed_is_removed_by_the_next_one(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"statestore-scratch-{os.getuid()}" / "work-killed"
    left.mkdir(parents=True)
    (left / "runs").touch()
    left.with_suffix(".lock").touch()
    verify_live([application.store_spec()], DEEP)
    assert [*left.parent.iterdir()] == []


def test_a_store_that_is_locked_is_verified_live_by_itself(application: Application) -> None:
    with writing(application):
        spec = application.store_spec()
        rows = verify_many([spec], DEEP)
        assert rows[0].status is Status.LOCKED
        (row,) = with_live([spec], rows, DEEP)
        assert (row.status, row.live) == (Status.PROVEN, True)
        gone = spec.model_copy(update={"state_dir": spec.state_dir / "nowhere"})
        assert with_live([gone], rows, DEEP) == rows


def test_a_locked_store_is_verified_with_the_lowest_priority(application: Application) -> None:
    before, seen = (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)), set()

    def pace(_: int) -> None:
        seen.add((os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)))

    with writing(application):
        (row,) = verify_all([application.store_spec()], replace(DEEP, pace=pace), falls_back=True)
    assert (row.status, row.live, seen) == (Status.PROVEN, True, {(19, os.SCHED_IDLE)})
    if os.geteuid() == 0:  # others may not raise it again
        assert (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)) == before


def test_rows_that_no_record_explains_are_never_proven(application: Application, tmp_path: Path) -> None:
    """Given the rows of another store in the place of this one's, and no offset in its files."""
    spec = application.store_spec()
    database = RocksDB(spec.live, spec.store.values.column_families)
    (family,) = spec.store.values.column_families[:1]
    database.write({family: {b"k%02d" % at: None for at in range(100)}})
    database.write({family: {b"other%d" % at: encode(b"v", T0) for at in range(50)}})
    database.sync()
    database.close()
    (row,) = verify_live([spec], DEEP)
    assert row.status is not Status.PROVEN, row
    assert contents_of(row).offsets == () or row.status is Status.UNCONFIRMED


def test_a_store_of_another_format_does_not_end_the_run(application: Application) -> None:
    spec = application.store_spec()
    plain = spec.model_copy(update={"store": spec.store.model_copy(update={"format": "plain"}), "owned": False})
    with writing(application):
        locked_row, other = with_live([plain, spec], verify_many([plain, spec], VerifyOptions(depth="scan")), DEEP)
    assert (locked_row.status, locked_row.action) == (Status.UNKNOWN_FORMAT, Action.BY_HAND)
    assert other.status is Status.PROVEN


def test_a_confirmed_difference_stays_if_the_next_look_fails(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = live._Watched(application.store_spec(), DEEP, live.Cluster(application.servers, 30.0))
    watched.judged = live._Judged(Status.DIVERGED, Action.BY_HAND, "2 rows differ", pending=True)

    def gone(*_: object) -> None:
        raise UnknownStoreError("it is gone")

    monkeypatch.setattr(live, "look", gone)
    watched.look()
    assert (watched.judged.status, watched.judged.pending) == (Status.DIVERGED, False)


def test_a_store_that_a_restore_has_replaced_is_no_older_copy(application: Application) -> None:
    spec = application.store_spec()
    later = {
        "": DatabaseProgress(
            identity=progress_of(spec.live, segmented=False)[""].identity, sequence=10**9, next_file=10**6
        )
    }
    seen = {"progress_seen": tuple(later.items()), "committed_seen": 50}
    (row,) = verify_live([spec.model_copy(update=seen)], DEEP)  # recorded before the restore
    assert row.status is Status.PROVEN, row.detail
    record = read_record(spec.paths, STORE)
    assert record is not None
    noted = spec.model_copy(update={**seen, "restored_by_seen": record.restored_by})
    assert verify_live([noted], DEEP)[0].status is Status.UNCONFIRMED  # the same store was further


def test_a_store_that_is_gone_is_reported_after_two_looks(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = application.store_spec()
    gone = spec.live.with_name("gone")
    spec.live.rename(gone)
    times = iter(range(0, 10_000, 10))  # each question for the time comes 10 s after the one before
    monkeypatch.setattr(live, "monotonic", lambda: next(times))
    monkeypatch.setattr(live, "sleep", lambda _: None)
    # A task that moves, or whose store was wiped, may have no directory for a while.
    assert verify_live([spec], DEEP)[0].status is Status.UNCONFIRMED
    (row,) = verify_live([spec], VerifyOptions(confirm_within_s=300))
    assert (row.status, row.action) == (Status.MISSING, Action.BY_HAND)
    monkeypatch.setattr(live, "sleep", lambda _: gone.rename(spec.live))
    assert verify_live([spec], VerifyOptions("deep", confirm_within_s=30))[0].status is Status.PROVEN


def test_a_store_that_is_replaced_during_a_look_does_not_end_the_run(bootstrap_servers: str, tmp_path: Path) -> None:
    store = ALL_STORES["window"]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 200, seed=1))
    application.restore("full")
    spec = application.store_spec()

    def replace_store(_: int) -> None:
        if spec.live.exists():  # as a killed application of Kafka Streams does at its next start
            spec.live.rename(tmp_path / "gone")

    (row,) = verify_live([spec], replace(DEEP, pace=replace_store))
    assert (row.status, row.action) == (Status.LOCKED, Action.LATER)
    (tmp_path / "gone").rename(spec.live)
    assert verify_live([spec], DEEP)[0].status is Status.PROVEN


def test_a_damaged_block_is_reported_after_two_looks(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = application.store_spec()
    file = max(spec.live.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[60] ^= 1
    file.write_bytes(content)
    assert verify_live([spec], VerifyOptions(confirm_within_s=0))[0].status is Status.UNCONFIRMED
    monkeypatch.setattr(live, "sleep", lambda _: None)
    (row,) = verify_live([spec], VerifyOptions(confirm_within_s=30))
    assert (row.status, row.action, row.file) == (Status.CORRUPT, Action.BY_HAND, str(file))


def contents_of(row: VerifyRow) -> Contents:
    """Return what a deep verification compared."""
    assert row.contents is not None
    return row.contents


def test_an_offset_on_disk_near_the_start_of_the_log_is_an_alert(bootstrap_servers: str, tmp_path: Path) -> None:
    kept = {"cleanup.policy": "delete", "retention.ms": "-1"}
    application = Application(bootstrap_servers, tmp_path, processor="echo", changelog_config=kept)
    broker.transaction(bootstrap_servers, application.changelog, [(b"k%02d" % at, b"v") for at in range(100)])
    application.restore("full")
    with writing(application) as writer:
        writer.write([(b"k%02d" % at, b"w") for at in range(100)])
        writer.log([(b"k%02d" % at, b"x") for at in range(100)])
        assert verify_live([application.store_spec()], DEEP)[0].kill_risk == ""
        for before, said in ((195, "almost a full restore"), (250, "would lose data")):
            broker.delete_records(application.servers, application.changelog, before)
            (row,) = verify_live([application.store_spec()], DEEP)
            assert said in row.kill_risk


def test_files_that_are_older_than_kafka_keeps_deletes_are_an_alert(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(application) as writer:
        writer.log([(b"k01", None)])
        spec = application.store_spec()
        assert verify_live([spec], DEEP)[0].kill_risk == ""
        now_ms = live.brokers_clock.now_ms(spec.cluster)
        monkeypatch.setattr(live.brokers_clock, "now_ms", lambda _: now_ms + application.delete_retention_ms)
        assert "bring deleted rows back" in verify_live([spec], DEEP)[0].kill_risk
        writer.store([(b"k01", None)])
        os.utime(spec.live)
        assert verify_live([spec], DEEP)[0].kill_risk == ""
