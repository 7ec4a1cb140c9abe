"""Creates a database from SST files without opening RocksDB, which takes several times as long for a small one.

What is written is what RocksDB leaves when it closes: MANIFEST, CURRENT, IDENTITY, LOCK and an empty log. The files lie
in the last level, where RocksDB puts what it ingests into an empty database. A MANIFEST is a log of records, each an
edit. Numbers of fixed size are little-endian; all others, and lengths, are varints.

    file        blocks of 32 KiB; a record that does not fit into what is left of one goes on in the next
    record      masked CRC-32C of kind and payload (u32) | bytes of the payload (u16) | kind (u8) | payload
    edit        tag | value | ...

Whoever opens the database checks what was written: RocksDB compares checksums and the sizes of files, and that the
files of a level follow each other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from uuid import uuid4

import google_crc32c

from statestore.durable import sync_directory, sync_file, write_new
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY
from statestore.formats.varint import varint
from statestore.sst.layout import KIND_BYTES, PUT
from statestore.sst.reader import key_range

_MANIFEST = "MANIFEST-000001"
_LOG = 2
_FIRST_FILE = 3
_LAST_LEVEL = 6
#: Beyond the rows' own, which is 0: a database that was never written to has none.
_LAST_SEQUENCE = 1
_COMPARATOR = b"leveldb.BytewiseComparator"

#: Tags of an edit.
_COMPARATOR_NAME, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE_TAG = 1, 2, 3, 4
_PREVIOUS_LOG, _NEW_FILE, _FAMILY, _FAMILY_ADDED, _IDENTITY = 9, 103, 200, 201, 8193
#: Tags of what is said of a new file besides its place and its keys.
_END, _OLDEST_TIME, _CREATION_TIME, _EPOCH = 1, 5, 6, 13

_BLOCK_BYTES = 1 << 15
_RECORD = Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MASK = 0xA282EAD8


def new_identity() -> bytes:
    """Return a name that no other database has."""
    return str(uuid4()).encode()


def make_database(directory: Path, families: Mapping[str, Sequence[Path]], identity: bytes) -> None:
    """Make a database of SST files of the bulk path, which are moved; all of it is on disk when this returns.

    Parameters
    ----------
    directory
        Not there, or empty but for the files, whose names are not yet those of a database.
    families
        By column family, in the order in which RocksDB numbers them, its files in key order, none of them empty. They
        lie on the directory's file system. `default` is there in any case.
    identity
        RocksDB's own name of the database, of `new_identity`.

    Raises
    ------
    OtherLayoutError
        If a file is not one of the bulk path.
    OSError
        If the files cannot be moved or written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys([DEFAULT_COLUMN_FAMILY, *families]))
    now_s = int(time.time())
    added: list[bytes] = []
    moved: list[Path] = []
    for family, name in enumerate(names):
        for file in families.get(name, ()):
            number = _FIRST_FILE + len(moved)
            added.append(_numbers(0) + _new_file(file, number, now_s) + _tagged(_FAMILY, family))
            moved.append(file.rename(directory / f"{number:06d}.sst"))
    next_file = _FIRST_FILE + len(moved)
    edits = [
        _tagged(_IDENTITY, identity),
        _tagged(_COMPARATOR_NAME, _COMPARATOR) + _numbers(next_file),
        *(_family(number, name) for number, name in enumerate(names) if number),
        *added,
    ]
    written = {
        _MANIFEST: b"".join(_records(edits)),
        "CURRENT": f"{_MANIFEST}\n".encode(),
        "IDENTITY": identity,
        "LOCK": b"",  # without it, whether somebody has the database open takes a look at all processes
        f"{_LOG:06d}.log": b"",  # where CURRENT is lost, RocksDB refuses to create the database anew beside a log
    }
    for path in moved:
        sync_file(path)
    for name, content in written.items():
        write_new(directory / name, content)
    sync_directory(directory)


def _tagged(tag: int, value: int | bytes) -> bytes:
    return varint(tag) + (varint(value) if isinstance(value, int) else _text(value))


def _text(value: bytes) -> bytes:
    return varint(len(value)) + value


def _numbers(next_file: int) -> bytes:
    """The database's counters, which never go back; 0 leaves the number of the next file as it is."""
    found = _tagged(_LOG_NUMBER, _LOG) + _tagged(_PREVIOUS_LOG, 0) + _tagged(_LAST_SEQUENCE_TAG, _LAST_SEQUENCE)
    return found + (_tagged(_NEXT_FILE, next_file) if next_file else b"")


def _family(number: int, name: str) -> bytes:
    added = _tagged(_FAMILY, number) + _tagged(_FAMILY_ADDED, name.encode())
    return _tagged(_COMPARATOR_NAME, _COMPARATOR) + _tagged(_LOG_NUMBER, _LOG) + added


def _new_file(path: Path, number: int, now_s: int) -> bytes:
    keys = (_text(key + bytes([PUT]).ljust(KIND_BYTES, b"\0")) for key in key_range(path))
    place = varint(_NEW_FILE) + varint(_LAST_LEVEL) + varint(number) + varint(path.stat().st_size)
    sequences = varint(0) + varint(0)
    more = {_OLDEST_TIME: now_s, _CREATION_TIME: now_s, _EPOCH: 1}
    said = b"".join(_tagged(tag, varint(value)) for tag, value in more.items())
    return place + b"".join(keys) + sequences + said + varint(_END)


def _records(edits: Sequence[bytes]) -> Iterator[bytes]:
    at = 0
    for edit in edits:
        begun, left = 0, memoryview(edit)
        while not begun or left:
            room = _BLOCK_BYTES - at % _BLOCK_BYTES
            if room < _RECORD.size:
                at += room
                yield bytes(room)
                continue
            part, left = left[: room - _RECORD.size], left[room - _RECORD.size :]
            kind = (_MIDDLE if begun else _FIRST) if left else (_LAST if begun else _WHOLE)
            begun += len(part)
            at += _RECORD.size + len(part)
            yield _RECORD.pack(_masked(google_crc32c.value(bytes([kind]) + part)), len(part), kind) + part


def _masked(checksum: int) -> int:
    return (((checksum >> 15) | (checksum << 17)) + _MASK) & 0xFFFFFFFF
