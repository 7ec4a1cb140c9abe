"""Deep verification on a real log: every row of a store beside the fold of its changelog."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore.definitions.store import StoreDefinition
from statestore.formats.offsets import STATUS_CLOSED
from statestore.formats.timestamped_value import encode
from statestore.formats.value_format import value_format
from statestore.kafka.topics import LogRange
from statestore.model import StoreFormat, TopicPartition
from statestore.reports import Action, Contents, Status
from statestore.statedir.seal import break_seal
from statestore.stores.api import Windowed
from statestore.stores.rocksdb import RocksDB
from statestore.stores.scan import ScannedDatabase
from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp
from statestore.verification import check
from statestore.verification.check import verify
from statestore.verification.contents import databases
from statestore.verification.options import Depth, VerifyOptions
from tests.integration import broker, dying
from tests.integration.broker import T0, Row, transaction
from tests.integration.support import STORE, Application, plain_store

DEPTHS: tuple[Depth, ...] = ("offsets", "scan", "deep")
INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None)]
MINUTE = 60_000
WINDOWS = StoreDefinition(name="visits", kind="window", retention_ms=10 * MINUTE, window_size_ms=MINUTE)
SESSIONS = StoreDefinition(name="visits", kind="session", retention_ms=10 * MINUTE)
#: Long before any retention that the tests set, on the border of a segment.
LONG_AGO = T0 - T0 % (5 * MINUTE)


def write_window(record: Record, context: ProcessorContext) -> None:
    """Keep the value in the window of its time; a null value deletes it."""
    store = context.state_store("visits")
    value = None if record.value is None else ValueAndTimestamp(record.value, record.timestamp)
    store.put(record.key, value, record.timestamp - record.timestamp % MINUTE)


def write_session(record: Record, context: ProcessorContext) -> None:
    """Keep the value as a session of one instant."""
    store = context.state_store("visits")
    store.put(Windowed(record.key, record.timestamp, record.timestamp), record.value)


def scratch(application: Application) -> Path:
    """Where the log was sorted."""
    return application.store_spec().paths.own_dir / "verify" / application.definition.stores[0].name


def change_behind_its_log(application: Application, changes: Mapping[bytes, bytes | None]) -> None:
    """Change stored rows and nothing else, as a damaged MANIFEST or another program does: the store is unsealed."""
    spec = application.store_spec()
    break_seal(spec.paths, spec.store.name)
    database = RocksDB(spec.live, value_format(spec.store.format).column_families)
    database.write({value_format(spec.store.format).column_families[0]: changes}, status=STATUS_CLOSED)
    database.sync()
    database.close()


@pytest.fixture
def whole(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application that has processed some input."""
    application = Application(bootstrap_servers, tmp_path)
    application.process(INPUT)
    return application


def test_o1_a_whole_store_is_equal_to_the_fold_of_its_log(whole: Application) -> None:
    row = whole.verify("deep")
    assert (row.status, row.depth, row.keys, row.lag, row.sealed) == (Status.OK, "deep", 2, 0, True)
    assert (row.contents.equal, row.contents.log_rows, row.contents.differing) == (2, 2, 0)
    assert row.contents.store_digest == row.contents.log_digest
    assert not scratch(whole).exists()


@pytest.mark.long
def test_nothing_is_left_of_a_large_log_that_did_not_fit_into_memory(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"%d" % (number % 500), b"1") for number in range(3_000)])
    row = application.verify("deep", run_bytes=4_096)
    assert (row.status, row.keys) == (Status.OK, 500)
    assert row.contents.store_digest == row.contents.log_digest
    assert not scratch(application).exists()


def test_aborted_records_are_not_in_the_fold(whole: Application) -> None:
    transaction(whole.servers, whole.changelog, [(b"a", b"9"), (b"x", b"9")], end="abort")
    assert whole.verify("deep").status is Status.OK


