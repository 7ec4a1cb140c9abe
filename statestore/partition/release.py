"""Removing what restores have replaced, as a person decides: also what may be the only copy of something."""

from __future__ import annotations

from pydantic import Field

from statestore.errors import InputError, StateStoreError
from statestore.partition.quarantine import is_whole, quarantined, release, waits_for_a_person
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Failure, StorePartitionRow
from statestore.statedir.swap import locked_task


class ReleaseRow(StorePartitionRow):
    """Replaced stores of one store partition that were removed, or would be."""

    removed: tuple[str, ...] = Field(default=(), description="directories in quarantine")
    lost: tuple[str, ...] = Field(default=(), description="of each, what it may have been the only copy of; or nothing")
    failure: Failure | None = None

    @property
    def healthy(self) -> bool:
        """True if it was removed."""
        return self.failure is None


def release_replaced(store: StorePartitionSpec, *, dry_run: bool) -> ReleaseRow:
    """Lock the task and remove all replaced stores of a store partition; a failure of ours becomes part of the row.

    Parameters
    ----------
    dry_run
        Say what would be removed, and remove nothing.
    """
    row = ReleaseRow(application=store.application, store=store.store.name, task=str(store.task))
    try:
        with locked_task(store.paths, store.lock_wait_s):
            found = quarantined(store.paths, store.store.name)
            if found and not is_whole(store.paths, store.store):
                raise InputError(
                    f"{store.store_partition} is not intact, so the stores that it replaced are kept. Verify and "
                    f"restore it first, or put a replaced store back"
                )
            why = [waits_for_a_person(store.paths, store.store.name, path.name) or "nothing" for path in found]
            for path in [] if dry_run else found:
                release(store.paths, store.store.name, path.name)
            return row.model_copy(update={"removed": tuple(map(str, found)), "lost": tuple(why)})
    except (StateStoreError, OSError) as error:
        return row.model_copy(update={"failure": Failure.of(error)})
