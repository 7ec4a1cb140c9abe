"""The commands on the catalogue: apply, list, get, describe, drop, history."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from statestore.cli import completion, next_steps, options, output
from statestore.errors import DefinitionError, InputError

if TYPE_CHECKING:
    from statestore.cli.service import Service
    from statestore.definitions.application import ApplicationDefinition
    from statestore.metastore.plan import Plan
    from statestore.metastore.view import Submitted

_STANDARD_INPUT = Path("-")
#: Roles of the topics that `apply` can create.
_TOPIC_ROLES = ("input", "output", "dead-letter")
Application = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of an application.", autocompletion=completion.applications),
]


@options.with_service
def apply(
    service: Service,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|DIR", help="YAML files, or directories of them; - is standard input."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan. Change nothing.")] = False,
    create: Annotated[
        bool,
        typer.Option(
            "--create-topics",
            help="Create input, output, and dead-letter topics that do not exist, with the brokers' default settings.",
        ),
    ] = False,
    partitions: Annotated[
        int,
        typer.Option(
            min=1, help="With --create-topics: number of partitions of the new topics, if the input topic is also new."
        ),
    ] = 4,
    topic_config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ROLE:]NAME=VALUE",
            help="With --create-topics: a setting of the topics that are created, such as compression.type=zstd, or "
            "of those with this role (input, output, or dead-letter), such as input:retention.ms=-1. Existing topics "
            "are not changed. May be repeated.",
        ),
    ] = None,
    take_from: Annotated[
        str | None,
        typer.Option(
            metavar="SERVICE-ID",
            help="Take the applications over from another catalogue of this cluster. Stop them first, and drop them "
            "there afterwards.",
            show_default=False,
        ),
    ] = None,
    yes: options.Yes = False,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="STATESTORE_STATE_DIR",
            help="State directory of the stores (Kafka Streams' state.dir). Required if stores are removed: its locks "
            "show whether the application is running.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = None,
) -> None:
    """Define applications: show the changes, ask for confirmation, and submit them. Without a terminal, use --yes."""
    from statestore.cli import catalogue_tables as shown
    from statestore.metastore.apply import (
        Applied,
        carry_out,
        plan_definitions,
        require_own_topic,
        require_runnable,
    )
    from statestore.metastore.claims import require_own
    from statestore.metastore.effects import create_topics, missing_topics

    options.require_writable(json=json)
    configs = _topic_configs(topic_config or ())
    if topic_config and not create:
        raise InputError("--topic-config applies only to topics that this command creates. Add --create-topics")
    definitions = _definitions(paths)
    view = service.view() if dry_run else service.metastore.require_running()
    require_own_topic(service.topics, service.service_id)
    require_own(service.topics, definitions, service.service_id, take_from)
    to_create = missing_topics(service.topics, definitions.values(), partitions, configs) if create else {}
    plan = plan_definitions(service.topics, view.catalogue, definitions.values(), to_create)
    require_runnable(plan)
    console = output.console(json)
    output.say(console, shown.plan_text(plan, to_create.values()))
    if not dry_run:
        _require_agreed(plan, state_dir, yes=yes, creates=bool(to_create))
    pin, done, applied = view.pin, list[Applied](), False
    try:
        if not dry_run:
            create_topics(service.topics, to_create.values())
            kept = None if state_dir is None else state_dir.absolute()
            for step, submitted in carry_out(
                service.topics, service.metastore, view.catalogue, plan, kept, taken_from=take_from
            ):
                if submitted is not None:
                    done.append(Applied(step, submitted))
                    pin = submitted.view.pin
                    _say(console, submitted, step.application)
            applied = True
            pin = service.metastore.view().pin
            output.say(console, f"catalogue {pin}")
    finally:  # what is committed is said, whatever came after it
        content = shown.applied_content(plan, done, pin, applied=applied)
        output.write_content(json, content | {"topics": [topic._asdict() for topic in to_create.values()]})
    if applied and done:
        names = " ".join(f"--application {each.step.application}" for each in done)
        process = f"statestore process {names}{next_steps.carried()}"
        output.say_next([next_steps.with_extra("spark", process, "process the input that is there")], json)
    elif dry_run and (plan.changes_something or to_create):
        output.say_next([(next_steps.again(without="--dry-run"), "apply it")], json)


@options.with_service
def list_(service: Service, at: options.At = None, json: options.Json = None) -> None:
    """List the applications and stores of the catalogue."""
    from statestore.cli import catalogue_tables as shown

    options.require_writable(json=json)
    view = service.view(at)
    console = output.console(json)
    console.print(shown.applications_table(view))
    output.say(console, f"catalogue {view.pin}")
    output.write_content(json, shown.view_content(view))


@options.with_service
def get(
    service: Service,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Names of applications. Default: all.",
            autocompletion=completion.applications,
        ),
    ] = None,
    at: options.At = None,
    json: options.Json = None,
) -> None:
    """Print definitions as YAML that `apply` accepts, with all defaults."""
    from statestore.metastore.definition_files import to_yaml

    options.require_writable(json=json)
    catalogue = service.view(at).catalogue
    entries = [catalogue.entry(name) for name in names or catalogue.applications]
    if json != output.STANDARD_OUTPUT:
        print("---\n".join(to_yaml(entry.definition) for entry in entries), end="")
    output.write_content(json, {entry.definition.name: entry.definition.model_dump(mode="json") for entry in entries})


@options.with_service
def describe(service: Service, name: Application, at: options.At = None, json: options.Json = None) -> None:
    """Show everything that the catalogue contains about one application."""
    from statestore.cli import catalogue_tables as shown

    options.require_writable(json=json)
    entry = service.view(at).catalogue.entry(name)
    console = output.console(json)
    for table in shown.entry_tables(entry):
        console.print(table)
    output.write_content(json, entry.model_dump(mode="json"))


@options.with_service
def drop(
    service: Service,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[/STORE]",
            help="An application, or one of its stores.",
            autocompletion=completion.applications,
        ),
    ],
    state_dir: options.StateDir,
    yes: options.Yes = False,
) -> None:
    """Remove an application or a store from the catalogue. Its topics and directories are kept.

    The command asks for confirmation. Without a terminal, use --yes.
    """
    from statestore.metastore.claims import release
    from statestore.metastore.dropping import drop_application, drop_store, feeds, readers_of
    from statestore.metastore.evolution import internal_topic_names, require_droppable
    from statestore.metastore.in_use import kept_free

    application, _, store = name.partition("/")
    catalogue = service.metastore.require_running().catalogue
    entry = catalogue.entry(application)
    fed: dict[str, str] = {}
    if "/" in name:
        require_droppable(entry, store)
        command = drop_store(application, store)
    else:
        fed = readers_of(catalogue, application)
        command = drop_application(application, fed)
    with kept_free(service.topics, state_dir.absolute(), application):
        if fed:
            print(f"statestore: {feeds(application, fed)}: after the drop, nothing writes there", file=sys.stderr)
        output.require_yes(f"Drop {name} from the catalogue?", yes=yes, otherwise="nothing was dropped")
        _say(output.console(), service.metastore.submit(command), name)
        if not store:
            release(service.topics, application, service.service_id)
    definition = entry.definition
    dropped = [found for found in definition.logged_stores if found.name == store]
    names = [found.changelog_of(application) for found in dropped] if store else internal_topic_names(definition)
    output.say(output.console(), f"its topics ({', '.join(names) or 'none'}) and directories were not deleted")
    step = f"statestore drift{next_steps.carried()}"
    output.say_next([(step, "list them, with the commands that remove them")])


@options.with_service
def history(
    service: Service,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Show only the commands for this application.", autocompletion=completion.applications
        ),
    ] = None,
    at: options.At = None,
    json: options.Json = None,
) -> None:
    """List the commands of the catalogue, and what each changed."""
    from statestore.cli import catalogue_tables as shown
    from statestore.cli.service import offset_of

    options.require_writable(json=json)
    service.view(at)  # says if the metastore is DEGRADED, and refuses what is no offset or pin of it
    end = None if at is None else offset_of(at)
    logged = [item for item in service.metastore.history() if end is None or item.offset < end]
    rows = shown.history_rows(logged)
    if name is not None:
        rows = [row for row in rows if row.application in (None, name)]
    output.console(json).print(shown.history_table(rows))
    output.write_content(json, shown.history_content(logged, name))


def _topic_configs(given: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the settings of created topics by role. A setting with a role overrides one for all roles.

    Raises
    ------
    InputError
        If a setting is malformed, or its role is unknown.
    """
    by_role: dict[str, dict[str, str]] = {}
    for scoped, value in options.require_settings("--topic-config", given).items():
        role, _, name = scoped.rpartition(":")
        if role not in ("", *_TOPIC_ROLES) or not name:
            raise InputError(f"--topic-config: expected one of the roles {', '.join(_TOPIC_ROLES)}, found {scoped!r}")
        by_role.setdefault(role, {})[name] = value
    of_all = by_role.get("", {})
    return {role: of_all | by_role.get(role, {}) for role in _TOPIC_ROLES}


