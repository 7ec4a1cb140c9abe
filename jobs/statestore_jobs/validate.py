"""Validate stores with Great Expectations: what a restore has rebuilt, what a verification has looked at, or all.

A store that passes after a restore no longer needs the one it replaced, which is then deleted; otherwise the replaced
store stays in quarantine, and the row names the command that puts it back. Validation changes nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import SparkSession

from statestore import clock
from statestore.archive.archive import ArchiveSpec, archive_of
from statestore.archive.server_time import server_time_ms
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.discovery.partitions import failed_stores, select_store_partitions
from statestore.errors import InputError, LockedError, StateStoreError, UnknownStoreError, of_os_error
from statestore.garbage import garbage_waiting
from statestore.kafka.topics import Topics
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.definition_files import select
from statestore.model import StorePartition
from statestore.objects.path import Location, ObjectPath
from statestore.partition.quarantine import release_validated, waits_for_a_person
from statestore.partition.reinstating import release_replaced_pins
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import (
    RestoreReport,
    RestoreRow,
    StorePartitionRow,
    ValidatedStore,
    ValidateReport,
    ValidateRow,
    VerifyReport,
    read_report,
)
from statestore.requests.validate import ValidateRequest
from statestore.statedir.lock import locked, locked_file
from statestore_jobs.entry import Definitions, run_job, spark_session
from statestore_jobs.shared_state import state_of
from statestore_jobs.sources.register import register

if TYPE_CHECKING:
    from statestore_jobs.store_validation import Judged

_log = logging.getLogger(__name__)

#: For so long other validations are waited for, s; then the job is tried again.
_OTHERS_S = 3_600.0
#: Why a store is not judged that a report names.
_UNDEFINED = (
    "its application has no definition, so no suite is known for it. `statestore verify --depth deep` compares it with "
    "its topic"
)


class Replaced(NamedTuple):
    """What a restore has replaced: a directory in quarantine, or a snapshot."""

    quarantine: Path | None = None
    snapshot: str | None = None


class Chosen(NamedTuple):
    """The store partitions of a run.

    Attributes
    ----------
    replaced
        By store partition, what its restore has replaced.
    failed
        As of `select_store_partitions`.
    undefined
        Rows of the request's report whose application has no definition. They are not judged.
    """

    specs: list[StorePartitionSpec]
    replaced: dict[StorePartition, Replaced]
    failed: Mapping[str, InputError]
    undefined: tuple[StorePartitionRow, ...] = ()


def run(request: ValidateRequest, settings: Settings, catalogue: Catalogue, run_id: str) -> ValidateReport:
    """Validate one store after the other; suites are read first, so that a bad one ends the run before any work.

    Raises
    ------
    RetryError
        If no store could be judged, and each may be later.
    """
    started = clock.now_ms()
    topics = settings.cluster.topics
    definitions = catalogue.definitions()
    specs, replaced, failed, undefined = _chosen(request, settings, definitions, topics)
    if failed and not specs:
        raise next(iter(failed.values()))
    archive = archive_of(settings, topics)
    # What was built as of a point lies in a directory of its own, wherever the others are.
    here = settings.state_dir.absolute()
    specs = [spec.model_copy(update={"archive": archive}) if spec.state_dir == here else spec for spec in specs]
    archive_ms = _archive_time(archive, replaced.values())
    stores = [list(of_store) for _, of_store in groupby(specs, lambda spec: spec.store_partition[:2])]
    judged: list[Judged] = []
    rows: list[ValidateRow] = []
    if stores:
        with ThreadPoolExecutor(1) as beside:
            # Great Expectations takes seconds to import, and Spark seconds to start, most of them in other processes.
            starting = beside.submit(_session)
            with garbage_waiting():
                from statestore_expectations.suites import suite_of

                from statestore_jobs.store_validation import Judge
            suites = [suite_of(of_store[0].application, of_store[0].store) for of_store in stores]
            with _writing_alone(settings.data_docs_dir), state_of(starting.result(), settings) as spark:
                judge = Judge(spark, topics, run_id, settings.data_docs_dir, settings.reports_dir)
                for of_store, suite in zip(stores, suites, strict=True):
                    judged.append(judge.store(definitions[of_store[0].application], of_store, suite))
                    _tell(judged[-1].store, f"{len(judged)} of {len(stores)}")
    if judged and all(found.retry for found in judged):
        raise judged[0].retry or AssertionError
    for of_store, found in zip(stores, judged, strict=True):
        rows += [_row(spec, found, replaced.get(spec.store_partition, Replaced()), archive_ms) for spec in of_store]
    rows += [
        ValidateRow(
            application=row.application, store=row.store, task=row.task, verdict="not judged", detail=_UNDEFINED
        )
        for row in undefined
    ]
    rows += [
        ValidateRow(application=application, store=store, task="-", verdict="error", detail=str(error))
        for application, store, error in failed_stores(select(definitions, [*failed]) if failed else (), failed)
    ]
    not_judged = [
        ValidatedStore(application=application, store=store, verdict="not judged", detail=_UNDEFINED)
        for application, store in dict.fromkeys((row.application, row.store) for row in undefined)
    ]
    index = settings.data_docs_dir / "index.html"
    return ValidateReport(
        run_id=run_id,
        applications=tuple(dict.fromkeys(row.application for row in rows)),
        started_ms=started,
        finished_ms=clock.now_ms(),
        data_docs=str(index) if index.exists() else None,
        stores=(*(found.store for found in judged), *not_judged),
        rows=tuple(rows),
    )


def _session() -> SparkSession:
    """Start Spark, and the daemon that its Python workers are forked from."""
    spark = spark_session("validate")
    register(spark)
    # A suite is some forty small queries, and adaptive execution runs each as several jobs: twice as slow.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.sparkContext.parallelize([0], 1).foreach(_nothing)
    return spark


def _nothing(_: object) -> None:
    """Do nothing."""


def _tell(store: ValidatedStore, progress: str) -> None:
    failed = f", {len(store.failed_expectations)} of {store.expectations} expectations failed"
    print(
        f"validate: {store.application}/{store.store} {store.verdict}{failed if store.failed_expectations else ''}, "
        f"{store.keys:,} rows, {store.seconds:.0f} s ({progress} stores)",
        flush=True,
    )


@contextmanager
def _writing_alone(data_docs_dir: Location) -> Iterator[None]:
    """Wait for other validations: each rewrites the index of the Data Docs, which object storage does not have."""
    if isinstance(data_docs_dir, ObjectPath):
        yield
        return
    with ExitStack() as held:
        try:
            data_docs_dir.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked_file(data_docs_dir / ".validating.lock", _OTHERS_S))
        except OSError as error:
            raise of_os_error(error) from error
        yield


# -- what is asked for ------------------------------------------------------------------------------------------------


def _chosen(request: ValidateRequest, settings: Settings, definitions: Definitions, topics: Topics) -> Chosen:
    """Return the store partitions to validate, and what they replaced."""
    if request.verify_report is not None:
        rows = read_report(request.verify_report, VerifyReport).rows
        verified = {row.label: row for row in rows if row.application in definitions}
        undefined = tuple(row for row in rows if row.application not in definitions)
        found, failed = _named(verified, request.verify_report, settings, definitions, topics)
        return Chosen(list(found.values()), {}, failed, undefined)
    if request.restore_report is None:
        applications = select(definitions, request.applications, request.stores)
        specs, failed = select_store_partitions(settings, topics, applications, request.stores, in_memory=True)
        applications = [application for application in applications if application.name not in failed]
        _tell_left_out(applications, specs, request.stores)
        return Chosen(specs, {}, failed)
    report = read_report(request.restore_report, RestoreReport)
    done = [row for row in report.rows if row.outcome == "restored"]
    restored = {row.label: row for row in done if row.application in definitions}
    found, failed = _named(restored, request.restore_report, settings, definitions, topics)
    replaced = {
        spec.store_partition: Replaced(
            _quarantined(spec, Path(row.quarantine)) if (row := restored[label]).quarantine else None, row.replaced
        )
        for label, spec in found.items()
    }
    specs = [_where_restored(spec, restored[label]) for label, spec in found.items()]
    return Chosen(specs, replaced, failed, tuple(row for row in done if row.application not in definitions))


def _named(
    labels: Iterable[str], report: Location, settings: Settings, definitions: Definitions, topics: Topics
) -> tuple[dict[str, StorePartitionSpec], Mapping[str, InputError]]:
    """Return the store partitions that a report names, by their labels and in the order of the definitions.

    The second value is `failed` of `Chosen`.
    """
    names = set(labels)
    if not names:
        return {}, {}
    applications = select(definitions, sorted({name.split("/")[0] for name in names}), [])
    found = select_store_partitions(settings, topics, applications)
    specs = {str(spec.store_partition): spec for spec in found.specs}
    names = {name for name in names if name.split("/")[0] not in found.failed}
    if unknown := sorted(names - set(specs)):
        raise UnknownStoreError(f"{report} names {', '.join(unknown)}; the definitions have: {', '.join(specs)}")
    return {label: spec for label, spec in specs.items() if label in names}, found.failed


def _where_restored(spec: StorePartitionSpec, row: RestoreRow) -> StorePartitionSpec:
    """Return the store partition that was restored: one as of a point is in a state directory of its own."""
    if row.directory is None:
        return spec
    above = len(spec.live.relative_to(spec.state_dir).parts)
    moved = spec.model_copy(update={"state_dir": Path(*Path(row.directory).parts[:-above])})
    if moved.live != Path(row.directory):
        raise InputError(f"{row.label}: expected a {spec.store.kind} store's directory, found {row.directory}")
    return moved


def _tell_left_out(
    applications: Sequence[ApplicationDefinition], specs: Sequence[StorePartitionSpec], asked: Sequence[str]
) -> None:
    """Log which stores have no partitions yet, so that there is nothing to judge."""
    there = {spec.store_partition[:2] for spec in specs}
    for application in applications:
        for store in application.stores:
            if (asked and store.name not in asked) or (application.name, store.name) in there:
                continue
            _log.warning("validate: %s/%s is left out: it has never been run", application.name, store.name)


def _quarantined(spec: StorePartitionSpec, directory: Path) -> Path:
    """Return the directory if it can be one that a restore left: it may be deleted later."""
    quarantine = spec.paths.replaced / spec.store.name
    if directory.resolve().parent != quarantine.resolve():
        raise InputError(f"{spec.store_partition}: expected a replaced store in {quarantine}, found {directory}")
    return directory


# -- what follows -----------------------------------------------------------------------------------------------------


def _archive_time(archive: ArchiveSpec | None, replaced: Iterable[Replaced]) -> int:
    """Return the archive's time (ms) before stores are read; 0 if not needed or unknown: then no pin is removed."""
    if archive is None or all(of.snapshot is None for of in replaced):
        return 0
    try:
        return server_time_ms(archive.open())
    except StateStoreError as error:
        _log.warning("validate: snapshots that were replaced stay pinned: %s", error)
        return 0


