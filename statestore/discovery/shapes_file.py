"""Shapes of stores in a file: what `partitions --json` prints where stores are whole, and what a topology tells.

{"shapes": [{"application": "orders", "store": "per-hour", "kind": "window", "format": "timestamped",
             "retention_ms": 86400000, "segment_interval_ms": 43200000, "retain_duplicates": false, "subtopology": 1,
             "changelog": "orders-per-hour-changelog", "topic_id": "...", "global": null, "in_memory": false,
             "logged": true, "offsets_beside": false, "described": ""}]}

Elsewhere a file is evidence as what was known before is: directories and topics go before it. With a topic id, it
speaks of that topic alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from statestore.definitions.store import StoreDefinition
from statestore.discovery.known_store import KnownStore
from statestore.errors import InputError
from statestore.kafka.topics import Topics
from statestore.kinds.known import BUILT_IN, is_built_in
from statestore.model import StoreFormat, changelog_topic, check_name
from statestore.stores.segment_starts import segment_interval_ms

_MAX_BYTES = 16 * 1024 * 1024


class StoreShapeRow(BaseModel):
    """Description of one store in a file. Other fields are ignored.

    Attributes
    ----------
    application
        None: the one that is asked for.
    kind, format
        By the names of `--store NAME:...`, or as Kafka Streams calls what is not known here.
    changelog
        None: the topic named after application and store.
    topic_id
        None: of the topic that is there now.
    global_kind
        As `global`; `unknown`: it is a global store, and nobody knows which; None: it is none.
    logged
        Whether it has a changelog.
    described
        What somebody has said of it where its directories do not show it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    application: str | None = None
    store: str
    kind: str
    format: str
    retention_ms: int | None = Field(default=None, ge=0, lt=1 << 63)
    segment_interval_ms: int | None = Field(default=None, ge=1, lt=1 << 63)
    retain_duplicates: bool = False
    subtopology: int | None = Field(default=None, ge=0, lt=1_000_000_000)
    changelog: str | None = None
    topic_id: str | None = None
    global_kind: Literal["table", "processor", "unknown"] | None = Field(
        default=None, validation_alias="global", serialization_alias="global"
    )
    global_said: bool = True
    in_memory: bool = False
    logged: bool = True
    offsets_beside: bool | None = None
    described: str = ""


_ROWS = TypeAdapter(list[StoreShapeRow])


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    shapes: list[dict[str, object]]


def shape_rows(application: str, stores: Mapping[str, KnownStore]) -> list[dict[str, object]]:
    """Return what a file says of stores that are known, in the order of their names."""
    rows = []
    for name, known in sorted(stores.items()):
        definition = known.definition
        if definition is None and not known.in_memory:
            continue
        kind = known.global_kind or "unknown"
        row = StoreShapeRow.model_validate(
            {
                "application": application,
                "store": name,
                "kind": definition.kind if definition else "key-value",
                "format": definition.format if definition else "plain",
                "retention_ms": definition.retention_ms if definition else None,
                "segment_interval_ms": known.segment_interval_ms
                or (definition.segment_interval_ms if definition else None),
                "retain_duplicates": definition.retain_duplicates if definition else False,
                "subtopology": known.subtopology,
                "changelog": known.changelog or None,
                "topic_id": known.topic_id or None,
                "global": kind if known.is_global else None,
                "global_said": known.global_said,
                "in_memory": known.in_memory,
                "offsets_beside": known.offsets_beside,
                "described": known.described,
            }
        )
        rows.append(row.model_dump(mode="json", by_alias=True))
    return rows


def read_shapes(path: Path, applications: list[str], topics: Topics) -> dict[str, dict[str, KnownStore]]:
    """Read a file, by application and store.

    Parameters
    ----------
    applications
        Those that are asked for and have no definition. What the file says of others counts for nothing.

    Raises
    ------
    InputError
        If it cannot be read, is not as described above, says two things of a store, or nothing of what is asked for.
    """
    rows = _rows(path)
    found: dict[str, dict[str, KnownStore]] = {}
    for row in rows:
        application = row.application
        if application is None:
            if len(applications) != 1:
                raise InputError(
                    f"{path} does not name the application of store {row.store}; name one application with "
                    f"--application, found {', '.join(applications) or 'none'}"
                )
            [application] = applications
        if application not in applications or not (row.logged or row.in_memory):
            continue
        if row.store in found.setdefault(application, {}):
            raise InputError(f"{path} describes store {row.store} of application {application} twice; correct it")
        found[application][row.store] = _known(path, application, row)
    if not found:
        named = sorted({row.application for row in rows if row.application is not None})
        raise InputError(
            f"{path} has no store of {', '.join(applications) or 'an application without a definition'}; it has stores "
            f"of {', '.join(named) or 'none'}"
        )
    return _with_topic_ids(found, topics)


def with_shapes(
    known: Mapping[str, KnownStore], shapes: Mapping[str, KnownStore], path: Path, topics: Topics
) -> dict[str, KnownStore]:
    """Add what a file says of stores to what is known here.

    Raises
    ------
    InputError
        If one contradicts the other.
    """
    described = topics.describe(sorted({found.changelog for found in known.values() if found.changelog}))
    result = dict(shapes)
    for name, here in known.items():
        topic = described.get(here.changelog)
        if here.changelog and (topic is None or topic.topic_id != here.topic_id):
            continue  # it speaks of a topic that is gone
        there = shapes.get(name)
        if there is not None and (otherwise := _contradiction(here, there)):
            raise InputError(f"{path}: store {name} {otherwise}; correct the file, or leave the store out of it")
        if there is None or here.shown or here.definition is not None or not there.definition:
            result[name] = here
        if there is not None and here.is_global and there.global_kind is not None and not here.global_said:
            result[name] = here.model_copy(update={"global_kind": there.global_kind, "global_said": there.global_said})
    return result


