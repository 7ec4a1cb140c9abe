"""Validates one store: its frames, its suite, its plots, and the verdict as JSON next to the Data Docs.

<data_docs_dir>/plots/<application>.<store>/*.svg                  of the last validation
<data_docs_dir>/verdicts/<application>.<store>/<run id>.json       one for each validation

In object storage lie the pages of the Data Docs, but not what Great Expectations makes their index from: the page in
Airflow has an index of its own, made from the verdicts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.exceptions import GreatExpectationsError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from statestore_expectations.runner import Verdict, validate_store
from statestore_expectations.suites import suite_sha256

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import RetryError, StateStoreError, of_os_error
from statestore.kafka.topics import Topics
from statestore.objects.path import Location, ObjectPath, listing, write_whole
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import ValidatedStore
from statestore_jobs.frames import Frames, NoFrames, compared_frames
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
    data_docs_dir: Location
    reports_dir: Location

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
        verdict, frames, retry = _unreadable(""), None, None
        plots: tuple[Location, ...] = ()
        try:
            with compared_frames(self.spark, self.topics, specs) as found:
                if isinstance(found, NoFrames):
                    verdict = Verdict(found.verdict, 0, (), found.why, None)
                else:
                    frames = found
                    with self._on_disk(specs[0]) as docs:
                        verdict = self._verdict(application, specs[0], frames, suite, docs)
                        verdict, plots = self._drawn(specs[0], frames, verdict, docs)
        except ConnectionError:  # Spark itself is gone, and with it the run
            raise
        except _TROUBLE as error:
            verdict = _unreadable(described(error))
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
            differs=verdict.differs,
            detail=verdict.detail,
            keys=sum(keys.values()),
            not_compared=0 if frames is None else frames.unknown,
            suite_sha256=suite_sha256(suite),
            seconds=round(time.monotonic() - began, 3),
            data_docs=str(verdict.data_docs) if verdict.data_docs else None,
            verdict_file=str(path),
            plots=tuple(str(plot) for plot in plots),
        )
        try:
            write_whole(path, judged.model_dump_json(indent=1) + "\n")
        except OSError as error:  # where no verdict can be kept, none is asked for
            raise of_os_error(error) from error
        return Judged(judged, keys, retry)

    @contextmanager
    def _on_disk(self, spec: StorePartitionSpec) -> Iterator[Path]:
        """Give a directory to write Data Docs and plots into; afterwards they are where they belong."""
        if not isinstance(self.data_docs_dir, ObjectPath):
            yield self.data_docs_dir
            return
        with TemporaryDirectory(prefix="statestore-data-docs-") as name:
            yield Path(name)
            send_docs(Path(name), self.data_docs_dir, f"plots/{_name(spec)}")

    def _place(self, path: Path, docs: Path) -> Location:
        """Return where a file that was made on this disk belongs."""
        return self.data_docs_dir / path.relative_to(docs).as_posix() if docs != self.data_docs_dir else path

    def _verdict(
        self,
        application: ApplicationDefinition,
        spec: StorePartitionSpec,
        frames: Frames,
        suite: ExpectationSuite,
        docs: Path,
    ) -> Verdict:
        verdict = validate_store(
            self.spark,
            frames.store,
            frames.log,
            suite,
            run_id=self.run_id,
            data_docs_dir=docs,
            comparison=frames.comparison,
            parameters=parameters_of(application, spec, frames),
        )
        if isinstance(verdict.data_docs, Path):
            verdict = replace(verdict, data_docs=self._place(verdict.data_docs, docs))
        if frames.ahead:
            worst = "failed" if verdict.verdict == "passed" else verdict.verdict
            verdict = replace(verdict, verdict=worst, failed=(*verdict.failed, *frames.ahead), differs=True)
        if frames.unknown:
            said = f"{frames.unknown} keys were not compared: the log no longer tells what they should be"
            verdict = _saying(verdict, said)
        return verdict

    def _drawn(
        self, spec: StorePartitionSpec, frames: Frames, verdict: Verdict, docs: Path
    ) -> tuple[Verdict, tuple[Location, ...]]:
        """Draw the plots; what keeps them from being drawn is said, and changes nothing in the verdict."""
        name = _name(spec)
        try:
            lags = lag_history(self.reports_dir, spec.application, spec.store.name)
            histogram = histogram_of(frames.store, frames.sizes.values())
            drawn = draw_all(docs / "plots" / name, name, frames.sizes, histogram, lags)
            return verdict, tuple(self._place(plot, docs) for plot in drawn)
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
        "segment_interval_ms": store.store_kind.segment_interval_ms(store),
        "window_size_ms": store.window_size_ms,
        "window_advance_ms": windows.step_ms if windows else None,
        # Of a log without a record nothing has expired.
        "stream_time": (-1 if frames.stream_time is None else frames.stream_time) if store.segmented else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def send_docs(made: Path, target: ObjectPath, plots: str) -> None:
    """Send what a validation has made to object storage: pages, plots, and once what all pages share.

    Parameters
    ----------
    plots
        Directory of the store's plots; those of an earlier validation are removed.
    """
    names = sorted(path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file())
    names = [name for name in names if not name.startswith(".") and name != "index.html"]
    shared = [name for name in names if name.startswith("static/")]
    if shared and (target / shared[-1]).exists():  # the last one that is sent
        names = [name for name in names if name not in shared]
    for name in names:
        (target / name).write_bytes((made / name).read_bytes())
    for old in listing(target, f"{plots}/*.svg"):
        if not (made / plots / old.name).exists():
            old.unlink()


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


def _unreadable(detail: str) -> Verdict:
    return Verdict("error", 0, (), detail, None)


def _name(spec: StorePartitionSpec) -> str:
    return f"{spec.application}.{spec.store.name}"
