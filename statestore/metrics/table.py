"""Every metric that a run exports: name, unit, description, attributes. docs/metrics.md has this table.

All are gauges. A run lasts for seconds and then is gone, so there is nobody to keep a counter that only grows: each
metric says how the last run found it or left it.

Names of Kafka Streams are Kafka's own (KIP-1035), the others begin with `statestore.` and follow OpenTelemetry's
conventions: units by UCUM, what is counted in braces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: How the figures of a store's tasks become one.
Fold = Literal["sum", "min", "max"]

APPLICATION = "application"
STORE = "store"
#: Of one task, such as 0_3; only from recording level DEBUG on.
TASK = "task-id"
JOB = "job-name"
#: The type of a store's metrics in Kafka Streams, and their tags in addition to the task. The last tag is named after
#: the store's scope (its kind and engine), such as rocksdb-window-state-id.
GROUP = "stream-state-metrics"
TYPE, THREAD, STATE_ID = "type", "thread-id", "<scope>-state-id"


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes
    ----------
    unit
        By UCUM; empty for a bare number.
    attributes
        What its values are told apart by, besides the task.
    by_task
        Whether there is a value for each task from recording level DEBUG on. At INFO there is one for all of them.
    fold
        How the one value is made of those of the tasks.
    level
        Recording level from which on the metric is exported.
    """

    name: str
    unit: str
    description: str
    attributes: tuple[str, ...]
    by_task: bool = False
    fold: Fold = "sum"
    level: Literal["INFO", "DEBUG"] = "INFO"


def _of_kafka_streams(name: str, unit: str, description: str) -> Metric:
    """Return a metric with the level DEBUG and the tags of Kafka Streams' stores (KIP-1035)."""
    return Metric(name, unit, description, (APPLICATION, STORE, TYPE, THREAD, STATE_ID), by_task=True, level="DEBUG")


_OF_JOB = (JOB, APPLICATION)
_OF_APPLICATION = (APPLICATION,)
_OF_STORE = (APPLICATION, STORE)

JOB_DURATION = Metric("statestore.job.duration", "s", "How long the last run took", _OF_JOB)
JOB_END_TIME = Metric("statestore.job.end_time", "s", "Unix time at which the last run ended", _OF_JOB)
JOB_EXIT_CODE = Metric("statestore.job.exit_code", "", "Exit code of the last run", _OF_JOB)
JOB_FINDINGS = Metric(
    "statestore.job.findings",
    "{finding}",
    "Rows of the last report that are not healthy: tasks or store partitions that failed, or are damaged",
    _OF_JOB,
)

PROCESS_RECORDS = Metric(
    "statestore.process.records", "{record}", "Input records that the last run processed", _OF_APPLICATION, by_task=True
)
PROCESS_LAG = Metric(
    "statestore.process.lag", "{record}", "Input records that the last run left unread", _OF_APPLICATION, by_task=True
)
PROCESS_SKIPPED = Metric(
    "statestore.process.skipped",
    "{record}",
    "Input records that changed no store: late, without a key or value (dropped), sent to the dead-letter topic "
    "(poison), or deleted by the topic before they were read (expired)",
    (APPLICATION, "reason"),
)
PROCESS_RESTORED = Metric(
    "statestore.process.restored",
    "{record}",
    "Changelog records that the last run replayed before it processed",
    _OF_STORE,
    by_task=True,
)
COMMIT_RATE = _of_kafka_streams("commit-rate", "1/s", "The average number of calls to commit per second")
COMMIT_LATENCY_AVG = _of_kafka_streams("commit-latency-avg", "ns", "The average latency of calls to commit")
COMMIT_LATENCY_MAX = _of_kafka_streams("commit-latency-max", "ns", "The maximum latency of calls to commit")

STORE_PARTITIONS = Metric(
    "statestore.store.partitions",
    "{partition}",
    "Store partitions by the status that the last verification gave them",
    (*_OF_STORE, "status"),
)
STORE_LOSS = Metric(
    "statestore.store.loss",
    "{partition}",
    "Store partitions by what a rebuild would lose",
    (*_OF_STORE, "loss"),
)
STORE_LAG = Metric(
    "statestore.store.lag",
    "{offset}",
    "Changelog offsets that the store had not applied at the last verification",
    _OF_STORE,
    by_task=True,
)
STORE_ROWS = Metric(
    "statestore.store.rows",
    "{row}",
    "Rows that the last verification read, at depth scan or deep",
    _OF_STORE,
    by_task=True,
)
STORE_DIFFERING = Metric(
    "statestore.store.differing",
    "{row}",
    "Rows that differed from the changelog at the last deep verification",
    _OF_STORE,
    by_task=True,
)
STORE_DISK_LAG = Metric(
    "statestore.store.disk.lag",
    "{offset}",
    "Changelog offsets that the files of a store in use did not have at the last verification",
    _OF_STORE,
    by_task=True,
)
STORE_KILL_RISK = Metric(
    "statestore.store.kill.risk",
    "{partition}",
    "Store partitions in use for which a kill would lose data or cost a full restore",
    _OF_STORE,
    by_task=True,
)

