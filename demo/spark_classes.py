"""An archive of the classes that Spark loads, which its JVMs then map instead of loading them one by one.

Much of a short job's time goes into loading and checking some 15,000 classes. Java's class data sharing keeps them in
a file (JEP 350). `demo/environment.sh` makes it once for each environment; a JVM whose class path or version differs
does without it.

    python -m demo.spark_classes        make the archive
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

#: Jobs of seconds: compiling them thoroughly costs more than it gains.
SHORT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
#: A JVM that cannot use an archive warns of it on standard output, where programs expect other things.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def spark_jvm() -> str:
    """Return the JVM options (SPARK_SUBMIT_OPTS) for short Spark jobs of this environment."""
    # A JVM that is told of a file that does not exist shares no classes at all, not even Java's own.
    return f"{SHORT_JVM} {_SILENT} -XX:SharedArchiveFile={_ARCHIVE}" if _ARCHIVE.exists() else SHORT_JVM


def make_archive() -> None:
    """Run a query such as our jobs have, and keep the classes that were loaded."""
    made = _ARCHIVE.with_suffix(f".{os.getpid()}")
    os.environ |= {
        "SPARK_SUBMIT_OPTS": f"{SHORT_JVM} {_SILENT} -XX:ArchiveClassesAtExit={made}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    _run_query()
    # A JVM that maps a file which is still being written crashes: it gets its name when it is whole.
    made.rename(_ARCHIVE)


def _run_query() -> None:
    # Seconds, which who asks for `spark_jvm` need not spend.
    import pyarrow as pa
    from pyspark import StorageLevel
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

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
    finally:
        spark.stop()
        gateway = spark.sparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()  # it writes the archive when it ends


if __name__ == "__main__":
    make_archive()
