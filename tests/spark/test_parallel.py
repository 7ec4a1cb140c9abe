"""Work in Spark tasks: what each of them is sent."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from statestore_jobs.parallel import run_each

from statestore.errors import StateStoreError, WorkerLostError
from tests.spark.parcels import Parcel, Row, die_at_2, die_once_at_2, number_of


def test_each_spark_task_is_sent_its_own_spec_alone(spark: SparkSession, tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked"
    rows = run_each(spark, [Parcel(number, unpacked) for number in range(5)], number_of, Row)
    assert [row.number for row in rows] == list(range(5))
    assert sorted(unpacked.read_text(encoding="utf-8").split()) == ["0", "1", "2", "3", "4"]


def test_a_worker_that_dies_each_time_costs_its_own_row_alone(spark: SparkSession, tmp_path: Path) -> None:
    told: list[StateStoreError] = []

    def lost(_: Parcel, error: StateStoreError) -> Row:
        told.append(error)
        return Row(number=-1)

    parcels = [Parcel(number, tmp_path / "unpacked") for number in range(5)]
    rows = run_each(spark, parcels, die_at_2, Row, lost)
    assert [row.number for row in rows] == [0, 1, -1, 3, 4]
    assert [type(error) for error in told] == [WorkerLostError]
    assert "Spark task 2 of 5 died" in str(told[0])
    with pytest.raises(WorkerLostError, match="died, also when it ran alone"):
        run_each(spark, parcels, die_at_2, Row)


@pytest.mark.long
def test_a_worker_that_dies_beside_others_is_tried_again_alone(spark: SparkSession, tmp_path: Path) -> None:
    parcels = [Parcel(number, tmp_path / "unpacked") for number in range(5)]
    rows = run_each(spark, parcels, die_once_at_2, Row)
    assert [row.number for row in rows] == list(range(5))
    assert (tmp_path / "unpacked").read_text(encoding="utf-8").split().count("2") > 1


def test_a_task_does_not_search_all_that_its_process_was_forked_with_for_garbage(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: gc.get_freeze_count()).first() > 100_000
