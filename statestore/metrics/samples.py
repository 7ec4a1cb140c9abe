"""What a report says, as samples of metrics; and samples of tasks as one for each store.

A catalogue may have 10,000 store partitions. At recording level INFO the number of values grows with the stores, not
with their partitions: which partition it is, the report tells. From DEBUG on there is a value for each task.

What is counted by a status, an outcome or a verdict has a value for each of them, also zero: a status that nothing has
any more would otherwise look as it was before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from statestore.metrics import table
from statestore.metrics.table import Metric
from statestore.reports import (
    AnyReport,
    DrillReport,
    DrillStanding,
    Loss,
    MaintenanceReport,
    ProcessReport,
    ProcessRow,
    RestoreReport,
    RestoreRow,
    SnapshotReport,
    SnapshotRow,
    Status,
    SurveyReport,
    ValidatedStore,
    ValidateReport,
    VerifyReport,
    VerifyRow,
)

_NS_PER_MS = 1_000_000


class Sample(NamedTuple):
    """One value of a metric, of one task or of none.

    Attributes
    ----------
    attributes
        Values of the metric's attributes, in their order.
    scope
        Kafka Streams' scope of the store, for the metric's attribute `STATE_ID`.
    """

    metric: Metric
    value: float
    attributes: tuple[str, ...]
    task: str | None = None
    scope: str = ""


class Point(NamedTuple):
    """One value to export."""

    metric: Metric
    value: float
    attributes: Mapping[str, str]


def points(samples: Iterable[Sample], *, by_task: bool) -> list[Point]:
    """Make one value of those that have the same attributes.

    Parameters
    ----------
    by_task
        The recording level is DEBUG: keep tasks apart where the metric may, and add the metrics of this level.
    """
    found: dict[tuple[Metric, tuple[str, ...], str | None, str], list[Sample]] = {}
    for sample in samples:
        if by_task or sample.metric.level == "INFO":
            task = sample.task if by_task and sample.metric.by_task else None
            found.setdefault((sample.metric, sample.attributes, task, sample.scope), []).append(sample)
    return [
        Point(
            metric,
            _folded(metric, group),
            # A run that has no application has no such attribute.
            {
                name.replace(table.STATE_ID, f"{scope}-state-id"): value
                for name, value in zip(metric.attributes, attributes, strict=True)
                if value
            }
            | ({} if task is None else {table.TASK: task}),
        )
        for (metric, attributes, task, scope), group in found.items()
    ]


def _folded(metric: Metric, samples: Sequence[Sample]) -> float:
    values = [sample.value for sample in samples]
    match metric.fold:
        case "sum":
            return sum(values)
        case "min":
            return min(values)
        case "max":
            return max(values)


def of_end(job: str, applications: Sequence[str], exit_code: int, ended_ms: int) -> Iterator[Sample]:
    """Return what is known of a run that may have left no report."""
    for application in applications or ("",):
        yield Sample(table.JOB_END_TIME, ended_ms / 1000, (job, application))
        yield Sample(table.JOB_EXIT_CODE, exit_code, (job, application))


def of_report(report: AnyReport) -> Iterator[Sample]:
    """Return what a report says."""
    of_cluster = ("",) if isinstance(report, SurveyReport) or not report.applications else ()
    for application in (*of_cluster, *report.applications):
        # Rows of maintenance are of places, not of applications.
        own = [row for row in report.rows if getattr(row, "application", application) == application]
        yield Sample(table.JOB_DURATION, report.seconds, (report.job, application))
        yield Sample(table.JOB_FINDINGS, sum(not row.healthy for row in own), (report.job, application))
    match report:
        case ProcessReport():
            yield from _of_process(report.rows)
        case VerifyReport():
            yield from _of_verify(report.rows)
        case RestoreReport():
            yield from _of_restore(report.rows)
        case ValidateReport():
            yield from _of_validate(report.stores)
        case SnapshotReport():
            for row in report.rows:
                published = row.snapshot is not None and row.failure is None
                yield from _of_snapshot("snapshot", row.application, row.store, published, row.bytes)
        case DrillReport():
            yield from _of_drill(report)
        case MaintenanceReport():
            removed = 0 if report.dry_run else sum(row.removed_bytes for row in report.rows)
            yield Sample(table.MAINTENANCE_REMOVED, removed, ())


def counted(metric: Metric, rows: Iterable[Any], field: str, values: Iterable[str]) -> Iterator[Sample]:
    """Count the rows of each store by the value of a field, with a zero for each value that none has."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    every = [str(value) for value in values]
    for row in rows:
        found = counts.setdefault((row.application, row.store), dict.fromkeys(every, 0))
        value = getattr(row, field)
        if value is not None:
            found[str(value)] += 1
    for store, found in counts.items():
        for value, count in found.items():
            yield Sample(metric, count, (*store, value))


