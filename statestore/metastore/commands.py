"""Commands: what the records of the command topic say, as canonical JSON.

    key     what the command is about, UTF-8: application/flight-delays, store/flight-delays/aircraft, snapshot
    value   {"definition":{...},"id":7,"kind":"put-application",...,"version":1,"written_by":"me@host","written_ms":...}

Canonical: keys in order, no blanks, UTF-8, every field there, also those that have their defaults. A command says what
is to be, resolved, and never what to compute: it means the same whenever it is read. What a command of version 1 may
hold can only become wider; whatever would refuse or change what was written before is a new version. Snapshots have
version 3: since version 2 they keep topics of dropped applications, since version 3 heads of evidence.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.fields import Line
from statestore.errors import InvalidCommandError, NewerCommandError, UnreadableCommandError
from statestore.metastore.definition_text import read_in_parts
from statestore.model import Name, StoreFormat

VERSION = 3
#: In every record; a command that is being made has defaults in their place.
_STAMP = frozenset({"version", "id", "written_ms", "written_by"})
_SHOWN_PROBLEMS = 5


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Entry(_Model):
    """An application in the catalogue.

    Attributes
    ----------
    partitions
        Of each topic that its tasks read, repartition topics included.
    topics
        Internal topics, changelogs and repartition topics, and their ids. None until some were recorded; those of
        stores that were added since are missing until they are recorded too.
    created_id, changed_id
        The commands that put it first, and that put or dropped something of it last.
    """

    definition: ApplicationDefinition
    partitions: dict[str, int]
    topics: dict[str, str] | None = None
    created_id: int = Field(ge=1)
    changed_id: int = Field(ge=1)
    changed_ms: int = Field(ge=0)
    changed_by: Line


class CatalogueContent(_Model):
    """Content of a catalogue, without its position in the log."""

    applications: dict[str, Entry] = {}


class FormerTopics(_Model):
    """Internal topics that applications have left, with the definition under which they were last written.

    Attributes
    ----------
    partitions
        Number of partitions of each topic that the application's tasks read.
    topics
        Name of a topic -> its id; None if none was recorded.
    """

    definition: ApplicationDefinition
    partitions: dict[str, int]
    topics: dict[str, str | None]


class EvidenceRecord(_Model):
    """Head of the evidence of an application's restore drills (docs/drills.md).

    Attributes
    ----------
    length, sha256
        Number of documents, and digest of the last one.
    """

    length: int = Field(ge=1, strict=True)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _Stamped(_Model):
    """Common fields of all commands.

    Attributes
    ----------
    id
        Number of the command, one more than that of the one before; 0 until it is stamped.
    written_ms, written_by
        When and by whom, for people.
    """

    id: int = Field(default=0, ge=0, strict=True)
    written_ms: int = Field(default=0, ge=0, strict=True)
    written_by: Line = "unknown"


class _Command(_Stamped):
    """A command of version 1."""

    version: Literal[1] = 1


class PutApplication(_Command):
    """Define an application, or change it.

    Attributes
    ----------
    partitions
        Of each topic that its tasks read: that of each subtopology.
    """

    kind: Literal["put-application"] = "put-application"
    definition: ApplicationDefinition
    partitions: dict[str, Annotated[int, Field(ge=1, strict=True)]]


class DropApplication(_Command):
    """Forget an application."""

    kind: Literal["drop-application"] = "drop-application"
    name: Name


class DropStore(_Command):
    """Forget a store of an application."""

    kind: Literal["drop-store"] = "drop-store"
    application: Name
    store: Name


class RecordTopics(_Command):
    """Record which internal topics an application has; those that are not named stay as they are.

    Attributes
    ----------
    topics
        Name of an internal topic -> its id.
    """

    kind: Literal["record-topics"] = "record-topics"
    application: Name
    topics: dict[str, Annotated[str, Field(min_length=1, max_length=100)]] = Field(min_length=1)


class NewChangelog(_Model):
    """Another changelog topic of a store, which has all of its rows. The one before it is left.

    Attributes
    ----------
    topic, topic_id
        Name of the new changelog, and its id.
    before
        Name of the changelog until then.
    format
        That the store has with it.
    """

    topic: str = Field(min_length=1, max_length=249)
    topic_id: str = Field(min_length=1, max_length=100)
    before: str = Field(min_length=1, max_length=249)
    format: StoreFormat


class AdoptChangelogs(_Command):
    """Switch stores to other changelog topics, all at once.

    Attributes
    ----------
    changelogs
        By store.
    """

    kind: Literal["adopt-changelogs"] = "adopt-changelogs"
    application: Name
    changelogs: dict[Name, NewChangelog] = Field(min_length=1)


class RecordEvidence(_Stamped):
    """Record the head of an application's evidence. The application need not be in the catalogue."""

    version: Literal[3] = 3
    kind: Literal["record-evidence"] = "record-evidence"
    application: Name
    head: EvidenceRecord


