"""What the page keeps of a report's rows, and how it reads them: in pieces, so that memory is bounded by what is kept.

A report of 100,000 store partitions has 50 MB. The jobs write reports with one space of indentation for each level, and
JSON has no line breaks inside texts, so the lines of a report show where a row ends. Each piece is checked and decoded
by itself, and of each row only what the page shows stays. A report that was indented otherwise is decoded as a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BytesIO
from typing import IO, Any, NamedTuple, NotRequired

from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from statestore.objects.path import Location, ObjectPath
from statestore.reports import Action, Int64, Loss, Status, SurveyReport

Key = tuple[str, str, str]
_PIECE_BYTES = 1 << 20
_ROWS, _ROWS_END, _ROW_END = b'\n "rows": [\n', b"\n ]", b"\n  },\n"
#: What is not a number in JSON is no number of a row.
_NUMBERS = ConfigDict(allow_inf_nan=False)


class Head(BaseModel):
    """What stands at the beginning of each report, before its rows."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    job: str
    run_id: str
    applications: tuple[str, ...]
    started_ms: Int64
    finished_ms: Int64
    dag_id: str | None = None
    dag_run_id: str | None = None
    state_dir: str | None = None


class Run(NamedTuple):
    """The run that a row is from."""

    job: str
    started_ms: int
    finished_ms: int
    dag_id: str | None
    dag_run_id: str | None
    report: str


# -- rows as they are kept ---------------------------------------------------------------------------------------------


class Verified(NamedTuple):
    """A row of `verify`; `Run` comes first in each kind."""

    run: Run
    status: Status
    action: Action
    detail: str
    depth: str
    lag: int | None
    committed: int | None
    end: int | None
    keys: int | None
    loss: Loss | None
    loss_detail: str
    restore_point: dict[str, Any] | None
    advice: dict[str, Any] | None = None
    kill_risk: str = ""
    live: bool = False
    proven: bool = False
    disk_offset: int | None = None
    disk_lag: int | None = None


class Restored(NamedTuple):
    """A row of `restore`."""

    run: Run
    outcome: str
    mode: str | None
    before: Status | None
    records: int
    keys: int
    committed: int | None
    end: int | None
    quarantine: str | None
    failure: str | None


class Validated(NamedTuple):
    """A row of `validate`."""

    run: Run
    verdict: str
    expectations: int
    failed: tuple[str, ...]
    detail: str
    rollback: str | None
    data_docs: str | None
    differs: bool | None = None


class TaskDone(NamedTuple):
    """A row of `process`: what one task did."""

    run: Run
    lag: int | None
    failure: str | None
    records_in: int
    dead_letters: int
    late: int
    dropped: int


class Processed(NamedTuple):
    """What a task of `process` did with one of its stores."""

    task: TaskDone
    commits: int
    latency_avg_ms: float
    latency_max_ms: float
    committed: int | None
    restored: int
    rebuilt: str | None

    @property
    def run(self) -> Run:
        return self.task.run

    @property
    def wrote(self) -> bool:
        """Whether the run has changed the store, or found out that its changelog has something."""
        return self.committed is not None or self.restored > 0 or self.rebuilt is not None


class Drilled(NamedTuple):
    """A row of `drill`: how the store partition stands, and the figures of its last drill."""

    run: Run
    standing: str
    detail: str
    proven_ms: int | None
    drilled_ms: int | None
    seconds: float
    within_seconds: float | None
    rows: int
    evidence: int | None
    valid_until_ms: int | None = None

    def at(self, now_ms: int) -> Drilled:
        """Return the row as it counts now: a proof that has become too old no longer does."""
        until_ms = self.valid_until_ms
        if self.standing != "proven" or until_ms is None or now_ms <= until_ms:
            return self
        return self._replace(standing="proven too long ago", detail="the last proof is older than its objective")


class Surveyed(NamedTuple):
    """A report of `survey`: figures of the cluster."""

    run: Run
    cluster: str
    applications: int
    risks: int
    unread: int
    not_looked_at: tuple[str, ...]


Row = Verified | Restored | Validated | Processed | Drilled

# -- rows as they are written: what is not named here is not decoded --------------------------------------------------


class _Failure(TypedDict):
    kind: str
    message: str


class _Names(TypedDict):
    __pydantic_config__ = _NUMBERS  # type: ignore[misc]

    application: str
    store: str
    task: str
    seconds: NotRequired[float]


class _RestorePoint(TypedDict, total=False):
    snapshot: str | None
    usable: bool
    detail: str
    committed: Int64 | None
    written_ms: Int64 | None
    until_ms: Int64 | None
    fetched: Int64
    offsets: Int64


class _Advice(TypedDict):
    situation: str
    sentence: str
    command: NotRequired[str | None]
    button: NotRequired[str | None]


