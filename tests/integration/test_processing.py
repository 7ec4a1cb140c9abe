"""What a definition asks for beyond counting with a processor, on a real broker: guarantees, windows, dead letters."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from statestore_jobs.planning import prepare, task_specs
from statestore_jobs.process import _forget_processed

from demo.damage import flip_bit
from statestore.changelog.topic_settings import OFFSETS_CONFIG
from statestore.config import Settings
from statestore.definitions.aggregation import AggregationDefinition, Sessions, TimeWindows
from statestore.definitions.store import StoreDefinition
from statestore.errors import CommitOutcomeUnknownError, InputError, TopicMismatchError
from statestore.formats import commit_metadata
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets, committed_offsets
from statestore.kafka.writer import TransactionalWriter
from statestore.metastore.metastore import Metastore
from statestore.model import StoreFormat, TopicPartition
from statestore.reports import ProcessRow, Status
from statestore.statedir.context import store_context
from statestore.stores.open import build_store
from statestore.tasks.stream_task import run_task
from tests.engines import each_engine
from tests.integration import broker
from tests.integration.broker import T0, WAIT_S, Row, consume, group_offset, settle, unique, wait_for
from tests.integration.catalogued import CatalogueCommand
from tests.integration.support import STORE, Application, put, register
from tests.oracle.rows import fold

INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None), (b"a", b"3"), (b"c", b"2")]
MINUTE = 60_000
START = T0 - T0 % (60 * MINUTE)


def contents(application: Application, store: str) -> list[tuple[Any, Any]]:
    """Rows of a store of any kind of task 0_0."""
    spec = application.task_spec()
    opened = build_store(application.definition.store(store))
    opened.init(store_context(spec.paths, read_only=True, exactly_once=spec.exactly_once))
    try:
        return list(opened.all())
    finally:
        opened.close(clean=False)


# -- guarantees and engines ---------------------------------------------------------------------------------------


@pytest.mark.short_for("rocksDB-timestamped")
@pytest.mark.parametrize("store_format", [StoreFormat.PLAIN, StoreFormat.TIMESTAMPED])
@pytest.mark.parametrize("engine", ["txn_rocksDB", "rocksDB"])
def test_at_least_once_commits_offsets_without_transactions(
    bootstrap_servers: str, tmp_path: Path, engine: Any, store_format: StoreFormat
) -> None:
    processor = "count" if store_format is StoreFormat.TIMESTAMPED else "count_plain"
    application = Application(
        bootstrap_servers,
        tmp_path,
        processor=processor,
        stores=(StoreDefinition(name=STORE, engine=engine, format=store_format),),
        processing_guarantee="at_least_once",
    )
    for rows in (INPUT, [(b"d", b"1"), (b"a", b"9")]):
        assert application.process(rows).records_in == len(rows)
        assert application.verify().status is Status.OK
    assert group_offset(bootstrap_servers, application.name, application.input) == 9
    log, end = consume(bootstrap_servers, application.changelog)
    assert (len(log), end) == (9, 9), "no transaction leaves a marker"
    totals = {key: getattr(value, "value", value) for key, value in application.contents().items()}
    assert totals == {b"a": b"4", b"c": b"2", b"d": b"1"}
    assert application.committed() == 8


def test_at_least_once_applies_nothing_that_was_aborted_when_it_was_exactly_once(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process(INPUT)
    broker.transaction(bootstrap_servers, application.changelog, [(b"a", b"1000"), (b"z", b"7")], end="abort")
    rows = application.contents()
    shutil.rmtree(application.live)
    application.defined(processing_guarantee="at_least_once")
    assert application.run().failure is None
    assert application.contents() == rows


@pytest.mark.long
def test_at_least_once_reads_what_a_hung_transaction_hides(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    application.process(INPUT)
    hung = broker.transaction(bootstrap_servers, application.changelog, [(b"z", b"7")], end="open")
    assert application.run().failure is None
    assert application.verify().status is Status.OK
    hung.abort_transaction(10)


@pytest.mark.short_for("exactly_once_v2")
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_f9_a_store_in_memory_is_replayed_by_every_run(bootstrap_servers: str, tmp_path: Path, guarantee: Any) -> None:
    application = Application(
        bootstrap_servers,
        tmp_path,
        stores=(StoreDefinition(name=STORE, engine="in_memory"),),
        processing_guarantee=guarantee,
    )
    assert application.process(INPUT).restored == 0
    row = application.process([(b"a", b"4")])
    assert (row.restored, row.records_out) == (7, 1)
    assert [record.value for record in consume(bootstrap_servers, application.output)[0]][-1] == b"4"


# -- windows, sessions, stream time -------------------------------------------------------------------------------

#: Minutes of records of one key, out of order; some are late however the input is cut.
_MINUTES = [0, 1, 7, 3, 12, 2, 30, 25, 11, 31, 90, 31, 80, 95, 94, 0]


def _windowed(servers: str, directory: Path, engine: Any) -> Application:
    return Application(servers, directory, default_dsl_store=engine).extend(
        processor=None,
        stores=(),
        aggregations=(
            AggregationDefinition(store="tumbling", windows=TimeWindows(size_ms=10 * MINUTE, grace_ms=5 * MINUTE)),
            AggregationDefinition(
                store="hopping", windows=TimeWindows(size_ms=10 * MINUTE, advance_ms=5 * MINUTE, grace_ms=0)
            ),
            AggregationDefinition(
                store="sessions",
                aggregate="tests.integration.support:number_of",
                sessions=Sessions(gap_ms=5 * MINUTE, grace_ms=5 * MINUTE),
            ),
        ),
    )


def _send_minutes(application: Application, minutes: list[int]) -> None:
    for minute in minutes:
        application.send([(b"k", b"1")], timestamp=START + minute * MINUTE)


def _without_timing(row: ProcessRow) -> tuple[int, int]:
    return row.records_in, row.late_records


@pytest.mark.behaviour("R18")
@each_engine
def test_r18_windows_do_not_depend_on_where_a_batch_ended(bootstrap_servers: str, tmp_path: Path, engine: Any) -> None:
    whole = _windowed(bootstrap_servers, tmp_path / "whole", engine)
    _send_minutes(whole, _MINUTES)
    at_once = whole.run()
    assert at_once.failure is None, at_once.failure
    assert at_once.late_records > 0

    cut = _windowed(bootstrap_servers, tmp_path / "cut", engine)
    counts = [0, 0]
    for first in range(0, len(_MINUTES), 3):
        _send_minutes(cut, _MINUTES[first : first + 3])
        row = cut.run()
        assert row.failure is None, row.failure
        counts = [sum(pair) for pair in zip(counts, _without_timing(row), strict=True)]
    assert tuple(counts) == _without_timing(at_once)
    for name in ("tumbling", "hopping", "sessions"):
        if engine != "in_memory":
            assert contents(cut, name) == contents(whole, name), name
        logs = [fold(consume(bootstrap_servers, f"{app.name}-{name}-changelog")[0]) for app in (cut, whole)]
        assert logs[0] == logs[1], name


@pytest.mark.long
def test_stream_time_is_committed_as_kafka_streams_does(bootstrap_servers: str, tmp_path: Path) -> None:
    application = _windowed(bootstrap_servers, tmp_path, "txn_rocksDB")
    _send_minutes(application, [5, 3])
    assert application.run().failure is None
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": application.name})
    try:
        (found,) = consumer.committed([broker.KafkaTopicPartition(application.input, 0)], timeout=WAIT_S)
    finally:
        consumer.close()
    metadata = commit_metadata.decode(found.metadata)
    assert metadata.partition_time == START + 5 * MINUTE
    assert metadata.times == {"tumbling": START, "hopping": START + 5 * MINUTE, "sessions": START + 5 * MINUTE}


# -- dead letters -------------------------------------------------------------------------------------------------


def test_a_poison_record_goes_to_the_dead_letter_topic_and_leaves_nothing_else(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    letters = broker.create_topic(bootstrap_servers, broker.unique("letters"))
    application = Application(bootstrap_servers, tmp_path, processor="count_then_fail", dead_letter_topic=letters)
    row = application.process([(b"a", b"1"), (b"a", b"poison"), (b"b", b"poison"), (b"a", b"2")])
    assert (row.records_in, row.poison_records, row.records_out, row.changelog_records) == (4, 2, 2, 2)
    assert {key: value.value for key, value in application.contents().items()} == {b"a": b"2"}
    assert [(record.key, record.value) for record in consume(bootstrap_servers, letters)[0]] == [
        (b"a", b"poison"),
        (b"b", b"poison"),
    ]
    assert len(consume(bootstrap_servers, application.changelog)[0]) == 2
    assert len(consume(bootstrap_servers, application.output)[0]) == 2


def _prepare(metastore: Metastore, application: Application) -> None:
    entry = metastore.view().catalogue.entry(application.name)
    prepare(Cluster(application.servers, 10).topics, metastore, [entry])


# -- bad input ----------------------------------------------------------------------------------------------------


def test_r10_another_number_of_partitions_is_refused_with_what_to_do(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    metastore = register(bootstrap_servers, application.definition)
    broker.add_partitions(bootstrap_servers, application.input, 3)
    with pytest.raises(TopicMismatchError, match=r"has 3 partitions, expected 1 .* new name"):
        _prepare(metastore, application)


def test_a_missing_output_topic_is_refused(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path).extend(dead_letter_topic="nowhere")
    metastore = Metastore(Cluster(bootstrap_servers), unique("service"))
    put(metastore, application.definition, {application.input: 1})
    with pytest.raises(TopicMismatchError, match="topic nowhere does not exist"):
        _prepare(metastore, application)


@pytest.mark.behaviour("R17")
def test_r17_an_application_with_active_members_elsewhere_is_refused(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    metastore = register(bootstrap_servers, application.definition)
    _prepare(metastore, application)
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": application.name, "client.id": "other"})
    consumer.subscribe([application.input])
    try:
        wait_for(lambda: consumer.poll(0.1) or consumer.assignment(), "the other consumer's assignment")
        with pytest.raises(InputError, match=r"active members: other on .* session\.timeout\.ms"):
            _prepare(metastore, application)
    finally:
        consumer.close()
    _prepare(metastore, application)


def test_a_changed_definition_is_refused_before_anything_is_touched(bootstrap_servers: str, tmp_path: Path) -> None:
    application = _windowed(bootstrap_servers, tmp_path, "txn_rocksDB")
    _send_minutes(application, [0])
    assert application.run().failure is None
    definition, before = application.definition, contents(application, "tumbling")
    changed = application.definition.aggregations[1].model_copy(update={"store": "tumbling"})
    application.extend(aggregations=(changed,))
    _send_minutes(application, [1])
    change = "tumbling.windows 600000 ms every 600000 ms -> 600000 ms every 300000 ms"
    assert change in application.fails("DefinitionError")
    application.definition = definition
    assert contents(application, "tumbling") == before


@pytest.mark.long
def test_a_store_that_is_added_again_with_another_aggregate_takes_over_no_rows(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    counted = {"store": "numbers"}
    application.extend(aggregations=[counted]).process([(b"a", b"1"), (b"a", b"2")])
    taken_out = [store for store in application.definition.stores if store.name != "numbers"]
    application.extend(aggregations=[], stores=taken_out).process([(b"a", b"3")])
    application.extend(aggregations=[{**counted, "aggregate": "tests.integration.support:number_of"}])
    application.send([(b"a", b"4")])
    row = application.run()
    assert row.failure.kind == "DefinitionError"
    assert "numbers.aggregate count -> tests.integration.support:number_of" in row.failure.message
    assert row.records_in == 0
    application.extend(aggregations=[counted]).process()
    assert len(application.contents(store="numbers")) == 1


def test_a_record_larger_than_a_topic_takes_fails_before_its_transaction_commits(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path, processor="echo")
    broker.set_topic_config(bootstrap_servers, application.output, max_message_bytes="10000")
    application.send([(b"small", b"1"), (b"large", os.urandom(20_480))])
    message = application.fails("InputError", max_batch_bytes=10_000)
    assert "record of 20485 bytes with key b'large'" in message
    assert "max.message.bytes is 10000" in message
    assert consume(bootstrap_servers, application.output)[0] == []
    assert application.contents() == {}


# -- second attempts in one run -----------------------------------------------------------------------------------


@pytest.mark.behaviour("R13")
def test_r13_a_store_found_corrupt_at_work_is_rebuilt_in_the_same_run(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    inputs = [INPUT, [(b"other " + (key or b""), value) for key, value in INPUT]]
    for partition in range(2):
        application.send(inputs[partition], partition)
        assert application.run(partition).failure is None
    broker.settle(bootstrap_servers, application.changelog)
    flip_bit(application.live)  # the seal looks at sizes only: it is found by the first read
    for partition in range(2):
        application.send(inputs[partition], partition, T0 + 100)
    rows = [application.run(partition) for partition in range(2)]
    assert [(row.failure, row.records_in) for row in rows] == [(None, 7), (None, 7)]
    assert [bool(row.stores[0].rebuilt) for row in rows] == [True, False]
    application.assert_oracle(0)
    application.assert_oracle(1)


@pytest.mark.short_for("True")
@pytest.mark.parametrize("committed", [True, False])
def test_w3_w4_an_unknown_outcome_of_a_commit_is_settled_in_the_same_run(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process(INPUT[:3])
    application.send(INPUT[3:], timestamp=T0 + 100)
    commit = TransactionalWriter.commit

    def unanswered(writer: TransactionalWriter) -> None:
        # Stands for an answer that never comes: what the broker did with the request is the parameter.
        monkeypatch.setattr(TransactionalWriter, "commit", commit)
        if committed:
            commit(writer)
        raise CommitOutcomeUnknownError("no answer")

    monkeypatch.setattr(TransactionalWriter, "commit", unanswered)
    row = application.run()
    assert (row.failure, row.restored, row.records_in) == (None, 4 if committed else 0, 0 if committed else 4)
    application.assert_oracle()


# -- what a task leaves in its process ----------------------------------------------------------------------------


@pytest.mark.long
def test_tasks_leave_no_file_descriptors_in_a_process_that_runs_many(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    for _ in range(2):  # what a process opens once, it has open then
        application.process(INPUT)
    gc.collect()
    gc.disable()  # whoever runs tasks need not wait for it
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            application.process(INPUT)
        # A client's thread may close its socket after the client was closed.
        wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before, f"no more than {before} open files", 60)
    finally:
        gc.enable()


# -- input offsets of tasks that regroup --------------------------------------------------------------------------

REGROUPED = {
    "store": "by-value",
    "group_by": "tests.integration.support:value_of",
    "aggregate": "tests.integration.support:number_of",
}


class Regrouping:
    """An application whose first tasks only send records to the tasks behind."""

    def __init__(self, command: CatalogueCommand, directory: Path, **fields: Any) -> None:
        self.topics = Cluster(command.servers, 60).topics
        self.servers = command.servers
        self.definition = command.applied(
            **{"processor": None, "stores": [], "aggregations": [REGROUPED], "partitions": 1, **fields}
        )
        self.settings = Settings(
            bootstrap_servers=command.servers, state_dir=command.state_dir, reports_dir=directory, kafka_timeout_s=60
        )

    def send(self, rows: list[Row], partition: int = 0) -> None:
        broker.produce(self.servers, self.definition.input_topic, rows, partition)

    def run(self, index: int, **changes: Any) -> list[ProcessRow]:
        part = self.definition.subtopologies[index]
        self.topics.wait_until_stable([part.input_topic])
        specs = task_specs(self.settings, self.topics, self.definition, part.index)
        return [run_task(spec.model_copy(update=changes)) for spec in specs]

    def run_all(self) -> None:
        for index in (0, 1):
            for row in self.run(index):
                assert row.failure is None, row.failure

    def lose_group(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.delete_consumer_groups([self.definition.name])[self.definition.name].result(10)

    def lose_offsets(self) -> None:
        """Lose the group's offsets, and the topic that keeps those of the first tasks."""
        self.lose_group()
        part = self.definition.subtopologies[0]
        partitions = self.topics.require(part.offsets_topic).partitions
        broker.delete_topic(self.servers, part.offsets_topic)
        broker.create_topic(self.servers, part.offsets_topic, partitions, OFFSETS_CONFIG)

    def sent(self) -> int:
        where = TopicPartition(self.definition.subtopologies[1].input_topic, 0)
        return self.topics.log_ranges([where])[where].high_watermark


