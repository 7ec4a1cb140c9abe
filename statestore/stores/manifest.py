"""Reads a MANIFEST without RocksDB: whether RocksDB can read it, and the identity of its database.

Layout, little-endian: blocks of 32 KiB with records of u32 checksum, u16 length, u8 type, payload; zeros at a block's
end where no header fits. The first payload begins with the database's identity: tag (varint 8193), length (varint),
text. Older versions of RocksDB leave it out.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from statestore.errors import StoreCorruptedError, about

_BLOCK = 1 << 15
_HEADER = Struct("<IHB")
_LAST_TYPE = 4
_IDENTITY = b"\x81\x40"


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
