"""All stores of an application and its group's input offsets, put back to one consistent cut.

    locks of all tasks -> all that speaks against it -> the stores as of the cut, built or fetched elsewhere -> their
    rows, into files -> as an overwrite of all stores at once (`adoption.py`), with the offsets of the cut
    (`group_move.py`)

The old changelogs also have all later changes, so the stores get new ones that have the rows of the cut alone. Records
that the application had sent to its output topics stay there, and the input from the cut on is processed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from statestore import kill_switch
from statestore.changelog.input_offsets import input_offsets
from statestore.definitions.application import ApplicationDefinition
from statestore.durable import remove_tree
from statestore.errors import InputError
from statestore.kafka.groups import GroupOffset
from statestore.kafka.topics import LogRange, Topics
from statestore.model import StorePartition, TaskId, TopicPartition
from statestore.partition.grouping import by_store
from statestore.partition.inspection import inspect
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.as_of import in_target
from statestore.recovery.disk_space import free_bytes
from statestore.recovery.restore import restore
from statestore.recovery.runner import Runner
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Staging
from statestore.requests.restore import RestoreRequest
from statestore.rewrite.adoption import Adoption, AdoptionHooks, AdoptionSpec, NewRows
from statestore.rewrite.changelog_writing import fence_tasks
from statestore.rewrite.cut import Cut, stream_times_of
from statestore.rewrite.examination import require_rewritable
from statestore.rewrite.group_move import GroupMove
from statestore.rewrite.group_offsets import require_stable
from statestore.rewrite.journal import Rewrite, require_no_other
from statestore.rewrite.point_cut import TimeCut
from statestore.rewrite.row_stage import ROW_SCHEMA, AttemptWriter, RowStage, StagedAttempt, writes_of
from statestore.rewrite.rows import stored_rows, survey
from statestore.rewrite.staged_stores import Rewritten
from statestore.statedir.paths import task_paths
from statestore.statedir.scratch import default_scratch, scratch_directory
from statestore.statedir.swap import locked_task

#: Rate that durations are estimated with: rows are written, read from the topics, and checked.
_ROWS_PER_S = 125_000


class PointStore(NamedTuple):
    """A store partition as of the point.

    Attributes
    ----------
    store
        The closed store; None: it had no row.
    build
        Restore that builds it, into a directory that is removed afterwards; None if it is complete.
    """

    store: StorePartitionSpec | None
    build: RestoreSpec | None = None


class Point(NamedTuple):
    """A cut through an application: its stores, and the offsets of its input."""

    stores: Mapping[StorePartition, PointStore]
    offsets: Mapping[TopicPartition, GroupOffset]


class PointSpec(NamedTuple):
    """Requested restore.

    Attributes
    ----------
    name
        Name of the cut.
    find
        Find the cut, given a directory for its stores; called unless an earlier attempt is only finished.
    stores
        All partitions of all stores of the application, as they are.
    tasks
        All tasks of the application, also those without a store.
    run_bytes
        Bound of a sorted run in memory.
    started_ms
        Now, ms since the epoch.
    """

    definition: ApplicationDefinition
    name: str
    find: Callable[[Path], Point]
    stores: Sequence[StorePartitionSpec]
    tasks: Sequence[TaskId]
    run_bytes: int
    started_ms: int


class PointPart(NamedTuple):
    """A store partition whose rows of the point are written to files."""

    name: str
    number: int
    partitions: int
    found: PointStore
    stage: Path


class PointRows(BaseModel):
    """Rows of a store partition as of the point.

    Attributes
    ----------
    directory
        Directory with the files; None: the store had no row.
    bytes
        Size of keys and values.
    """

    model_config = ConfigDict(frozen=True)

    directory: str | None = None
    rows: int = 0
    bytes: int = 0


class PointPlan(NamedTuple):
    """Plan of a restore to a point.

    Attributes
    ----------
    point
        Name of the point.
    parts
        Rows of each store partition at the point; empty if an earlier attempt is finished.
    offsets
        The group's next input offset now, None: none, and at the point. The input between is processed again.
    outputs
        End of each partition of the output topics: the records before it stay.
    finishes
        The catalogue has the changelogs of an earlier attempt: that is finished, and nothing else is done.
    """

    point: str
    parts: Sequence[tuple[StorePartitionSpec, PointRows]]
    offsets: Mapping[TopicPartition, tuple[int | None, int]]
    outputs: Mapping[TopicPartition, int]
    finishes: bool
    disk_needed: int
    disk_free: int

    @property
    def rows(self) -> int:
        """Rows that are written."""
        return sum(found.rows for _, found in self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of their keys and values."""
        return sum(found.bytes for _, found in self.parts)

    @property
    def seconds(self) -> float:
        """How long that may take, without the suites."""
        return round(self.rows / _ROWS_PER_S, 1)


