"""The Processor API: the interface of an application's own code.

A processor is a function `process(record, context)`, or a class with this method. Each task creates one instance of the
class. Instead of `process`, the class can have `process_batch(batch, context)`, which gets many records at once
(`input_records.py`). It can also have `init(context)`, which is called before the first record, and `close()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from statestore.errors import DefinitionError, InputError, UnknownStoreError
from statestore.reference import load
from statestore.stores.arrow import ArrowStore
from statestore.tasks.punctuation import Punctuate, Schedules

if TYPE_CHECKING:  # it makes records
    from statestore.tasks.input_records import InputRecords

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """An input record. Key and value are bytes or None; the timestamp is in ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Forward(Protocol):
    """Forwards a record."""

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        """Send a record to a topic; the key chooses the partition."""


class ProcessorContext:
    """A processor's access to stores, outputs, and time.

    Attributes
    ----------
    application
        Name of the application.
    task
        Task id, such as `0_3`.
    timestamp
        Timestamp (ms) of the record being processed. In a punctuation and in `init`, it is stream time; in `init`
        without earlier records, it is the timestamp of the first record.
    headers
        Headers of the record being processed; none in a punctuation and in `init`.
    stream_time
        Largest timestamp (ms) of all records of the task so far, including earlier runs; -1 before the first record.
    commit_requested
        Whether `commit` was called since the last commit.
    """

    def __init__(
        self, application: str, task: str, stores: Mapping[str, Any], outputs: tuple[str, ...], forward: Forward
    ) -> None:
        self.application = application
        self.task = task
        self._stores = stores
        self._outputs = outputs
        self._forward = forward
        self.schedules = Schedules()
        self.timestamp = -1
        self.headers: Headers = ()
        self.stream_time = -1
        self.commit_requested = False

    def commit(self) -> None:
        """Request a commit. It follows the record being processed.

        This is Kafka Streams' `ProcessingContext.commit`. Stores do not need a `flush` before it (KIP-1035).
        """
        self.commit_requested = True

    def state_store(self, name: str) -> Any:
        """Return one of the application's stores.

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

        Raises
        ------
        UnknownStoreError
            If this part of the application has no such store.
        InputError
            If it is of another kind, or keeps headers.
        """
        return ArrowStore(self.state_store(name))

    def schedule(self, interval_ms: int, punctuate: Punctuate) -> None:
        """Call `punctuate(stream_time)` whenever stream time passes a multiple of the interval (ms).

        A call follows the record that advanced stream time, one call for all multiples that it passed. Calls depend
        only on the records, not on the end of a run or on the clock. Schedule punctuations in a processor's `init`.
        """
        self.schedules.add(interval_ms, punctuate, self.stream_time)

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
            If it is called in `close`, which follows the last commit.
        TypeError
            If a key, value, or header value is not bytes.
        """
        topic = self._output_topic(topic)
        _check_bytes(key, value, headers)
        self._forward(topic, key, value, self.timestamp if timestamp is None else timestamp, headers)

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
    parts: list[tuple[str, object]] = [("key", key), ("value", value)]
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is str, found {type(name).__name__}: {name!r}")
        parts.append((f"header {name!r}", content))
    for what, found in parts:
        if found is not None and not isinstance(found, bytes):
            raise TypeError(f"forward sends bytes or None, found {type(found).__name__} as {what}: encode it first")


class Processor:
    """The functions that a task calls.

    Attributes
    ----------
    process
        Called with each record and the context. None: the processor takes batches.
    process_batch
        Called with many records at once and the context. None: the processor takes records one by one.
    """

    def __init__(
        self,
        process: Callable[[Record, ProcessorContext], None] | None,
        process_batch: Callable[[InputRecords, ProcessorContext], None] | None = None,
        init: Callable[[ProcessorContext], None] | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.process = process
        self.process_batch = process_batch
        self._init = init
        self._close = close

    def init(self, context: ProcessorContext) -> None:
        """Prepare the processor, and schedule punctuations."""
        if self._init is not None:
            self._init(context)

    def close(self) -> None:
        """Release the resources that `init` acquired."""
        if self._close is not None:
            self._close()


def load_processor(reference: str) -> Processor:
    """Import `module:attribute` and create a processor from it.

    Raises
    ------
    DefinitionError
        If it cannot be imported or called.
    """
    expected = "a function or a class with a method `process` or `process_batch`"
    found = load(reference, "processor", expected)
    if not callable(found):
        raise DefinitionError(f"processor {reference} is a {type(found).__name__}, expected {expected}")
    if not isinstance(found, type):
        return Processor(found)
    try:
        made = found()
    except Exception as error:  # the application's own code may raise anything
        raise DefinitionError(
            f"processor {reference} cannot be created: {type(error).__name__}: {error}; its class takes no arguments"
        ) from error
    process, process_batch = (getattr(made, name, None) for name in ("process", "process_batch"))
    if not callable(process) and not callable(process_batch):
        raise DefinitionError(
            f"processor {reference} is a class without a method `process` or `process_batch`, expected {expected}"
        )
    if callable(process) and callable(process_batch):
        raise DefinitionError(f"processor {reference} has both `process` and `process_batch`, expected one of them")
    return Processor(process, process_batch, getattr(made, "init", None), getattr(made, "close", None))


#: What `group_by` names: the key by which a record is grouped; None leaves it out.
KeyOf = Callable[[Record], bytes | None]


def load_key(reference: str) -> KeyOf:
    """Import the function that a regrouped aggregation's `group_by` names.

    Raises
    ------
    DefinitionError
        If it cannot be imported or called.
    """
    expected = "a function of the record that returns the new key as bytes"
    found = load(reference, "group_by", expected)
    if not callable(found):
        raise DefinitionError(f"group_by {reference} is a {type(found).__name__}, expected {expected}")
    return found  # type: ignore[no-any-return]  # what was imported is known only now
