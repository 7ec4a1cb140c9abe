"""All store partitions as the newest reports tell of them, and a summary of each application.

What is read, newest first: reports of `verify` and `process` until each application is covered by a run that looked at
all of it, and the newest reports of `restore` and `validate`. What was removed from the definitions is not shown: what
is no longer in the catalogue, and store partitions that a complete verification does not name any more.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote

from statestore.errors import StateStoreError
from statestore.objects.path import Location, name_below
from statestore.reports import ProcessRow, RestoreRow
from statestore_ui.partition_health import Dated, Newest, judge
from statestore_ui.recent import Recent
from statestore_ui.report_files import Head, Problem, ReportFile, ReportFiles, list_reports

#: Reports of `restore` and of `validate` whose rows are read. No run of theirs is complete, so nothing else ends it.
MOST_PARTIAL = 100
_MOST_PROBLEMS = 20
Key = tuple[str, str, str]


class Answer(NamedTuple):
    """The overview as it is sent, with and without rows, and a tag that changes when it does."""

    tag: str
    full: bytes
    short: bytes


class Overviews:
    """Makes overviews, and makes one anew only when a report has come, gone or changed."""

    def __init__(self) -> None:
        self.files = ReportFiles()
        self._lock = threading.Lock()
        self._last: Answer | None = None
        self._recent = Recent[Answer]()
        self._listed: list[ReportFile] = []
        self._names = _Names()
        self._passing = False

    def get(self, reports_dir: Location, data_docs_dir: Location) -> Answer:
        """Return the overview of now."""
        with self._lock:
            return self._recent.get(reports_dir, lambda: self._get(reports_dir, data_docs_dir))

    def _get(self, reports_dir: Location, data_docs_dir: Location) -> Answer:
        listed, problems = list_reports(reports_dir)
        if any(problem.passing for problem in problems):  # what was there when it was listed last
            there = {file.job for file in listed}
            listed += [file for file in self._listed if file.job not in there]
        self._listed = listed
        defined = self._names.get(reports_dir)
        tag = sha256(repr((listed, problems, defined, data_docs_dir)).encode()).hexdigest()[:32]
        if self._last is None or self._last.tag != tag or self._passing:
            reading = _Reading(self.files, listed, problems, defined, data_docs_dir.absolute())
            found = reading.overview()
            self._passing = reading.passing
            self.files.forget_others(listed)
            rows = found.pop("rows")
            self._last = Answer(tag, _json({**found, "rows": rows}), _json(found))
        return self._last


class _Defined(NamedTuple):
    """Applications and stores of the catalogue, as a DAG run has found them (dags/statestore_dags/suggestions.py)."""

    stores: dict[str, list[str]]
    found_ms: int

    def has(self, application: str, store: str) -> bool:
        return store in self.stores.get(application, [])


class _Names:
    """Reads what is defined, and again only if it was written again."""

    def __init__(self) -> None:
        self._read: tuple[Location, int, int, _Defined] | None = None

    def get(self, reports_dir: Location) -> _Defined | None:
        """None if that is not known; then nothing is taken for removed."""
        path = reports_dir / "metastore" / "names.json"
        try:
            stat = path.stat()
            known = path, stat.st_mtime_ns, stat.st_ctime_ns
            if self._read is None or self._read[:3] != known:
                names = json.loads(path.read_bytes()).items()
                stores = {str(name): [str(store) for store in found] for name, found in names}
                self._read = (*known, _Defined(stores, stat.st_mtime_ns // 1_000_000))
        except StateStoreError:
            return None if self._read is None else self._read[3]
        except (OSError, ValueError, AttributeError, TypeError):
            return None
        return self._read[3]


class _Reading:
    """One look at all reports."""

    def __init__(
        self,
        files: ReportFiles,
        listed: list[ReportFile],
        problems: list[Problem],
        defined: _Defined | None,
        data_docs_dir: Location,
    ) -> None:
        self._files, self._listed, self._problems = files, listed, list(problems)
        self._defined, self._data_docs_dir = defined, data_docs_dir
        self._runs: list[dict[str, Any]] = []

    @property
    def passing(self) -> bool:
        """Whether something may be read the next time that could not be read now."""
        return any(problem.passing for problem in self._problems)

    def overview(self) -> dict[str, Any]:
        # Only the DAG verifies whole applications for certain; a command may have been given some of the stores.
        verified, complete = self._newest("verify", _named, lambda head: head.dag_id == "verify")
        processed, _ = self._newest("process", _task, lambda head: True)
        restored, _ = self._newest("restore", _in_place, lambda head: False, MOST_PARTIAL)
        validated, _ = self._newest("validate", _named, lambda head: False, MOST_PARTIAL)
        seen = {
            (task[0], figures.store, task[1]): dated
            for task, dated in processed.items()
            for figures in dated.row.stores
        }
        found = {
            key: Newest(verified.get(key), restored.get(key), validated.get(key), processed.get((key[0], key[2])))
            for key in sorted({*verified, *seen, *restored, *validated}, key=_in_order)
        }
        rows = [
            {"application": key[0], "store": key[1], "task": key[2], **judge(newest)}
            for key, newest in found.items()
            if self._is_there(key, newest, complete.get(key[0], 0))
        ]
        for row in rows:
            self._link_data_docs(row)
        return {
            "as_of_ms": max((run["finished_ms"] for run in self._runs), default=None),
            "applications": _summaries(rows, self._runs),
            "runs": self._runs,
            "problems": [
                {"path": problem.path, "message": problem.message, "missing": problem.missing}
                for problem in self._problems[:_MOST_PROBLEMS]
            ],
            "more_problems": max(len(self._problems) - _MOST_PROBLEMS, 0),
            "rows": rows,
        }

    def _is_there(self, key: Key, newest: Newest, complete_ms: int) -> bool:
        """False for what was removed from the definitions since something was last heard of it."""
        last = max((dated for dated in newest if dated is not None), key=lambda dated: dated.finished_ms)
        if newest.verify is None and last.finished_ms <= complete_ms:
            return False
        by_command = self._runs[last.run]["dag_id"] is None  # which also looks at applications without a definition
        defined = self._defined
        return by_command or defined is None or last.finished_ms > defined.found_ms or defined.has(key[0], key[1])

    def _newest(
        self,
        job: str,
        keys: Callable[[Any], tuple[str, ...] | None],
        is_complete: Callable[[Head], bool],
        most: int | None = None,
    ) -> tuple[dict[Any, Dated], dict[str, int]]:
        """Return the newest row of each key, and when what was looked at completely."""
        found: dict[Any, Dated] = {}
        complete: dict[str, int] = {}
        parsed = 0
        for file, head in self._heads(job):
            wanted = set(head.applications) - set(complete)
            if not wanted or parsed == most:
                continue
            rows = self._files.rows(file)
            if isinstance(rows, Problem):
                self._problems.append(rows)
                continue
            parsed += 1
            run = None
            for row in rows:
                key = keys(row)
                if key is not None and key[0] in wanted and key not in found:
                    run = self._run(file, head) if run is None else run
                    found[key] = Dated(row, head.finished_ms, run)
            if is_complete(head):
                complete |= dict.fromkeys(wanted, head.finished_ms)
        return found, complete

    def _heads(self, job: str) -> Iterator[tuple[ReportFile, Head]]:
        """Reports of the job, the one that finished last first; not the plans of restores, which did nothing."""
        heads = []
        files = [file for file in self._listed if file.job == job]
        for file, head in zip(files, self._files.heads(files), strict=True):
            if isinstance(head, Problem):
                self._problems.append(head)
            elif head.job == job:
                heads.append((file, head))
        yield from sorted(heads, key=lambda found: found[1].finished_ms, reverse=True)

    def _run(self, file: ReportFile, head: Head) -> int:
        self._runs.append(
            {
                "job": file.job,
                "started_ms": head.started_ms,
                "finished_ms": head.finished_ms,
                "dag_id": head.dag_id,
                "dag_run_id": head.dag_run_id,
                "report": f"statestore/reports/{file.job}/{quote(os.fsencode(file.path.name))}",
            }
        )
        return len(self._runs) - 1

    def _link_data_docs(self, row: dict[str, Any]) -> None:
        """Turn the page's path into an address below Airflow's; one that lies elsewhere has none."""
        validated = row.get("validate") or {}
        page = validated.pop("data_docs", None)
        relative = None if page is None else name_below(page, self._data_docs_dir)
        if relative is not None:
            validated["data_docs"] = f"statestore/docs/{quote(relative)}"


def _named(row: Any) -> Key:
    return row.application, row.store, row.task


def _in_place(row: RestoreRow) -> Key | None:
    """None for a store as of a point: it was built elsewhere, and the live one is as it was."""
    return None if row.mode == "as-of" or row.directory is not None else _named(row)


def _task(row: ProcessRow) -> tuple[str, str]:
    return row.application, row.task


def _in_order(key: Key) -> tuple[str, str, tuple[int, ...], str]:
    """By application, store, and the numbers of the task: 0_2 before 0_10."""
    parts = key[2].split("_")
    # A task id that nobody has made may be too long for a number.
    numbers = tuple(int(part) for part in parts) if all(part.isdecimal() and len(part) < 10 for part in parts) else ()
    return key[0], key[1], numbers, key[2]


def _summaries(rows: Iterable[dict[str, Any]], runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        empty = {"partitions": 0, "lag": 0, "levels": {}, "statuses": {}, "verified_ms": None}
        summary = found.setdefault(row["application"], {"application": row["application"], **empty})
        summary["partitions"] += 1
        summary["lag"] += row.get("lag") or 0
        for count, name in ((summary["levels"], row["level"]), (summary["statuses"], row.get("doubt", row["status"]))):
            count[name] = count.get(name, 0) + 1
        if verify := row.get("verify"):
            summary["verified_ms"] = max(summary["verified_ms"] or 0, runs[verify["run"]]["finished_ms"])
    return list(found.values())


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