def stores_at(
    cut: TimeCut, stores: Sequence[StorePartitionSpec], scratch: Path, run_bytes: int
) -> dict[StorePartition, PointStore]:
    """Return how the stores of a cut are built from their changelogs, or from earlier snapshots and these."""
    found = {}
    for number, store in enumerate(stores):
        end, build = cut.ends[store.store_partition], None
        if end is not None:
            request = RestoreRequest(mode="as-of", as_of_offset=end - 1, target=scratch / str(number))
            build = RestoreSpec(store, request, "point", run_bytes)
        found[store.store_partition] = PointStore(None if build is None else in_target(build), build)
    return found


def point_of_set(
    topics: Topics, cut: Cut, fetched: Sequence[StorePartitionSpec], stores: Sequence[StorePartitionSpec]
) -> Point:
    """Return the cut of a set of snapshots, which were fetched.

    Raises
    ------
    InputError
        If a store has another kind or format now, or an input topic was deleted and created anew since.
    """
    now = {store.store_partition: (store.store.kind, store.store.format) for store in stores}
    for store in fetched:
        then = store.store.kind, store.store.format
        if then != now[store.store_partition]:
            expected, found = (" ".join(pair) for pair in (now[store.store_partition], then))
            raise InputError(f"{store.store_partition}: the set has a {found} store, expected {expected}, as it is now")
    there = topics.describe(cut.found.input_ids)
    for name, topic_id in cut.found.input_ids.items():
        if name in there and there[name].topic_id != topic_id:
            raise InputError(
                f"topic {name} was deleted and created anew since set {cut.found.uuid} was written: expected the id "
                f"{topic_id}, found {there[name].topic_id}. The offsets of the set are of other records"
            )
    return Point({store.store_partition: PointStore(store) for store in fetched}, cut.offsets)


