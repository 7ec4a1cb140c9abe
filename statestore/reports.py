"""The JSON reports in which jobs leave their results, for the next Airflow task, the UI and people.

A report is written once, atomically, at `<reports_dir>/<job>/<run id>.json`. It is complete or absent.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from statestore.errors import InputError, RetryError, StateStoreError


class Status(StrEnum):
    """State of a store partition as verification finds it (see docs/architecture.md for what each means)."""

    OK = "OK"
    EMPTY = "EMPTY"
    LAGGING = "LAGGING"
    MISSING = "MISSING"
    AHEAD = "AHEAD"
    TRUNCATED = "TRUNCATED"
    REPLACED = "REPLACED"
    UNCLEAN = "UNCLEAN"
    CORRUPT = "CORRUPT"
    DOWNGRADED = "DOWNGRADED"
    LOCKED = "LOCKED"

    @property
    def healthy(self) -> bool:
        """True where nothing is to be done."""
        return self in (Status.OK, Status.EMPTY)


class Action(StrEnum):
    """What follows from a status."""

    NONE = "none"
    TAIL = "tail"
    FULL = "full"
    LATER = "later"
    BY_HAND = "by hand"


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(_Row):
    """Why a row's work was not done."""

    kind: str
    message: str
    retriable: bool = False

    @classmethod
    def of(cls, error: StateStoreError) -> Failure:
        """Describe an error of the library."""
        message = str(error).encode(errors="backslashreplace").decode()  # file names need not be Unicode
        return cls(kind=error.kind, message=message, retriable=isinstance(error, RetryError))


class StorePartitionRow(_Row):
    """Names the store partition that a row speaks of."""

    application: str
    store: str
    task: str

    @property
    def label(self) -> str:
        """How the row is called in the Airflow UI: `flight-delays/aircraft/0_3`."""
        return f"{self.application}/{self.store}/{self.task}"


class StoreFigures(_Row):
    """What a task's store did: KIP-1035's commit figures, and what restored it."""

    store: str
    commits: int
    commit_latency_avg_ms: float
    commit_latency_max_ms: float
    restored: int = Field(default=0, description="changelog records replayed")
    restore_seconds: float = 0.0
    rebuilt: str | None = Field(default=None, description="why the store was rebuilt; None: it was not")
    expired: int = Field(default=0, description="changes dropped because their window or session had expired")


class ProcessRow(_Row):
    """What one task of a `process` run did."""

    application: str
    task: str
    records_in: int = 0
    records_out: int = 0
    changelog_records: int = 0
    late_records: int = Field(default=0, description="came after their window or session had closed")
    dropped_records: int = Field(default=0, description="had no key or value to group by")
    poison_records: int = Field(default=0, description="sent to the dead-letter topic")
    commits: int = 0
    restored: int = 0
    lag: int | None = Field(default=None, description="input records left below the end offset; None if unknown")
    recover_seconds: float = 0.0
    process_seconds: float = 0.0
    seconds: float = 0.0
    stores: tuple[StoreFigures, ...] = ()
    failure: Failure | None = None

    @property
    def label(self) -> str:
        """How the row is called in the Airflow UI: `flight-delays/0_3`."""
        return f"{self.application}/{self.task}"

    @property
    def records_per_s(self) -> float:
        """Records processed in a second of processing."""
        return self.records_in / self.process_seconds if self.process_seconds else 0.0

    @property
    def healthy(self) -> bool:
        """True if the task reached its end offset."""
        return self.failure is None


class VerifyRow(StorePartitionRow):
    """What verification found for one store partition, with the evidence."""

    status: Status
    action: Action
    detail: str = ""
    committed: int | None = Field(default=None, description="offset of the last changelog record in the store")
    start: int | None = Field(default=None, description="log start offset of the changelog")
    end: int | None = Field(default=None, description="last stable offset of the changelog, exclusive")
    topic_id: str | None = None
    keys: int | None = Field(default=None, description="rows read in the full scan")
    seconds: float = 0.0

    @property
    def healthy(self) -> bool:
        """True where nothing is to be done."""
        return self.status.healthy


class RestoreRow(StorePartitionRow):
    """What a restore did with one store partition."""

    before: Status | None = None
    mode: Literal["tail", "full"] | None = Field(default=None, description="None where nothing had to be done")
    outcome: Literal["restored", "skipped", "failed"]
    records: int = 0
    keys: int = 0
    committed: int | None = None
    quarantine: str | None = Field(default=None, description="directory of the replaced store, until validation")
    seconds: float = 0.0
    failure: Failure | None = None

    @property
    def healthy(self) -> bool:
        """True if the store partition is whole now."""
        return self.outcome != "failed"


class ValidateRow(StorePartitionRow):
    """What validation says of one store partition; suites judge a store, so its partitions share their verdict."""

    verdict: Literal["passed", "failed", "error"]
    expectations: int = 0
    failed_expectations: tuple[str, ...] = ()
    keys: int = 0
    detail: str = ""
    data_docs: str | None = None

    @property
    def healthy(self) -> bool:
        """True if every expectation held."""
        return self.verdict == "passed"


class JobReport(BaseModel):
    """What the reports of all jobs have in common; `rows` is one row per task or store partition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    run_id: str
    applications: tuple[str, ...]
    started_ms: int
    finished_ms: int

    @property
    def seconds(self) -> float:
        """Duration of the run."""
        return (self.finished_ms - self.started_ms) / 1000


class ProcessReport(JobReport):
    """Report of a `process` run, one row per task."""

    job: Literal["process"] = "process"
    rows: tuple[ProcessRow, ...]


class VerifyReport(JobReport):
    """Report of a `verify` run, one row per store partition."""

    job: Literal["verify"] = "verify"
    rows: tuple[VerifyRow, ...]


class RestoreReport(JobReport):
    """Report of a `restore` run, one row per store partition asked for."""

    job: Literal["restore"] = "restore"
    rows: tuple[RestoreRow, ...]


class ValidateReport(JobReport):
    """Report of a `validate` run, one row per store partition asked for."""

    job: Literal["validate"] = "validate"
    data_docs: str | None = Field(default=None, description="index page of the Data Docs")
    rows: tuple[ValidateRow, ...]


Report = Annotated[ProcessReport | VerifyReport | RestoreReport | ValidateReport, Field(discriminator="job")]
R = TypeVar("R", ProcessReport, VerifyReport, RestoreReport, ValidateReport)


def write_report(path: Path, report: JobReport) -> None:
    """Write the report so that a reader finds all of it or nothing, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(report.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_report(path: Path, kind: type[R]) -> R:
    """Read a report of the given kind.

    Raises
    ------
    InputError
        If the file is absent, or is not such a report.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"no report at {path}: the job that writes it did not finish; see its log") from error
    except ValidationError as error:
        raise InputError(f"{path} is not a {kind.__name__} of schema version 1: {error}") from error
