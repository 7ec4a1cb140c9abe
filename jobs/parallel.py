"""One Spark task per piece of work, one small row of JSON back from each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pydantic import BaseModel
from pyspark.sql import SparkSession

from statestore import errors
from statestore.errors import StateStoreError

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)


def run_each(spark: SparkSession, specs: Sequence[S], work: Callable[[S], M], row_type: type[M]) -> list[M]:
    """Run `work` on every spec, each in a Spark task of its own, and return the rows in the order of the specs.

    Raises
    ------
    StateStoreError
        The first that a Spark task raised, after all have ended.
    """
    if not specs:
        return []
    everything = tuple(specs)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                try:
                    result = {"row": work(everything[index]).model_dump(mode="json")}
                except StateStoreError as error:
                    result = {"error": error.kind, "message": str(error)}
                yield pa.record_batch({"spec": [index], "result": [json.dumps(result)]})

    # range() puts exactly one number into each of as many partitions.
    placed = spark.range(0, len(everything), 1, numPartitions=len(everything))
    collected = placed.mapInArrow(run, "spec long, result string").collect()
    results = [json.loads(row.result) for row in sorted(collected, key=lambda row: row.spec)]
    for result in results:
        if "error" in result:
            raise getattr(errors, result["error"], StateStoreError)(result["message"])
    return [row_type.model_validate(result["row"]) for result in results]