def _definitions(paths: Iterable[Path]) -> dict[str, ApplicationDefinition]:
    from statestore.metastore.definition_files import load_definitions, read_definitions

    found: dict[str, ApplicationDefinition] = {}
    for path in paths:
        if path == _STANDARD_INPUT:
            more = read_definitions(sys.stdin.buffer, "standard input")
        else:
            more = load_definitions(path)
        if twice := sorted(found.keys() & more.keys()):
            raise DefinitionError(f"{path} defines {', '.join(twice)}, which another file also defines")
        found |= more
    if not found:
        raise DefinitionError(f"{', '.join(map(str, paths))}: found no application there. Expected YAML files")
    return found


def _require_agreed(plan: Plan, state_dir: Path | None, *, yes: bool, creates: bool) -> None:
    losing = [f"{step.application} loses {', '.join(step.removed)}" for step in plan.steps if step.removed]
    if losing and state_dir is None:
        raise InputError(
            f"nothing was applied: {'; '.join(losing)}. Add --state-dir: its locks show whether the application is "
            f"running"
        )
    if plan.changes_something or creates:
        output.require_yes("Apply this?", yes=yes, otherwise="nothing was applied")


def _say(console: Console, submitted: Submitted, about: str) -> None:
    for warning in submitted.warnings:
        print(f"statestore: {warning}", file=sys.stderr)
    if submitted.command is not None:
        done = f"{about}: command {submitted.command.id} at offset {submitted.offset}"
        output.say(console, done)
