"""The stores of an application of Kafka Streams, as its state directory and topics tell: no definition is needed.

Names come from directories, and from changelog topics for stores that have no directory. The shape of one store
partition tells format, kind, and the changelog's name where it is the application's own input; retention follows from
the changelog's. Where no directory is left, what was found while there was one tells it (known_store.py). What they do
not tell is asked of the user, store by store. What they tell goes before what is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal, TypedDict

from statestore.discovery.changelogs import (
    Installation,
    changelog_configs,
    changelog_spec,
    is_input,
    log_ranges,
    logged_stores,
)
from statestore.discovery.directories import stores_in, tasks_in
from statestore.discovery.hints import Hint
from statestore.discovery.known_store import KnownStore
from statestore.discovery.log_headers import sampled_header
from statestore.discovery.partitions import discovered_specs
from statestore.discovery.places import Place, Placed, Use, placed, use_of
from statestore.discovery.shape import StoreShape, shape_of, telling_shape
from statestore.discovery.store import DiscoveredStore, Shape, StoreEvidence, acknowledgement, discovered_store
from statestore.discovery.store_directory import LiveStore
from statestore.discovery.topic_owners import OtherOwner, other_owners
from statestore.errors import (
    InputError,
    InputOffsetError,
    LockedError,
    StateStoreError,
    StoreCorruptedError,
    TopicMismatchError,
    UnknownApplicationError,
    UnknownFormatError,
    UnknownStoreError,
    unreadable_is_damaged,
)
from statestore.kafka.streams_group import streams_group
from statestore.kafka.topics import Topics
from statestore.kinds.versioned import COMPACTION_LAG
from statestore.model import TaskId, TopicPartition, changelog_topic, repartition_topic
from statestore.partition.spec import GLOBAL_TASK, ChangelogSpec
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.lock import locked, require_made
from statestore.statedir.paths import TaskPaths

#: When stores are looked into without their tasks' locks.
WithoutLock = Literal["never", "if locked", "always"]
Guard = Callable[[TaskPaths], AbstractContextManager[None]]


def discover(
    where: Installation,
    topics: Topics,
    application: str,
    hints: Mapping[str, Hint] | None = None,
    *,
    known: Mapping[str, KnownStore] | None = None,
    named: Collection[str] = (),
    defined: Mapping[str, str] | None = None,
    here_only: bool = False,
    lock_wait_s: float = 10.0,
    without_lock: WithoutLock = "never",
) -> list[DiscoveredStore]:
    """Find the stores of an application, in order of their names.

    Parameters
    ----------
    hints
        By store: what the user says of it.
    known
        By store: what was found out about it before.
    named
        Stores that the user asks for by name: their topics are this application's.
    defined
        By changelog topic: the application whose definition names it.
    lock_wait_s
        How long to wait, in all, for tasks that are in use.
    without_lock
        When to look into stores without their tasks' locks, through links to their files: `if locked` by another
        program, without waiting for it, or `always`.
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
    for store in stores:
        here.setdefault(store.name, []).append(store)
    logged = logged_stores(topics, application)
    before = known or {}
    known = _still_true(topics, before)
    unproven = [name for name in logged if name not in {*here, *known, *hints, *named}]
    owners = other_owners(where, topics, application, unproven, defined or {})
    logged = [name for name in logged if name not in owners]
    doubtful = any(not owner.certain for owner in owners.values())
    if not (tasks or logged or known or doubtful or any(hint.changelog for hint in hints.values())):
        raise UnknownApplicationError(
            f"no application {application!r}: {state_dir} has no directory of that name with tasks in it, and there is "
            f"no topic {changelog_topic(application, '<store>')}; if its input is a store's changelog and all else is "
            "gone, add --changelog STORE=TOPIC"
        )
    _check_hints(application, hints, sorted({*here, *logged, *known}), where)
    guard = partial(_guarded, time.monotonic() + lock_wait_s, without_lock)
    names = sorted({*here, *logged, *hints, *known})
    groups = _subtopologies(where, application)
    places, in_use = {}, {}
    for name in names:
        try:
            log = _changelog(hints.get(name), before.get(name)) or changelog_topic(application, name)
            places[name] = placed(
                here.get(name, ()),
                hints.get(name, Hint()),
                groups.get(log),
                before.get(name),
                partial(_use, topic=log, guard=guard),
                same_log=name not in before or name in known,
                **_supporting(topics, application, name, log, here.get(name, ())),
            )
        except LockedError as error:
            places[name], in_use[name] = Placed(here.get(name, ())), error
    here = {name: [*found.live] for name, found in places.items()}
    shapes = {
        name: in_use.get(name) or _shape(here[name], guard, _changelog(hints.get(name), known.get(name)))
        for name in names
    }
    said = {name: _completed(hints.get(name, Hint()), known.get(name), shapes[name]) for name in names}
    for name, found in places.items():
        if found.subtopology is not None and hints.get(name, Hint()).subtopology is None:
            said[name] = said[name].model_copy(update={"subtopology": found.subtopology})
    topic_of = {name: said[name].changelog or _topic(application, name, shapes[name]) for name in names}
    unplaced = {name for name in names if not here.get(name) and said[name].subtopology is None}
    for name in unplaced:
        said[name] = said[name].model_copy(update={"subtopology": groups.get(topic_of[name])})
    described = topics.describe(sorted(set(topic_of.values())))
    for name, hint in hints.items():
        if hint.changelog is not None and hint.changelog not in described:
            raise TopicMismatchError(
                f"topic {hint.changelog}, said to be the changelog of store {name}, does not exist; correct --changelog"
            )
    configs = changelog_configs(topics, described)

    result = []
    for name in names:
        hint, partitions = said[name], here[name]
        result += _not_live(application, name, places[name])
        if places[name].problem:
            continue
        if hint.engine == "in_memory":
            continue
        by_user = hints.get(name, Hint())
        topic, config = described.get(topic_of[name]), configs.get(topic_of[name], {})
        changelog = None if topic is None else changelog_spec(topic, config)
        is_global = any(found.task == GLOBAL_TASK for found in partitions)
        if partitions and not is_global and by_user.global_kind is not None:
            raise InputError(f"{partitions[0].directory} is that of a task's store, not of a global one; correct it")
        is_global = is_global or (not partitions and _is_global(hint, known.get(name)))
        # Of topics named otherwise, a store itself names an input only; a user may name one that nobody else writes.
        if (
            changelog is not None
            and changelog.topic != changelog_topic(application, name)
            and not is_global
            and (hint.changelog is None or is_input(where, application, changelog))
        ):
            changelog = changelog.model_copy(update={"end_group": application})
        header = None
        lost = bool(hint.description) and shapes[name] is None and not is_global
        if changelog is not None and (is_global or (changelog.end_group is not None and not lost)):
            config = {**config, COMPACTION_LAG: "0"}  # others make the topic, and it tells nothing of the store
        if changelog is not None and not is_global and (lost or not partitions):
            header = sampled_header(where, changelog.topic, topics)
        evidence = StoreEvidence(
            application, name, partitions, shapes[name], changelog, config, header, known.get(name), by_user
        )
        should_have = [GLOBAL_TASK] if is_global else _tasks(partitions, hint, changelog, tasks if here_only else None)
        made = replace(discovered_store(evidence, hint, should_have), stale=places[name].offsets)
        result.append(_with_end(made, where, topics))
    left = [
        DiscoveredStore(application, other.path.name).with_problem("unknown", f"{other.path}: {other.reason}")
        for other in others
    ]
    return result + left + [_of_another(application, name, owner) for name, owner in owners.items()]


