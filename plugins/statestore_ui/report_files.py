"""The jobs' report files as the page needs them: found, looked at, and decoded only where their rows are wanted.

Reports pile up, one a run, and one of 100,000 store partitions has 50 megabytes. So a file is stat'ed on each request,
its head is read once, and its rows are decoded once and kept only while they are shown (`report_rows.py`). What a file
says is known by its times and size: reports are replaced as a whole, never changed. In object storage, one listing says
that of all reports of a job. What object storage did not give is asked for again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import ValidationError
from pydantic_core import from_json

from statestore.errors import StateStoreError
from statestore.objects.path import TROUBLE, Location, ObjectPath, each_at_once
from statestore.reports import readable
from statestore_ui.report_rows import JOBS, Head, Key, Run, read_rows

#: Files of one job that are looked at, the newest. Runs before that are in the history.
MOST_FILES = 1_000
#: Where a head ends, nearly always; and always, however many applications it names. An object is asked for once.
_HEAD_BYTES = (4_096, 65_536)


class Problem(NamedTuple):
    """What could not be read, and what helps."""

    path: str
    message: str
    #: Nothing is broken: there was no job yet, or its directory is not mounted here.
    missing: bool = False
    #: Object storage did not give it now.
    passing: bool = False


class ReportFile(NamedTuple):
    """A report as the directory shows it."""

    job: str
    path: Location
    mtime_ns: int
    ctime_ns: int  # a file that may be read since has no other mtime
    size: int

    @property
    def name(self) -> str:
        """Name of the file as a page can show it."""
        return readable(self.path.name)


class ReportFiles:
    """Reads report files and remembers what they said; used by one thread at a time.

    Attributes
    ----------
    parsed
        How many reports were parsed with all their rows so far.
    """

    def __init__(self) -> None:
        self.parsed = 0
        self._heads: dict[ReportFile, Head | Problem] = {}
        self._rows: dict[ReportFile, Mapping[Key, Any] | Problem] = {}
        self._wanted: set[ReportFile] = set()

    def head(self, file: ReportFile) -> Head | Problem:
        """Return what the report is about."""
        (found,) = self.heads([file])
        return found

    def heads(self, files: Sequence[ReportFile]) -> list[Head | Problem]:
        """Return what each of the reports is about."""
        news = [file for file in files if file not in self._heads]
        by_path = {file.path: file for file in news}
        said = each_at_once([file.path for file in news], lambda path: _read_head(by_path[path]))
        heads = self._heads | dict(zip(news, said, strict=True))
        self._heads = {file: head for file, head in heads.items() if not _is_passing(head)}
        return [heads[file] for file in files]

    def rows(self, file: ReportFile, head: Head) -> Mapping[Key, Any] | Problem:
        """Return what the page keeps of the report's rows."""
        self._wanted.add(file)
        if file in self._rows:
            return self._rows[file]
        self.parsed += 1
        found = _read_rows(file, head)
        if not _is_passing(found):
            self._rows[file] = found
        return found

    def forget_others(self, listed: Sequence[ReportFile]) -> None:
        """Forget files that are gone, and rows that nobody has asked for since the last call."""
        there = set(listed)
        self._heads = {file: head for file, head in self._heads.items() if file in there}
        self._rows = {file: rows for file, rows in self._rows.items() if file in self._wanted}
        self._wanted = set()


def list_reports(reports_dir: Location) -> tuple[list[ReportFile], list[Problem]]:
    """Return the newest reports of each job, the newest first, and the directories that cannot be read."""
    found: list[ReportFile] = []
    if problem := _unusable(reports_dir):
        return [], [problem]
    problems = []
    for job in JOBS:
        try:
            known = [_stat(job, path) for path in (reports_dir / job).iterdir() if _is_report(path)]
        except FileNotFoundError:
            continue  # this job has not run yet
        except TROUBLE as error:
            problems.append(_refused(reports_dir / job, error))
            continue
        files = [file for file in known if file is not None]
        found += sorted(files, key=lambda file: file.mtime_ns, reverse=True)[:MOST_FILES]
    return found, problems


def _is_report(path: Location) -> bool:
    return path.suffix == ".json" and not path.name.startswith(".")


def _stat(job: str, path: Location) -> ReportFile | None:
    try:
        stat = path.stat()
    except OSError:
        return None  # removed since it was listed
    return ReportFile(job, path, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)


def _unusable(reports_dir: Location) -> Problem | None:
    if isinstance(reports_dir, ObjectPath):
        return None  # each listing says so
    try:
        next(reports_dir.iterdir(), None)
    except FileNotFoundError:
        return Problem(
            readable(str(reports_dir)),
            "There is no such directory. The first job creates it on the workers' machine. If a job has run, this "
            "machine does not see that directory: mount it here, or correct STATESTORE_REPORTS_DIR.",
            missing=True,
        )
    except OSError as error:
        return _refused(reports_dir, error)
    return None


def _refused(directory: Location, error: OSError | StateStoreError) -> Problem:
    if isinstance(error, StateStoreError):
        return Problem(str(directory), f"It cannot be read now. {error}", passing=True)
    return Problem(
        readable(str(directory)),
        f"It cannot be read: {error.strerror or error}. Let the API server's user (id {os.geteuid()}) list it "
        "and read its files.",
    )


def _broken(file: ReportFile, why: str) -> Problem:
    return Problem(
        f"{file.job}/{file.name}",
        f"This version cannot read this report: {why}. The page ignores the file. If a job is still writing it, wait. "
        "Otherwise, delete it, or start its DAG again.",
    )


def _read_head(file: ReportFile) -> Head | Problem:
    is_object = isinstance(file.path, ObjectPath)
    try:
        for size in _HEAD_BYTES[-1:] if is_object else _HEAD_BYTES:
            try:
                return Head.model_validate(from_json(_start(file.path, size), allow_partial=True))
            except ValueError:
                if size == _HEAD_BYTES[-1]:
                    raise
    except StateStoreError as error:
        return _not_given(file, error)
    except (OSError, ValueError) as error:
        return _broken(file, _short(error))
    raise AssertionError("the last size returns or raises")


def _start(path: Location, size: int) -> bytes:
    if isinstance(path, ObjectPath):
        return path.read_start(size)
    with path.open("rb") as content:
        return content.read(size)


def _not_given(file: ReportFile, error: StateStoreError) -> Problem:
    return Problem(f"{file.job}/{file.name}", f"It cannot be read now, so the page ignores it. {error}", passing=True)


def _is_passing(found: object) -> bool:
    return isinstance(found, Problem) and found.passing


def _read_rows(file: ReportFile, head: Head) -> Mapping[Key, Any] | Problem:
    address = f"statestore/reports/{file.job}/{quote(os.fsencode(file.path.name))}"
    run = Run(file.job, head.started_ms, head.finished_ms, head.dag_id, head.dag_run_id, address)
    try:
        return read_rows(file.job, file.path, run)
    except StateStoreError as error:
        return _not_given(file, error)
    except (OSError, ValueError) as error:
        return _broken(file, _short(error))


def _short(error: OSError | ValueError) -> str:
    """The first of possibly thousands of complaints, on one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg']}" if place else first["msg"]
    return " ".join(str(error).split())[:300]
