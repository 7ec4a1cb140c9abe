"""The allowed changes of a definition while its stores exist, and those that would require a rebuild.

The rules decide on the catalogue alone: whether an application runs, or has topics and directories, others find out.
They hold for every command of the log, also when it is read again: make them wider, never narrower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple, Protocol

from statestore.clock import exact_duration
from statestore.definitions.aggregation import AggregationDefinition
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import InvalidCommandError
from statestore.metastore.commands import Entry, PutApplication
from statestore.model import input_offsets_topic, repartition_topic

#: Fields of a store that decide on keys and segments of its rows.
_SETTLED = ("kind", "window_size_ms", "retention_ms", "retain_duplicates", "segment_interval_ms", "logged")
_settled = attrgetter(*_SETTLED)
#: All of a store that `_other_settings` and `_other_changelog` look at.
_compared = attrgetter(*_SETTLED, "format", "changelog")
#: Fields of a store that decide on what a processor reads in its rows.
_SERDES = ("key_serde", "value_serde")
_serdes = attrgetter(*_SERDES)
#: Fields of an aggregation that decide on the rows that it writes.
_WRITING = ("aggregate", "group_by", "windows.size_ms", "windows.advance_ms", "sessions.gap_ms")
#: In the stores of processors.
_NOTHING = (None,) * len(_WRITING)


class Defined(Protocol):
    """A definition of an application, and the partitions of the topics that its tasks read."""

    @property
    def definition(self) -> ApplicationDefinition: ...

    @property
    def partitions(self) -> dict[str, int]: ...


class _Home(NamedTuple):
    """Where a store is, and what writes it.

    Attributes
    ----------
    topic
        What its tasks read.
    writing
        Of its aggregation, the values of `_WRITING`; `_NOTHING` in a processor's store.
    """

    subtopology: int
    topic: str
    writing: tuple[str | int | None, ...]


def internal_topic_names(definition: ApplicationDefinition) -> tuple[str, ...]:
    """Return the names of the application's changelogs, repartition topics, and topics of input offsets."""
    changelogs = [store.changelog_of(definition.name) for store in definition.logged_stores]
    repartitions = [topic for topic in topics_read(definition) if topic != definition.input_topic]
    offsets = [input_offsets_topic(definition.name, topic) for topic in (None, *repartitions)]
    return (*changelogs, *repartitions, *offsets)


def topics_read(definition: ApplicationDefinition) -> tuple[str, ...]:
    """Return the topic that the tasks of each subtopology read."""
    regrouped = [item.store for item in definition.aggregations if item.group_by is not None]
    return (definition.input_topic, *[repartition_topic(definition.name, store) for store in regrouped])


def written_topics(definition: ApplicationDefinition) -> dict[str, str]:
    """Return the topics that the application writes to and does not own, and the role of each."""
    outputs = [*definition.output_topics, *(item.output_topic for item in definition.aggregations)]
    named = {name: "output" for name in outputs if name is not None}
    return named | ({definition.dead_letter_topic: "dead-letter"} if definition.dead_letter_topic else {})


def partitions_of(definition: ApplicationDefinition, of_input: int) -> dict[str, int]:
    """Return the partitions of each topic that the tasks read, where the input has so many."""
    repartitions = {
        repartition_topic(definition.name, item.store): item.partitions or of_input
        for item in definition.aggregations
        if item.group_by is not None
    }
    return {definition.input_topic: of_input, **repartitions}


def require_compatible(old: Defined | None, new: PutApplication) -> None:
    """Refuse a definition that contradicts its topics, or that the stores of the one before cannot go on with.

    Raises
    ------
    InvalidCommandError
        With the path of each field, and what to do.
    """
    definition, partitions = new.definition, new.partitions
    # Where stores are depends on nothing else. Those that are said alike are mostly one object (definition_text.py).
    moved = (
        old is None
        or old.definition.input_topic != definition.input_topic
        or old.definition.aggregations != definition.aggregations
        or old.partitions != partitions
    )
    if moved or any([store.partitions is not None for store in definition.stores]):
        require_partitions(definition, partitions)
    if old is None:
        return
    before, homes = (_homes(old.definition), _homes(definition)) if moved else ({}, {})
    stores = {store.name: store for store in old.definition.stores}
    changes: list[str] = []
    for store in definition.stores:
        then = stores.get(store.name)
        if then is None or (then is store and not moved):
            continue
        found: list[str] = []
        if _compared(then) != _compared(store):
            found = [*_other_settings(then, store), *_other_changelog(definition.name, then, store)]
        if moved:
            found += _moves(before[store.name], homes[store.name], old.partitions, partitions)
        changes += [f"stores.{store.name}.{change}" for change in found]
    if changes:
        raise InvalidCommandError(
            f"application {new.definition.name}: existing stores do not permit these changes: "
            f"{'; '.join(changes)}. Undo the changes, or give each changed store another name: it then starts empty"
        )


