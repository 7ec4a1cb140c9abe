"""`get` and `put` of a transactional key-value store in one function each: what a processor calls for every record.

They do what `KeyValueStore.get` and `put` do, with what these call in place. Whatever is out of the ordinary goes the
long way, through these methods: deletes, values of another type, timestamps that may not be logged, other threads. So
nothing is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as PackError
from threading import get_ident
from typing import Any

from statestore.errors import StateStoreError
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, ValueAndTimestamp
from statestore.stores.serdes import BYTES, INT64, Serde
from statestore.stores.transaction import StagedRows

#: No thread has this identifier.
NO_THREAD = 0
_TIMESTAMP = Struct(">q")
#: A timestamped value of an int64.
_NUMBER = Struct(">qq")
_new: Any = tuple.__new__

Get = Callable[[Any], Any]
Put = Callable[[Any, Any], None]


class WriteAccess:
    """Which thread can write to the stores of a task now. One object for all of its stores.

    Attributes
    ----------
    thread
        Identifier of the thread (`threading.get_ident`), or `NO_THREAD`.
    lowest, highest
        Timestamps (ms) that can be logged for sure.
    """

    __slots__ = ("highest", "lowest", "thread")

    def __init__(self) -> None:
        self.thread = NO_THREAD
        self.lowest, self.highest = 1, 0


class GatheredChanges:
    """Changes of one store that wait to be logged.

    Attributes
    ----------
    changes
        In their order: key, plain value (None deletes), timestamp (ms) and, where the store keeps them, headers.
    most
        At so many, `hand_on` is called.
    access
        The thread that can write now.
    """

    __slots__ = ("access", "changes", "hand_on", "most")

    def __init__(self, hand_on: Callable[[], None], most: int, access: WriteAccess) -> None:
        self.changes: list[tuple[Any, ...]] = []
        self.hand_on = hand_on
        self.most = most
        self.access = access


class Shortcuts:
    """Makes the shortcuts of one store.

    Parameters
    ----------
    store
        The open store.
    rows
        Its rows.
    """

    def __init__(
        self, store: Any, rows: StagedRows, keys: Serde[Any], values: Serde[Any], *, timestamped: bool
    ) -> None:
        self._store = store
        self._rows = rows
        self._keys = keys
        self._values = values
        self._timestamped = timestamped

    def get(self, long_way: Get) -> Get:
        """Return `get`."""
        store, rows, ahead, timestamped = self._store, self._rows, self._rows.ahead, self._timestamped
        key_bytes, as_is, deserialize = self._keys.serialize, self._keys is BYTES, self._values.deserialize
        number, number_bytes = self._values is INT64 and timestamped, _NUMBER.size
        new, unpack, unpack_number, kind = _new, _TIMESTAMP.unpack_from, _NUMBER.unpack, ValueAndTimestamp

        def get(key: Any) -> Any:
            raw = key if as_is and key.__class__ is bytes else key_bytes(key)
            staged = rows.staged.rows
            if raw in staged:
                stored = staged[raw]
            elif raw in ahead.rows:
                ahead.hits += 1
                stored = ahead.rows[raw]
            else:
                try:
                    stored = rows.get(raw)
                except (StateStoreError, OSError) as error:
                    store.fail(error)
            if stored is None:
                return None
            if number and len(stored) == number_bytes:
                timestamp, value = unpack_number(stored)
                return new(kind, (value, timestamp))
            if not timestamped:
                return deserialize(stored)
            if len(stored) < TIMESTAMP_BYTES:
                return long_way(key)
            return new(kind, (deserialize(stored[TIMESTAMP_BYTES:]), unpack(stored)[0]))

        return get

    def put(self, gathered: GatheredChanges, long_way: Put) -> Put:
        """Return `put` of a timestamped store."""
        store, read, write = self._store, self._rows.get, self._rows.put
        key_bytes, as_is, serialize = self._keys.serialize, self._keys is BYTES, self._values.serialize
        number, pack, pack_number, kind = self._values is INT64, _TIMESTAMP.pack, _NUMBER.pack, ValueAndTimestamp
        changes, access, this_thread = gathered.changes, gathered.access, get_ident

        def put(key: Any, value: Any) -> None:
            if value.__class__ is not kind or access.thread != this_thread():
                long_way(key, value)
                return
            plain, timestamp = value
            if plain is None or timestamp.__class__ is not int or not access.lowest <= timestamp <= access.highest:
                long_way(key, value)
                return
            raw = key if as_is and key.__class__ is bytes else key_bytes(key)
            if number and raw.__class__ is bytes and plain.__class__ is int:
                try:
                    stored = pack_number(timestamp, plain)
                except PackError:  # more than 64 bits
                    long_way(key, value)
                    return
                plain = stored[TIMESTAMP_BYTES:]
            else:
                plain = serialize(plain)
                if raw.__class__ is not bytes or plain.__class__ is not bytes:
                    long_way(key, value)
                    return
                stored = pack(timestamp) + plain
            try:
                if store.being_undone is not None:
                    store.being_undone.append((raw, read(raw)))
                write(raw, stored)
            except (StateStoreError, OSError) as error:
                store.fail(error)
            changes.append((raw, plain, timestamp))
            if len(changes) >= gathered.most:
                gathered.hand_on()

        return put
