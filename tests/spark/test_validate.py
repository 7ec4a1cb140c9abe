"""Validation passes what is whole, names what is not, says when it cannot tell, and keeps what may be needed."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import frames, validate
from statestore_jobs.source_frames import read_offset

from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.durable import write_durably
from statestore.errors import InputError, LockedError, UnknownApplicationError, UnknownStoreError
from statestore.formats.offsets import STATUS_CLOSED
from statestore.formats.value_format import value_format
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange, Topics
from statestore.kinds.known import BUILT_IN
from statestore.model import StoreFormat, StoreSelector, TaskId, TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import restore
from statestore.reports import (
    Action,
    Loss,
    RestoreReport,
    RestoreRow,
    Status,
    ValidatedStore,
    ValidateReport,
    VerifyReport,
    VerifyRow,
    write_report,
)
from statestore.requests.restore import RestoreRequest
from statestore.requests.validate import ValidateRequest
from statestore.statedir.lock import locked
from statestore.statedir.seal import seal
from statestore.statedir.sidecar import Sidecar
from statestore.stores.rocksdb import RocksDB
from statestore.verification.history import write_history
from tests.integration import broker
from tests.integration.compaction import EAGER, overtake
from tests.integration.kinds import STORES, changes
from tests.integration.kinds import logged as logged_application
from tests.integration.support import STORE, Application, catalogue_of
from tests.integration.test_supplied_stores import KEY_VALUE, WINDOWED
from tests.spark.logged_store import LoggedStore

LoggedStores = Callable[..., LoggedStore]
#: Nothing is compacted.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}


def _job(
    settings: Settings, defined: ApplicationDefinition, partitions: int, run_id: str = "run-1", **arguments: object
) -> ValidateReport:
    request = ValidateRequest.read({"applications": [defined.name], **arguments})
    return validate.run(request, settings, catalogue_of(defined, partitions=partitions), run_id)


def _run(logged: LoggedStore, run_id: str = "run-1", **arguments: object) -> ValidateReport:
    return _job(logged.settings, logged.application, logged.partitions, run_id, **arguments)


def _verdicts(report: ValidateReport) -> list[tuple[str, str, int]]:
    return [(row.task, row.verdict, row.keys) for row in report.rows]


def _restored(store: LoggedStore, partitions: list[int], quarantine: dict[int, Path]) -> dict[str, object]:
    """Arguments of a run that follows a restore of these partitions; the others were whole."""
    rows = [
        RestoreRow(
            application=store.application.name,
            store=store.definition.name,
            task=f"0_{partition}",
            outcome="restored" if partition in partitions else "skipped",
            quarantine=str(quarantine[partition]) if partition in quarantine else None,
        )
        for partition in range(store.partitions)
    ]
    path = store.settings.reports_dir / "restore" / "r.json"
    applications = (store.application.name,)
    write_report(path, RestoreReport(run_id="r", applications=applications, started_ms=0, finished_ms=1, rows=rows))
    return {"applications": None, "restore_report": path}


@pytest.mark.short_for("timestamped")
@pytest.mark.parametrize("store_format", [StoreFormat.PLAIN, StoreFormat.TIMESTAMPED])
def test_an_application_is_validated_against_its_changelogs(
    spark: SparkSession, logged_store: LoggedStores, store_format: StoreFormat
) -> None:
    store = logged_store(3, store_format)
    store.log(0, [(b"a", b"1", 1000), (b"b", b"2", 1001), (b"a", b"3", 1002)])
    store.log(0, [(b"b", None, 1003), (b"c", b"4", 1004)])
    store.log(0, [(b"d", b"5", 1005)], abort=True)
    store.catch_up(0)
    store.log(0, [(b"later", b"6", 1006)])  # beyond the committed offset: processing goes on
    store.log(1, [(b"a", b"7", 1007), (b"a", None, 1008)])
    store.catch_up(1)
    # Partition 2 was never written: neither a directory nor a record.

    report = _run(store)

    assert _verdicts(report) == [("0_0", "passed", 2), ("0_1", "passed", 0), ("0_2", "passed", 0)]
    assert (report.run_id, report.applications) == ("run-1", (store.application.name,))
    assert report.rows[0].expectations == report.stores[0].expectations > 5
    index = Path(report.data_docs or "").read_text()
    assert store.application.name in index
    assert "run-1" in Path(report.rows[0].data_docs or "").read_text()


@pytest.mark.long
def test_a_tombstone_that_the_store_has_not_seen_fails(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store()
    store.log(0, [(b"a", b"1", 1000), (b"b", b"2", 1001), (b"a", None, 1002)])
    store.catch_up(0)
    store.change(0, [(b"a", b"1", 1000)])

    [row] = _run(store).rows

    assert row.verdict == "failed"
    assert row.detail == "partition 0: key b'a' is not in the changelog, or deleted there"


@pytest.mark.long
def test_a_store_that_is_missing_or_ahead_fails(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store(2)
    store.log(0, [(b"a", b"1", 1000)])
    store.log(1, [(b"b", b"2", 1000)])
    store.catch_up(1)
    store.change(1, [], committed=500)

    report = _run(store)

    assert _verdicts(report) == [("0_0", "failed", 0), ("0_1", "failed", 1)]
    assert any("committed offset 500" in failed for failed in report.rows[0].failed_expectations)
    assert report.rows[0].detail == "partition 0: key b'a' is missing from the store"


def _lose_the_manifest(directory: Path) -> None:
    (directory / "CURRENT").write_text("MANIFEST-999999\n")


def _flip_a_bit(directory: Path) -> None:
    largest = max(directory.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[200] ^= 1  # in the first data block
    largest.write_bytes(content)


@pytest.mark.short_for("_flip_a_bit")
@pytest.mark.parametrize("damage", [_lose_the_manifest, _flip_a_bit])
def test_a_store_that_cannot_be_read_is_an_error(
    spark: SparkSession, logged_store: LoggedStores, damage: Callable[[Path], None]
) -> None:
    store = logged_store()
    store.log(0, [(b"%03d" % number, b"value", 1000) for number in range(100)])
    store.catch_up(0)
    damage(store.directory(0))

    [row] = _run(store).rows

    assert row.verdict == "error"
    assert "RocksDB cannot read" in row.detail
    assert len(row.detail) < 1000


def test_a_store_in_use_is_for_later(logged_store: LoggedStores) -> None:
    store = logged_store()
    spec = StorePartitionSpec(
        application=store.application.name,
        task=TaskId(0, 0),
        store=store.definition,
        changelog=None,
        cluster=Cluster(store.settings.bootstrap_servers, 10),
        state_dir=store.settings.state_dir,
        lock_wait_s=0.1,
    )
    with locked(store.paths(0)), pytest.raises(LockedError, match="locked by another process"):
        read_offset(spec)


@pytest.mark.long
def test_r16_keys_of_which_the_log_has_only_later_records_are_not_compared(
    spark: SparkSession, logged_store: LoggedStores
) -> None:
    store = logged_store()
    store.log(0, [(b"a", b"1", 1000), (b"b", b"2", 1001)])
    store.catch_up(0)
    store.log(0, [(b"a", b"3", 1002), (b"c", b"4", 1003)])
    store.forget(0, before=1)  # as compaction would, because a has a later record

    [row] = _run(store).rows

    assert (row.verdict, row.keys) == ("passed", 2)
    assert row.detail.startswith("2 keys were not compared")


@pytest.mark.long
def test_a_key_that_changed_behind_the_store_is_not_judged_by_an_older_record_that_compaction_has_left(
    spark: SparkSession, logged_store: LoggedStores
) -> None:
    now = int(time.time() * 1000)
    store = logged_store(topic_config={"cleanup.policy": "compact"})
    store.log(0, [(b"a", b"1", now), (b"b", b"2", now)])
    store.catch_up(0)
    # As if the record of this value had been compacted away when the one before it was read.
    store.change(0, [(b"a", b"between", now)])
    store.log(0, [(b"a", b"3", now), (b"b", b"4", now)])

    [row] = _run(store).rows

    assert (row.verdict, row.keys) == ("passed", 2), row.detail
    assert row.detail.startswith("1 keys were not compared")


def _after_each_answer(monkeypatch: pytest.MonkeyPatch, times: int, act: Callable[[], None]) -> None:
    """Act right after each of the first answers where logs begin and end, once the store's rows were read."""
    original, left = frames._beside_log, [act] * times
    asked = Topics.log_ranges

    def beside_log(*arguments: Any) -> frames.Frames:
        def log_ranges(topics: Topics, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogRange]:
            found = asked(topics, partitions)
            if left:
                left.pop()()
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Topics, "log_ranges", log_ranges)
            return original(*arguments)

    monkeypatch.setattr(frames, "_beside_log", beside_log)


