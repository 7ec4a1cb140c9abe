"""Makes the data sources of this package known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from statestore_jobs.sources.changelog import ChangelogDataSource
from statestore_jobs.sources.state_store import StateStoreDataSource
from statestore_jobs.sources.state_store_metadata import StateStoreMetadataDataSource


def register(spark: SparkSession) -> None:
    """Let `spark.read.format` find `state_store`, `state_store_metadata`, and `changelog`."""
    for source in (StateStoreDataSource, StateStoreMetadataDataSource, ChangelogDataSource):
        spark.dataSource.register(source)
