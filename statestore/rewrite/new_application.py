"""The parts of an application that is created from another's state; creates and discards them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from statestore import kill_switch
from statestore.changelog.input_offsets import has_offsets
from statestore.discovery.directories import stores_in, tasks_in
from statestore.durable import remove_durably, remove_tree
from statestore.errors import InputError, InvalidStateError
from statestore.kafka.groups import committed_offsets
from statestore.kafka.topics import Topic, Topics
from statestore.model import TaskId, input_offsets_topic, repartition_topic
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.task_cleanup import tasks_with_own_files
from statestore.rewrite.changelog_writing import surplus
from statestore.rewrite.journal import RewriteJournal
from statestore.statedir.paths import TaskPaths, task_paths
from statestore.statedir.swap import locked_task


class NewApplication(NamedTuple):
    """An application that is to be made.

    Attributes
    ----------
    stores
        Its store partitions, by store.
    recorded
        Ids of its changelogs in the catalogue, where they are empty so far; None: it is in none.
    """

    name: str
    stores: Mapping[str, Sequence[StorePartitionSpec]]
    recorded: Mapping[str, str] | None

    @property
    def first(self) -> StorePartitionSpec:
        """Any of its store partitions."""
        return next(iter(self.stores.values()))[0]

    @property
    def offsets_topics(self) -> list[str]:
        """Names that its topics of input offsets can have."""
        repartitions = [repartition_topic(self.name, store) for store in self.stores]
        return [input_offsets_topic(self.name, topic) for topic in (None, *repartitions)]

    @property
    def changelogs(self) -> dict[str, Sequence[StorePartitionSpec]]:
        """Store partitions by the name of their changelog."""
        return {of[0].partition.topic: of for of in self.stores.values()}


def require_unused(topics: Topics, new: NewApplication, journal: RewriteJournal | None) -> None:
    """Refuse an application that has something already, but for what an interrupted rewrite has left.

    Raises
    ------
    InputError
        Naming what it has.
    """
    store, name = new.first, new.name
    topics.require_no_members(name)
    if journal is not None and journal.whole:
        return
    known = {} if journal is None else journal.topics
    if new.recorded is not None and (missing := sorted(set(new.changelogs) - set(new.recorded))):
        raise InputError(
            f"the catalogue has no id of {', '.join(missing)} yet: apply the definition of {name} once more, and run "
            "again. Nothing was changed"
        )
    found = topics.describe(new.changelogs)
    for topic in found.values():
        made = known.get(topic.name)
        if made is not None and made.topic_id == topic.topic_id:
            require_no_more(topics, new.name, topic, made.records)
        elif new.recorded is None and (made is None or made.topic_id is not None):
            raise InputError(
                f"topic {topic.name} exists: application {name} has state already. Give the new application another "
                "name, or delete what there is of that one. Nothing was changed"
            )
        elif surplus(topics, topic, ()) is not None:
            raise InputError(
                f"topic {topic.name} has records: application {name} has state already. Give the new application "
                "another name. Nothing was changed"
            )
    if offsets := committed_offsets(store.cluster, name):
        where, offset = min(offsets.items())
        raise InputError(
            f"group {name} has committed offsets, such as {offset.next_offset} for {where}: the application has run "
            "before. Give the new application another name, or delete the group. Nothing was changed"
        )
    for topic in topics.describe(new.offsets_topics).values():
        if has_offsets(topics, topic):
            raise InputError(
                f"topic {topic.name} has records: application {name} has run before. Give the new application another "
                "name, or delete the topic. Nothing was changed"
            )
    if journal is None and (there := _stores_here(new)):
        raise InputError(
            f"application {name} has stores already, such as {there[0]}. Give the new application another name. "
            "Nothing was changed"
        )


def require_no_more(topics: Topics, name: str, topic: Topic, records: Sequence[int]) -> None:
    """Make sure that a changelog has no more records than a rewrite writes to it, by partition, and has lost none.

    Raises
    ------
    InvalidStateError
        If somebody else has written to it.
    """
    if (more := surplus(topics, topic, records)) is not None:
        raise InvalidStateError(
            f"{more.partition} was left by an interrupted rewrite, which writes {more.records} records, and has the "
            f"offsets {more.log.start} to {more.log.high_watermark}: somebody has started {name} since. Stop it, "
            "delete its changelogs and its group, and run again"
        )


def _stores_here(new: NewApplication) -> list[str]:
    state_dir = new.first.state_dir
    stores, others = stores_in(state_dir, new.name)
    recorded = [
        f"{paths.own_dir}: {name}"
        for paths in _tasks(new)
        for name in paths.recorded_stores()
        if paths.own_dir.exists()
    ]
    return [*(str(found.directory) for found in stores), *(str(found.path) for found in others), *recorded]


def _tasks(new: NewApplication) -> list[TaskPaths]:
    """Tasks of which there is anything here."""
    state_dir = new.first.state_dir
    own = {found for found in tasks_with_own_files(state_dir) if found.application == new.name}
    return sorted(own | {task_paths(state_dir, new.name, TaskId(*task)) for task in tasks_in(state_dir, new.name)})


def discard(topics: Topics, new: NewApplication, journal: RewriteJournal) -> None:
    """Remove what an unfinished rewrite has made: its topics, and all that is in the directories of the new tasks."""
    for paths in _tasks(new):
        with locked_task(paths, new.first.lock_wait_s, rewriting=True):
            remove_tree(paths.task_dir)
            for path in paths.own_dir.iterdir():
                if path.is_dir():
                    remove_tree(path)
                elif path.suffix == ".json":
                    remove_durably(path)
    kill_switch.reached("rewrite, directories discarded")
    found = topics.describe(journal.topics)
    for name, topic in found.items():
        if journal.topics[name].topic_id in (topic.topic_id, None):
            topics.delete(name)
            kill_switch.reached("rewrite, topic discarded")
