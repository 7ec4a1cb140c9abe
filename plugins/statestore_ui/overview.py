"""All store partitions as the newest reports tell of them: a summary of each application, and those that are asked for.

What is read, newest first: reports of `verify` and `process` until each application is covered by a run that looked at
all of it; reports of `restore`, `validate`, and `drill` until they have told of each store partition. What was removed
from the definitions is not shown: what is no longer in the catalogue, and store partitions that a complete verification
does not name any more.

Kafka Streams applications without a definition are shown if an environment lists them, also if no report names them:
one that was not looked at is never healthy.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from statestore import clock
from statestore.environments import FILE, DagName, KafkaStreamsApplication, dag_prefix, environments
from statestore.errors import InputError
from statestore.objects.path import Location
from statestore.reports import Status
from statestore_ui.application_summaries import findings, sent, summaries
from statestore_ui.metastore_files import Changing, Defined, defined, degraded, metastore_files
from statestore_ui.partition_health import (
    Newest,
    Standing,
    cause_of,
    failed_before_opening,
    never_run,
    not_verified,
    stand,
)
from statestore_ui.partition_pages import Pages, Partition
from statestore_ui.recent import Recent
from statestore_ui.report_files import Problem, ReportFile, ReportFiles, list_reports
from statestore_ui.report_rows import CLUSTER, SURVEY, Drilled, Head, Key, Processed, Run, Verified

#: Applications without a definition, by name.
Listed = Mapping[str, KafkaStreamsApplication]

#: Reports of `restore` and of `validate` whose rows are read, if some store partitions are named by none of them.
MOST_PARTIAL = 100
#: Bytes of them, the newest excepted: what they tell of is old.
MOST_PARTIAL_BYTES = 64 << 20
#: Reports of `process` before the newest that are read to find out whether an EMPTY store was written to.
MOST_FORMER = 20
_MOST_PROBLEMS = 20


class Overview(NamedTuple):
    """What all reports tell.

    Attributes
    ----------
    tag
        Changes when a report has come, gone or changed.
    summary
        Applications and problems, as they are sent.
    findings
        All findings; the summary has the first ones.
    """

    tag: str
    summary: bytes
    pages: Pages
    findings: Sequence[Mapping[str, Any]] = ()


class Overviews:
    """Makes overviews, and makes one anew only when a report has come, gone or changed."""

    def __init__(self) -> None:
        self.files = ReportFiles()
        self._lock = threading.Lock()
        self._last: Overview | None = None
        self._recent = Recent[Overview]()
        self._listed: list[ReportFile] = []
        self._names = Changing("names.json", defined)
        self._health = Changing("degraded.json", degraded)
        self._passing = False
        self._stale_at_ms: int | None = None
        self._times_stale = 0

    def get(self, reports_dir: Location, data_docs_dir: Location) -> Overview:
        """Return the overview of now."""
        with self._lock:
            return self._recent.get(reports_dir, lambda: self._get(reports_dir, data_docs_dir))

    def _get(self, reports_dir: Location, data_docs_dir: Location) -> Overview:
        listed, problems = list_reports(reports_dir)
        if any(problem.passing for problem in problems):  # what was there when it was listed last
            there = {file.job for file in listed}
            listed += [file for file in self._listed if file.job not in there]
        self._listed = listed
        of_metastore = metastore_files(reports_dir)
        names, wrong = self._names.get(of_metastore), self._health.get(of_metastore)
        dags, streams, problem = _dags()
        problems = [*problems, *([] if problem is None else [problem])]
        if self._stale_at_ms is not None and clock.now_ms() >= self._stale_at_ms:
            self._times_stale += 1
        seen = (listed, problems, names, wrong, data_docs_dir, dags, streams, self._times_stale)
        tag = sha256(repr(seen).encode()).hexdigest()[:32]
        if self._last is None or self._last.tag != tag or self._passing:
            reading = _Reading(self.files, listed, problems, names, streams)
            partitions = reading.partitions()
            self._passing, self._stale_at_ms = reading.passing, reading.stale_at_ms
            self.files.forget_others(listed)
            found = findings(partitions)
            told = {**reading.summary(partitions), **sent(found), "degraded": wrong, "dags": dags}
            summary = json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
            self._last = Overview(tag, summary, Pages(tag, partitions, data_docs_dir.absolute()), found)
        return self._last


def _verifies_all(head: Head) -> bool:
    return head.dag_id is not None and DagName.parse(head.dag_id)[1:] == ("verify", "")


def _dags() -> tuple[dict[str, Any], Listed, Problem | None]:
    """Return parts of DAG ids, applications that are listed without a definition, and a problem of these settings."""
    try:
        named = environments()[1:]
        of_applications = {application: each.name for each in named for application in sorted(each.applications)}
        streams = {name: found for each in named for name, found in sorted(each.kafka_streams.items())}
        return {"prefix": dag_prefix(), "environments": of_applications}, streams, None
    except InputError as error:
        return {"prefix": "", "environments": {}}, {}, Problem(os.environ.get(FILE, ""), str(error))


class _Found(NamedTuple):
    """The newest row of each key, and when an application was looked at completely."""

    rows: dict[Key, Any]
    complete_ms: dict[str, int]


class _Reading:
    """One look at all reports."""

    def __init__(
        self,
        files: ReportFiles,
        listed: list[ReportFile],
        problems: list[Problem],
        defined: Defined | None,
        streams: Listed,
    ) -> None:
        self._files, self._listed, self._problems = files, listed, list(problems)
        self._defined, self._streams = defined, streams
        self._as_of_ms: int | None = None
        self._unread: dict[str, int] = {}
        self._homes = self._state_dirs()
        #: When the first row becomes too old to count as verified, ms since the epoch; None: never.
        self.stale_at_ms: int | None = None

    @property
    def passing(self) -> bool:
        """Whether something may be read the next time that could not be read now."""
        return any(problem.passing for problem in self._problems)

    def summary(self, partitions: list[Partition]) -> dict[str, Any]:
        """Return applications and problems."""
        return {
            "as_of_ms": self._as_of_ms,
            "applications": summaries(partitions, self._unread),
            "surveys": list(self._surveys()),
            "problems": [
                {"path": problem.path, "message": problem.message, "missing": problem.missing}
                for problem in self._problems[:_MOST_PROBLEMS]
            ],
            "more_problems": max(len(self._problems) - _MOST_PROBLEMS, 0),
        }

    def partitions(self) -> list[Partition]:
        """Return all store partitions, by application, store, and the numbers of the task."""
        # Only the DAG verifies whole applications for certain; a command may have been given some of the stores.
        verified = self._covered("verify", _verifies_all)
        processed = self._covered("process", lambda head: True)
        keys = {*verified.rows, *(key for key in processed.rows if key[1])}
        restored = self._partial("restore", keys)
        validated = self._partial("validate", keys)
        drilled = self._partial("drill", keys)
        keys.update(restored, validated, drilled)
        written = self._written(verified.rows, processed.rows)
        proven = self._proven(verified.rows)
        found = []
        for key in sorted(keys, key=_in_order):
            newest = Newest(
                verified.rows.get(key),
                restored.get(key),
                validated.get(key),
                _process(processed.rows, key),
                written.get(key),
                self._drill_now(drilled.get(key)),
                proven.get(key),
            )
            if self._is_there(key, newest, verified.complete_ms.get(key[0], 0)):
                standing = self._with_age(key[0], newest, stand(newest))
                found.append(Partition(*key, newest, standing, _starts(newest, self._streams.get(key[0]))))
        found += _failed_before_opening(processed.rows, {(one.application, one.task) for one in found})
        self._unread = _unread(processed.rows)
        since = self._since(found)
        for number, one in enumerate(found if since else ()):
            if one.standing.level in ("bad", "warn") and (since_ms := since.get(one.key)) is not None:
                found[number] = one._replace(since_ms=since_ms)
        seen = {partition.application for partition in found}
        return [*found, *self._not_looked_at(seen), *self._never_run(seen)]

    def _with_age(self, application: str, newest: Newest, standing: Standing) -> Standing:
        """Return the standing of a store partition; one of a listed application is not verified if it is too old."""
        streams = self._streams.get(application)
        last_ms = [row.run.finished_ms for row in (newest.verify, newest.restore) if row is not None]
        if streams is None or not last_ms:
            return standing
        within_ms = int(streams.verified_within_hours * 3_600_000)
        stale_at_ms = max(last_ms) + within_ms
        if clock.now_ms() >= stale_at_ms:
            return not_verified(standing, within_ms, by_jobs=streams.state_dir is not None)
        self.stale_at_ms = min(stale_at_ms, self.stale_at_ms or stale_at_ms)
        return standing

    def _drill_now(self, drill: Drilled | None) -> Drilled | None:
        """Return how a store partition stands by its drills now: a proof may have become too old since the report."""
        now_ms = clock.now_ms()
        if drill is None or (found := drill.at(now_ms)) is not drill:
            return None if drill is None else found
        if drill.standing == "proven" and drill.valid_until_ms is not None:
            stale_at_ms = drill.valid_until_ms + 1
            self.stale_at_ms = min(stale_at_ms, self.stale_at_ms or stale_at_ms)
        return drill

    def _not_looked_at(self, seen: Container[str]) -> Iterator[Partition]:
        """Yield a placeholder for each listed application that no report names."""
        for name, streams in self._streams.items():
            if name not in seen:
                standing = not_verified(None, 0, by_jobs=streams.state_dir is not None)
                yield Partition(name, "-", "-", Newest(), standing, _starts(Newest(), streams))

    def _never_run(self, seen: Container[str]) -> Iterator[Partition]:
        """Yield a placeholder for each application of the catalogue that no report names."""
        for name in sorted(self._defined.stores) if self._defined is not None else ():
            if name not in seen and name not in self._streams:
                yield Partition(name, "-", "-", Newest(), never_run(), ("process",))

    def _since(self, partitions: Iterable[Partition]) -> dict[Key, int]:
        """Return since when store partitions are as they are, as far back as some reports before the newest say it."""
        found: dict[Key, int] = {}
        for job, is_bad in _IS_BAD.items():
            asked = {
                one.key: ("", one.task) if one.is_placeholder else (one.store, one.task)
                for one in partitions
                if one.standing.level in ("bad", "warn") and cause_of(one.standing) == job
            }
            bytes_ = 0
            for number, (file, head) in enumerate(self._heads(job)):
                bytes_ += file.size if number else 0
                if not asked or number > MOST_FORMER or bytes_ > _MOST_BYTES_SINCE:
                    break
                if {key[0] for key in asked}.isdisjoint(head.applications) or not (rows := self._rows(file, head)):
                    continue
                for key, (store, task) in list(asked.items()):
                    row = rows.get((key[0], store, task), rows.get((key[0], "", task)))
                    if row is not None and is_bad(row):
                        found[key] = head.finished_ms
                    elif row is not None:
                        del asked[key]
        return found

    def _state_dirs(self) -> dict[str, str]:
        """Return the state directories of the live stores by application: those of the DAGs, or of the environment."""
        found: dict[str, tuple[bool, int, str]] = {}
        for job in ("process", "verify", "restore"):
            for _, head in self._all_heads(job):
                if head.state_dir is None or (head.dag_id is None and job == "restore"):
                    continue
                said = head.dag_id is not None, head.finished_ms, head.state_dir
                found |= {name: max(said, found.get(name, said)) for name in head.applications}
        listed = {name: str(each.state_dir) for name, each in self._streams.items() if each.state_dir is not None}
        return {name: directory for name, (_, _, directory) in found.items()} | listed

    def _is_elsewhere(self, head: Head) -> bool:
        """True for a report of a command about other directories than those of the live stores."""
        if head.dag_id is not None or head.state_dir is None:
            return False
        return any(self._homes.get(name, head.state_dir) != head.state_dir for name in head.applications)

    def _is_there(self, key: Key, newest: Newest, complete_ms: int) -> bool:
        """False for what was removed from the definitions since something was last heard of it."""
        defined = None if key[0] in self._streams else self._defined
        if newest.verify is not None and (defined is None or defined.has(key[0], key[1])):
            return True
        last: Run = max((row.run for row in newest if row is not None), key=lambda run: run.finished_ms)
        if newest.verify is None and last.finished_ms <= complete_ms:
            return False
        by_command = last.dag_id is None  # which also looks at applications without a definition
        return by_command or defined is None or last.finished_ms > defined.found_ms or defined.has(key[0], key[1])

    def _surveys(self) -> Iterator[dict[str, Any]]:
        """Yield the figures of the last survey of each environment."""
        seen = set[str | None]()
        for file, head in self._heads(SURVEY):
            if head.dag_id in seen or (rows := self._rows(file, head)) is None:
                continue
            seen.add(head.dag_id)
            figures = rows[CLUSTER]._asdict()
            run: Run = figures.pop("run")
            name = "" if head.dag_id is None else DagName.parse(head.dag_id).environment
            yield {"environment": name, **figures, "started_ms": run.started_ms, "run": run._asdict()}

    # -- which reports are read ----------------------------------------------------------------------------------------

    def _covered(self, job: str, is_complete: Callable[[Head], bool]) -> _Found:
        """Read reports until each application is covered by one that looked at all of it."""
        found, complete = dict[Key, Any](), dict[str, int]()
        for file, head in self._heads(job):
            wanted = set(head.applications) - set(complete)
            if not wanted or (rows := self._rows(file, head)) is None:
                continue
            _add(found, rows, wanted if complete else None)
            if is_complete(head):
                complete |= dict.fromkeys(wanted, head.finished_ms)
        return _Found(found, complete)

    def _partial(self, job: str, keys: Iterable[Key]) -> dict[Key, Any]:
        """Read reports until they have told of all of these, or enough was read."""
        found: dict[Key, Any] = {}
        left = set(keys)
        applications = {key[0] for key in left}
        parsed, bytes_ = 0, 0
        for file, head in self._heads(job):
            if found and (parsed == MOST_PARTIAL or bytes_ + file.size > MOST_PARTIAL_BYTES):
                break
            if found and (not left or applications.isdisjoint(head.applications)):
                continue
            rows = self._rows(file, head)
            if rows is None:
                continue
            parsed, bytes_ = parsed + 1, bytes_ + (file.size if found else 0)
            _add(found, rows, None)
            before = len(left)
            left.difference_update(rows)
            applications = applications if len(left) == before else {key[0] for key in left}
        return found

    def _written(self, verified: Mapping[Key, Any], processed: Mapping[Key, Any]) -> dict[Key, Processed]:
        """Return what has written to stores since a verification found them empty, missing or behind.

        The newest run of `process` may have found nothing to do, and a run before it has done it.
        """
        asked = {
            key: row
            for key, row in verified.items()
            if row.status in _CHANGED_BY_PROCESS and not ((newest := processed.get(key)) and newest.wrote)
        }
        found: dict[Key, Processed] = {}
        if not asked:
            return found
        since_ms = min(row.run.finished_ms for row in asked.values())
        applications = {key[0] for key in asked}
        bytes_ = 0
        for file, head in [*self._heads("process")][: MOST_FORMER + 1]:
            bytes_ += file.size
            if head.finished_ms <= since_ms or (found and bytes_ > MOST_PARTIAL_BYTES):
                break
            if applications.isdisjoint(head.applications) or (rows := self._rows(file, head)) is None:
                continue
            for key, row in asked.items():
                done = rows.get(key)
                if done is not None and done.wrote and key not in found and row.run.finished_ms < head.finished_ms:
                    found[key] = done
        return found

    def _proven(self, verified: Mapping[Key, Verified]) -> dict[Key, Verified]:
        """Return the newest proof of each store partition whose application runs, or is listed without a definition."""
        asked = {key for key, row in verified.items() if row.live or key[0] in self._streams}
        found = {key: verified[key] for key in asked if verified[key].proven}
        left, bytes_ = asked - found.keys(), 0
        if not left:
            return found
        applications = {key[0] for key in left}
        for file, head in [*self._heads("verify")][:MOST_PARTIAL]:
            bytes_ += file.size
            if not left or bytes_ > MOST_PARTIAL_BYTES:
                break
            if applications.isdisjoint(head.applications) or (rows := self._rows(file, head)) is None:
                continue
            found |= {key: rows[key] for key in left if key in rows and rows[key].proven}
            left -= found.keys()
        return found

    def _heads(self, job: str) -> Iterator[tuple[ReportFile, Head]]:
        """Reports of the job about the live stores, the one that finished last first."""
        return ((file, head) for file, head in self._all_heads(job) if job in _APART or not self._is_elsewhere(head))

    def _all_heads(self, job: str) -> Iterator[tuple[ReportFile, Head]]:
        """Reports of the job, the one that finished last first; not the plans of restores, which did nothing."""
        heads = []
        files = [file for file in self._listed if file.job == job]
        for file, head in zip(files, self._files.heads(files), strict=True):
            if isinstance(head, Problem):
                self._tell(head)
            elif head.job == job:
                heads.append((file, head))
        yield from sorted(heads, key=lambda found: found[1].finished_ms, reverse=True)

    def _rows(self, file: ReportFile, head: Head) -> Mapping[Key, Any] | None:
        rows = self._files.rows(file, head)
        if isinstance(rows, Problem):
            self._tell(rows)
            return None
        self._as_of_ms = max(self._as_of_ms or 0, head.finished_ms)
        return rows

    def _tell(self, problem: Problem) -> None:
        if problem not in self._problems:
            self._problems.append(problem)


_CHANGED_BY_PROCESS = (Status.EMPTY, Status.MISSING, Status.LAGGING, Status.UNCLEAN, Status.CORRUPT)


#: Jobs that do not touch the state directory.
_APART = ("drill", SURVEY)
#: Bytes of reports before the newest that are read to find out since when something is as it is.
_MOST_BYTES_SINCE = 8 << 20
#: Whether a row of a job says that something is wrong.
_IS_BAD: Mapping[str, Callable[[Any], bool]] = {
    "process": lambda row: row.task.failure is not None,
    "restore": lambda row: row.outcome == "failed",
    "validate": lambda row: row.verdict != "passed",
    "verify": lambda row: not row.status.healthy or bool(row.kill_risk),
}


def _unread(processed: Mapping[Key, Any]) -> dict[str, int]:
    """Return by application how many records of its input are left, each task counted once."""
    tasks = {(key[0], key[2]): row.task.lag for key, row in processed.items() if row.task.lag is not None}
    found: dict[str, int] = {}
    for (application, _), lag in tasks.items():
        found[application] = found.get(application, 0) + lag
    return found


def _failed_before_opening(processed: Mapping[Key, Any], seen: Container[tuple[str, str]]) -> Iterator[Partition]:
    """Yield a placeholder for each task that failed before it had opened its stores, if no report names these."""
    for (application, store, task), row in processed.items():
        if not store and row.task.failure is not None and (application, task) not in seen:
            yield Partition(application, "-", task, Newest(process=row), failed_before_opening(row), ("process",))


def _starts(newest: Newest, streams: KafkaStreamsApplication | None) -> tuple[str, ...] | None:
    """Return the forms that make sense for a store partition: a running application is not restored."""
    verify = newest.verify
    runs = verify is not None and verify.live
    if streams is None:
        return ("verify", "process") if runs else None
    if streams.state_dir is None:
        return ()  # no job sees its stores
    return ("verify",) if verify is None or runs else ("restore", "verify")


def _add(found: dict[Key, Any], rows: Mapping[Key, Any], applications: set[str] | None) -> None:
    """Add rows of an older report to those of newer ones; None: of all applications."""
    if not found and applications is None:
        found.update(rows)
        return
    for key, row in rows.items():
        if key not in found and (applications is None or key[0] in applications):
            found[key] = row


def _process(processed: Mapping[Key, Any], key: Key) -> Processed | None:
    """Return what `process` did last with a store; of a task that failed before it had opened it, that it failed."""
    done: Processed | None = processed.get(key)
    if done is not None:
        return done
    task: Processed | None = processed.get((key[0], "", key[2]))
    return task if task is not None and task.task.failure is not None else None


def _in_order(key: Key) -> tuple[str, str, tuple[int, ...], str]:
    """By application, store, and the numbers of the task: 0_2 before 0_10."""
    return key[0], key[1], _numbers(key[2]), key[2]


@lru_cache(4_096)
def _numbers(task: str) -> tuple[int, ...]:
    parts = task.split("_")
    # A task id that nobody has made may be too long for a number.
    return tuple(int(part) for part in parts) if all(part.isdecimal() and len(part) < 10 for part in parts) else ()
