"""The progress of running restores, snapshots, and runs of `process`, from small files that the jobs write.

    <reports_dir>/restore/.progress-<run>/*.json      recovery/restore_progress.py
    <reports_dir>/snapshot/.progress-<run>/*.json     the same
    <reports_dir>/process/.progress-<run>/*.json      tasks/task_progress.py

The files are read as plain JSON: their models live beside code that loads Kafka's client.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from statestore.objects.path import TROUBLE, Location, each_at_once
from statestore.reports import readable
from statestore_ui.recent import Recent

_PREFIX = ".progress-"
#: Work that said nothing for so long is left out: it was killed, and nobody has removed its files.
_FORGOTTEN_S = 86_400.0
_MOST_SHOWN = 200
_MOST = 2**63
_Told = dict[str, Any]
_Stamped = tuple[int, int, int, _Told | None]


class _Kind(NamedTuple):
    """What the files of a job say.

    Attributes
    ----------
    phases
        In the order in which they come.
    names, numbers
        Fields with a text, and those with a number and what it is where it is missing.
    piece
        Puts together what several files say of one piece of work.
    """

    phases: tuple[str, ...]
    names: tuple[str, ...]
    numbers: Mapping[str, float]
    piece: Callable[[tuple[str, ...], list[_Told]], _Told]


class Running:
    """Reads progress files, and those that have not changed only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent = Recent[dict[str, Any]]()
        self._read: dict[Location, _Stamped] = {}

    def get(self, reports_dir: Location, now_s: float | None = None) -> dict[str, Any]:
        """Return the work in progress, that which spoke last first.

        Parameters
        ----------
        now_s
            Time of now, in seconds since the epoch.
        """
        with self._lock:
            at_s = time.time() if now_s is None else now_s
            return self._recent.get(reports_dir, lambda: self._get(reports_dir, at_s))

    def _get(self, reports_dir: Location, now_s: float) -> dict[str, Any]:
        before, self._read = self._read, {}
        found = [
            work
            for job, kind in _KINDS.items()
            for directory in _directories(reports_dir / job)
            if (work := self._work(job, kind, directory, before, now_s)) is not None
        ]
        return {"work": sorted(found, key=lambda work: work["updated_ms"], reverse=True)}

    def _work(
        self, job: str, kind: _Kind, directory: Location, before: dict[Location, _Stamped], now_s: float
    ) -> dict[str, Any] | None:
        parts: dict[tuple[str, ...], list[_Told]] = {}
        newest_ns = 0
        files = _files(directory)
        found = each_at_once(files, lambda path: _stamped(path, kind, before.get(path)))
        for path, stamped in zip(files, found, strict=True):
            if stamped is None:
                continue
            self._read[path] = stamped
            newest_ns = max(newest_ns, stamped[0])
            if (told := stamped[3]) is not None:
                parts.setdefault(tuple(told[name] for name in kind.names), []).append(told)
        silent_s = now_s - newest_ns / 1e9
        name = f"{directory.name.removeprefix(_PREFIX)}.json"
        # The second is of one application, where a run has several.
        ended = any(_younger(directory.parent / place / name, newest_ns) for place in (".", ".parts"))
        if not parts or silent_s > _FORGOTTEN_S or ended:
            return None
        pieces = [kind.piece(key, told) for key, told in sorted(parts.items())]
        working = [each for each in pieces if each["phase"] != "ended"]
        left = [each["seconds_left"] for each in working if each["seconds_left"] is not None]
        return {
            "job": job,
            "applications": sorted({each["application"] for each in pieces}),
            "run": readable(directory.name.removeprefix(_PREFIX)),
            "updated_ms": newest_ns // 1_000_000,
            "silent_s": round(max(silent_s, 0.0), 1),
            "ended": len(pieces) - len(working),
            "seen": len(pieces),
            "done": sum(each["done"] for each in pieces),
            "total": sum(each["total"] for each in pieces),
            "records": sum(each["records"] for each in pieces),
            "dead_letters": sum(each.get("dead_letters", 0) for each in pieces),
            "records_per_s": round(sum(each["records_per_s"] for each in working), 1),
            "seconds_left": max(left, default=None),
            "pieces": working[:_MOST_SHOWN],
        }


