"""One Spark task per piece of work, which is sent this piece alone; one small row of JSON back from each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pydantic import BaseModel
from pyspark.sql import SparkSession

from statestore import errors
from statestore.errors import StateStoreError
from statestore.statedir.shared import Nonce, require_found

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)
#: In the session's configuration: the nonce that each Spark task looks for before its work (`shared_state.py`).
NONCE = "statestore.nonce"


def run_each(spark: SparkSession, specs: Sequence[S], work: Callable[[S], M], row_type: type[M]) -> list[M]:
    """Run `work` on every spec, each in a Spark task of its own, and return the rows in the order of the specs.

    Raises
    ------
    StateStoreError
        The first that a Spark task raised, after all have ended.
    """
    if not specs:
        return []
    told = spark.conf.get(NONCE, None)
    nonce = None if told is None else Nonce.model_validate_json(told)

    def run(mine: Iterator[S]) -> Iterator[str]:
        for spec in mine:
            try:
                if nonce is not None:
                    require_found(nonce)
                result = {"row": work(spec).model_dump(mode="json")}
            except StateStoreError as error:
                result = {"error": error.kind, "message": str(error)}
            yield json.dumps(result)

    # As many slices as specs: one in each, and in their order. What a closure holds would go to every Spark task.
    sliced = spark.sparkContext.parallelize(list(specs), len(specs))
    results = [json.loads(result) for result in sliced.mapPartitions(run).collect()]
    for result in results:
        if "error" in result:
            raise getattr(errors, result["error"], StateStoreError)(result["message"])
    return [row_type.model_validate(result["row"]) for result in results]
