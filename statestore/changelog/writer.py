"""The transactional producer of a task: changelog records, outputs and input offsets, all or nothing.

Errors tell what is known of the transaction. Before the commit is sent everything can be aborted. When the answer to
a commit does not come, the outcome is unknown: it is never guessed, the next `init_transactions` settles it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from statestore.changelog.client import client_config, translate, until_answered
from statestore.errors import (
    CommitOutcomeUnknownError,
    FencedError,
    InputError,
    KafkaUnavailableError,
    StateStoreError,
)
from statestore.model import TopicPartition

#: Records that an abort has thrown away: their deliveries may be told only in the next transaction.
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class TransactionalWriter:
    """A producer with one open transaction at a time.

    Parameters
    ----------
    bootstrap_servers
        Kafka brokers.
    transactional_id
        The same for every attempt of a task; `init` fences earlier holders.
    timeout_s
        Deadline of each call that waits for Kafka.
    transaction_timeout_ms
        After so long the broker aborts a transaction that has not ended, and fences its producer.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        transactional_id: str,
        timeout_s: float = 30.0,
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        self._id = transactional_id
        self._timeout_s = timeout_s
        self._delivered: dict[TopicPartition, int] = {}
        self._failed: Exception | None = None
        self._open = False
        self._producer = Producer(
            client_config(
                bootstrap_servers,
                **{
                    "transactional.id": transactional_id,
                    "transaction.timeout.ms": transaction_timeout_ms,
                    "partitioner": "murmur2_random",  # Kafka's own; librdkafka's default would place keys elsewhere
                    "linger.ms": 20,
                    "queue.buffering.max.messages": 500_000,
                    "compression.type": "lz4",
                },
            )
        )

    def init(self) -> None:
        """Fence earlier producers of this id and settle their open transactions.

        Raises
        ------
        KafkaUnavailableError
            If Kafka does not answer in time.
        """
        until_answered(self._producer.init_transactions, f"starting transactions as {self._id}", self._timeout_s)

    def begin(self) -> None:
        """Begin a transaction."""
        self._delivered = {}
        self._failed = None
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise translate(error, f"beginning a transaction of {self._id}") from error
        self._open = True

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        partition: int | None = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Add a record to the transaction; without a partition Kafka's partitioner chooses by the key.

        Parameters
        ----------
        timestamp
            Record timestamp, ms, above 0: librdkafka takes 0 for now.
        """
        if timestamp <= 0:
            raise InputError(f"{topic}: a record's timestamp is in ms since 1970 and above 0, found {timestamp}")
        more: dict[str, Any] = {} if partition is None else {"partition": partition}
        if headers:
            more["headers"] = headers
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(
                    topic, value=value, key=key, timestamp=timestamp, on_delivery=self._on_delivery, **more
                )
            except BufferError as error:  # the queue is full: let deliveries drain it
                if time.monotonic() > deadline:
                    raise KafkaUnavailableError(f"{topic}: no record was taken for {self._timeout_s:g} s") from error
                self._serve(lambda: self._producer.poll(0.1))
            except KafkaException as error:
                doing = f"producing to {topic}"
                if error.args[0].fatal() or error.args[0].code() == KafkaError._FATAL:
                    raise self._abort_reason(doing) from error
                raise translate(error, doing) from error
            else:
                return

    def poll(self) -> None:
        """Serve deliveries; call now and then while producing."""
        self._serve(lambda: self._producer.poll(0))

    def flush(self) -> dict[TopicPartition, int]:
        """Wait until every record is acknowledged; return each partition's last offset in this transaction."""
        left = self._serve(lambda: self._producer.flush(self._timeout_s))
        if left:
            raise KafkaUnavailableError(f"{left} records of {self._id} were not acknowledged in {self._timeout_s:g} s")
        return dict(self._delivered)

    def _serve(self, call: Callable[[], int]) -> int:
        doing = f"producing as {self._id}"
        try:
            left = call()
        except KafkaException as error:
            raise translate(error, doing) from error
        except SystemError as error:
            # A fatal error, such as having been fenced, leaves confluent-kafka's flush without an exception to raise.
            # The abort that must follow anyway tells which it was.
            raise self._abort_reason(doing) from error
        if self._failed is not None:
            raise self._failed
        return left

    def _abort_reason(self, doing: str) -> StateStoreError:
        self._open = False
        try:
            self._producer.abort_transaction(self._timeout_s)
        except KafkaException as error:
            return translate(error, doing)
        return StateStoreError(f"{doing}: the producer failed and its transaction was aborted; run again")

    def send_offsets(self, group: str, next_offsets: Mapping[TopicPartition, int], metadata: Any) -> None:
        """Add the group's next input offsets to the transaction.

        Parameters
        ----------
        metadata
            The consumer's group metadata.
        """
        offsets = [KafkaTopicPartition(*partition, offset) for partition, offset in next_offsets.items()]
        until_answered(
            lambda timeout_s: self._producer.send_offsets_to_transaction(offsets, metadata, timeout_s),
            f"committing input offsets of {group}",
            self._timeout_s,
        )

    def commit(self) -> None:
        """Commit the transaction.

        Raises
        ------
        FencedError
            If a later attempt took over; the transaction was aborted by it.
        CommitOutcomeUnknownError
            If no answer came in time.
        """
        doing = f"committing a transaction of {self._id}"
        deadline = time.monotonic() + self._timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                self._producer.commit_transaction(max(left, 0.1))
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and left > 0:
                    continue
                known = translate(error, doing)
                if isinstance(known, FencedError) or cause.txn_requires_abort():
                    raise known from error
                self._open = False  # no abort: it could contradict a commit that did happen
                raise CommitOutcomeUnknownError(
                    f"{doing}: no answer in {self._timeout_s:g} s ({cause.str()}); run again, "
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
            self._producer.abort_transaction(self._timeout_s)
        except (KafkaException, SystemError):
            # Fenced, or Kafka is gone: the transaction ends by the successor's init or by its timeout.
            return

    def _on_delivery(self, error: Any, message: Message) -> None:
        if error is not None:
            if self._failed is None and error.code() not in _PURGED:
                self._failed = translate(error, f"producing to {message.topic()}")
            return
        partition = TopicPartition(message.topic(), message.partition())
        if message.offset() > self._delivered.get(partition, -1):
            self._delivered[partition] = message.offset()
