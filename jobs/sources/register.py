"""Makes the data sources of this package known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from jobs.sources.changelog import ChangelogDataSource
from jobs.sources.state_store import StateStoreDataSource


def register(spark: SparkSession) -> None:
    """Let `spark.read.format` find `state_store` and `changelog`."""
    spark.dataSource.register(StateStoreDataSource)
    spark.dataSource.register(ChangelogDataSource)
