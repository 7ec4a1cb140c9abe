"""Compression of record batches, in the framings that Kafka's clients write."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any

import cramjam
import numpy as np
import numpy.typing as npt

from statestore.errors import StateStoreError

Bytes = npt.NDArray[np.uint8]

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

#: Java's producers put snappy blocks behind a head of 16 bytes, each behind its length; librdkafka writes one block.
_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEAD = 16
_INT = Struct(">i")


class DecompressionError(StateStoreError):
    """The bytes are not what they are said to be compressed with."""


def decompress(codec: int, compressed: Bytes) -> Bytes:
    """Return the bytes that were compressed.

    Raises
    ------
    DecompressionError
        If the codec is unknown or the bytes are not of it.
    """
    try:
        if codec == GZIP:
            return _bytes(cramjam.gzip.decompress(compressed.data))
        if codec == SNAPPY:
            return _snappy(compressed)
        if codec == LZ4:
            return _bytes(cramjam.lz4.decompress(compressed.data))
        if codec == ZSTD:
            return _bytes(cramjam.zstd.decompress(compressed.data))
    except (cramjam.DecompressionError, StructError) as error:
        raise DecompressionError(f"{NAMES[codec]} cannot read its {len(compressed)} bytes: {error}") from error
    raise DecompressionError(f"codec {codec} is unknown; expected {', '.join(NAMES)} (0 to {len(NAMES) - 1})")


def _snappy(compressed: Bytes) -> Bytes:
    data = compressed.data
    if data[: len(_SNAPPY_JAVA)] != _SNAPPY_JAVA:
        return _bytes(cramjam.snappy.decompress_raw(data))
    blocks: list[Bytes] = []
    at = _SNAPPY_JAVA_HEAD
    while at < len(data):
        (length,) = _INT.unpack_from(data, at)
        at += _INT.size
        if not 0 <= length <= len(data) - at:
            raise DecompressionError(f"a snappy block of {length} bytes at byte {at} of {len(data)}")
        blocks.append(_bytes(cramjam.snappy.decompress_raw(data[at : at + length])))
        at += length
    return np.concatenate(blocks) if blocks else np.empty(0, np.uint8)


def _bytes(found: Any) -> Bytes:
    return np.frombuffer(found, np.uint8)