def _of_process(rows: Sequence[ProcessRow]) -> Iterator[Sample]:
    for row in rows:
        of = (row.application,)
        skipped = {
            "late": row.late_records,
            "dropped": row.dropped_records,
            "poison": row.poison_records,
            "expired": row.never_read,
        }
        yield Sample(table.PROCESS_RECORDS, row.records_in, of, row.task)
        for reason, records in skipped.items():
            yield Sample(table.PROCESS_SKIPPED, records, (*of, reason))
        if row.lag is not None:
            yield Sample(table.PROCESS_LAG, row.lag, of, row.task)
        for store in row.stores:
            yield Sample(table.PROCESS_RESTORED, store.restored, (row.application, store.store), row.task)
            if not store.scope:  # an idle task has opened no store
                continue
            tags = row.application, store.store, table.GROUP, store.thread, store.store
            for metric, value in (
                (table.COMMIT_RATE, store.commits / row.process_seconds if row.process_seconds else 0.0),
                (table.COMMIT_LATENCY_AVG, store.commit_latency_avg_ms * _NS_PER_MS),
                (table.COMMIT_LATENCY_MAX, store.commit_latency_max_ms * _NS_PER_MS),
            ):
                yield Sample(metric, value, tags, row.task, store.scope)
        for snapshot in row.snapshots:
            yield from _of_published("process", row.application, snapshot.store, snapshot)


def _of_verify(rows: Sequence[VerifyRow]) -> Iterator[Sample]:
    yield from counted(table.STORE_PARTITIONS, rows, "status", Status)
    yield from counted(table.STORE_LOSS, rows, "loss", Loss)
    for row in rows:
        of = (row.application, row.store)
        if row.lag is not None:
            yield Sample(table.STORE_LAG, row.lag, of, row.task)
        if row.keys is not None:
            yield Sample(table.STORE_ROWS, row.keys, of, row.task)
        if row.contents is not None:
            yield Sample(table.STORE_DIFFERING, row.contents.differing, of, row.task)
        if row.live:
            yield Sample(table.STORE_KILL_RISK, bool(row.kill_risk), of, row.task)
            if row.disk_lag is not None:
                yield Sample(table.STORE_DISK_LAG, row.disk_lag, of, row.task)
        if (point := row.restore_point) is not None:
            yield Sample(table.SNAPSHOT_MISSING, not point.usable, of, row.task)
            if point.usable:
                yield Sample(table.SNAPSHOT_LAG, point.offsets, of, row.task)
                if point.written_ms is not None:
                    yield Sample(table.SNAPSHOT_TIME, point.written_ms / 1000, of, row.task)


def _of_restore(rows: Sequence[RestoreRow]) -> Iterator[Sample]:
    yield from counted(
        table.RESTORE_PARTITIONS, rows, "outcome", get_args(RestoreRow.model_fields["outcome"].annotation)
    )
    for row in rows:
        yield from of_ended_restore((row.application, row.store), row.task, row.records, row.seconds)
        if row.published is not None:
            yield from _of_published("restore", row.application, row.store, row.published)


def of_ended_restore(store: tuple[str, str], task: str, records: int, seconds: float) -> Iterator[Sample]:
    """Return what is known of one store partition that was restored or warmed: nothing is left of it."""
    yield Sample(table.RESTORE_RECORDS, records, store, task)
    yield Sample(table.RESTORE_DURATION, seconds, store, task)
    yield Sample(table.RESTORE_REMAINING, 0, store, task)
    yield Sample(table.RESTORE_FETCHING, 0, store, task)


def _of_validate(stores: Sequence[ValidatedStore]) -> Iterator[Sample]:
    verdicts = get_args(ValidatedStore.model_fields["verdict"].annotation)
    yield from counted(table.VALIDATE_STORES, stores, "verdict", verdicts)
    for store in stores:
        yield Sample(table.VALIDATE_FAILED, len(store.failed_expectations), (store.application, store.store))


def _of_drill(report: DrillReport) -> Iterator[Sample]:
    yield from counted(table.DRILL_PARTITIONS, report.rows, "standing", get_args(DrillStanding))
    for row in report.rows:
        of = (row.application, row.store)
        yield Sample(table.DRILL_PROVEN_TIME, (row.proven_ms or 0) / 1000, of, row.task)
        if row.drilled_ms is not None:
            yield Sample(table.DRILL_DURATION, row.seconds, of, row.task)
    for found in report.confidence:
        yield Sample(table.DRILL_SHARE, found.share, (found.application,))
        if found.application_seconds is not None:
            yield Sample(table.DRILL_APPLICATION_DURATION, found.application_seconds, (found.application,))
    for head in report.evidence:
        yield Sample(table.DRILL_EVIDENCE, head.length, (head.application,))


def _of_published(job: str, application: str, store: str, row: SnapshotRow) -> Iterator[Sample]:
    published = row.snapshot is not None and row.failure is None
    yield from _of_snapshot(job, application, store, published, row.bytes)


def _of_snapshot(job: str, application: str, store: str, published: bool, bytes_: int) -> Iterator[Sample]:
    yield Sample(table.SNAPSHOT_PUBLISHED, published, (job, application, store))
    yield Sample(table.SNAPSHOT_UPLOADED, bytes_, (job, application, store))
