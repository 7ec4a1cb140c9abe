"""JSON reports with the results of jobs, for the next Airflow task, the UI, and people.

A report is written once, atomically, to `<reports_dir>/<job>/<run id>.json`, in a directory or in object storage. It is
complete or absent.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from statestore.errors import InputError, RetryError, StateStoreError, of_os_error
from statestore.objects.path import Location, write_whole


class Status(StrEnum):
    """Status of a store partition, as found by verification (docs/operations.md explains what to do for each)."""

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
    DIVERGED = "DIVERGED"
    WRONG_OFFSET = "WRONG_OFFSET"
    REPARTITIONED = "REPARTITIONED"
    UNKNOWN_FORMAT = "UNKNOWN_FORMAT"
    OLD_FORMAT = "OLD_FORMAT"
    STALE = "STALE"
    UNLOGGED = "UNLOGGED"
    UNDETERMINED = "UNDETERMINED"
    LOCKED = "LOCKED"
    PROVEN = "PROVEN"
    IN_USE = "IN_USE"
    UNCONFIRMED = "UNCONFIRMED"

    @property
    def healthy(self) -> bool:
        """True if no action is needed."""
        return self in _HEALTHY

    @property
    def is_found_by_rows(self) -> bool:
        """True if only a comparison of the rows with the changelog finds it, so that a restore needs its report."""
        return self in (Status.DIVERGED, Status.WRONG_OFFSET)


_HEALTHY = frozenset(
    {
        Status.OK,
        Status.EMPTY,
        Status.OLD_FORMAT,
        Status.STALE,
        Status.UNLOGGED,
        Status.PROVEN,
        Status.IN_USE,
    }
)


class Loss(StrEnum):
    """Whether a full rebuild of a store partition would lose data, by the best available evidence.

    NONE: no loss. UNPROVEN: nothing indicates a loss, but nothing proves that the changelog still has all data. LIKELY:
    something indicates that the changelog does not have all data.
    """

    NONE = "none"
    UNPROVEN = "unproven"
    LIKELY = "likely"


class Action(StrEnum):
    """Action that follows from a status."""

    NONE = "none"
    TAIL = "tail"
    FULL = "full"
    LATER = "later"
    BY_HAND = "manual"

    @classmethod
    def _missing_(cls, value: object) -> Action | None:
        return cls.BY_HAND if value == "by hand" else None  # as it was called in earlier reports


def readable(text: str) -> str:
    """Return a text that can be encoded in UTF-8. Bytes of a file name that are not UTF-8 become escapes."""
    return text.encode(errors="backslashreplace").decode()


def _text(value: Any) -> Any:
    return readable(value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """Return a user's value as any reader of JSON has it: numbers that are none, or that few can hold, are texts."""
    match value:
        case str():
            return readable(value)
        case float() if not math.isfinite(value):
            return str(value)
        case int() if not _LEAST <= value <= _MOST:
            return str(value) if value.bit_length() < _SHOWN_BITS else f"a number of {value.bit_length():,} bits"
        case dict():
            return {_text(name): _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
    return value


_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_SHOWN_BITS = 2_000
#: A text that may hold the name of a file.
Text = Annotated[str, BeforeValidator(_text)]
#: A browser and a Parquet file have no larger ones, and no float divides them.
Int64 = Annotated[int, Field(ge=_LEAST, le=_MOST)]
#: Values of a user's rows, by column.
Sample = Annotated[dict[str, Any], BeforeValidator(_plain)]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Failure(_Row):
    """Reason why the work of a row was not done."""

    kind: Text
    message: Text
    retriable: bool = False
    evidence: Text = Field(default="", description="offsets, topic ids, and other details that the message leaves out")

    @classmethod
    def of(cls, error: StateStoreError | OSError) -> Failure:
        """Describe an error of the library, or of the operating system, in the library's terms."""
        cause = of_os_error(error) if isinstance(error, OSError) else error
        return cls(
            kind=cause.kind, message=str(cause), retriable=isinstance(cause, RetryError), evidence=cause.evidence
        )


class Advice(_Row):
    """The next step for a store partition or a task (`statestore/advice.py`)."""

    situation: Text = Field(description="what is the case")
    sentence: Text = Field(description="what is the case and what to do, in at most two sentences")
    command: Text | None = Field(default=None, description="the command to run; None: there is none")
    button: Literal["restore", "verify", "process", "reseed"] | None = Field(
        default=None, description="the form on the page that does the same; None: there is none"
    )


class StorePartitionRow(_Row):
    """Identifies the store partition of a row."""

    application: Text
    store: Text
    task: Text

    @property
    def label(self) -> str:
        """Name of the row in the Airflow UI, such as `flight-delays/aircraft/0_3`."""
        return f"{self.application}/{self.store}/{self.task}"


class StoreFigures(_Row):
    """Figures of a task's store: KIP-1035's commit metrics, and its restore."""

    store: Text
    commits: Int64 = Field(description="commits while the task processed; those of a replay before it do not count")
    commit_latency_avg_ms: float
    commit_latency_max_ms: float
    committed: Int64 | None = Field(
        default=None, description="offset of the last changelog record that this run has committed"
    )
    restored: Int64 = Field(default=0, description="changelog records replayed")
    restore_seconds: float = 0.0
    rebuilt: Text | None = Field(default=None, description="why the store was rebuilt; None: it was not")
    expired: Int64 = Field(default=0, description="changes dropped because their window or session had expired")
    thread: Text = Field(default="", description="name of the thread that used the store; empty if it was not opened")
    scope: Text = Field(
        default="",
        description="Kafka Streams' scope of the store, such as `rocksdb-window`; empty if it was not opened",
    )
    deleted: Int64 = Field(default=0, description="rows deleted because they were older than the store's ttl_ms")


class SnapshotRow(_Row):
    """Published snapshot of one store."""

    store: Text
    snapshot: Text | None = Field(default=None, description="name of the snapshot; None if none was needed")
    files: Int64 = Field(default=0, description="uploaded files; files of the previous snapshot are not uploaded again")
    bytes: Int64 = Field(default=0, description="uploaded bytes")
    seconds: float = 0.0
    current: Text | None = Field(
        default=None,
        description="the snapshot with the current content of the store, published by this or an "
        "earlier run; None: none",
    )
    failure: Failure | None = Field(
        default=None, description="why it was not published; treat the store as one without a snapshot"
    )


class SnapshotSetRow(_Row):
    """Set of consistent snapshots of one application after a run of `process`."""

    application: Text
    snapshot_set: Text | None = Field(default=None, description="name of the set, even if an earlier run wrote it")
    why: Text = Field(default="", description="why there is no set")


class ProcessRow(_Row):
    """Result of one task of a `process` run."""

    application: Text
    task: Text
    records_in: Int64 = 0
    records_out: Int64 = 0
    changelog_records: Int64 = 0
    late_records: Int64 = Field(default=0, description="records that came after their window or session had closed")
    dropped_records: Int64 = Field(default=0, description="records that had no key or value to group by")
    poison_records: Int64 = Field(default=0, description="records sent to the dead-letter topic")
    commits: Int64 = 0
    restored: Int64 = 0
    lag: Int64 | None = Field(default=None, description="input records left below the end offset; None if unknown")
    never_read: Int64 = Field(
        default=0,
        description="input offsets that the topic lost before the application read them, because of its retention; "
        "reported until the group has committed an offset",
    )
    moved_from: Int64 | None = Field(
        default=None,
        description="next input offset of the task before somebody set another one with Kafka's tools, from which it "
        "has continued; None if nobody did",
    )
    input_offset: Int64 | None = Field(
        default=None,
        description="next input offset, committed together with the content of the stores; None if unknown",
    )
    recover_seconds: float = 0.0
    process_seconds: float = 0.0
    seconds: float = 0.0
    stores: tuple[StoreFigures, ...] = ()
    snapshots: tuple[SnapshotRow, ...] = ()
    failure: Failure | None = None

    @property
    def label(self) -> str:
        """Name of the row in the Airflow UI, such as `flight-delays/0_3`."""
        return f"{self.application}/{self.task}"

    @property
    def remarks(self) -> str:
        """What the task did besides processing: what it restored and why, and where it began in its input."""
        said = [
            f"{each.store}: {each.restored:,} changes restored{f' ({each.rebuilt})' if each.rebuilt else ''}"
            for each in self.stores
            if each.restored or each.rebuilt
        ]
        if self.never_read:
            said.append(f"never read: {self.never_read:,} offsets that the topic lost before")
        if self.moved_from is not None:
            said.append(f"continued from a group offset that was set manually; it would have been {self.moved_from:,}")
        return "; ".join(said)

    @property
    def records_per_s(self) -> float:
        """Records processed in a second of processing."""
        return self.records_in / self.process_seconds if self.process_seconds else 0.0

    @property
    def healthy(self) -> bool:
        """True if the task reached its end offset."""
        return self.failure is None


class DifferingKey(_Row):
    """A row that differs between a store and the fold of its changelog."""

    found: Literal["only in store", "only in log", "other value"]
    key: Text | None = Field(default=None, description="key of the row in hex; None if keys are hidden")
    key_sha256: Text
    store_sha256: Text | None = Field(default=None, description="digest of the value as it is stored")
    log_sha256: Text | None = Field(default=None, description="digest of the value as a store would have it")


class Contents(_Row):
    """Result of the comparison of a store's rows with the fold of its changelog, by deep verification."""

    store_rows: Int64 = Field(default=0, description="rows of the store that were compared")
    log_rows: Int64 = Field(default=0, description="rows of the fold that were compared")
    equal: Int64 = Field(default=0, description="rows that are the same in both")
    other_value: Int64 = 0
    only_in_store: Int64 = 0
    only_in_log: Int64 = 0
    not_judged: Int64 = Field(
        default=0, description="differing rows that do not count, because the log no longer shows what they should be"
    )
    unproven: Int64 = Field(
        default=0,
        description="keys whose rows equal the log, but compaction may have removed a record that they should equal",
    )
    store_digest: Text = Field(default="", description="digest of the compared rows of the store")
    log_digest: Text = Field(default="", description="digest of the compared rows of the log")
    sample: float | None = Field(default=None, description="fraction of the key ranges compared; None: all of them")
    first: tuple[DifferingKey, ...] = Field(default=(), description="the first keys that differ, in the store's order")
    offsets: tuple[tuple[Int64, Int64], ...] = Field(
        default=(),
        description="ranges of changelog offsets, both ends included, at which the changelog gives exactly the rows of "
        "the store; empty: not proven",
    )
    partition_offsets: tuple[tuple[Int64, Int64, Int64], ...] = Field(
        default=(),
        description="of a global table: partition, and first and last offset of a range at which the partition gives "
        "exactly the rows of its keys; empty: not proven",
    )
    not_proven: Text = Field(
        default="", description="why the rows were compared in key order, and their offsets are not proven"
    )
    brokers_timestamps: bool = Field(
        default=False,
        description="the log has the brokers' timestamps, so the timestamps of the store were not compared",
    )

    @property
    def differing(self) -> int:
        """Number of rows that differ although they must be equal."""
        return self.other_value + self.only_in_store + self.only_in_log


class RestorePoint(_Row):
    """The newest snapshot of a store partition, and the cost of a restore from it."""

    snapshot: Text | None = Field(
        default=None, description="name of the snapshot; None: there is none, or none can be read"
    )
    usable: bool = Field(default=False, description="whether a restore can start from it now")
    detail: Text = Field(default="", description="why it, or newer ones, cannot be used")
    committed: Int64 | None = Field(default=None, description="offset of the last changelog record in it")
    written_ms: Int64 | None = Field(default=None, description="when it was written, by the object store's clock")
    until_ms: Int64 | None = Field(
        default=None, description="when deletes after it may be missing from the changelog; None: never"
    )
    needed_from: Int64 | None = Field(
        default=None, description="it contains everything in its changelog from this offset on"
    )
    adopted: bool = Field(default=False, description="some of its rows may never have been in its changelog")
    fetched: Int64 = Field(
        default=0, description="bytes of its files; files that are already on the disk are not fetched"
    )
    offsets: Int64 = Field(default=0, description="changelog offsets to be read after it")


class VerifyRow(StorePartitionRow):
    """Result of the verification of one store partition, with the evidence."""

    status: Status
    action: Action
    detail: Text = ""
    loss: Loss | None = Field(
        default=None, description="what a full rebuild from the changelog would lose; None: not determined"
    )
    loss_detail: Text = Field(default="", description="what shows that something would or may be lost")
    depth: Literal["offsets", "scan", "deep"] = "scan"
    committed: Int64 | None = Field(default=None, description="offset of the last changelog record in the store")
    start: Int64 | None = Field(default=None, description="log start offset of the changelog")
    end: Int64 | None = Field(default=None, description="last stable offset of the changelog, exclusive")
    lag: Int64 | None = Field(
        default=None,
        description="offsets from the next record to read to the end; an upper limit for the number of records",
    )
    topic_id: Text | None = Field(default=None, description="id of the changelog; None: it does not exist")
    store_topic_id: Text | None = Field(
        default=None, description="id of the changelog that the store was built from; None: unknown"
    )
    advice: Advice | None = Field(default=None, description="the next step; None: no action is needed")
    sealed: bool | None = Field(
        default=None, description="whether the store is unchanged since it was sealed; None if this was not checked"
    )
    file: Text | None = Field(default=None, description="the file that is damaged")
    keys: Int64 | None = Field(default=None, description="rows read; None if the store was not read in full")
    contents: Contents | None = Field(default=None, description="what deep verification compared")
    loss_cause: Status | None = Field(default=None, description="what happened to the changelog, if a loss is likely")
    restore_point: RestorePoint | None = Field(
        default=None, description="the last snapshot; None: no archive, or a store that has no snapshots"
    )
    global_kind: Literal["table", "processor"] | None = Field(
        default=None, description="how a global store is filled: with the rows of its topic, or by a processor"
    )
    acknowledged: Text = Field(
        default="",
        description="since when, and why, a user acknowledges that it is not judged; empty: not acknowledged",
    )
    live: bool = Field(default=False, description="whether the store was read while it was, or could be, in use")
    host: Text | None = Field(default=None, description="of a store in use: the machine or pod that read its files")
    disk_offset: Int64 | None = Field(
        default=None,
        description="of a store in use: last changelog offset that its files have, proven from the rows or as the "
        "files state it; None: unknown",
    )
    disk_lag: Int64 | None = Field(
        default=None, description="of a store in use: changelog offsets that its files do not have yet"
    )
    kill_risk: Text = Field(
        default="",
        description="why a kill of the application now would lose data or cost a full restore; empty: nothing shows it",
    )
    seconds: float = 0.0

    @property
    def waits_for_loss(self) -> bool:
        """True if a rebuild would repair the store, and only what it would lose is in the way."""
        never = (Status.UNKNOWN_FORMAT, Status.REPARTITIONED)
        likely = self.action is Action.BY_HAND and self.loss is Loss.LIKELY
        return likely and self.status not in never and self.topic_id is not None

    @property
    def judged(self) -> bool:
        """True if the status says how the store is."""
        return self.status is not Status.UNKNOWN_FORMAT and not self.acknowledged

    @property
    def healthy(self) -> bool:
        """True if no action is needed."""
        return self.status.healthy or bool(self.acknowledged)


class RestoreRow(StorePartitionRow):
    """Result of the restore of one store partition."""

    before: Status | None = None
    mode: Literal["tail", "snapshot", "full", "as-of"] | None = Field(
        default=None, description="None if nothing had to be done, or an earlier attempt did it"
    )
    outcome: Literal["restored", "skipped", "failed"]
    records: Int64 = Field(default=0, description="changelog records applied")
    resumed: Int64 = Field(
        default=0,
        description="how many of these records came from existing runs: those of an interrupted attempt, or of ranges",
    )
    skipped: Int64 = Field(default=0, description="changelog records without a key")
    keys: Int64 = 0
    committed: Int64 | None = None
    start: Int64 | None = Field(default=None, description="first changelog offset read")
    end: Int64 | None = Field(default=None, description="offset before which reading ended, fixed when it began")
    checked: Literal["files", "rows", "deep"] | None = Field(
        default=None, description="how the new store was checked; see recovery/staged_check.py"
    )
    digest: Text | None = Field(default=None, description="digest of all written rows; equal rows have equal digests")
    exact: bool | None = Field(
        default=None,
        description="as-of, and a versioned store in mode full: False if compaction or deletion has removed records "
        "that the store may have had",
    )
    directory: Text | None = Field(default=None, description="as-of: where the store was built")
    quarantine: Text | None = Field(default=None, description="directory of the replaced store, until validation")
    replaced: Text | None = Field(
        default=None, description="for a store that is kept in the archive: the replaced snapshot, until validation"
    )
    snapshot: Text | None = Field(default=None, description="the snapshot that it was built from; None: its log alone")
    failed_sources: tuple[Text, ...] = Field(
        default=(), description="sources that could not be used although they should have been, and why"
    )
    phase_seconds: dict[Text, float] = Field(
        default={}, description="how long each phase took: verifying, fetching, reading, building, checking"
    )
    published: SnapshotRow | None = Field(default=None, description="the snapshot of the new store; None: no archive")
    seconds: float = 0.0
    failure: Failure | None = None

    @property
    def healthy(self) -> bool:
        """True if the store partition is healthy now."""
        return self.outcome != "failed"


class ArchivedRow(StorePartitionRow):
    """Snapshot of one store partition, published by the job `snapshot`."""

    snapshot: Text | None = Field(
        default=None, description="name of the snapshot; None if it could not be created, or already exists"
    )
    grown_from: Text | None = Field(default=None, description="the snapshot that it started from; None: its log alone")
    records: Int64 = Field(default=0, description="changelog records applied")
    keys: Int64 = 0
    committed: Int64 | None = Field(default=None, description="offset of the last changelog record in it")
    files: Int64 = Field(default=0, description="uploaded files; files of the previous snapshot are not uploaded again")
    bytes: Int64 = Field(default=0, description="uploaded bytes")
    seconds: float = 0.0
    failure: Failure | None = None

    @property
    def healthy(self) -> bool:
        """True if the archive contains the complete changelog up to its end at that time."""
        return self.failure is None


class WriteRow(StorePartitionRow):
    """Result of a write of the data source `state_store` in one store partition."""

    puts: Int64 = Field(default=0, description="rows written to the changelog")
    deletes: Int64 = Field(default=0, description="keys deleted in the changelog; append only")
    last: Int64 | None = Field(
        default=None, description="changelog offset of the last of these records; None: nothing was written"
    )
    caught_up: RestoreRow | None = Field(
        default=None, description="append: result of the store's catch-up; None: it was not reached"
    )
    quarantine: Text | None = Field(default=None, description="overwrite: directory of the replaced store")
    published: SnapshotRow | None = Field(
        default=None, description="overwrite: the snapshot of the new store; None: no archive"
    )
    failure: Failure | None = None

    @property
    def healthy(self) -> bool:
        """True if the rows are in the changelog, and the store has them."""
        return self.failure is None and (self.caught_up is None or self.caught_up.healthy)


class RestorePlanRow(StorePartitionRow):
    """Planned restore of one store partition, and its cost."""

    status: Status | None = None
    mode: Literal["tail", "snapshot", "full", "as-of"] | None = Field(
        default=None, description="None if nothing is to be done"
    )
    reason: Text = ""
    start: Int64 | None = Field(default=None, description="first changelog offset to be read")
    end: Int64 | None = Field(default=None, description="offset before which reading would end")
    resumable: Int64 = Field(default=0, description="offsets that an interrupted attempt has read")
    ranges: Int64 = Field(default=1, description="number of ranges that the log is divided into")
    log_bytes: Int64 = Field(default=0, description="keys and values to be read, estimated from a sample")
    snapshot: Text | None = Field(default=None, description="mode snapshot: the snapshot that it would start from")
    fetched: Int64 = Field(
        default=0, description="bytes to fetch from the snapshot; files that are on this disk are not fetched"
    )
    disk_needed: Int64 = Field(
        default=0, description="estimated bytes; the maximum, which is needed if few keys are overwritten"
    )
    disk_each: Int64 = Field(
        default=0,
        description="bytes that each Spark task needs on its node to build a part of the store; 0: there are no parts",
    )
    disk_free: Int64 = 0
    seconds: float = Field(default=0.0, description="estimated from the report's records_per_s")
    loss: Loss | None = Field(
        default=None, description="what the new store may lack of the present one; None if nothing is to be done"
    )
    loss_detail: Text = Field(default="", description="what shows that something would or may be lacking")
    begins: Text = Field(default="", description="why its snapshots would begin a generation; empty: they would not")
    suspects: Text = Field(
        default="", description="why the present snapshots would become suspect; empty: they would not"
    )
    publishes: bool = Field(default=False, description="whether a snapshot of the new store would be published")
    failure: Failure | None = Field(default=None, description="why it would be refused")

    @property
    def offsets(self) -> int:
        """Number of changelog offsets to read."""
        return 0 if self.start is None or self.end is None else max(self.end - self.start - self.resumable, 0)

    @property
    def healthy(self) -> bool:
        """True if the restore could begin."""
        return self.failure is None


#: `error`: an expectation, or the whole store, could not be evaluated. `not judged`: no suite applies to what can be
#: read of the store. Only `passed` is healthy.
ValidationVerdict = Literal["passed", "failed", "error", "not judged"]


class ValidateRow(StorePartitionRow):
    """Result of the validation of one store partition. All partitions of a store share its verdict."""

    verdict: ValidationVerdict
    expectations: Int64 = 0
    failed_expectations: tuple[Text, ...] = ()
    differs: bool | None = Field(
        default=None, description="whether rows differ from the changelog; None: not known, or nothing failed"
    )
    keys: Int64 = 0
    detail: Text = ""
    data_docs: Text | None = None
    quarantine: Text | None = Field(
        default=None, description="directory of the replaced store, if it is kept for a rollback"
    )
    rollback: Text | None = Field(default=None, description="the command that puts the replaced store back")

    @property
    def healthy(self) -> bool:
        """True if every expectation was met."""
        return self.verdict == "passed"


class FailedRows(_Row):
    """Rows that do not meet an expectation."""

    expectation: Text
    count: Int64 | None = Field(
        default=None, description="None if the expectation concerns all rows together, such as their number"
    )
    rows: tuple[Sample, ...] = Field(default=(), description="the first of these rows; bytes are hexadecimal")


class ValidatedStore(_Row):
    """Result of the validation of one store with all of its partitions."""

    application: Text
    store: Text
    verdict: ValidationVerdict
    expectations: Int64 = 0
    failed_expectations: tuple[Text, ...] = ()
    failed_rows: tuple[FailedRows, ...] = ()
    differs: bool | None = Field(
        default=None, description="whether rows differ from the changelog; None: not known, or nothing failed"
    )
    detail: Text = ""
    keys: Int64 = 0
    not_compared: Int64 = Field(
        default=0, description="rows for which the changelog no longer shows what they should be"
    )
    seconds: float = 0.0
    suite_sha256: Text = Field(default="", description="SHA-256 of the suite's expectations")
    data_docs: Text | None = Field(default=None, description="page of this validation")
    verdict_file: Text | None = Field(default=None, description="this result as JSON, beside the Data Docs")
    plots: tuple[Text, ...] = ()


#: Result of one drill. `too slow`, `too old`: restored and proven, but not within the objective. `unproven`: restored,
#: but not everything was compared. `not done`: nothing was learned, because Kafka or the archive did not answer.
DrillVerdict = Literal["proven", "too slow", "too old", "unproven", "failed", "not done"]
#: Standing of a store partition by its last drills.
DrillStanding = Literal["proven", "never proven", "proven too long ago", "too slow", "too old", "unproven", "failed"]


#: Result of the suite of a restored store. `error`: an expectation could not be evaluated.
SuiteVerdict = Literal["passed", "failed", "error", "not run"]


class DrillRow(StorePartitionRow):
    """Standing of one store partition by its restore drills, with the figures of the last one."""

    standing: DrillStanding = Field(description="what the last drills show, against the objectives")
    drilled: bool = Field(default=False, description="whether this run drilled it; if not, the figures are older")
    verdict: DrillVerdict | None = Field(default=None, description="result of the last drill; None: there was none")
    detail: Text = Field(default="", description="why it is not proven, or why it was not drilled")
    drilled_ms: Int64 | None = Field(default=None, description="when the last drill ended")
    proven_ms: Int64 | None = Field(default=None, description="when it was last proven, in whatever time")
    source: Literal["snapshot", "full"] | None = Field(default=None, description="mode of the restore")
    snapshot: Text | None = Field(default=None, description="the snapshot that it started from; None: the log alone")
    snapshot_age_seconds: float | None = Field(default=None, description="how old that snapshot was")
    topic: Text | None = Field(default=None, description="the changelog")
    topic_id: Text | None = None
    start: Int64 | None = Field(default=None, description="first changelog offset read")
    end: Int64 | None = Field(default=None, description="offset before which reading ended")
    committed: Int64 | None = Field(default=None, description="offset of the last changelog record in the store")
    records: Int64 = Field(default=0, description="changelog records applied")
    bytes: Int64 = Field(default=0, description="bytes of the snapshot and of the changelog read, as estimated before")
    rows: Int64 = Field(default=0, description="rows of the store that were compared with the changelog")
    log_rows: Int64 = Field(default=0, description="rows of the changelog that they were compared with")
    offsets: tuple[tuple[Int64, Int64], ...] = Field(
        default=(), description="ranges of changelog offsets that the rows prove; empty: none"
    )
    rows_sha256: Text = Field(default="", description="SHA-256 of all rows of the store")
    snapshot_sha256: Text = Field(default="", description="SHA-256 of the snapshot's manifest")
    store_digest: Text = Field(default="", description="digest of the compared rows of the store (XXH64)")
    log_digest: Text = Field(default="", description="digest of the compared rows of the changelog (XXH64)")
    fetch_seconds: float = 0.0
    replay_seconds: float = 0.0
    build_seconds: float = 0.0
    check_seconds: float = 0.0
    proof_seconds: float = Field(default=0.0, description="comparison with the changelog, which a restore does not do")
    seconds: float = Field(default=0.0, description="the whole restore, without the proof")
    within_seconds: float | None = Field(default=None, description="objective of the restore; None: there is none")
    valid_until_ms: Int64 | None = Field(
        default=None, description="until when the last proof counts (proven_every); None: no limit, or no proof"
    )
    suite: SuiteVerdict | None = Field(
        default=None, description="result of the store's suite on the restored rows; None: no objective asks for it"
    )
    suite_expectations: Int64 = Field(default=0, description="expectations of the suite")
    suite_failed: tuple[Text, ...] = Field(default=(), description="expectations that were not met")
    suite_detail: Text = Field(default="", description="first rows that differ, or why the suite was not run")
    suite_sha256: Text = Field(default="", description="SHA-256 of the suite's expectations")
    suite_seconds: float = Field(default=0.0, description="validation by the suite, which a restore does not do")
    evidence: Int64 | None = Field(default=None, description="number of its document in the evidence")
    failure: Failure | None = Field(default=None, description="why this run's drill, or its evidence, is incomplete")

    @property
    def healthy(self) -> bool:
        """True if it is proven within its objectives."""
        return self.standing == "proven" and self.failure is None


class DrillConfidence(_Row):
    """How far the restores of one application can be relied on, from the drills of its store partitions."""

    application: Text
    partitions: Int64 = Field(description="store partitions")
    proven: Int64 = Field(description="store partitions that are proven within their objectives")
    slowest_seconds: float | None = Field(default=None, description="slowest restore among the last drills")
    p99_seconds: float | None = Field(default=None, description="99th percentile of these restores")
    application_seconds: float | None = Field(
        default=None, description="estimated restore of all store partitions; None: nothing was measured"
    )
    node_seconds: float | None = Field(
        default=None, description="estimated restore of those of one machine; None: not known how many there are"
    )
    assumptions: tuple[Text, ...] = Field(default=(), description="what the estimates assume")

    @property
    def share(self) -> float:
        """Share of the store partitions that are proven within their objectives."""
        return self.proven / self.partitions if self.partitions else 0.0


class EvidenceHead(_Row):
    """Head of the evidence of one application after a run."""

    application: Text
    length: Int64 = Field(description="number of documents")
    sha256: Text = Field(description="SHA-256 of the last document")
    recorded: bool = Field(description="whether the command topic has it")
    problem: Text = Field(default="", description="why evidence is missing or the head is not recorded")


class MaintenanceRow(_Row):
    """Files that maintenance removed in one place, or would remove."""

    place: Text = Field(
        description="a task (`flight-delays/0_3`), a kind of files (`reports/verify`), or a part of the archive"
    )
    removed: tuple[Text, ...] = Field(default=(), description="the first of the removed paths")
    removed_count: Int64 = 0
    removed_bytes: Int64 = 0
    kept: tuple[Text, ...] = Field(default=(), description="old files that are kept, and why")
    failure: Failure | None = None

    @property
    def label(self) -> str:
        """Name of the row in the Airflow UI."""
        return self.place

    @property
    def healthy(self) -> bool:
        """True if all old files were removed, or are kept for a reason."""
        return self.failure is None


class JobReport(BaseModel):
    """Common fields of the reports of all jobs. `rows` has one row per task or store partition."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: Literal[1] = 1
    run_id: Text
    applications: tuple[Text, ...]
    started_ms: Int64
    finished_ms: Int64
    catalogue: Text | None = Field(
        default=None, description="pin of the catalogue that the definitions come from: `<offset>:<digest>`"
    )
    dag_id: Text | None = Field(default=None, description="DAG whose run wrote this report; None if no DAG run did")
    dag_run_id: Text | None = Field(default=None, description="run id of that DAG run")
    state_dir: Text | None = Field(
        default=None, description="state directory of the stores; None: not known, or an earlier version wrote this"
    )
    left_out: dict[Text, Text] = Field(
        default={},
        description="what has no row, and why, such as stores in memory and topics of other applications",
    )

    @property
    def seconds(self) -> float:
        """Duration of the run."""
        return (self.finished_ms - self.started_ms) / 1000


class ProcessReport(JobReport):
    """Report of a `process` run, one row per task."""

    job: Literal["process"] = "process"
    rows: tuple[ProcessRow, ...]
    sets: tuple[SnapshotSetRow, ...] = ()


class VerifyReport(JobReport):
    """Report of a `verify` run, one row per store partition."""

    job: Literal["verify"] = "verify"
    rows: tuple[VerifyRow, ...]


class RestoreReport(JobReport):
    """Report of a `restore` run, one row per requested store partition."""

    job: Literal["restore"] = "restore"
    rows: tuple[RestoreRow, ...]


class RestorePlanReport(JobReport):
    """Plan of a `restore` run, one row per requested store partition."""

    job: Literal["restore-plan"] = "restore-plan"
    records_per_s: Int64 = Field(description="rate of one Spark task, from which seconds are estimated")
    rows: tuple[RestorePlanRow, ...]


class ValidateReport(JobReport):
    """Report of a `validate` run, one row per requested store partition."""

    job: Literal["validate"] = "validate"
    data_docs: Text | None = Field(default=None, description="index page of the Data Docs")
    stores: tuple[ValidatedStore, ...] = ()
    rows: tuple[ValidateRow, ...]


class SnapshotReport(JobReport):
    """Report of a `snapshot` run, one row per requested store partition."""

    job: Literal["snapshot"] = "snapshot"
    archive: Text = Field(description="URL of the archive")
    rows: tuple[ArchivedRow, ...]


class WriteReport(JobReport):
    """Report of a write of the data source `state_store`, one row per store partition that got rows."""

    job: Literal["write"] = "write"
    mode: Literal["append", "overwrite"]
    changelog: Text = Field(description="the topic that was written")
    rows: tuple[WriteRow, ...]


class MaintenanceReport(JobReport):
    """Report of a `maintenance` run, one row per task, per kind of files, and per part of the archive."""

    job: Literal["maintenance"] = "maintenance"
    dry_run: bool = False
    rows: tuple[MaintenanceRow, ...]


class DrillReport(JobReport):
    """Report of a `drill` run, one row per store partition of its applications, drilled or not."""

    job: Literal["drill"] = "drill"
    rows: tuple[DrillRow, ...]
    confidence: tuple[DrillConfidence, ...] = ()
    evidence: tuple[EvidenceHead, ...] = ()


class SurveyedStore(_Row):
    """A changelog topic, which is a store of an application."""

    name: Text
    topic: Text
    partitions: Int64
    replication: Int64 = Field(description="smallest replication factor of a partition")
    cleanup_policy: Text = Field(description="empty: not read")
    bytes: Int64 | None = Field(description="size of the leaders' logs on disk; None: not read")
    records: Int64 | None = Field(description="offsets of the logs, at least as many as records; None: not read")
    kafka_streams_s: float | None = Field(description="restore by Kafka Streams; None: not known")
    statestore_s: float | None = Field(description="restore by statestore; None: not known")
    snapshots: Int64 | None = Field(default=None, description="partitions with a usable snapshot; None: no archive")
    verified: Int64 | None = Field(default=None, description="partitions ever verified; None: no reports were read")
    evidence: Text = Field(default="", description="why it is this application's")


class SurveyedApplication(_Row):
    """An application with state on the cluster."""

    name: Text = Field(description="application.id; empty for changelogs of no known application")
    kind: Literal["Kafka Streams", "ksqlDB", "statestore", "unknown"]
    group_state: Text = Field(description="as the coordinator names it; empty: there is no group")
    group_type: Text = ""
    members: Int64 | None = Field(default=None, description="None: not read")
    static_members: Int64 = 0
    clients: tuple[Text, ...] = ()
    repartition_topics: Int64 = 0
    kafka_streams_s: float | None = None
    statestore_s: float | None = None
    stores: tuple[SurveyedStore, ...]

    @property
    def partitions(self) -> int:
        """Partitions of all changelogs."""
        return sum(store.partitions for store in self.stores)

    @property
    def bytes(self) -> int | None:
        """Size of all changelogs; None if one was not read."""
        sizes = [store.bytes for store in self.stores]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def records(self) -> int | None:
        """Records of all changelogs, at most; None if one was not read."""
        counts = [store.records for store in self.stores]
        return None if None in counts else sum(count or 0 for count in counts)


class SurveyRisk(_Row):
    """A risk to the state of an application."""

    application: Text = Field(description="empty: the whole cluster, or a changelog of no known application")
    subject: Text = Field(description="topic, group, or broker")
    why: Text = Field(description="what was found, in figures")
    advice: Advice


class SurveyUnread(_Row):
    """A fact that could not be read."""

    subject: Text
    fact: Text
    why: Text


class SurveyRow(_Row):
    """Risks of one application of a surveyed cluster, or of the cluster itself. It is derived from the report."""

    application: Text = Field(description="empty: the cluster, and what has no known application")
    risks: tuple[SurveyRisk, ...]
    unread: tuple[SurveyUnread, ...] = ()

    @property
    def label(self) -> str:
        """Name of the row in the Airflow UI."""
        return self.application or "(cluster)"

    @property
    def healthy(self) -> bool:
        """True if everything was read, and there is no risk."""
        return not self.risks and not self.unread


class SurveyReport(JobReport):
    """Report of a survey of a cluster."""

    job: Literal["survey"] = "survey"
    bootstrap_servers: Text
    cluster_id: Text
    brokers: Int64
    requests: Int64 = Field(description="requests to the brokers")
    assumption: Text = Field(description="what the times of restores assume")
    surveyed: tuple[SurveyedApplication, ...]
    risks: tuple[SurveyRisk, ...]
    unread: tuple[SurveyUnread, ...]

    @property
    def complete(self) -> bool:
        """True if everything was read."""
        return not self.unread

    @property
    def rows(self) -> tuple[SurveyRow, ...]:
        """Risks of the cluster, then those of each application."""
        risks: dict[str, list[SurveyRisk]] = {"": [], **{found.name: [] for found in self.surveyed}}
        for risk in self.risks:
            risks[risk.application if risk.application in risks else ""].append(risk)
        return tuple(
            SurveyRow(application=name, risks=tuple(found), unread=() if name else self.unread)
            for name, found in risks.items()
        )


AnyReport = (
    ProcessReport
    | VerifyReport
    | RestoreReport
    | RestorePlanReport
    | ValidateReport
    | SnapshotReport
    | WriteReport
    | MaintenanceReport
    | DrillReport
    | SurveyReport
)
Report = Annotated[AnyReport, Field(discriminator="job")]
R = TypeVar("R", bound=JobReport)
_ANY: TypeAdapter[AnyReport] = TypeAdapter(Report)


def write_report(path: Location, report: JobReport) -> None:
    """Write the report atomically: a reader finds all of it or nothing, even after a power cut."""
    write_whole(path, report.model_dump_json(indent=1))


def read_report(path: Location, kind: type[R]) -> R:
    """Read a report of the given kind.

    Raises
    ------
    InputError
        If the file is absent, cannot be read, or is not such a report.
    ArchiveUnavailableError
        If the report is in object storage that does not answer.
    """
    try:
        return kind.model_validate_json(_read(path))
    except ValidationError as error:
        raise InputError(f"{path} is not a {kind.__name__} of schema version 1: {error}") from error


def read_any_report(path: Location) -> AnyReport:
    """Read the report of any job.

    Raises
    ------
    InputError
        If the file is absent, cannot be read, or is not a report.
    ArchiveUnavailableError
        If the report is in object storage that does not answer.
    """
    try:
        return _ANY.validate_json(_read(path))
    except ValidationError as error:
        raise InputError(f"{path} is not a report of schema version 1: {error}") from error


def _read(path: Location) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"no report at {path}: the job that writes it has not finished. See its log") from error
    except OSError as error:
        raise InputError(f"the report {path} cannot be read: {error}; check owner, permissions, and mount") from error
