"""Verification against a real log and real damage: each status for its cause, and none when Kafka is away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from demo.damage import flip_bit, move_beyond
from statestore.errors import KafkaUnavailableError
from statestore.formats.offsets import STATUS_OPEN
from statestore.formats.value_format import value_format
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat, TopicPartition
from statestore.recovery.restore import restore
from statestore.reports import Action, Status
from statestore.statedir.lock import locked
from statestore.statedir.record import StoreRecord, read_record
from statestore.statedir.seal import break_seal
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB
from statestore.verification.check import verify
from statestore.verification.options import Depth, VerifyOptions
from tests.integration import broker, dying
from tests.integration.broker import NO_BROKER, Row, transaction
from tests.integration.support import STORE, Application
from tests.lost_current import begin_anew


def _snapshot(directory: Path) -> dict[str, bytes]:
    """Files of a store; RocksDB's own log, which every opening writes, is no part of it."""
    return {file.name: file.read_bytes() for file in directory.iterdir() if not file.name.startswith("LOG")}


def _set_caught_up(application: Application, caught_up_ms: int) -> None:
    paths = application.store_spec().paths
    record = read_record(paths, STORE)
    changed = record.model_copy(update={"caught_up_ms": caught_up_ms})
    paths.record(STORE).write_text(changed.model_dump_json())


def test_ok_with_the_evidence_and_nothing_changed(whole: Application) -> None:
    before = _snapshot(whole.live)
    row = whole.verify()
    # Five records and the transaction's marker: a committed offset of 4 below an end of 6 is all of it (R2).
    assert (row.status, row.action, row.committed, row.start, row.end, row.keys) == (
        Status.OK, Action.NONE, 4, 0, 6, 2,
    )  # fmt: skip
    spec = whole.changelog_spec()
    assert row.topic_id == spec.topic_id
    assert _snapshot(whole.live) == before


def test_empty_before_anything_was_logged_with_and_without_a_directory(application: Application) -> None:
    assert application.verify().status is Status.EMPTY
    application.process()
    assert application.live.exists()
    assert application.verify().status is Status.EMPTY


def test_empty_where_neither_store_nor_changelog_exists(application: Application) -> None:
    broker.delete_topic(application.servers, application.changelog)
    row = application.verify()
    assert (row.status, row.action) == (Status.EMPTY, Action.NONE)


@pytest.mark.long
def test_r4_empty_where_the_changelog_has_only_aborted_records(application: Application) -> None:
    transaction(application.servers, application.changelog, [(b"a", b"1")], end="abort")
    assert application.verify().status is Status.EMPTY
    application.process()
    assert application.verify().status is Status.EMPTY


@pytest.mark.short_for("abort")
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_r2_marker_or_aborted_transaction_at_the_end_is_no_lag(whole: Application, end: str) -> None:
    rows: list[Row] = [] if end == "commit" else [(b"a", b"9"), (b"x", b"9")]
    transaction(whole.servers, whole.changelog, rows, end=end)
    row = whole.verify()
    assert (row.status, row.action) == (Status.OK, Action.NONE)


def test_lagging_with_the_first_record_that_is_missing(whole: Application) -> None:
    whole.send([(b"a", b"3")])
    dying.die_in(whole.task_spec(), "Kafka committed, stores not")
    row = whole.verify()
    assert (row.status, row.action, row.committed) == (Status.LAGGING, Action.TAIL, 4)
    assert "first record at 6" in row.detail


@pytest.mark.short_for("old")
@pytest.mark.parametrize("staleness", ["old", "unknown", "tombstones are kept no time"])
def test_r6_lagging_longer_than_tombstones_are_kept_is_a_full_rebuild(whole: Application, staleness: str) -> None:
    whole.send([(b"a", b"3")])
    dying.die_in(whole.task_spec(), "Kafka committed, stores not")
    if staleness == "old":
        _set_caught_up(whole, 1)
    elif staleness == "unknown":
        whole.store_spec().paths.record(STORE).unlink()
    else:
        whole.delete_retention_ms = 0
    row = whole.verify()
    assert (row.status, row.action) == (Status.LAGGING, Action.FULL)


