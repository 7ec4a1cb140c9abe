"""Formats of stores (KIP-258): how each lays out values, where its rows lie, and what becomes of older rows.

A newer format can read rows of the ones before: it has their column families behind its own. A row in one of these is
migrated when it is read.

plain                     column family `default`                   value
timestamped               column family `keyValueWithTimestamp`     int64 timestamp (ms, big-endian) | value
timestamped-in-default    column family `default`                   as timestamped; of time-ordered windows alone
"""

from __future__ import annotations

from collections.abc import Collection

from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, UNKNOWN_TIMESTAMP, encode
from statestore.model import StoreFormat

DEFAULT_COLUMN_FAMILY = "default"
TIMESTAMPED_COLUMN_FAMILY = "keyValueWithTimestamp"


class ValueFormat:
    """The plain format; others say what they do otherwise.

    Attributes
    ----------
    column_families
        Where rows are: first that of the format, to which rows are written, then those of older formats.
    timestamped
        Whether a stored value begins with its timestamp.
    """

    column_families: tuple[str, ...] = (DEFAULT_COLUMN_FAMILY,)
    timestamped: bool = False

    def stored(self, plain: bytes, timestamp: int) -> bytes:
        """Lay out a changelog record's value (timestamp in ms) as the store keeps it."""
        return plain

    def logged(self, stored: bytes | None) -> tuple[bytes | None, int | None]:
        """Split a stored value as it is logged: plain value and timestamp (ms); None is that of the record processed.

        Raises
        ------
        StoreCorruptedError
            If it is too short.
        """
        return stored, None

    def migrated(self, older: bytes) -> bytes:
        """Return a value of the format before in this one's layout."""
        return older


class TimestampedFormat(ValueFormat):
    """Each value has the timestamp of the record that wrote it; -1 where it is not known."""

    column_families: tuple[str, ...] = (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY)
    timestamped = True

    def stored(self, plain: bytes, timestamp: int) -> bytes:
        """Put the timestamp in front."""
        return encode(plain, timestamp)

    def logged(self, stored: bytes | None) -> tuple[bytes | None, int | None]:
        """Take the timestamp off; an unknown one is that of the record processed."""
        if stored is None:
            return None, None
        if len(stored) < TIMESTAMP_BYTES:
            raise StoreCorruptedError(f"a timestamped value has at least {TIMESTAMP_BYTES} bytes, found {len(stored)}")
        timestamp = int.from_bytes(stored[:TIMESTAMP_BYTES], "big", signed=True)
        return stored[TIMESTAMP_BYTES:], None if timestamp == UNKNOWN_TIMESTAMP else timestamp

    def migrated(self, older: bytes) -> bytes:
        """A plain value's timestamp is not known."""
        return encode(older, UNKNOWN_TIMESTAMP)


class TimestampedInDefaultFormat(TimestampedFormat):
    """Timestamped values where plain ones are: no column family tells of this format, only the kind of the store."""

    column_families = (DEFAULT_COLUMN_FAMILY,)


#: By name, older ones first.
_FORMATS: dict[StoreFormat, ValueFormat] = {
    StoreFormat.TIMESTAMPED_IN_DEFAULT: TimestampedInDefaultFormat(),  # first: as its family tells, a store is plain
    StoreFormat.PLAIN: ValueFormat(),
    StoreFormat.TIMESTAMPED: TimestampedFormat(),
}
#: Data column families of all formats.
COLUMN_FAMILIES = _FORMATS[StoreFormat.TIMESTAMPED].column_families


def value_format(name: StoreFormat) -> ValueFormat:
    """Return the format of a name."""
    return _FORMATS[name]


def newest_format(column_families: Collection[str]) -> StoreFormat:
    """Return the newest format that a store with these column families has: rows of older ones are still read."""
    found = [name for name, known in _FORMATS.items() if known.column_families[0] in column_families]
    return found[-1] if found else StoreFormat.PLAIN
