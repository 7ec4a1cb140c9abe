"""The next step for a changelog that is missing or is another topic than the catalogue has."""

from __future__ import annotations

from pathlib import Path

from statestore.advice import Situation, Target, advice
from statestore.definitions.application import Subtopology
from statestore.definitions.store import StoreDefinition
from statestore.kafka.topics import Topic, Topics
from statestore.metastore.commands import Entry
from statestore.model import TaskId
from statestore.partition.advice import has_records, is_reseeding, of_lost_log, reseed_refused_of
from statestore.reports import Advice
from statestore.statedir.paths import task_paths
from statestore.statedir.record import read_record

#: A repair would give up rows that only the stores have, or it does not help.
KEEPS_STORES = frozenset(
    {Situation.CHANGELOG_RECREATED, Situation.CHANGELOG_MISSING}
    | {Situation.RESEED_INTERRUPTED, Situation.RECREATED_WITH_RECORDS, Situation.RECREATED_NO_RESEED}
)


def advise_on_changelog(
    state_dir: Path, topics: Topics, entry: Entry, topic: str, found: Topic | None, *, node_local: bool = False
) -> Advice | None:
    """Return the next step for an application whose changelog was deleted or recreated; None if it is no changelog.

    Parameters
    ----------
    state_dir
        Its stores are looked for here: they can be the last copy of their rows.
    found
        The topic with this name; None if it does not exist.
    node_local
        Stores on disks are copies, and the archive has the stores.
    """
    name = entry.definition.name
    for part in entry.definition.subtopologies:
        for store in part.stores:
            if store.changelog_of(name) == topic:
                situation = _situation(state_dir, topics, entry, part, store, found, node_local=node_local)
                return advice(situation, Target(name, store.name))
    return None


def _situation(
    state_dir: Path,
    topics: Topics,
    entry: Entry,
    part: Subtopology,
    store: StoreDefinition,
    found: Topic | None,
    *,
    node_local: bool,
) -> Situation:
    if is_reseeding(state_dir, entry.definition.name, store.name):
        return Situation.RESEED_INTERRUPTED
    present, recorded = _former_stores(state_dir, entry, part, store, found)
    if present and not node_local:
        return of_lost_log(
            topic_exists=found is not None,
            written=found is not None and has_records(topics, found.name, found.partitions),
            reseeds=reseed_refused_of(store) is None,
        )
    if found is None:
        return Situation.STORE_GONE_NO_TOPIC
    return Situation.STORE_AND_LOG_GONE if recorded else Situation.TOPIC_NOT_RECORDED


def _former_stores(
    state_dir: Path, entry: Entry, part: Subtopology, store: StoreDefinition, found: Topic | None
) -> tuple[bool, bool]:
    """Return whether stores of the former topic are here, and whether any of them was ever recorded."""
    present = recorded = False
    for number in range(entry.partitions[part.input_topic]):
        paths = task_paths(state_dir, entry.definition.name, TaskId(part.index, number))
        record = read_record(paths, store.name)
        if record is not None and (record.committed is None or (found and record.topic_id == found.topic_id)):
            continue  # nothing was ever in it, or it is of the present topic
        recorded |= record is not None
        present |= store.engine != "in_memory" and paths.live(store).exists()
    return present, recorded
