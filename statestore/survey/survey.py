"""Surveys a cluster: reads its facts, finds its applications, judges their risks, and returns the report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from statestore import clock
from statestore.errors import StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.open_transaction import transactional_ids
from statestore.model import TopicPartition
from statestore.objects.path import Location
from statestore.reports import SurveyedApplication, SurveyedStore, SurveyReport, SurveyUnread
from statestore.survey.copies import Copies, StoreName, read_snapshots, read_verified
from statestore.survey.facts import ClusterFacts, Unread
from statestore.survey.gathering import read_cluster
from statestore.survey.idle_groups import read_idle_since
from statestore.survey.owners import TransactionalIds, owners
from statestore.survey.rates import DEFAULT, Rates
from statestore.survey.risks import Judged, risks
from statestore.survey.subject import OwnedChangelog, Subject, subjects

DAY_MS = 24 * 3_600_000


class SurveyRequest(NamedTuple):
    """What to survey.

    Attributes
    ----------
    archive_timeout_s
        Deadline of one request.
    archive_url, reports_dir
        None: snapshots, or verifications, are not looked at.
    expiry_within_ms
        Offsets of groups that expire sooner than this are a risk.
    """

    cluster: Cluster
    archive_url: str | None = None
    archive_timeout_s: float = 60.0
    reports_dir: Location | None = None
    rates: Rates = DEFAULT
    expiry_within_ms: int = 2 * DAY_MS


def survey(request: SurveyRequest, run_id: str | None = None) -> SurveyReport:
    """Survey a cluster.

    Raises
    ------
    KafkaUnavailableError
        If no broker answers in time. A fact that one broker does not tell is in the report as not read.
    InputError
        If only librdkafka can speak to the brokers.
    """
    started_ms = clock.now_ms()
    facts = read_cluster(request.cluster, partial(read_idle_since, request.cluster))
    unread: list[Unread] = []
    copies = _copies(request, facts.cluster_id, unread)
    facts = facts._replace(unread=(*facts.unread, *unread))
    return report_of(facts, copies, request, started_ms, partial(_transactional_ids, request, facts), run_id)


def report_of(
    facts: ClusterFacts,
    copies: Copies,
    request: SurveyRequest,
    started_ms: int,
    transactional: TransactionalIds,
    run_id: str | None = None,
) -> SurveyReport:
    """Return the report about the facts of a cluster.

    Parameters
    ----------
    started_ms
        When the facts were read, ms since the epoch.
    transactional
        Finds the transactional ids of the producers of topics.
    """
    names = [topic.name for topic in facts.changelogs]
    found = subjects(facts, owners(names, facts.groups, (copies.snapshots or {}).keys(), transactional))
    judged = Judged(facts, copies, request.rates, started_ms, request.expiry_within_ms)
    undescribed = [
        Unread(f"group {found.name}", "members", f"the survey does not describe groups of type {found.group.type}")
        for found in found
        if found.group is not None and found.group.type == "share"
    ]
    left_out = {}
    if copies.snapshots is None:
        left_out["snapshots"] = "no archive was named, or it could not be read: name it with --archive"
    if copies.verified is None:
        left_out["verifications"] = "no reports were named, or they could not be read: name them with --reports-dir"
    return SurveyReport(
        run_id=run_id or f"command-{started_ms}",
        applications=tuple(subject.name for subject in found if subject.name),
        started_ms=started_ms,
        finished_ms=clock.now_ms(),
        left_out=left_out,
        bootstrap_servers=facts.bootstrap_servers,
        cluster_id=facts.cluster_id,
        brokers=len(facts.brokers),
        requests=facts.requests,
        assumption=request.rates.assumption,
        surveyed=tuple(_surveyed(subject, copies, request.rates) for subject in found),
        risks=tuple(risks(found, judged)),
        unread=tuple(
            SurveyUnread(subject=each.subject, fact=each.fact, why=each.why) for each in (*facts.unread, *undescribed)
        ),
    )


def _surveyed(subject: Subject, copies: Copies, rates: Rates) -> SurveyedApplication:
    group = subject.group
    return SurveyedApplication(
        name=subject.name,
        kind=subject.kind,
        group_state="" if group is None else group.state,
        group_type="" if group is None else group.type,
        members=None if group is None or group.members is None else len(group.members),
        static_members=0 if group is None else group.static_members,
        clients=() if group is None else group.members or (),
        repartition_topics=len(subject.repartition),
        kafka_streams_s=subject.seconds(rates.kafka_streams),
        statestore_s=subject.seconds(rates.statestore),
        stores=tuple(_store(subject, changelog, copies, rates) for changelog in subject.changelogs),
    )


def _store(subject: Subject, changelog: OwnedChangelog, copies: Copies, rates: Rates) -> SurveyedStore:
    topic, owner = changelog
    alone = subject._replace(changelogs=(changelog,))

    def covered(found: Mapping[StoreName, Collection[int]] | None) -> int | None:
        return None if found is None else len(found.get((subject.name, owner.store), ()))

    return SurveyedStore(
        name=owner.store,
        topic=topic.name,
        partitions=len(topic.partitions),
        replication=topic.replication,
        cleanup_policy=topic.setting("cleanup.policy"),
        bytes=topic.bytes,
        records=topic.offsets,
        kafka_streams_s=alone.seconds(rates.kafka_streams),
        statestore_s=alone.seconds(rates.statestore),
        snapshots=covered(copies.snapshots),
        verified=covered(copies.verified),
        evidence=owner.evidence,
    )


def _copies(request: SurveyRequest, cluster: str, unread: list[Unread]) -> Copies:
    copies = Copies(archive=request.archive_url or "", reports_dir=str(request.reports_dir or "REPORTS_DIRECTORY"))

    def read(subject: str, fact: str, ask: Callable[[], Copies]) -> Copies:
        try:
            return ask()
        except (StateStoreError, OSError) as error:
            unread.append(Unread(subject, fact, str(error)))
            return copies

    url, reports_dir = request.archive_url, request.reports_dir
    if url is not None:
        timeout_s = request.archive_timeout_s
        copies = read(
            f"archive {url}",
            "snapshots",
            lambda: copies._replace(snapshots=read_snapshots(url, timeout_s, cluster)),
        )
    if reports_dir is not None:
        copies = read(
            f"reports {reports_dir}", "verifications", lambda: copies._replace(verified=read_verified(reports_dir))
        )
    return copies


def _transactional_ids(
    request: SurveyRequest, facts: ClusterFacts, topics: Collection[str]
) -> Mapping[str, Collection[str]]:
    partitions = [TopicPartition(name, number) for name in topics for number in range(facts.partition_counts[name])]
    return transactional_ids(request.cluster, partitions)
