"""Judging one store: its frames, its suite, its plots, and the verdict as JSON beside the Data Docs.

<data_docs_dir>/plots/<application>.<store>/*.svg                  of the last validation
<data_docs_dir>/verdicts/<application>.<store>/<run id>.json       one for each validation
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.exceptions import GreatExpectationsError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from statestore_expectations.runner import Verdict, validate_store

from statestore.changelog.topics import Topics
from statestore.definitions.application import ApplicationDefinition
from statestore.durable import write_durably
from statestore.errors import RetryError, StateStoreError, of_os_error
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import ValidatedStore
from statestore_jobs.frames import Frames, compared_frames
from statestore_jobs.plots import draw_all, histogram_of, lag_history

#: What may keep one store from being judged.
_TROUBLE = (StateStoreError, OSError, PySparkException, Py4JError, GreatExpectationsError)


@dataclass(frozen=True)
class Judged:
    """What was found of a store.

    Attributes
    ----------
    keys
        Its rows by partition; none are known of a store that could not be read.
    retry
        Why it could not be judged now, if it may be later.
    """

    store: ValidatedStore
    keys: Mapping[int, int]
    retry: RetryError | None = None


@dataclass(frozen=True)
class Judge:
    """Judges one store after the other: a Spark session has one set of views.

    Attributes
    ----------
    run_id
        Names the run in the Data Docs.
    reports_dir
        Where the history of verifications is.
    """

    spark: SparkSession
    topics: Topics
    run_id: str
    data_docs_dir: Path
    reports_dir: Path

    def store(
        self, application: ApplicationDefinition, specs: Sequence[StorePartitionSpec], suite: ExpectationSuite
    ) -> Judged:
        """Judge a store by its suite; what keeps it from being judged is a verdict, too, so that others get theirs.

        Parameters
        ----------
        specs
            Its partitions.
        """
        began = time.monotonic()
        verdict, frames, retry = _not_judged(""), None, None
        plots: tuple[Path, ...] = ()
        try:
            with compared_frames(self.spark, self.topics, specs) as found:
                if isinstance(found, str):
                    verdict = _not_judged(found)
                else:
                    frames = found
                    verdict = self._verdict(application, specs[0], frames, suite)
                    verdict, plots = self._drawn(specs[0], frames, verdict)
        except ConnectionError:  # Spark itself is gone, and with it the run
            raise
        except _TROUBLE as error:
            verdict = _not_judged(described(error))
            retry = error if isinstance(error, RetryError) else None
        keys = {} if frames is None else {partition: size.keys for partition, size in frames.sizes.items()}
        path = self.data_docs_dir / "verdicts" / _name(specs[0]) / f"{self.run_id}.json"
        judged = ValidatedStore(
            application=specs[0].application,
            store=specs[0].store.name,
            verdict=verdict.verdict,
            expectations=verdict.expectations,
            failed_expectations=verdict.failed,
            failed_rows=verdict.failed_rows,
            detail=verdict.detail,
            keys=sum(keys.values()),
            not_compared=0 if frames is None else frames.unknown,
            seconds=round(time.monotonic() - began, 3),
            data_docs=str(verdict.data_docs) if verdict.data_docs else None,
            verdict_file=str(path),
            plots=tuple(str(plot) for plot in plots),
        )
        try:
            write_durably(path, judged.model_dump_json(indent=1) + "\n")
        except OSError as error:  # where no verdict can be kept, none is asked for
            raise of_os_error(error) from error
        return Judged(judged, keys, retry)

    def _verdict(
        self, application: ApplicationDefinition, spec: StorePartitionSpec, frames: Frames, suite: ExpectationSuite
    ) -> Verdict:
        verdict = validate_store(
            self.spark,
            frames.store,
            frames.log,
            suite,
            run_id=self.run_id,
            data_docs_dir=self.data_docs_dir,
            comparison=frames.comparison,
            parameters=parameters_of(application, spec, frames),
        )
        if frames.ahead:
            worst = "failed" if verdict.verdict == "passed" else verdict.verdict
            verdict = replace(verdict, verdict=worst, failed=(*verdict.failed, *frames.ahead))
        if frames.unknown:
            said = f"{frames.unknown} keys were not compared: the log no longer tells what they should be"
            verdict = _saying(verdict, said)
        return verdict

    def _drawn(self, spec: StorePartitionSpec, frames: Frames, verdict: Verdict) -> tuple[Verdict, tuple[Path, ...]]:
        """Draw the plots; what keeps them from being drawn is said, and changes nothing in the verdict."""
        name = _name(spec)
        try:
            lags = lag_history(self.reports_dir, spec.application, spec.store.name)
            directory = self.data_docs_dir / "plots" / name
            return verdict, draw_all(directory, name, frames.sizes, histogram_of(frames.store), lags)
        except (*_TROUBLE, pa.ArrowException, ValueError, OverflowError) as error:  # also of a damaged history
            said = f"plots could not be drawn: {described(error)}"
            return _saying(verdict, said), ()


def parameters_of(application: ApplicationDefinition, spec: StorePartitionSpec, frames: Frames) -> dict[str, object]:
    """What suites may refer to as `{"$PARAMETER": ...}`, besides what is counted in the log."""
    store = spec.store
    windows = next((found.windows for found in application.aggregations if found.store == store.name), None)
    found: dict[str, object | None] = {
        "partitions": spec.changelog.partitions if spec.changelog else None,
        "retention_ms": store.retention_ms,
        "window_size_ms": store.window_size_ms,
        "window_advance_ms": windows.step_ms if windows else None,
        # Of a log without a record nothing has expired.
        "stream_time": (-1 if frames.stream_time is None else frames.stream_time) if store.segmented else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def described(error: Exception) -> str:
    """Describe an error in a line or two."""
    if isinstance(error, OSError):
        error = of_os_error(error)
    if isinstance(error, StateStoreError):
        return f"{error.kind}: {error}"
    # It comes through the JVM with two stack traces: what Python raised, last.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception): ", line)]
    return (raised or lines or [type(error).__name__])[-1]


def _saying(verdict: Verdict, said: str) -> Verdict:
    return replace(verdict, detail="; ".join(filter(None, [verdict.detail, said])))


def _not_judged(detail: str) -> Verdict:
    return Verdict("error", 0, (), detail, None)


def _name(spec: StorePartitionSpec) -> str:
    return f"{spec.application}.{spec.store.name}"
