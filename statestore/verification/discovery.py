"""The stores of an application of Kafka Streams, as its state directory and topics tell: no definition is needed.

Names come from directories, and from changelog topics for stores that have no directory. A look into one store
partition tells format, kind, and the changelog's name where it is the application's own input; retention follows from
the changelog's. What they do not tell is asked of the user, store by store. What they tell goes before what is said.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from statestore.changelog.topics import Topics
from statestore.errors import (
    LockedError,
    StoreCorruptedError,
    TopicMismatchError,
    UnknownApplicationError,
    UnknownFormatError,
    UnknownStoreError,
    unreadable_is_damaged,
)
from statestore.model import TaskId, TopicPartition, changelog_topic, check_name
from statestore.partition.spec import GLOBAL_TASK, ChangelogSpec, StorePartitionSpec
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.lock import locked
from statestore.statedir.paths import TaskPaths
from statestore.verification.directories import StoreHere, applications_in, stores_in, tasks_in
from statestore.verification.found import COMPACTION_LAG, FoundStore, Seen, found_store
from statestore.verification.hints import Hint
from statestore.verification.log_headers import sampled_header
from statestore.verification.look import Look, look_at_key_value, look_at_segments
from statestore.verification.targets import Installation, changelog_spec, is_input

#: Kafka Streams keeps what it suppresses in memory, and logs it.
_IN_MEMORY = "KTABLE-SUPPRESS-STATE-STORE-"


def discover(
    where: Installation,
    topics: Topics,
    application: str,
    hints: Mapping[str, Hint] | None = None,
    *,
    here_only: bool = False,
    lock_wait_s: float = 10.0,
) -> list[FoundStore]:
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
    here: dict[str, list[StoreHere]] = {}
    for found in stores:
        here.setdefault(found.name, []).append(found)
    logged = _logged_stores(where, topics, application)
    if not tasks and not logged:
        raise UnknownApplicationError(
            f"no application {application!r}: {state_dir} has no directory of that name with tasks in it, and there is "
            f"no topic {changelog_topic(application, '<store>')}"
        )
    _check_hints(application, hints, sorted({*here, *logged}), where)
    deadline = time.monotonic() + lock_wait_s
    looks = {
        name: _look(state_dir, application, found, deadline, hints.get(name, Hint()).changelog)
        for name, found in here.items()
    }
    topic_of = {name: _topic(application, name, looks.get(name), hints.get(name)) for name in {*here, *logged, *hints}}
    described = topics.describe(sorted(set(topic_of.values())))
    for name, hint in hints.items():
        if hint.changelog is not None and hint.changelog not in described:
            raise TopicMismatchError(
                f"topic {hint.changelog}, said to be the changelog of store {name}, does not exist; correct --changelog"
            )
    configs = _without_defaults(topics, topics.topic_configs(described))

    result = []
    for name in sorted(topic_of):
        hint = hints.get(name, Hint())
        if hint.engine == "in_memory":
            continue
        partitions = here.get(name, [])
        topic = described.get(topic_of[name])
        changelog = None if topic is None else changelog_spec(topic, configs[topic.name])
        is_global = any(found.task == GLOBAL_TASK for found in partitions)
        # Of topics named otherwise, a store itself names an input only; a user may name one that nobody else writes.
        if (
            changelog is not None
            and changelog.topic != changelog_topic(application, name)
            and not is_global
            and (hint.changelog is None or is_input(where, application, changelog))
        ):
            changelog = changelog.model_copy(update={"end_group": application})
        config = configs.get(topic_of[name], {})
        header = None
        if changelog is not None and (is_global or changelog.end_group is not None):
            config = {**config, COMPACTION_LAG: "0"}  # others make the topic, and it tells nothing of the store
        elif changelog is not None and hint.description and looks.get(name) is None:
            header = sampled_header(where, changelog.topic, topics)
        seen = Seen(application, name, partitions, looks.get(name), changelog, config, header)
        result.append(found_store(seen, hint, _tasks(partitions, hint, changelog, tasks if here_only else None)))
    left = [
        FoundStore(other.path.name, None, None, (), frozenset(), f"{other.path}: {other.reason}", "unknown")
        for other in others
    ]
    return result + left


def found_specs(
    where: Installation, application: str, stores: Sequence[FoundStore], *, exactly_once: bool = True
) -> list[StorePartitionSpec]:
    """One spec for each store partition of the stores that have no problem."""
    return [
        StorePartitionSpec(
            application=application,
            task=task,
            store=store.definition,
            changelog=store.changelog,
            bootstrap_servers=where.bootstrap_servers,
            state_dir=where.state_dir.absolute(),
            kafka_timeout_s=where.kafka_timeout_s,
            exactly_once=exactly_once,
            owned=False,
            described=store.described,
        )
        for store in stores
        if store.definition is not None
        for task in store.tasks
    ]


def _without_defaults(topics: Topics, configs: Mapping[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Leave out what brokers say for all topics where only what was said for one tells something of its store."""
    asked = [name for name, config in configs.items() if config.get(COMPACTION_LAG, "0") != "0"]
    own = topics.own_settings(asked)
    default = [name for name in asked if COMPACTION_LAG not in own[name]]
    return {name: {**config, COMPACTION_LAG: "0"} if name in default else config for name, config in configs.items()}