@pytest.mark.behaviour("R17")
@pytest.mark.parametrize("lost", ["all offsets", "the input's offset"])
def test_r17_a_task_that_regroups_and_has_no_state_does_not_send_its_input_again(
    command: CatalogueCommand, tmp_path: Path, lost: str
) -> None:
    application = Regrouping(command, tmp_path)
    application.send([(b"a", b"1"), (b"b", b"1"), (b"c", b"2")])
    application.run_all()
    name = application.definition.name
    if lost == "all offsets":
        _forget_processed(application.settings, application.topics, application.definition)
        application.lose_offsets()
    else:
        input_topic = application.definition.input_topic
        kept = {
            at: found
            for at, found in committed_offsets(Cluster(command.servers), name).items()
            if at.topic != input_topic
        }
        assert kept
        application.lose_offsets()
        commit_offsets(Cluster(command.servers), name, kept)
    sent = application.sent()
    application.send([(b"d", b"1")])
    (row,) = application.run(0)
    assert row.failure is not None
    assert row.failure.kind == "InputOffsetError"
    assert application.sent() == sent
    commit_offsets(
        Cluster(command.servers), name, {TopicPartition(application.definition.input_topic, 0): GroupOffset(3)}
    )
    (row,) = application.run(0)
    assert (row.failure, row.records_in) == (None, 1)


