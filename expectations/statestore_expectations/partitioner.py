"""Kafka's default partitioner for columns of keys, as a function of Spark SQL: `kafka_partition(key, partitions)`.

A module of its own, because Spark's Python workers import it and need nothing else of this package.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.types import IntegerType

from statestore.changelog.partitioner import murmur2
from statestore.compiled.loops import compiled

_murmur2 = compiled(murmur2)


def register(spark: SparkSession) -> None:
    """Make `kafka_partition` known to a session."""
    spark.udf.register("kafka_partition", arrow_udf(partitions_of, IntegerType(), ArrowUDFType.SCALAR))


def partitions_of(keys: pa.Array, partitions: pa.Array) -> pa.Array:
    """Return the partition that a producer puts each key into; null for a null key."""
    found = np.zeros(len(keys), np.int32)
    if len(keys):
        keys = keys.cast(pa.large_binary())
        _, ends, data = keys.buffers()
        _partitions(
            np.frombuffer(data or b"", np.uint8),
            np.frombuffer(ends, np.int64)[keys.offset : keys.offset + len(keys) + 1],
            partitions.to_numpy(zero_copy_only=False).astype(np.int64),
            found,
        )
    return pa.array(found, mask=np.asarray(keys.is_null()))


@compiled
def _partitions(
    data: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    found: npt.NDArray[np.int32],
) -> None:
    for row in range(len(found)):
        found[row] = (_murmur2(data[ends[row] : ends[row + 1]]) & 0x7FFFFFFF) % counts[row]
