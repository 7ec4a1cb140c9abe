"""Selects the stores of the command `restore`: those that it may restore, or those that a report advises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from statestore.cli.selection import Chosen
from statestore.discovery.known_stores_file import layout_known
from statestore.discovery.log_headers import was_taken_in
from statestore.discovery.older_versions import has_offsets_beside, shown_layout
from statestore.discovery.store import DiscoveredStore
from statestore.errors import InputError, LockedError, NotJudgedError, RetryError, UnknownFormatError
from statestore.kafka.topics import Topics
from statestore.partition.plan import refused_global
from statestore.partition.release import ReleaseRow
from statestore.partition.rollback import RollbackRow
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.run import advised, require_as_many_as_tasks
from statestore.reports import (
    ArchivedRow,
    Failure,
    RestorePlanReport,
    RestorePlanRow,
    RestoreReport,
    RestoreRow,
    SnapshotReport,
    StorePartitionRow,
    VerifyReport,
    read_report,
)
from statestore.requests.restore import RestoreRequest

R = TypeVar("R", bound=StorePartitionRow)
Report = TypeVar("Report", bound="RestorePlanReport | RestoreReport | SnapshotReport")


def stores_to_restore(
    chosen: Chosen, topics: Topics, *, elsewhere: bool = False, kafka_streams: str | None = None
) -> list[StorePartitionSpec]:
    """Return the store partitions to restore, or refuse.

    Parameters
    ----------
    elsewhere
        The stores are built into a state directory of their own, which no application uses.
    kafka_streams
        Version that is to start on the stores of applications without a definition; None: what lies there tells.

    Raises
    ------
    LockedError
        If every store is in use.
    InputError
        If nothing is left, something must be said first of a store that is named, or it cannot be told which version
        of Kafka Streams is to start on what a restore writes.
    UnknownFormatError
        If a store that is asked for by name is not one that we know, or none that we know is left.
    TopicMismatchError
        If a changelog has not the partitions that its application has tasks.
    """
    if not chosen.specs:
        chosen.require_free()
    chosen.require_known()
    gone = [*chosen.troubled("missing"), *chosen.troubled("damaged"), *chosen.troubled("undetermined")]
    if gone and (not chosen.specs or any(store.name in chosen.named for store in gone)):
        raise InputError(
            _listed(f"{len(gone)} stores need a description. Add it, or name other stores with --store:", gone)
        )
    unknown = [*chosen.troubled("unknown"), *chosen.troubled("needed")]
    if named := [store for store in unknown if store.name in chosen.named]:
        raise UnknownFormatError(_listed(f"{len(named)} stores cannot be restored:", named))
    none = [store for trouble in ("unlogged", "in memory", "stale") for store in chosen.troubled(trouble)]
    for store in (*chosen.troubled("in use"), *unknown, *gone, *none, *chosen.acknowledged):
        print(f"statestore: {store.label} is skipped: {store.problem}", file=sys.stderr)
    others = [spec for spec in chosen.specs if spec.is_global and spec.global_kind != "table"]
    for spec in others:
        if spec.store.name in chosen.named and (refused := refused_global(spec)) is not None:
            raise refused
        print(
            f"statestore: {spec.store_partition} is skipped: Kafka Streams fills it at startup, and it is not known "
            "to be a global table",
            file=sys.stderr,
        )
    specs = [spec for spec in chosen.specs if spec not in others]
    if not specs and unknown:
        raise UnknownFormatError(_listed(f"nothing to restore in {', '.join(chosen.applications)}:", unknown))
    if not specs:
        raise InputError(f"nothing to restore in {', '.join(chosen.applications)}")
    if not elsewhere:
        specs = _with_layout(chosen, specs, kafka_streams)
    specs = _with_headers_known(chosen, specs, topics)
    require_as_many_as_tasks(specs, topics, chosen.defined)
    return specs


def _listed(what: str, stores: Iterable[DiscoveredStore]) -> str:
    """Say what is wrong with stores, one on each line."""
    return "\n  ".join([what, *(f"{store.label}: {store.problem}" for store in stores)])


def _with_layout(
    chosen: Chosen, specs: Sequence[StorePartitionSpec], kafka_streams: str | None
) -> list[StorePartitionSpec]:
    """Note for which layout stores are built: that of the version that is to start on them.

    Raises
    ------
    InputError
        If that cannot be told, or is not as it was said.
    """
    said = None if kafka_streams is None else has_offsets_beside(kafka_streams)
    beside: dict[str, bool] = {}
    for state_dir, application in dict.fromkeys((spec.state_dir, spec.application) for spec in specs if not spec.owned):
        shown = shown_layout(state_dir, application)
        known = shown.offsets_beside
        if known is None and not (shown.beside and shown.inside):
            known = layout_known(chosen.known.get(application, {}))
        if said is None and known is None:
            raise InputError(
                f"the version of Kafka Streams is unknown for application {application}: {shown}. Versions 3.9 to 4.2 "
                "keep offsets beside their stores, and do not start on stores with offsets inside. Version 4.3 keeps "
                "them inside. Nothing was changed. Add --kafka-streams VERSION, such as 4.3.1"
            )
        if said and shown.inside:
            raise InputError(
                f"Kafka Streams {kafka_streams} cannot start on the stores of application {application}: "
                f"{shown.inside}, which versions before 4.3 do not support. Nothing was changed. Correct "
                "--kafka-streams, or remove the directory of the application first"
            )
        beside[application] = bool(known if said is None else said)
    return [
        spec.model_copy(update={"offsets_beside": beside[spec.application]}) if spec.application in beside else spec
        for spec in specs
    ]


def _with_headers_known(
    chosen: Chosen, specs: Sequence[StorePartitionSpec], topics: Topics
) -> list[StorePartitionSpec]:
    """Note which stores have taken in records with headers without keeping these: the headers are somebody else's."""
    ignoring = set()
    first = {(spec.application, spec.store.name): spec for spec in reversed(specs) if spec.logs_no_headers}
    for store in chosen.discovered:
        spec = first.get((store.application, store.name))
        for partition, applied in list(store.applied.items())[:1]:
            if spec is not None and was_taken_in(spec, partition, applied, topics):
                ignoring.add((store.application, store.name))
    return [
        spec.model_copy(update={"headers_ignored": True}) if (spec.application, spec.store.name) in ignoring else spec
        for spec in specs
    ]