SNAPSHOT_TIME = Metric(
    "statestore.snapshot.time",
    "s",
    "Unix time at which the newest usable snapshot was written; of several tasks, the oldest",
    _OF_STORE,
    by_task=True,
    fold="min",
)
SNAPSHOT_LAG = Metric(
    "statestore.snapshot.lag",
    "{offset}",
    "Changelog offsets that a restore from the newest usable snapshot would read",
    _OF_STORE,
    by_task=True,
)
SNAPSHOT_MISSING = Metric(
    "statestore.snapshot.missing",
    "{partition}",
    "Store partitions without a usable snapshot, although there is an archive",
    _OF_STORE,
    by_task=True,
)
SNAPSHOT_PUBLISHED = Metric(
    "statestore.snapshot.published", "{snapshot}", "Snapshots that the last run published", (JOB, *_OF_STORE)
)
SNAPSHOT_UPLOADED = Metric(
    "statestore.snapshot.uploaded", "By", "Bytes that the last run uploaded for snapshots", (JOB, *_OF_STORE)
)

RESTORE_PARTITIONS = Metric(
    "statestore.restore.partitions",
    "{partition}",
    "Store partitions by what the last restore did with them",
    (*_OF_STORE, "outcome"),
)
RESTORE_RECORDS = Metric(
    "statestore.restore.records", "{record}", "Changelog records that the last restore applied", _OF_STORE, by_task=True
)
RESTORE_DURATION = Metric(
    "statestore.restore.duration",
    "s",
    "How long the last restore took; of several tasks, the longest",
    _OF_STORE,
    by_task=True,
    fold="max",
)
RESTORE_REMAINING = Metric(
    "statestore.restore.remaining",
    "{offset}",
    "Changelog offsets that a running restore has left to read; 0 after it",
    _OF_STORE,
    by_task=True,
)
RESTORE_FETCHING = Metric(
    "statestore.restore.fetching",
    "By",
    "Bytes of snapshots that a running restore has left to fetch; 0 after it",
    _OF_STORE,
    by_task=True,
)

WARM_PARTITIONS = Metric(
    "statestore.warm.partitions",
    "{partition}",
    "Store partitions by what the last `statestore warm` of this pod did with them",
    (*_OF_STORE, "outcome"),
)

VALIDATE_STORES = Metric(
    "statestore.validate.stores",
    "{store}",
    "1 for the verdict of the last validation, 0 for the others",
    (*_OF_STORE, "verdict"),
)
VALIDATE_FAILED = Metric(
    "statestore.validate.failed", "{expectation}", "Expectations that failed in the last validation", _OF_STORE
)

DRILL_PARTITIONS = Metric(
    "statestore.drill.partitions",
    "{partition}",
    "Store partitions by what the last restore drills show of them",
    (*_OF_STORE, "standing"),
)
DRILL_PROVEN_TIME = Metric(
    "statestore.drill.proven.time",
    "s",
    "Unix time at which a drill has last proven the store, 0 if none has; of several tasks, the oldest",
    _OF_STORE,
    by_task=True,
    fold="min",
)
DRILL_DURATION = Metric(
    "statestore.drill.duration",
    "s",
    "How long the restore of the last drill took; of several tasks, the longest",
    _OF_STORE,
    by_task=True,
    fold="max",
)
DRILL_SHARE = Metric(
    "statestore.drill.share",
    "1",
    "Share of the store partitions that are proven within their objectives",
    _OF_APPLICATION,
)
DRILL_APPLICATION_DURATION = Metric(
    "statestore.drill.application.duration",
    "s",
    "Estimated restore of all store partitions of the application",
    _OF_APPLICATION,
)
DRILL_EVIDENCE = Metric(
    "statestore.drill.evidence", "{document}", "Signed documents in the evidence of the application", _OF_APPLICATION
)

MAINTENANCE_REMOVED = Metric("statestore.maintenance.removed", "By", "Bytes that the last run removed", ())

TABLE: tuple[Metric, ...] = tuple(found for found in list(globals().values()) if isinstance(found, Metric))