class PointRestore:
    """A restore whose tasks are locked, and whose rows are in files; made by `restore_to_point`."""

    def __init__(self, spec: PointSpec, scratch: Path, hooks: AdoptionHooks, run: Runner) -> None:
        self._spec, self._run = spec, run
        self._first = first = spec.stores[0]
        self._topics = first.cluster.topics
        self._by_store = by_store(spec.stores)
        rewrite = Rewrite("point", spec.definition.name)
        require_no_other(first.state_dir, rewrite, self._by_store)
        hooks = hooks._replace(judge=self._judged_by(hooks))
        self._adoption = self._adoption_of(rewrite, hooks, [])
        former, found = self._adoption.former(), list[PointRows]()
        self._point = Point({}, {})
        self._before = self._group()
        if former is None:
            self._adoption.finish_former()  # it throws away what would keep other rewrites from beginning
            self._topics.require_no_members(spec.definition.name)
            self._point = spec.find(scratch)
            self._require_input()
            found = self._staged_rows()
            self._adoption = self._adoption_of(rewrite, hooks, found)
        target = self._offsets() if former is None else former.group_offsets
        self.plan = PointPlan(
            point=spec.name if former is None else former.point,
            parts=[*zip(self._stores, found, strict=True)] if found else [],
            offsets={
                where: (its.next_offset if (its := self._before.get(where)) else None, then.next_offset)
                for where, then in target.items()
            },
            outputs={where: log.last_stable for where, log in self._logs(spec.definition.output_topics).items()},
            finishes=former is not None,
            disk_needed=self._adoption.disk_needed,
            disk_free=free_bytes(first.state_dir),
        )

    @property
    def _stores(self) -> list[StorePartitionSpec]:
        return [store for stores in self._by_store.values() for store in stores]

    @property
    def _inputs(self) -> list[str]:
        return [part.input_topic for part in self._spec.definition.subtopologies]

    def _logs(self, names: Sequence[str]) -> dict[TopicPartition, LogRange]:
        counts = {topic.name: topic.partitions for topic in self._topics.describe(names).values()}
        return self._topics.log_ranges(
            [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
        )

    def _adoption_of(self, rewrite: Rewrite, hooks: AdoptionHooks, found: Sequence[PointRows]) -> Adoption:
        new = [NewRows(of, of[0].store, self._stage(name, found)) for name, of in self._by_store.items()]
        spec = self._spec
        return Adoption(AdoptionSpec(rewrite, new, spec.run_bytes, spec.started_ms, self._move, spec.name), hooks)

    # -- what speaks against it ---------------------------------------------------------------------------------------

    def _group(self) -> dict[TopicPartition, GroupOffset]:
        found = input_offsets(self._topics, self._spec.definition.name, self._inputs)
        return {where: its._replace(metadata=stream_times_of(its.metadata)) for where, its in found.items()}

    def _require_input(self) -> None:
        """Make sure that the cut has each input partition, and that what follows it can be read."""
        for where, log in self._logs([self._spec.definition.input_topic]).items():
            found = self._point.offsets.get(where)
            if found is None:
                raise InputError(f"{self._spec.name} has no offset of {where}: the topic got partitions since")
            if not log.start <= found.next_offset <= log.last_stable:
                raise InputError(
                    f"{self._spec.name} is at offset {found.next_offset} of {where}, which has the offsets "
                    f"{log.start} to {log.last_stable}: what follows the point cannot be processed again. Name a later "
                    "point"
                )

    def _require_same_group(self) -> None:
        """Require that no input was processed since the plan was made."""
        self._topics.require_no_members(self._spec.definition.name)
        if self._group() != self._before:
            raise InputError(
                f"group {self._spec.definition.name} has committed input in the meantime: the application runs. Stop "
                "it wherever it runs, then run again. Nothing was changed"
            )

    def _judged_by(self, hooks: AdoptionHooks) -> Callable[[Sequence[StorePartitionSpec]], None]:
        def judge(stores: Sequence[StorePartitionSpec]) -> None:
            hooks.judge(stores)
            self._require_same_group()

        return judge

    def _offsets(self) -> dict[TopicPartition, GroupOffset]:
        """Return the offsets that the group gets.

        Repartition topics are passed over: their records are of input after the cut, and are sent again.
        """
        internal = self._logs([name for name in self._inputs if name != self._spec.definition.input_topic])
        require_stable(internal)
        found = {**self._point.offsets}
        for where, log in internal.items():
            found[where] = found.get(where, GroupOffset(0))._replace(next_offset=log.last_stable)
        return found

    def _move(self) -> GroupMove:
        """Fence all tasks, and return the offsets of the cut."""
        fence_tasks(self._first.cluster, self._spec.definition.name, self._spec.tasks)
        self._require_same_group()
        return GroupMove(self._offsets(), self._before)

    # -- the rows -----------------------------------------------------------------------------------------------------

    def _staged_rows(self) -> list[PointRows]:
        parts = [
            PointPart(
                str(store.store_partition),
                store.task.partition,
                len(stores),
                self._point.stores[store.store_partition],
                _stage_of(self._spec, name),
            )
            for name, stores in self._by_store.items()
            for store in stores
        ]
        found = self._run(parts, stage_part, PointRows)
        kill_switch.reached("rewrite, rows staged")
        return found

    def _stage(self, name: str, found: Sequence[PointRows]) -> RowStage:
        attempts = [
            StagedAttempt(one.directory, {store.task.partition: one.rows}, {store.task.partition: one.bytes})
            for store, one in zip(self._stores, found, strict=bool(found))
            if store.store.name == name and one.directory is not None
        ]
        return RowStage(_stage_of(self._spec, name), attempts)

    def carry_out(self) -> list[Rewritten]:
        """Put the application back; or finish what an earlier attempt began, and no more.

        Raises
        ------
        InputError
            If something speaks against it by now, or a suite does not pass. Nothing was changed.
        DiskSpaceError
            If the disk has no room for the new stores.
        """
        if self.plan.finishes:
            return self._adoption.finish_former() or []
        return self._adoption.carry_out()


def stage_part(part: PointPart) -> PointRows:
    """Write the rows of a store partition as of the point to files.

    Raises
    ------
    InputError
        If the store cannot be built as it was, or cannot be read.
    """
    found, build = part.found
    if found is None:
        return PointRows()
    if build is not None:
        row = restore(build)
        if row.failure is not None:
            raise InputError(f"{part.name}: {row.failure.message}. Nothing was changed")
    seen = inspect(found, contents=True)
    if seen.trouble is not None:
        raise InputError(f"{part.name} at the point is {seen.trouble.status}: {seen.trouble.detail}")
    contents = survey(found, None)
    with AttemptWriter(part.stage, part.partitions) as attempt:
        for _, batch in stored_rows(found, contents.first_live):
            columns = [column.cast(pa.binary()) for column in batch.columns[:2]]
            attempt.add_to(part.number, pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA))
    if build is not None:
        remove_tree(found.state_dir)
    staged = attempt.staged
    return PointRows(
        directory=staged.directory, rows=staged.rows.get(part.number, 0), bytes=staged.bytes.get(part.number, 0)
    )


