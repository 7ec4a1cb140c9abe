"""A key and its value, between the text of a command line and the bytes of a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from statestore.definitions.fields import SerdeName
from statestore.errors import InputError, StoreCorruptedError, UnknownFormatError
from statestore.formats.headers_value import ValueTimestampHeaders
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.partition.spec import StorePartitionSpec
from statestore.stores.abilities import NO_STREAM_TIME
from statestore.stores.open import open_key_value_store
from statestore.stores.readers import VersionedRecord
from statestore.stores.serdes import load_serde
from statestore.stores.versioned import newest_time_in


def key_bytes(text: str, serde: SerdeName) -> bytes:
    """Read a key as its serde has it: `bytes` in hexadecimal digits, `int64` as a number, `json` as JSON, else text.

    Raises
    ------
    InputError
        If the text is no such key.
    """
    try:
        value: Any = text
        if serde == "bytes":
            value = bytes.fromhex(text)
        elif serde == "int64":
            value = int(text)
        elif serde == "json":
            value = json.loads(text)
        return load_serde(serde).serialize(value)
    except (TypeError, ValueError) as error:
        expected = {"bytes": "hexadecimal digits", "int64": "a number of 64 bits", "json": "JSON"}.get(serde, "text")
        raise InputError(f"key {text!r} is not {expected}, as --key-serde {serde} wants it: {error}") from error


def value_text(raw: bytes, serde: SerdeName) -> str:
    """Write a value: hexadecimal for `bytes`, JSON for what JSON can say, else as Python shows it.

    Raises
    ------
    InputError
        If it is not of that serde.
    """
    if serde == "bytes":
        return raw.hex()
    try:
        value = load_serde(serde).deserialize(raw)
    except (TypeError, ValueError) as error:
        raise InputError(f"a value of {len(raw)} bytes is not of --value-serde {serde}: {error}") from error
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


class Row(NamedTuple):
    """What a store partition has under a key.

    Attributes
    ----------
    timestamp
        In ms; None if the store keeps none.
    headers
        Names and values, these in hexadecimal; None if the store keeps none.
    valid_from, valid_to
        Of a version in a versioned store: from when until before when (ms) it is valid. `valid_to` is None if it still
        is.
    """

    application: str
    store: str
    task: str
    value: str
    timestamp: int | None
    headers: tuple[tuple[str, str | None], ...] | None = None
    valid_from: int | None = None
    valid_to: int | None = None

    @property
    def label(self) -> str:
        """The store partition."""
        return f"{self.application}/{self.store}/{self.task}"


def read_row(spec: StorePartitionSpec, key: bytes, value_serde: SerdeName) -> Row | None:
    """Read one value; the caller holds the task's lock. None if the store or the key is not there.

    Raises
    ------
    InputError
        If the value is not of its serde.
    StoreCorruptedError, UnknownFormatError
        If the store cannot be read.
    """
    with _opened(spec) as store:
        found: _Found = None if store is None else store.get(key)
    if found is None:
        return None
    if isinstance(found, VersionedRecord):
        return _version(spec, found, value_serde)
    headers: tuple[tuple[str, str | None], ...] | None = None
    timestamp: int | None = None
    if isinstance(found, ValueTimestampHeaders):
        raw, timestamp, found_headers = found
        headers = tuple((name, None if value is None else value_text(value, "bytes")) for name, value in found_headers)
    else:
        raw, timestamp = found if isinstance(found, ValueAndTimestamp) else (found, None)
    value = value_text(raw, value_serde)
    return Row(spec.application, spec.store.name, str(spec.task), value, timestamp, headers)


#: A value as a store has it, by its format.
_Found = ValueTimestampHeaders[bytes] | ValueAndTimestamp[bytes] | VersionedRecord[bytes] | bytes | None


@contextmanager
def _opened(spec: StorePartitionSpec) -> Iterator[Any]:
    """Have a store open for reading while the context lasts; None if it is not there."""
    if not spec.live.exists():
        yield None
        return
    try:
        store = open_key_value_store(spec.store, spec.live, read_only=True)
    except (StoreCorruptedError, UnknownFormatError) as error:
        raise type(error)(f"{spec.store_partition}: {error}") from error
    try:
        yield store
    finally:
        store.close(clean=False)


# -- versioned stores -------------------------------------------------------------------------------------------------


def history_from(spec: StorePartitionSpec) -> int:
    """Return the oldest time (ms) whose values a versioned store still has; the caller holds the task's lock.

    All latest values are read for that: nothing else tells how far the store's time is.

    Raises
    ------
    StoreCorruptedError, UnknownFormatError
        If the store cannot be read.
    """
    with _opened(spec) as store:
        newest = NO_STREAM_TIME if store is None else newest_time_in(store.inner.rows)
    return newest - (spec.store.retention_ms or 0)


def read_versions(spec: StorePartitionSpec, key: bytes, value_serde: SerdeName, as_of: int | None = None) -> list[Row]:
    """Read the versions of a key, or the one that was valid at a time (ms); the caller holds the task's lock.

    Raises
    ------
    InputError
        If a value is not of its serde.
    StoreCorruptedError, UnknownFormatError
        If the store cannot be read.
    """
    with _opened(spec) as store:
        if store is None:
            return []
        found = store.history(key, descending=False) if as_of is None else filter(None, [store.get(key, as_of)])
    return [_version(spec, version, value_serde) for version in found]


def _version(spec: StorePartitionSpec, version: VersionedRecord[bytes], value_serde: SerdeName) -> Row:
    value, valid_from, valid_to = version
    return Row(
        spec.application,
        spec.store.name,
        str(spec.task),
        value_text(value, value_serde),
        valid_from,
        valid_from=valid_from,
        valid_to=valid_to,
    )
