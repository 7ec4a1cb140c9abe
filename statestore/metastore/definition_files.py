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

import json
import re
from collections.abc import Hashable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

import yaml
from pydantic import ValidationError

from statestore import clock
from statestore.definitions.aggregation import AggregationDefinition, Sessions, TimeWindows
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError, InvalidCommandError, UnknownApplicationError, UnknownStoreError
from statestore.metastore.ownership import OwnedTopics

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 32
_MAX_NODES = 50_000
_SHOWN_PROBLEMS, _SHOWN_CHARACTERS = 20, 120
#: Names of all fields, for suggestions.
_FIELDS = sorted(
    {
        name
        for definition in (ApplicationDefinition, StoreDefinition, AggregationDefinition, TimeWindows, Sessions)
        for name in definition.model_fields
    }
)
#: What a plain scalar may be besides a text and a number.
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("bool", "null"))


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
        try:
            with file.open("rb") as opened:
                defined = read_definitions(opened, str(file))
        except OSError as error:
            raise DefinitionError(f"{file} cannot be read: {error}") from error
        for name, definition in defined.items():
            if name in found:
                raise DefinitionError(f"{file} defines application {name}, which another file of {path} also defines")
            found[name] = definition
    _require_side_by_side(found.values())
    return dict(sorted(found.items()))


def read_definitions(opened: BinaryIO, source: str) -> dict[str, ApplicationDefinition]:
    """Read an open file; of one that is too long, no more than is needed to see that.

    Parameters
    ----------
    source
        What it is called in messages.

    Raises
    ------
    DefinitionError
        As `parse_definitions`, and if it is no UTF-8.
    OSError
        If it cannot be read.
    """
    content = opened.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise _too_long(source)
    try:
        return parse_definitions(content.decode("utf-8"), source)
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{source} is not YAML in UTF-8: {error}") from error


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
    _require_side_by_side(found.values())
    return dict(sorted(found.items()))


def to_yaml(definition: ApplicationDefinition) -> str:
    """Return the definition as YAML that gives it again, with all defaults."""
    fields = definition.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=120)


def select(
    definitions: dict[str, ApplicationDefinition], applications: Sequence[str], stores: Sequence[str] = ()
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
            raise UnknownApplicationError(f"no application {name!r} is defined; the applications are: {known}")
    chosen = [definitions[name] for name in dict.fromkeys(applications)] or list(definitions.values())
    known_stores = {store.name for definition in chosen for store in definition.stores}
    for store in stores:
        if store not in known_stores:
            raise UnknownStoreError(
                f"no store {store!r} in {', '.join(definition.name for definition in chosen) or 'any application'}; "
                f"the stores are: {', '.join(sorted(known_stores)) or 'none'}"
            )
    return chosen


def _too_long(source: str) -> DefinitionError:
    return DefinitionError(f"{source} is too long: expected at most {_MAX_BYTES} bytes; split it into several files")


def _definition(document: object, source: str) -> ApplicationDefinition:
    """Check a document, more strictly than a command that is read again: a text is no number."""
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, bool | float):  # true and 1.0 equal 1
        raise DefinitionError(f"{source} does not define an application: schema_version: expected 1, found {version}")
    document = _with_durations(document, source)
    try:
        # As JSON, because there a text may still be an enum and a list a tuple.
        return ApplicationDefinition.model_validate_json(json.dumps(document, ensure_ascii=False).encode(), strict=True)
    except ValidationError as error:
        problems = [_shown(dict(problem)) for problem in error.errors(include_url=False, include_context=False)]
        if (more := len(problems) - _SHOWN_PROBLEMS) > 0:
            problems[_SHOWN_PROBLEMS:] = [f"and {more} more"]
        raise DefinitionError(f"{source} does not define an application: {'; '.join(problems)}") from error
    except ValueError as error:  # half of a character
        raise DefinitionError(f"{source} does not define an application: {error}") from error


def _with_durations(value: object, source: str, name: str = "") -> object:
    """Return a document whose durations, such as `retention_ms: 7d`, are numbers; what is no duration stays."""
    if isinstance(value, dict):
        return {key: _with_durations(each, source, str(key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_durations(each, source) for each in value]
    if name.endswith("_ms") and isinstance(value, str) and value[-1:].isalpha():
        try:
            return clock.whole_ms(value)
        except ValueError as error:
            raise DefinitionError(f"{source} does not define an application: {name}: {error}") from error
    return value


def _shown(problem: dict[str, Any]) -> str:
    path = ".".join(str(part)[:_SHOWN_CHARACTERS] for part in problem["loc"]) or "the document"
    found = problem["input"]
    if problem["type"] == "extra_forbidden":
        close = get_close_matches(str(problem["loc"][-1]), _FIELDS, 1)
        return f"{path}: there is no such field{f'; did you mean {close[0]}?' if close else ''}"
    if problem["type"] == "value_error" or not isinstance(found, str | int | float):  # ours tell what was found
        return f"{path}: {problem['msg']}"
    return f"{path}: {problem['msg']}, found {repr(found)[:_SHOWN_CHARACTERS]}"


class _Loader(yaml.SafeLoader):
    """Refuses what YAML or PyYAML would take and nobody means.

    An alias may stand for a bomb, and a key that is there twice for a mistake (YAML forbids it, PyYAML takes the last
    one); a deep nesting exhausts the stack, and reading a million numbers takes minutes. A tag may ask for what its
    value cannot be. Of numbers only decimal ones are some: 010 would be 8, and 1:30 be 90, read in quadratic time.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012  # as PyYAML has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """See `yaml.SafeLoader.compose_node`."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise yaml.composer.ComposerError(
                None, None, "anchors and aliases (&, *) are not accepted; write the value out", event.start_mark
            )
        if getattr(event, "tag", None) is not None:
            raise yaml.composer.ComposerError(None, None, "tags (!) are not accepted", event.start_mark)
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
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            problem = "is not text" if not isinstance(key, str) else "is there twice" if key in seen else None
            if problem is not None:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r:.120} {problem}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z"), list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+\.[0-9]*\Z"), list("-+0123456789"))


def _parse(text: str, source: str) -> list[object]:
    try:
        return list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # a character that is none
        raise DefinitionError(f"{source} is not YAML: {str(error) or type(error).__name__}") from error


def _require_side_by_side(definitions: Iterable[ApplicationDefinition]) -> None:
    """Refuse definitions that cannot be side by side, or that contradict themselves in the names of their topics."""
    owned = OwnedTopics()
    for definition in definitions:
        try:
            owned.require_free(definition)
        except InvalidCommandError as error:
            raise DefinitionError(str(error)) from error
        owned.put(definition)
