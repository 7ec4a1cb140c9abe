"""Determines whether a task has nothing to do: no input, nothing to replay, and stores that have not changed.

Such a task opens nothing: no store, no transaction. What it looks at is what opening looks at before anything is
changed: seals, records, the changelogs' ids and ends, and the group's offset. It is asked under the task's lock, and
whatever it cannot be certain of makes the task open, which then finds out, repairs or refuses as ever.

Nobody is fenced, and nobody has to be: a former attempt that has not ended leaves the group's offset before the end of
the input, or a transaction open on a changelog, or a changelog that is longer than its store was.
"""

from __future__ import annotations

from statestore.changelog import brokers_clock
from statestore.changelog.input_offsets import of_topic
from statestore.errors import RetryError, StateStoreError
from statestore.formats import commit_metadata
from statestore.kafka.groups import ConsumerGroup
from statestore.kafka.topics import LogRange, Topics
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.partition.verdict import standing_of
from statestore.reports import Status, StoreFigures
from statestore.statedir.record import StoreRecord, read_record
from statestore.statedir.seal import check_seal
from statestore.tasks.shape import is_remembered
from statestore.tasks.spec import TaskSpec
from statestore.tasks.task_changelogs import TaskChangelogs


def idle_offset(spec: TaskSpec, archived: dict[str, StoreRecord] | None = None) -> int | None:
    """Return the next input offset if the task would open its stores, do nothing and close them; None otherwise.

    The caller holds the task's lock, unless the stores are not here.

    Parameters
    ----------
    archived
        Records of the newest snapshots of stores that are not on this node; None: the stores are here.

    Raises
    ------
    RetryError
        If Kafka does not answer.
    """
    try:
        # Kafka is asked in this order: what a former attempt commits meanwhile shows in the changelogs.
        records = _records(spec) if archived is None else _fresh(spec, archived)
        offset = None if records is None else _offset_without_input(spec, records)
        return offset if records is not None and offset is not None and _have_all(spec, records) else None
    except RetryError:
        raise
    except (StateStoreError, OSError):  # the stores or the input are not as they should be
        return None


def figures(spec: TaskSpec) -> tuple[StoreFigures, ...]:
    """Figures of the stores of an idle task."""
    return tuple(
        StoreFigures(store=store.name, commits=0, commit_latency_avg_ms=0.0, commit_latency_max_ms=0.0)
        for store in spec.subtopology.stores
    )


def _records(spec: TaskSpec) -> dict[str, StoreRecord] | None:
    """Return the stores' records if each store is on disk as it was closed, and there is nothing to take over."""
    if spec.paths.checkpoint.exists() or not is_remembered(spec):
        return None
    found: dict[str, StoreRecord] = {}
    for store in spec.subtopology.stores:
        record = _record_of_closed(spec.store_partition(store.name))
        if record is None:
            return None
        found[store.name] = record
    return found


def _fresh(spec: TaskSpec, records: dict[str, StoreRecord]) -> dict[str, StoreRecord] | None:
    now_ms = brokers_clock.now_ms(spec.cluster)
    fresh = all(_is_fresh(record, spec.changelogs[name], now_ms) for name, record in records.items())
    return records if fresh else None


def _is_fresh(record: StoreRecord, topic: ChangelogSpec, now_ms: int) -> bool:
    """Whether a record is of this topic, and its store need not be opened just to be recorded anew.

    It is from halfway on to the time at which a tail may not be replayed any more.
    """
    if record.topic_id != topic.topic_id or record.restored_by is not None:
        return False
    whole_ms = record.whole_ms(record.committed, now_ms)
    return whole_ms is not None and not (topic.compacted and now_ms - whole_ms >= topic.delete_retention_ms / 2)


def _record_of_closed(spec: StorePartitionSpec) -> StoreRecord | None:
    paths, name, topic = spec.paths, spec.store.name, spec.changelog
    if topic is None or not spec.live.exists() or paths.mode(name).exists():
        return None
    record = read_record(paths, name)
    if record is None or not _is_fresh(record, topic, brokers_clock.now_ms(spec.cluster)):
        return None
    sealed = check_seal(paths, name, spec.store.store_kind)
    return record if sealed is not None and sealed.committed == record.committed else None


def _offset_without_input(spec: TaskSpec, records: dict[str, StoreRecord]) -> int | None:
    """Return the group's offset if it has all of the input, and stores know of the stream times committed with it."""
    # Offsets that a former attempt has sent in a transaction are not waited for: who opens the task fences it. Until it
    # has ended, the group's offset is one from before them, so the task is not idle.
    with ConsumerGroup(spec.cluster, spec.application.name, require_stable=False) as group:
        found = of_topic(group.committed(spec.input), spec.input_id)
    log = _topics(spec).log_ranges([spec.input])[spec.input]
    if found is None or not max(log.start, spec.input_end) <= found.next_offset <= log.high_watermark:
        return None
    metadata = commit_metadata.decode(found.metadata)
    if metadata.stamp_for(spec.offsets_id, found.next_offset) is None:  # opening the task records the offset
        return None
    times = metadata.times
    known = all(times.get(name, -1) <= _stream_time(record) for name, record in records.items())
    return found.next_offset if known else None


def _have_all(spec: TaskSpec, records: dict[str, StoreRecord]) -> bool:
    """Whether the changelogs are those of the records, and end where they ended then."""
    if not records:
        return True
    changelogs = TaskChangelogs(spec)
    recorded = {spec.changelog(name): record for name, record in records.items()}
    logs = _topics(spec).log_ranges(recorded)
    if not all(_has_all(spec, name, record, logs[spec.changelog(name)]) for name, record in records.items()):
        return False
    ends = changelogs.ends(logs)
    return all(record.epoch == ends[at].epoch for at, record in recorded.items()) and not changelogs.cuts(recorded)


def _has_all(spec: TaskSpec, name: str, record: StoreRecord, log: LogRange) -> bool:
    if not record.end == log.last_stable == log.high_watermark or (log.start == 0 and record.needed_from != 0):
        return False
    # Where nothing was ever logged, nothing was ever written, unless the store was there before.
    empty = record.committed is None
    if empty and (record.adopted or log.high_watermark > 0):
        return False
    topic = spec.changelogs[name]
    found = standing_of(
        record.committed,
        log,
        record,
        topic,
        empty=empty,
        now_ms=brokers_clock.now_ms(spec.cluster),
        may_be_rebuilt=spec.application.store(name).compaction_keeps_rows,
    )
    return found.status is Status.OK


def _stream_time(record: StoreRecord) -> int:
    return -1 if record.stream_time is None else record.stream_time


def _topics(spec: TaskSpec) -> Topics:
    return spec.cluster.topics