def _stage_of(spec: PointSpec, store: str) -> Path:
    first = spec.stores[0]
    return writes_of(first.state_dir, first.application, store) / f"point-{spec.started_ms}"


def require_restorable(definition: ApplicationDefinition, stores: Sequence[StorePartitionSpec]) -> None:
    """Refuse an application with a store that cannot be put back.

    Raises
    ------
    InputError
        Naming the store.
    """
    if missing := sorted({store.name for store in definition.stores} - {store.store.name for store in stores}):
        raise InputError(
            f"{definition.name} cannot be restored to a point: {', '.join(missing)}: kept in memory, or there is no "
            "task yet"
        )
    for of in by_store(stores).values():
        require_rewritable(of)
        if of[0].changelog is None:
            raise InputError(f"{of[0].store_partition}: its changelog does not exist. Run `statestore drift`")


@contextmanager
def restore_to_point(spec: PointSpec, hooks: AdoptionHooks, run: Runner) -> Iterator[PointRestore]:
    """Lock all tasks of an application, and write the rows of the point; `PointRestore.carry_out` then restores it.

    Parameters
    ----------
    run
        Does the pieces of work.

    Raises
    ------
    LockedError
        If a task is in use.
    InputError
        If something speaks against it. Nothing was changed.
    """
    first = spec.stores[0]
    with ExitStack() as locks:
        for task in sorted({*spec.tasks, *(store.task for store in spec.stores)}):
            paths = task_paths(first.state_dir, first.application, task)
            locks.enter_context(locked_task(paths, first.lock_wait_s, rewriting=True))
        for store in spec.stores:
            locks.enter_context(Staging(store.paths, store.store.name).alone(store.lock_wait_s))
            for left in writes_of(store.state_dir, store.application, store.store.name).glob("point-*"):
                remove_tree(left)
        scratch = locks.enter_context(scratch_directory(default_scratch(first.state_dir)))
        try:
            yield PointRestore(spec, scratch, hooks, run)
        finally:
            for name in by_store(spec.stores):
                remove_tree(_stage_of(spec, name))
