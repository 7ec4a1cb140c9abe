"""Reads a MANIFEST without RocksDB: whether RocksDB can read it, and the identity of its database.

Layout, little-endian: blocks of 32 KiB with records of u32 checksum, u16 length, u8 type, payload; zeros at a block's
end where no header fits. The first payload begins with the database's identity: tag (varint 8193), length (varint),
text. Older versions of RocksDB leave it out.

A payload of one record or of several (types 1, or 2 to 4) is a change of the database: fields, each with a tag. Tags
and numbers are varints. Tags from 8192 on have a length, as RocksDB skips those that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from statestore.errors import StoreCorruptedError, about
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY

_BLOCK = 1 << 15
_HEADER = Struct("<IHB")
_LAST_TYPE = 4
_IDENTITY = b"\x81\x40"
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
#: Tags of fields, and what follows them: `v` a varint, `s` a length and so many bytes.
_NEXT_FILE, _LAST_SEQUENCE, _COLUMN_FAMILY, _NEW_FILE, _ATOMIC_GROUP = 3, 4, 200, 103, 300
_ADDED_FAMILY = 201
_FIELDS = {
    1: "s", 2: "v", _NEXT_FILE: "v", _LAST_SEQUENCE: "v", 5: "vs", 6: "vv", 9: "v", 10: "v",
    _NEW_FILE: "vvvssvv", _COLUMN_FAMILY: "v", _ADDED_FAMILY: "s", 202: "", 203: "v", _ATOMIC_GROUP: "v",
    400: "vvvss", 401: "vvv",
}  # fmt: skip
#: Tags of fields that end with further fields, and the tag that ends those.
_OPEN_FIELDS = {_NEW_FILE: 1, 400: 0, 401: 0}
_SKIPPED = 1 << 13
#: A longer MANIFEST takes too long to read.
_MOST_BYTES = 64 << 20


class DatabaseProgress(NamedTuple):
    """How far a database has been written. Within one database, neither number ever falls.

    Attributes
    ----------
    identity
        Identity of the database; empty if it has none.
    sequence
        Sequence number of its last write that was known when its files changed last.
    next_file
        Number of its next file.
    """

    identity: str
    sequence: int
    next_file: int

    def is_before(self, other: DatabaseProgress) -> bool:
        """True if this is an earlier state of the same database."""
        same = self.identity == other.identity != ""
        return same and (self.sequence < other.sequence or self.next_file < other.next_file)


def check_manifest(directory: Path) -> None:
    """Refuse a MANIFEST with records of a type that it never has.

    RocksDB's log reader goes on for ever when a flipped bit turns a record (types 1 to 4) into one of a recycled log
    (5 to 8).

    Raises
    ------
    StoreCorruptedError
        Naming the file, the type and the byte.
    """
    try:
        manifest = directory / (directory / "CURRENT").read_text(encoding="utf-8").strip()
        raw = manifest.read_bytes()
    except (OSError, UnicodeDecodeError, ValueError):
        return  # RocksDB says what is wrong with these
    at = 0
    while at + _HEADER.size <= len(raw):
        if _BLOCK - at % _BLOCK < _HEADER.size:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = _HEADER.unpack_from(raw, at)
        if kind > _LAST_TYPE:
            raise StoreCorruptedError(
                f"{manifest} has a record of type {kind} at byte {at}, expected at most {_LAST_TYPE}; "
                "restore the store from its changelog"
            )
        at += _HEADER.size + length


def database_identity(directory: Path) -> bytes | None:
    """Return the identity that a closed database writes into its files; None if it has none.

    The MANIFEST decides, as it does for RocksDB, which corrects the file IDENTITY by it.
    """
    try:
        manifest = directory / (directory / "CURRENT").read_text(encoding="utf-8").strip()
        with manifest.open("rb") as file:
            head = file.read(_BLOCK)
        payload = head[_HEADER.size :]
        if payload.startswith(_IDENTITY):
            at = len(_IDENTITY) + 1
            return payload[at : at + payload[at - 1]]
        with about(directory / "IDENTITY"):
            return (directory / "IDENTITY").read_bytes().strip() or None
    except FileNotFoundError:
        return None


def segment_identities(directory: Path) -> dict[str, str]:
    """Return the identities of the databases in a directory of segments, by the names of their directories."""
    found = {path.name: database_identity(path) for path in sorted(directory.iterdir()) if path.is_dir()}
    return {name: identity.decode(errors="replace") for name, identity in found.items() if identity is not None}


def database_progress(directory: Path) -> DatabaseProgress | None:
    """Return how far a closed database has been written; None if its MANIFEST is missing, large, or damaged."""
    sequence = next_file = 0
    try:
        if _manifest(directory).stat().st_size > _MOST_BYTES:
            return None
        for change in reversed(list(_changes(directory))):  # each of the two only grows
            for tag, numbers, _ in _fields(change):
                sequence = max(sequence, numbers[0]) if tag == _LAST_SEQUENCE else sequence
                next_file = max(next_file, numbers[0]) if tag == _NEXT_FILE else next_file
            if sequence and next_file:
                break
        identity = database_identity(directory)
    except (OSError, ValueError, IndexError):
        return None
    return DatabaseProgress((identity or b"").decode(errors="replace"), sequence, next_file)


def progress_of(directory: Path, *, segmented: bool) -> dict[str, DatabaseProgress]:
    """Return how far each database of a store has been written, by its directory's name; "" if it is the only one."""
    paths = {path.name: path for path in sorted(directory.iterdir()) if path.is_dir()} if segmented else {"": directory}
    found = {name: database_progress(path) for name, path in paths.items()}
    return {name: progress for name, progress in found.items() if progress is not None}