def _row(spec: StorePartitionSpec, judged: Judged, replaced: Replaced, archive_ms: int) -> ValidateRow:
    store, detail, rollback, quarantine = judged.store, judged.store.detail, None, replaced.quarantine
    if replaced.snapshot is not None and store.verdict == "passed":
        detail = _unpin(spec, archive_ms) or detail
    elif replaced.snapshot is not None:
        rollback = reinstate_command(spec, replaced.snapshot)
        kept = f"the snapshot that was replaced is kept, to put it back: {rollback}"
        detail = f"{detail}; {kept}".removeprefix("; ")
    lost = None if quarantine is None else waits_for_a_person(spec.paths, spec.store.name, quarantine.name)
    if quarantine is not None and store.verdict == "passed" and lost is None:
        detail = _release(spec, quarantine) or detail
    if quarantine is not None and not quarantine.exists():
        quarantine = None
    if quarantine is not None and (store.verdict != "passed" or lost is not None):
        rollback = rollback_command(spec)
        why = f" ({lost})" if lost else ""
        kept = f"the store that was replaced{why} is kept in {quarantine}, to put it back: {rollback}"
        detail = f"{detail}; {kept}".removeprefix("; ")
    return ValidateRow(
        application=spec.application,
        store=spec.store.name,
        task=str(spec.task),
        verdict=store.verdict,
        expectations=store.expectations,
        failed_expectations=store.failed_expectations,
        differs=store.differs,
        keys=judged.keys.get(spec.task.partition, 0),
        detail=detail,
        data_docs=store.data_docs,
        quarantine=None if quarantine is None else str(quarantine),
        rollback=rollback,
    )