def _of_another(application: str, name: str, owner: OtherOwner) -> DiscoveredStore:
    """Return a store whose changelog topic belongs to another application, or may do so."""
    store, topic = DiscoveredStore(application, name), changelog_topic(application, name)
    if owner.certain:
        return store.with_problem(
            "foreign", f"topic {topic} belongs to application {owner.application}: {owner.evidence}"
        )
    return store.with_problem(
        "needed",
        f"topic {topic} belongs to this application or to {owner.application}: {owner.evidence}, and nothing shows "
        f"whose topic it is. If it belongs to this application, describe its store: --store {name}:kind=... If not: "
        f"{acknowledgement(application, name)}",
    )


@contextmanager
def _guarded(deadline: float, without_lock: WithoutLock, paths: TaskPaths) -> Iterator[None]:
    """Hold a task's lock for the block, unless its stores may be read without it."""
    with ExitStack() as held:
        wait_s = max(deadline - time.monotonic(), 0) if without_lock == "never" else 0
        if without_lock == "always":
            require_made(paths.state_dir, paths.application)
        else:
            try:
                held.enter_context(locked(paths, wait_s, reading=True))
            except LockedError:
                if without_lock == "never":
                    raise
                require_made(paths.state_dir, paths.application)
        yield


def _use(store: LiveStore, topic: str, guard: Guard) -> Use:
    """Look at the use of a directory under its task's lock."""
    with guard(store.paths):
        return use_of(store, topic)


class _Supporting(TypedDict):
    policy: str
    repartitioned: bool