CHANGES: dict[str, tuple[Mapping[bytes, bytes | None], str]] = {
    "a row that was deleted is back": ({b"b": encode(b"1", T0)}, "only in store"),
    "a row is gone": ({b"a": None}, "only in log"),
    "a row has an older value": ({b"a": encode(b"1", T0)}, "other value"),
    "a row has another timestamp": ({b"c": encode(b"1", T0 + 9)}, "other value"),
}


@pytest.mark.short_for("a row that was deleted is back")
@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_offsets_and_checksums_say_nothing_of(whole: Application, change: str) -> None:
    changes, found = CHANGES[change]
    change_behind_its_log(whole, changes)
    assert whole.verify().status is Status.OK
    row = whole.verify("deep")
    assert (row.status, row.action) == (Status.DIVERGED, Action.FULL)
    assert [(told.found, told.key) for told in row.contents.first] == [(found, next(iter(changes)).hex())]
    assert row.contents.store_digest != row.contents.log_digest
    assert whole.restore("full", force=True).outcome == "restored"
    assert whole.verify("deep").status is Status.OK
    whole.assert_oracle()


def test_a_restored_store_is_compared_without_rocksdb_and_its_damage_by_rocksdb(
    whole: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = whole.store_spec()
    whole.process([(b"%04d" % number, b"1") for number in range(500)])
    assert whole.restore("full", force=True).outcome == "restored"
    read_by_rocksdb: list[Path] = []
    rows = ScannedDatabase.rows

    def noting(database: ScannedDatabase, *bounds: bytes | None) -> Iterator[pa.RecordBatch]:
        read_by_rocksdb.append(database.directory)
        return rows(database, *bounds)

    monkeypatch.setattr(ScannedDatabase, "rows", noting)
    assert (whole.verify("deep").status, read_by_rocksdb) == (Status.OK, [])
    break_seal(spec.paths, STORE)
    victim = max(spec.live.glob("*.sst"), key=lambda file: file.stat().st_size)  # the other has the offsets
    whole_file = victim.read_bytes()
    middle = len(whole_file) // 2
    victim.write_bytes(whole_file[:middle] + bytes([whole_file[middle] ^ 1]) + whole_file[middle + 1 :])
    row = whole.verify("deep")
    assert (row.status, row.file) == (Status.CORRUPT, str(victim))
    assert set(read_by_rocksdb) == {spec.live}
    victim.write_bytes(whole_file)
    change_behind_its_log(whole, {b"a": encode(b"older", T0)})
    assert whole.verify("deep").status is Status.DIVERGED


def test_keys_may_be_left_out_of_the_report(whole: Application) -> None:
    change_behind_its_log(whole, {b"secret": encode(b"1", T0)})
    row = whole.verify("deep", name_keys=False)
    assert row.status is Status.DIVERGED
    assert b"secret".hex() not in row.model_dump_json()


@pytest.mark.long
def test_a_truncated_manifest_of_a_store_without_a_seal_is_found(whole: Application) -> None:
    spec, rows = whole.store_spec(), whole.contents()
    break_seal(spec.paths, STORE)
    shutil.rmtree(spec.live)
    database = RocksDB(spec.live, value_format(StoreFormat.TIMESTAMPED).column_families)
    family = value_format(StoreFormat.TIMESTAMPED).column_families[0]
    # Each reaches the disk by itself, so the MANIFEST's last entries know of the later rows alone.
    for key, (value, timestamp) in rows.items():
        database.write({family: {key: encode(value, timestamp)}}, {spec.partition: 4} if key == b"a" else {})
        database.sync()
    database.close()
    assert whole.verify("deep").status is Status.OK
    manifest = whole.live / (whole.live / "CURRENT").read_text().strip()
    content = manifest.read_bytes()
    looked_whole = 0
    for length in range(0, len(content), 7):
        manifest.write_bytes(content[:length])
        row = whole.verify("deep")
        if row.healthy:
            assert whole.contents() == rows, f"cut at {length}"
        elif row.status is Status.DIVERGED:
            looked_whole += whole.verify().status is Status.OK
    assert looked_whole, "at no cut was the store wrong and looked whole: this test shows nothing"


@pytest.mark.long
def test_a_store_that_lags_is_compared_up_to_where_it_is(whole: Application) -> None:
    whole.send([(b"a", b"3"), (b"c", None), (b"d", b"1")])
    dying.die_in(whole.task_spec(), "Kafka committed, stores not")
    row = whole.verify("deep")
    assert (row.status, row.action, row.lag) == (Status.LAGGING, Action.TAIL, 4)
    assert (row.contents.equal, row.contents.differing) == (2, 0)


@pytest.mark.long
def test_a_key_changed_behind_the_store_is_not_judged_and_others_are(whole: Application) -> None:
    whole.send([(b"a", b"3")])
    dying.die_in(whole.task_spec(), "Kafka committed, stores not")
    change_behind_its_log(whole, {b"a": encode(b"older", T0)})
    row = whole.verify("deep")
    assert (row.status, row.contents.not_judged) == (Status.LAGGING, 1)
    change_behind_its_log(whole, {b"c": None})
    assert whole.verify("deep").status is Status.DIVERGED


@pytest.mark.long
def test_a_timestamp_that_the_store_does_not_know_is_no_difference(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, processor="keep_timestamp_unknown")
    application.process([(b"a", b"1"), (b"b", b"2")])
    row = application.verify("deep")
    assert (row.status, row.contents and row.contents.equal) == (Status.OK, 2)


@pytest.mark.long
def test_f2_rows_left_in_the_older_format_are_equal_and_noticed(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, processor="count_plain", stores=[plain_store()])
    application.process([(b"a", b"1"), (b"b", b"2")])
    application.defined(stores=(StoreDefinition(name=STORE),))
    for depth in ("scan", "deep"):
        row = application.verify(depth)
        assert (row.status, row.action, row.healthy, row.keys) == (Status.OLD_FORMAT, Action.NONE, True, 2)


def test_rows_that_the_log_has_lost_by_deletion_are_not_judged(whole: Application) -> None:
    broker.set_topic_config(whole.servers, whole.changelog, cleanup_policy="compact,delete")
    broker.delete_records(whole.servers, whole.changelog, 4)  # what is left: the delete of b
    row = whole.verify("deep")
    assert (row.status, row.contents.not_judged, row.contents.log_rows) == (Status.OK, 2, 0)


@pytest.mark.long
def test_a_row_that_is_back_although_the_rest_of_the_log_deletes_it_is_found(whole: Application) -> None:
    broker.set_topic_config(whole.servers, whole.changelog, cleanup_policy="compact,delete")
    broker.delete_records(whole.servers, whole.changelog, 4)  # what is left: the delete of b
    change_behind_its_log(whole, {b"b": encode(b"1", T0)})
    row = whole.verify("deep")
    assert row.status is Status.DIVERGED
    assert [(told.found, told.key) for told in row.contents.first] == [("only in store", b"b".hex())]
    assert row.contents.not_judged == 2


@pytest.mark.long
def test_a_log_whose_start_moves_on_meanwhile_is_read_from_there(
    whole: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = check.compare_contents

    def after_deletion(spec: Any, committed: int, log: LogRange, *others: Any) -> Contents:
        if log.start == 0:
            broker.set_topic_config(whole.servers, whole.changelog, cleanup_policy="compact,delete")
            broker.delete_records(whole.servers, whole.changelog, 3)
        return compare(spec, committed, log, *others)

    monkeypatch.setattr(check, "compare_contents", after_deletion)
    row = whole.verify("deep")
    assert (row.status, row.contents.equal, row.contents.not_judged) == (Status.OK, 1, 1)


def test_at_least_once(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    application.process(INPUT)
    assert application.verify("deep").status is Status.OK


# -- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_sample_compares_some_key_ranges_of_both_sides(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"%05d" % (number * 7919 % 2_000), b"1") for number in range(2_000)])
    seen = set()
    for seed in range(3):
        row = application.verify("deep", sample=0.25, seed=seed)
        assert (row.status, row.keys) == (Status.OK, None)
        assert row.contents.sample == pytest.approx(0.25)
        assert 300 < row.contents.store_rows < 700
        assert row.contents.store_digest == row.contents.log_digest
        seen.add(row.contents.store_digest)
    assert len(seen) == 3, "each seed looks at other ranges"
    change_behind_its_log(application, {b"%05d" % number: encode(b"x", T0) for number in range(0, 2_000, 4)})
    found = application.verify("deep", sample=0.25).contents
    assert 75 < found.other_value < 175


# -- windows and sessions ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["window", "session"])
def segmented(request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application with windows or sessions in several segments, the oldest of which have expired."""
    store = WINDOWS if request.param == "window" else SESSIONS
    application = Application(bootstrap_servers, tmp_path, stores=[store])
    application.defined(processor=f"tests.integration.test_verify_deep:write_{request.param}")
    for minute in range(0, 40, 3):
        application.send([(b"a", b"%d" % minute), (b"b", b"x"), (b"b", None)], timestamp=LONG_AGO + minute * MINUTE)
    application.process()
    return application


@pytest.mark.short_for("session")
def test_windows_and_sessions_are_sealed_and_equal_to_their_log(segmented: Application) -> None:
    for depth in DEPTHS:
        row = segmented.verify(depth)
        assert (row.status, row.sealed, row.detail) == (Status.OK, True, "")
    assert 2 < row.contents.equal < 14, "older segments have expired"
    assert row.contents.store_digest == row.contents.log_digest
    sampled = segmented.verify("deep", sample=0.5).contents
    assert sampled.store_digest == sampled.log_digest


@pytest.mark.short_for("window")
def test_a_segment_that_is_gone_is_damage_sealed_or_not(segmented: Application) -> None:
    spec = segmented.store_spec()
    last_but_one = list(databases(spec).values())[-2]
    shutil.rmtree(last_but_one)
    for depth in DEPTHS:
        row = segmented.verify(depth)
        assert (row.status, row.action, row.file) == (Status.CORRUPT, Action.FULL, str(last_but_one))
    break_seal(spec.paths, spec.store.name)
    row = segmented.verify("deep")
    assert (row.status, row.action) == (Status.DIVERGED, Action.FULL)
    assert row.contents.only_in_log > 0


@pytest.mark.long
def test_a_damaged_segment_is_named(segmented: Application) -> None:
    spec = segmented.store_spec()
    victim = max((file for file in spec.live.rglob("*.sst")), key=lambda file: file.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[len(content) // 4] ^= 1
    victim.write_bytes(content)
    row = segmented.verify()
    assert (row.status, row.action, row.file) == (Status.CORRUPT, Action.FULL, str(victim))


@pytest.mark.long
def test_a_segment_that_waits_to_be_dropped_is_not_compared(segmented: Application) -> None:
    spec = segmented.store_spec()
    oldest = min(databases(spec))
    expired = oldest - 20 * MINUTE
    shutil.copytree(spec.live / f"{spec.store.name}.{oldest}", spec.live / f"{spec.store.name}.{expired}")
    row = segmented.verify("deep")
    assert (row.status, row.sealed) == (Status.OK, False)


@pytest.mark.long
def test_windows_that_the_log_has_dropped_by_age_are_not_judged(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, stores=[WINDOWS])
    application.defined(processor="tests.integration.test_verify_deep:write_window")
    changelog = application.store_spec().partition
    application.process([(b"a", b"1"), (b"b", b"1")], LONG_AGO)
    broker.set_topic_config(
        application.servers, changelog.topic, cleanup_policy="compact,delete", retention_ms=str(60 * MINUTE * 24 * 365)
    )
    broker.delete_records(application.servers, changelog.topic, 1)
    row = application.verify("deep")
    # The records are young enough to be there, so somebody else has deleted them: nothing may be rebuilt by itself.
    assert (row.status, row.action) == (Status.DIVERGED, Action.BY_HAND)
    broker.set_topic_config(application.servers, changelog.topic, retention_ms=str(MINUTE))
    row = application.verify("deep")
    assert (row.status, row.contents.not_judged) == (Status.OK, 1)


@pytest.fixture
def duplicates(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application with windows that keep duplicates, under other numbers in the store than in the log."""
    store = WINDOWS.model_copy(update={"retain_duplicates": True})
    application = Application(bootstrap_servers, tmp_path, stores=[store])
    application.defined(processor="tests.integration.test_verify_deep:write_window")
    for minute in range(8):
        rows: list[Row] = [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"a", b"1")]
        application.send(rows, timestamp=LONG_AGO + minute * MINUTE)
    application.process()
    spec = application.store_spec()
    break_seal(spec.paths, spec.store.name)
    for directory in databases(spec).values():
        scanned = ScannedDatabase(directory, spec.store.format)
        found = [row for batch in scanned.rows() for row in zip(*batch.to_pydict().values(), strict=True)]
        scanned.close()
        renumbered = {key[:-1] + bytes([key[-1] + 100]): value for key, value in found}
        database = RocksDB(directory, value_format(spec.store.format).column_families)
        database.write({value_format(spec.store.format).column_families[0]: dict.fromkeys(dict(found)) | renumbered})
        database.sync()
        database.close()
    return application


@pytest.mark.long
def test_windows_that_keep_duplicates_are_compared_whatever_their_numbers(duplicates: Application) -> None:
    row = duplicates.verify("deep")
    assert (row.status, row.contents.equal, row.contents.differing) == (Status.OK, 32, 0)
    for seed in range(8):
        row = duplicates.verify("deep", sample=0.3, seed=seed)
        assert (row.status, row.contents.not_judged) == (Status.OK, 0)
        assert 0 < row.contents.equal == row.contents.store_rows == row.contents.log_rows < 32


@pytest.mark.long
def test_a_duplicate_that_another_one_replaced_in_the_log_alone_is_not_judged(duplicates: Application) -> None:
    spec = duplicates.store_spec()
    (replaced, *_), end = broker.consume(duplicates.servers, duplicates.changelog)
    broker.produce(duplicates.servers, duplicates.changelog, [(replaced.key, b"3")], timestamp=replaced.timestamp)
    family, *_ = families = value_format(spec.store.format).column_families
    for number, (value, found) in enumerate([(b"3", (Status.OK, 1)), (b"unknown", (Status.DIVERGED, 1))], 200):
        rows = {replaced.key[:-1] + bytes([number]): encode(value, T0)}
        for segment, directory in databases(spec).items():
            database = RocksDB(directory, families)
            database.write({family: rows if segment == min(databases(spec)) else {}}, {spec.partition: end})
            database.sync()
            database.close()
        row = duplicates.verify("deep")
        assert (row.status, row.contents.not_judged) == found
    assert (row.contents.only_in_store, row.contents.only_in_log) == (1, 0)
    assert [key.found for key in row.contents.first] == ["only in store"]


@pytest.mark.long
def test_of_windows_that_keep_duplicates_the_log_may_have_dropped_some_by_age(duplicates: Application) -> None:
    # Brokers' clocks may be ten minutes ahead of ours.
    about_to_go = {"cleanup_policy": "compact,delete", "retention_ms": str(69 * MINUTE)}
    broker.set_topic_config(duplicates.servers, duplicates.changelog, **about_to_go)
    broker.delete_records(duplicates.servers, duplicates.changelog, 1)
    row = duplicates.verify("deep")
    assert (row.status, row.contents.equal, row.contents.not_judged) == (Status.OK, 31, 1)


def test_an_offset_of_another_partition_is_corrupt_at_any_depth(whole: Application) -> None:
    spec = whole.store_spec()
    break_seal(spec.paths, STORE)
    database = RocksDB(whole.live, value_format(StoreFormat.TIMESTAMPED).column_families)
    database.write({}, {TopicPartition(whole.changelog, 7): 5})
    database.close()
    for depth in ("offsets", "deep"):
        assert verify(spec, VerifyOptions(depth=depth)).status is Status.CORRUPT  # type: ignore[arg-type]
