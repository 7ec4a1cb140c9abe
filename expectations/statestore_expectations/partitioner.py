"""Kafka's default partitioner for columns of keys, as a function of Spark SQL: `kafka_partition(key, partitions)`.

A module of its own, because Spark's Python workers import it and need nothing else of this package.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from statestore.changelog.compiled import compiled

_MASK = np.uint64(0xFFFFFFFF)
_MULTIPLIER = np.uint64(0x5BD1E995)
_SEED = np.uint64(0x9747B28C)


def register(spark: SparkSession) -> None:
    """Make `kafka_partition` known to a session."""
    spark.udf.register("kafka_partition", F.arrow_udf(partitions_of, IntegerType()))


def partitions_of(keys: pa.Array, partitions: pa.Array) -> pa.Array:
    """Return the partition that a producer puts each key into; null for a null key."""
    found = np.zeros(len(keys), np.int32)
    if len(keys):
        keys = keys.cast(pa.large_binary())
        _, ends, data = keys.buffers()
        _partitions(
            np.frombuffer(data or b"", np.uint8),
            np.frombuffer(ends, np.int64)[keys.offset : keys.offset + len(keys) + 1],
            partitions.to_numpy(zero_copy_only=False).astype(np.uint64),
            found,
        )
    return pa.array(found, mask=np.asarray(keys.is_null()))


@compiled
def _partitions(
    data: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    counts: npt.NDArray[np.uint64],
    found: npt.NDArray[np.int32],
) -> None:
    for row in range(len(found)):
        found[row] = (_murmur2(data[ends[row] : ends[row + 1]]) & np.uint64(0x7FFFFFFF)) % counts[row]


@compiled
def _murmur2(data: npt.NDArray[np.uint8]) -> np.uint64:
    """See statestore/changelog/partitioner.py; 32 bits in 64, as numba widens what it multiplies."""
    found = (_SEED ^ np.uint64(len(data))) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = np.uint64(0)
        for byte in range(4):
            word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        word = (word * _MULTIPLIER) & _MASK
        word = ((word ^ (word >> np.uint64(24))) * _MULTIPLIER) & _MASK
        found = ((found * _MULTIPLIER) & _MASK) ^ word
    if whole < len(data):
        for byte in range(len(data) - whole):
            found ^= np.uint64(data[whole + byte]) << np.uint64(8 * byte)
        found = (found * _MULTIPLIER) & _MASK
    found = ((found ^ (found >> np.uint64(13))) * _MULTIPLIER) & _MASK
    return found ^ (found >> np.uint64(15))
