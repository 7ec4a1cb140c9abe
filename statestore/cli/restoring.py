"""What `restore` does with store partitions, in processes of their own: plan, read ranges of long logs, restore."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from statestore.changelog.topics import Topics
from statestore.cli.choice import Chosen, FoundIn
from statestore.cli.local import run_each
from statestore.durable import remove_tree
from statestore.errors import InputError, StateStoreError, UnknownFormatError
from statestore.partition.judgement import waits_for_loss
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.many import Runner, cut_by_length, plan_many, require_points, restore_many
from statestore.recovery.planning import require_partitions
from statestore.recovery.releasing import ReleaseRow
from statestore.recovery.rollback import RollbackRow
from statestore.recovery.spec import AsOf, CheckDepth, Mode, RestoreSpec, require_consistent
from statestore.reports import Action, RestorePlanRow, RestoreRow, VerifyReport
from statestore.verification.log_headers import was_taken_in
from statestore.verification.older_versions import older_version

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class How:
    """How store partitions are restored; see `recovery/spec.py`.

    Attributes
    ----------
    ranges
        Into how many ranges each log is cut; None: as many as give all processes work.
    label
        Names the run.
    diverged
        Store partitions that differ from their logs: restored although nothing less thorough finds that.
    reports_dir
        Below it the progress files lie; None: in a temporary directory.
    """

    mode: Mode
    label: str
    run_bytes: int
    quarantine_s: float
    force: bool = False
    diverged: frozenset[str] = frozenset()
    check: CheckDepth = "files"
    ranges: int | None = None
    as_of: AsOf | None = None
    target: Path | None = None
    best_effort: bool = False
    accept_loss: bool = False
    processes: int = 1
    reports_dir: Path | None = None

    def require_consistent(self) -> None:
        """Refuse options that do not fit together."""
        require_consistent(self.mode, self.as_of, self.target, best_effort=self.best_effort)


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
        If nothing is left, something must be said of a store first, or the application is from before Kafka Streams
        4.3 and could not start on what a restore writes.
    UnknownFormatError
        If a store that is asked for by name is not one that we know, or none that we know is left.
    TopicMismatchError
        If a changelog has not the partitions that its application has tasks.
    """
    chosen.require_free()
    chosen.require_known()
    if gone := chosen.troubled("missing"):
        raise InputError(
            _listed(f"{len(gone)} stores need to be described, or left out by naming others with --store:", gone)
        )
    unknown = chosen.troubled("unknown")
    if named := [item for item in unknown if item.store.name in chosen.named]:
        raise UnknownFormatError(_listed(f"{len(named)} stores cannot be restored:", named))
    for item in (*unknown, *chosen.troubled("unlogged")):
        print(f"statestore: {item.application}/{item.store.name} is left alone: {item.store.problem}", file=sys.stderr)
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
    inputs = {(app.name, part.index): part.input_topic for app in chosen.defined for part in app.subtopologies}
    counts = topics.describe(inputs.values())
    for spec in specs:
        topic = inputs.get((spec.application, spec.task.subtopology))
        if topic is not None and topic in counts:
            require_partitions(spec, counts[topic].partitions)
    return specs


def _listed(what: str, items: Iterable[FoundIn]) -> str:
    """Say what is wrong with stores, one on each line."""
    return "\n  ".join([what, *(f"{item.application}/{item.store.name}: {item.store.problem}" for item in items)])


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
    for application, store in chosen.found:
        spec = first.get((application, store.name))
        for partition, applied in list(store.applied.items())[:1]:
            if spec is not None and was_taken_in(spec, partition, applied, topics):
                ignoring.add((application, store.name))
    return [
        spec.model_copy(update={"headers_ignored": True}) if (spec.application, spec.store.name) in ignoring else spec
        for spec in specs
    ]


def advised(
    stores: Sequence[StorePartitionSpec], report: VerifyReport, *, accept_loss: bool = False
) -> list[StorePartitionSpec]:
    """Return the store partitions that a verification advises to restore, or would but for what would be lost.

    Raises
    ------
    InputError
        If it advises none of them.
    """
    labels = {
        row.label
        for row in report.rows
        if row.action in (Action.TAIL, Action.FULL) or (accept_loss and waits_for_loss(row))
    }
    found = [store for store in stores if str(store.store_partition) in labels]
    if not found:
        raise InputError(f"the report of run {report.run_id} advises to restore none of {len(stores)} store partitions")
    return found


def restore_specs(stores: Sequence[StorePartitionSpec], how: How, progress: Path | None = None) -> list[RestoreSpec]:
    """Say for each store partition how it is restored.

    Raises
    ------
    InputError
        If options do not fit together, an as-of point is not in a log, or its target is in use.
    """
    how.require_consistent()
    made = [
        RestoreSpec(
            store,
            how.mode,
            how.force or str(store.store_partition) in how.diverged,
            how.label,
            how.run_bytes,
            ranges=how.ranges or 1,
            check=how.check,
            progress=progress,
            as_of=how.as_of,
            target=how.target and how.target.absolute(),
            best_effort=how.best_effort,
            accept_loss=how.accept_loss,
            quarantine_s=how.quarantine_s,
        )
        for store in stores
    ]
    require_points(made)
    return made if how.ranges is not None else cut_by_length(made, how.processes)


def plan_all(stores: Sequence[StorePartitionSpec], how: How) -> list[RestorePlanRow]:
    """Say what would be done, and do nothing."""
    return plan_many(restore_specs(stores, how), _runner(how))


def restore_all(stores: Sequence[StorePartitionSpec], how: How) -> list[RestoreRow]:
    """Restore store partitions, showing how far each is."""
    with _progress(how) as progress:
        return restore_many(restore_specs(stores, how, progress), _runner(how), progress)


def _runner(how: How) -> Runner:
    def run(
        pieces: Sequence[S],
        work: Callable[[S], M],
        _: type[M],
        __: Callable[[S, StateStoreError], M] | None = None,
        /,
    ) -> list[M]:
        # A process that is killed ends the command: who typed it sees that at once, and runs it again.
        return run_each(pieces, work, how.processes)

    return run


@contextmanager
def _progress(how: How) -> Iterator[Path]:
    if how.reports_dir is None:
        with tempfile.TemporaryDirectory(prefix="statestore-") as name:
            yield Path(name)
        return
    directory = how.reports_dir.absolute() / "restore" / f".progress-{how.label}"
    try:
        yield directory
    finally:
        remove_tree(directory)


def exit_code(rows: Sequence[RestoreRow | RestorePlanRow | RollbackRow | ReleaseRow]) -> int:
    """Exit code of a restore or what else was done with quarantine: 0 all done, 1 something is not, 3 only for now."""
    failures = [row.failure for row in rows if row.failure is not None]
    return 0 if not failures else 3 if all(failure.retriable for failure in failures) else 1
