"""A look at a MANIFEST before RocksDB reads it: a flipped bit can have RocksDB read for ever.

Layout, little-endian: blocks of 32 KiB with records of u32 checksum, u16 length, u8 type, payload; zeros at a block's
end where no header fits.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from statestore.errors import StoreCorruptedError

_BLOCK = 1 << 15
_HEADER = Struct("<IHB")
_LAST_TYPE = 4


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