class _Contents(TypedDict):
    offsets: NotRequired[list[tuple[Int64, Int64]]]
    partition_offsets: NotRequired[list[tuple[Int64, Int64, Int64]]]


class _VerifyRow(_Names):
    status: Status
    action: Action
    detail: NotRequired[str]
    depth: NotRequired[str]
    lag: NotRequired[Int64 | None]
    committed: NotRequired[Int64 | None]
    end: NotRequired[Int64 | None]
    keys: NotRequired[Int64 | None]
    loss: NotRequired[Loss | None]
    loss_detail: NotRequired[str]
    restore_point: NotRequired[_RestorePoint | None]
    advice: NotRequired[_Advice | None]
    kill_risk: NotRequired[str]
    live: NotRequired[bool]
    disk_offset: NotRequired[Int64 | None]
    disk_lag: NotRequired[Int64 | None]
    contents: NotRequired[_Contents | None]


class _RestoreRow(_Names):
    outcome: str
    mode: NotRequired[str | None]
    before: NotRequired[Status | None]
    records: NotRequired[Int64]
    keys: NotRequired[Int64]
    committed: NotRequired[Int64 | None]
    end: NotRequired[Int64 | None]
    directory: NotRequired[str | None]
    quarantine: NotRequired[str | None]
    failure: NotRequired[_Failure | None]


class _ValidateRow(_Names):
    verdict: str
    expectations: NotRequired[Int64]
    failed_expectations: NotRequired[tuple[str, ...]]
    differs: NotRequired[bool | None]
    detail: NotRequired[str]
    rollback: NotRequired[str | None]
    data_docs: NotRequired[str | None]


class _DrillRow(_Names):
    standing: str
    detail: NotRequired[str]
    proven_ms: NotRequired[Int64 | None]
    drilled_ms: NotRequired[Int64 | None]
    within_seconds: NotRequired[float | None]
    rows: NotRequired[Int64]
    evidence: NotRequired[Int64 | None]
    valid_until_ms: NotRequired[Int64 | None]


class _StoreFigures(TypedDict):
    __pydantic_config__ = _NUMBERS  # type: ignore[misc]

    store: str
    commits: Int64
    commit_latency_avg_ms: float
    commit_latency_max_ms: float
    committed: NotRequired[Int64 | None]
    restored: NotRequired[Int64]
    rebuilt: NotRequired[str | None]


class _ProcessRow(TypedDict):
    __pydantic_config__ = _NUMBERS  # type: ignore[misc]

    application: str
    task: str
    lag: NotRequired[Int64 | None]
    records_in: NotRequired[Int64]
    poison_records: NotRequired[Int64]
    late_records: NotRequired[Int64]
    dropped_records: NotRequired[Int64]
    seconds: NotRequired[float]
    stores: NotRequired[list[_StoreFigures]]
    failure: NotRequired[_Failure | None]


def _failure(row: Any) -> str | None:
    found = row.get("failure")
    return None if found is None else f"{found['kind']}: {found['message']}"


def _key(row: Any) -> Key:
    # Names are those of all other rows, of this report and of others.
    return sys.intern(row["application"]), sys.intern(row["store"]), sys.intern(row["task"])


#: A row with one of these statuses, and offsets whose rows it equals, is a proof.
_INTACT = (Status.PROVEN, Status.OK)


def _has_proof(contents: _Contents | None) -> bool:
    return contents is not None and bool(contents.get("offsets") or contents.get("partition_offsets"))


def _verified(rows: list[_VerifyRow], run: Run) -> Iterator[tuple[Key, Verified]]:
    for row in rows:
        yield (
            _key(row),
            Verified(
                run,
                row["status"],
                row["action"],
                row.get("detail", ""),
                row.get("depth", ""),
                row.get("lag"),
                row.get("committed"),
                row.get("end"),
                row.get("keys"),
                row.get("loss"),
                row.get("loss_detail", ""),
                row.get("restore_point"),  # type: ignore[arg-type]  # as it is sent
                row.get("advice"),  # type: ignore[arg-type]
                row.get("kill_risk", ""),
                row.get("live", False),
                row["status"] in _INTACT and _has_proof(row.get("contents")),
                row.get("disk_offset"),
                row.get("disk_lag"),
            ),
        )


def _restored(rows: list[_RestoreRow], run: Run) -> Iterator[tuple[Key, Restored]]:
    for row in rows:
        if row.get("mode") == "as-of" or row.get("directory") is not None:
            continue  # it was built elsewhere, and the live store is as it was
        yield (
            _key(row),
            Restored(
                run,
                row["outcome"],
                row.get("mode"),
                row.get("before"),
                row.get("records", 0),
                row.get("keys", 0),
                row.get("committed"),
                row.get("end"),
                row.get("quarantine"),
                _failure(row),
            ),
        )


