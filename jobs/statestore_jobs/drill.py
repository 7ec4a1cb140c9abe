"""Restore drills: one Spark task for each store partition, which builds it in scratch space where the task runs.

The applications are not touched, so executors need not see the state directory. Evidence is signed on the driver: the
key is never sent to a worker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from statestore import clock
from statestore.archive.archive import archive_of
from statestore.config import Settings
from statestore.definitions.objectives import RestoreObjectives
from statestore.discovery.partitions import store_partition_specs
from statestore.drills.evidence import Run
from statestore.drills.history import read_drills, write_drill_history
from statestore.drills.keys import signing_key
from statestore.drills.objectives_file import read_objectives
from statestore.drills.run import DrillRun, EvidenceKeeper, run_drills
from statestore.drills.scratch import drill_scratch, require_apart
from statestore.environments import KafkaStreamsApplication
from statestore.errors import InputError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.definition_files import select
from statestore.metastore.metastore import Metastore
from statestore.recovery.run import require_as_many_as_tasks
from statestore.reports import DrillReport
from statestore.requests.drill import DrillRequest
from statestore_jobs import without_definition
from statestore_jobs.entry import run_job, spark_session
from statestore_jobs.parallel import run_each

#: Drills at the same time, if an application's budget allows more.
_AT_ONCE = 64


def run(request: DrillRequest, settings: Settings, catalogue: Catalogue, run_id: str) -> DrillReport:
    """Choose store partitions on the driver, drill them in Spark tasks, and keep the evidence on the driver."""
    started_ms = clock.now_ms()
    topics = settings.cluster.topics
    applications = select(catalogue.definitions(), request.applications, request.stores)
    stores = store_partition_specs(settings, topics, applications, request.stores, request.partitions)
    if not stores:
        raise InputError("there is no store partition to drill: no application in the catalogue has a store on disk")
    require_as_many_as_tasks(stores, topics, applications)
    require_apart(drill_scratch(settings.drill_dir), settings.state_dir)
    defined = {found.name: found.objectives for found in applications if found.objectives is not None}
    archive = archive_of(settings, topics)
    how = how_to_drill(request, settings, run_id, defined)
    how = replace(how, definitions={found.name: found for found in applications})
    report = run_drills(
        [store.model_copy(update={"archive": archive}) for store in stores],
        how,
        read_drills(settings.reports_dir),
        partial(run_each, spark_session("drill")),
        started_ms=started_ms,
    )
    write_drill_history(settings.reports_dir, report)
    return report


def how_to_drill(
    request: DrillRequest, settings: Settings, run_id: str, defined: Mapping[str, RestoreObjectives]
) -> DrillRun:
    """Return how a run drills.

    Parameters
    ----------
    defined
        Objectives from definitions; those of other applications come from the file of the settings.
    """
    key, place = signing_key(), settings.evidence_dir or settings.reports_dir / "evidence"
    return DrillRun(
        run=Run(
            run_id=run_id,
            dag_id=os.environ.get("AIRFLOW_CTX_DAG_ID"),
            dag_run_id=os.environ.get("AIRFLOW_CTX_DAG_RUN_ID"),
        ),
        run_bytes=settings.restore_run_bytes,
        scratch=drill_scratch(settings.drill_dir),
        mode=request.mode,
        reserve=settings.drill_reserve_bytes,
        parallelism=_AT_ONCE,
        limit=request.limit,
        named=bool(request.stores or request.partitions),
        evidence=None if key is None else EvidenceKeeper(place, key, Metastore.of(settings)),
        objectives={**read_objectives(settings.objectives), **defined},
    )


def _without_definition(
    request: DrillRequest, settings: Settings, application: KafkaStreamsApplication, run_id: str
) -> DrillReport:
    how = how_to_drill(request, settings, run_id, {})
    report = without_definition.drill(request, settings, application, how)
    write_drill_history(settings.reports_dir, report)
    return report


def main() -> None:
    """Run this job as a program."""
    run_job("drill", DrillRequest, run, without_definition=_without_definition)