def test_r6_age_alone_is_no_lag(whole: Application) -> None:
    _set_caught_up(whole, 1)
    assert whole.verify().status is Status.OK


def test_lagging_with_rows_but_no_offset_is_a_full_rebuild(whole: Application) -> None:
    whole.write_anew(whole.contents())
    row = whole.verify()
    assert (row.status, row.action) == (Status.LAGGING, Action.FULL)


def test_rows_without_an_offset_are_not_ok_because_the_log_is_empty(
    application: Application, bootstrap_servers: str
) -> None:
    spec = application.store_spec()
    store = open_key_value_store(spec.store, spec.live)
    store.apply_changelog([b"a"], [b"1"], [5])
    store.commit({})
    store.close()
    assert not application.verify().healthy


@pytest.mark.long
@pytest.mark.behaviour("L2")
def test_l1_offset_that_is_still_in_a_checkpoint_file_counts(whole: Application) -> None:
    committed = whole.committed()
    whole.write_anew(whole.contents())
    whole.store_spec().paths.checkpoint.write_text(f"0\n1\n{whole.changelog} 0 {committed}\n")
    row = whole.verify()
    assert (row.status, row.committed) == (Status.OK, committed)


def test_missing(whole: Application) -> None:
    shutil.rmtree(whole.live)
    row = whole.verify()
    assert (row.status, row.action, row.start, row.end) == (Status.MISSING, Action.FULL, 0, 6)
    assert not whole.live.exists()


def test_an_empty_directory_is_not_a_store(whole: Application) -> None:
    shutil.rmtree(whole.live)
    whole.live.mkdir()
    row = whole.verify()
    assert row.action is Action.FULL
    assert row.status in (Status.MISSING, Status.CORRUPT)


@pytest.mark.behaviour("R7")
@pytest.mark.parametrize("beyond", [6, 1_000])
def test_r7_ahead_at_or_beyond_the_high_watermark(whole: Application, beyond: int) -> None:
    move_beyond(whole.live, whole.store_spec().partition, beyond)
    row = whole.verify()
    assert (row.status, row.action, row.committed) == (Status.AHEAD, Action.BY_HAND, beyond)


@pytest.mark.long
@pytest.mark.behaviour("R7")
def test_r7_last_offset_of_the_log_is_not_ahead(whole: Application) -> None:
    move_beyond(whole.live, whole.store_spec().partition, 5)
    assert whole.verify().status is Status.OK


@pytest.mark.long
@pytest.mark.behaviour("R7")
def test_r7_hung_transaction_does_not_make_a_store_ahead(whole: Application) -> None:
    hung = transaction(whole.servers, whole.changelog, [(b"hung", b"1")], end="open")
    try:
        assert whole.verify().status is Status.OK
        move_beyond(whole.live, whole.store_spec().partition, 6)  # an at-least-once store may have what is behind it
        row = whole.verify()
        assert (row.status, row.end) == (Status.OK, 6)
    finally:
        hung.abort_transaction(10)


def test_truncated(whole: Application) -> None:
    whole.send([(b"a", b"3"), (b"a", b"4")])
    dying.die_in(whole.task_spec(), "Kafka committed, stores not")
    broker.set_topic_config(whole.servers, whole.changelog, cleanup_policy="compact,delete")
    broker.delete_records(whole.servers, whole.changelog, 7)
    row = whole.verify()
    assert (row.status, row.action, row.start) == (Status.TRUNCATED, Action.BY_HAND, 7)


