"""Giving a store other rows, all at once: those of a DataFrame, whatever rows it had before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.staging import Staging
from statestore.rewrite.adoption import Adoption, AdoptionHooks, AdoptionSpec, NewRows
from statestore.rewrite.examination import require_rewritable
from statestore.rewrite.journal import Rewrite, require_no_other
from statestore.rewrite.row_stage import RowStage, remove_abandoned, require_rows
from statestore.rewrite.rows import form_of, require_single_keys
from statestore.statedir.swap import locked_task


class OverwriteSpec(NamedTuple):
    """Rows to write.

    Attributes
    ----------
    stores
        All partitions of the store, with the changelog that they have now.
    rows
        What they get.
    run_bytes
        Bound of a sorted run in memory.
    started_ms
        Now, ms since the epoch.
    """

    stores: Sequence[StorePartitionSpec]
    rows: RowStage
    run_bytes: int
    started_ms: int


@contextmanager
def overwrite(spec: OverwriteSpec, hooks: AdoptionHooks) -> Iterator[Adoption]:
    """Lock all tasks of a store; `Adoption.carry_out` then writes it.

    Raises
    ------
    LockedError
        If a task is in use.
    InputError
        If the store's rows are not the whole state, or there is no new row, or two have the same key, or versions of
        a key overlap.
    """
    require_rewritable(spec.stores, versions=True)
    require_rows(spec.rows)
    store = spec.stores[0]
    with ExitStack() as locks:
        for found in spec.stores:
            locks.enter_context(locked_task(found.paths, found.lock_wait_s))
            locks.enter_context(Staging(found.paths, found.store.name).alone(found.lock_wait_s))
        remove_abandoned(spec.rows.directory.parent, spec.rows.directory)
        for found in spec.stores:
            require_single_keys(spec.rows, found)
        rewrite = Rewrite("overwrite", store.application, store.store.name)
        require_no_other(store.state_dir, rewrite, [store.store.name])
        rows = form_of(store.store).ordered(spec.rows, spec.stores, spec.run_bytes, whole=True)
        new = NewRows(spec.stores, store.store, rows)
        yield Adoption(AdoptionSpec(rewrite, [new], spec.run_bytes, spec.started_ms), hooks)
