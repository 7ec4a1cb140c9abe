"""Kafka's default partitioner for columns of keys, as a function of Spark SQL: `kafka_partition(key, partitions)`.

A module of its own, because Spark's Python workers import it and need nothing else of this package.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.types import IntegerType

from statestore.kafka.key_partitions import partitions_of_keys


def register(spark: SparkSession) -> None:
    """Make `kafka_partition` known to a session."""
    spark.udf.register("kafka_partition", arrow_udf(partitions_of, IntegerType(), ArrowUDFType.SCALAR))


def partitions_of(keys: pa.Array, partitions: pa.Array) -> pa.Array:
    """Return the partition that a producer puts each key into; null for a null key."""
    found = partitions_of_keys(keys, partitions.to_numpy(zero_copy_only=False).astype(np.int64))
    return pa.array(found, pa.int32(), mask=np.asarray(keys.is_null()))
