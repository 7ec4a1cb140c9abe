"""Kafka's default partitioner, for where there is no producer to ask: murmur2 of the key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_POSITIVE = 0x7FFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that a producer puts a key into."""
    return (murmur2(key) & _POSITIVE) % partitions


def murmur2(data: bytes | npt.NDArray[np.uint8]) -> int:
    """Return the 32 bits of the hash, unsigned.

    Also compiled for columns of keys (`key_partitions.py`): there a product keeps its lower 64 bits,
    of which the mask takes 32.
    """
    found = (_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        found = found * _MULTIPLIER & _MASK ^ word
    if whole < len(data):
        for at in range(whole, len(data)):
            found ^= data[at] << 8 * (at - whole)
        found = found * _MULTIPLIER & _MASK
    found = (found ^ found >> 13) * _MULTIPLIER & _MASK
    return found ^ found >> 15
