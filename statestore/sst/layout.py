"""Layout of an SST file (RocksDB's block-based table), and what does not depend on its writer: footer and properties.

    data block ... | properties block | metaindex block | index block | footer (53 bytes)

    footer 1-5  checksum type (u8) | handles of metaindex and index, in 40 bytes | version (u32) | magic (u64)
    footer 6    checksum type (u8) | 3e 00 7a 00 | checksums of the footer and of its place (2 x u32) | size of the
                metaindex (u32), which ends where the footer begins | 24 zeros | version (u32) | magic (u64)
    handle      offset | size (varints) of a block without its trailer
    block       entries | offset of each restart (u32) | number of restarts (u32)
    trailer     0: not compressed (u8) | checksum (u32)
    entry       shared key bytes | own key bytes | value bytes (varints) | own part of the key | value
    data key    a row's key | kind (u8) | sequence number (7 bytes)
    index       for each data block: 0 | key bytes (varints) | key | offset | size (varints); a restart at each

Numbers are little-endian. "Shared" are the bytes that a key has in common with the key before it. RocksDB writes the
footer last: a file without one is incomplete. Its own files may have more blocks, in another order.

Files of the bulk path (writer.py, reader.py) have format version 5, sequence number 0, nothing compressed, and as
checksum the lower half of XXH64 over block and compression byte. A key in their index is at or above the last of its
block, below the first of the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from struct import Struct
from typing import BinaryIO

#: Checksum type, handles, version, magic.
FOOTER = Struct("<B40sIQ")
MAGIC = 0x88E241B785F4CFF7
#: Checksum type that the bulk path writes.
XXH64 = 3
#: Version of all files: the newest that Kafka Streams 3.9 (RocksDB 7.9) reads; it finds no row in newer ones, silently.
VERSION = 5
TRAILER_BYTES = 5
#: What follows the key in a data block of the bulk path: sequence number 0, and the kind of what is in it.
PUT, DELETE = 1, 0
KIND_BYTES = 8
PROPERTIES = b"rocksdb.properties"
#: Property with the identity of the database that wrote the file.
CREATOR = b"rocksdb.creating.db.identity"
#: Property with the number of deletes among the entries, a varint.
DELETED_KEYS = b"rocksdb.deleted.keys"
#: Properties that say how rows, index and blocks of the bulk path are laid out.
BULK_LAYOUT = {
    b"rocksdb.block.based.table.index.type": bytes(4),  # binary search
    b"rocksdb.comparator": b"leveldb.BytewiseComparator",
    b"rocksdb.compression": b"NoCompression",
    b"rocksdb.index.key.is.user.key": b"\1",
    b"rocksdb.index.value.is.delta.encoded": b"\1",
    b"rocksdb.merge.operands": b"\0",
    b"rocksdb.num.range-deletions": b"\0",
}
U32 = Struct("<I")

_ALWAYS_THERE = b"rocksdb.num.entries"
#: The first version whose footer has the size of the metaindex instead of handles.
_SIZE_ONLY = 6
_SIZE_AT = 12


class OtherLayoutError(Exception):
    """An SST file is incomplete or damaged, or has a layout that the reader does not know."""


def is_of_bulk_path(file: BinaryIO) -> bool:
    """True if the footer of an SST file is as the bulk path writes it."""
    length = file.seek(0, 2)
    file.seek(max(length - FOOTER.size, 0))
    raw = file.read(FOOTER.size)
    if len(raw) < FOOTER.size:
        return False
    checksum, _, version, magic = FOOTER.unpack(raw)
    return bool((checksum, version, magic) == (XXH64, VERSION, MAGIC))


def read_properties(path: Path) -> Mapping[bytes, bytes]:
    """Read the properties of a complete SST file. Checksums are not compared.

    Raises
    ------
    OtherLayoutError
        If the file has no footer, or no properties where the footer says.
    OSError
        If the file cannot be read.
    """
    with path.open("rb") as file:
        length = file.seek(0, 2)

        def read(at: int, size: int) -> bytes:
            if not 0 <= at <= at + size <= length:
                raise OtherLayoutError(f"{path}: {size} bytes at {at}, expected them in {length} bytes")
            file.seek(at)
            return file.read(size)

        def block(at: int, size: int) -> bytes:
            found = read(at, size + TRAILER_BYTES)
            if found[size]:
                raise OtherLayoutError(f"{path}: the block at {at} is compressed")
            return found[:size]

        footer_at = length - FOOTER.size
        _, handles, version, magic = FOOTER.unpack(read(footer_at, FOOTER.size))
        if magic != MAGIC or not version:
            raise OtherLayoutError(f"{path}: version {version}, magic {magic:x}")
        if version < _SIZE_ONLY:
            (at, size), _ = varints(handles, 0, 2)
        else:
            (size,) = U32.unpack_from(handles, _SIZE_AT)
            at = footer_at - size - TRAILER_BYTES
        meta = entries(block(at, size))
        if PROPERTIES not in meta:
            raise OtherLayoutError(f"{path}: meta blocks {sorted(meta)}")
        (at, size), _ = varints(meta[PROPERTIES], 0, 2)
        properties = entries(block(at, size))
    if _ALWAYS_THERE not in properties:  # zeros, as a power cut leaves them, are entries without keys
        raise OtherLayoutError(f"{path}: properties {sorted(properties)}")
    return properties


def entries(block: bytes) -> dict[bytes, bytes]:
    """Return the entries of a small block, without its trailer.

    Raises
    ------
    OtherLayoutError
        If the block ends within an entry.
    """
    found: dict[bytes, bytes] = {}
    at, end = 0, len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    key = b""
    if end < 0:
        raise OtherLayoutError("a block without room for its restarts")
    while at < end:
        (shared, own, size), at = varints(block, at, 3)
        if shared > len(key) or at + own + size > end:
            raise OtherLayoutError("an entry beyond the end of its block, or of its key")
        key = key[:shared] + block[at : at + own]
        found[key] = block[at + own : at + own + size]
        at += own + size
    return found


def varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Return the varints at an offset, and the offset behind them.

    Raises
    ------
    OtherLayoutError
        If the data ends within one.
    """
    numbers = []
    for _ in range(count):
        number = shift = 0
        while True:
            if at >= len(data):
                raise OtherLayoutError("a number that does not end")
            number |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                break
        numbers.append(number)
    return numbers, at
