"""What the command `restore` works on: which stores it may restore, and which of them a report advises."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from statestore.changelog.topics import Topics
from statestore.cli.selection import Chosen
from statestore.discovery.log_headers import was_taken_in
from statestore.discovery.older_versions import older_version
from statestore.discovery.store import DiscoveredStore
from statestore.errors import InputError, UnknownFormatError
from statestore.partition.release import ReleaseRow
from statestore.partition.rollback import RollbackRow
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.run import advised, require_as_many_as_tasks
from statestore.reports import ArchivedRow, RestorePlanRow, RestoreRow, VerifyReport, read_report
from statestore.requests.restore import RestoreRequest


def stores_to_restore(chosen: Chosen, topics: Topics, *, elsewhere: bool = False) -> list[StorePartitionSpec]:
    """Return the store partitions to restore, or refuse.

    Parameters
    ----------
    elsewhere
        The stores are built into a state directory of their own, which no application uses.

    Raises
    ------
    LockedError
        If a store is in use.
    InputError
        If nothing is left, something must be said first of a store that is named, or the application is from before
        Kafka Streams 4.3 and could not start on what a restore writes.
    UnknownFormatError
        If a store that is asked for by name is not one that we know, or none that we know is left.
    TopicMismatchError
        If a changelog has not the partitions that its application has tasks.
    """
    chosen.require_free()
    chosen.require_known()
    gone = [*chosen.troubled("missing"), *chosen.troubled("damaged")]
    if gone and (not chosen.specs or any(store.name in chosen.named for store in gone)):
        raise InputError(
            _listed(f"{len(gone)} stores need to be described, or left out by naming others with --store:", gone)
        )
    unknown = [*chosen.troubled("unknown"), *chosen.troubled("needed")]
    if named := [store for store in unknown if store.name in chosen.named]:
        raise UnknownFormatError(_listed(f"{len(named)} stores cannot be restored:", named))
    for store in (*unknown, *gone, *chosen.troubled("unlogged"), *chosen.troubled("in memory")):
        print(f"statestore: {store.label} is left alone: {store.problem}", file=sys.stderr)
    for spec in chosen.specs:
        if spec.is_global:
            print(
                f"statestore: {spec.store_partition} is left alone: Kafka Streams fills it at its start",
                file=sys.stderr,
            )
    specs = [spec for spec in chosen.specs if not spec.is_global]
    if not specs and unknown:
        raise UnknownFormatError(_listed(f"nothing to restore in {', '.join(chosen.applications)}:", unknown))
    if not specs:
        raise InputError(f"nothing to restore in {', '.join(chosen.applications)}")
    if not elsewhere:
        _require_current_versions(specs)
    specs = _with_headers_known(chosen, specs, topics)
    require_as_many_as_tasks(specs, topics, chosen.defined)
    return specs


def _listed(what: str, stores: Iterable[DiscoveredStore]) -> str:
    """Say what is wrong with stores, one on each line."""
    return "\n  ".join([what, *(f"{store.label}: {store.problem}" for store in stores)])


def _require_current_versions(specs: Sequence[StorePartitionSpec]) -> None:
    """Refuse to write stores that their application could not open.

    Raises
    ------
    InputError
        Naming the first such application, what shows it, and what to do instead.
    """
    for state_dir, application in dict.fromkeys((spec.state_dir, spec.application) for spec in specs if not spec.owned):
        shown = older_version(state_dir, application)
        if shown is not None:
            raise InputError(
                f"application {application} is of a Kafka Streams from before 4.3: {shown}. Restored stores have the "
                "column family offsets of 4.3, and versions from 3.9 to 4.2 cannot start on them. Nothing was changed. "
                "Either let Kafka Streams restore its stores by itself, or upgrade it to 4.3, start it once on this "
                "directory without upgrade.from, stop it, and run this again. If what is named here is left of a store "
                "that the application no longer has, remove it"
            )


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
        raise InputError(f"the report of run {report.run_id} advises to restore none of {len(stores)} store partitions")
    return found


def exit_code(rows: Sequence[RestoreRow | RestorePlanRow | ArchivedRow | RollbackRow | ReleaseRow]) -> int:
    """Exit code of a restore or what else was done with quarantine: 0 all done, 1 something is not, 3 only for now."""
    failures = [row.failure for row in rows if row.failure is not None]
    return 0 if not failures else 3 if all(failure.retriable for failure in failures) else 1
