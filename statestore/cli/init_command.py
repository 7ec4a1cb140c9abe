"""The command `init`: creates a starter project that runs on `make up`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from statestore.cli import output


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of the project. Created if it does not exist.")
    ],
    name: Annotated[str, typer.Option(help="Name of the application.")] = "order-totals",
    bootstrap_servers: Annotated[
        str, typer.Option(envvar="STATESTORE_BOOTSTRAP_SERVERS", help="Kafka brokers.")
    ] = "localhost:9092",
    state_dir: Annotated[
        Path | None,
        typer.Option(envvar="STATESTORE_STATE_DIR", help="Directory of its stores. Default: DIR/state."),
    ] = None,
    reports_dir: Annotated[
        str | None,
        typer.Option(envvar="STATESTORE_REPORTS_DIR", help="Directory or URL of reports. Default: DIR/reports."),
    ] = None,
) -> None:
    """Create a project: a definition, a processor, a test, a program that sends input, and a file with settings."""
    from statestore.cli.project import make_project
    from statestore.objects.path import location

    settings = {
        "STATESTORE_BOOTSTRAP_SERVERS": bootstrap_servers,
        "STATESTORE_STATE_DIR": str((state_dir or directory / "state").absolute()),
        "STATESTORE_REPORTS_DIR": str(location(reports_dir or str(directory / "reports")).absolute()),
    }
    made = make_project(directory, name, settings)
    console = output.console()
    for path in made.made:
        output.say(console, f"made {path}")
    if made.environment not in made.made:
        output.say(console, f"left {made.environment} unchanged")
    output.say_next(made.next_steps())
