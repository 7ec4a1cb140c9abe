"""Why no source of ours takes filters: Spark hands what one query of a frame left out to the next query of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

_SETTING = "spark.sql.python.filterPushdown.enabled"


@pytest.mark.long
def test_a_filter_that_was_pushed_down_stays_for_all_queries_of_a_frame(spark: SparkSession) -> None:
    """If this fails, Spark has mended it, and `state_store` may take filters (docs/decisions.md)."""

    class Reader(DataSourceReader):
        left_out = False

        def pushFilters(self, filters: list[Filter]) -> list[Filter]:
            self.left_out = True
            return filters

        def read(self, partition: InputPartition | None) -> Iterator[tuple[int]]:
            yield (1,)
            if not self.left_out:
                yield (2,)

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "two_numbers"

        def schema(self) -> str:
            return "number INT"

        def reader(self, schema: StructType) -> Reader:
            return Reader()

    spark.dataSource.register(Numbers)
    spark.conf.set(_SETTING, "true")
    try:
        frame = spark.read.format("two_numbers").load()
        assert frame.count() == 2
        assert frame.filter("number = 1").count() == 1
        assert frame.count() == 1, "it has two rows"
    finally:
        spark.conf.unset(_SETTING)