def _supporting(topics: Topics, application: str, name: str, log: str, here: Sequence[LiveStore]) -> _Supporting:
    """Return what topics show of a store that has directories in several places, as arguments of `placed`."""
    if len({Place.of(store) for store in here}) < 2:
        return {"policy": "", "repartitioned": False}
    repartition = repartition_topic(application, name)
    found = topics.describe([log, repartition])
    config = topics.topic_configs([log])[log] if log in found else {}
    return {"policy": config.get("cleanup.policy", ""), "repartitioned": repartition in found}


def _not_live(application: str, name: str, found: Placed) -> list[DiscoveredStore]:
    """Return the stale directories of a store, or all of them if it is unknown which are stale."""
    if found.problem:
        tasks = tuple(sorted({store.task for store in found.live}))
        store = DiscoveredStore(application, name, tasks=tasks, here=frozenset(tasks))
        return [store.with_problem("undetermined", found.problem)]
    return [
        DiscoveredStore(application, name, tasks=(store.task,), here=frozenset({store.task})).with_problem(
            "stale",
            f"{store.directory} is left from a former topology: {found.why}. The application no longer uses it. "
            "Nothing deletes it automatically",
        )
        for store in found.stale
    ]


def _subtopologies(where: Installation, application: str) -> Mapping[str, int]:
    """Return which subtopology logs to a changelog, as an application's group tells; nothing if it does not."""
    try:
        group = streams_group(where.cluster, application)
    except StateStoreError:  # its user can say it
        return {}
    return {} if group is None else group.changelogs


def _still_true(topics: Topics, known: Mapping[str, KnownStore]) -> dict[str, KnownStore]:
    """Leave out what is known of stores whose changelog is another topic by now, or gone."""
    described = topics.describe(sorted({found.changelog for found in known.values() if found.changelog}))
    ids = {name: topic.topic_id for name, topic in described.items()}
    return {
        name: found
        for name, found in known.items()
        if not found.changelog or ids.get(found.changelog) == found.topic_id
    }


def _changelog(hint: Hint | None, known: KnownStore | None) -> str | None:
    return (hint.changelog if hint else None) or (known.changelog if known else None) or None


def _completed(hint: Hint, known: KnownStore | None, shape: Shape) -> Hint:
    """Add to what a user says of a store what is known of it, and no directory shows."""
    if known is None or isinstance(shape, UnknownFormatError):
        return hint
    if not isinstance(shape, StoreShape):
        return known.completed(hint)
    kept = known.definition
    return hint.model_copy(
        update={
            "retention_ms": hint.retention_ms or (kept.retention_ms if kept else None),
            "segment_interval_ms": hint.segment_interval_ms or (kept.segment_interval_ms if kept else None),
            "global_kind": hint.global_kind or known.global_kind,
        }
    )


def _is_global(hint: Hint, known: KnownStore | None) -> bool:
    """Tell whether a store without a directory is a global one."""
    return hint.global_kind is not None or (known is not None and known.is_global)


def _with_end(store: DiscoveredStore, where: Installation, topics: Topics) -> DiscoveredStore:
    """Ask of a store whose changelog is the application's input how far that was processed, so that it is known to be.

    Only the store has a problem if it is not.
    """
    if store.definition is None or store.changelog is None or store.changelog.end_group is None:
        return store
    try:
        log_ranges(topics, discovered_specs(where, [store]))
    except InputOffsetError as error:
        return store.with_problem("needed", str(error))
    return store


def _check_hints(application: str, hints: Mapping[str, Hint], known: Sequence[str], where: Installation) -> None:
    for name, hint in hints.items():
        if name not in known and hint.changelog is None:
            raise UnknownStoreError(
                f"no store {name!r} in application {application}: {where.state_dir} and the changelog topics have "
                f"{', '.join(known) or 'none'}; add --changelog {name}=TOPIC if its topic is named otherwise"
            )


def _shape(partitions: Sequence[LiveStore], guard: Guard, changelog: str | None = None) -> Shape:
    """Look into the store's partitions until one tells kind, format and changelog."""

    def look(store: LiveStore) -> StoreShape:
        with guard(store.paths), unreadable_is_damaged():
            shape = shape_of(store)
        return shape._replace(offsets={**_legacy(store.paths, store.name, changelog), **shape.offsets})

    def tells(shape: StoreShape) -> bool:
        if partitions[0].segmented:
            return bool(shape.offsets) and shape.rows > 0
        # Only rows tell a versioned store.
        return bool(shape.offsets) and not shape.unread and (shape.versions is None or shape.versions.rows > 0)

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
