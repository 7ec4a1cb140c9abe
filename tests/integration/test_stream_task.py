"""A task on a real broker and a real store: exactly once, over clean runs, kills at named points, and zombies.

The oracle is in `support.Application.assert_oracle`: it recomputes from the input with a plain consumer.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.fields import Engine
from statestore.definitions.store import StoreDefinition
from statestore.errors import FencedError, StateStoreError
from statestore.formats import checkpoint_file
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.model import TopicPartition
from statestore.recovery import tail
from statestore.reports import Action, Status
from statestore.statedir.lock import locked
from statestore.statedir.record import StoreRecord, read_record
from statestore.stores.open import open_key_value_store
from statestore.tasks.stream_task import StreamTask, run_task
from tests.engines import transactional_alone
from tests.integration import broker, dying, support
from tests.integration.broker import T0, Row, consume, group_offset, transaction
from tests.integration.support import STORE, Application
from tests.oracle.rows import fold

EACH_ENGINE = True
INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None), (b"a", b"3"), (b"c", b"2")]
LATER: list[Row] = [(b"d", b"1"), (b"a", None), (b"c", b"3"), (b"a", b"4")]


# -- clean runs ---------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("F8")
def test_o1_o3_o4_counts_are_exact_over_several_runs(application: Application) -> None:
    first = application.process(INPUT)
    assert (first.records_in, first.records_out, first.changelog_records, first.commits) == (7, 7, 7, 1)
    application.assert_oracle()
    second = application.process(LATER, T0 + 100)
    assert (second.records_in, second.restored) == (4, 0)
    application.assert_oracle()


def test_o7_a_run_without_input_writes_nothing_but_where_it_will_begin(application: Application) -> None:
    for commits in (1, 0):
        row = application.process()
        assert (row.records_in, row.commits, row.restored, row.lag) == (0, commits, 0, 0)
    application.assert_oracle()


def test_r4_aborted_input_is_not_processed_and_its_markers_are_passed(application: Application) -> None:
    servers, topic = application.servers, application.input
    broker.transaction(servers, topic, INPUT[:3])
    broker.transaction(servers, topic, [(b"x", b"1")], end="abort")
    assert application.process().records_in == 3
    assert group_offset(servers, application.name, topic) == 6
    application.assert_oracle()
    broker.transaction(servers, topic, [(b"y", b"1")], end="abort")
    row = application.process()
    assert (row.records_in, row.commits) == (0, 1)  # the position moves past what is never delivered
    application.assert_oracle()


def test_r4_input_of_an_open_transaction_waits(application: Application) -> None:
    application.send(INPUT[:2])
    hung = broker.transaction(application.servers, application.input, INPUT[2:4], end="open")
    assert application.process().records_in == 2
    hung.commit_transaction(10)
    broker.settle(application.servers, application.input)
    assert application.process().records_in == 2
    application.assert_oracle()


@pytest.mark.long
def test_staged_bytes_above_the_bound_commit_early(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, uncommitted_max_bytes=1024)
    row = application.process([(b"key-%03d" % number, b"1") for number in range(60)])
    assert row.commits > 5
    application.assert_oracle()


@pytest.mark.long
def test_commit_interval_commits_on_the_way(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, commit_interval_ms=10)
    assert application.process([(b"%d" % (number % 7), b"1") for number in range(20_000)]).commits > 2
    application.assert_oracle()


@pytest.mark.long
def test_outputs_and_stores_of_other_tasks_are_left_alone(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    application.send([(b"a", b"1"), (b"c", b"1")], 0)
    application.send([(b"b", b"1")], 1)
    assert application.run(1).records_in == 1
    assert not application.store_spec(0).live.exists()
    assert application.run(0).records_in == 2
    application.assert_oracle(0)
    application.assert_oracle(1)


@pytest.mark.long
def test_odd_keys_are_kept_and_an_empty_value_is_not_a_delete(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(key, b"") for key in (b"", b"\0\0", b"\xff", b"k" * 100_000, "Ü/../x".encode())])
    assert len(application.contents()) == 5
    application.assert_oracle()
    shutil.rmtree(application.live)
    application.process([(b"", b"")])
    application.assert_oracle()


# -- kill -9 at named points --------------------------------------------------------------------------------------


def commit_to_disk() -> None:
    """In a child: have each commit of a store reach the disk before the next store commits."""
    recover = StreamTask.recover

    def recover_and_watch(task: StreamTask) -> None:
        recover(task)
        for store in task._stores.by_name.values():
            store.commit = partial(_commit_and_sync, store, store.commit)  # type: ignore[method-assign]

    StreamTask.recover = recover_and_watch  # type: ignore[method-assign]


def _commit_and_sync(store: Any, commit: Callable[..., None], *arguments: Any) -> None:
    commit(*arguments)
    store.sync()


@pytest.mark.short_for("False")
@pytest.mark.behaviour("K14")
@pytest.mark.parametrize("on_disk", [False, True])
def test_r12_k14_stores_that_were_left_at_different_offsets_catch_up_each(
    bootstrap_servers: str, tmp_path: Path, on_disk: bool
) -> None:
    stores = [StoreDefinition(name=STORE), support.plain_store("latest")]
    application = Application(bootstrap_servers, tmp_path, processor="count_in_two_stores", stores=stores)
    rows = [row for row in INPUT if row[1] is not None]
    application.process(rows[:3])
    application.send(rows[3:], timestamp=T0 + 100)
    dying.die_in(application.task_spec(), "store committed", *([commit_to_disk] if on_disk else []))
    if on_disk:
        assert application.committed() != application.committed(store="latest")
    assert application.process().restored > 0
    application.assert_oracle()
    latest = {record.key: record.value for record in consume(application.servers, application.input)[0]}
    assert application.contents(store="latest") == latest


@pytest.mark.long
def test_t8_recovering_twice_changes_nothing(application: Application) -> None:
    application.process(INPUT[:3])
    application.send(INPUT[3:])
    dying.die_in(application.task_spec(), "Kafka committed, stores not")
    spec = application.task_spec()
    for _ in range(2):
        with locked(spec.paths, 1), StreamTask(spec) as task:
            task.recover()
        assert application.contents() == application.recomputed()[0]
    application.assert_oracle()


# -- zombies ------------------------------------------------------------------------------------------------------


@transactional_alone
@pytest.mark.short_for("before it commits")
@pytest.mark.parametrize("moment", ["before it produces", "before it commits"])
def test_r14_a_zombie_on_another_host_is_fenced_and_changes_nothing(
    application: Application, tmp_path: Path, moment: str
) -> None:
    application.process(INPUT[:3])
    shutil.copytree(application.state_dir, tmp_path / "other")  # as on two hosts: no lock is shared
    application.send(INPUT[3:], timestamp=T0 + 100)
    spec = application.task_spec()
    before = application.contents(), application.committed()

    zombie = StreamTask(spec)
    zombie.recover()
    if moment == "before it commits":
        commit = zombie.commit
        zombie.commit = lambda: None  # type: ignore[method-assign]
        zombie.process()
        zombie.commit = commit  # type: ignore[method-assign]
    assert run_task(spec.model_copy(update={"state_dir": tmp_path / "other"})).records_in == 4

    def wake_up() -> None:
        with zombie:
            (zombie.process if moment == "before it produces" else zombie.commit)()

    with pytest.raises(FencedError):
        wake_up()
    assert (application.contents(), application.committed()) == before
    assert group_offset(application.servers, application.name, application.input) == 7
    application.process()  # its store catches up from the changelog
    application.assert_oracle()


@transactional_alone
@pytest.mark.long
def test_r14_a_zombie_reports_that_it_was_fenced(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.send(INPUT)
    spec = application.task_spec()
    recover = StreamTask.recover

    def overtaken(task: StreamTask) -> None:
        recover(task)
        monkeypatch.setattr(StreamTask, "recover", recover)
        assert run_task(spec.model_copy(update={"state_dir": tmp_path / "other"})).failure is None

    monkeypatch.setattr(StreamTask, "recover", overtaken)
    row = run_task(spec)
    assert (row.failure.kind, row.failure.retriable) == ("FencedError", False)
    assert (row.records_in, row.commits) == (0, 0)
    assert application.contents() == {}
    application.process()
    application.assert_oracle()


@pytest.mark.behaviour("R11")
def test_r11_a_task_that_runs_elsewhere_on_this_host_is_waited_for_and_reported(application: Application) -> None:
    spec = application.task_spec()
    with locked(spec.paths, 1):
        row = run_task(spec.model_copy(update={"lock_wait_s": 0.3}))
    assert (row.failure.kind, row.failure.retriable) == ("LockedError", True)


def test_a_store_is_not_known_whole_where_another_task_has_logged_since_the_last_commit(
    application: Application,
) -> None:
    application.send(INPUT)
    spec = application.task_spec()
    with locked(spec.paths, 1), StreamTask(spec) as task:
        task.recover()
        task.process()
        task.suspend()
        logged_ms = int(time.time() * 1000)
        time.sleep(0.01)  # so that any later time differs from this one
        broker.transaction(application.servers, application.changelog, [(b"x", b"1")])
    record = read_record(spec.paths, STORE)
    assert record is not None
    assert record.caught_up_ms <= logged_ms


# -- input offsets ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("R17")
def test_r17_group_offset_missing_with_state_stops_and_changes_nothing(application: Application) -> None:
    application.process(INPUT)
    contents, log = application.contents(), consume(application.servers, application.changelog)
    application.forget_offsets()
    application.send(LATER)
    assert f"{application.input}-0" in application.fails("InputOffsetError")
    assert (application.contents(), consume(application.servers, application.changelog)) == (contents, log)


def test_r17_group_offset_missing_with_the_state_lost_on_disk_stops_too(application: Application) -> None:
    application.process(INPUT)
    application.forget_offsets()
    shutil.rmtree(application.state_dir)
    application.send(LATER)
    application.fails("InputOffsetError")


@transactional_alone
@pytest.mark.long
@pytest.mark.behaviour("R17")
def test_r17_processing_goes_on_from_the_stores_position_when_told_to(application: Application) -> None:
    application.process(INPUT)
    application.forget_offsets()
    application.send(LATER)
    assert application.run().failure is not None
    row = application.run(resume_from_position=True)
    assert (row.failure, row.records_in) == (None, len(LATER))
    application.assert_oracle()


@pytest.mark.behaviour("R17")
def test_r17_a_store_that_has_all_of_the_input_needs_no_offset(application: Application) -> None:
    application.process(INPUT)
    application.forget_offsets()
    row = application.run()
    assert (row.failure, row.records_in) == (None, 0)
    application.process(LATER)
    application.assert_oracle()


@pytest.mark.behaviour("R17")
def test_r17_the_position_in_an_input_that_was_made_anew_is_of_other_records(application: Application) -> None:
    def input_id() -> str:
        return Cluster(application.servers, 60).topics.require(application.input).topic_id

    application.send(INPUT)
    before = input_id()
    assert application.run(input_id=before).failure is None
    broker.delete_topic(application.servers, application.input)  # and Kafka deletes the group's offsets of it
    broker.create_topic(application.servers, application.input)
    application.send([*INPUT, *LATER])
    after = input_id()
    application.fails("InputOffsetError", input_id=after)
    for _ in range(2):
        failure = application.failure("InputOffsetError", input_id=after, resume_from_position=True)
        assert f"expected the topic id {before}, found {after}" in failure.evidence
        shutil.rmtree(application.state_dir)  # the changelog has the position, too
    commit_offsets(
        Cluster(application.servers), application.name, {TopicPartition(application.input, 0): GroupOffset(0)}
    )
    assert application.run(input_id=after).records_in == len(INPUT) + len(LATER)


@pytest.mark.behaviour("R17", "K20", "M4")
@pytest.mark.short_for("txn_rocksDB-crash replay")
@pytest.mark.parametrize(
    ("engine", "way"),
    [
        *(("txn_rocksDB", way) for way in ("crash replay", "store lost", "tail restore", "sorted tail")),
        *((engine, "full restore") for engine in ("txn_rocksDB", "rocksDB")),
        ("rocksDB", "crash replay"),
    ],
)
def test_r17_rows_that_were_replayed_have_the_position_of_their_log(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, engine: Engine
) -> None:
    application = Application(bootstrap_servers, tmp_path, stores=[StoreDefinition(name=STORE, engine=engine)])
    if way == "sorted tail":
        monkeypatch.setattr(tail, "LEAST_SORTED", 1)
    application.process(INPUT[:3])
    application.send(INPUT[3:])
    dying.die_in(application.task_spec(), "Kafka committed, stores not")
    if way == "store lost":
        shutil.rmtree(application.live)
    if way == "full restore":
        application.restore("full", force=True)
    elif way.endswith("tail"):
        assert application.restore().mode == "tail"
    else:
        row = application.run()
        assert (row.failure, row.stores[0].commits) == (None, 0), "a replay's commits are none of the task's"
        assert row.restored >= 4
    assert application.position() == {TopicPartition(application.input, 0): len(INPUT) - 1}
    application.forget_offsets()
    application.send(LATER)
    row = application.run(resume_from_position=True)
    assert (row.failure, row.records_in) == (None, len(LATER))
    application.assert_oracle()


@pytest.mark.long
@pytest.mark.behaviour("R17", "K20")
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_r17_a_log_that_ends_without_a_position_cannot_be_gone_on_from(
    bootstrap_servers: str, tmp_path: Path, guarantee: str
) -> None:
    application = Application(bootstrap_servers, tmp_path, processing_guarantee=guarantee)
    application.process(INPUT)
    if guarantee == "exactly_once_v2":  # at least once, tasks log no positions
        transaction(application.servers, application.changelog, [(b"z", b"1")])  # nor does another program
        broker.settle(application.servers, application.changelog)
    application.forget_offsets()
    application.send(LATER)
    shutil.rmtree(application.state_dir)
    log = consume(application.servers, application.changelog)
    failure = application.failure("InputOffsetError", resume_from_position=True)
    assert f"without positions were replayed into {STORE}" in failure.evidence
    assert consume(application.servers, application.changelog) == log


@pytest.mark.long
def test_r17_a_store_that_the_last_commits_did_not_change_holds_no_input_back(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    """Every store is at the end of its changelog, so the largest position is how far the task is."""
    stores = (StoreDefinition(name=STORE), StoreDefinition(name="first"))
    application = Application(bootstrap_servers, tmp_path, processor="count_and_keep_first", stores=stores)
    application.process([(b"a", b"1")])
    application.process([(b"a", b"2"), (b"a", b"3")], T0 + 100)
    application.forget_offsets()
    row = application.run(resume_from_position=True)
    assert (row.failure, row.records_in) == (None, 0)
    assert application.contents()[b"a"].value == b"3"


def test_r17_input_that_no_longer_has_the_group_offset_stops(application: Application) -> None:
    application.process(INPUT)
    application.send(LATER)
    broker.delete_records(application.servers, application.input, 9)
    assert "from offset 7" in application.failure("InputOffsetError").evidence


# -- stores that cannot catch up, and those that can --------------------------------------------------------------


def _forget_when_it_was_whole(application: Application) -> None:
    paths, store = application.store_spec().paths, STORE
    record = read_record(paths, store)
    paths.record(store).write_text(StoreRecord(topic_id=record.topic_id, caught_up_ms=1).model_dump_json())


@pytest.mark.long
def test_r6_a_whole_store_goes_on_after_a_pause_longer_than_tombstones_are_kept(application: Application) -> None:
    # Only the last transaction's marker lies beyond the committed offset: nothing can have been missed.
    application.process(INPUT)
    _forget_when_it_was_whole(application)
    assert application.verify().status is Status.OK
    application.process(LATER)
    application.assert_oracle()


@pytest.mark.long
def test_r6_a_whole_store_without_our_record_goes_on(application: Application) -> None:
    # As brought by Kafka Streams, or with our own directory lost.
    application.process(INPUT)
    shutil.rmtree(application.state_dir / ".statestore")
    assert application.verify().status is Status.OK
    application.process(LATER)
    application.assert_oracle()


@transactional_alone
def test_r6_a_stale_store_is_rebuilt_and_not_replayed_over(application: Application) -> None:
    application.process(INPUT[:3])
    application.send(INPUT[3:])
    dying.die_in(application.task_spec(), "Kafka committed, stores not")
    _forget_when_it_was_whole(application)
    row = application.process(LATER)
    assert "tombstones" in (row.stores[0].rebuilt or "")
    assert row.restored == 7
    application.assert_oracle()


@pytest.mark.short_for("True")
@pytest.mark.parametrize("unsealed", [False, True])
def test_r6_an_older_copy_of_the_store_is_not_taken_for_whole(
    application: Application, tmp_path: Path, unsealed: bool
) -> None:
    # Our record says that the store was whole a moment ago; the copy was not, and its deletes may be gone by now.
    application.process(INPUT[:3])
    shutil.copytree(application.live, tmp_path / "copy")
    application.process(INPUT[3:])
    if unsealed:  # a killed run leaves no seal by which the copy would be found out
        application.send(LATER)
        dying.die_in(application.task_spec(), "before produce")
    shutil.rmtree(application.live)
    shutil.copytree(tmp_path / "copy", application.live)
    found = application.verify()
    assert found.action is Action.FULL
    assert found.status in (Status.LAGGING, Status.CORRUPT)  # by its age, or by its seal
    assert application.process().stores[0].rebuilt
    application.assert_oracle()


@pytest.mark.behaviour("R7")
def test_r7_a_store_ahead_of_its_changelog_is_refused_untouched(application: Application) -> None:
    application.process(INPUT)
    spec = application.store_spec()
    store = open_key_value_store(spec.store, spec.live)
    store.commit({spec.partition: 1_000})
    store.close()
    application.fails("StoreAheadError")
    assert application.committed() == 1_000


@pytest.mark.long
@pytest.mark.behaviour("R7")
@pytest.mark.parametrize("lost", ["start", "end"])
def test_r7_a_damaged_store_is_not_rebuilt_from_a_changelog_that_lost_what_it_had(
    application: Application, lost: str
) -> None:
    application.process(INPUT)
    paths = application.store_spec().paths
    record = read_record(paths, STORE)
    assert record.committed is not None
    if lost == "start":
        broker.produce(application.servers, application.changelog, [(b"later", b"1")])
        broker.set_topic_config(application.servers, application.changelog, cleanup_policy="compact,delete")
        broker.delete_records(application.servers, application.changelog, record.committed + 3)
    else:
        paths.record(STORE).write_text(record.model_copy(update={"committed": 1_000}).model_dump_json())
    (application.live / "CURRENT").unlink()
    before = {path: path.read_bytes() for path in application.live.iterdir()}
    row = application.run()
    assert row.failure.kind == {"start": "StoreBehindLogStartError", "end": "StoreAheadError"}[lost]
    assert f"Next: statestore restore {application.name}/{STORE}/0_0 --accept-loss" in row.failure.message
    assert {path: path.read_bytes() for path in application.live.iterdir()} == before
    assert application.restore(accept_loss=True).outcome == "restored"
    assert application.run().failure is None


def test_a_damaged_store_is_not_rebuilt_from_a_log_whose_start_it_had_passed(application: Application) -> None:
    application.process(INPUT)
    broker.set_topic_config(application.servers, application.changelog, cleanup_policy="compact,delete")
    broker.delete_records(application.servers, application.changelog, 3)
    (application.live / "CURRENT").unlink()
    application.fails("StoreBehindLogStartError")


def test_a_lost_store_is_replayed_before_new_input(application: Application) -> None:
    application.process(INPUT)
    shutil.rmtree(application.live)
    row = application.process(LATER)
    assert row.restored == 7
    assert row.remarks.endswith(": 7 changes restored (it did not exist)")
    assert application.process(LATER).remarks == ""
    application.assert_oracle()


@pytest.mark.long
def test_r7_a_lost_store_is_not_used_while_a_hung_transaction_hides_a_part_of_its_changelog(
    application: Application,
) -> None:
    # Under read_committed the replay ends before the hung transaction, so the counts beyond it would be missing.
    application.process(INPUT[:3])
    application.send(INPUT[3:])
    spec = application.task_spec()
    with locked(spec.paths, 1), StreamTask(spec) as task:
        task.recover()
        hung = broker.transaction(
            application.servers, application.changelog, [(b"foreign", b"1")], end="open", timeout_ms=900_000
        )
        task.process()
    try:
        shutil.rmtree(application.live)
        application.send(LATER)
        row = application.run(cluster=Cluster(application.servers, 10))  # for which it waits in vain
        assert row.failure is not None, "processed with only a part of the state"
        assert row.failure.retriable
        assert f"{application.changelog}-0" in row.failure.message
    finally:
        hung.abort_transaction(broker.WAIT_S)
    application.process()
    application.assert_oracle()


# -- legacy checkpoint file ---------------------------------------------------------------------------------------


def _to_legacy(application: Application) -> Path:
    """Turn the store into one from before KIP-1035: its offset in `.checkpoint` only."""
    committed = application.committed()
    spec = application.write_anew(application.contents())
    spec.paths.checkpoint.write_text(f"0\n2\n{spec.partition.topic} 0 {committed}\nother-changelog 0 -4\n")
    return spec.paths.checkpoint


@pytest.mark.behaviour("L1")
def test_l1_offsets_of_a_checkpoint_file_are_taken_over_and_the_file_goes(application: Application) -> None:
    application.process(INPUT)
    checkpoint = _to_legacy(application)
    assert application.committed() is None
    row = application.process(LATER)
    assert row.restored == 0
    assert not checkpoint.exists()
    application.assert_oracle()


@pytest.mark.behaviour("L1")
def test_l1_a_checkpoint_file_without_its_store_does_not_make_an_empty_store_whole(application: Application) -> None:
    application.process(INPUT)
    checkpoint = _to_legacy(application)
    shutil.rmtree(application.live)
    row = application.process(LATER)
    assert row.restored == 7
    assert not checkpoint.exists()
    application.assert_oracle()


@pytest.mark.behaviour("L1")
def test_l1_a_migration_that_fails_keeps_the_file(application: Application) -> None:
    application.process(INPUT)
    checkpoint = _to_legacy(application)
    text = checkpoint.read_text()
    row = application.defined(stores=(support.plain_store(),)).run()
    assert row.failure.kind == "UnknownFormatError"
    assert checkpoint.read_text() == text


TAKEN_OVER = "legacy offsets taken over, the file still there"


@pytest.mark.short_for("stores committed")
@pytest.mark.behaviour("L6")
@pytest.mark.parametrize(
    "point", ["legacy offsets taken over, the file still there", "before produce", "stores committed"]
)
def test_l6_a_checkpoint_file_never_outlives_a_change_of_its_store(application: Application, point: str) -> None:
    application.process(INPUT)
    checkpoint = _to_legacy(application)
    offset = checkpoint_file.read(checkpoint)[TopicPartition(application.changelog, 0)]
    application.send([(b"a", b"1"), (b"b", None)], timestamp=T0 + 500)
    dying.die_in(application.task_spec(), point)
    if checkpoint.exists():  # then nothing of the store has changed since it was written
        assert point == TAKEN_OVER
        assert application.committed() in (None, offset)
    assert application.run().failure is None
    # If the store was rebuilt, entries of other stores stay until the next run.
    left = checkpoint_file.read(checkpoint) if checkpoint.exists() else {}
    assert TopicPartition(application.changelog, 0) not in left
    application.assert_oracle()
    assert not checkpoint.exists()


@pytest.mark.behaviour("L5")
def test_l5_a_torn_checkpoint_file_is_an_error_and_is_kept(application: Application) -> None:
    application.process(INPUT)
    checkpoint = _to_legacy(application)
    checkpoint.write_text(f"0\n2\n{application.changelog} 0 1")
    row = application.run()
    assert row.failure.kind == "StoreCorruptedError"
    assert checkpoint.exists()
    assert checkpoint_file.FILE_NAME in row.failure.message


@transactional_alone
# -- errors -------------------------------------------------------------------------------------------------------


def test_a_poison_record_is_named_and_nothing_of_its_transaction_is_visible(application: Application) -> None:
    application.process(INPUT)
    before = consume(application.servers, application.output)[0], application.contents()
    application.send([(b"a", b"1"), (b"b", b"poison"), (b"c", b"1")])
    row = application.defined(processor="tests.integration.support:count_or_fail").run()
    assert row.failure.kind == "ProcessingError"
    assert f"{application.input}-0@8" in row.failure.message
    assert "cannot be counted" in row.failure.message
    assert row.lag == 3
    assert (consume(application.servers, application.output)[0], application.contents()) == before
    assert application.defined(processor="tests.integration.support:count").process().records_in == 3
    application.assert_oracle()


@pytest.mark.long
def test_no_broker_is_a_failure_that_may_be_retried(application: Application) -> None:
    application.process(INPUT)
    row = application.run(cluster=Cluster(broker.NO_BROKER, 1))
    assert (row.failure.kind, row.failure.retriable) == ("KafkaUnavailableError", True)
    assert (row.lag, row.records_in) == (None, 0)
    application.assert_oracle()


@pytest.mark.behaviour("F8")
def test_f8_a_value_with_an_unknown_timestamp_is_logged_with_the_time_of_its_record(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    # As in Kafka Streams: the store keeps -1, the changelog never has it.
    application = Application(bootstrap_servers, tmp_path, processor="keep_timestamp_unknown")
    application.process([(b"a", b"1")])
    ((key, logged),) = fold(consume(application.servers, application.changelog)[0]).items()
    assert application.contents() == {key: ValueAndTimestamp(logged.value, -1)}
    assert logged.timestamp > 0


@pytest.mark.long
def test_r12_one_store_that_fails_to_commit_does_not_keep_the_others_from_it(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [StoreDefinition(name=STORE), support.plain_store("latest")]
    application = Application(bootstrap_servers, tmp_path, processor="count_in_two_stores", stores=stores)
    application.send(INPUT[:3])
    spec = application.task_spec()

    def run_with_a_broken_store() -> None:
        with StreamTask(spec) as task:
            task.recover()
            monkeypatch.setattr(task._stores.by_name[STORE], "commit", _fail)
            task.process()

    with pytest.raises(StateStoreError, match="no room"):
        run_with_a_broken_store()
    assert application.committed(store=STORE) is None
    assert application.committed(store="latest") == 2
    assert application.process().restored == 3
    application.assert_oracle()


def _fail(offsets: dict[TopicPartition, int], position: dict[TopicPartition, int]) -> None:
    raise StateStoreError("no room")
