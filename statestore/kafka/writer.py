"""Producers of a task: changelog records, outputs and input offsets.

The transactional one commits all of them or nothing. Errors tell what is known of the transaction. Before the commit is
sent everything can be aborted. When the answer to a commit does not come, the outcome is unknown: it is never guessed,
the next `init_transactions` settles it. The other one is for processing at least once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from statestore import kill_switch
from statestore.errors import (
    CommitOutcomeUnknownError,
    FencedError,
    InputError,
    KafkaUnavailableError,
    RetryError,
    StateStoreError,
    TransactionTimedOutError,
)
from statestore.kafka.client import translate
from statestore.kafka.cluster import Cluster
from statestore.kafka.deadline import call_within
from statestore.kafka.groups import ConsumerGroup, GroupOffset, kafka_offsets, to_commit
from statestore.kafka.rights import Right, on_topics
from statestore.kafka.stall import Stall
from statestore.model import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]
_IDLE_MS = 5_000
_CHECK = "check that the brokers are up, then run again"
#: How long a task that failed waits for what it has produced at least once.
_LAST_S = 5.0
_ANY_PARTITION = -1  # librdkafka's RD_KAFKA_PARTITION_UA
#: Records that an abort has thrown away: their deliveries may be told only in the next transaction.
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
#: librdkafka's own default; a topic that takes less needs smaller batches, because the limit is one of batches.
_BATCH_BYTES = 1_000_000
#: More than what a record and its batch have beside key and value, where it has no headers.
_RECORD_BYTES = 1_000
#: The broker judges the size of a record; librdkafka would do so before it, knowing only its own limit.
_NO_LIMIT = 1_000_000_000


class OffsetRecord(NamedTuple):
    """A record for a topic of input offsets.

    Attributes
    ----------
    where
        Its partition in that topic.
    timestamp
        In ms, above 0.
    """

    where: TopicPartition
    key: bytes
    value: bytes
    timestamp: int


class RecordWriter:
    """The common part of both producers: producing with delivery reports.

    Parameters
    ----------
    name
        Who writes, for errors.
    max_batch_bytes
        The smallest `max.message.bytes` of the topics written to: brokers refuse larger batches.
    """

    def __init__(self, cluster: Cluster, name: str, max_batch_bytes: int | None, **config: Any) -> None:
        self._cluster = cluster
        self._name = name
        self._max_batch_bytes = max_batch_bytes
        self._topics = set[str]()
        self._delivered: dict[tuple[str, int], int] = {}
        self._failed: StateStoreError | None = None
        self._stall = Stall(cluster.timeout_s)
        # A callback may be called with a Python exception already pending. No method of a base class is found then
        # (CPython's find_name_in_mro gives up), but attributes of the instance and globals are.
        self._tell_failure = self._on_failure
        self._producer = cluster.client(
            Producer,
            **{
                "partitioner": "murmur2_random",  # Kafka's own; librdkafka's default would place keys elsewhere
                "linger.ms": 20,
                "throttle_cb": self._stall.note,
                "queue.buffering.max.messages": 500_000,
                "compression.type": "lz4",
                "message.max.bytes": _NO_LIMIT,
                "batch.size": min(max_batch_bytes or _BATCH_BYTES, _BATCH_BYTES),
                **config,
            },
        )

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Write a record; without a partition Kafka's partitioner chooses by the key.

        Parameters
        ----------
        timestamp
            Record timestamp, ms, above 0: librdkafka takes 0 for now.
        """
        if timestamp <= 0:
            raise InputError(f"{topic}: a record's timestamp is in ms since 1970 and above 0, found {timestamp}")
        kill_switch.reached("before produce")
        self._topics.add(topic)
        where = _ANY_PARTITION if partition is None else partition
        waits = False
        while True:
            try:
                if headers:
                    self._producer.produce(topic, value, key, where, self._on_delivery, None, timestamp, list(headers))
                else:
                    self._producer.produce(topic, value, key, where, self._on_delivery, None, timestamp)
            except BufferError as error:  # the queue is full: let deliveries drain it
                if not waits:
                    self._stall.progressed()
                elif self._stall.left_s <= 0:
                    raise KafkaUnavailableError(
                        f"{topic}: no record was taken: {self._stall.told()}; {_CHECK}"
                    ) from error
                waits = True
                self._serve(lambda: self._producer.poll(0.1))
            except KafkaException as error:
                doing = f"producing to {topic}"
                if error.args[0].fatal() or error.args[0].code() == KafkaError._FATAL:
                    raise self._after_fatal(doing) from error
                raise self._explained(translate(error, doing, *on_topics("WRITE", topic))) from error
            else:
                kill_switch.reached("during produce")
                return

    def produce_many(
        self,
        topic: str,
        partition: int,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        count: int | None = None,
    ) -> None:
        """Write many records to one partition, in their order; see `produce`.

        Parameters
        ----------
        count
            How many of them, if not all.
        """
        count = len(keys) if count is None else count
        if len(timestamps) and min(timestamps) <= 0:
            raise InputError(f"{topic}: a record's timestamp is in ms since 1970 and above 0, found {min(timestamps)}")
        if headers is not None:
            for key, value, timestamp, found in islice(zip(keys, values, timestamps, headers, strict=True), count):
                self.produce(topic, key, value, timestamp, partition, found)
            return
        self._topics.add(topic)
        produce = kill_switch.around(self._producer.produce, "before produce", "during produce")
        last = count - 1
        told = self._told_of(keys, values)  # records of a partition arrive in order: the last one tells the offset
        for index, (key, value, timestamp) in enumerate(islice(zip(keys, values, timestamps, strict=True), count)):
            if index == last:
                told = self._on_delivery
            try:
                produce(topic, value, key, partition, told, None, timestamp)
            except (BufferError, KafkaException):  # the queue is full; the other way waits, and names what fails
                self.produce(topic, key, value, timestamp, partition)

    def produce_each(self, records: Iterable[tuple[str, bytes | None, bytes | None, int, Headers]]) -> None:
        """Write records, given as topic, key, value, timestamp and headers, in their order; see `produce`."""
        for topic, key, value, timestamp, headers in records:
            self.produce(topic, key, value, timestamp, headers=headers)

    def _told_of(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> Callable[[Any, Message], None] | None:
        """Return who is told of the delivery of records that are not the last ones; None: nobody has to be."""
        return self._on_failure

    def keep_offset(self, record: OffsetRecord) -> None:
        """Write an input offset to its topic, with the other records of the commit; call it before the last flush."""
        topic, number = record.where
        self.produce(topic, record.key, record.value, record.timestamp, number)

    def poll(self) -> None:
        """Serve deliveries; call now and then while producing."""
        self._serve(lambda: self._producer.poll(0))

    def flush(self) -> dict[TopicPartition, int]:
        """Wait until every record is acknowledged; return each partition's last offset since `begin`.

        Raises
        ------
        KafkaUnavailableError
            If none was acknowledged for the time of a call, waits for a quota excluded.
        """
        stall, before = self._stall, len(self._producer)
        stall.progressed()
        while left := self._serve(lambda: self._producer.flush(max(stall.left_s, 0.0))):
            if left < before:
                stall.progressed()
            elif stall.left_s <= 0:
                raise KafkaUnavailableError(
                    f"{left} records of {self._name} are not acknowledged: {stall.told()}; {_CHECK}"
                )
            before = left
        return {TopicPartition(*where): offset for where, offset in self._delivered.items()}

    def close(self) -> None:
        """Let the producer go, with its threads and connections; what was not acknowledged is lost.

        Nobody waits for the garbage collector then: a process that runs many tasks would run out of file descriptors.
        """
        self.__dict__.pop("_producer", None)
        self.__dict__.pop("_tell_failure", None)

    def _serve(self, call: Callable[[], int]) -> int:
        doing = f"producing as {self._name}"
        try:
            left = call()
        except KafkaException as error:
            raise self._explained(translate(error, doing, *self._rights)) from error
        except SystemError as error:
            # A fatal error, such as having been fenced, leaves confluent-kafka's flush without an exception to raise.
            raise self._after_fatal(doing) from error
        if self._failed is not None:
            raise self._explained(self._failed)
        return left

    @property
    def _rights(self) -> tuple[Right, ...]:
        """Rights to what was written so far: librdkafka reports a refusal with the next call, without the topic."""
        return on_topics("WRITE", *sorted(self._topics))

    def _explained(self, error: StateStoreError) -> StateStoreError:
        """Say more of an error than Kafka does, where we know more."""
        return error

    def _after_fatal(self, doing: str) -> StateStoreError:
        if self._failed is not None:
            return self._explained(self._failed)
        return RetryError(f"{doing}: the producer failed; run again")

    def _on_failure(self, error: Any, message: Message) -> None:
        if error is not None and self._failed is None and error.code() not in _PURGED:
            self._failed = _undelivered(error, message, self._max_batch_bytes)

    def _on_delivery(self, error: Any, message: Message) -> None:
        if error is not None:
            self._tell_failure(error, message)
            return
        self._delivered[message.topic(), message.partition()] = message.offset()  # told in the order of a partition


class TransactionalWriter(RecordWriter):
    """A producer with one open transaction at a time.

    Parameters
    ----------
    transactional_id
        The same for every attempt of a task; `init` fences earlier holders.
    transaction_timeout_ms
        After so long the broker aborts a transaction that has not ended, and fences its producer.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        transaction_timeout_ms: int = 60_000,
        max_batch_bytes: int | None = None,
    ) -> None:
        super().__init__(
            cluster,
            transactional_id,
            max_batch_bytes,
            **{
                "transactional.id": transactional_id,
                "transaction.timeout.ms": transaction_timeout_ms,
                # librdkafka keeps asking a coordinator that it has lost (its issues 5456, 5511) until the connection
                # is taken for idle.
                "connections.max.idle.ms": _IDLE_MS,
                # Else the connection to the coordinator is only made when librdkafka next looks, which may take 0.8 s.
                "enable.sparse.connections": False,
            },
        )
        self._open = False
        self._began_s: float | None = None
        self._transaction_timeout_s = transaction_timeout_ms / 1000

    def init(self) -> None:
        """Fence earlier producers of this id and settle their open transactions.

        Raises
        ------
        KafkaUnavailableError
            If Kafka does not answer in time.
        """
        doing = f"starting transactions as {self._name}"
        self._cluster.answered(self._producer.init_transactions, doing, *self._rights)

    @property
    def _rights(self) -> tuple[Right, ...]:
        return Right("WRITE", "transactional id", self._name), *super()._rights

    def begin(self) -> None:
        """Begin a transaction."""
        self._delivered = {}
        self._failed = None
        self._began_s = time.monotonic()
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise translate(error, f"beginning a transaction of {self._name}") from error
        self._open = True

    def _told_of(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> Callable[[Any, Message], None] | None:
        """Return who is told of deliveries.

        Nothing is committed if a record of the transaction was not delivered. One that may be too large for its topic
        has to be named, though.
        """
        size = max(map(len, keys), default=0) + max(map(len, filter(None, values)), default=0)
        small = self._max_batch_bytes is not None and size + _RECORD_BYTES < self._max_batch_bytes
        return None if small else self._on_failure

    def _explained(self, error: StateStoreError) -> StateStoreError:
        """Tell a transaction that grew too old from a takeover, which Kafka calls by the same names.

        Of one that is too old, nobody can say whether it was taken over besides. It is worth another attempt in either
        case: the task's lock comes before the transactions, and where another process works without that lock, one of
        the two is fenced and commits nothing.
        """
        if not isinstance(error, FencedError) or self._began_s is None:
            return error
        age_s = time.monotonic() - self._began_s
        if age_s < self._transaction_timeout_s:
            return error
        return TransactionTimedOutError(
            f"a transaction of {self._name} had to end within {self._transaction_timeout_s:g} s, "
            f"transaction.timeout.ms; after {age_s:.1f} s its producer is fenced: the broker has aborted it for its "
            "age, or another process has taken the task over meanwhile. Nothing of it was committed. Run again; if "
            "that happens again, look for what held the task up so long, or for who else processes it"
        )

    def _after_fatal(self, doing: str) -> StateStoreError:
        """Abort, which must follow anyway: it tells what the fatal error was."""
        self._open = False
        try:
            self._producer.abort_transaction(self._cluster.timeout_s)
        except KafkaException as error:
            return self._explained(translate(error, doing, *self._rights))
        return RetryError(f"{doing}: the producer failed and its transaction was aborted; run again")

    def send_offsets(self, group: ConsumerGroup, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Add the group's next input offsets to the transaction.

        Raises
        ------
        KafkaUnavailableError
            If Kafka does not answer in time. The transaction cannot be used any more, the next `init` settles it.
        """
        doing = f"committing input offsets of {group.group}"
        metadata = group.metadata()

        def send(timeout_s: float) -> None:
            self._producer.send_offsets_to_transaction(kafka_offsets(offsets), metadata, timeout_s)

        def answered() -> None:
            self._cluster.answered(send, doing, *self._rights, *to_commit(group.group, offsets))

        try:
            call_within(self._cluster.timeout_s + 1, answered, "send offsets")
        except FencedError as error:
            raise self._explained(error) from error
        except TimeoutError as error:
            self._open = False
            raise KafkaUnavailableError(
                f"{doing}: no answer in {self._cluster.timeout_s:g} s; check that the brokers are up"
            ) from error

    def commit(self) -> None:
        """Commit the transaction.

        Raises
        ------
        FencedError
            If a later attempt took over; the transaction was aborted by it.
        TransactionTimedOutError
            If the broker aborted it for its age.
        CommitOutcomeUnknownError
            If no answer came in time.
        """
        doing = f"committing a transaction of {self._name}"
        kill_switch.soon("commit sent, answer unseen")
        deadline = time.monotonic() + self._cluster.timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                self._producer.commit_transaction(max(left, 0.1))
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and left > 0:
                    continue
                known = translate(error, doing, *self._rights)
                if isinstance(known, FencedError) or cause.txn_requires_abort():
                    raise self._explained(known) from error
                self._open = False  # no abort: it could contradict a commit that did happen
                raise CommitOutcomeUnknownError(
                    f"{doing}: no answer in {self._cluster.timeout_s:g} s ({cause.str()}); run again, "
                    "which settles the outcome from the log"
                ) from error
            else:
                self._open = False
                return

    def abort(self) -> None:
        """Abort the open transaction, if there is one; a failure to abort is left to the next `init`."""
        if not self._open:
            return
        self._open = False
        try:
            self._producer.purge()
            self._producer.abort_transaction(self._cluster.timeout_s)
        except (KafkaException, SystemError):
            # Fenced, or Kafka is gone: the transaction ends by the successor's init or by its timeout.
            return


class AtLeastOnceWriter(RecordWriter):
    """A producer without transactions: what is acknowledged stays, input offsets are committed after it."""

    def __init__(self, cluster: Cluster, name: str, max_batch_bytes: int | None = None) -> None:
        super().__init__(cluster, name, max_batch_bytes, **{"enable.idempotence": True})
        self._pending: tuple[ConsumerGroup, Mapping[TopicPartition, GroupOffset]] | None = None
        self._kept: OffsetRecord | None = None

    def init(self) -> None:
        """Do nothing: there is no earlier producer to fence."""

    def begin(self) -> None:
        """Begin to count what is delivered."""
        self._delivered = {}
        self._failed = None

    def send_offsets(self, group: ConsumerGroup, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Remember the group's next input offsets for `commit`."""
        self._pending = group, offsets

    def keep_offset(self, record: OffsetRecord) -> None:
        """Remember an input offset for `commit`: it is written only when all records before it are acknowledged."""
        self._kept = record

    def commit(self) -> None:
        """Commit the input offsets, first to their topic; all records must have been flushed."""
        if self._kept is not None:
            record, self._kept = self._kept, None
            super().keep_offset(record)
            self.flush()
            kill_switch.reached("input offset kept, not committed")
        if self._pending is not None:
            group, offsets = self._pending
            self._pending = None
            group.commit(offsets)

    def abort(self) -> None:
        """Send what was produced, as stores without transactions have it; what Kafka does not take is thrown away."""
        self._producer.flush(min(self._cluster.timeout_s, _LAST_S))
        self._producer.purge()


#: Either producer, as a task sees it.
Writer = TransactionalWriter | AtLeastOnceWriter


def _undelivered(error: Any, message: Message, max_batch_bytes: int | None) -> StateStoreError:
    topic, key, value = message.topic(), message.key(), message.value()
    if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return translate(error, f"producing to {topic}", *on_topics("WRITE", topic))
    size = len(key or b"") + len(value or b"")
    return InputError(
        f"a record of {size} bytes with key {key!r:.120} is larger than topic {topic} takes: its max.message.bytes is "
        f"{max_batch_bytes or 'not known'}; nothing of its transaction was committed. Increase the topic's "
        f"max.message.bytes, or send a smaller record"
    )
