"""The next step for a store partition: the one place that finds its situation.

It is the plan of the default request in words (`plan.advised`), and where that is *manual*, what helps instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from statestore.advice import Situation, Target, advice
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import Topics
from statestore.model import TopicPartition
from statestore.partition.home import Filling
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict
from statestore.reports import Action, Advice, Status
from statestore.statedir.paths import reseed_journal

_BY_ACTION = {Action.LATER: Situation.IN_USE, Action.TAIL: Situation.BEHIND}
_BY_STATUS = {
    Status.REPARTITIONED: Situation.REPARTITIONED,
    Status.UNKNOWN_FORMAT: Situation.UNKNOWN_FORMAT,
    Status.UNDETERMINED: Situation.UNDETERMINED,
}


class LostLog(NamedTuple):
    """A changelog that was deleted or recreated.

    Attributes
    ----------
    written
        The recreated topic has, or had, records in any of its partitions, so that it cannot be reseeded.
    reseeding
        A reseed of it was interrupted on this machine, or is in progress.
    """

    written: bool
    reseeding: bool = False


def advise(spec: StorePartitionSpec, verdict: Verdict, action: Action, *, lost: LostLog | None = None) -> Advice | None:
    """Return the next step for a store partition; None if no action is needed.

    Parameters
    ----------
    action
        The action of the default request (`plan.advised`).
    lost
        As of `lost_logs`; None if not asked: then only the log of this store partition is looked at.
    """
    found = situation(spec, verdict, action, lost=lost)
    return None if found is None else advice(found, target_of(spec))


def target_of(spec: StorePartitionSpec) -> Target:
    """Return what commands about a store partition name."""
    return Target(spec.application, spec.store.name, str(spec.task))


def situation(
    spec: StorePartitionSpec, verdict: Verdict, action: Action, *, lost: LostLog | None = None
) -> Situation | None:
    """Return the situation of a store partition; None if no action is needed. Pure; see `advise`."""
    if action in _BY_ACTION:
        return _BY_ACTION[action]
    if action is Action.NONE:
        kept = Situation.LAST_COPY if spec.store.logged else Situation.UNLOGGED
        return kept if verdict.loses else None
    if action is Action.FULL:
        return Situation.ROWS_DIFFER if verdict.status.is_found_by_rows else Situation.DAMAGED
    if verdict.status in _BY_STATUS:
        return _BY_STATUS[verdict.status]
    return _of_loss(spec, verdict, lost) if verdict.loses else _of_other(spec, verdict)


def _of_loss(spec: StorePartitionSpec, verdict: Verdict, lost: LostLog | None) -> Situation:
    if not spec.store.logged:
        return Situation.UNLOGGED_LOST if spec.home.offers_snapshots else Situation.UNLOGGED_LOST_ALONE
    if spec.store.engine == "in_memory":
        return Situation.IN_MEMORY
    return _OF_LOST_LOG[spec.origin.filling](spec, verdict, lost)


def _of_lost_table(spec: StorePartitionSpec, verdict: Verdict, lost: LostLog | None) -> Situation:
    return Situation.DAMAGED_AND_LOSING


def _of_lost_changelog(spec: StorePartitionSpec, verdict: Verdict, lost: LostLog | None) -> Situation:
    loss = verdict.loss
    assert loss is not None
    if loss.status is Status.DIVERGED:
        return Situation.INSTALLED_DIVERGED
    if verdict.status.is_found_by_rows:
        return Situation.ROWS_DIFFER_AND_LOSING
    if lost is not None and lost.reseeding:
        return Situation.RESEED_INTERRUPTED
    if is_log_lost(verdict):
        gone = verdict.holds_nothing or verdict.status is Status.MISSING
        if gone:
            return Situation.STORE_GONE_NO_TOPIC if verdict.log is None else Situation.STORE_AND_LOG_GONE
        if verdict.status not in (Status.REPLACED, Status.AHEAD):
            return Situation.DAMAGED_AND_LOSING
        return of_lost_log(
            topic_exists=verdict.log is not None,
            written=bool(verdict.log and verdict.log.high_watermark) if lost is None else lost.written,
            reseeds=reseed_refused(spec) is None,
        )
    if loss.status is Status.TRUNCATED:
        return Situation.LOG_LOST_START_ARCHIVE if spec.home.offers_snapshots else Situation.LOG_LOST_START
    return Situation.LOG_CUT if verdict.status is Status.AHEAD else Situation.DAMAGED_AND_LOSING


def _of_other(spec: StorePartitionSpec, verdict: Verdict) -> Situation:
    manual = {Filling.CHANGELOG: Situation.MANUAL, Filling.TOPIC: Situation.GLOBAL}[spec.origin.filling]
    unfinished = verdict.status is Status.CORRUPT and manual is Situation.MANUAL
    return Situation.UNFINISHED_SWAP if unfinished else manual


_OF_LOST_LOG = {Filling.CHANGELOG: _of_lost_changelog, Filling.TOPIC: _of_lost_table}


def of_lost_log(*, topic_exists: bool, written: bool, reseeds: bool) -> Situation:
    """Return the situation of an intact store whose changelog was deleted or recreated.

    Parameters
    ----------
    written
        The recreated topic has, or had, records.
    reseeds
        The changelog can be written from stores of this kind.
    """
    if not topic_exists:
        return Situation.CHANGELOG_MISSING if reseeds else Situation.MISSING_NO_RESEED
    if not reseeds:
        return Situation.RECREATED_NO_RESEED
    return Situation.RECREATED_WITH_RECORDS if written else Situation.CHANGELOG_RECREATED


def is_log_lost(verdict: Verdict) -> bool:
    """Return whether the changelog was deleted or recreated, or is empty although the store is not."""
    lost = verdict.loss
    if lost is None or not verdict.loses:
        return False
    empty = verdict.log is not None and not verdict.log.high_watermark
    return lost.status is Status.REPLACED or (lost.status is Status.AHEAD and empty)


def is_written(spec: StorePartitionSpec) -> bool:
    """Ask Kafka whether any partition of a recreated changelog has, or had, records: then it cannot be reseeded."""
    if spec.changelog is None:
        return False
    topics = spec.cluster.topics
    return has_records(topics, spec.changelog.topic, spec.changelog.partitions or spec.task.partition + 1)


def lost_logs(specs: Sequence[StorePartitionSpec], verdicts: Sequence[Verdict]) -> list[LostLog | None]:
    """Return the lost changelogs of store partitions, asking once for each topic; None if a changelog is not lost."""
    asked: dict[tuple[Cluster, str], LostLog] = {}
    found: list[LostLog | None] = []
    for spec, verdict in zip(specs, verdicts, strict=True):
        if not is_log_lost(verdict):
            found.append(None)
            continue
        key = (spec.cluster, spec.partition.topic)
        if key not in asked:
            reseeding = is_reseeding(spec.state_dir, spec.application, spec.store.name)
            asked[key] = LostLog(is_written(spec), reseeding)
        found.append(asked[key])
    return found


def is_reseeding(state_dir: Path, application: str, store: str) -> bool:
    """Return whether a reseed of a store's changelog was interrupted on this machine, or is in progress."""
    return reseed_journal(state_dir, application, store).exists()


