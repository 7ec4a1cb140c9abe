"""A small application on topics of its own, and an oracle for it that recomputes everything from the input.

Catalogues as tests need them: in the log of a service id of their own, or without a log.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from confluent_kafka.admin import AdminClient

from statestore import clock
from statestore.changelog.topic_settings import OFFSETS_CONFIG, changelog_config
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.metastore.apply import carry_out, plan_definitions
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import PutApplication, stamped
from statestore.metastore.evolution import partitions_of
from statestore.metastore.metastore import Metastore
from statestore.metastore.view import Pin
from statestore.model import StoreFormat, TaskId, TopicPartition, changelog_topic, input_offsets_topic
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.recovery.restore import RestoreSpec, restore
from statestore.reports import Failure, ProcessRow, RestoreRow, VerifyRow
from statestore.requests.restore import CheckDepth, RestoreRequest
from statestore.stores.open import open_key_value_store
from statestore.tasks import BYTES, InputRecords, ProcessorContext, Record, ValueAndTimestamp, aggregate
from statestore.tasks.spec import TaskSpec
from statestore.tasks.stream_task import run_task
from statestore.verification.check import verify
from statestore.verification.options import Depth, VerifyOptions
from tests.integration import broker
from tests.integration.broker import T0, Row, consume, create_topic, produce, settle, unique
from tests.oracle.rows import fold

STORE = "counts"
CHANGELOG_CONFIG = changelog_config(StoreDefinition(name=STORE))
T = TypeVar("T")


# -- processors ---------------------------------------------------------------------------------------------------


def count(record: Record, context: ProcessorContext) -> None:
    """Count the values of each key and send the count on; a null value forgets the key."""
    store = context.state_store(STORE)
    if record.value is None:
        store.delete(record.key)
        context.forward(record.key, None)
        return
    found = store.get(record.key)
    total = b"%d" % (1 if found is None else int(found.value) + 1)
    store.put(record.key, ValueAndTimestamp(total, record.timestamp))
    context.forward(record.key, total)


class CountInBatches:
    """Count with many records at once; what is logged and sent is what `count` logs and sends."""

    def process_batch(self, batch: InputRecords, context: ProcessorContext) -> None:
        """Count the values of each key."""
        store, keys = context.arrow_store(STORE), batch.columns["key"]
        distinct = keys.unique()
        found = store.get_many(distinct).values.to_pylist()
        totals = {key: int(value or 0) for key, value in zip(distinct.to_pylist(), found, strict=True)}
        results: list[bytes | None] = []
        for record in batch.records:
            assert record.key is not None
            totals[record.key] = 0 if record.value is None else totals[record.key] + 1
            results.append(None if record.value is None else b"%d" % totals[record.key])
        values = pa.array(results, pa.binary())
        store.put_many(keys, values, batch.columns["timestamp"])
        context.forward_many(keys, values, batch.columns["timestamp"])


def count_in_two_stores(record: Record, context: ProcessorContext) -> None:
    """Count, and keep the latest value in a plain store."""
    count(record, context)
    context.state_store("latest").put(record.key, record.value)


def count_and_keep_first(record: Record, context: ProcessorContext) -> None:
    """Count, and keep the first value of each key in another store."""
    count(record, context)
    first = context.state_store("first")
    if first.get(record.key) is None:
        first.put(record.key, ValueAndTimestamp(record.value or b"", record.timestamp))


def count_in_three_stores(record: Record, context: ProcessorContext) -> None:
    """Count, keep the first value of each key in another store, and the latest one in a plain store."""
    count_and_keep_first(record, context)
    context.state_store("latest").put(record.key, record.value)


def keep_timestamp_unknown(record: Record, context: ProcessorContext) -> None:
    """Keep the value without a timestamp, as one read from a store of the plain format and put back."""
    context.state_store(STORE).put(record.key, ValueAndTimestamp(record.value or b"", -1))


def count_or_fail(record: Record, context: ProcessorContext) -> None:
    """Count, except on poison."""
    if record.value == b"poison":
        raise ValueError("this value cannot be counted")
    count(record, context)


def block(record: Record, context: ProcessorContext) -> None:
    """Count, say so in the file that the value names, and never come back."""
    count(record, context)
    Path(record.value.decode()).touch()
    threading.Event().wait(120)


def count_plain(record: Record, context: ProcessorContext) -> None:
    """Count in a plain store."""
    store = context.state_store(STORE)
    if record.value is None:
        store.delete(record.key)
        return
    found = store.get(record.key)
    store.put(record.key, b"%d" % (1 if found is None else int(found) + 1))


def count_then_fail(record: Record, context: ProcessorContext) -> None:
    """Count, and fail on poison only when everything is written."""
    count(record, context)
    if record.value == b"poison":
        raise ValueError("this value cannot be counted")


def echo(record: Record, context: ProcessorContext) -> None:
    """Keep the record and send it on."""
    context.state_store(STORE).put(record.key, ValueAndTimestamp(record.value or b"", record.timestamp))
    context.forward(record.key, record.value)


number_of = aggregate(
    lambda: 0, lambda key, value, number: number + 1, merger=lambda key, one, other: one + other, value=BYTES
)


def value_of(record: Record) -> bytes | None:
    """Group by value."""
    return record.value


# -- catalogues ---------------------------------------------------------------------------------------------------


def register(servers: str, *definitions: ApplicationDefinition, service_id: str | None = None) -> Metastore:
    """Apply definitions to the catalogue of a service, a new one if none is named, and make or find their topics."""
    metastore, topics = Metastore(Cluster(servers, 60), service_id or unique("service")), Cluster(servers, 60).topics
    catalogue = metastore.require_running().catalogue
    plan = plan_definitions(topics, catalogue, definitions)
    for _ in carry_out(topics, metastore, catalogue, plan):
        pass
    return metastore


def put(metastore: Metastore, definition: ApplicationDefinition, partitions: dict[str, int]) -> Pin:
    """Put a definition into a catalogue, whatever Kafka has, and return the pin of what it is then."""
    return metastore.submit(lambda _: PutApplication(definition=definition, partitions=partitions)).view.pin


def catalogue_of(*definitions: ApplicationDefinition, partitions: int = 1) -> Catalogue:
    """Return a catalogue that no log has, of applications whose inputs have so many partitions."""
    catalogue = Catalogue()
    for definition in definitions:
        command = PutApplication(definition=definition, partitions=partitions_of(definition, partitions))
        catalogue = catalogue.apply(stamped(command, catalogue.next_id, T0, "test"))
    return catalogue


# -- the application ----------------------------------------------------------------------------------------------


class Application:
    """A small application with topics of its own; each test makes one.

    Parameters
    ----------
    partitions
        Of the input; the tests mostly look at task 0_0.
    changelog_config
        Settings of the changelog topics besides Kafka Streams' own.
    """

    def __init__(
        self,
        servers: str,
        directory: Path,
        *,
        processor: str = "count",
        partitions: int = 1,
        stores: Sequence[StoreDefinition] = (StoreDefinition(name=STORE),),
        changelog_config: dict[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.servers = servers
        self.state_dir = directory / "state"
        self.name = unique("app")
        self.partitions = partitions
        self.input = create_topic(servers, f"{self.name}-in", partitions)
        self.output = create_topic(servers, f"{self.name}-out", partitions)
        self.definition = ApplicationDefinition(
            name=self.name,
            input_topic=self.input,
            output_topics=(self.output,),
            processor=f"tests.integration.support:{processor}",
            stores=tuple(stores),
            **{"commit_interval_ms": 600_000, **settings},
        )
        create_topic(servers, input_offsets_topic(self.name), partitions, OFFSETS_CONFIG)
        for store in self.definition.logged_stores:
            create_topic(
                servers,
                changelog_topic(self.name, store.name),
                partitions,
                {**CHANGELOG_CONFIG, **(changelog_config or {})},
            )
        self.delete_retention_ms = 86_400_000
        self._topics = Cluster(servers, 60).topics

    @property
    def changelog(self) -> str:
        """The changelog topic of the first store."""
        return self.definition.stores[0].changelog_of(self.name)

    def defined(self, **changes: Any) -> Application:
        """Change the definition from here on."""
        self.definition = self.definition.model_copy(update=changes)
        return self

    def extend(self, **changes: Any) -> Application:
        """Change the definition from here on, with all that follows from it, such as the stores of aggregations."""
        content = {**self.definition.model_dump(), **changes}
        self.definition = ApplicationDefinition.model_validate(content)
        names = [changelog_topic(self.name, store.name) for store in self.definition.subtopologies[0].stores]
        there = self._topics.describe(names)
        for name in names:
            if name not in there:
                create_topic(self.servers, name, self.partitions, CHANGELOG_CONFIG)
        return self

    def send(self, rows: Iterable[Row], partition: int = 0, timestamp: int = T0) -> None:
        """Produce input."""
        produce(self.servers, self.input, rows, partition, timestamp)

    def changelog_spec(self, store: str = STORE) -> ChangelogSpec | None:
        """Describe the changelog as planning does; None if it is not there."""
        name = self.definition.store(store).changelog_of(self.name)
        topic = self._topics.describe([name]).get(name)
        if topic is None:
            return None
        return ChangelogSpec(topic=name, topic_id=topic.topic_id, delete_retention_ms=self.delete_retention_ms)

    @property
    def offsets_id(self) -> str:
        """Id of the topic of input offsets."""
        return self._topics.require(input_offsets_topic(self.name)).topic_id

    def forget_group(self) -> None:
        """Delete the group with its offsets, as if they had expired."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.delete_consumer_groups([self.name])[self.name].result(60)

    def forget_offsets(self) -> None:
        """Lose the group's offsets, and the topic that keeps them."""
        self.forget_group()
        topic = input_offsets_topic(self.name)
        broker.delete_topic(self.servers, topic)
        broker.create_topic(self.servers, topic, self.partitions, OFFSETS_CONFIG)

    def set_group_offset(self, offset: int) -> None:
        """Commit an input offset as kafka-consumer-groups --reset-offsets does: without metadata."""
        commit_offsets(Cluster(self.servers), self.name, {TopicPartition(self.input, 0): GroupOffset(offset)})

    def task_spec(self, partition: int = 0, **changes: Any) -> TaskSpec:
        """Plan a task up to the input's end of now."""
        where = TopicPartition(self.input, partition)
        spec = TaskSpec(
            application=self.definition,
            task=TaskId(0, partition),
            input_end=self._topics.log_ranges([where])[where].last_stable,
            offsets_id=self.offsets_id,
            changelogs={
                store.name: self.changelog_spec(store.name)
                for store in self.definition.logged_stores
                if self.definition.subtopology_of(store.name).index == 0
            },
            cluster=Cluster(self.servers, 60),
            state_dir=self.state_dir,
            lock_wait_s=1,
        )
        return spec.model_copy(update=changes)

    def store_spec(self, partition: int = 0, store: str | None = None, **changes: Any) -> StorePartitionSpec:
        """Plan a store partition."""
        definition = self.definition.stores[0] if store is None else self.definition.store(store)
        spec = StorePartitionSpec(
            application=self.name,
            task=TaskId(0, partition),
            store=definition,
            changelog=self.changelog_spec(definition.name),
            cluster=Cluster(self.servers, 60),
            state_dir=self.state_dir,
            lock_wait_s=0.2,
            input_topic=self.definition.subtopology_of(definition.name).input_topic,
            exactly_once=self.definition.processing_guarantee == "exactly_once_v2",
        )
        return spec.model_copy(update=changes)

    def run(self, partition: int = 0, **changes: Any) -> ProcessRow:
        """Run a task, whatever comes of it."""
        return run_task(self.task_spec(partition, **changes))

    def fails(self, kind: str, **changes: Any) -> str:
        """Run the task, which must fail for this kind of error, and return its message."""
        return self.failure(kind, **changes).message

    def failure(self, kind: str, **changes: Any) -> Failure:
        """Run the task, which must fail for this kind of error, and return the failure with its evidence."""
        failure = self.run(**changes).failure
        assert failure is not None
        assert failure.kind == kind, failure
        return failure

    def process(self, rows: Iterable[Row] = (), timestamp: int = T0) -> ProcessRow:
        """Send input and run the task, which must succeed."""
        self.send(rows, timestamp=timestamp)
        row = self.run()
        assert row.failure is None, row.failure
        assert row.lag == 0
        settle(self.servers, self.output, *(store.changelog_of(self.name) for store in self.definition.logged_stores))
        return row

    def verify(self, depth: Depth = "scan", **options: Any) -> VerifyRow:
        """Verify the store partition of task 0_0."""
        return verify(self.store_spec(), VerifyOptions(depth, **options))

    def restore_spec(
        self,
        mode: Any = "auto",
        *,
        force: bool = False,
        label: str = "run",
        run_bytes: int = 1 << 24,
        accept_loss: bool = False,
        check: CheckDepth = "files",
        **changes: Any,
    ) -> RestoreSpec:
        """Plan a restore of the store partition of task 0_0."""
        request = RestoreRequest(mode=mode, force=force, accept_loss=accept_loss, check=check)
        return RestoreSpec(self.store_spec(**changes), request, label, run_bytes)

    def restore(self, mode: Any = "auto", **how: Any) -> RestoreRow:
        """Restore the store partition of task 0_0, which must succeed."""
        row = restore(self.restore_spec(mode, **how))
        assert row.failure is None, row.failure
        return row

    def rebuilt_position(self, partition: int = 0) -> dict[TopicPartition, int]:
        """Rebuild a store from all of its changelog, and return its position."""
        request = RestoreRequest(mode="full", force=True)
        row = restore(RestoreSpec(self.store_spec(partition), request, f"rebuilt-{clock.now_ms()}", 1 << 24))
        assert row.failure is None, row.failure
        return self.position(partition)

    @property
    def live(self) -> Path:
        """Directory of the first store of task 0_0."""
        return self.store_spec().live

    def contents(self, partition: int = 0, store: str | None = None) -> dict[bytes, Any]:
        """Rows of a store."""
        return self._read(lambda opened: dict(opened.range()), partition, store)

    def committed(self, partition: int = 0, store: str | None = None) -> int | None:
        """Committed offset of a store."""
        changelog = self.store_spec(partition, store).partition
        return self._read(lambda opened: opened.committed_offset(changelog), partition, store)

    def position(self, partition: int = 0, store: str | None = None) -> dict[TopicPartition, int]:
        """Input offsets that the rows of a store are of."""
        return self._read(lambda opened: dict(opened.position()), partition, store)

    def _read(self, read: Callable[[Any], T], partition: int, store: str | None) -> T:
        spec = self.store_spec(partition, store)
        opened = open_key_value_store(spec.store, spec.live, read_only=True)
        try:
            return read(opened)
        finally:
            opened.close(clean=False)

    def write_anew(
        self,
        rows: dict[bytes, Any],
        store: str | None = None,
        offsets: dict[TopicPartition, int] | None = None,
        partition: int = 0,
    ) -> StorePartitionSpec:
        """Replace a store of a task by one written by hand, of which our own directory knows nothing."""
        spec = self.store_spec(partition, store)
        shutil.rmtree(spec.live)
        for seal in spec.paths.own_dir.glob(f"seal-{spec.store.name}*"):
            seal.unlink()
        opened = open_key_value_store(spec.store, spec.live)
        for key, value in rows.items():
            opened.put(key, value)
        opened.commit(offsets or {})
        opened.close()
        return spec

    def recomputed(self, partition: int = 0) -> tuple[dict[bytes, ValueAndTimestamp], list[Row]]:
        """What `count` leaves and sends for the input, computed from the input alone."""
        rows: dict[bytes, ValueAndTimestamp] = {}
        sent: list[Row] = []
        for record in consume(self.servers, self.input, partition)[0]:
            assert record.key is not None
            if record.value is None:
                rows.pop(record.key, None)
                sent.append((record.key, None))
                continue
            total = b"%d" % (int(rows[record.key].value) + 1 if record.key in rows else 1)
            rows[record.key] = ValueAndTimestamp(total, record.timestamp)
            sent.append((record.key, total))
        return rows, sent

    def assert_oracle(self, partition: int = 0) -> None:
        """O1 to O4 and O7 for a task that runs `count` and has processed all of its input."""
        settle(self.servers, self.output, self.changelog)
        rows, sent = self.recomputed(partition)
        changes, changelog_end = consume(self.servers, self.changelog, partition)
        committed = self.committed(partition)
        contents = self.contents(partition)
        assert contents == rows, "O3: the store is not what the input gives"
        below = [change for change in changes if committed is not None and change.offset <= committed]
        assert contents == fold(below), "O1: the store is not the fold of its changelog"
        assert committed is None or committed < changelog_end, "O2: the committed offset is beyond the log"
        if committed is not None:
            assert consume(self.servers, self.changelog, partition, committed + 1)[0] == [], "O2: records are left"
        assert len(changes) == len(sent), "O3: the changelog has another number of records than the input gives"
        outputs = [
            (record.key, record.value)
            for number in range(
                len(
                    AdminClient({"bootstrap.servers": self.servers})
                    .list_topics(self.output)
                    .topics[self.output]
                    .partitions
                )
            )
            for record in consume(self.servers, self.output, number)[0]
        ]
        for key in {key for key, _ in sent}:
            assert [value for found, value in outputs if found == key] == [
                value for found, value in sent if found == key
            ], f"O4: outputs of {key!r}"
        before = (consume(self.servers, self.output, partition)[1], changelog_end)
        again = self.run(partition)
        assert again.failure is None, again.failure
        assert (again.records_in, again.records_out, again.changelog_records, again.commits, again.restored) == (0,) * 5
        after = (
            consume(self.servers, self.output, partition)[1],
            consume(self.servers, self.changelog, partition)[1],
        )
        assert after == before, "O7: a second run wrote something"
        assert self.contents(partition) == rows
        own = self.task_spec(partition).paths.own_dir
        assert not list(own.glob("swap-*")), "O7: a journal is left"


def plain_store(name: str = STORE) -> StoreDefinition:
    """A store without timestamps."""
    return StoreDefinition(name=name, format=StoreFormat.PLAIN)
