"""Makes the archive of the classes that Spark loads, which its JVMs then map (`statestore/cli/spark_jvm.py`).

Run `python -m demo.spark_classes` to make it for this environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from statestore.cli.spark_jvm import ARCHIVE, SHORT, SILENT, VARIABLE

#: Of the kind that suites have.
_SQL = """
    SELECT one.key, one.hashed FROM (SELECT key, sum(xxhash64(key, value)) AS hashed FROM rows GROUP BY key) AS one
    FULL OUTER JOIN (SELECT key, max(try_parse_json(CAST(value AS STRING)) IS NULL) AS odd FROM rows GROUP BY key
    HAVING count(*) > 1) AS other ON one.key = other.key WHERE NOT (one.key <=> other.key) ORDER BY one.key LIMIT 5
"""


def make_archive() -> None:
    """Run a query such as our jobs have, and keep the classes that were loaded."""
    made = ARCHIVE.with_suffix(f".{os.getpid()}")
    os.environ |= {
        VARIABLE: f"{SHORT} {SILENT} -XX:ArchiveClassesAtExit={made}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    _run_query()
    # A JVM that maps a file which is still being written crashes: it gets its name when it is whole.
    made.rename(ARCHIVE)


def _run_query() -> None:
    def unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return batches

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        spark.sparkContext.parallelize([1, 2], 2).map(str).foreachPartition(lambda _: None)
        rows = spark.createDataFrame(pa.table({"key": [b"a", b"b"], "value": [b"1", b"{}"], "time": [1, 2]}))
        read = rows.mapInArrow(unchanged, rows.schema).persist(StorageLevel.DISK_ONLY)
        read.groupBy("key").agg(F.count("*"), F.sum(F.octet_length("value"))).collect()
        read.createOrReplaceTempView("rows")
        both = read.alias("one").join(read.alias("other"), F.col("one.key") == F.col("other.key"), "full_outer")
        both.select("one.key", "other.value").persist(StorageLevel.DISK_ONLY).count()
        spark.sql(_SQL).collect()
    finally:
        spark.stop()
        gateway = spark.sparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()  # it writes the archive when it ends


if __name__ == "__main__":
    make_archive()
