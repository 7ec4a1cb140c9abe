"""Checks that all executors share the driver's state directory, before a job's work and in each Spark task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from statestore.config import Settings
from statestore.statedir.shared import Nonce, left_nonce, try_out
from statestore_jobs.parallel import NONCE, run_each


@contextmanager
def state_of(spark: SparkSession, settings: Settings) -> Iterator[SparkSession]:
    """Make sure that all Spark tasks see one state directory, unless each node has its own."""
    with shared_state(spark, None if settings.node_local_state else settings.state_dir):
        yield spark


@contextmanager
def shared_state(spark: SparkSession, state_dir: Path | None) -> Iterator[SparkSession]:
    """Leave a nonce in the state directory for all Spark tasks that `run_each` begins meanwhile.

    As many tasks as there are cores look for it first. Spark gives one to each free core, so each executor that is
    there is asked. One that comes later is asked by its own work.

    Parameters
    ----------
    state_dir
        None: each node has its own.

    Raises
    ------
    UnsharedStateError
        If an executor does not find the nonce, or has no locks or hard links there. No work has begun.
    """
    if state_dir is None:
        yield spark
        return
    with left_nonce(state_dir.absolute()) as nonce:
        run_each(spark, [nonce] * spark.sparkContext.defaultParallelism, _try_out, str)
        spark.conf.set(NONCE, nonce.model_dump_json())
        try:
            yield spark
        finally:
            spark.conf.unset(NONCE)


def _try_out(nonce: Nonce) -> str:
    try_out(nonce)
    return nonce.host
