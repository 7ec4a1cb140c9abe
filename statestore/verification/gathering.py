"""Answers questions about store partitions, many at once: the I/O between looking at stores and deciding.

`resolve` calls a pure function, answers the questions that it returns, and calls it again, until there is a result for
each store partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from statestore.changelog import brokers_clock
from statestore.discovery.changelogs import log_ranges
from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, StoreBehindLogStartError
from statestore.kafka.cluster import Cluster
from statestore.kafka.reader import first_offsets
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.partition.archived import with_archived_evidence
from statestore.partition.changelog_time import log_times
from statestore.partition.committed_changelogs import with_committed_changelogs
from statestore.partition.cuts import find_cuts
from statestore.partition.facts import NO_LOG, UNASKED, Facts, LogFacts, Open, Question
from statestore.partition.replacement import has_lost_none, may_lack_versions
from statestore.partition.verdict import unread

_log = logging.getLogger(__name__)

R = TypeVar("R")
#: How often a log is asked for again because retention has moved its start since.
_ATTEMPTS = 3


class AskedLogs(NamedTuple):
    """Offsets of logs when they were asked for.

    Attributes
    ----------
    asked_ms
        The brokers' time before that, ms since the epoch.
    """

    asked_ms: int
    logs: Mapping[TopicPartition, LogRange]


NOT_ASKED = AskedLogs(0, {})


Answer = Callable[[Sequence[Facts], Cluster], Iterable[Facts]]


def resolve(
    facts: Sequence[Facts],
    decide: Callable[[Facts], R | Open],
    cluster: Cluster,
    answers: Mapping[Question, Answer] | None = None,
    before: AskedLogs = NOT_ASKED,
) -> list[tuple[Facts, R]]:
    """Answer questions about store partitions until there is a result for each.

    Parameters
    ----------
    decide
        Pure: returns a result, or the questions that are open.
    answers
        How questions are answered; None for those that `judge` asks. Only these are asked again if a log's start moves.
    before
        As of `log_facts`.

    Returns
    -------
    list of tuple
        For each store partition, its facts, and the result.

    Raises
    ------
    StoreBehindLogStartError
        If retention moves the start of a log at each attempt.
    """
    known = answers or {**ANSWERS, Question.LOG: partial(log_facts, before=before)}
    left = _ATTEMPTS
    found, results = list(facts), dict[int, R]()
    while len(results) < len(found):
        open_: dict[Question, list[int]] = {}
        for at, one in enumerate(found):
            if at in results:
                continue
            result = decide(one)
            if isinstance(result, Open):
                for question in result.questions:
                    open_.setdefault(question, []).append(at)
            else:
                results[at] = result
        for question in [one for one in Question if one in open_]:
            asked = open_[question]
            try:
                answered = known[question]([found[at] for at in asked], cluster)
                for at, one in zip(asked, answered, strict=True):
                    found[at] = one
            except StoreBehindLogStartError:
                left -= 1
                if not left or answers is not None:  # a decision by the former start no longer holds
                    raise
                for at in asked:
                    found[at] = _without_log(found[at])
                break
    return [(found[at], results[at]) for at in range(len(found))]


def _without_log(facts: Facts) -> Facts:
    return facts._replace(log=UNASKED, first=UNASKED, log_bytes=UNASKED)


def _last_known(facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    """Add evidence of unknown stores: their newest snapshots, if the archive answers, and their tasks' commits."""
    specs, disks = [found.spec for found in facts], [found.disk for found in facts]
    try:
        disks = with_archived_evidence(specs, disks)
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        _log.warning("verify: it is unknown what snapshots show of stores that do not exist here: %s", error)
    disks = with_committed_changelogs(specs, disks)
    return [one._replace(disk=disk, elsewhere=True) for one, disk in zip(facts, disks, strict=True)]


def log_facts(facts: Sequence[Facts], cluster: Cluster, before: AskedLogs = NOT_ASKED) -> Iterable[Facts]:
    """Add where the logs of store partitions begin and end, whether they were cut, and when that was asked.

    Parameters
    ----------
    before
        Logs that were asked for before any store was looked at. They hold for an absent store, which cannot have got
        ahead of its log since.

    Raises
    ------
    KafkaUnavailableError
        If the brokers do not answer: that says nothing about a store.
    """
    specs = [found.spec for found in facts]
    anything = any(found.disk.present | found.disk.known.anything for found in facts)
    if not anything and all(spec.partition in before.logs for spec in specs):
        asked_ms, logs = before
    else:
        asked_ms, logs = brokers_clock.now_ms(cluster), log_ranges(cluster.topics, specs)
    recorded = {found.spec.partition: (found.disk.record, found.spec.changelog) for found in facts}
    cuts = find_cuts(cluster, recorded)
    now_ms = brokers_clock.now_ms(cluster)
    for found in facts:
        spec = found.spec
        log = LogFacts(
            spec.changelog,
            logs.get(spec.partition, NO_LOG),
            cuts.get(spec.partition),
            asked_ms=asked_ms,
            all_logs={partition: logs[partition] for partition in spec.partitions if partition in logs},
        )
        yield found._replace(log=log, now_ms=now_ms)


def first_records(cluster: Cluster, asked: Sequence[tuple[TopicPartition, tuple[int, int] | None]]) -> list[int | None]:
    """Offset of the first record in each range, as a read-committed consumer gets it; None: none is there.

    Parameters
    ----------
    asked
        Topic partition, and start and exclusive end; None is a range without records. A partition may come more than
        once.
    """
    rounds: list[dict[TopicPartition, tuple[int, int]]] = []
    for partition, wanted in asked:
        if wanted and not any(held.setdefault(partition, wanted) == wanted for held in rounds):
            rounds.append({partition: wanted})
    found: Mapping[tuple[TopicPartition, tuple[int, int] | None], int | None] = {
        (partition, held[partition]): first
        for held in rounds
        for partition, first in first_offsets(cluster, held).items()
    }
    return [found[partition, wanted] if wanted else None for partition, wanted in asked]


def _first_record(facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    firsts = first_records(cluster, [(found.spec.partition, unread(found)) for found in facts])
    return [found._replace(first=first) for found, first in zip(facts, firsts, strict=True)]


def _log_times(facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    for found in facts:
        log = found.asked_log
        times = log_times(found.spec, log.log)
        yield found._replace(log=log._replace(stream_time=times.latest, first_time=times.first, times_known=True))


def _lacks_versions(facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    for found in facts:
        log = found.asked_log
        lacks = may_lack_versions(found.spec, found.disk.known.committed, log.log)
        yield found._replace(log=log._replace(lacks_versions=lacks))


def _tail_is_complete(facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    for found in facts:
        log, committed = found.asked_log, found.disk.committed
        assert committed is not None, "only of a store with an offset is the tail asked for"
        complete = has_lost_none(found.spec, committed + 1, log.log.last_stable)
        yield found._replace(log=log._replace(tail_is_complete=complete))


#: Answers to the questions of `judge`.
ANSWERS: dict[Question, Answer] = {
    Question.LAST_KNOWN: _last_known,
    Question.LOG: log_facts,
    Question.FIRST_RECORD: _first_record,
    Question.LOG_TIMES: _log_times,
    Question.LACKS_VERSIONS: _lacks_versions,
    Question.TAIL_IS_COMPLETE: _tail_is_complete,
}