class Snapshot(_Stamped):
    """The whole catalogue as all commands before this one made it, so that they can be deleted.

    Attributes
    ----------
    digest
        The catalogue's, see `digest_of`; compared with the record as it is, before anything is read into it.
    former
        Internal topics that are no longer in the catalogue. Version 1 has none: the commands were forgotten.
    evidence
        Heads of evidence by application. Versions 1 and 2 have none: there was no evidence.
    """

    version: Literal[1, 2, 3] = 3
    kind: Literal["snapshot"] = "snapshot"
    catalogue: CatalogueContent
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    former: tuple[FormerTopics, ...] = ()
    evidence: dict[Name, EvidenceRecord] = {}


Command = Annotated[
    PutApplication | DropApplication | DropStore | RecordTopics | AdoptChangelogs | RecordEvidence | Snapshot,
    Field(discriminator="kind"),
]
C = TypeVar("C", bound=_Stamped)
_COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)
#: Without the search for the kind: only a `PutApplication` has a definition.
_validate_put = TypeAdapter(PutApplication).validator.validate_python


def this_writer() -> str:
    """Return `user@host` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    text = f"{user}@{socket.gethostname()}"[:200]
    return text if text.isprintable() else ascii(text)[:200]


def stamped(command: C, next_id: int, written_ms: int, written_by: str) -> C:
    """Return the command with its number, the catalogue's `next_id`, and who writes it when."""
    return command.model_copy(update={"id": next_id, "written_ms": written_ms, "written_by": written_by})


def application_of(command: Command) -> str | None:
    """Return the application that a command is about; None: about all."""
    match command:
        case PutApplication():
            return command.definition.name
        case DropApplication():
            return command.name
        case DropStore() | RecordTopics() | AdoptChangelogs() | RecordEvidence():
            return command.application
        case Snapshot():
            return None


def key_of(command: Command) -> bytes:
    """Return the key of the command's record."""
    if isinstance(command, DropStore):
        return f"store/{command.application}/{command.store}".encode()
    if isinstance(command, RecordEvidence):
        return f"evidence/{command.application}".encode()
    application = application_of(command)
    return b"snapshot" if application is None else f"application/{application}".encode()


def canonical(value: BaseModel | dict[str, Any]) -> bytes:
    """Return the one JSON text of a value: keys in order, no blanks, nothing left out.

    Raises
    ------
    ValueError
        If a model holds what its type does not allow.
    """
    data = value.model_dump(mode="json", warnings="error") if isinstance(value, BaseModel) else value
    return json.dumps(data, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()


def digest_of(content: CatalogueContent | dict[str, Any]) -> str:
    """Return the SHA-256, hex, of a catalogue's content."""
    return hashlib.sha256(canonical(content)).hexdigest()


def encode(command: Command) -> bytes:
    """Return the value of the command's record.

    Raises
    ------
    InvalidCommandError
        If a field holds what it must not.
    """
    try:
        return canonical(command)
    except ValueError as error:
        raise InvalidCommandError(f"the {command.kind} command cannot be written: {error}") from error


def decode(value: bytes | None) -> Command:
    """Read the value of a record.

    Raises
    ------
    NewerCommandError
        If it says that it has a later version.
    UnreadableCommandError
        If it is no command.
    """
    if value is None:
        raise UnreadableCommandError("the record has no value; expected a command in JSON")
    try:
        command = read_in_parts(value, _validate_put) or _COMMANDS.validate_json(value)
    except ValidationError as error:
        _require_known_version(value)
        raise UnreadableCommandError(f"the record is not a command of version {VERSION}: {_problems(error)}") from error
    if not command.model_fields_set >= _STAMP:
        missing = _STAMP - command.model_fields_set
        raise UnreadableCommandError(f"the record is not a command: {', '.join(sorted(missing))} missing")
    if command.id == 0:
        raise UnreadableCommandError("the record is not a command: its id is 0; expected at least 1")
    if isinstance(command, Snapshot):
        # As it was written: a field that a later version of ours adds is not in it.
        found = digest_of(json.loads(value)["catalogue"])
        if found != command.digest:
            raise UnreadableCommandError(
                f"snapshot {command.id} was altered: expected digest {command.digest}, found {found}"
            )
    return command


def check_round_trip(command: Command) -> bytes:
    """Return the value of the command's record, from which the same command is read.

    Raises
    ------
    InvalidCommandError
        If another command or none would be read. It must not be sent.
    """
    value = encode(command)
    try:
        found = decode(value)
    except (UnreadableCommandError, NewerCommandError) as error:
        raise InvalidCommandError(f"the {command.kind} command does not read back: {error}") from error
    if found != command or encode(found) != value:
        raise InvalidCommandError(f"the {command.kind} command reads back as a different one: {value.decode()[:500]}")
    return value


def _require_known_version(value: bytes) -> None:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):  # ValueError: no JSON, or no UTF-8
        return
    version = found.get("version") if isinstance(found, dict) else None
    if isinstance(version, int) and not isinstance(version, bool) and version > VERSION:
        raise NewerCommandError(
            f"the command has version {version}; this installation reads up to {VERSION}. Upgrade it: until then the "
            "catalogue ends before this command"
        )


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    texts = [f"{'.'.join(map(str, problem['loc'])) or 'the value'}: {problem['msg']}" for problem in found]
    more = len(texts) - _SHOWN_PROBLEMS
    return "; ".join(texts[:_SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