def with_known_changelogs(definition: ApplicationDefinition, old: Defined | None) -> ApplicationDefinition:
    """Return the definition with the changelogs that its stores have by now, where it names none."""
    for store in () if old is None else old.definition.stores:
        mine = next((found for found in definition.stores if found.name == store.name), None)
        if mine is not None and mine.changelog is None and store.changelog is not None:
            definition = definition.with_changelog(store.name, store.changelog)
    return definition


def require_takeover(made_for: Mapping[str, Defined], new: PutApplication) -> None:
    """Refuse new stores that would take over changelogs which other definitions have written.

    Asked of definitions that are to be applied, and of no command that is read again.

    Parameters
    ----------
    made_for
        Store -> the application as it was when it last wrote the store's changelog.

    Raises
    ------
    InvalidCommandError
        With the path of each field, and what to do.
    """
    changes = [f"stores.{name}.{change}" for name, old in made_for.items() for change in _store_changes(name, old, new)]
    if changes:
        raise InvalidCommandError(
            f"application {new.definition.name}: the changelogs of stores that are added again were written with "
            f"different definitions: {'; '.join(changes)}. Give the stores other names, or return to the former "
            "definitions. If you no longer need the old rows, delete the changelog topics and the stores' directories "
            "(`statestore drift` lists them), then apply again"
        )


def require_readable(old: Entry | None, new: ApplicationDefinition) -> None:
    """Refuse other serdes for stores that are there: their rows would be read wrongly.

    Asked of definitions that are to be applied, and of no command that is read again.

    Raises
    ------
    InvalidCommandError
        With the path of each field, and what to do.
    """
    before = {} if old is None else {store.name: store for store in old.definition.stores}
    aggregated = {item.store for item in new.aggregations}
    changes = [
        f"stores.{store.name}.{change}"
        for store in new.stores
        if store.name in before and store.name not in aggregated
        for change in _serde_changes(before[store.name], store)
    ]
    if changes:
        raise InvalidCommandError(
            f"application {new.name}: existing rows cannot be read with different serdes: {'; '.join(changes)}. "
            "Undo the change, or give the store another name: it then starts empty"
        )


def _store_changes(name: str, old: Defined, new: PutApplication) -> Iterator[str]:
    was, now = _homes(old.definition)[name], _homes(new.definition)[name]
    before, after = old.definition.store(name), new.definition.store(name)
    yield from _other_settings(before, after)
    yield from _moves(was, now, old.partitions, new.partitions)
    if was.writing == now.writing == _NOTHING:
        yield from _serde_changes(before, after)


def _serde_changes(old: StoreDefinition, new: StoreDefinition) -> Iterator[str]:
    """Name other serdes; in an aggregation's store they are only a view."""
    yield from _different(_SERDES, _serdes(old), _serdes(new))


def require_partitions(definition: ApplicationDefinition, found: Mapping[str, int]) -> None:
    """Refuse partitions of topics that are not those that the tasks read, or not as many as the definition says.

    Raises
    ------
    InvalidCommandError
        With the path of each field.
    """
    regrouped = [item for item in definition.aggregations if item.group_by is not None]
    topics = [repartition_topic(definition.name, item.store) for item in regrouped]
    if found.keys() != {definition.input_topic, *topics}:
        raise InvalidCommandError(
            f"application {definition.name}: partitions: expected those of "
            f"{', '.join([definition.input_topic, *topics])}, which its tasks read; found {', '.join(found) or 'none'}"
        )
    problems = [
        f"aggregations.{item.store}.partitions: expected {count} of {topic}, found {found[topic]}"
        for item, topic in zip(regrouped, topics, strict=True)
        for count in [item.partitions or found[definition.input_topic]]
        if found[topic] != count
    ]
    if said := [store for store in definition.stores if store.partitions is not None]:
        homes = _homes(definition)
        problems += [
            f"stores.{store.name}.partitions: expected {store.partitions}, found {found[topic]} of {topic}, which its "
            "tasks read"
            for store in said
            for topic in [homes[store.name].topic]
            if found[topic] != store.partitions
        ]
    if problems:
        raise InvalidCommandError(f"application {definition.name} does not fit its topics: {'; '.join(problems)}")


