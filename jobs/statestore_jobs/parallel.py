"""One Spark task per piece of work, which is sent this piece alone; one small row of JSON back from each.

Spark gives a job up with all its results when one of its tasks has lost its worker too often. Rows are therefore kept
as they come, and what is left is done in jobs of its own.

A Spark task may have been begun twice: after its executor was lost, or by `spark.speculation`, which our own sessions
switch off. The second attempt finds the first one's locks. It must not say so, because Spark takes the first answer of
the two and ends the other attempt: it waits, and if that takes too long the piece is done once more afterwards.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pydantic import TypeAdapter
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from statestore import errors
from statestore.errors import LockedError, StateStoreError, WorkerLostError
from statestore.reports import Status
from statestore.statedir.shared import Nonce, require_found
from statestore_jobs.placement import one_each

S = TypeVar("S")
M = TypeVar("M")
#: In the session's configuration: the nonce that each Spark task looks for before its work (`shared_state.py`).
NONCE = "statestore.nonce"
#: Spark tells which task it gave up in the message alone.
_GIVEN_UP = re.compile(r"Task (\d+) in stage")
#: An error of the work itself, which is a bug: Spark tells it with Python's traceback.
_RAISED = "org.apache.spark.api.python.PythonException"
#: For so long a second attempt waits for the locks of the first, s; and a new one for those of an attempt that Spark
#: has cancelled, whose worker it ends within 2 s.
_FIRST_ATTEMPT_S, _CANCELLED_S = 600.0, 10.0
_PAUSE_S = 1.0
_Kept = dict[int, str]


class _Union(AccumulatorParam[_Kept]):
    """Rows of Spark tasks by the number of their spec."""

    def zero(self, value: _Kept) -> _Kept:
        return {}

    def addInPlace(self, value1: _Kept, value2: _Kept) -> _Kept:
        value1.update(value2)
        return value1


def run_each(
    spark: SparkSession,
    specs: Sequence[S],
    work: Callable[[S], M],
    row_type: type[M],
    lost: Callable[[S, StateStoreError], M] | None = None,
    hosts: Sequence[str | None] = (),
) -> list[M]:
    """Run `work` on every spec, each in a Spark task of its own, and return the rows in the order of the specs.

    Parameters
    ----------
    row_type
        Type of the rows, which pydantic can write as JSON.
    lost
        Makes the row of a spec whose worker died too often; None if the caller has no use for the other rows.
    hosts
        Where each spec is best worked on, such as where its files are. Spark waits `spark.locality.wait` for a host
        that is busy, and does not wait for one that is gone.

    Raises
    ------
    StateStoreError
        The first that a Spark task raised, after all have ended.
    WorkerLostError
        If a worker died too often, and there is no `lost`.
    """
    if not specs:
        return []
    rows_as_json = TypeAdapter(row_type)
    results, died = _do_all(spark, specs, lambda spec: rows_as_json.dump_python(work(spec), mode="json"), hosts)
    rows = []
    for at, spec in enumerate(specs):
        if at not in results:
            error = WorkerLostError(
                f"the Python worker of Spark task {at} of {len(specs)} died, also when it ran alone: {died[at]}. "
                "Perhaps memory ran out: see the executor's log, and docs/operations.md, Sizing"
            )
            if lost is None:
                raise error
            rows.append(lost(spec, error))
            continue
        result = json.loads(results[at])
        if "error" in result:
            raise getattr(errors, result["error"], StateStoreError)(result["message"])
        rows.append(rows_as_json.validate_python(result["row"]))
    return rows


def _is_locked(found: object) -> bool:
    """Whether a result, or a row in it, says that somebody else holds its locks."""
    if isinstance(found, dict):
        said = LockedError.__name__ in (found.get("error"), found.get("kind")) or found.get("status") == Status.LOCKED
        return said or any(map(_is_locked, found.values()))
    return isinstance(found, list) and any(map(_is_locked, found))


def _do_all(
    spark: SparkSession, specs: Sequence[S], work: Callable[[S], Any], hosts: Sequence[str | None]
) -> tuple[Mapping[int, str], dict[int, str]]:
    """Return results by the number of their spec, and why the others have none."""
    told = spark.conf.get(NONCE, None)
    nonce = None if told is None else Nonce.model_validate_json(told)
    context = spark.sparkContext
    kept = context.accumulator({}, _Union())

    def done(spec: S) -> dict[str, Any]:
        try:
            if nonce is not None:
                require_found(nonce)
            return {"row": work(spec)}
        except StateStoreError as error:
            return {"error": error.kind, "message": str(error)}

    def job(numbers: Sequence[int], patience_s: float = _CANCELLED_S) -> str | None:
        """Do some; return why Spark gave up, if it did."""

        def run(mine: Iterable[tuple[int, S]]) -> None:
            task = TaskContext.get()
            second = task is not None and task.attemptNumber() > 0
            deadline, pause_s = time.monotonic() + (_FIRST_ATTEMPT_S if second else patience_s), _PAUSE_S
            for at, spec in mine:
                result = done(spec)
                while _is_locked(result) and time.monotonic() < deadline:
                    time.sleep(pause_s)  # Spark ends a second attempt when the first one is done
                    result, pause_s = done(spec), 2 * pause_s
                result["again"] = second and _is_locked(result)
                kept.add({at: json.dumps(result)})

        # What a closure holds would go to every Spark task.
        sliced = one_each(context, [(at, specs[at]) for at in numbers], [hosts[at] for at in numbers if hosts])
        try:
            sliced.foreachPartition(run)
        except Py4JJavaError as error:
            why = str(error.java_exception.getMessage())
            if _RAISED in why or context._jsc.sc().isStopped():
                raise
            return why
        return None

    died: dict[int, str] = {}
    left: Sequence[int] = range(len(specs))
    why = job(left, patience_s=0)
    while why is not None:
        given_up = _GIVEN_UP.search(why)
        without = [at for at in left if at not in kept.value]
        died |= dict.fromkeys(without if given_up is None else [left[int(given_up[1])]], why.partition("\n")[0])
        left = [at for at in without if at not in died]
        why = job(left) if left else None
    again = [at for at, result in kept.value.items() if json.loads(result).get("again")]
    # Perhaps it was the need of others for memory, or a first attempt that has ended by now.
    for at in (*died, *again):
        job([at])
    return kept.value, died
