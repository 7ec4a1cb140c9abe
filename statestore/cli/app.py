"""The commands, and one clear message where one cannot be carried out.

Exit codes: see `exit_codes.py`.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from statestore.cli import (
    audit_command,
    bisect_command,
    catalogue,
    drill_command,
    evidence_commands,
    expectations,
    init_command,
    metastore,
    output,
    read_command,
    rewrite_commands,
    snapshot_commands,
    survey_command,
)
from statestore.cli import drift_command as drifting
from statestore.cli import exit_codes as ending
from statestore.cli import job_commands as running
from statestore.cli import report_commands as reporting
from statestore.cli import restore_command as mending
from statestore.cli import store_commands as looking
from statestore.cli import warm_command as warming
from statestore.errors import StateStoreError, of_os_error

app = typer.Typer(
    help="Define and run stream applications. Verify, restore, and validate their state stores, and those of Kafka "
    "Streams.",
    epilog="Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in ending.CODES.items()) + ".",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _say_version(said: bool) -> None:
    if said:
        from importlib.metadata import version

        print(f"statestore {version('statestore')}")
        raise typer.Exit


@app.callback()
def _of_all(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Options that precede a command."""


app.command()(init_command.init)
app.command()(catalogue.apply)
app.command("list")(catalogue.list_)
app.command()(catalogue.get)
app.command()(catalogue.describe)
app.command()(catalogue.drop)
app.command()(catalogue.history)
app.command()(drifting.drift)
app.add_typer(metastore.app, name="metastore")
app.command()(survey_command.survey)
app.command()(looking.partitions)
app.command()(running.process)
app.command()(looking.verify)
app.command()(mending.restore)
app.command()(bisect_command.bisect)
app.command()(warming.warm)
app.command()(drill_command.drill)
app.command()(running.validate)
app.command()(running.maintain)
app.command()(read_command.read)
app.command()(reporting.report)
app.command()(reporting.progress)
app.command()(audit_command.audit)
app.add_typer(snapshot_commands.app, name="snapshot")
app.add_typer(rewrite_commands.app, name="rewrite")
app.add_typer(evidence_commands.app, name="evidence")
app.add_typer(expectations.app, name="expectations")

for _group in (app, *(added.typer_instance for added in app.registered_groups if added.typer_instance is not None)):
    for _command in _group.registered_commands:
        if _command.callback is not None:
            _command.callback = output.with_quiet(_command.callback)


def main() -> None:
    """Run the command and exit with its code."""
    try:
        app()
    except (StateStoreError, OSError) as error:
        sys.exit(ending.end_with(of_os_error(error) if isinstance(error, OSError) else error))
    except SystemExit as ended:
        # What typer itself refuses it has said to people, and kept what it was.
        if (refused := getattr(ended.__context__, "format_message", None)) is not None:
            ending.say_error("UsageError", refused(), 2, said=True)
        raise
