"""Application definitions in YAML, checked before anything uses them. A file may hold several, divided by `---`.

name: flight-delays
input_topic: flights
output_topics: [aircraft-delays]
processor: demo.flight_delays:process
stores:
  - name: aircraft
    owner: fleet team
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
_MAX_DEPTH = 32
_MAX_NODES = 50_000
_SHOWN_PROBLEMS, _SHOWN_CHARACTERS = 20, 120


def load_definitions(path: Path) -> dict[str, ApplicationDefinition]:
    """Read one file, or every `*.yaml` and `*.yml` of a directory.

    Returns
    -------
    dict
        Application name -> definition, in order of names.

    Raises
    ------
    DefinitionError
        If a file is missing, malformed, or defines an application that is defined elsewhere too.
    """
    if path.is_dir():
        files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
    elif path.is_file():
        files = [path]
    else:
        raise DefinitionError(f"{path} does not exist; expected a YAML file or a directory of them")
    found: dict[str, ApplicationDefinition] = {}
    for file in files:
        for name, definition in parse_definitions(_text(file), str(file)).items():
            if name in found:
                raise DefinitionError(f"{file} defines application {name}, which another file of {path} defines too")
            found[name] = definition
    _check_changelogs(found.values())
    return dict(sorted(found.items()))


def parse_definitions(text: str, source: str) -> dict[str, ApplicationDefinition]:
    """Read the YAML documents of a text, an application each.

    Parameters
    ----------
    source
        What the text is called in messages: a file, or a field of a form.

    Returns
    -------
    dict
        Application name -> definition, in order of names.

    Raises
    ------
    DefinitionError
        If the text is too long, no YAML, or does not define applications that can be side by side.
    """
    if len(text) > _MAX_BYTES or len(text.encode(errors="replace")) > _MAX_BYTES:
        raise _too_long(source)
    documents = [document for document in _parse(text, source) if document is not None]
    if not documents:
        raise DefinitionError(f"{source} does not define an application: it is empty")
    found: dict[str, ApplicationDefinition] = {}
    for number, document in enumerate(documents, start=1):
        definition = _definition(document, source if len(documents) == 1 else f"{source}, document {number},")
        if definition.name in found:
            raise DefinitionError(f"{source} defines application {definition.name} twice")
        found[definition.name] = definition
    _check_changelogs(found.values())
    return dict(sorted(found.items()))


def to_yaml(definition: ApplicationDefinition) -> str:
    """Return the definition as YAML that gives it again, with all defaults."""
    fields = definition.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=120)


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


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise _too_long(str(file))
        return content.decode("utf-8")
    except OSError as error:
        raise DefinitionError(f"{file} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{file} is not YAML in UTF-8: {error}") from error


def _too_long(source: str) -> DefinitionError:
    return DefinitionError(f"{source} is too long: expected at most {_MAX_BYTES} bytes; divide it into several files")


def _definition(document: object, source: str) -> ApplicationDefinition:
    try:
        return ApplicationDefinition.model_validate(document)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part)[:_SHOWN_CHARACTERS] for part in problem['loc']) or 'the document'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_context=False)
        ]
        if (more := len(problems) - _SHOWN_PROBLEMS) > 0:
            problems[_SHOWN_PROBLEMS:] = [f"and {more} more"]
        raise DefinitionError(f"{source} does not define an application: {'; '.join(problems)}") from error


class _Loader(yaml.SafeLoader):
    """Refuses what YAML or PyYAML would take and nobody means.

    An alias may stand for a bomb, and a key that is there twice for a mistake (YAML forbids it, PyYAML takes the last
    one); a deep nesting exhausts the stack, and reading a million numbers takes minutes.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """See `yaml.SafeLoader.compose_node`."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise yaml.composer.ComposerError(
                None, None, "anchors and aliases (&, *) are not accepted; write it out", event.start_mark
            )
        if self._depth == _MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {_MAX_DEPTH} levels", event.start_mark)
        if self._nodes == _MAX_NODES:
            raise yaml.composer.ComposerError(None, None, f"more than {_MAX_NODES} values", event.start_mark)
        self._nodes += 1
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """See `yaml.SafeLoader.construct_mapping`."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r:.120} is there twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def _parse(text: str, source: str) -> list[object]:
    try:
        return list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none, for example
        raise DefinitionError(f"{source} is not YAML: {str(error) or type(error).__name__}") from error


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