@pytest.mark.long
def test_log_that_starts_right_behind_the_store_is_not_truncated(whole: Application) -> None:
    whole.send([(b"a", b"3")])
    dying.die_in(whole.task_spec(), "Kafka committed, stores not")
    broker.set_topic_config(whole.servers, whole.changelog, cleanup_policy="compact,delete")
    broker.delete_records(whole.servers, whole.changelog, 5)
    assert whole.verify().status is Status.LAGGING


def _recreate(application: Application) -> None:
    broker.delete_topic(application.servers, application.changelog)
    broker.create_topic(application.servers, application.changelog, 1, {"cleanup.policy": "compact"})


@pytest.mark.short_for("False")
@pytest.mark.behaviour("R7")
@pytest.mark.parametrize("longer", [False, True])
def test_r7_replaced_where_the_topic_was_recreated(whole: Application, longer: bool) -> None:
    _recreate(whole)
    if longer:  # offsets alone would look right
        broker.produce(whole.servers, whole.changelog, [(b"z", b"1")] * 20)
    row = whole.verify()
    assert (row.status, row.action) == (Status.REPLACED, Action.BY_HAND)


@pytest.mark.behaviour("R7")
def test_r7_replaced_and_by_hand_only_where_the_topic_is_gone(whole: Application) -> None:
    broker.delete_topic(whole.servers, whole.changelog)
    row = whole.verify()
    assert (row.status, row.action) == (Status.REPLACED, Action.BY_HAND)


def _cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _sst(store: Path) -> Path:
    return max(store.glob("*.sst"), key=lambda file: file.stat().st_size)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "bit flipped": flip_bit,
    "SST cut": lambda store: _cut_in_half(_sst(store)),
    "SST gone": lambda store: _sst(store).unlink(),
    "CURRENT gone": lambda store: (store / "CURRENT").unlink(),
    "CURRENT empty": lambda store: (store / "CURRENT").write_bytes(b""),
    "MANIFEST gone": lambda store: next(store.glob("MANIFEST*")).unlink(),
    "CURRENT gone, begun anew": begin_anew,
}


@pytest.mark.short_for("bit flipped", "MANIFEST gone")
@pytest.mark.parametrize("damage", DAMAGES)
def test_corrupt(whole: Application, damage: str) -> None:
    DAMAGES[damage](whole.live)
    row = whole.verify()
    assert (row.status, row.action) == (Status.CORRUPT, Action.FULL)
    assert str(whole.live) in row.detail


@pytest.mark.long
@pytest.mark.parametrize("depth", ["offsets", "deep"])
@pytest.mark.parametrize("sealed", [True, False])
def test_rows_beside_an_empty_database_are_corrupt_and_left_alone(
    whole: Application, depth: Depth, sealed: bool
) -> None:
    if not sealed:
        break_seal(whole.store_spec().paths, STORE)
    begin_anew(whole.live)
    before = _snapshot(whole.live)
    row = whole.verify(depth)
    assert (row.status, row.action) == (Status.CORRUPT, Action.FULL)
    assert row.file in map(str, whole.live.glob("*.sst"))
    assert restore(whole.restore_spec("tail")).outcome == "failed"
    assert _snapshot(whole.live) == before
    assert whole.restore().mode == "full"
    assert whole.verify().status is Status.OK


@pytest.mark.long
def test_m2_newer_format_is_downgraded_and_left_alone(whole: Application) -> None:
    _add_column_family(whole.live)
    before = _snapshot(whole.live)
    row = whole.verify()
    assert (row.status, row.action) == (Status.DOWNGRADED, Action.FULL)
    assert "keyValueWithHeaders" in row.detail
    assert _snapshot(whole.live) == before


def _add_column_family(live: Path) -> None:
    names = Rdict.list_cf(str(live))
    database = Rdict(str(live), Options(raw_mode=True), {name: Options(raw_mode=True) for name in names})
    database.create_column_family("keyValueWithHeaders", Options(raw_mode=True)).close()
    database.close()


