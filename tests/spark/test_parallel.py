"""Work in Spark tasks: what each of them is sent."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from jobs.parallel import run_each
from tests.spark.parcels import Parcel, Row, number_of


def test_each_spark_task_is_sent_its_own_spec_alone(spark: SparkSession, tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked"
    rows = run_each(spark, [Parcel(number, unpacked) for number in range(5)], number_of, Row)
    assert [row.number for row in rows] == list(range(5))
    assert sorted(unpacked.read_text(encoding="utf-8").split()) == ["0", "1", "2", "3", "4"]
