"""A processor's access to its task: stores, outputs, and time.

A processor gets nothing that belongs to the task: stores are those of `stores/processor_store.py`, and what is passed
to a processor is a copy, or cannot be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from statestore.errors import InputError, UnknownStoreError
from statestore.stores.arrow import ArrowStore
from statestore.tasks.processor import Headers
from statestore.tasks.punctuation import Punctuate, Schedules


class Forward(Protocol):
    """Forwards a record."""

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        """Send a record to a topic; the key chooses the partition."""


class RecordContext:
    """The task's side of a context: the record being processed, and the requests of a processor.

    Attributes
    ----------
    schedules
        Punctuations that were scheduled.
    timestamp, headers, stream_time, commit_requested
        See `ProcessorContext`.
    """

    __slots__ = ("commit_requested", "headers", "schedules", "stream_time", "timestamp")

    def __init__(self) -> None:
        self.schedules = Schedules()
        self.timestamp = -1
        self.headers: Headers = ()
        self.stream_time = -1
        self.commit_requested = False


class ProcessorContext:
    """A processor's access to stores, outputs, and time.

    Attributes
    ----------
    application
        Name of the application.
    task
        Task id, such as `0_3`.
    """

    def __init__(
        self,
        application: str,
        task: str,
        stores: Mapping[str, Any],
        columns: Callable[[str], ArrowStore],
        outputs: tuple[str, ...],
        forward: Forward,
        record: RecordContext,
    ) -> None:
        self.application = application
        self.task = task
        self._stores = stores
        self._columns = columns
        self._outputs = outputs
        self._forward = forward
        self._record = record

    @property
    def timestamp(self) -> int:
        """Timestamp (ms) of the record being processed.

        In a punctuation and in `init`, it is stream time; in `init` without earlier records, it is the timestamp of the
        first record.
        """
        return self._record.timestamp

    @property
    def headers(self) -> Headers:
        """Headers of the record being processed; none in a punctuation and in `init`."""
        return self._record.headers

    @property
    def stream_time(self) -> int:
        """Largest timestamp (ms) of all records of the task so far, including earlier runs; -1 before the first."""
        return self._record.stream_time

    @property
    def commit_requested(self) -> bool:
        """Whether `commit` was called since the last commit."""
        return self._record.commit_requested

    def commit(self) -> None:
        """Request a commit. It follows the record being processed.

        This is Kafka Streams' `ProcessingContext.commit`. Stores do not need a `flush` before it (KIP-1035).
        """
        self._record.commit_requested = True

    def state_store(self, name: str) -> Any:
        """Return one of the application's stores, with the reads and writes of its kind.

        Whatever else a store has belongs to the task, such as its `commit`. A processor that uses it gets an
        InvalidStateError, which ends the task, even if the processor catches it.

        Raises
        ------
        UnknownStoreError
            If this part of the application has no such store.
        """
        try:
            return self._stores[name]
        except KeyError:
            raise UnknownStoreError(
                f"task {self.task} of application {self.application} has no store {name!r}; its stores are: "
                f"{', '.join(self._stores) or 'none'}"
            ) from None

    def arrow_store(self, name: str) -> ArrowStore:
        """Return one of the application's key-value stores, to read and write in columns.

        Only `get_many` and `put_many` can be used; see `state_store`.

        Raises
        ------
        UnknownStoreError
            If this part of the application has no such store.
        InputError
            If it is of another kind, or keeps headers.
        """
        self.state_store(name)
        return self._columns(name)

    def schedule(self, interval_ms: int, punctuate: Punctuate) -> None:
        """Call `punctuate(stream_time)` whenever stream time passes a multiple of the interval (ms).

        A call follows the record that advanced stream time, one call for all multiples that it passed. Calls depend
        only on the records, not on the end of a run or on the clock. Schedule punctuations in a processor's `init`.
        """
        self._record.schedules.add(interval_ms, punctuate, self._record.stream_time)

    def forward(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        topic: str | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Send a record to an output topic, in the same transaction as all other changes of this input record.

        Parameters
        ----------
        topic
            One of the definition's output topics. It can be omitted if there is only one.
        timestamp
            Record timestamp in ms. The default is that of the input record.
        headers
            Names and values of record headers.

        Raises
        ------
        InputError
            If the topic is not an output topic of the definition.
        ValueError
            If the timestamp is not above 0, or if a topic that the task writes to rejects it.
        InvalidStateError
            If the task does not process a record or a punctuation now, or in another thread than the task's.
        TypeError
            If a key, value, or header value is not bytes.
        """
        topic = self._output_topic(topic)
        if headers:  # the caller may change its lists before the record is sent
            headers = tuple([(name, content) for name, content in headers])
        _check_bytes(key, value, headers)
        self._forward(topic, key, value, self._record.timestamp if timestamp is None else timestamp, headers)

    def forward_many(self, keys: pa.Array, values: pa.Array, timestamps: pa.Array, *, topic: str | None = None) -> None:
        """Send many records to an output topic, in their order; see `forward`.

        Parameters
        ----------
        keys, values
            Binary columns.
        timestamps
            Record timestamps (ms, int64).

        Raises
        ------
        ValueError
            If the columns differ in length.
        """
        topic = self._output_topic(topic)
        rows = zip(*(column.to_pylist() for column in (keys, values, timestamps)), strict=True)
        for key, value, timestamp in rows:
            _check_bytes(key, value, ())
            self._forward(topic, key, value, timestamp)

    def _output_topic(self, topic: str | None) -> str:
        if topic is None and len(self._outputs) == 1:
            topic = self._outputs[0]
        if topic is None or topic not in self._outputs:
            raise InputError(
                f"application {self.application} cannot forward to {topic!r}; its output topics are: "
                f"{', '.join(self._outputs) or 'none'}"
            )
        return topic


def _check_bytes(key: object, value: object, headers: Headers) -> None:
    """Refuse what a producer cannot send while it is known which record is to blame."""
    if key is not None and not isinstance(key, bytes):
        raise _not_bytes("key", key)
    if value is not None and not isinstance(value, bytes):
        raise _not_bytes("value", value)
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is str, found {type(name).__name__}: {name!r}")
        if content is not None and not isinstance(content, bytes):
            raise _not_bytes(f"header {name!r}", content)


def _not_bytes(what: str, found: object) -> TypeError:
    return TypeError(f"forward sends bytes or None, found {type(found).__name__} as {what}: encode it first")
