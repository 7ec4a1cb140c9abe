"""Giving stores the rows that a function of the user makes of theirs, and perhaps another format.

    locks of all tasks -> all that speaks against it -> each row through the function, into files -> as an overwrite of
    all these stores at once (`adoption.py`)

The function sees each row once. Until the catalogue names the new changelogs, nothing has changed but those files. They
go if it fails on a row, or gives one that the store cannot have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from statestore import kill_switch
from statestore.definitions.application import require_usable_by_tasks
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_tree
from statestore.errors import InputError, InvalidStateError
from statestore.model import StoreFormat
from statestore.partition.grouping import by_store
from statestore.partition.inspection import inspect
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.disk_space import free_bytes
from statestore.recovery.runner import Runner
from statestore.recovery.staging import Staging
from statestore.rewrite.adoption import Adoption, AdoptionHooks, AdoptionSpec, NewRows
from statestore.rewrite.examination import require_caught_up, require_rewritable
from statestore.rewrite.group_offsets import Groups, require_drained
from statestore.rewrite.journal import Rewrite, require_no_other
from statestore.rewrite.row_stage import ROW_SCHEMA, AttemptWriter, RowStage, StagedAttempt, writes_of
from statestore.rewrite.rows import stored_rows, survey
from statestore.rewrite.staged_stores import Rewritten, require_room
from statestore.rewrite.user_rows import RowFunction
from statestore.statedir.swap import locked_task

#: Rate that durations are estimated with: rows are written, read from the topics, and checked.
_ROWS_PER_S = 125_000
#: Rows that are handed on at a time.
_BATCH = 8_192


class TransformSpec(NamedTuple):
    """Requested transform.

    Attributes
    ----------
    stores
        All partitions of the stores, of one application.
    format
        That they get; None: they keep theirs.
    function
        `module:function`.
    as_bytes
        The function gets and returns bytes.
    inputs
        Topics that the application reads.
    started_ms
        Now, ms since the epoch.
    """

    stores: Sequence[StorePartitionSpec]
    format: StoreFormat | None
    function: str
    as_bytes: bool
    inputs: Sequence[str]
    run_bytes: int
    started_ms: int


class TransformPart(NamedTuple):
    """A store partition whose rows go through the function; its task is locked."""

    store: StorePartitionSpec
    after: StoreDefinition
    partitions: int
    function: str
    as_bytes: bool
    stage: Path


class Transformed(BaseModel):
    """Result for the rows of a store partition.

    Attributes
    ----------
    directory
        Of the files with the new rows; None: there are none.
    before, rows
        How many there were, and are.
    bytes
        Of keys and values of the new ones.
    changed, deleted, added
        Rows that are others now, rows of which none came, and rows that came beside the first of one.
    expired
        Rows past the retention, which are left out.
    """

    model_config = ConfigDict(frozen=True)

    directory: str | None = None
    before: int = 0
    rows: int = 0
    bytes: int = 0
    changed: int = 0
    deleted: int = 0
    added: int = 0
    expired: int = 0


class TransformPlan(NamedTuple):
    """Plan of a transform.

    Attributes
    ----------
    parts
        What becomes of each store partition; empty if an earlier attempt is finished.
    finishes
        The catalogue has the changelogs of an earlier attempt: stores are replaced, and no row is changed.
    disk_needed, disk_free
        Bytes below the state directory.
    """

    function: str
    parts: Sequence[tuple[StorePartitionSpec, Transformed]]
    formats: Mapping[str, tuple[StoreFormat, StoreFormat]]
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


class Transform:
    """A transform whose tasks are locked, and whose rows are in files; made by `transform`."""

    def __init__(self, spec: TransformSpec, hooks: AdoptionHooks, run: Runner) -> None:
        self._spec, self._run = spec, run
        self._first = first = spec.stores[0]
        self._topics = first.cluster.topics
        self._by_store = by_store(spec.stores)
        self._after = {name: self._after_of(stores[0]) for name, stores in self._by_store.items()}
        rewrite = Rewrite("transform", first.application)
        require_no_other(first.state_dir, rewrite, self._by_store)
        hooks = hooks._replace(judge=self._judged_by(hooks))
        # Of an attempt that is only finished, no rows are asked for.
        empty = [
            NewRows(of, self._after[name], RowStage(_stage_of(self._spec, name), []))
            for name, of in self._by_store.items()
        ]
        self._adoption = Adoption(AdoptionSpec(rewrite, empty, spec.run_bytes, spec.started_ms), hooks)
        former = self._adoption.former()
        if former is not None and (left := {new.store for new in former.topics.values()} ^ self._by_store.keys()):
            raise InvalidStateError(
                f"a transform of {', '.join(sorted(new.store for new in former.topics.values()))} was interrupted when "
                f"the catalogue had its changelogs: run it for these stores first; {', '.join(sorted(left))} differs"
            )
        found: list[Transformed] = []
        if former is None:
            self._adoption.finish_former()  # it throws away what would keep other rewrites from beginning
            self._require_ready()
            found = self._transformed()
            new = [NewRows(of, self._after[name], self._staged(name, of, found)) for name, of in self._by_store.items()]
            self._adoption = Adoption(AdoptionSpec(rewrite, new, spec.run_bytes, spec.started_ms), hooks)
        formats = {name: (of[0].store.format, self._after[name].format) for name, of in self._by_store.items()}
        self.plan = TransformPlan(
            function=spec.function,
            parts=[*zip(self._stores, found, strict=True)] if found else [],
            formats=formats,
            finishes=former is not None,
            disk_needed=self._adoption.disk_needed,
            disk_free=free_bytes(first.state_dir),
        )

    @property
    def _stores(self) -> list[StorePartitionSpec]:
        return [store for stores in self._by_store.values() for store in stores]

    def _after_of(self, store: StorePartitionSpec) -> StoreDefinition:
        before = store.store
        try:
            after = StoreDefinition.model_validate(
                {**before.model_dump(), "format": self._spec.format or before.format}
            )
            require_usable_by_tasks(after)
        except ValueError as error:
            raise InputError(
                f"{store.application}/{before.name} cannot have format {self._spec.format}: {error}"
            ) from error
        return after

    def _judged_by(self, hooks: AdoptionHooks) -> Callable[[Sequence[StorePartitionSpec]], None]:
        def judge(stores: Sequence[StorePartitionSpec]) -> None:
            hooks.judge(stores)
            self._require_ready()  # whoever has processed something meanwhile, elsewhere, has changed the old stores

        return judge

    # -- what speaks against it ---------------------------------------------------------------------------------------

    def _require_ready(self) -> None:
        """Make sure that the stores have all of the input, and that nobody works on them."""
        first = self._first
        self._topics.require_no_members(first.application)
        for store in self._stores:
            require_caught_up(store, "Rows are only given to the function from such stores")
        groups = Groups.of_one(first.cluster, first.application)
        require_drained(self._topics, groups, set(self._spec.inputs))

    # -- the rows -----------------------------------------------------------------------------------------------------

    def _transformed(self) -> list[Transformed]:
        first = self._first
        size = sum(path.stat().st_size for store in self._stores for path in store.live.rglob("*") if path.is_file())
        require_room(
            f"giving rows of {first.application} to a function", first.state_dir, size, free_bytes(first.state_dir)
        )
        parts = [
            TransformPart(
                store,
                self._after[name],
                len(stores),
                self._spec.function,
                self._spec.as_bytes,
                _stage_of(self._spec, name),
            )
            for name, stores in self._by_store.items()
            for store in stores
        ]
        found = self._run(parts, transform_part, Transformed)
        kill_switch.reached("rewrite, rows staged")
        return found

    def _staged(self, name: str, stores: Sequence[StorePartitionSpec], found: Sequence[Transformed]) -> RowStage:
        attempts = [
            StagedAttempt(one.directory, {store.task.partition: one.rows}, {store.task.partition: one.bytes})
            for store, one in zip(self._stores, found, strict=True)
            if store.store.name == name and one.directory is not None
        ]
        return RowStage(_stage_of(self._spec, name), attempts)

    def carry_out(self) -> list[Rewritten]:
        """Give the stores the new rows; or finish what an earlier attempt began, and no more.

        Raises
        ------
        InputError
            If something speaks against it by now, or a suite does not pass. Nothing was changed.
        DiskSpaceError
            If the new stores will not fit beside the live ones.
        """
        if self.plan.finishes:
            return self._adoption.finish_former() or []
        self._require_ready()  # whoever was asked may have taken hours
        return self._adoption.carry_out()


def transform_part(part: TransformPart) -> Transformed:
    """Give each row of a store partition to the function, and write what comes to files.

    Raises
    ------
    InputError
        If the store cannot be used, the function fails on a row, or rows come that the store cannot have.
    StoreCorruptedError
        If a block of the store is damaged.
    """
    store, name = part.store, str(part.store.store_partition)
    function = RowFunction(part.function, store.store, part.after, as_bytes=part.as_bytes)
    seen = inspect(store, contents=True)
    if seen.trouble is not None:
        raise InputError(f"{name} is {seen.trouble.status}: {seen.trouble.detail}. Nothing was changed")
    if not seen.present:
        return Transformed()
    contents = survey(store, None)
    counts = {"before": contents.rows, "expired": contents.expired, "changed": 0, "deleted": 0, "added": 0}
    number = store.task.partition
    with AttemptWriter(part.stage, part.partitions) as attempt:
        try:
            for _, batch in stored_rows(store, contents.first_live):
                for at in range(0, batch.num_rows, _BATCH):
                    _give(function, batch.slice(at, _BATCH), attempt, number, counts)
        except InputError as error:
            raise InputError(f"{name}: {error}. Nothing was changed") from error
    staged = attempt.staged
    if (twice := RowStage(part.stage, [staged]).duplicate(number)) is not None:
        keys, key = twice
        raise InputError(
            f"{name}: the function {part.function} gives {keys} keys more than once, such as {key!r:.120}. Expected "
            "each once. Nothing was changed"
        )
    return Transformed(
        directory=staged.directory, rows=staged.rows.get(number, 0), bytes=staged.bytes.get(number, 0), **counts
    )


def _give(
    function: RowFunction, batch: pa.RecordBatch, attempt: AttemptWriter, number: int, counts: dict[str, int]
) -> None:
    """Give rows to the function, and write what comes."""
    made = []
    for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
        rows = function(key, value)
        counts["deleted"] += not rows
        counts["added"] += max(len(rows) - 1, 0)
        counts["changed"] += bool(rows) and rows[0][1:] != (key, value)
        made += rows
    if not made:
        return
    users_keys, keys, values = (pa.array(column, pa.binary()) for column in zip(*made, strict=True))
    places = attempt.add(users_keys, pa.RecordBatch.from_arrays([keys, values], schema=ROW_SCHEMA))
    wrong = np.flatnonzero(places.to_numpy(zero_copy_only=False) != number)
    if len(wrong):
        at = int(wrong[0])
        raise InputError(
            f"a row comes with key {made[at].users_key!r:.120}, which Kafka's partitioner puts into partition "
            f"{places[at]}, and its row was in {number}. Expected keys of the same partition: a task sees no other"
        )


def _stage_of(spec: TransformSpec, store: str) -> Path:
    first = spec.stores[0]
    return writes_of(first.state_dir, first.application, store) / f"transform-{spec.started_ms}"


@contextmanager
def transform(spec: TransformSpec, hooks: AdoptionHooks, run: Runner) -> Iterator[Transform]:
    """Lock all tasks of stores, and give their rows to the function; `Transform.carry_out` then replaces them.

    Parameters
    ----------
    run
        Does the pieces of work.

    Raises
    ------
    LockedError
        If a task is in use.
    InputError
        If something speaks against it, or the function fails on a row. Nothing was changed.
    """
    for stores in by_store(spec.stores).values():
        require_rewritable(stores)
    with ExitStack() as locks:
        for paths, store in {store.paths: store for store in spec.stores}.items():
            locks.enter_context(locked_task(paths, store.lock_wait_s))
        for store in spec.stores:
            locks.enter_context(Staging(store.paths, store.store.name).alone(store.lock_wait_s))
            for left in writes_of(store.state_dir, store.application, store.store.name).glob("transform-*"):
                remove_tree(left)
        try:
            yield Transform(spec, hooks, run)
        finally:
            for name in by_store(spec.stores):
                remove_tree(_stage_of(spec, name))
