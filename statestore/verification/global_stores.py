"""Verifies a global store: one database with all partitions of a topic of another owner.

It differs from a task's store in three ways, as in Kafka Streams 4.3. The offset that it keeps for a partition is the
next to read, not the last applied. Records to read are no damage: others write the topic, and Kafka Streams reads on at
its next start. And a global store that is lost is filled from the topic then.

There are two sorts, and nothing in their directories tells them apart. A global table has the rows of its topic. A
global store with a processor of the application's has what that makes of them, so no comparison can tell whether it is
right, and no rebuild from bytes gives it (KAFKA-7663). Rows that are those of the topic show a table. Otherwise
somebody who knows the topology must say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from statestore.changelog import brokers_clock
from statestore.discovery.changelogs import log_ranges
from statestore.errors import (
    InputError,
    LockedError,
    StoreBehindLogStartError,
    StoreCorruptedError,
    StoreUncleanError,
    UnknownFormatError,
    WrongStoreError,
    of_os_error,
    unreadable_is_damaged,
)
from statestore.kafka.reader import first_offset
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.partition.facts import NO_ARCHIVE, NO_LOG, DiskFacts, Facts, LogFacts, RebuildLoss, of_log
from statestore.partition.plan import what_decides
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict, locked, with_loss
from statestore.reports import Contents, Loss, Status, VerifyRow
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.record import read_record, topic_id_of
from statestore.stores.open import opened
from statestore.verification.global_contents import compare_global
from statestore.verification.options import VerifyOptions
from statestore.verification.report_row import report_row, under_lock

_REFILLED = "remove its directory, and Kafka Streams fills it from the topic at its next start"
_SCAN = VerifyOptions()
_NOT_FROM_BYTES = "a processor of the application fills it, so its rows are not compared with its topic's"
_ATTEMPTS = 3


def verify_global(spec: StorePartitionSpec, options: VerifyOptions = _SCAN) -> VerifyRow:
    """Lock the global stores, read every row, and compare the offsets with the topic's. Nothing is changed.

    Depth `deep` compares the rows with the topic's, too, unless a processor fills the store.

    Raises
    ------
    KafkaUnavailableError
        If Kafka cannot be asked: that says nothing about the store.
    """
    started = time.monotonic()
    verdict = under_lock(spec, options, lambda how: examine_global(spec, how)[1])
    return report_row(spec, verdict, options.depth, started)


def examine_global(spec: StorePartitionSpec, options: VerifyOptions = _SCAN) -> tuple[Facts, Verdict]:
    """Look at a global store, and judge it; the caller holds its lock."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        logs: Mapping[TopicPartition, LogRange] = {}
        try:
            asked_ms = brokers_clock.now_ms(spec.cluster)
            logs = {} if spec.changelog is None else logs_of(spec)
            with unreadable_is_damaged():
                verdict = _examined(spec, logs, options)
            break
        except LockedError as error:
            verdict = locked(error)
            break
        except UnknownFormatError as error:
            verdict = Verdict(Status.UNKNOWN_FORMAT, str(error), rebuildable=False)
            break
        except StoreUncleanError as error:
            detail = f"{error}; if Kafka Streams 4.3 finds one so, it removes all global stores and fails to start"
            verdict = _unusable(spec, Status.UNCLEAN, detail, logs)
            break
        except (StoreCorruptedError, WrongStoreError) as error:
            verdict = _unusable(spec, Status.CORRUPT, str(error), logs)
            break
        except StoreBehindLogStartError as error:  # retention has moved the log's start since it was asked for
            if not attempts_left:
                verdict = locked(InputError(f"{error}; the start of its topic moved at each attempt"))
        except OSError as error:
            raise of_os_error(error) from error
    log = LogFacts(spec.changelog, logs.get(spec.partition, NO_LOG), asked_ms=asked_ms, all_logs=logs)
    return Facts(spec, DiskFacts(present=spec.live.exists()), asked_ms, log, archive=NO_ARCHIVE), verdict


def logs_of(spec: StorePartitionSpec) -> Mapping[TopicPartition, LogRange]:
    """Return where the partitions of a global store's topic begin and end."""
    return log_ranges(spec.cluster.topics, [spec])


def _examined(spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange], options: VerifyOptions) -> Verdict:
    if spec.changelog is None:
        return Verdict(Status.REPLACED, f"topic {spec.partition.topic} does not exist", rebuildable=False)
    topic_id = spec.changelog.topic_id
    if not spec.live.exists():
        left = _left(spec, logs, {})
        status = Status.MISSING if left else Status.EMPTY
        return Verdict(status, f"{spec.live} does not exist: Kafka Streams fills it at its next start", refills=True)
    record = read_record(spec.paths, spec.store.name)
    if (before := topic_id_of(record)) not in (None, topic_id):
        why = f"its topic was {before} when it was restored and is {topic_id} now"
        return Verdict(Status.REPLACED, f"{why}; {_REFILLED}", rebuildable=False)
    with opened(spec.store, spec.context(read_only=True)) as store:
        keys = sum(1 for _ in store.all())
        committed = {partition: store.committed_offset(partition) for partition in spec.partitions}
        legacy = legacy_offsets(spec.paths)
    next_offsets = {partition: legacy.get(partition, offset) for partition, offset in committed.items()}
    verdict = _judged(spec, logs, next_offsets)._replace(keys=keys)
    if options.depth != "deep" or verdict.status not in (Status.OK, Status.LAGGING):
        return verdict
    if spec.global_kind == "processor" or not spec.store.store_kind.may_be_global_table:
        return _with_detail(verdict, _NOT_FROM_BYTES)
    topics = spec.cluster.topics
    contents = compare_global(spec, next_offsets, logs, topics, options)
    return _compared(spec, verdict._replace(contents=contents), contents, logs)


