"""A run of drills: which store partitions it drills, the evidence of each, and its report.

The job and the command differ in where store partitions come from, and in who does the work.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from statestore import clock
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.objectives import RestoreObjectives
from statestore.drills.chain import Chain
from statestore.drills.choosing import Chosen, choose_drills
from statestore.drills.evidence import Head, Run, document_of
from statestore.drills.heads import record_head, recorded_head
from statestore.drills.history import Drills
from statestore.drills.keys import SigningKey
from statestore.drills.partition import DrillMode, DrillSpec, drill, emptied, not_drilled, restore_spec
from statestore.drills.standing import confidence_of, row_standing
from statestore.errors import StateStoreError
from statestore.metastore.metastore import Metastore
from statestore.objects.path import Location
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.planning import plan_restore
from statestore.recovery.runner import Runner
from statestore.reports import DrillConfidence, DrillReport, DrillRow, EvidenceHead, Failure
from statestore.statedir.scratch import scratch_directory

_log = logging.getLogger(__name__)
_NO_OBJECTIVES = RestoreObjectives()


@dataclass(frozen=True)
class EvidenceKeeper:
    """Where evidence of drills goes.

    Attributes
    ----------
    place
        Directory of all evidence.
    key
        Signs it.
    metastore
        Records the heads; None: nothing does.
    """

    place: Location
    key: SigningKey
    metastore: Metastore | None = None


@dataclass(frozen=True)
class DrillRun:
    """How a run drills.

    Attributes
    ----------
    run
        Names the run in reports and evidence.
    run_bytes
        Bound of a sorted run in memory.
    scratch
        Directory to build in, where the work is done.
    mode, reserve
        As of `DrillSpec`.
    parallelism
        Most drills at the same time, if the budgets allow it.
    limit
        Most drills of one application; None: no limit.
    named
        The store partitions were asked for by name.
    evidence
        None: evidence is not kept.
    objectives, definitions
        By application. An application without a definition has no known suites.
    """

    run: Run
    run_bytes: int
    scratch: Path
    mode: DrillMode = "auto"
    reserve: int | None = None
    parallelism: int = 1
    limit: int | None = None
    named: bool = False
    evidence: EvidenceKeeper | None = None
    objectives: Mapping[str, RestoreObjectives] = field(default_factory=dict)
    definitions: Mapping[str, ApplicationDefinition] = field(default_factory=dict)

    def objectives_of(self, application: str) -> RestoreObjectives:
        """Return the objectives of an application; without any, every proof counts."""
        return self.objectives.get(application, _NO_OBJECTIVES)


def run_drills(
    stores: Sequence[StorePartitionSpec],
    how: DrillRun,
    drills: Drills,
    run: Runner,
    *,
    started_ms: int,
    others: Sequence[DrillRow] = (),
) -> DrillReport:
    """Drill the most urgent store partitions of each application, and report how all of them stand.

    Parameters
    ----------
    stores
        All store partitions of the applications, or those that were asked for.
    drills
        Earlier drills.
    run
        Does the drills, so many at the same time as `how.parallelism` says.
    others
        Rows of store partitions that cannot be drilled.
    """
    applications = tuple(
        dict.fromkeys([*(store.application for store in stores), *(row.application for row in others)])
    )
    rows: list[DrillRow] = []
    confidence: list[DrillConfidence] = []
    heads: list[EvidenceHead] = []
    for application in applications:
        own = [store for store in stores if store.application == application]
        objectives = how.objectives_of(application)
        found, head = _drill_application(own, objectives, how, drills, run) if own else ([], None)
        found += [row for row in others if row.application == application]
        rows += found
        confidence.append(confidence_of(application, found, objectives))
        if head is not None:
            heads.append(head)
    return DrillReport(
        run_id=how.run.run_id,
        applications=applications,
        started_ms=started_ms,
        finished_ms=clock.now_ms(),
        dag_id=how.run.dag_id,
        dag_run_id=how.run.dag_run_id,
        rows=tuple(rows),
        confidence=tuple(confidence),
        evidence=tuple(heads),
    )


def _drill_application(
    stores: Sequence[StorePartitionSpec], objectives: RestoreObjectives, how: DrillRun, drills: Drills, run: Runner
) -> tuple[list[DrillRow], EvidenceHead | None]:
    specs = [
        DrillSpec(
            store,
            objectives,
            how.run.run_id,
            how.run_bytes,
            how.scratch,
            how.mode,
            how.reserve,
            definition=how.definitions.get(store.application),
        )
        for store in stores
    ]
    pasts = [drills.past(str(store.store_partition)) for store in stores]
    chosen = _choose(specs, objectives, how, drills)
    done: dict[int, DrillRow] = {}
    recorder = _Recorder(stores[0].application, how, objectives)
    at_once = min(how.parallelism, objectives.budget.parallelism)
    # Evidence of each group is kept before the next one begins: a run that is killed has kept what it has shown.
    for start in range(0, len(chosen.drilled), at_once):
        group = chosen.drilled[start : start + at_once]
        for at, row in zip(group, run([specs[at] for at in group], drill, DrillRow, not_drilled), strict=True):
            # One clock dates all drills of a run: those of the workers may differ, and order decides which one counts.
            done[at] = recorder.keep(row.model_copy(update={"drilled_ms": clock.now_ms()}))
        recorder.record_head()
    now_ms = clock.now_ms()
    rows = []
    for at, spec in enumerate(specs):
        row = recorder.checked(done[at]) if at in done else _not_chosen(spec, chosen.left.get(at, ""))
        rows.append(row_standing(row, pasts[at], objectives, now_ms))
    return rows, recorder.end()


def _choose(specs: Sequence[DrillSpec], objectives: RestoreObjectives, how: DrillRun, drills: Drills) -> Chosen:
    application, now_ms = specs[0].store.application, clock.now_ms()
    pasts = [drills.past(str(spec.store.store_partition)) for spec in specs]

    def bytes_of(at: int) -> int:
        last = pasts[at].last
        return last.bytes if last is not None and last.bytes else _planned_bytes(specs[at])

    return choose_drills(
        pasts,
        objectives,
        now_ms,
        bytes_of,
        spent=drills.spent(application, now_ms),
        limit=how.limit,
        named=how.named,
        evidence=how.evidence is not None,
    )


def _planned_bytes(spec: DrillSpec) -> int:
    """Return the bytes that a drill would read, by its plan; a plan that is refused reads nothing."""
    if spec.store.changelog is None:
        return 0
    with scratch_directory(spec.scratch) as directory:
        planned = plan_restore(restore_spec(spec, emptied(spec.store, directory / "state")))
    return planned.fetched + planned.log_bytes


def _not_chosen(spec: DrillSpec, why: str) -> DrillRow:
    store = spec.store
    return DrillRow(
        application=store.application,
        store=store.store.name,
        task=str(store.task),
        standing="never proven",
        detail=why,
    )


class _Recorder:
    """Keeps the evidence of one application's drills. Errors are reported, and end no drill."""

    def __init__(self, application: str, how: DrillRun, objectives: RestoreObjectives) -> None:
        self._application, self._how, self._objectives = application, how, objectives
        self._head = Head()
        self._problem: StateStoreError | OSError | None = None
        self._recorded: Head | None = None
        self._is_recorded = False
        self._has_topic = False

    def keep(self, row: DrillRow) -> DrillRow:
        """Append the document of a drill; return its row with the document's number."""
        keeper = self._how.evidence
        if keeper is None:
            return row
        try:
            if self._recorded is None:
                self._recorded = self._read_recorded(keeper)
            document = document_of(row, self._how.run, self._objectives)
            self._head = Chain(keeper.place, self._application).append(document, keeper.key, self._recorded)
        except (StateStoreError, OSError) as error:
            self._fail(error)
            return row
        return row.model_copy(update={"evidence": self._head.length})

    def _read_recorded(self, keeper: EvidenceKeeper) -> Head:
        """Return the recorded head; an empty one if there is no command topic."""
        if keeper.metastore is None:
            return Head()
        view = keeper.metastore.require_running()
        self._has_topic = view.topic_id is not None
        return recorded_head(view.catalogue, self._application)

    def record_head(self) -> None:
        """Record the head where there is a command topic for it."""
        keeper = self._how.evidence
        if keeper is None or keeper.metastore is None or not (self._head.length and self._has_topic):
            return
        self._is_recorded = False
        try:
            record_head(keeper.metastore, self._application, self._head)
            self._is_recorded = True
        except (StateStoreError, OSError) as error:
            self._fail(error)

    def checked(self, row: DrillRow) -> DrillRow:
        """Return the row of a drill; if evidence of the run was not kept, with this failure."""
        if self._problem is None or row.failure is not None:
            return row
        return row.model_copy(update={"failure": Failure.of(self._problem)})

    def end(self) -> EvidenceHead | None:
        """Return the head's entry in the report, or None if no evidence is kept."""
        if self._how.evidence is None:
            return None
        return EvidenceHead(
            application=self._application,
            length=self._head.length,
            sha256=self._head.sha256,
            recorded=self._is_recorded,
            problem="" if self._problem is None else str(self._problem),
        )

    def _fail(self, error: StateStoreError | OSError) -> None:
        self._problem = self._problem or error
        _log.error("drill: %s: evidence: %s", self._application, error)
