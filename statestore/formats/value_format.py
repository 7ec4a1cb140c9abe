"""Formats of stores (KIP-258, KIP-1271): how each lays out values, where its rows lie, and what becomes of older rows.

A newer format can read rows of the ones before: it has their column families behind its own. A row in one of these is
migrated when it is read.

plain                     `default`                            value
timestamped               `keyValueWithTimestamp`              int64 timestamp (ms, big-endian) | value
timestamped-in-default    `default`                            as timestamped; of time-ordered windows alone
headers                   `keyValueWithTimestampAndHeaders`    headers | int64 timestamp | value (headers_value.py)
 of sessions              `sessionKeyValueWithHeaders`         headers | value; there are no timestamped ones before
 of time-ordered windows  `windowKeyValueWithHeaders`          as headers; older ones are timestamped-in-default
 of time-ordered sessions `sessionKeyValueWithHeaders`         value: Kafka Streams keeps no headers of these

Which layout a format means for a store is its kind's to say (`kinds/kind.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from statestore.errors import StoreCorruptedError
from statestore.formats import headers_value
from statestore.formats.headers_value import NO_HEADERS, Headers
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, UNKNOWN_TIMESTAMP, encode
from statestore.model import StoreFormat

DEFAULT_COLUMN_FAMILY = "default"
TIMESTAMPED_COLUMN_FAMILY = "keyValueWithTimestamp"
HEADERS_COLUMN_FAMILY = "keyValueWithTimestampAndHeaders"
SESSION_HEADERS_COLUMN_FAMILY = "sessionKeyValueWithHeaders"
WINDOW_HEADERS_COLUMN_FAMILY = "windowKeyValueWithHeaders"

#: What is logged of a stored value: plain value, timestamp (ms; None: that of the record processed), and headers.
Logged = tuple[bytes | None, int | None] | tuple[bytes | None, int | None, Headers]


class ValueFormat:
    """The plain format; others say what they do otherwise.

    Attributes
    ----------
    name
        The format, as a definition names it.
    column_families
        Where rows are: first that of the format, to which rows are written, then those of older formats, newer ones
        first.
    timestamped
        Whether a value has a timestamp.
    keeps_headers
        Whether a value has headers. Those of a log's records are then read with their values (`kafka/reader.py`).
    """

    name: StoreFormat = StoreFormat.PLAIN
    column_families: tuple[str, ...] = (DEFAULT_COLUMN_FAMILY,)
    timestamped: bool = False
    keeps_headers: bool = False

    @property
    def made_families(self) -> tuple[str, ...]:
        """Column families that a database is made with.

        Kafka Streams refuses plain rows beside the family of timestamped ones, also if that has no rows.
        """
        return self.column_families[0], DEFAULT_COLUMN_FAMILY

    @property
    def timestamp_in_front(self) -> bool:
        """Whether a stored value is its timestamp and, behind it, the value as it is read from a log."""
        return self.timestamped and not self.keeps_headers

    def stored(self, plain: bytes, timestamp: int, headers: Headers = ()) -> bytes:
        """Lay out a changelog record's value (timestamp in ms) as the store keeps it."""
        return plain

    def stored_as_read(self, value: bytes, timestamp: int) -> bytes:
        """Lay out a value as it is read from a log: with its headers and timestamp, where headers are kept."""
        return self.stored(value, timestamp)

    def logged(self, stored: bytes | None) -> Logged:
        """Split a stored value as it is logged.

        Raises
        ------
        StoreCorruptedError
            If it is not of this layout.
        """
        return stored, None

    def timestamp_at(self, stored: bytes) -> int:
        """Return where the timestamp of a stored value begins, in a timestamped format.

        Raises
        ------
        StoreCorruptedError
            If there is no room for it.
        """
        if len(stored) < TIMESTAMP_BYTES:
            raise StoreCorruptedError(f"a timestamped value has at least {TIMESTAMP_BYTES} bytes, found {len(stored)}")
        return 0

    def migrated(self, family: str, older: bytes) -> bytes:
        """Return a value that lies in the column family of an older format in this one's layout."""
        return older


class TimestampedFormat(ValueFormat):
    """Each value has the timestamp of the record that wrote it; -1 where it is not known."""

    name = StoreFormat.TIMESTAMPED
    column_families: tuple[str, ...] = (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY)
    timestamped = True

    def stored(self, plain: bytes, timestamp: int, headers: Headers = ()) -> bytes:
        """Put the timestamp in front."""
        return encode(plain, timestamp)

    def logged(self, stored: bytes | None) -> Logged:
        """Take the timestamp off; an unknown one is that of the record processed."""
        if stored is None:
            return None, None
        self.timestamp_at(stored)
        timestamp = int.from_bytes(stored[:TIMESTAMP_BYTES], "big", signed=True)
        return stored[TIMESTAMP_BYTES:], None if timestamp == UNKNOWN_TIMESTAMP else timestamp

    def migrated(self, family: str, older: bytes) -> bytes:
        """A plain value's timestamp is not known."""
        return encode(older, UNKNOWN_TIMESTAMP)


