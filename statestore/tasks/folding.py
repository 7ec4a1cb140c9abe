"""Folding a key's records into its results, with the user's functions.

First all at once, through accumulators as they are. If anything fails, the key is folded anew, through its serde after
each record: that tells which records are poison, and nothing of what they did to an accumulator stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from statestore.errors import DefinitionError, StateStoreError
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, UNKNOWN_TIMESTAMP
from statestore.formats.value_format import ValueFormat
from statestore.tasks.aggregates import Aggregate

R = TypeVar("R")
#: Called with the offset of a record that cannot be aggregated, and the reason. It may raise to stop everything.
Poison = Callable[[int, Exception], None]


class Result(NamedTuple):
    """A result as it is kept.

    Attributes
    ----------
    value
        Plain and serialized; None: there is none.
    timestamp
        Largest of the records in it (ms).
    last
        Timestamp of the record that was folded last (ms).
    """

    value: bytes | None
    timestamp: int
    last: int


#: A record to fold: offset, timestamp (ms), value as bytes, and the rows that it belongs to.
Input = tuple[int, int, bytes, Iterable[int]]
NO_RESULT = Result(None, UNKNOWN_TIMESTAMP, UNKNOWN_TIMESTAMP)


def stored_result(stored: bytes | None, layout: ValueFormat) -> Result:
    """Read a result in the store's layout."""
    if stored is None:
        return NO_RESULT
    if layout.keeps_headers:
        plain, known, *_ = layout.logged(stored)
        timestamp = UNKNOWN_TIMESTAMP if known is None else known
        return Result(plain, timestamp, timestamp)
    if not layout.timestamped:
        return Result(stored, UNKNOWN_TIMESTAMP, UNKNOWN_TIMESTAMP)
    timestamp = int.from_bytes(stored[:TIMESTAMP_BYTES], "big", signed=True)
    return Result(stored[TIMESTAMP_BYTES:], timestamp, timestamp)


class Folder:
    """Folds with one aggregate.

    Parameters
    ----------
    store
        Name of the store, for errors.
    """

    def __init__(self, aggregate: Aggregate, store: str) -> None:
        self._aggregate = aggregate
        self._store = store
        self.read_value: Callable[[bytes], Any] = _unread if aggregate.value is None else aggregate.value.deserialize

    def fold(
        self,
        key: bytes,
        records: Iterable[Input],
        before: Mapping[int, Result],
        poison: Poison,
    ) -> dict[int, Result]:
        """Fold a key's records into its rows; return those that changed.

        Parameters
        ----------
        before
            Every row that a record belongs to, as it is stored.
        """
        try:
            return self._fold_at_once(key, records, before)
        except StateStoreError:
            raise
        except Exception:  # the user's code may raise anything; which record it was is found out now
            return self.fold_one_by_one(key, records, before, poison)

    def _fold_at_once(self, key: bytes, records: Iterable[Input], before: Mapping[int, Result]) -> dict[int, Result]:
        read, aggregator, initializer = self.read_value, self._aggregate.aggregator, self._aggregate.initializer
        if len(before) == 1:
            [(row, found)] = before.items()
            accumulator, newest, last = self._state(found)
            for _, timestamp, value, _ in records:
                if accumulator is None:
                    accumulator, newest = initializer(), timestamp
                elif timestamp > newest:
                    newest = timestamp
                accumulator = aggregator(key, read(value), accumulator)
                last = timestamp
            return {row: Result(self.write(accumulator), newest, last)}
        states: dict[int, tuple[Any, int, int]] = {}
        for _, timestamp, value, rows in records:
            for row in rows:  # each with a value of its own, as the function may keep it
                accumulator, newest, _ = states[row] if row in states else self._state(before[row])
                if accumulator is None:
                    accumulator, newest = initializer(), timestamp
                accumulator = aggregator(key, read(value), accumulator)
                states[row] = accumulator, max(newest, timestamp), timestamp
        return {row: Result(self.write(state[0]), state[1], state[2]) for row, state in states.items()}

    def fold_one_by_one(
        self,
        key: bytes,
        records: Iterable[Input],
        before: Mapping[int, Result],
        poison: Poison,
    ) -> dict[int, Result]:
        """Fold as Kafka Streams does, record by record through the serde; a poison record changes no row."""
        read, aggregator, initializer = self.read_value, self._aggregate.aggregator, self._aggregate.initializer
        results: dict[int, Result] = {}
        for offset, timestamp, value, rows in records:
            changed: dict[int, Result] = {}
            try:
                for row in rows:
                    accumulator, newest, _ = self._state(results.get(row, before[row]))
                    if accumulator is None:
                        accumulator, newest = initializer(), timestamp
                    accumulator = aggregator(key, read(value), accumulator)
                    changed[row] = Result(self.write(accumulator), max(newest, timestamp), timestamp)
            except StateStoreError:
                raise
            except Exception as error:  # the user's code may raise anything
                poison(offset, error)
            else:
                results.update(changed)
        return results

    def _state(self, result: Result) -> tuple[Any, int, int]:
        if result.value is None:
            return None, UNKNOWN_TIMESTAMP, UNKNOWN_TIMESTAMP
        return self.read(result.value), result.timestamp, result.last

    def read(self, value: bytes) -> Any:
        """Read an accumulator that is kept.

        Raises
        ------
        DefinitionError
            If the serde cannot read it: another aggregate wrote it.
        """
        try:
            return self._aggregate.result.deserialize(value)
        except Exception as error:  # a serde of the user's may raise anything
            raise DefinitionError(
                f"store {self._store} holds {value!r:.80}, which is no {self._aggregate.result.name} "
                f"({type(error).__name__}: {error}): another aggregate wrote it; restore the definition that it was "
                "written with, or reset the application"
            ) from error

    def write(self, accumulator: Any) -> bytes | None:
        """Serialize an accumulator; None stays None."""
        return None if accumulator is None else self._aggregate.result.serialize(accumulator)


def _unread(_: bytes) -> None:
    return None
