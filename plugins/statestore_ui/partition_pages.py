"""Store partitions as a browser asks for them: filtered, sorted, and so many at a time."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from statestore.environments import environment_of
from statestore.objects.path import Location, name_below
from statestore.reports import Action
from statestore_ui.partition_health import FIRST, LEVELS, Newest, Standing, runs_of, shown

#: Rows of one answer.
MOST_ROWS = 1_000
#: Answers to the last questions that are kept: while somebody scrolls, the question stays.
_QUESTIONS = 8


class Partition(NamedTuple):
    """One store partition, and what the page says of it.

    Attributes
    ----------
    starts
        Names of the forms that make sense for it; None: all.
    since_ms
        Since when it needs action, as far back as reports were read; None: it does not, or that is unknown.
    """

    application: str
    store: str
    task: str
    newest: Newest
    standing: Standing
    starts: tuple[str, ...] | None = None
    since_ms: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Its names."""
        return self.application, self.store, self.task

    @property
    def is_placeholder(self) -> bool:
        """True if it stands for an application or a task whose stores are not known."""
        return self.store == "-"

    @property
    def button(self) -> str | None:
        """The form that helps; None if no form of the page does."""
        button = self.standing.button
        return button if self.starts is None or button in self.starts else None

    @property
    def is_restored(self) -> bool:
        """True if a restore of the application would do something about it, by what is known."""
        verify = self.newest.verify
        return self.button == "restore" or (
            verify is not None and self.standing.verified and verify.action in (Action.TAIL, Action.FULL)
        )

    @property
    def label(self) -> str:
        """Its name: `flight-delays/aircraft/0_3`."""
        return f"{self.application}/{self.store}/{self.task}"


class Question(NamedTuple):
    """Which store partitions, in which order.

    Attributes
    ----------
    application, store, task, level
        Exactly this one; empty: all.
    words
        Each is a part of the name or of the status.
    by
        One of `ORDERS`.
    hidden
        Environments whose applications are left out.
    """

    application: str = ""
    store: str = ""
    task: str = ""
    level: str = ""
    words: tuple[str, ...] = ()
    by: str = "status"
    down: bool = False
    hidden: frozenset[str] = frozenset()


def _finished(name: str) -> Callable[[Partition], int]:
    at = Newest._fields.index(name)

    def finished_ms(partition: Partition) -> int:
        row: Any = partition.newest[at]
        return 0 if row is None else row.run.finished_ms

    return finished_ms


def _lag(partition: Partition) -> int:
    verify = partition.newest.verify
    known = partition.standing.verified and verify is not None and verify.lag is not None
    return verify.lag if known and verify is not None and verify.lag is not None else -1


def _restore_point_ms(partition: Partition) -> int:
    verify = partition.newest.verify
    return (verify.restore_point or {}).get("written_ms") or 0 if verify is not None else 0


def _verdict(partition: Partition) -> str:
    validate = partition.newest.validate
    return "~" if validate is None else validate.verdict


def _proven_ms(partition: Partition) -> int:
    drill = partition.newest.drill
    return 0 if drill is None else drill.proven_ms or 0


def _rank(partition: Partition) -> tuple[int, int]:
    standing = partition.standing
    return -LEVELS.index(standing.level), FIRST.index(standing.word) if standing.word in FIRST else len(FIRST)


_restored_ms = _finished("restore")
#: What is sorted by; the rest of the order is by name, in which the partitions come.
ORDERS: dict[str, Callable[[Partition], Any] | None] = {
    "name": None,
    "status": _rank,
    "lag": lambda partition: -_lag(partition),
    "verified": _finished("verify"),
    "restored": lambda partition: -_restored_ms(partition),
    "restore_point": lambda partition: -_restore_point_ms(partition),
    "verdict": _verdict,
    "proven": _proven_ms,
}


class _Answer(NamedTuple):
    partitions: Sequence[Partition]
    of: int
    levels: dict[str, int]