def _logged_stores(where: Installation, topics: Topics, application: str) -> list[str]:
    """Stores that have a changelog topic named after them."""
    prefix, suffix = changelog_topic(application, "|").split("|")
    # `a-b-c-changelog` is that of store c of application a-b, if there is one, and not that of store b-c of a.
    others = tuple(f"{other}-" for other in applications_in(where.state_dir) if other.startswith(prefix))
    stores = []
    for name in topics.names():
        store = name.removeprefix(prefix).removesuffix(suffix)
        if name == f"{prefix}{store}{suffix}" and not name.startswith(others) and not store.startswith(_IN_MEMORY):
            try:
                stores.append(check_name(store))
            except ValueError:
                continue
    return stores


def _check_hints(application: str, hints: Mapping[str, Hint], known: Sequence[str], where: Installation) -> None:
    for name, hint in hints.items():
        if name not in known and hint.changelog is None:
            raise UnknownStoreError(
                f"no store {name!r} in application {application}: {where.state_dir} and the changelog topics have "
                f"{', '.join(known) or 'none'}; say --changelog {name}=TOPIC if its topic is named otherwise"
            )


def _look(
    state_dir: Path, application: str, partitions: Sequence[StoreHere], deadline: float, changelog: str | None = None
) -> Look | str | LockedError | None:
    """Look into the store's partitions until one tells enough; see `Seen`."""
    locked_out: LockedError | None = None
    best: Look | None = None
    for found in partitions:
        paths = TaskPaths(state_dir, application, found.task)
        try:
            with locked(paths, max(deadline - time.monotonic(), 0)), unreadable_is_damaged():
                look = look_at_segments(found.directory) if found.segmented else look_at_key_value(found.directory)
                look = look._replace(offsets=look.offsets | _legacy(paths, found.name, changelog))
        except LockedError as error:
            locked_out = error
        except UnknownFormatError as error:
            return str(error)
        except StoreCorruptedError:
            continue  # another task's tells as much, and verification tells this one's damage
        else:
            if look.offsets and (look.rows or not found.segmented):
                return look
            best = look if best is None else max(best, look, key=_worth)
    return locked_out if best is None else best


def _worth(look: Look) -> tuple[bool, bool]:
    """What a look tells, for comparison: rows tell the kind of a windowed store, offsets tell its changelog."""
    return look.rows > 0, bool(look.offsets)


def _legacy(paths: TaskPaths, store: str, changelog: str | None) -> frozenset[TopicPartition]:
    """Changelog partitions of a store in the task's checkpoint file, which does not say whose an input's offset is."""
    try:
        with unreadable_is_damaged():
            known = legacy_offsets(paths)
    except StoreCorruptedError:
        return frozenset()
    topics = {changelog_topic(paths.application, store), changelog}
    return frozenset(found for found in known if found.topic in topics)


def _topic(application: str, name: str, look: Look | str | LockedError | None, hint: Hint | None) -> str:
    """Name of a store's changelog: as said, or as the store's own offsets name it, or Kafka Streams' default."""
    default = changelog_topic(application, name)
    if hint is not None and hint.changelog is not None:
        return hint.changelog
    known = {partition.topic for partition in look.offsets} if isinstance(look, Look) else set()
    return default if default in known or not known else min(known)


def _tasks(
    here: Sequence[StoreHere], hint: Hint, changelog: ChangelogSpec | None, present: Sequence[TaskId] | None
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
