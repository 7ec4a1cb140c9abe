"""The records that a topology logs and sends: collected and produced in batches, in the order of each topic.

What a record wrote and sent can be taken back until it is known that the record is no poison.

If a store's log carries positions, the last change of a commit has the commit's position in its headers
(`formats/position.py`). Until the commit, it is not known which change is the last one, so the newest one is held back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from statestore.formats.position import position_headers
from statestore.model import TopicPartition
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
        count: int | None = None,
    ) -> None:
        """Log changes of a store, in their order; only the first `count`, if that is given."""


class Outgoing:
    """Records to log and send.

    Parameters
    ----------
    stores
        Names of the stores, and whether their logs carry positions.
    failed
        Told of a failure to hand on, before it is raised: user code may swallow it.
    access
        The thread that can write to the stores now.
    unlogged
        Names of the stores without a changelog.

    Attributes
    ----------
    sent, logged
        Records handed on.
    """

    def __init__(
        self,
        output: Output,
        stores: Mapping[str, bool],
        failed: Callable[[Exception], None],
        access: WriteAccess,
        unlogged: Collection[str] = (),
    ) -> None:
        self.sent = self.logged = 0
        self._output = output
        self._failed = failed
        self._carries_positions = stores
        self._unlogged = frozenset(unlogged)
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
        if store in self._unlogged:
            return
        if self._marks is not None:
            self._changes[store].changes.extend(zip(keys, values, timestamps, strict=True))
            return
        self.hand_on()
        if not len(keys):
            return
        self._log(store, 0)
        count = len(keys) - int(self._carries_positions[store])
        self._output.log_many(store, keys, values, timestamps, count=count)
        self.logged += count
        if count < len(keys):
            self._changes[store].changes.append((keys[-1], values[-1], timestamps[-1]))

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
        """Hand everything on, except the changes that are held back."""
        self._hand_on(None)

    def finish(self, position: Mapping[TopicPartition, int]) -> None:
        """Hand everything on before a commit.

        Parameters
        ----------
        position
            Input offsets that all changes reflect. Empty: unknown.
        """
        self._hand_on(position)

    def _hand_on(self, position: Mapping[TopicPartition, int] | None) -> None:
        try:
            for store, carries_positions in self._carries_positions.items():
                self._log(store, int(carries_positions and position != {}))
                if position:
                    self._log(store, 0, position_headers(position))
            if self._sent:
                records = self._sent
                self._sent = []
                self._most_sent = _most(len(records), sum(map(_size, records)))
                self._output.send_many(records)
                self.sent += len(records)
        except Exception as error:  # the rows are written: without their log the task must not go on
            self._failed(error)
            raise

    def _log(self, store: str, held: int, position: Headers = ()) -> None:
        """Log the changes that were gathered, except the last `held` of them; headers of a position go to each."""
        gathered = self._changes[store]
        count = len(gathered.changes) - held
        if count <= 0:
            return
        if store in self._unlogged:
            gathered.changes.clear()
            return
        keys, values, timestamps, *headers = zip(*gathered.changes[:count], strict=True)
        del gathered.changes[:count]
        if position:
            headers = [(position,) * count]
        else:
            gathered.most = _most(count, sum(map(len, keys)) + sum(map(len, filter(None, values))))
        self._output.log_many(store, keys, values, timestamps, headers[0] if headers else None)
        self.logged += count


def _size(record: Sent) -> int:
    return len(record.key or b"") + len(record.value or b"")


def _most(records: int, size: int) -> int:
    """How many records are gathered next time, if they are as large as these."""
    return max(min(_MOST, _MOST_BYTES * records // max(size, 1)), 1)
