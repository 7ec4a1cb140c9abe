"""Rows as a function of the user sees them, and rows of a store again.

A function takes a `Row` and returns the row as it is to be, several rows, or None: then there is none. Its keys and
values are what the store's serdes read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError, InputError
from statestore.formats.headers_value import Headers
from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP
from statestore.reference import load
from statestore.stores.serdes import BYTES, Serde, load_serde

_EXPECTED = "a function that takes a statestore.rewrite.user_rows.Row"


@dataclass(frozen=True)
class Row:
    """A row of a store.

    Attributes
    ----------
    key, value
        As the store's serdes read them, or bytes.
    timestamp
        Of the record that wrote it, ms; None: it is not known, or the store keeps none.
    headers
        Of that record, as pairs of name and value; empty if the store keeps none.
    numbers
        What tells apart the rows of a key: of a window `window_start` and `sequence`, of a session `session_start` and
        `session_end`, ms.

    Examples
    --------
    >>> from dataclasses import replace
    >>> replace(Row("ada", 3), value=4)
    Row(key='ada', value=4, timestamp=None, headers=(), numbers={})
    """

    key: Any
    value: Any
    timestamp: int | None = None
    headers: Headers = ()
    numbers: Mapping[str, int] = field(default_factory=dict)


class StoredRow(NamedTuple):
    """A row as a store has it: the user's key alone, the key of the changelog, and the value."""

    users_key: bytes
    key: bytes
    value: bytes


class RowFunction:
    """A function of the user between the rows of a store before and after.

    Parameters
    ----------
    reference
        `module:function`.
    before, after
        The store, which may have another format afterwards.
    as_bytes
        Keys and values are given as the store has them.

    Raises
    ------
    DefinitionError
        If it, or a serde, cannot be loaded.
    """

    def __init__(self, reference: str, before: StoreDefinition, after: StoreDefinition, *, as_bytes: bool) -> None:
        self._reference, self._before, self._after = reference, before, after
        self._function = load(reference, "function", _EXPECTED)
        if not callable(self._function):
            raise DefinitionError(f"function {reference} is a {type(self._function).__name__}, expected {_EXPECTED}")
        self._key: Serde[Any] = load_serde(before.key_serde)
        self._value: Serde[Any] = load_serde(before.value_serde)
        self._bytes = as_bytes

    def __call__(self, key: bytes, stored: bytes) -> list[StoredRow]:
        """Return what becomes of a row; empty: it is deleted.

        Raises
        ------
        InputError
            Naming the key, if the function raises, or returns what the store cannot have.
        """
        kind = self._before.store_kind
        behind = len(key) - kind.suffix_bytes
        try:
            row = self._read(key[:behind], self._numbers(key[behind:]), stored)
            return [self._written(found) for found in _rows(self._function(row))]
        except (Exception, SystemExit) as error:  # the user's own code, which may raise anything
            suffix = "".join(f", {name} {number}" for name, number in self._numbers(key[behind:]).items())
            raise InputError(
                f"function {self._reference}, called with the row of key {key[:behind]!r:.120}{suffix}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _numbers(self, suffix: bytes) -> dict[str, int]:
        found, at = {}, 0
        for number in self._before.store_kind.numbers:
            found[number.name] = int.from_bytes(suffix[at : at + number.bytes], "big", signed=True)
            at += number.bytes
        return found

    def _read(self, key: bytes, numbers: dict[str, int], stored: bytes) -> Row:
        value, timestamp, *headers = self._before.values.logged(stored)
        assert value is not None, "a row has a value"
        of_key, of_value = (BYTES, BYTES) if self._bytes else (self._key, self._value)
        return Row(
            _decoded(of_key, key, "key"),
            _decoded(of_value, value, "value"),
            timestamp,
            headers[0] if headers else (),
            numbers,
        )

    def _written(self, row: Row) -> StoredRow:
        if self._bytes:
            key, value = BYTES.serialize(row.key), BYTES.serialize(row.value)
            _decoded(self._key, key, "key")
            _decoded(self._value, value, "value")
        else:
            key, value = self._key.serialize(row.key), self._value.serialize(row.value)
        layout = self._after.values
        timestamp = UNKNOWN_TIMESTAMP if row.timestamp is None else row.timestamp
        if layout.timestamped and row.timestamp is not None and not 0 < timestamp < 1 << 63:
            raise ValueError(f"the timestamp {timestamp}; expected ms since 1970, above 0, or None")
        stored = layout.stored(value, timestamp, tuple(row.headers))
        return StoredRow(key, key + self._suffix(row.numbers), stored)

    def _suffix(self, numbers: Mapping[str, int]) -> bytes:
        kind = self._before.store_kind
        if {*numbers} != {number.name for number in kind.numbers}:
            expected = ", ".join(number.name for number in kind.numbers) or "none"
            raise ValueError(f"the numbers {', '.join(numbers) or 'none'}; expected {expected}")
        if kind.numbers and numbers[kind.first_time] > numbers[kind.last_time]:
            raise ValueError(f"{kind.first_time} {numbers[kind.first_time]} after {kind.last_time}")
        for number in kind.numbers:
            if not 0 <= numbers[number.name] < 1 << 8 * number.bytes - 1:
                raise ValueError(f"{number.name} {numbers[number.name]}; expected 0 or more, in {number.bytes} bytes")
        return b"".join(numbers[number.name].to_bytes(number.bytes, "big") for number in kind.numbers)


def _decoded(serde: Serde[Any], raw: bytes, part: str) -> Any:
    try:
        return serde.deserialize(raw)
    except Exception as error:  # a serde may be the user's own
        raise ValueError(
            f"the {part} {raw!r:.120} cannot be read by the serde {serde.name} ({type(error).__name__}: {error}); with "
            "--bytes, a function gets and returns bytes"
        ) from error


def _rows(returned: Any) -> Iterator[Row]:
    if returned is None:
        return
    rows: Iterable[Any] = [returned] if isinstance(returned, Row) else returned
    for row in rows:
        if not isinstance(row, Row):
            raise TypeError(f"it returned a {type(row).__name__}; expected a Row, several, or None")
        yield row
