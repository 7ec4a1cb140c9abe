"""Process what has arrived, exactly once: one Spark task per task of each application, up to the input's end of now.

Tasks of subtopology 0 run first, then those that read the repartition topics which these have filled. The later tasks
of an application run only if all of its earlier tasks have reached their ends (`jobs/statestore_jobs/stages.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from statestore import clock, kill_switch
from statestore.archive.archive import ArchiveSpec, archive_of
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import StateStoreError
from statestore.kafka.groups import ConsumerGroup
from statestore.kafka.topics import Topics
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.claims import FoundClaim, claims_of
from statestore.metastore.definition_files import select
from statestore.metastore.metastore import Metastore
from statestore.model import TopicPartition
from statestore.objects.path import Location
from statestore.partition.archived import hosts_of
from statestore.progress.display import shown
from statestore.progress.files import remove_progress
from statestore.reports import Failure, JobReport, ProcessReport, ProcessRow, SnapshotSetRow
from statestore.requests.process import ProcessRequest
from statestore.statedir.lock import require_made
from statestore.tasks.offset_refresh import refresh_offsets
from statestore.tasks.snapshot_sets import set_after_run
from statestore.tasks.spec import TaskSpec
from statestore_jobs.entry import run_job, spark_session
from statestore_jobs.nodes import run_here
from statestore_jobs.parallel import run_each
from statestore_jobs.planning import prepare, task_specs
from statestore_jobs.process_progress import TASKS
from statestore_jobs.shared_state import state_of
from statestore_jobs.stages import failed_row, not_begun, split_by_readiness

_log = logging.getLogger(__name__)


def run(request: ProcessRequest, settings: Settings, catalogue: Catalogue, run_id: str) -> ProcessReport:
    """Plan on the driver, process in Spark tasks."""
    started = clock.now_ms()
    selected = select(catalogue.definitions(), request.applications)
    topics = settings.cluster.topics
    applications, failed = _prepared(request, settings, catalogue, topics, selected)
    archive = archive_of(settings, topics)
    spark = spark_session("process")
    progress = settings.reports_dir.absolute() / "process" / f".progress-{run_id}"

    def run_all(planned: Sequence[TaskSpec]) -> list[ProcessRow]:
        specs = [spec.model_copy(update={"resume_from_position": request.resume_from_position}) for spec in planned]
        with shown(progress, [f"{spec.application.name}/{spec.task}" for spec in specs], TASKS):
            work = partial(
                run_here,
                label=f"process-{run_id}",
                run_bytes=settings.restore_run_bytes,
                quarantine_s=settings.quarantine_days * 86_400,
            )
            return run_each(spark, specs, work, ProcessRow, failed_row, _hosts(specs))

    try:
        with state_of(spark, settings):
            rows = run_all(_specs(settings, topics, applications, progress, later=False))
            ready, waiting = split_by_readiness(applications, rows)
            rows += run_all(_later_specs(settings, topics, ready, progress))
        rows += not_begun(_specs(settings, topics, waiting, progress, later=True), rows)
    finally:
        remove_progress(progress)
    sets = [] if archive is None else [_set_of(settings, archive, application, rows) for application in applications]
    unfinished = {row.application for row in rows if row.failure is not None and row.failure.retriable}
    for application in applications:
        if application.name not in unfinished:
            _forget_processed(settings, topics, application)
    rows += [ProcessRow(application=name, task="-", failure=Failure.of(error)) for name, error in failed.items()]
    return ProcessReport(
        run_id=run_id,
        applications=tuple(application.name for application in selected),
        started_ms=started,
        finished_ms=clock.now_ms(),
        rows=tuple(rows),
        sets=tuple(row for row in sets if row is not None),
    )


def _prepared(
    request: ProcessRequest,
    settings: Settings,
    catalogue: Catalogue,
    topics: Topics,
    selected: Sequence[ApplicationDefinition],
) -> tuple[list[ApplicationDefinition], dict[str, StateStoreError]]:
    """Return the applications that can be processed, and the errors of the others by their names.

    Raises
    ------
    StateStoreError
        The first of these errors, if no application can be processed.
    """
    metastore, prepared = Metastore.of(settings), []
    failed: dict[str, StateStoreError] = {}
    claims = _claims(topics, selected)
    for application in selected:
        try:
            require_made(settings.state_dir, application.name)
            entry = catalogue.applications[application.name]
            local = settings.node_local_state
            prepare(topics, metastore, [entry], claims, state_dir=settings.state_dir, node_local=local)
            if not request.resume_from_position:  # then a person has deleted them
                refresh_offsets(topics, application)
            prepared.append(application)
        except StateStoreError as error:
            failed[application.name] = error
    if failed and not prepared:
        raise next(iter(failed.values()))
    return prepared, failed


def _claims(topics: Topics, applications: Sequence[ApplicationDefinition]) -> Mapping[str, FoundClaim] | None:
    """Return the claims of all applications, or None if one cannot be read: then each application is asked for its own.

    One unreadable claim must not stop the other applications.
    """
    try:
        return claims_of(topics, [application.name for application in applications])
    except StateStoreError:
        return None


def _hosts(specs: Sequence[TaskSpec]) -> list[str | None]:
    """Return which host ran each task last, where each has a disk of its own; empty: it does not matter."""
    first = {at: stores[0] for at, spec in enumerate(specs) if (stores := spec.stores_on_disk)}
    if not first or any(store.home.disks_are_shared for store in first.values()):
        return []
    try:
        found = dict(zip(first, hosts_of(list(first.values())), strict=True))
    except StateStoreError as error:  # the tasks find out what is wrong with it
        _log.warning("process: it is unknown which host has which store: %s", error)
        return []
    return [found.get(at) for at in range(len(specs))]


def _set_of(
    settings: Settings, archive: ArchiveSpec, application: ApplicationDefinition, rows: Sequence[ProcessRow]
) -> SnapshotSetRow | None:
    own = [row for row in rows if row.application == application.name]
    return set_after_run(application, own, archive, settings.cluster)


def try_again(report: JobReport) -> str | None:
    """Say which task failed for a reason that passes; None: none did. The run is repeated, what was committed stays."""
    assert isinstance(report, ProcessReport)
    failed = (row for row in report.rows if row.failure is not None and row.failure.retriable)
    return next((f"{row.label}: {row.failure.kind}: {row.failure.message}" for row in failed if row.failure), None)


def _later_specs(
    settings: Settings, topics: Topics, applications: Sequence[ApplicationDefinition], progress: Location
) -> list[TaskSpec]:
    """Specs of the tasks that read repartition topics, once everything sent to these topics is visible."""
    inputs = [part.input_topic for application in applications for part in application.subtopologies[1:]]
    if not inputs:
        return []
    kill_switch.reached("between the stages")
    topics.wait_until_stable(inputs)
    return _specs(settings, topics, applications, progress, later=True)


def _specs(
    settings: Settings,
    topics: Topics,
    applications: Sequence[ApplicationDefinition],
    progress: Location,
    *,
    later: bool,
) -> list[TaskSpec]:
    """Specs of subtopology 0, or of the others, which read repartition topics."""
    return [
        spec
        for application in applications
        for part in application.subtopologies
        if (part.index > 0) is later
        for spec in task_specs(settings, topics, application, part.index, progress)
    ]


def _forget_processed(settings: Settings, topics: Topics, application: ApplicationDefinition) -> None:
    """Delete from repartition topics what has been processed: nothing else ever does."""
    names = [part.input_topic for part in application.subtopologies[1:]]
    partitions = [
        TopicPartition(name, number)
        for name, topic in topics.describe(names).items()
        for number in range(topic.partitions)
    ]
    if not partitions:
        return
    try:
        with ConsumerGroup(settings.cluster, application.name) as group:
            found = {partition: group.committed(partition) for partition in partitions}
        topics.delete_records({partition: offset.next_offset for partition, offset in found.items() if offset})
    except StateStoreError as error:  # the next run deletes them; this one has done its work
        _log.warning("process: processed records of repartition topics were not deleted: %s", error)


def main() -> None:
    """Run this job as a program."""
    run_job("process", ProcessRequest, run, try_again)
