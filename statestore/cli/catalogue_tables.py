"""The catalogue for the eye, as tables and lines, and for programs, as what JSON can say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from statestore.cli.tables import counted, table
from statestore.clock import exact_duration
from statestore.metastore.apply import Applied
from statestore.metastore.catalogue import Rebuild
from statestore.metastore.commands import (
    AdoptChangelogs,
    Command,
    DropApplication,
    DropStore,
    Entry,
    PutApplication,
    RecordEvidence,
    RecordTopics,
    Snapshot,
    application_of,
)
from statestore.metastore.effects import NamedTopic, internal_topics
from statestore.metastore.evolution import written_topics
from statestore.metastore.plan import Plan, difference
from statestore.metastore.view import LoggedCommand, Pin, View

_SIGNS = {"create": ("+", "green"), "change": ("~", "yellow"), "unchanged": (" ", "")}
_COUNTS = {"create": "to create", "change": "to change", "unchanged": "unchanged"}


def plan_text(plan: Plan, to_create: Iterable[NamedTopic] = ()) -> Text:
    """Say which topics would be created, and what would become of each application, field by field."""
    text = Text()
    for topic in to_create:
        config = "".join(f", {name}={value}" for name, value in topic.config.items())
        partitions = counted(topic.partitions, "partition")
        text.append(f"+ create {topic.role} topic {topic.name}, {partitions}{config}\n", style="green")
    for step in plan.steps:
        sign, style = _SIGNS[step.kind]
        text.append(f"{sign} {step.kind} {step.application}\n", style=style)
        for line in step.lines():
            text.append(f"    {line}\n")
    kinds: list[str] = [step.kind for step in plan.steps]
    text.append(", ".join(f"{kinds.count(kind)} {said}" for kind, said in _COUNTS.items()))
    return text


def plan_content(plan: Plan) -> list[dict[str, Any]]:
    """Say the same for a program."""
    return [
        {
            "application": step.application,
            "kind": step.kind,
            "changes": [change._asdict() for change in step.changes],
        }
        for step in plan.steps
    ]


def applied_content(plan: Plan, done: Iterable[Applied], pin: Pin, *, applied: bool) -> dict[str, Any]:
    """Say the same, whether all of it was done, and the commands that are committed."""
    return {
        "catalogue": str(pin),
        "applied": applied,
        "commands": [
            {"application": step.application, "id": submitted.command.id, "offset": submitted.offset}
            for step, submitted in done
            if submitted is not None and submitted.command is not None
        ],
        "plan": plan_content(plan),
    }


def applications_table(view: View) -> Table:
    """List applications and stores."""
    columns = ("application", "store", "kind", "format", "engine", "partitions>", "owner", "changed")
    rows = [
        (
            *(name, store.name, store.kind, store.format.value, store.engine, entry.partitions[part.input_topic]),
            *(store.owner, _time(entry.changed_ms)),
        )
        for name, entry in view.catalogue.applications.items()
        for part in entry.definition.subtopologies
        for store in part.stores
    ]
    title = f"{counted(len(view.catalogue.applications), 'application')}, {counted(len(rows), 'store')}"
    return table(title, columns, rows)


def view_content(view: View) -> dict[str, Any]:
    """Say the same, and all the rest, for a program."""
    return {
        "catalogue": str(view.pin),
        "health": view.health.value,
        "reason": view.reason,
        **view.catalogue.content().model_dump(mode="json"),
    }


def entry_tables(entry: Entry) -> list[Table]:
    """Show an application: what it is, its stores, its topics."""
    definition = entry.definition
    facts = (
        ("created", f"by command {entry.created_id}"),
        ("changed", f"by command {entry.changed_id}, {_time(entry.changed_ms)}, {entry.changed_by}"),
        ("processor", definition.processor),
        ("guarantee", definition.processing_guarantee),
        ("commit interval", exact_duration(definition.commit_interval_ms)),
        *(
            ("aggregation", f"{item.aggregate} into {item.store}" + (f" by {item.group_by}" if item.group_by else ""))
            for item in definition.aggregations
        ),
    )
    stores = [
        (
            *(store.name, store.kind, store.format.value, store.engine),
            *(f"{part.index}_0 to {part.index}_{entry.partitions[part.input_topic] - 1}",),
            *(exact_duration(store.retention_ms), exact_duration(store.window_size_ms)),
            *(store.expectations, store.owner),
        )
        for part in definition.subtopologies
        for store in part.stores
    ]
    columns = ("store", "kind", "format", "engine", "tasks", "retention>", "window>", "expectations", "owner")
    return [
        table("", (definition.name, ""), facts),
        table(counted(len(stores), "store"), columns, stores),
        table("topics", ("topic", "role", "partitions>", "id"), _topics(entry)),
    ]


def _topics(entry: Entry) -> list[tuple[str, str, int | None, str]]:
    definition = entry.definition
    own = internal_topics(definition, entry.partitions)
    return [
        (definition.input_topic, "input", entry.partitions[definition.input_topic], ""),
        *((name, role, None, "") for name, role in written_topics(definition).items()),
        *(
            (topic.name, "internal", topic.partitions, (entry.topics or {}).get(topic.name, "not recorded"))
            for topic in own
        ),
    ]


class HistoryRow(NamedTuple):
    """A command of the log, and what it did.

    Attributes
    ----------
    application
        None if the command is about all, or cannot be read.
    """

    offset: int
    written: str
    written_by: str
    application: str | None
    what: str


def history_rows(logged: Iterable[LoggedCommand]) -> list[HistoryRow]:
    """Say of each command what it changed in the catalogue of the commands before it."""
    rebuild, rows = Rebuild(), []
    for offset, timestamp, command, problem in logged:
        if command is None:
            rows.append(HistoryRow(offset, _time(timestamp), "", None, f"unreadable: {problem}"))
            continue
        stamp = (_time(command.written_ms), command.written_by)
        what = problem or _what(command, rebuild)
        rows.append(HistoryRow(offset, *stamp, application_of(command), what))
        if not problem:
            rebuild.apply(command)
    return rows


def _what(command: Command, before: Rebuild) -> str:
    match command:
        case PutApplication():
            old = before.catalogue().applications.get(command.definition.name)
            if old is None:
                return "created"
            return "; ".join(map(str, difference(old.definition, command.definition))) or "partitions"
        case DropApplication():
            return "dropped"
        case DropStore():
            return f"dropped store {command.store}"
        case RecordTopics():
            return f"recorded {counted(len(command.topics), 'topic')}"
        case AdoptChangelogs():
            changed = ((f"stores.{name}", new) for name, new in command.changelogs.items())
            return "; ".join(f"{of}.changelog: {new.before} -> {new.topic}, {new.format}" for of, new in changed)
        case RecordEvidence():
            return f"recorded evidence up to document {command.head.length}"
        case Snapshot():
            return f"snapshot of {counted(len(command.catalogue.applications), 'application')}"


def history_table(rows: Sequence[HistoryRow]) -> Table:
    """List commands."""
    columns = ("offset>", "written", "by", "application", "what")
    # Offsets without separators of thousands: they are for `--at`.
    shown = [(str(row.offset), row.written, row.written_by, row.application, row.what) for row in rows]
    return table(counted(len(rows), "command"), columns, shown)


def history_content(logged: Iterable[LoggedCommand], application: str | None = None) -> dict[str, Any]:
    """Return the commands as they are in the log, of one application or of all."""
    return {
        "commands": [
            {
                "offset": item.offset,
                "timestamp": item.timestamp,
                "problem": item.problem,
                "command": item.command.model_dump(mode="json") if item.command else None,
            }
            for item in logged
            if application is None or item.command is None or application_of(item.command) in (None, application)
        ]
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