@pytest.mark.behaviour("R17")
def test_r17_tasks_that_regroup_and_those_behind_continue_after_months_of_silence(
    command: CatalogueCommand, tmp_path: Path
) -> None:
    application = Regrouping(command, tmp_path)
    application.send([(b"a", b"1"), (b"b", b"1"), (b"c", b"2")])
    application.run_all()
    for rows in ([], [(b"d", b"1")]):
        application.lose_group()
        application.send(rows)
        application.run_all()
    topic = application.definition.store("by-value").changelog_of(application.definition.name)
    settle(application.servers, topic)
    logged = fold(consume(application.servers, topic)[0])
    assert {key: found.value for key, found in logged.items()} == {b"1": b"3", b"2": b"1"}


def test_a_task_that_regroups_begins_with_its_first_input_though_the_tasks_behind_have_begun(
    command: CatalogueCommand, tmp_path: Path
) -> None:
    application = Regrouping(command, tmp_path, partitions=2)
    application.send([(b"a", b"1")])
    application.run_all()
    application.send([(b"b", b"1")], 1)
    application.run_all()


@pytest.mark.behaviour("R17")
def test_r17_the_position_of_stores_does_not_tell_what_was_sent_to_the_tasks_behind(
    command: CatalogueCommand, tmp_path: Path
) -> None:
    fields = {"processor": "tests.integration.support:count", "stores": [{"name": "counts"}]}
    application = Regrouping(command, tmp_path, **fields)
    application.send([(b"a", b"1"), (b"b", b"1")])
    application.run_all()
    application.lose_offsets()
    sent = application.sent()
    application.send([(b"c", b"1")])
    (row,) = application.run(0, resume_from_position=True)
    assert row.failure is not None
    assert "repartition topics" in row.failure.message
    assert application.sent() == sent