def rollback_command(spec: StorePartitionSpec) -> str:
    """Return the command that puts a store partition's predecessor back."""
    return f"statestore restore --rollback {spec.store_partition}"


def reinstate_command(spec: StorePartitionSpec, snapshot: str) -> str:
    """Return the command that makes a snapshot the store again."""
    return f"statestore snapshot reinstate {snapshot} --application {spec.application}"


def _unpin(spec: StorePartitionSpec, before_ms: int) -> str:
    """Let clean-up have what was replaced by then; say why if it cannot be done now."""
    try:
        release_replaced_pins(spec, before_ms)
    except StateStoreError as error:
        return f"the snapshot that was replaced is still pinned: {error}"
    return ""


def _release(spec: StorePartitionSpec, quarantine: Path) -> str:
    """Delete a replaced store; say why if it cannot be done now: a later restore does it, when the store is old."""
    try:
        with locked(spec.paths, spec.lock_wait_s):
            if release_validated(spec.paths, spec.store, quarantine.name):
                return ""
        why = f"{spec.live} has been opened since it was restored, and was not closed"
    except LockedError as error:
        why = str(error)
    return f"the store that was replaced is still in {quarantine}: {why}"


def main() -> None:
    """Run this job as a program."""
    run_job("validate", ValidateRequest, run)