def _validated(rows: list[_ValidateRow], run: Run) -> Iterator[tuple[Key, Validated]]:
    for row in rows:
        yield (
            _key(row),
            Validated(
                run,
                row["verdict"],
                row.get("expectations", 0),
                row.get("failed_expectations", ()),
                row.get("detail", ""),
                row.get("rollback"),
                row.get("data_docs"),
                row.get("differs"),
            ),
        )


def _processed(rows: list[_ProcessRow], run: Run) -> Iterator[tuple[Key, Processed]]:
    for row in rows:
        application, task = sys.intern(row["application"]), sys.intern(row["task"])
        done = TaskDone(
            run,
            row.get("lag"),
            _failure(row),
            row.get("records_in", 0),
            row.get("poison_records", 0),
            row.get("late_records", 0),
            row.get("dropped_records", 0),
        )
        for store in row.get("stores", ()):
            yield (
                (application, sys.intern(store["store"]), task),
                Processed(
                    done,
                    store["commits"],
                    store["commit_latency_avg_ms"],
                    store["commit_latency_max_ms"],
                    store.get("committed"),
                    store.get("restored", 0),
                    store.get("rebuilt"),
                ),
            )
        if not row.get("stores"):  # one that failed before it had opened its stores
            yield (application, "", task), Processed(done, 0, 0.0, 0.0, None, 0, None)


def _drilled(rows: list[_DrillRow], run: Run) -> Iterator[tuple[Key, Drilled]]:
    for row in rows:
        yield (
            _key(row),
            Drilled(
                run,
                row["standing"],
                row.get("detail", ""),
                row.get("proven_ms"),
                row.get("drilled_ms"),
                row.get("seconds", 0.0),
                row.get("within_seconds"),
                row.get("rows", 0),
                row.get("evidence"),
                row.get("valid_until_ms"),
            ),
        )


class _Kind(NamedTuple):
    rows: TypeAdapter[Any]
    whole: TypeAdapter[Any]
    kept: Any


def _kind(row: Any, kept: Any) -> _Kind:
    class Report(TypedDict):
        rows: list[row]

    return _Kind(TypeAdapter(list[row]), TypeAdapter(Report), kept)


_KINDS = {
    "process": _kind(_ProcessRow, _processed),
    "verify": _kind(_VerifyRow, _verified),
    "restore": _kind(_RestoreRow, _restored),
    "validate": _kind(_ValidateRow, _validated),
    "drill": _kind(_DrillRow, _drilled),
}
SURVEY = "survey"
#: Jobs whose reports the page shows.
JOBS = (*_KINDS, SURVEY)
#: Key of the figures of a survey, which are not those of a store partition.
CLUSTER: Key = ("", "", "")


def read_rows(job: str, path: Location, run: Run) -> dict[Key, Any]:
    """Return what the page keeps of each row of a report, by the store partition that it is about.

    Rows of `process` that name no store have an empty one.

    Raises
    ------
    OSError, StateStoreError
        If the file cannot be read.
    ValueError
        If it is no such report, or ends in the middle.
    """
    if job == SURVEY:
        return {CLUSTER: _surveyed(SurveyReport.model_validate_json(path.read_bytes()), run)}
    kind = _KINDS[job]
    with BytesIO(path.read_bytes()) if isinstance(path, ObjectPath) else path.open("rb") as content:
        found: dict[Key, Any] = {}
        for piece in _pieces(content):
            if piece.startswith(b"["):
                rows = kind.rows.validate_json(piece)
            else:
                Head.model_validate_json(piece)
                rows = kind.whole.validate_json(piece)["rows"]
            found.update(kind.kept(rows, run))
    return found


def _surveyed(report: SurveyReport, run: Run) -> Surveyed:
    applications = sum(bool(found.name) for found in report.surveyed)
    counts = applications, len(report.risks), len(report.unread)
    return Surveyed(run, report.cluster_id, *counts, tuple(report.left_out))


def _pieces(content: IO[bytes]) -> Iterator[bytes]:
    """Cut a report into lists of rows, and the report without these rows; one piece if it was not indented as ours."""
    start = content.read(_PIECE_BYTES)
    at = start.find(_ROWS)
    while at < 0 and (more := content.read(_PIECE_BYTES)):
        start += more
        at = start.find(_ROWS, len(start) - len(more) - len(_ROWS))
    if at < 0:
        yield start
        return
    head, rest = start[:at], start[at + len(_ROWS) :]
    while (end := rest.find(_ROWS_END)) < 0:
        cut = rest.rfind(_ROW_END)
        if cut >= 0:
            yield b"[" + rest[: cut + 4] + b"]"
            rest = rest[cut + len(_ROW_END) :]
        if not (more := content.read(_PIECE_BYTES)):
            raise ValueError("the report ends in the middle of its rows")
        rest += more
    yield b"[" + rest[:end] + b"]"
    yield head + b'\n "rows": []' + rest[end + len(_ROWS_END) :] + content.read()
