"""The stores of an application of Kafka Streams, as its state directory and topics tell: no definition is needed.

Names come from directories, and from changelog topics for stores that have no directory. The shape of one store
partition tells format, kind, and the changelog's name where it is the application's own input; retention follows from
the changelog's. What they do not tell is asked of the user, store by store. What they tell goes before what is said.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from statestore.changelog.topics import Topics
from statestore.discovery.changelogs import (
    COMPACTION_LAG,
    Installation,
    changelog_configs,
    changelog_spec,
    is_input,
    logged_stores,
)
from statestore.discovery.directories import stores_in, tasks_in
from statestore.discovery.hints import Hint
from statestore.discovery.log_headers import sampled_header
from statestore.discovery.shape import StoreShape, shape_of, telling_shape
from statestore.discovery.store import DiscoveredStore, Shape, StoreEvidence, discovered_store
from statestore.discovery.store_directory import LiveStore
from statestore.errors import (
    LockedError,
    StoreCorruptedError,
    TopicMismatchError,
    UnknownApplicationError,
    UnknownFormatError,
    UnknownStoreError,
    unreadable_is_damaged,
)
from statestore.model import TaskId, TopicPartition, changelog_topic
from statestore.partition.spec import GLOBAL_TASK, ChangelogSpec
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.lock import locked
from statestore.statedir.paths import TaskPaths


def discover(
    where: Installation,
    topics: Topics,
    application: str,
    hints: Mapping[str, Hint] | None = None,
    *,
    here_only: bool = False,
    lock_wait_s: float = 10.0,
) -> list[DiscoveredStore]:
    """Find the stores of an application, in order of their names.

    Parameters
    ----------
    hints
        By store: what the user says of it.
    lock_wait_s
        How long to wait, in all, for tasks that are in use.
    here_only
        Only tasks that have a directory here, because the application runs on other machines, too. Otherwise every
        partition of a store's changelog is a task that should be here.

    Raises
    ------
    UnknownApplicationError
        If there is neither a directory nor a changelog of that application.
    UnknownStoreError
        If something is said of a store that was not found.
    TopicMismatchError
        If a changelog that is said does not exist.
    """
    hints = hints or {}
    state_dir = where.state_dir.absolute()
    tasks = tasks_in(state_dir, application)
    stores, others = stores_in(state_dir, application)
    here: dict[str, list[LiveStore]] = {}
    for found in stores:
        here.setdefault(found.name, []).append(found)
    logged = logged_stores(where, topics, application)
    if not tasks and not logged:
        raise UnknownApplicationError(
            f"no application {application!r}: {state_dir} has no directory of that name with tasks in it, and there is "
            f"no topic {changelog_topic(application, '<store>')}"
        )
    _check_hints(application, hints, sorted({*here, *logged}), where)
    deadline = time.monotonic() + lock_wait_s
    names = sorted({*here, *logged, *hints})
    said = {name: hints.get(name, Hint()) for name in names}
    shapes = {name: _shape(here.get(name, ()), deadline, said[name].changelog) for name in names}
    topic_of = {name: said[name].changelog or _topic(application, name, shapes[name]) for name in names}
    described = topics.describe(sorted(set(topic_of.values())))
    for name, hint in hints.items():
        if hint.changelog is not None and hint.changelog not in described:
            raise TopicMismatchError(
                f"topic {hint.changelog}, said to be the changelog of store {name}, does not exist; correct --changelog"
            )
    configs = changelog_configs(topics, described)

    result = []
    for name in names:
        hint, partitions = said[name], here.get(name, [])
        if hint.engine == "in_memory":
            continue
        topic, config = described.get(topic_of[name]), configs.get(topic_of[name], {})
        changelog = None if topic is None else changelog_spec(topic, config)
        is_global = any(found.task == GLOBAL_TASK for found in partitions)
        # Of topics named otherwise, a store itself names an input only; a user may name one that nobody else writes.
        if (
            changelog is not None
            and changelog.topic != changelog_topic(application, name)
            and not is_global
            and (hint.changelog is None or is_input(where, application, changelog))
        ):
            changelog = changelog.model_copy(update={"end_group": application})
        header = None
        if changelog is not None and (is_global or changelog.end_group is not None):
            config = {**config, COMPACTION_LAG: "0"}  # others make the topic, and it tells nothing of the store
        elif changelog is not None and hint.description and shapes[name] is None:
            header = sampled_header(where, changelog.topic, topics)
        evidence = StoreEvidence(application, name, partitions, shapes[name], changelog, config, header)
        should_have = _tasks(partitions, hint, changelog, tasks if here_only else None)
        result.append(discovered_store(evidence, hint, should_have))
    left = [
        DiscoveredStore(application, other.path.name).with_problem("unknown", f"{other.path}: {other.reason}")
        for other in others
    ]
    return result + left


def _check_hints(application: str, hints: Mapping[str, Hint], known: Sequence[str], where: Installation) -> None:
    for name, hint in hints.items():
        if name not in known and hint.changelog is None:
            raise UnknownStoreError(
                f"no store {name!r} in application {application}: {where.state_dir} and the changelog topics have "
                f"{', '.join(known) or 'none'}; say --changelog {name}=TOPIC if its topic is named otherwise"
            )


def _shape(partitions: Sequence[LiveStore], deadline: float, changelog: str | None = None) -> Shape:
    """Look into the store's partitions until one tells kind, format and changelog."""

    def look(store: LiveStore) -> StoreShape:
        with locked(store.paths, max(deadline - time.monotonic(), 0)), unreadable_is_damaged():
            shape = shape_of(store)
        return shape._replace(offsets={**_legacy(store.paths, store.name, changelog), **shape.offsets})

    def tells(shape: StoreShape) -> bool:
        return bool(shape.offsets) and (shape.rows > 0 or not partitions[0].segmented)

    try:
        return telling_shape(partitions, look, tells) if partitions else None
    except StoreCorruptedError:
        return None  # verification tells the damage
    except (LockedError, UnknownFormatError) as error:
        return error


def _legacy(paths: TaskPaths, store: str, changelog: str | None) -> dict[TopicPartition, None]:
    """Changelog partitions of a store in the task's checkpoint file, which does not say whose an input's offset is."""
    try:
        with unreadable_is_damaged():
            known = legacy_offsets(paths)
    except StoreCorruptedError:
        return {}
    topics = {changelog_topic(paths.application, store), changelog}
    return dict.fromkeys(found for found in known if found.topic in topics)


def _topic(application: str, name: str, shape: Shape) -> str:
    """Name of a store's changelog: as the store's own offsets name it, or Kafka Streams' default."""
    default = changelog_topic(application, name)
    known = {partition.topic for partition in shape.offsets} if isinstance(shape, StoreShape) else set()
    return default if default in known or not known else min(known)


def _tasks(
    here: Sequence[LiveStore], hint: Hint, changelog: ChangelogSpec | None, present: Sequence[TaskId] | None
) -> list[TaskId]:
    """Tasks that have the store or should: one for each partition of its changelog, if they are of one subtopology."""
    tasks = {found.task for found in here}
    subtopologies = {task.subtopology for task in tasks}
    if not subtopologies and hint.subtopology is not None:
        subtopologies = {hint.subtopology}
    if len(subtopologies) == 1 and changelog is not None and GLOBAL_TASK not in tasks:
        subtopology = min(subtopologies)
        should = {TaskId(subtopology, partition) for partition in range(changelog.partitions or 0)}
        tasks |= should if present is None else should & set(present)
    return sorted(tasks)
