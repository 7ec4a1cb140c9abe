"""The command `drift`: lists differences from the catalogue, and repairs those that a repair does not make worse."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from statestore.cli import next_steps, options, output

if TYPE_CHECKING:
    from statestore.cli.service import Service
    from statestore.metastore.drift import Drift
    from statestore.metastore.view import View


@options.with_service
def drift(
    service: Service,
    state_dir: options.StateDir,
    mend: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Repair what can be repaired. Ask first if a log is affected. Refused for a changelog whose rows only "
            "the stores have.",
        ),
    ] = False,
    yes: options.Yes = False,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """List differences between the catalogue and Kafka or the state directory. Exit code 1 if there is drift.

    Leftover topics and directories do not count as drift. If the metastore is DEGRADED, the exit code is also 1,
    nothing is repaired, and leftovers are not listed. With an archive, the command also warns if snapshots are too
    infrequent for the delete.retention.ms of a changelog.
    """
    from statestore import clock
    from statestore.archive.archive import archive_spec
    from statestore.cli.selection import Where
    from statestore.config import is_node_local
    from statestore.metastore.drift import Remedy, find_drift, repair
    from statestore.metastore.snapshot_drift import rare_snapshots
    from statestore.metastore.view import Health

    how = {Remedy.REPAIR: "--repair will: ", Remedy.ASK: "--repair asks, then will: ", Remedy.BY_HAND: "manual: "}
    options.require_writable(json=json)
    topics, metastore = service.topics, service.metastore
    where = Where(service.cluster, state_dir.absolute())

    snapshots = archive_spec(archive, archive_timeout_s, topics)

    def find(view: View) -> list[Drift]:
        found = find_drift(where, service.service_id, view, topics, node_local=is_node_local())
        return found if snapshots is None else found + rare_snapshots(snapshots, view, topics, clock.now_ms())

    console = output.console(json)
    view = metastore.require_running() if mend else service.view()
    found = find(view)
    repaired: list[Drift] = []
    if mend:
        for item in found:
            if _agreed(item, yes=yes):
                repair(item, topics, metastore)
                repaired.append(item)
                output.say(console, f"repaired {item.subject}: {item.todo}")
        view = service.view()
        found = find(view)
    for item in found:
        whose = f" of {item.application}" if item.application else ""
        output.say(
            console, Text(f"{item.kind.value}: {item.subject}{whose}", "yellow" if item.is_warning else "bold red")
        )
        if not item.is_left and item.advice is None:
            output.say(console, f"    expected {item.expected}, found {item.found}")
        if item.advice is not None:
            output.say(console, f"    {item.advice.sentence}")
        if item.advice is None or item.remedy is not Remedy.BY_HAND:
            output.say(console, f"    {how[item.remedy]}{item.todo}")
    output.say(console, f"{len(found)} found")
    content = {
        "catalogue": str(view.pin),
        "health": view.health.value,
        "reason": view.reason,
        "drift": [_as_json(item) for item in found],
        "repaired": [_as_json(item) for item in repaired],
    }
    output.write_content(json, content)
    if not mend:
        steps = next_steps.advised([item.advice for item in found if item.advice and item.remedy is Remedy.BY_HAND])
        if any(item.remedy is not Remedy.BY_HAND for item in found):
            steps.append((f"{next_steps.again()} --repair", "repair what can be repaired; ask if a log is affected"))
        output.say_next(steps, json)
    raise typer.Exit(1 if view.health is not Health.RUNNING or any(not item.is_warning for item in found) else 0)


def _as_json(item: Drift) -> dict[str, Any]:
    step = item.advice
    return {**asdict(item), "advice": None if step is None else step.model_dump(mode="json")}


def _agreed(item: Drift, *, yes: bool) -> bool:
    """Tell whether a finding is to be mended; where nobody can be asked, the answer is no."""
    from statestore.metastore.drift import Remedy

    if item.remedy is Remedy.ASK:
        return yes or (output.on_terminal() and output.confirmed(f"{item.subject} ({item.found}): {item.todo}?"))
    return item.remedy is Remedy.REPAIR
