"""The commands on the command topic itself: status, compact, restore-backup."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from statestore.cli import options, output

if TYPE_CHECKING:
    from statestore.cli.service import Service

app = typer.Typer(
    help="Show the state of the command topic, compact it, or restore it from its backup.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
@options.with_service
def status(service: Service, json: options.Json = None) -> None:
    """Show whether the catalogue is complete and accepts commands. Exit code 1 if it is DEGRADED."""
    from statestore.cli import tables
    from statestore.metastore.command_topic import topic_name
    from statestore.metastore.view import Health

    options.require_writable(json=json)
    view = service.metastore.view()
    content = {
        "service_id": service.service_id,
        "topic": topic_name(service.service_id),
        "topic_id": view.topic_id,
        "health": view.health.value,
        "reason": view.reason,
        "catalogue": str(view.pin),
        "applications": len(view.catalogue.applications),
        "next_id": view.catalogue.next_id,
        "backup": None if service.backup is None else str(service.backup),
    }
    rows = [(name.replace("_", " "), None if value is None else str(value)) for name, value in content.items()]
    output.console(json).print(tables.table("", ("metastore", ""), rows))
    output.write_content(json, content)
    raise typer.Exit(0 if view.health is Health.RUNNING else 1)


@app.command()
@options.with_service
def compact(service: Service) -> None:
    """Replace all commands with one that contains the whole catalogue. `history` and --at start there."""
    done = service.metastore.compact()
    for warning in done.warnings:
        print(f"statestore: {warning}", file=sys.stderr)
    console = output.console()
    if done.deleted:
        output.say(console, f"the log now starts at offset {done.offset}: snapshot of catalogue {done.view.pin}")
    else:
        output.say(console, f"nothing to compact: catalogue {done.view.pin}")


@app.command("restore-backup")
@options.with_service
def restore_backup(service: Service, yes: options.Yes = False) -> None:
    """Delete the command topic, recreate it, and write the content of the backup into it. Asks first."""
    from statestore.metastore.command_topic import topic_name

    topic = topic_name(service.service_id)
    plan = service.metastore.plan_restore()
    more = f" and {len(plan.kept)} that only the topic had" if plan.kept else ""
    lost = ", without what is listed above" if plan.lost else ""
    for record in plan.lost:
        print(f"statestore: no command, {record}", file=sys.stderr)
    output.require_yes(
        f"Delete {topic} if it exists, and recreate it from {service.backup}{more}{lost}?",
        yes=yes,
        otherwise=f"{topic} was not changed",
    )
    restored = service.metastore.restore_backup(plan)
    done = f"{topic} has {len(plan.saved)} commands of {service.backup}{more}: catalogue {restored.view.pin}"
    output.say(output.console(), done)