def test_t13_store_left_open_without_transactions_is_unclean(whole: Application) -> None:
    paths = whole.store_spec().paths
    break_seal(paths, STORE)
    database = RocksDB(whole.live, value_format(StoreFormat.TIMESTAMPED).column_families)
    database.write({}, status=STATUS_OPEN)
    database.sync()
    database.close()
    before = _snapshot(whole.live)
    row = whole.verify()
    assert (row.status, row.action) == (Status.UNCLEAN, Action.FULL)
    assert _snapshot(whole.live) == before
    assert restore(whole.restore_spec()).outcome == "restored"
    assert whole.run().failure is None


def test_another_partitions_directory_is_corrupt_and_left_alone(whole: Application) -> None:
    paths = whole.store_spec().paths
    break_seal(paths, STORE)
    database = RocksDB(whole.live, value_format(StoreFormat.TIMESTAMPED).column_families)
    database.write({}, {TopicPartition(whole.changelog, 7): 5})
    database.close()
    before = _snapshot(whole.live)
    row = whole.verify()
    assert (row.status, row.action) == (Status.CORRUPT, Action.FULL)
    assert f"{whole.changelog}-7" in row.detail
    assert _snapshot(whole.live) == before


@pytest.mark.short_for("scan")
@pytest.mark.parametrize("depth", ["offsets", "scan"])
def test_a_journal_of_a_swap_that_is_damaged_is_a_finding_of_that_store_alone(whole: Application, depth: Depth) -> None:
    journal = whole.store_spec().paths.journal(STORE)
    journal.write_text("{")
    row = whole.verify(depth)
    assert (row.status, row.action, row.depth) == (Status.CORRUPT, Action.BY_HAND, depth)
    assert str(journal) in row.detail
    journal.unlink()
    assert whole.verify().status is Status.OK


@pytest.mark.behaviour("R11", "L2")
def test_r11_locked_while_another_process_has_the_task(whole: Application) -> None:
    held, let_go = dying.new_event(), dying.new_event()
    process = dying.start_process(dying.hold_lock, whole.task_spec(), held, let_go)
    try:
        assert held.wait(broker.WAIT_S)
        row = whole.verify()
        assert (row.status, row.action) == (Status.LOCKED, Action.LATER)
    finally:
        let_go.set()
        process.join(broker.WAIT_S)
    assert whole.verify().status is Status.OK


def test_r11_tasks_of_one_application_do_not_lock_each_other_out(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    with locked(application.task_spec(1).paths, 0.2):
        assert application.verify().status is Status.EMPTY


@pytest.mark.short_for("False-offsets")
@pytest.mark.parametrize(("lost", "depth"), [(False, "offsets"), (False, "deep"), (True, "scan")])
def test_unreachable_broker_is_an_error_and_never_a_status(whole: Application, lost: bool, depth: Depth) -> None:
    if lost:
        shutil.rmtree(whole.live)
    spec = whole.store_spec()
    with pytest.raises(KafkaUnavailableError):
        verify(spec.model_copy(update={"cluster": Cluster(NO_BROKER, 1)}), VerifyOptions(depth=depth))


@pytest.mark.behaviour("R8")
def test_r8_a_swap_that_was_interrupted_is_finished_before_verification(whole: Application) -> None:
    flip_bit(whole.live)
    dying.die_in(whole.restore_spec(), "swap, old store in quarantine")
    assert not whole.live.exists()
    assert whole.verify().status is Status.OK
    whole.assert_oracle()


@pytest.mark.long
def test_record_that_cannot_be_read_is_no_record(whole: Application) -> None:
    whole.store_spec().paths.record(STORE).write_text("{")
    assert read_record(whole.store_spec().paths, STORE) is None
    assert whole.verify().status is Status.OK
    paths = whole.store_spec().paths
    paths.record(STORE).write_text(StoreRecord(topic_id="another", caught_up_ms=1).model_dump_json())
    assert whole.verify().status is Status.REPLACED