def has_records(topics: Topics, topic: str, partitions: int) -> bool:
    """Return whether any partition of a topic has, or had, records."""
    logs = topics.log_ranges([TopicPartition(topic, number) for number in range(partitions)])
    return any(log.high_watermark for log in logs.values())


def reseed_refused(spec: StorePartitionSpec, *, versions: bool = False) -> str | None:
    """Return why the changelog of a store cannot be written from its rows, by what the store is; None if it can.

    `versions` is as of `reseed_refused_of`.
    """
    if not spec.store.logged:
        return "it has no changelog (logged: false), so nothing can be written to it"
    if spec.origin.reseed_refused is not None:
        return spec.origin.reseed_refused
    if spec.changelog is not None and spec.changelog.end_group is not None:
        return f"its changelog is the application's own input {spec.changelog.topic}, which is written by others"
    return reseed_refused_of(spec.store, versions=versions) or spec.home.reseed_refused


def reseed_refused_of(store: StoreDefinition, *, versions: bool = False) -> str | None:
    """Return why the rows of a defined store are no changelog; None if they are.

    Parameters
    ----------
    versions
        The versions of a versioned store are given, so those that it has need not be read.
    """
    kind = store.store_kind
    if not store.files_are_known:
        return "it comes from a supplier, and only that knows the changelog records of its rows"
    if kind.has_history and not versions:
        return (
            f"a {kind.name} store has several records for a row, and their order is not known exactly. Read it with "
            "Spark (format state_store), and overwrite it with its versions"
        )
    if kind.offsets_are_beside:
        return f"a {kind.name} store has the records that a join holds back, and its changelog has more than its rows"
    return None