@pytest.mark.long
def test_records_that_are_compacted_away_while_the_log_is_read_are_no_difference(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.make_compaction_eager(bootstrap_servers)
    application = Application(bootstrap_servers, tmp_path, changelog_config=EAGER)
    application.process([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    _after_each_answer(monkeypatch, 3, lambda: overtake(application.servers, application.changelog, b"a"))

    [row] = _validated(application, tmp_path).rows

    assert (row.verdict, row.keys) == ("passed", 3), row.detail
    assert row.detail.startswith("1 keys were not compared")


@pytest.mark.long
def test_records_that_retention_removes_before_the_log_is_read_are_no_difference(
    spark: SparkSession, logged_store: LoggedStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = logged_store()
    store.log(0, [(b"a", b"1", 1000), (b"b", b"2", 1001)])
    store.catch_up(0)
    _after_each_answer(monkeypatch, 1, lambda: store.forget(0, before=1))

    [row] = _run(store).rows

    assert (row.verdict, row.keys) == ("passed", 2), row.detail
    assert row.detail.startswith("1 keys were not compared")


def test_a_log_with_the_brokers_timestamps_is_an_error(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store(topic_config={**KEPT, "message.timestamp.type": "LogAppendTime"})
    store.log(0, [(b"a", b"1", 1000)])
    store.catch_up(0)

    [row] = _run(store).rows

    assert row.verdict == "error"
    assert f"{store.topic} has message.timestamp.type=LogAppendTime, expected CreateTime" in row.detail


def test_after_a_restore_only_what_passed_leaves_quarantine(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store(2)
    for partition in range(2):
        store.log(partition, [(b"a", b"1", 1000)])
        store.catch_up(partition)
    store.change(1, [(b"a", b"9", 1000)])
    seal(store.paths(0), "counts", BUILT_IN["key-value"])
    old = {partition: store.paths(partition).quarantine("counts", "r") for partition in range(2)}
    for partition, directory in old.items():
        directory.mkdir(parents=True)
        _judged(store, partition, Loss.NONE)

    # Partition 1 was not restored, so it is not judged.
    report = _run(store, **_restored(store, [0], old))
    assert _verdicts(report) == [("0_0", "passed", 1)]
    assert [directory.exists() for directory in old.values()] == [False, True]

    report = _run(store, **_restored(store, [1], old))
    assert _verdicts(report) == [("0_1", "failed", 1)]
    [row] = report.rows
    assert row.detail.endswith(f"the store that was replaced is kept in {old[1]}, to put it back: {row.rollback}")
    assert (row.quarantine, old[1].exists()) == (str(old[1]), True)
    command = shlex.split(row.rollback or "")
    assert command == ["statestore", "restore", "--rollback", f"{store.application.name}/counts/0_1"]
    assert StoreSelector.parse(command[3]).parts == {"0_1"}


def _judged(store: LoggedStore, partition: int, loss: Loss) -> None:
    """Say how the replaced store was judged."""
    kept = Sidecar(status=Status.CORRUPT, loss=loss, why="its log was cut")
    write_durably(store.paths(partition).quarantined_own("counts", "r"), kept.model_dump_json())


@pytest.mark.parametrize("loss", [Loss.LIKELY, Loss.UNPROVEN])
@pytest.mark.short_for("likely")
def test_a_replaced_store_that_may_have_what_its_log_has_lost_stays_also_if_its_successor_passed(
    spark: SparkSession, logged_store: LoggedStores, loss: Loss
) -> None:
    store = logged_store()
    store.log(0, [(b"a", b"1", 1000)])
    store.catch_up(0)
    old = store.paths(0).quarantine("counts", "r")
    old.mkdir(parents=True)
    _judged(store, 0, loss)

    [row] = _run(store, **_restored(store, [0], {0: old})).rows

    assert (row.verdict, row.quarantine, old.exists()) == ("passed", str(old), True)
    assert row.detail == (
        f"the store that was replaced (it was CORRUPT, and its log was cut) is kept in {old}, to put it back: "
        f"{row.rollback}"
    )


@pytest.mark.long
def test_a_replaced_store_that_is_being_used_stays_for_a_later_restore_to_remove(
    spark: SparkSession, logged_store: LoggedStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise LockedError("somebody is at work")

    store = logged_store()
    store.log(0, [(b"a", b"1", 1000)])
    store.catch_up(0)
    old = store.paths(0).quarantine("counts", "r")
    old.mkdir(parents=True)
    _judged(store, 0, Loss.NONE)
    monkeypatch.setattr(validate, "release_validated", busy)

    [row] = _run(store, **_restored(store, [0], {0: old})).rows

    assert (row.verdict, row.detail) == (
        "passed",
        f"the store that was replaced is still in {old}: somebody is at work",
    )
    assert old.exists()


def test_a_restore_that_restored_nothing_leaves_nothing_to_validate(logged_store: LoggedStores) -> None:
    store = logged_store()
    report = _run(store, **_restored(store, [], {}))

    assert (report.rows, report.data_docs) == ((), None)


def test_bad_input_is_refused_before_anything_is_done(logged_store: LoggedStores, tmp_path: Path) -> None:
    store = logged_store()
    name = store.application.name

    with pytest.raises(UnknownApplicationError, match=f"'other' is defined; the applications are: {name}"):
        _run(store, applications=["other"])
    with pytest.raises(UnknownStoreError, match=r"no store 'other' .*; the stores are: counts"):
        _run(store, stores=["other"])
    with pytest.raises(InputError, match="no report at"):
        _run(store, applications=[], restore_report=tmp_path / "absent.json")
    outside = {0: tmp_path / "precious"}
    with pytest.raises(InputError, match="expected a replaced store in"):
        _run(store, **_restored(store, [0], outside))
    with pytest.raises(InputError, match=r"no suite 'absent' .* flight_delays_aircraft, .*key_value"):
        _run(logged_store(expectations="absent"))
    other = StoreDefinition(name="renamed")
    renamed = LoggedStore(store.application.model_copy(update={"stores": (other,)}), store.settings, 1)
    with pytest.raises(UnknownStoreError, match=f"names {name}/counts/0_0; the definitions have: {name}/renamed/0_0"):
        _run(renamed, **_restored(store, [0], {}))


# -- stores of every kind ---------------------------------------------------------------------------------------------


def _validated(made: Application, directory: Path, **arguments: object) -> ValidateReport:
    settings = Settings(
        bootstrap_servers=made.servers,
        state_dir=made.state_dir,
        reports_dir=directory / "reports",
        data_docs_dir=directory / "data_docs",
    )
    return _job(settings, made.definition, made.partitions, **arguments)


def _lose_a_row(spec: StorePartitionSpec) -> None:
    """Delete the first row of the newest database, and leave the store as if nothing had happened."""
    newest = max(path.parent for path in spec.live.rglob("CURRENT"))
    families = value_format(spec.store.format).column_families
    database = RocksDB(newest, families)
    try:
        key = next(key for key, _ in database.scan(families[0]))
        database.write({families[0]: {key: None}}, status=STATUS_CLOSED)
        database.sync()
    finally:
        database.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", STORES)
def test_a_store_of_every_kind_passes_and_fails_where_a_row_is_lost(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    definition = STORES[kind]
    application = logged_application(bootstrap_servers, tmp_path, definition, changes(definition, 300, 1))
    spec = application.store_spec()
    assert restore(application.restore_spec()).failure is None
    # Of a key whose record was compacted away nothing could be said.
    broker.set_topic_config(application.servers, application.changelog, **KEPT)
    # Processing has gone on: windows and sessions of the store have expired by now, others have changed.
    broker.transaction(application.servers, application.changelog, changes(definition, 60, 2, minute=31))

    [row] = _validated(application, tmp_path, run_id="whole").rows

    assert (row.verdict, row.failed_expectations) == ("passed", ()), row.detail
    assert row.keys > 0

    _lose_a_row(spec)
    report = _validated(application, tmp_path, run_id="broken")

    [row], [store] = report.rows, report.stores
    assert row.verdict == "failed"
    assert "is missing from the store" in row.detail
    [missing] = [found for found in store.failed_rows if found.expectation.startswith("no row of the changelog is mis")]
    assert missing.count == 1
    assert json.dumps(missing.rows)


@pytest.mark.long
def test_the_verdict_is_left_as_json_beside_the_data_docs_with_links_to_plots(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = STORES["session"]
    application = logged_application(bootstrap_servers, tmp_path, definition, changes(definition, 300, 1))
    assert restore(application.restore_spec()).failure is None
    for number in range(3):
        rows = (application.verify(),)
        write_history(
            tmp_path / "reports",
            VerifyReport(
                run_id=f"v-{number}", applications=(application.name,), started_ms=number, finished_ms=number, rows=rows
            ),
        )

    [store] = _validated(application, tmp_path).stores

    name, docs = f"{application.name}.{STORE}", tmp_path / "data_docs"
    assert store.verdict_file == str(docs / "verdicts" / name / "run-1.json")
    kept = ValidatedStore.model_validate_json(Path(store.verdict_file).read_bytes())
    assert (kept, kept.verdict) == (store, "passed")
    assert [Path(plot) for plot in store.plots] == [
        docs / "plots" / name / f"{plot}.svg" for plot in ("partitions", "timestamps", "lag")
    ]
    assert all("<svg" in Path(plot).read_text() for plot in store.plots)
    # Session stores are plain: their rows have no timestamps.
    assert "ends of sessions" in Path(store.plots[1]).read_text()


# -- stores whose files tell nothing, or that have none ----------------------------------------------------------------


def _rule(directory: Path, condition: str) -> str:
    """A suite with one rule."""
    rule = {"type": "expect_store_rows_to_satisfy", "kwargs": {"condition": condition}, "description": condition}
    suite = directory / "rule.json"
    suite.write_text(json.dumps({"name": "rule", "expectations": [rule]}))
    return str(suite)


@pytest.mark.short_for("plain")
@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("name", ["plain", "timestamped", "transactional", "window", "session"])
def test_g1_a_suppliers_store_passes_and_fails_where_a_row_is_lost(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, name: str
) -> None:
    definition = {**KEY_VALUE, **WINDOWED}[name]
    definition = definition.model_copy(update={"expectations": _rule(tmp_path, "value <> X'00'")})
    application = logged_application(bootstrap_servers, tmp_path, definition, changes(definition, 300, 1))
    assert restore(application.restore_spec()).failure is None
    broker.set_topic_config(application.servers, application.changelog, **KEPT)
    broker.transaction(application.servers, application.changelog, changes(definition, 60, 2, minute=31))

    [row] = _validated(application, tmp_path, run_id="whole").rows

    assert (row.verdict, row.failed_expectations) == ("passed", ()), row.detail
    assert row.keys > 0

    file = application.live / "rows.json"
    content = json.loads(file.read_text())
    content["rows"].sort(key=lambda of: of[0][1:])
    content["rows"].pop()  # the latest window
    file.write_text(json.dumps(content))
    [row] = _validated(application, tmp_path, run_id="broken").rows
    assert row.verdict == "failed"
    assert "is missing from the store" in row.detail


@pytest.mark.short_for("window")
@pytest.mark.behaviour("G2")
@pytest.mark.parametrize("kind", ["key-value", "window", "session"])
def test_g2_an_in_memory_store_is_judged_by_the_rows_that_its_log_fills_it_with(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    definition = STORES[kind].model_copy(update={"engine": "in_memory"})
    definition = definition.model_copy(update={"expectations": _rule(tmp_path, "value IS NOT NULL")})
    rows = changes(definition, 300, 1)
    application = logged_application(bootstrap_servers, tmp_path, definition, rows)
    [row], [store] = (report := _validated(application, tmp_path, run_id="one")).rows, report.stores
    assert (row.verdict, store.failed_expectations) == ("passed", ()), row.detail
    assert 0 < row.keys < len(rows)
    _rule(tmp_path, "value IS NULL")
    [row] = _validated(application, tmp_path, run_id="two").rows
    assert (row.verdict, row.failed_expectations) == ("failed", ("value IS NULL",))


@pytest.mark.behaviour("G3")
def test_g3_what_no_suite_applies_to_is_not_judged(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    definition = StoreDefinition(name=STORE, kind="versioned", retention_ms=60_000, engine="in_memory")
    application = logged_application(bootstrap_servers, tmp_path, definition, [])
    [row], [store] = (report := _validated(application, tmp_path)).rows, report.stores
    assert (row.verdict, row.healthy, row.expectations) == ("not judged", False, 0)
    assert "only in memory" in row.detail
    kept = ValidatedStore.model_validate_json(Path(store.verdict_file or "").read_bytes())
    assert (kept.verdict, kept.data_docs) == ("not judged", None)


@pytest.mark.behaviour("G3")
def test_g3_a_global_table_that_a_verification_names_is_not_judged(bootstrap_servers: str, tmp_path: Path) -> None:
    settings = Settings(
        bootstrap_servers=bootstrap_servers,
        state_dir=tmp_path / "state",
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path / "data_docs",
    )
    found = {"application": "of-kafka-streams", "store": "rates", "status": Status.OK, "action": Action.NONE}
    head = {"run_id": "v", "applications": ("of-kafka-streams",), "started_ms": 0, "finished_ms": 1}
    write_report(tmp_path / "v.json", VerifyReport(rows=(VerifyRow(task="global", **found),), **head))
    request = ValidateRequest.read({"verify_report": tmp_path / "v.json"})
    report = validate.run(request, settings, catalogue_of(), "run-1")
    assert report.applications == ("of-kafka-streams",)
    assert [(row.label, row.verdict, row.healthy) for row in report.rows] == [
        ("of-kafka-streams/rates/global", "not judged", False)
    ]
    assert [store.verdict for store in report.stores] == ["not judged"]


# -- what reports name ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_a_verification_has_looked_at_is_validated(
    spark: SparkSession, logged_store: LoggedStores, tmp_path: Path
) -> None:
    store = logged_store(3)
    for partition in range(3):
        store.log(partition, [(b"a", b"1", 1000)])
        store.catch_up(partition)
    looked_at = {"application": store.application.name, "store": "counts", "status": Status.OK, "action": Action.NONE}
    rows = tuple(VerifyRow(task=task, **looked_at) for task in ("0_2", "0_0"))
    head = {"run_id": "v", "applications": (store.application.name,), "started_ms": 0, "finished_ms": 1}
    write_report(tmp_path / "v.json", VerifyReport(rows=rows, **head))

    report = _run(store, applications=[], verify_report=tmp_path / "v.json")

    assert _verdicts(report) == [("0_0", "passed", 1), ("0_2", "passed", 1)]
    write_report(tmp_path / "v.json", VerifyReport(rows=(rows[0].model_copy(update={"task": "?_7"}),), **head))
    with pytest.raises(UnknownStoreError, match=r"names .*/counts/\?_7; the definitions have: "):
        _run(store, applications=[], verify_report=tmp_path / "v.json")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["key-value", "window"])
def test_a_store_as_of_a_point_is_validated_where_it_was_built(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    definition = STORES[kind]
    application = logged_application(bootstrap_servers, tmp_path, definition, changes(definition, 30, 1))
    request = RestoreRequest(mode="as-of", as_of_offset=19, target=tmp_path / "then", best_effort=True)
    spec = application.restore_spec()._replace(request=request)
    restored = restore(spec)
    assert restored.failure is None, restored.failure
    report = tmp_path / "r.json"
    head = {"run_id": "r", "applications": (application.name,), "started_ms": 0, "finished_ms": 1}
    write_report(report, RestoreReport(rows=(restored,), **head))

    [row] = _validated(application, tmp_path, applications=[], restore_report=report).rows

    assert (row.verdict, row.keys) == ("passed", restored.keys), row.detail
    assert not application.live.exists()


# -- one store does not keep another from its verdict -----------------------------------------------------------------


def _two_stores(servers: str, directory: Path) -> Application:
    stores = [StoreDefinition(name=STORE), StoreDefinition(name="latest", format="plain")]
    application = Application(servers, directory, stores=stores, processor="count_in_two_stores")
    application.process([(b"a", b"1"), (b"b", b"2")])
    return application


@pytest.mark.long
def test_a_store_that_cannot_be_judged_leaves_the_others_their_verdicts(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = _two_stores(bootstrap_servers, tmp_path)
    _lose_the_manifest(application.live)

    report = _validated(application, tmp_path)

    assert [(store.store, store.verdict) for store in report.stores] == [(STORE, "error"), ("latest", "passed")]
    assert "MANIFEST-999999" in report.stores[0].detail


@pytest.mark.long
def test_a_run_in_which_every_store_may_be_judged_later_is_for_later(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = _two_stores(bootstrap_servers, tmp_path)
    specs = validate.store_partition_specs

    def impatient(*arguments: Any) -> list[StorePartitionSpec]:
        return [spec.model_copy(update={"lock_wait_s": 0.1}) for spec in specs(*arguments)]

    monkeypatch.setattr(validate, "store_partition_specs", impatient)
    with locked(application.store_spec().paths, 1), pytest.raises(LockedError, match="locked by another process"):
        _validated(application, tmp_path)
    assert {store.verdict for store in _validated(application, tmp_path).stores} == {"passed"}