def _contradiction(here: KnownStore, there: KnownStore) -> str:
    one, other = here.definition, there.definition
    if one is None or other is None:
        return ""
    for field in ("kind", "format", "retention_ms", "retain_duplicates"):
        if getattr(one, field) != getattr(other, field):
            return f"has {field}={getattr(other, field)}, and is known here with {getattr(one, field)}"
    found, known = (definition.store_kind.segment_interval_ms(definition) for definition in (other, one))
    if found != known:
        return f"has segment_interval_ms={found}, and is known here with {known}"
    if here.is_global != there.is_global:
        one_of = {True: "a global store", False: "a store of tasks"}
        return f"is {one_of[there.is_global]}, and is known here as {one_of[here.is_global]}"
    if here.global_said and there.global_said and here.global_kind != there.global_kind:
        return f"has global={there.global_kind}, and is known here with {here.global_kind}"
    if here.subtopology is not None and there.subtopology is not None and here.subtopology != there.subtopology:
        return f"has subtopology={there.subtopology}, and is known here with {here.subtopology}"
    return ""


def _rows(path: Path) -> list[StoreShapeRow]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path} has more than {_MAX_BYTES} bytes; expected a shapes file")
        content = _File.model_validate_json(path.read_bytes())
        rows = _ROWS.validate_python(content.shapes)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; name a shapes file") from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"]) or "it"
        raise InputError(
            f"{path} is not a shapes file: {where}: {problem['msg']}; expected what `statestore partitions "
            "--json` prints"
        ) from error
    for row in rows:
        try:
            for name in (row.store, *([] if row.application is None else [row.application])):
                check_name(name)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
    return rows


def _known(path: Path, application: str, row: StoreShapeRow) -> KnownStore:
    topic = {"changelog": row.changelog or changelog_topic(application, row.store), "topic_id": row.topic_id or ""}
    if row.in_memory:
        return KnownStore(in_memory=True, **topic)
    formats = {found.value for found in StoreFormat}
    is_shown = "described" in row.model_fields_set and row.topic_id is not None
    # Whoever prints what a directory shows knows its topic, and that nobody needed to say it.
    described = row.described if is_shown else f"kind={row.kind}, format={row.format} in {path.name}"

    def unknown(why: str) -> KnownStore:
        return KnownStore(unknown=f"{path.name} has {why}", described=described, **topic)

    if not is_built_in(row.kind) or row.format not in formats:
        return unknown(f"kind={row.kind}, format={row.format}")
    kind = BUILT_IN[row.kind]
    if kind.times and row.retention_ms is None:
        raise InputError(f"{path}: store {row.store} is a {row.kind} store; add its retention_ms")
    interval_ms = segment_interval_ms(row.retention_ms or 0) if kind.segmented else None
    if interval_ms is not None and row.segment_interval_ms not in (None, interval_ms):
        return unknown(
            f"segments of {row.segment_interval_ms} ms, and a retention of {row.retention_ms} ms, which makes segments "
            f"of {interval_ms} ms"
        )
    if row.global_kind is None and row.subtopology is None:
        raise InputError(f"{path}: store {row.store} has no subtopology; add it, or global if it is a global store")
    if row.global_kind == "table" and kind.segmented:
        raise InputError(f"{path}: store {row.store} is a global table, expected kind=key-value, found {row.kind}")
    fields: dict[str, object] = {"name": row.store, "kind": row.kind, "format": row.format, "engine": "rocksDB"}
    fields |= {name: getattr(row, name, 0) for name in kind.settings}  # no file tells how long a window is
    try:
        definition = StoreDefinition.model_validate(fields)
    except ValidationError as error:  # a file does not say all of such a kind
        return unknown(f"kind={row.kind}: {error.errors()[0]['msg']}")
    return KnownStore(
        definition=definition,
        segment_interval_ms=interval_ms,
        subtopology=None if row.global_kind is not None else row.subtopology,
        described=described,
        offsets_beside=row.offsets_beside,
        is_global=row.global_kind is not None,
        global_kind=None if row.global_kind == "unknown" else row.global_kind,
        global_said=row.global_said and row.global_kind not in (None, "unknown"),
        **topic,
    )


def _with_topic_ids(found: Mapping[str, Mapping[str, KnownStore]], topics: Topics) -> dict[str, dict[str, KnownStore]]:
    """Note of which topic a file speaks that names no topic's id: the one that is there."""
    unsaid = {known.changelog for stores in found.values() for known in stores.values() if not known.topic_id}
    described = topics.describe(sorted(unsaid))

    def noted(known: KnownStore) -> KnownStore:
        topic = None if known.topic_id else described.get(known.changelog)
        return known if topic is None else known.model_copy(update={"topic_id": topic.topic_id})

    return {name: {store: noted(known) for store, known in stores.items()} for name, stores in found.items()}
