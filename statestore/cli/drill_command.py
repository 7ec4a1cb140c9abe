"""The command drill: it restores store partitions into scratch space, proves them, and removes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.cli.parameters import with_request
from statestore.errors import InputError
from statestore.objects.path import Location, location
from statestore.requests.drill import DrillRequest

if TYPE_CHECKING:
    from statestore.cli.selection import Chosen, PartitionSelection
    from statestore.definitions.objectives import RestoreObjectives
    from statestore.drills.run import EvidenceKeeper

EvidenceDir = Annotated[
    str | None,
    typer.Option(
        "--evidence-dir",
        envvar="STATESTORE_EVIDENCE_DIR",
        metavar="DIRECTORY|URL",
        help="Directory of evidence. Default: evidence below --reports-dir.",
        show_default=False,
    ),
]


@options.with_target
@with_request(DrillRequest, without=("applications", "stores", "partitions"))
def drill(
    request: DrillRequest,
    asked: PartitionSelection,
    parallel: options.Parallel,
    names: options.Names = None,
    objectives: Annotated[
        Path | None,
        typer.Option(
            envvar="STATESTORE_OBJECTIVES",
            help="YAML file with the objectives of applications without a definition. Default: none.",
            show_default=False,
        ),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            envvar="STATESTORE_DRILL_DIR",
            help="Directory to build stores in, on another disk than --state-dir. Default: one for temporary files.",
            show_default=False,
        ),
    ] = None,
    reserve_bytes: Annotated[
        int | None,
        typer.Option(
            envvar="STATESTORE_DRILL_RESERVE_BYTES",
            min=0,
            help="Bytes to leave free if --scratch is on the disk of --state-dir. Default: a fifth of the disk.",
            show_default=False,
        ),
    ] = None,
    evidence_dir: EvidenceDir = None,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Prove that store partitions can be restored, measure how long it takes, and remove what was restored.

    Live stores are not opened. If STATESTORE_EVIDENCE_KEY_FILE names a key, each drill leaves signed evidence.
    """
    from statestore.cli import local_processes as local
    from statestore.cli import tables
    from statestore.cli.archives import archive_of_stores
    from statestore.cli.drill_selection import stores_to_drill
    from statestore.drills.evidence import Run
    from statestore.drills.history import read_drills, write_drill_history
    from statestore.drills.objectives_file import read_objectives
    from statestore.drills.run import DrillRun, run_drills
    from statestore.drills.scratch import drill_scratch, require_apart
    from statestore.drills.standing import exit_code
    from statestore.metrics.export import export_report

    started_ms = clock.now_ms()
    asked = asked.naming(names or ())
    options.require_writable(json=json, reports_dir=asked.reports_dir)
    place = drill_scratch(scratch)
    require_apart(place, asked.where.state_dir)
    evidence = _evidence(asked, evidence_dir)
    said = read_objectives(objectives)
    topics = asked.where.cluster.topics
    where = archive_of_stores(archive, archive_timeout_s, topics)
    chosen, stores, others = stores_to_drill(replace(asked, archive=where), topics, place)
    how = DrillRun(
        run=Run(run_id=f"command-{started_ms}"),
        run_bytes=run_bytes,
        scratch=place,
        mode=request.mode,
        reserve=reserve_bytes,
        parallelism=parallel,
        limit=request.limit,
        named=bool(asked.stores or asked.partitions),
        evidence=evidence,
        objectives={**said, **_defined_objectives(chosen)},
        definitions={found.name: found for found in chosen.defined},
    )
    report = run_drills(
        stores,
        how,
        read_drills(asked.reports_dir),
        local.runner(parallel),
        started_ms=started_ms,
        others=others,
    )
    head = {"applications": chosen.applications, "catalogue": chosen.catalogue, "left_out": chosen.without_rows}
    report = report.model_copy(update=head)
    tables.show(output.console(json), report)
    output.write_report(json, asked.reports_dir, report)
    if asked.reports_dir is not None:
        write_drill_history(asked.reports_dir, report)
    code = exit_code(report)
    export_report(report, code)
    raise typer.Exit(code)


def _evidence(asked: PartitionSelection, evidence_dir: str | None) -> EvidenceKeeper | None:
    """Return who keeps evidence, if there is a key for it.

    Raises
    ------
    InputError
        If there is a key, and no place.
    """
    from statestore.drills.keys import signing_key
    from statestore.drills.run import EvidenceKeeper

    key = signing_key()
    if key is None:
        return None
    place = evidence_place(asked.reports_dir, evidence_dir)
    metastore = None if asked.service is None else asked.service.metastore
    return EvidenceKeeper(place, key, metastore)


def evidence_place(reports_dir: Location | None, evidence_dir: str | None) -> Location:
    """Return the directory of all evidence.

    Raises
    ------
    InputError
        If nothing says it.
    """
    if evidence_dir is not None:
        return location(evidence_dir).absolute()
    if reports_dir is None:
        raise InputError("evidence: expected --evidence-dir or --reports-dir, found neither")
    return reports_dir.absolute() / "evidence"


def _defined_objectives(chosen: Chosen) -> Mapping[str, RestoreObjectives]:
    return {found.name: found.objectives for found in chosen.defined if found.objectives is not None}
