"""The plan of applying definitions to a catalogue, field by field, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from statestore.definitions.application import ApplicationDefinition
from statestore.metastore.catalogue import Catalogue, Rebuild
from statestore.metastore.commands import PutApplication, stamped
from statestore.metastore.evolution import require_readable, shown
from statestore.metastore.ownership import OwnedTopics

#: Lists whose items have a name, and the field that it is in.
_NAMED = {"stores": "name", "aggregations": "store"}


class Change(NamedTuple):
    """One field that becomes another.

    Attributes
    ----------
    path
        Such as `stores.aircraft.owner`; items of a list go by their names.
    before, after
        None: not there, or empty.
    """

    path: str
    before: JsonValue
    after: JsonValue

    def __str__(self) -> str:
        return f"{self.path}: {shown(self.path, self.before)} -> {shown(self.path, self.after)}"


class Step(NamedTuple):
    """Planned change of one application.

    Attributes
    ----------
    command
        What would be logged, not stamped; None if nothing changes.
    removed
        Stores that the application would no longer have.
    """

    application: str
    kind: Literal["create", "change", "unchanged"]
    changes: tuple[Change, ...]
    command: PutApplication | None
    removed: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the changes as text; of a new application, the fields that differ from their defaults."""
        if self.kind != "create" or self.command is None:
            yield from map(str, self.changes)
            return
        given = dict(_flat("", self.command.definition.model_dump(mode="json", exclude_defaults=True)))
        for change in self.changes:
            if change.path in given or change.path.startswith("partitions."):
                yield f"{change.path}: {shown(change.path, change.after)}"


class Plan(NamedTuple):
    """Planned changes of all given applications, in their order."""

    steps: tuple[Step, ...]

    @property
    def changes_something(self) -> bool:
        """Whether anything would be logged."""
        return any(step.command is not None for step in self.steps)


def difference(old: ApplicationDefinition | None, new: ApplicationDefinition) -> list[Change]:
    """Return the fields that differ, in the order in which a definition has them, those that are gone last.

    Parameters
    ----------
    old
        None if there was none: all fields that are not empty are new.
    """
    before = {} if old is None else _fields(old)
    after = _fields(new)
    changes = [
        Change(path, before.get(path), after.get(path))
        for path in dict.fromkeys([*after, *before])
        if before.get(path) != after.get(path)
    ]
    return changes + list(_orders(old, new))


def put(
    catalogue: Catalogue, definition: ApplicationDefinition, partitions: Mapping[str, int]
) -> PutApplication | None:
    """Return the command that puts a definition into the catalogue, not stamped; None if it is there already.

    Parameters
    ----------
    partitions
        Of each topic that its tasks read.

    Raises
    ------
    InvalidCommandError
        If it gives other serdes to stores that are there.
    """
    entry = catalogue.applications.get(definition.name)
    if entry is not None and entry.definition == definition and entry.partitions == dict(partitions):
        return None
    require_readable(entry, definition)
    return PutApplication(definition=definition, partitions=dict(partitions))


def make_plan(catalogue: Catalogue, definitions: Iterable[tuple[ApplicationDefinition, Mapping[str, int]]]) -> Plan:
    """Plan what applying all of the definitions would do.

    Parameters
    ----------
    definitions
        Each with the partitions of the topics that its tasks read.

    Raises
    ------
    InvalidCommandError
        If one of them cannot be applied after those before it.
    """
    rebuild, steps, owned = Rebuild(catalogue), [], OwnedTopics(catalogue.definitions().values())
    for definition, partitions in definitions:
        now = rebuild.catalogue()
        steps.append(_step(now, definition, partitions))
        if (command := steps[-1].command) is not None:
            owned.require_free(definition)
            rebuild.apply(stamped(command, now.next_id, 0, "plan"))
            owned.put(definition)
    return Plan(tuple(steps))


def _step(catalogue: Catalogue, definition: ApplicationDefinition, partitions: Mapping[str, int]) -> Step:
    command = put(catalogue, definition, partitions)
    entry = catalogue.applications.get(definition.name)
    if command is None:
        return Step(definition.name, "unchanged", (), None)
    known = {} if entry is None else entry.partitions
    changes = difference(None if entry is None else entry.definition, definition)
    changes += [
        Change(f"partitions.{topic}", known.get(topic), partitions.get(topic))
        for topic in dict.fromkeys([*partitions, *known])
        if known.get(topic) != partitions.get(topic)
    ]
    stores = {store.name for store in definition.stores}
    had = () if entry is None else (store.name for store in entry.definition.stores)
    removed = tuple(name for name in had if name not in stores)
    return Step(definition.name, "create" if entry is None else "change", tuple(changes), command, removed)


def _fields(definition: ApplicationDefinition) -> dict[str, JsonValue]:
    return dict(_flat("", definition.model_dump(mode="json")))


def _flat(path: str, value: Any) -> Iterator[tuple[str, JsonValue]]:
    """Give every field that is not empty, by its path."""
    if isinstance(value, list) and path in _NAMED:
        value = {item.pop(_NAMED[path]): item for item in value}
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(f"{path}.{name}" if path else name, item)
    elif value not in (None, []):
        yield path, value


def _orders(old: ApplicationDefinition | None, new: ApplicationDefinition) -> Iterator[Change]:
    """Give lists that have the same items in another order."""
    if old is None:
        return
    for path, name in _NAMED.items():
        before, after = ([getattr(item, name) for item in getattr(one, path)] for one in (old, new))
        if before != after and sorted(before) == sorted(after):
            yield Change(path, before, after)
