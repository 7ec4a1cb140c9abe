"""The records that a topology logs and sends: collected and produced in batches, in the order of each topic.

What a record wrote and sent can be taken back until it is known that the record is no poison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from statestore.stores.shortcuts import GatheredChanges, WriteAccess
from statestore.tasks.processor import Headers

#: What is gathered is handed on at so many records, or earlier where they are large.
_MOST, _FIRST = 4_096, 256
_MOST_BYTES = 4 * 1024 * 1024


class Sent(NamedTuple):
    """A record on its way to a topic; the key chooses the partition."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class Output(Protocol):
    """Where a topology's records go."""

    def send_many(self, records: Sequence[Sent]) -> None:
        """Send records to topics, in their order."""

    def log_many(
        self,
        store: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Log changes of a store, in their order."""


class Outgoing:
    """Records to log and send.

    Parameters
    ----------
    stores
        Names of the stores.
    failed
        Told of a failure to hand on, before it is raised: user code may swallow it.
    access
        The thread that can write to the stores now.

    Attributes
    ----------
    sent, logged
        Records handed on.
    """

    def __init__(
        self,
        output: Output,
        stores: Iterable[str],
        failed: Callable[[Exception], None],
        access: WriteAccess,
    ) -> None:
        self.sent = self.logged = 0
        self._output = output
        self._failed = failed
        self._changes = {store: GatheredChanges(self.hand_on_unless_undoable, _FIRST, access) for store in stores}
        self._sent: list[Sent] = []
        self._most_sent = _FIRST
        self._marks: list[int] | None = None

    def changes_of(self, store: str) -> GatheredChanges:
        """Where the changes of a store are gathered."""
        return self._changes[store]

    def send(self, record: Sent) -> None:
        """Take a record that is to be sent."""
        self._sent.append(record)
        if len(self._sent) >= self._most_sent:
            self.hand_on_unless_undoable()

    def log_many(
        self, store: str, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Log changes at once, unless they may have to be taken back."""
        if self._marks is not None:
            self._changes[store].changes.extend(zip(keys, values, timestamps, strict=True))
            return
        self.hand_on()
        self._output.log_many(store, keys, values, timestamps)
        self.logged += len(keys)

    # -- undoing one record ---------------------------------------------------------------------------------------

    def begin_record(self) -> None:
        """Be ready from now on to take back everything, until `take_back` or `end_record`."""
        self._marks = [len(self._sent), *(len(gathered.changes) for gathered in self._changes.values())]

    def take_back(self) -> None:
        """Forget what was taken since `begin_record`."""
        assert self._marks is not None
        gathered = (self._sent, *(found.changes for found in self._changes.values()))
        for part, mark in zip(gathered, self._marks, strict=True):
            del part[mark:]  # type: ignore[attr-defined]  # of two types of lists
        self._marks = None

    def end_record(self) -> None:
        """Keep what was taken since `begin_record`."""
        self._marks = None

    # -- handing on -----------------------------------------------------------------------------------------------

    def hand_on_unless_undoable(self) -> None:
        """Hand everything on, unless it may have to be taken back."""
        if self._marks is None:
            self.hand_on()

    def hand_on(self) -> None:
        """Hand everything on."""
        try:
            for store, gathered in self._changes.items():
                if gathered.changes:
                    self._log(store, gathered)
            if self._sent:
                records = self._sent
                self._sent = []
                self._most_sent = _most(len(records), sum(map(_size, records)))
                self._output.send_many(records)
                self.sent += len(records)
        except Exception as error:  # the rows are written: without their log the task must not go on
            self._failed(error)
            raise

    def _log(self, store: str, gathered: GatheredChanges) -> None:
        keys, values, *rest = zip(*gathered.changes, strict=True)
        gathered.changes.clear()
        gathered.most = _most(len(keys), sum(map(len, keys)) + sum(map(len, filter(None, values))))
        self._output.log_many(store, keys, values, *rest)
        self.logged += len(keys)


def _size(record: Sent) -> int:
    return len(record.key or b"") + len(record.value or b"")


def _most(records: int, size: int) -> int:
    """How many records are gathered next time, if they are as large as these."""
    return max(min(_MOST, _MOST_BYTES * records // max(size, 1)), 1)
