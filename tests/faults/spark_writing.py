"""The driver of a job that writes a store: `spark-submit spark_writing.py <JSON>`, with mode, rows and options."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from statestore_jobs.sources.register import register


def main(asked: dict[str, Any]) -> None:
    """Write the rows."""
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    rows = [(key.encode(), value and value.encode(), asked["at"]) for key, value in asked["rows"].items()]
    frame = spark.createDataFrame(rows, "key binary, value binary, timestamp long").repartition(2)
    frame.write.format("state_store").options(**asked["options"]).mode(asked["mode"]).save()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