def _judged(
    spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange], next_offsets: Mapping[TopicPartition, int | None]
) -> Verdict:
    for partition, offset in next_offsets.items():
        log = logs[partition]
        if offset is None:
            continue
        if offset > log.high_watermark:
            detail = f"{partition}: the store resumes at {offset}, but the log ends at {log.high_watermark}"
            return _unusable(spec, Status.AHEAD, detail, logs, RebuildLoss(Loss.LIKELY, detail, Status.AHEAD))
        if offset < log.start:
            detail = f"{partition}: the store resumes at {offset}, but the log begins at {log.start}"
            return _unusable(spec, Status.TRUNCATED, detail, logs)
    left = _left(spec, logs, next_offsets)
    if not left:
        return Verdict(Status.OK)
    detail = f"records are to be read from {', '.join(left)}: Kafka Streams reads them at its next start"
    return Verdict(Status.LAGGING, detail, refills=True)


def _compared(
    spec: StorePartitionSpec, verdict: Verdict, contents: Contents, logs: Mapping[TopicPartition, LogRange]
) -> Verdict:
    """Judge a store by comparing its rows with those of its topic."""
    if not contents.differing:
        shown = contents.equal > 0 and 2 * contents.equal >= contents.store_rows
        return verdict._replace(global_kind="table") if shown else verdict
    figures = (
        f"{contents.equal} of its {contents.store_rows} rows match its topic; {contents.other_value} "
        f"have another value, {contents.only_in_store} are only in the store, and {contents.only_in_log} only in the "
        "topic"
    )
    undecided = verdict._replace(refills=False, rebuildable=False)
    if spec.global_kind is None:
        if not contents.equal:
            detail = f"{figures}: a processor seems to fill it; {what_decides(spec.store.name)}"
            return _with_detail(verdict, detail)
        detail = f"{figures}: it is a table with wrong rows, or a processor fills it; {what_decides(spec.store.name)}"
        return undecided._replace(status=Status.UNKNOWN_FORMAT, detail=detail)
    if not spec.global_said:
        detail = f"{figures}; its rows once matched its topic: {what_decides(spec.store.name)}"
        return undecided._replace(status=Status.DIVERGED, detail=detail)
    if contents.differing == contents.only_in_log:
        detail = (
            f"{figures}: it has lost rows, or the application has skipped their records (deserialization exception "
            "handler); if it skips none, restore it with --mode full --force"
        )
        return undecided._replace(status=Status.DIVERGED, detail=detail)
    found = verdict._replace(status=Status.DIVERGED, detail=figures, refills=False)
    return with_loss(found, loss_of_rebuild(spec, logs))


def _unusable(
    spec: StorePartitionSpec,
    status: Status,
    detail: str,
    logs: Mapping[TopicPartition, LogRange],
    lost: RebuildLoss | None = None,
) -> Verdict:
    """Judge a store that Kafka Streams cannot use: a table can be rebuilt, another one cannot."""
    if spec.global_kind != "table":
        return Verdict(status, f"{detail}; {_REFILLED}", rebuildable=False)
    return with_loss(Verdict(status, detail), lost or loss_of_rebuild(spec, logs))


def loss_of_rebuild(spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange]) -> RebuildLoss:
    """Say what a rebuild of a global table would lose of the one that is there."""
    if not spec.live.exists():
        return RebuildLoss(Loss.NONE)
    for partition, log in logs.items():
        if log.start > 0:
            return RebuildLoss(Loss.LIKELY, f"{partition} begins at offset {log.start}", Status.TRUNCATED)
    if not any(log.high_watermark for log in logs.values()):
        return RebuildLoss(Loss.LIKELY, "its topic is empty", Status.AHEAD)
    record = read_record(spec.paths, spec.store.name)
    if record is None:
        return RebuildLoss(Loss.UNPROVEN, "the topic that its offsets belong to was never recorded")
    if of_log(record, spec.changelog) is None:
        return RebuildLoss(Loss.LIKELY, f"its topic was {record.topic_id}, and is now another one", Status.REPLACED)
    return RebuildLoss(Loss.NONE)


def _left(
    spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange], next_offsets: Mapping[TopicPartition, int | None]
) -> list[str]:
    """First record that is left to read of each partition that has one."""
    found = []
    for partition, log in logs.items():
        start = next_offsets.get(partition)
        start = log.start if start is None else start
        if start < log.last_stable:
            first = first_offset(spec.cluster, partition, start, log.last_stable)
            found += [] if first is None else [f"{partition} at {first}"]
    return found


def _with_detail(verdict: Verdict, detail: str) -> Verdict:
    return verdict._replace(detail="; ".join(filter(None, [verdict.detail, detail])))