def advised_stores(stores: Sequence[StorePartitionSpec], request: RestoreRequest) -> list[StorePartitionSpec]:
    """Return the store partitions that the report of a request advises to restore; all, if it names none.

    Raises
    ------
    InputError
        If it advises none of them.
    """
    if request.verify_report is None:
        return list(stores)
    report = read_report(request.verify_report, VerifyReport)
    labels = advised(report, accept_loss=request.accept_loss)
    found = [store for store in stores if str(store.store_partition) in labels]
    if not found:
        raise InputError(f"the report of run {report.run_id} advises restoring none of {len(stores)} store partitions")
    return found


def failed_rows(chosen: Chosen, kind: Callable[..., R]) -> list[R]:
    """Return a row for each store whose application failed."""
    return [
        kind(application=application, store=store, task="-", failure=Failure.of(error))
        for application, store, error in chosen.failures()
    ]


def with_not_judged(report: Report, chosen: Chosen) -> Report:
    """Return the report with a row for each store that was not restored: it is in use, or its kind is unknown."""
    row: Any = partial(RestoreRow, outcome="failed")
    if report.job == "restore-plan":
        row = RestorePlanRow
    elif report.job == "snapshot":
        row = ArchivedRow
    found = [*chosen.not_judged, *chosen.troubled("damaged"), *chosen.troubled("undetermined")]
    found += chosen.troubled("in use")
    rows: list[Any] = [
        row(application=store.application, store=store.name, task=task, failure=_not_judged(store))
        for store in found
        for task in map(str, store.tasks or ["-"])
    ]
    left_out = {f"store {store.label}": f"{store.acknowledged}; {store.problem}" for store in chosen.acknowledged}
    changes = {"rows": (*report.rows, *rows), "left_out": {**chosen.without_rows, **left_out}}
    return cast("Report", report.model_copy(update=changes))


def _not_judged(store: DiscoveredStore) -> Failure:
    if store.trouble == "in use":
        return Failure.of(LockedError(store.problem))
    lost = store.trouble in ("missing", "damaged", "undetermined")
    return Failure.of(InputError(store.problem) if lost else NotJudgedError(store.problem))


def exit_code(rows: Sequence[RestoreRow | RestorePlanRow | ArchivedRow | RollbackRow | ReleaseRow]) -> int:
    """Exit code of a restore or a change of quarantine: 0 done, 1 in part, 6 the rest is unknown, 3 only for now."""
    failures = [row.failure for row in rows if row.failure is not None]
    unjudged = [failure for failure in failures if failure.kind == NotJudgedError.__name__]
    if any(not failure.retriable for failure in failures if failure not in unjudged):
        return 1
    return NotJudgedError.exit_code if unjudged else RetryError.exit_code if failures else 0