def require_droppable(entry: Defined, store: str) -> None:
    """Refuse to drop a store that is not there or in use.

    Raises
    ------
    InvalidCommandError
        If the application has no such store, an aggregation writes it, or it is the only one.
    """
    definition = entry.definition
    names = [found.name for found in definition.stores]
    if store not in names:
        raise InvalidCommandError(
            f"application {definition.name} has no store {store!r}; its stores are: {', '.join(names)}"
        )
    for index, item in enumerate(definition.aggregations):
        if item.store == store:
            raise InvalidCommandError(
                f"store {definition.name}/{store} is in use: aggregations.{index} writes it; apply a definition of "
                f"{definition.name} without that aggregation and without the store"
            )
    if len(names) == 1:
        raise InvalidCommandError(
            f"store {definition.name}/{store} is the only store of its application. Drop "
            f"application {definition.name} instead"
        )


def _homes(definition: ApplicationDefinition) -> dict[str, _Home]:
    homes = dict.fromkeys([store.name for store in definition.stores], _Home(0, definition.input_topic, _NOTHING))
    subtopology = 0
    for item in definition.aggregations:
        if item.group_by is None:
            homes[item.store] = _Home(0, definition.input_topic, _writing(item))
        else:
            subtopology += 1
            topic = repartition_topic(definition.name, item.store)
            homes[item.store] = _Home(subtopology, topic, _writing(item))
    return homes


def _writing(item: AggregationDefinition) -> tuple[str | int | None, ...]:
    windows, sessions = item.windows, item.sessions
    return (
        item.aggregate,
        item.group_by,
        windows.size_ms if windows else None,
        windows.step_ms if windows else None,
        sessions.gap_ms if sessions else None,
    )


def _other_settings(old: StoreDefinition, new: StoreDefinition) -> Iterator[str]:
    """Name settings that a store that is there cannot take over."""
    yield from _different(_SETTLED, _settled(old), _settled(new))
    if old.format == new.format and old.kind == new.kind:
        return
    if not set(old.values.column_families) <= set(new.values.column_families):
        lost = "headers" if old.values.keeps_headers else "timestamps"
        yield f"format: {old.format} -> {new.format}, which has no place for the {lost}"


def _other_changelog(application: str, old: StoreDefinition, new: StoreDefinition) -> Iterator[str]:
    """Name another changelog: only `adopt-changelogs` gives a store that is there one."""
    before, after = old.changelog_of(application), new.changelog_of(application)
    if before != after:
        yield f"changelog: {before} -> {after}"


def _moves(was: _Home, now: _Home, before: Mapping[str, int], partitions: Mapping[str, int]) -> Iterator[str]:
    """Name what a store that is there cannot take over of where it is: whose tasks have it, what they read."""
    if was.subtopology != now.subtopology:
        yield (
            f"subtopology: {was.subtopology} -> {now.subtopology}, other tasks (group_by, and the order of the "
            "aggregations that have one, determine it)"
        )
    elif was.topic != now.topic:
        yield f"input_topic: {was.topic} -> {now.topic}, which holds other records"
    if was.writing != now.writing:  # a task with stores refuses that too (tasks/shape.py)
        yield from _different(_WRITING, was.writing, now.writing)
    if before[was.topic] != partitions[now.topic]:
        yield (
            f"partitions: its tasks read {before[was.topic]}, and would read {partitions[now.topic]}: keys would be in "
            "other tasks' stores"
        )


def _different(names: Iterable[str], old: Iterable[object], new: Iterable[object]) -> Iterator[str]:
    for name, before, after in zip(names, old, new, strict=True):
        if before != after:
            yield f"{name}: {shown(name, before)} -> {shown(name, after)}"


def shown(name: str, value: object) -> str:
    """Return the value of a field as text; milliseconds as a duration."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, int) and name.endswith("_ms"):
        return exact_duration(value)
    return "-" if value is None else str(value)
