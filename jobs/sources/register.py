"""Makes the data sources of this package known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from jobs.sources.changelog import ChangelogDataSource
from jobs.sources.state_store import StateStoreDataSource
from jobs.sources.state_store_metadata import StateStoreMetadataDataSource


def register(spark: SparkSession) -> None:
    """Let `spark.read.format` find `state_store`, `state_store_metadata` and `changelog`."""
    for source in (StateStoreDataSource, StateStoreMetadataDataSource, ChangelogDataSource):
        spark.dataSource.register(source)