def flushed_sequences(directory: Path) -> dict[str, int]:
    """Return the largest sequence number in the files of each column family that has some, by its name.

    Raises
    ------
    ValueError, OSError
        If the MANIFEST cannot be read.
    """
    names, found = {0: DEFAULT_COLUMN_FAMILY}, dict[str, int]()
    for change in map(_fields, _changes(directory)):
        family = next((numbers[0] for tag, numbers, _ in change if tag == _COLUMN_FAMILY), 0)
        for tag, numbers, text in change:
            if tag == _ADDED_FAMILY:
                names[family] = text.decode()
            if tag == _NEW_FILE:  # level, number, size, smallest and largest sequence number
                found[names[family]] = max(found.get(names[family], 0), numbers[4])
    return found


def _changes(directory: Path) -> Iterator[bytes]:
    """Yield the changes in a MANIFEST."""
    raw, at, whole = _manifest(directory).read_bytes(), 0, b""
    while at + _HEADER.size <= len(raw):
        if _BLOCK - at % _BLOCK < _HEADER.size:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = _HEADER.unpack_from(raw, at)
        payload = raw[at + _HEADER.size : at + _HEADER.size + length]
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or len(payload) < length:
            return
        whole = payload if kind in (_FULL, _FIRST) else whole + payload
        at += _HEADER.size + length
        if kind in (_FULL, _LAST):
            yield whole


def _manifest(directory: Path) -> Path:
    return directory / (directory / "CURRENT").read_text(encoding="utf-8").strip()


def _fields(change: bytes) -> list[tuple[int, list[int], bytes]]:
    """Return the fields of a change, each with its tag, its numbers, and the last bytes that have a length."""
    found, at, text = [], 0, b""
    while at < len(change):
        tag, at = _varint(change, at)
        layout = "s" if tag >= _SKIPPED else _FIELDS.get(tag)
        if layout is None:
            raise ValueError(f"a MANIFEST has a field with the unknown tag {tag}")
        numbers = []
        for one in layout:
            number, at = _varint(change, at)
            if one == "s":
                text, at = change[at : at + number], at + number
            else:
                numbers.append(number)
        if tag in _OPEN_FIELDS:
            while True:
                inner, at = _varint(change, at)
                if inner == _OPEN_FIELDS[tag]:
                    break
                length, at = _varint(change, at)
                at += length
        found.append((tag, numbers, text))
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a varint, and where it ends."""
    number = shift = 0
    while True:
        byte = raw[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