def _partition(key: tuple[str, ...], told: list[_Told]) -> _Told:
    """Put together what a store partition and the ranges of its log say.

    While the ranges are read the store partition itself says nothing yet, or only that it is looked at.
    """
    whole = next((each for each in told if not each["part"]), None)
    ranges = [each for each in told if each["part"]]
    speaking = [whole] if whole is not None and (whole["end"] > whole["start"] or not ranges) else ranges
    reading = [each for each in speaking if each["phase"] == "reading"]
    left = [each["seconds_left"] for each in reading if each["seconds_left"] is not None]
    phases = [each["phase"] for each in ([whole] if whole is not None and speaking == [whole] else ranges)]
    phase = min(phases, key=_RESTORE_PHASES.index)
    return {
        "application": key[0],
        "store": key[1],
        "task": key[2],
        # Ranges that were read are still to be put together.
        "phase": "building" if phase == "ended" and whole is None else phase,
        "done": sum(each["next"] - each["start"] for each in speaking),
        "total": sum(each["end"] - each["start"] for each in speaking),
        "records": sum(each["records"] for each in speaking),
        "records_per_s": round(sum(each["records_per_s"] for each in reading), 1),
        "seconds_left": max(left, default=None),
        "fetched_bytes": sum(each["fetched_bytes"] for each in told),
        "snapshot_bytes": sum(each["snapshot_bytes"] for each in told),
    }


def _task(key: tuple[str, ...], told: list[_Told]) -> _Told:
    """Say how far a task of `process` is; one that recovers has not begun to read its input."""
    (only,) = told[-1:]
    begun = only["phase"] != "recovering"
    return {
        "application": key[0],
        "task": key[1],
        "phase": only["phase"],
        "done": only["next"] - only["first"] if begun else 0,
        "total": only["end"] - only["first"] if begun else 0,
        "records": only["records_in"],
        "dead_letters": only["poison_records"],
        "records_per_s": 0.0,
        "seconds_left": None,
    }


_RESTORE_PHASES = ("verifying", "fetching", "reading", "building", "checking", "ended")
_RESTORE = _Kind(
    _RESTORE_PHASES,
    ("application", "store", "task"),
    {"start": 0, "next": 0, "end": 0, "records": 0, "records_per_s": 0.0, "fetched_bytes": 0, "snapshot_bytes": 0},
    _partition,
)
_PROCESS = _Kind(
    ("recovering", "processing", "ended"),
    ("application", "task"),
    {"first": 0, "next": 0, "end": 0, "records_in": 0, "poison_records": 0},
    _task,
)
_KINDS = {"restore": _RESTORE, "snapshot": _RESTORE, "process": _PROCESS}


def _directories(job: Location) -> list[Location]:
    try:
        return [path for path in job.iterdir() if path.name.startswith(_PREFIX)]
    except TROUBLE:
        return []  # the overview says what is wrong with it


def _files(directory: Location) -> list[Location]:
    try:
        return [path for path in directory.iterdir() if path.suffix == ".json" and not path.name.startswith(".")]
    except TROUBLE:
        return []  # it has just ended


def _stamped(path: Location, kind: _Kind, before: _Stamped | None) -> _Stamped | None:
    try:
        stat = path.stat()
        if before is not None and before[:3] == (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size):
            return before
        return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, _told(path.read_bytes(), kind)
    except TROUBLE:
        return None


def _told(content: bytes, kind: _Kind) -> _Told | None:
    """What a file says; None if something else has written it."""
    try:
        found = {**kind.numbers, "part": "", "seconds_left": None, **json.loads(content)}
        texts = [found[name] for name in (*kind.names, "part")]
        named = all(isinstance(text, str) and text.isprintable() for text in texts)
        counted = all(_is_number(found[name]) for name in kind.numbers)
        timed = found["seconds_left"] is None or _is_number(found["seconds_left"])
        return found if named and counted and timed and found["phase"] in kind.phases else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_number(value: object) -> bool:
    """True for what the page can add up: neither NaN nor a number that no float holds."""
    return isinstance(value, int | float) and -_MOST < value < _MOST


def _younger(report: Location, than_ns: int) -> bool:
    try:
        return report.stat().st_mtime_ns >= than_ns
    except TROUBLE:
        return False
