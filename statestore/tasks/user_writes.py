"""Takes the writes and forwards of the application's code at the right time, checks them, and logs them.

A change is taken only in the thread and at the time of a call of the application's code. Otherwise, it could come
between the flush of the log and the commit of the store, and the store would have a row that its log lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NoReturn

from statestore.errors import InvalidStateError
from statestore.stores.shortcuts import NO_THREAD, WriteAccess
from statestore.tasks.outgoing import Outgoing, Sent
from statestore.tasks.processor import Headers
from statestore.tasks.processor_context import Forward, RecordContext
from statestore.tasks.timestamp_bounds import TimestampBounds


class UserWrites:
    """The writes and forwards of one topology's processor.

    Parameters
    ----------
    access
        Shared with the shortcuts of the stores.
    record
        The record being processed.
    failed
        Called with a refusal before it is raised: the caller may swallow it, or be another thread.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        access: WriteAccess,
        timestamps: TimestampBounds,
        record: RecordContext,
        failed: Callable[[Exception], None],
    ) -> None:
        self._outgoing = outgoing
        self._access = access
        self._timestamps = timestamps
        self._record = record
        self._failed = failed
        self._closed = False
        self._stopped_by: Exception | None = None

    # -- when ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take what this thread writes meanwhile."""
        with self._taken_from(get_ident()):
            yield

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Refuse what any thread writes meanwhile. Functions of aggregations are called at this time."""
        with self._taken_from(NO_THREAD):
            yield

    @contextmanager
    def _taken_from(self, thread: int) -> Iterator[None]:
        before = self._access.thread
        self._take_from(thread)
        try:
            yield
        finally:
            self._take_from(before)

    def take_always(self) -> None:
        """Take what this thread writes, except while it is refused. Tests fill stores between records."""
        self._take_from(get_ident())

    def _take_from(self, thread: int) -> None:
        access = self._access
        access.lowest, access.highest = self._timestamps.surely_taken()
        access.thread = thread if self._stopped_by is None else NO_THREAD

    def stop(self, error: Exception) -> None:
        """Refuse all that follows, because of an error that ends the task."""
        self._stopped_by = self._stopped_by or error
        self._access.thread = NO_THREAD

    def close(self) -> None:
        """Refuse all that follows: everything is committed by then."""
        self._closed = True
        self._access.thread = NO_THREAD

    def _refuse(self, what: str) -> NoReturn:
        if self._stopped_by is not None:
            raise InvalidStateError(f"a processor cannot {what} after an error that ends its task: {self._stopped_by}")
        if self._closed:
            raise InvalidStateError(
                f"a processor cannot {what} in close: everything is committed by then; do it in process or in a "
                "punctuation"
            )
        error = InvalidStateError(
            f"a processor cannot {what} now. It can only while the task calls its init, process, process_batch, or a "
            "punctuation, and only in the thread of that call, not in functions of aggregations. Do it there"
        )
        self._failed(error)
        raise error

    # -- what ---------------------------------------------------------------------------------------------------------

    def forwarder(self) -> Forward:
        """Return the function that a processor forwards with. It does not show this object."""
        access, check, send = self._access, self._timestamps.check, self._outgoing.send

        def forward(topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()) -> None:
            if access.thread != get_ident():
                self._refuse("forward")
            check(timestamp)
            send(Sent(topic, key, value, timestamp, headers))

        return forward

    def check(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers = ()) -> None:
        """Refuse what cannot be logged before it is written, while it is known which record is to blame."""
        access = self._access
        if access.thread != get_ident():
            self._refuse("write to a store")
        if timestamp is None:
            timestamp = self._record.timestamp
        if not access.lowest <= timestamp <= access.highest:
            self._timestamps.check(timestamp)
        if not isinstance(key, bytes) or not (value is None or isinstance(value, bytes)):
            found = type(value if isinstance(key, bytes) else key).__name__
            raise TypeError(f"a serde makes bytes of keys and values, found {found}")

    def logging(self, store: str, keeps_headers: bool) -> tuple[Any, Any]:
        """Return what logs one change of a store, and what logs many."""
        outgoing, record, gathered = self._outgoing, self._record, self._outgoing.changes_of(store)
        changes = gathered.changes

        def log(key: bytes, value: bytes | None, timestamp: int | None, headers: Headers = ()) -> None:
            if timestamp is None:
                timestamp = record.timestamp
            if keeps_headers:  # a delete has those of the record, as in Kafka Streams
                changes.append((key, value, timestamp, record.headers if value is None else headers))
            else:
                changes.append((key, value, timestamp))
            if len(changes) >= gathered.most:
                gathered.hand_on()

        def log_many(keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]) -> None:
            outgoing.log_many(store, keys, values, timestamps)

        return log, log_many