class TimestampedInDefaultFormat(TimestampedFormat):
    """Timestamped values where plain ones are: no column family tells of this format, only the kind of the store."""

    name = StoreFormat.TIMESTAMPED_IN_DEFAULT
    column_families = (DEFAULT_COLUMN_FAMILY,)


class HeadersFormat(ValueFormat):
    """Each value has the timestamp and the headers of the record that wrote it."""

    name = StoreFormat.HEADERS
    column_families: tuple[str, ...] = (HEADERS_COLUMN_FAMILY, TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY)
    timestamped = True
    keeps_headers = True

    def stored(self, plain: bytes, timestamp: int, headers: Headers = ()) -> bytes:
        """Put headers and timestamp in front."""
        return headers_value.encode(plain, timestamp, headers)

    def stored_as_read(self, value: bytes, timestamp: int) -> bytes:
        """It is read as it is stored."""
        return value

    def logged(self, stored: bytes | None) -> Logged:
        """Take headers and timestamp off; an unknown one is that of the record processed."""
        if stored is None:
            return None, None
        value, timestamp, headers = headers_value.decode(stored)
        return value, None if timestamp == UNKNOWN_TIMESTAMP else timestamp, headers

    def timestamp_at(self, stored: bytes) -> int:
        """Return where the headers end."""
        end = headers_value.headers_end(stored)
        headers_value.timestamp_behind(stored, end)
        return end

    def migrated(self, family: str, older: bytes) -> bytes:
        """An older value has no headers, and a plain one's timestamp is not known."""
        return NO_HEADERS + (encode(older, UNKNOWN_TIMESTAMP) if family == DEFAULT_COLUMN_FAMILY else older)


class SessionHeadersFormat(HeadersFormat):
    """Each session has the headers of the record that wrote it; Kafka Streams keeps no timestamps of sessions."""

    column_families = (SESSION_HEADERS_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY)
    timestamped = False

    def stored(self, plain: bytes, timestamp: int, headers: Headers = ()) -> bytes:
        """Put the headers in front."""
        return headers_value.encode(plain, None, headers)

    def logged(self, stored: bytes | None) -> Logged:
        """Take the headers off."""
        if stored is None:
            return None, None
        value, headers = headers_value.decode_aggregation(stored)
        return value, None, headers

    def migrated(self, family: str, older: bytes) -> bytes:
        """An older value has no headers."""
        return NO_HEADERS + older


class TimeOrderedWindowHeadersFormat(HeadersFormat):
    """The same of time-ordered windows, whose older values have their timestamps in `default`."""

    column_families = (WINDOW_HEADERS_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY)

    def migrated(self, family: str, older: bytes) -> bytes:
        """An older value has no headers."""
        return NO_HEADERS + older


class TimeOrderedSessionHeadersFormat(ValueFormat):
    """Plain values in the column family of those with headers.

    Kafka Streams 4.3.1 would read an older value as if it had headers, so none is taken over from `default`.
    """

    name = StoreFormat.HEADERS
    column_families = (SESSION_HEADERS_COLUMN_FAMILY,)


#: Of sessions, where values have headers.
SESSION_HEADERS = SessionHeadersFormat()
#: Of stores that have their times in front (`kinds/time_ordered.py`).
TIME_ORDERED_WINDOW_HEADERS = TimeOrderedWindowHeadersFormat()
TIME_ORDERED_SESSION_HEADERS = TimeOrderedSessionHeadersFormat()
#: By name, older ones first.
_FORMATS: dict[StoreFormat, ValueFormat] = {
    StoreFormat.TIMESTAMPED_IN_DEFAULT: TimestampedInDefaultFormat(),  # first: as its family tells, a store is plain
    StoreFormat.PLAIN: ValueFormat(),
    StoreFormat.TIMESTAMPED: TimestampedFormat(),
    StoreFormat.HEADERS: HeadersFormat(),
}
#: Data column families of all formats, newer ones first.
COLUMN_FAMILIES = (
    WINDOW_HEADERS_COLUMN_FAMILY,
    SESSION_HEADERS_COLUMN_FAMILY,
    *_FORMATS[StoreFormat.HEADERS].column_families,
)

#: A format by its name, as stores of most kinds have it, or the layout that a kind has.
AnyFormat = StoreFormat | ValueFormat


def value_format(of: AnyFormat) -> ValueFormat:
    """Return the layout that a format means; one that is given stays."""
    return of if isinstance(of, ValueFormat) else _FORMATS[of]


def newest_format(column_families: Collection[str]) -> StoreFormat:
    """Return the newest format that a store with these column families has: rows of older ones are still read."""
    newest_first = [TIME_ORDERED_WINDOW_HEADERS, SESSION_HEADERS, *reversed(_FORMATS.values())]
    found = (known.name for known in newest_first if known.column_families[0] in column_families)
    return next(found, StoreFormat.PLAIN)
