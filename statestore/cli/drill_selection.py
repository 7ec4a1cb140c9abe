"""Selects the stores of drills without a look at their state directory, as for a machine with an empty disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, choose
from statestore.errors import InputError, NotJudgedError, StateStoreError
from statestore.kafka.topics import Topics
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import DrillRow, Failure
from statestore.statedir.paths import known_stores_file
from statestore.statedir.scratch import scratch_directory


class StoresToDrill(NamedTuple):
    """The selected stores of drills.

    Attributes
    ----------
    stores
        With the state directory and the archive that were asked for.
    others
        Rows of stores that cannot be drilled: each is `never proven`, and says why.
    """

    chosen: Chosen
    stores: list[StorePartitionSpec]
    others: tuple[DrillRow, ...]


def stores_to_drill(asked: PartitionSelection, topics: Topics, scratch: Path) -> StoresToDrill:
    """Return the store partitions to drill; see `stores_to_restore`."""
    with _without_state_dir(asked, scratch) as elsewhere:
        chosen = choose(elsewhere, topics)
        chosen.say_left_out()
        stores = stores_to_restore(chosen, topics, elsewhere=True)
    live = {"archive": asked.archive, "state_dir": asked.where.state_dir.absolute()}
    return StoresToDrill(chosen, [store.model_copy(update=live) for store in stores], _others(chosen, stores))


@contextmanager
def _without_state_dir(asked: PartitionSelection, scratch: Path) -> Iterator[PartitionSelection]:
    """Ask for the same stores with an empty state directory, which has only the recorded descriptions of stores."""
    with scratch_directory(scratch) as directory:
        for application in asked.applications:
            described = known_stores_file(asked.where.state_dir, application)
            if described.is_file():
                copy = known_stores_file(directory, application)
                copy.parent.mkdir(parents=True)
                shutil.copyfile(described, copy)
        yield replace(asked, where=asked.where._replace(state_dir=directory))


def _others(chosen: Chosen, stores: Sequence[StorePartitionSpec]) -> tuple[DrillRow, ...]:
    """Return rows of all that was selected and cannot be drilled. Without them, the report would look complete."""
    rows = [_row(failed.application, failed.store, "-", failed.error) for failed in chosen.failures()]
    found = [*chosen.not_judged, *chosen.troubled("damaged"), *chosen.troubled("undetermined"), *chosen.acknowledged]
    rows += [
        _row(store.application, store.name, task, NotJudgedError(store.problem))
        for store in found
        for task in map(str, store.tasks or ["-"])
    ]
    drilled = {store.store_partition for store in stores}
    unknown = NotJudgedError("Kafka Streams fills it at startup, and it is not known to be a global table")
    rows += [
        _row(spec.application, spec.store.name, str(spec.task), unknown)
        for spec in chosen.specs
        if spec.store_partition not in drilled
    ]
    return tuple(rows)


def _row(application: str, store: str, task: str, error: StateStoreError | InputError) -> DrillRow:
    return DrillRow(
        application=application,
        store=store,
        task=task,
        standing="never proven",
        detail=str(error),
        failure=Failure.of(error),
    )
