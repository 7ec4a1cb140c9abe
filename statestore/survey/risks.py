"""What puts state at risk. Pure: the facts of a survey in, risks with their reasons out.

Each rule claims only what the facts show. A fact that was not read gives no risk: the survey names it as not read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from statestore.advice import Situation, Target, advice
from statestore.clock import duration_text
from statestore.reports import SurveyRisk
from statestore.survey.copies import Copies, Snapshot
from statestore.survey.facts import ClusterFacts, PartitionFacts, TopicFacts, is_in_memory
from statestore.survey.gathering import prefixes
from statestore.survey.owners import is_streams
from statestore.survey.rates import Rates
from statestore.survey.subject import OwnedChangelog, Subject

#: A setting of this many ms or more is meant to be never.
_NEVER_MS = 10 * 365 * 24 * 3_600_000
_WEEK_MS = 7 * 24 * 3_600_000
_WANTED_REPLICAS = 3
#: So many partitions are named.
_NAMED = 5


class Judged(NamedTuple):
    """What the risks are judged by.

    Attributes
    ----------
    now_ms
        Wall clock time, ms since the epoch.
    expiry_within_ms
        Offsets that expire sooner than this are a risk.
    """

    facts: ClusterFacts
    copies: Copies
    rates: Rates
    now_ms: int
    expiry_within_ms: int


def risks(subjects: Collection[Subject], judged: Judged) -> list[SurveyRisk]:
    """Return the risks of the cluster, then those of each application."""
    found = list(_of_cluster(judged))
    for subject in subjects:
        for topic in (*(changelog.topic for changelog in subject.changelogs), *subject.repartition):
            found += _of_replicas(subject, topic, judged)
        for topic in subject.repartition:
            found += _of_waiting_records(subject, topic, judged)
        for changelog in subject.changelogs:
            for rule in (_of_deletion, _of_log_start, _of_compaction, _of_tombstones, _of_snapshots, _of_verification):
                found += rule(subject, changelog, judged)
            found += _of_partitions(subject, changelog, judged)
            found += _of_unclear_owner(subject, changelog, judged)
        found += _of_group(subject, judged)
        found += _of_name(subject, subjects, judged)
    return found


def _risk(
    situation: Situation, judged: Judged, subject: Subject | None, about: str, why: str, **target: str
) -> SurveyRisk:
    application = "" if subject is None else subject.name
    servers, archive, reports = judged.facts.bootstrap_servers, judged.copies.archive, judged.copies.reports_dir
    fields = {"bootstrap_servers": servers, "archive": archive, "reports_dir": reports, "topic": about, **target}
    step = advice(situation, Target(application, **{"store": "", **fields}))
    return SurveyRisk(application=application, subject=about, why=why, advice=step)


def _of_cluster(judged: Judged) -> Iterator[SurveyRisk]:
    for broker in judged.facts.brokers:
        if broker.settings.get("log.cleaner.enable") == "false":
            about = f"broker {broker.node}"
            yield _risk(Situation.CLEANER_OFF, judged, None, about, f"log.cleaner.enable=false on {broker.address}")


def _of_replicas(subject: Subject, topic: TopicFacts, judged: Judged) -> Iterator[SurveyRisk]:
    single = [number for number, found in enumerate(topic.partitions) if len(found.replicas) == 1]
    if single:
        brokers = sorted(broker.node for broker in judged.facts.brokers)
        why = f"replication factor 1 of {_numbers(single, topic)}; the cluster has {len(brokers)} brokers"
        if len(brokers) == 1:
            yield _risk(Situation.ONE_BROKER, judged, subject, topic.name, why.removesuffix("s"))
        else:
            value = _reassignment(topic, brokers)
            yield _risk(Situation.ONE_REPLICA, judged, subject, topic.name, why, value=value)
    behind = [number for number, found in enumerate(topic.partitions) if len(found.in_sync) < len(found.replicas)]
    if behind:
        missing = sorted({node for number in behind for node in _out_of_sync(topic.partitions[number])})
        why = f"replicas of {_numbers(behind, topic)} on {_brokers(missing)} are not in sync"
        yield _risk(Situation.REPLICA_OUT_OF_SYNC, judged, subject, topic.name, why)
    required = topic.number("min.insync.replicas")
    if required is not None:
        why = f"min.insync.replicas={required} at replication factor {topic.replication}"
        if required < 2 <= topic.replication:
            value = "min.insync.replicas=2"
            yield _risk(Situation.ONE_ACKNOWLEDGES, judged, subject, topic.name, why, value=value)
        elif required > topic.replication > 0:
            value = f"min.insync.replicas={max(topic.replication - 1, 1)}"
            yield _risk(Situation.WRITES_REFUSED, judged, subject, topic.name, why, value=value)
    if topic.setting("unclean.leader.election.enable") == "true" and topic.replication > 1:
        value = "unclean.leader.election.enable=false"
        why = f"unclean.leader.election.enable=true at replication factor {topic.replication}"
        yield _risk(Situation.UNCLEAN_ELECTION, judged, subject, topic.name, why, value=value)


def _reassignment(topic: TopicFacts, brokers: list[int]) -> str:
    """Return a reassignment that adds brokers to the replicas of each partition, one after the other in turn."""
    wanted = min(_WANTED_REPLICAS, len(brokers))
    partitions = []
    for number, found in enumerate(topic.partitions):
        turned = brokers[number % len(brokers) :] + brokers[: number % len(brokers)]
        added = [node for node in turned if node not in found.replicas]
        replicas = [*found.replicas, *added][: max(wanted, len(found.replicas))]
        partitions.append({"topic": topic.name, "partition": number, "replicas": replicas})
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def _of_waiting_records(subject: Subject, topic: TopicFacts, judged: Judged) -> Iterator[SurveyRisk]:
    age_ms, size = topic.number("retention.ms"), topic.number("retention.bytes")
    if "delete" not in topic.setting("cleanup.policy"):
        return
    for name, limit in (("retention.ms", age_ms), ("retention.bytes", size)):
        if limit is not None and limit >= 0:
            why = f"{name}={limit}; Kafka Streams deletes records of a repartition topic itself when they are processed"
            yield _risk(Situation.UNPROCESSED_DELETED, judged, subject, topic.name, why, value=f"{name}=-1")


def _of_deletion(subject: Subject, changelog: OwnedChangelog, judged: Judged) -> Iterator[SurveyRisk]:
    topic = changelog.topic
    policy, age_ms, size = (
        topic.setting("cleanup.policy"),
        topic.number("retention.ms"),
        topic.number("retention.bytes"),
    )
    if "delete" not in policy:
        return
    if size is not None and size >= 0:
        why = f"cleanup.policy={policy}, retention.bytes={size} for each partition"
        yield _risk(Situation.DELETED_BY_SIZE, judged, subject, topic.name, why, value="retention.bytes=-1")
    if age_ms is None or age_ms < 0:
        return
    value = "cleanup.policy=compact"
    why = f"cleanup.policy={policy}, retention.ms={age_ms} ({duration_text(age_ms / 1000)})"
    if "compact" not in policy:
        yield _risk(Situation.DELETED_BY_AGE, judged, subject, topic.name, why, value=value)
    elif not (topic.settings or {})["retention.ms"].own:
        why += ", the default of the brokers; Kafka Streams sets it for each changelog of a window store"
        yield _risk(Situation.BROKERS_RETENTION, judged, subject, topic.name, why, value=value)


def _of_log_start(subject: Subject, changelog: OwnedChangelog, judged: Judged) -> Iterator[SurveyRisk]:
    topic = changelog.topic
    policy = topic.setting("cleanup.policy")
    if not policy or ("delete" in policy and "compact" in policy):  # of a window store, rows expire from the start
        return
    snapshots = _snapshots(subject, changelog, judged)
    lost = [
        number
        for number, log in enumerate(topic.partitions)
        if log.start and ((snapshot := (snapshots or {}).get(number)) is None or snapshot.seen < log.start)
    ]
    if lost:
        starts = max(topic.partitions[number].start or 0 for number in lost)
        without = "no archive was named" if snapshots is None else "no snapshot has these records"
        why = f"the log of {_numbers(lost, topic)} starts as late as offset {starts}; {without}"
        store = changelog.owner.store
        yield _risk(Situation.LOG_STARTS_LATE, judged, subject, topic.name, why, store=store)


def _of_compaction(subject: Subject, changelog: OwnedChangelog, judged: Judged) -> Iterator[SurveyRisk]:
    topic = changelog.topic
    if "compact" not in topic.setting("cleanup.policy"):
        return
    ratio, most_ms = topic.setting("min.cleanable.dirty.ratio"), topic.number("max.compaction.lag.ms")
    if ratio and float(ratio) >= 1 and (most_ms is None or most_ms >= _NEVER_MS):
        why = f"min.cleanable.dirty.ratio={ratio}: no log is ever that dirty, and max.compaction.lag.ms sets no limit"
        value = "min.cleanable.dirty.ratio=0.5"
        yield _risk(Situation.NEVER_COMPACTED, judged, subject, topic.name, why, value=value)
    lag_ms = topic.number("min.compaction.lag.ms")
    if lag_ms is not None and lag_ms >= _NEVER_MS:
        why = f"min.compaction.lag.ms={lag_ms}: no record becomes old enough"
        value = "min.compaction.lag.ms=0"
        yield _risk(Situation.NEVER_COMPACTED, judged, subject, topic.name, why, value=value)
    roll_ms, segment = topic.number("segment.ms"), topic.number("segment.bytes")
    sizes = [log.bytes for log in topic.partitions if log.bytes is not None]
    unlimited = most_ms is None or most_ms >= _NEVER_MS  # else the broker also closes a segment of that age
    never_closed = unlimited and roll_ms is not None and roll_ms >= _NEVER_MS
    if never_closed and segment is not None and 0 < max(sizes, default=0) < segment:
        why = f"segment.ms={roll_ms}, and no log has filled its first segment of segment.bytes={segment}"
        yield _risk(Situation.NEVER_COMPACTED, judged, subject, topic.name, why, value=f"segment.ms={_WEEK_MS}")


def _of_tombstones(subject: Subject, changelog: OwnedChangelog, judged: Judged) -> Iterator[SurveyRisk]:
    topic = changelog.topic
    kept_ms = topic.number("delete.retention.ms")
    if "compact" not in topic.setting("cleanup.policy") or kept_ms is None or not topic.offsets:
        return
    kept = f"delete.retention.ms={kept_ms}"
    seconds = subject.seconds(judged.rates.kafka_streams)
    if seconds is not None and seconds * 1000 > kept_ms:
        why = f"{kept}; Kafka Streams needs about {duration_text(seconds)} to restore the application"
        value = f"delete.retention.ms={max(int(3 * seconds * 1000), 24 * 3_600_000)}"
        yield _risk(Situation.TOMBSTONES_BEFORE_RESTORE, judged, subject, topic.name, why, value=value)
    elif (idle_ms := _idle_ms(subject, judged)) is not None and idle_ms > kept_ms:
        why = f"{kept}; the group of the application has had no members for {duration_text(idle_ms / 1000)}"
        yield _risk(Situation.TOMBSTONES_WHILE_STOPPED, judged, subject, topic.name, why)
    ages = [judged.now_ms - found.written_ms for found in (_snapshots(subject, changelog, judged) or {}).values()]
    if ages and max(ages) > kept_ms:
        why = f"{kept}; the newest snapshot of a partition is {duration_text(max(ages) / 1000)} old"
        yield _risk(Situation.SNAPSHOT_TOO_OLD, judged, subject, topic.name, why)


def _of_snapshots(subject: Subject, changelog: OwnedChangelog, judged: Judged) -> Iterator[SurveyRisk]:
    found = _snapshots(subject, changelog, judged)
    if found is None or not subject.name or is_in_memory(changelog.owner.store):
        return
    missing = [number for number, log in enumerate(changelog.topic.partitions) if log.end and number not in found]
    if missing:
        why = f"the archive has no usable snapshot of {_numbers(missing, changelog.topic)}"
        yield _risk(Situation.NO_SNAPSHOT, judged, subject, changelog.topic.name, why)


def _of_verification(subject: Subject, changelog: OwnedChangelog, judged: Judged) -> Iterator[SurveyRisk]:
    store = changelog.owner.store
    if judged.copies.verified is None or not subject.name or is_in_memory(store):
        return
    verified = judged.copies.verified.get((subject.name, store), frozenset())
    missing = [number for number, log in enumerate(changelog.topic.partitions) if log.end and number not in verified]
    if missing:
        why = f"no report has a verification of {_numbers(missing, changelog.topic)}"
        yield _risk(Situation.NEVER_VERIFIED, judged, subject, changelog.topic.name, why, store=store)


def _of_partitions(subject: Subject, changelog: OwnedChangelog, judged: Judged) -> Iterator[SurveyRisk]:
    """Compare a changelog with the topics that its tasks read: there is one task for each of the most partitions."""
    topic, group, counts = changelog.topic, subject.group, judged.facts.partition_counts
    if group is None or not (group.members or any(log.end for log in topic.partitions)):
        return
    if group.topology is not None:
        number = group.topology.changelogs.get(topic.name)
        read = group.topology.sources.get(number, ()) if number is not None else ()
        expected = {max((counts[name] for name in read if name in counts), default=0)} - {0}
    else:
        read = tuple(group.reads)
        expected = {counts[name] for name in read if name in counts}
    if not expected or not all(name in counts for name in read) or len(topic.partitions) in expected:
        return
    found = ", ".join(f"{name} {counts[name]}" for name in sorted(read)[:_NAMED])
    why = f"{len(topic.partitions)} partitions, but no input of the application has so many ({found})"
    value = str(max(expected))
    yield _risk(Situation.PARTITIONS_DISAGREE, judged, subject, topic.name, why, value=value)


def _of_unclear_owner(subject: Subject, changelog: OwnedChangelog, judged: Judged) -> Iterator[SurveyRisk]:
    owner, name = changelog.owner, changelog.topic.name
    if not owner.certain:
        candidates = ", ".join((owner.application, *owner.others))
        why = f"groups of {candidates} exist, and nothing shows which of them writes to the topic"
        yield _risk(Situation.OWNER_UNDECIDED, judged, subject, name, why)
    elif not owner.application and judged.facts.hidden_groups.isdisjoint(prefixes(name)):
        why = "no group has a name with which the topic begins"
        yield _risk(Situation.NO_APPLICATION, judged, subject, name, why)


def _of_group(subject: Subject, judged: Judged) -> Iterator[SurveyRisk]:
    group = subject.group
    if not subject.name:
        return
    records = sum(changelog.topic.offsets or 0 for changelog in subject.changelogs)
    about = f"group {subject.name}"
    if group is None:
        if subject.name in judged.facts.hidden_groups:
            return
        why = f"there is no such group, and the changelogs have {records} records at most"
        yield _risk(Situation.OFFSETS_GONE, judged, subject, about, why)
        return
    if group.state == "Empty" and group.committed is not None and not group.committed and records:
        why = f"the group has no members and no offsets, and the changelogs have {records} records at most"
        yield _risk(Situation.OFFSETS_GONE, judged, subject, about, why)
    minutes, idle_ms = judged.facts.broker_numbers("offsets.retention.minutes"), _idle_ms(subject, judged)
    if not minutes or idle_ms is None:
        return
    left_ms = min(minutes) * 60_000 - idle_ms
    if left_ms < judged.expiry_within_ms:
        when = f"expire in {duration_text(left_ms / 1000)}" if left_ms > 0 else "can be deleted at any moment"
        why = (
            f"without members for {duration_text(idle_ms / 1000)}; the offsets {when} "
            f"(offsets.retention.minutes={min(minutes)})"
        )
        read = min(group.reads, default="INPUT")
        yield _risk(Situation.OFFSETS_EXPIRE, judged, subject, about, why, input=read)


def _of_name(subject: Subject, subjects: Collection[Subject], judged: Judged) -> Iterator[SurveyRisk]:
    if not subject.name:
        return
    known = {other.name for other in subjects} | {
        group.name for group in judged.facts.groups.values() if is_streams(group)
    }
    shorter = sorted(name for name in known if name and subject.name.startswith(f"{name}-"))
    if shorter:
        why = f"{len(subject.changelogs)} changelogs begin with the name of {', '.join(shorter)}, too"
        yield _risk(Situation.NAME_IS_PREFIX, judged, subject, subject.name, why)


def _snapshots(subject: Subject, changelog: OwnedChangelog, judged: Judged) -> Mapping[int, Snapshot] | None:
    if judged.copies.snapshots is None:
        return None
    return judged.copies.snapshots.get((subject.name, changelog.owner.store), {})


def _idle_ms(subject: Subject, judged: Judged) -> int | None:
    since_ms = None if subject.group is None else subject.group.idle_since_ms
    return None if since_ms is None else max(judged.now_ms - since_ms, 0)


def _out_of_sync(partition: PartitionFacts) -> set[int]:
    return set(partition.replicas) - set(partition.in_sync)


def _numbers(numbers: list[int], topic: TopicFacts) -> str:
    """Return partitions as text: all of a topic, or which."""
    total = len(topic.partitions)
    if len(numbers) == total:
        return f"all {total} partitions" if total > 1 else "the only partition"
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"partition {named}{more}" if len(numbers) == 1 else f"partitions {named}{more}"


def _brokers(nodes: list[int]) -> str:
    return f"broker {nodes[0]}" if len(nodes) == 1 else f"brokers {', '.join(map(str, nodes))}"
