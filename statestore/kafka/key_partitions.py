"""Kafka's default partitioner for a column of keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.compiled.loops import compiled
from statestore.kafka.partitioner import murmur2

_murmur2 = compiled(murmur2)


def partitions_of_keys(keys: pa.Array, partitions: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """Return the partition that a producer puts each key into, of as many as its topic has."""
    found: npt.NDArray[np.int64] = hashes_of_keys(keys) % partitions
    return found


def hashes_of_keys(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Return the hashes that partitions are the remainders of: 31 bits; that of no bytes for a null key."""
    found = np.zeros(len(keys), np.int64)
    if len(keys):
        keys = keys.cast(pa.large_binary())
        _, ends, data = keys.buffers()
        ends = np.frombuffer(ends, np.int64)[keys.offset : keys.offset + len(keys) + 1]
        _hash(np.frombuffer(data or b"", np.uint8), ends, found)
    return found


@compiled
def _hash(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], found: npt.NDArray[np.int64]) -> None:
    for row in range(len(found)):
        found[row] = _murmur2(data[ends[row] : ends[row + 1]]) & 0x7FFFFFFF
