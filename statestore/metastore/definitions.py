"""Application definitions in YAML, one application a file, checked before anything uses them.

name: flight-delays
input_topic: flights
output_topics: [aircraft-delays]
processor: demo.flight_delays:process
stores:
  - name: aircraft
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from statestore.errors import DefinitionError, UnknownApplicationError, UnknownStoreError
from statestore.model import ApplicationDefinition, changelog_topic

_MAX_BYTES = 1 << 20


def load_definitions(path: Path) -> dict[str, ApplicationDefinition]:
    """Read one file, or every `*.yaml` and `*.yml` of a directory.

    Returns
    -------
    dict
        Application name -> definition, in order of names.

    Raises
    ------
    DefinitionError
        If a file is missing, malformed, or defines an application that another file defines too.
    """
    if path.is_dir():
        files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
    elif path.is_file():
        files = [path]
    else:
        raise DefinitionError(
            f"{path} does not exist: set STATESTORE_DEFINITIONS to a YAML file or a directory of them"
        )
    found: dict[str, ApplicationDefinition] = {}
    for file in files:
        definition = _load(file)
        if definition.name in found:
            raise DefinitionError(f"{file} defines application {definition.name}, which another file of {path} defines")
        found[definition.name] = definition
    _check_changelogs(found.values())
    return dict(sorted(found.items()))


def select(
    definitions: dict[str, ApplicationDefinition], applications: list[str], stores: list[str]
) -> list[ApplicationDefinition]:
    """Return the applications asked for, or all if none is named; every store named must belong to one of them.

    Raises
    ------
    UnknownApplicationError, UnknownStoreError
        If a name is not defined; the message lists those that are.
    """
    for name in applications:
        if name not in definitions:
            known = ", ".join(definitions) or "none"
            raise UnknownApplicationError(f"no application {name!r} is defined; defined are: {known}")
    chosen = [definitions[name] for name in dict.fromkeys(applications)] or list(definitions.values())
    known_stores = {store.name for definition in chosen for store in definition.stores}
    for store in stores:
        if store not in known_stores:
            raise UnknownStoreError(
                f"no store {store!r} in {', '.join(definition.name for definition in chosen) or 'any application'}; "
                f"the stores are: {', '.join(sorted(known_stores)) or 'none'}"
            )
    return chosen


def _load(file: Path) -> ApplicationDefinition:
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise DefinitionError(f"{file} has {file.stat().st_size} bytes; a definition has at most {_MAX_BYTES}")
        content = _parse(file)
        return ApplicationDefinition.model_validate(content)
    except OSError as error:
        raise DefinitionError(f"{file} cannot be read: {error}") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'the file'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise DefinitionError(f"{file} does not define an application: {problems}") from error


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice: YAML forbids it, PyYAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """See `yaml.SafeLoader.construct_mapping`."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} is there twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def _parse(file: Path) -> object:
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - it is a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a date that is none
        raise DefinitionError(f"{file} is not YAML: {str(error) or type(error).__name__}") from error


def _check_changelogs(definitions: Iterable[ApplicationDefinition]) -> None:
    """Two stores must not share a changelog topic: `a-b` + `c` and `a` + `b-c` would."""
    owners: dict[str, str] = {}
    for definition in definitions:
        for store in definition.stores:
            owner, topic = f"{definition.name}/{store.name}", changelog_topic(definition.name, store.name)
            if topic in owners:
                raise DefinitionError(
                    f"{owners[topic]} and {owner} would share the changelog topic {topic}; rename one"
                )
            owners[topic] = owner
