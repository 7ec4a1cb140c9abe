"""Restore store partitions from their changelogs: those that a verification found damaged, or those asked for.

The stores of a task are restored by one Spark task, one after the other. A log that is long enough is cut into ranges
before: each becomes sorted runs in a Spark task of its own, which the first one then puts together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from statestore import clock
from statestore.archive.archive import archive_of
from statestore.cli import tables
from statestore.config import Settings
from statestore.discovery.partitions import store_partition_specs
from statestore.environments import KafkaStreamsApplication
from statestore.errors import InputError, StateStoreError
from statestore.kafka.topics import Topics
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.definition_files import select
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.disk_space import require_disk_for_all
from statestore.recovery.run import advised, require_as_many_as_tasks
from statestore.reports import JobReport, RestorePlanReport, RestoreReport, VerifyReport, read_report
from statestore.requests.restore import RestoreRequest
from statestore_jobs import without_definition
from statestore_jobs.entry import Definitions, all_failed_for_now, run_job

#: Columns of a plan in the log, which is no terminal that would say.
_LOG_WIDTH = 160


def run(
    request: RestoreRequest, settings: Settings, catalogue: Catalogue, run_id: str
) -> RestoreReport | RestorePlanReport:
    """Plan on the driver, restore in Spark tasks. Every store partition is verified again before it is touched."""
    started = clock.now_ms()
    request = request.model_copy(update={"accept_loss": request.accept_loss or settings.accept_loss})
    topics = settings.cluster.topics
    stores = _chosen(request, settings, catalogue.definitions(), topics)
    shared_dir = None if settings.node_local_state else settings.state_dir
    return _shown(without_definition.restore_in_spark(stores, request, settings, run_id, started, shared_dir))


def _without_definition(
    request: RestoreRequest, settings: Settings, application: KafkaStreamsApplication, run_id: str
) -> RestoreReport | RestorePlanReport:
    request = request.model_copy(update={"accept_loss": request.accept_loss or settings.accept_loss})
    return _shown(without_definition.restore(request, settings, application, run_id))


def _shown(report: RestoreReport | RestorePlanReport) -> RestoreReport | RestorePlanReport:
    """Print a plan in the log."""
    if isinstance(report, RestorePlanReport):
        tables.show(Console(width=_LOG_WIDTH), report)
        try:
            require_disk_for_all(report.rows)
        except StateStoreError as error:
            print(f"restore: {error}", file=sys.stderr)
    return report


def try_again(report: JobReport) -> str | None:
    """Say why all store partitions failed, if the reason passes for each; None: it does not."""
    return all_failed_for_now(report) if isinstance(report, RestoreReport) else None


# -- what is asked for ------------------------------------------------------------------------------------------------


def _chosen(
    request: RestoreRequest, settings: Settings, definitions: Definitions, topics: Topics
) -> list[StorePartitionSpec]:
    """Return the store partitions to restore: those that are named, or that a report advises to restore."""
    names: Sequence[str] = request.applications
    advice = None
    if request.verify_report is not None:
        advice = advised(read_report(request.verify_report, VerifyReport), accept_loss=request.accept_loss)
        names = names or sorted({label.split("/")[0] for label in advice})
    elif not names:
        raise InputError("name the application to restore, or a verification report")
    applications = select(definitions, names, request.stores) if names else []
    specs = store_partition_specs(settings, topics, applications, request.stores, request.partitions)
    if advice is not None:
        specs = [spec for spec in specs if str(spec.store_partition) in advice]
    require_as_many_as_tasks(specs, topics, applications)
    archive = archive_of(settings, topics)
    return [spec.model_copy(update={"archive": archive}) for spec in specs]


def main() -> None:
    """Run this job as a program."""
    run_job("restore", RestoreRequest, run, try_again, _without_definition)