class Pages:
    """Answers questions about the store partitions of one overview."""

    def __init__(self, tag: str, partitions: Sequence[Partition], data_docs_dir: Location) -> None:
        self._tag, self._partitions, self._data_docs_dir = tag, partitions, data_docs_dir
        self._lock = threading.Lock()
        self._answers: OrderedDict[Question, _Answer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, question: Question, offset: int = 0, limit: int = MOST_ROWS) -> bytes:
        """Return some of the store partitions asked for, as they are sent.

        `total`: how many there are; `of`: how many the application has, of which `levels` counts; `runs`: what `rows`
        name by number.
        """
        answer = self._answer(question)
        rows, runs, numbers = [], list[dict[str, Any]](), dict[int, int]()
        for partition in answer.partitions[offset : offset + limit]:
            row = shown(partition.newest, partition.standing)
            if partition.starts is not None:
                row["starts"] = list(partition.starts)
                if partition.button is None:
                    row.pop("button", None)
            if partition.since_ms is not None:
                row["since_ms"] = partition.since_ms
            for run in runs_of(row):
                if id(run) not in numbers:
                    numbers[id(run)] = len(runs)
                    runs.append(run._asdict())
            for job in ("verify", "restore", "validate", "process", "drill"):
                if job in row:
                    row[job]["run"] = numbers[id(row[job]["run"])]
            self._link_data_docs(row)
            names = {"application": partition.application, "store": partition.store, "task": partition.task}
            rows.append({**names, **row})
        found = {
            "tag": self._tag,
            "total": len(answer.partitions),
            "of": answer.of,
            "levels": answer.levels,
            "offset": offset,
            "runs": runs,
            "rows": rows,
        }
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()

    def restorable(
        self,
        application: str,
        stores: Sequence[str],
        numbers: Sequence[int],
        *,
        force: bool,
        shows: Callable[[str], bool] = lambda _: True,
    ) -> bytes:
        """Return how many store partitions a restore selects, and how many of them it would restore.

        Parameters
        ----------
        stores, numbers
            Names of stores and numbers of partitions; empty: all.
        force
            Healthy stores are rebuilt, too.
        shows
            Tells whether an application is counted.
        """
        found = [
            one
            for one in self._partitions
            if not one.is_placeholder
            and application in ("", one.application)
            and shows(one.application)
            and (not stores or one.store in stores)
            and (not numbers or one.task.rpartition("_")[2] in map(str, numbers))
        ]
        restored = len(found) if force else sum(one.is_restored for one in found)
        return json.dumps({"of": len(found), "restored": restored}).encode()

    def _answer(self, question: Question) -> _Answer:
        with self._lock:
            if question not in self._answers:
                self._answers[question] = self._look(question)
                while len(self._answers) > _QUESTIONS:
                    self._answers.popitem(last=False)
            self._answers.move_to_end(question)
            return self._answers[question]

    def _look(self, question: Question) -> _Answer:
        application, store, task = question.application, question.store, question.task
        found = [one for one in self._partitions if not application or one.application == application]
        if question.hidden:
            names = {one.application for one in found}
            shown = {name for name in names if environment_of(name).name not in question.hidden}
            found = [one for one in found if one.application in shown]
        of = len(found)
        levels: dict[str, int] = {}
        for one in found:
            levels[one.standing.level] = levels.get(one.standing.level, 0) + 1
        if store or task:
            found = [one for one in found if (not store or one.store == store) and (not task or one.task == task)]
        if question.level:
            found = [one for one in found if one.standing.level == question.level]
        if question.words:
            found = [one for one in found if _has(one, question.words)]
        key = ORDERS[question.by]
        if key is not None:
            found.sort(key=key, reverse=question.down)
        elif question.down:
            found.reverse()
        return _Answer(found, of, levels)

    def _link_data_docs(self, row: dict[str, Any]) -> None:
        """Turn the page's path into an address below Airflow's; one that lies elsewhere has none."""
        validated = row.get("validate") or {}
        page = validated.pop("data_docs", None)
        relative = None if page is None else name_below(page, self._data_docs_dir)
        if relative is not None:
            validated["data_docs"] = f"statestore/docs/{quote(relative)}"


def _has(partition: Partition, words: Sequence[str]) -> bool:
    text = f"{partition.label} {partition.standing.word}".lower()
    return all(word in text for word in words)
